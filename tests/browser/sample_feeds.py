"""Sample feeds of the browser tests: text, images, code, tables and audio."""

RIVER = """
<p>For about four hundred years the Tarn ran past the tannery, turned under the bridge and left
the valley by the east gate. Then, in the dry spring of 1873, it stopped. Not gradually, as rivers
do when the rain stays away, but between a Tuesday and a Wednesday.</p>
<p>The mill stood still. Children collected eels in buckets. And the surveyor <a
href="https://example.org/moreau">Hélène Moreau</a> did something unexpected: she bought three
pounds of dye.</p>
<figure><img src="{site}/picture/4.svg" alt="Hills above a valley in the evening" width="960"
height="480"><figcaption>The valley above the sink, looking east.</figcaption></figure>
<p>Where limestone lies under a bed of clay a river does not flow, it negotiates. It finds a joint
in the rock, dissolves a little of it each winter, and one day the joint is a door.</p>
<blockquote><p>A river is only ever the shortest way that has been found so far.</p>
</blockquote>
<p>Moreau’s dye came up nine kilometers away, in the cellar of an inn, eleven days later, and
turned all the laundry of the place green. She paid for the linen, and drew the first correct map
of the valley.</p>
<h2>Where it is now</h2>
<p>You can still hear it. At the east gate, at night, if no cars pass, there is a sound below the
grating like a voice reading aloud next door.</p>
"""

RELEASE = """
<p>Builds that change nothing now end before they begin.</p>
<pre><code>$ kiln build --explain
nothing to do: 1,204 targets are as they should be (11 ms)</code></pre>
<ul><li>Remote caches may be <code>read-only</code>.</li>
<li><code>kiln why TARGET</code> prints the shortest path to what changed.</li></ul>
<table><tr><th>targets</th><th>4.1</th><th>4.2</th></tr>
<tr><td>1,000</td><td>90 ms</td><td>11 ms</td></tr>
<tr><td>100,000</td><td>7.2 s</td><td>0.4 s</td></tr></table>
"""

#: Feeds by slug: title, folder, and posts (title, author, HTML) from old to new.
SAMPLE_FEEDS = {
    "marginalia": (
        "Marginalia",
        "Science",
        [
            (
                "Counting swifts",
                "Ada Writer",
                "<p>Every evening in June a volunteer stands on the roof of the old school and"
                " counts. The numbers go into a notebook from 1931.</p><p>No year is missing.</p>",
            ),
            (
                "A map of the night",
                "Ada Writer",
                "<p>The darkest place in the county is a lay-by. I drove there to see what could"
                " be seen.</p>",
            ),
            (
                "What a glacier writes down",
                "Jon Field",
                "<p>Ice keeps a diary in bubbles. Cut a core, let a slice of it melt in a closed"
                " jar, and the air of some forgotten winter is in your laboratory.</p>"
                "<h2>How to read it</h2><p>Slowly. The oldest pages are the thinnest.</p>",
            ),
            (
                "The river that went underground",
                "Ada Writer",
                RIVER,
            ),
        ],
    ),
    "tidepool": (
        "Tidepool Observatory",
        "Science",
        [
            (
                "Barnacles do not move, mostly",
                "Rosa Hale",
                "<p>They do, it turns out, about a millimetre a year.</p>",
            ),
            ("Low water, 5:12", "Rosa Hale", "<p>Cold hands, one octopus, no signal.</p>"),
            (
                "A field guide to foam",
                "Rosa Hale",
                "<p>Brown foam is algae. White foam is mostly wind.</p>",
            ),
        ],
    ),
    "kiln": (
        "Kiln, a build tool",
        "Software",
        [
            ("Release 4.1.2", "", "<p>Fixes a crash when a target has no name.</p>"),
            (
                "Release 4.2",
                "",
                RELEASE,
            ),
        ],
    ),
    "slowcode": (
        "Slow Code",
        "Software",
        [
            (
                "Names that explain themselves",
                "Nils Kemp",
                "<p>If you need the comment, you needed the name.</p>",
            ),
            ("Delete first", "Nils Kemp", "<p>The fastest line is the one that is not there.</p>"),
            (
                "On being wrong about caches",
                "Nils Kemp",
                "<p>I measured. I was wrong by a factor of forty.</p>",
            ),
        ],
    ),
    "longwave": (
        "Long Wave",
        "Listening",
        [
            (
                "Episode 11: Fog signals",
                "Mira Okafor",
                "<p>A visit to the last horn on the coast that still runs on air.</p>",
            ),
            (
                "Episode 12: The time signal",
                "Mira Okafor",
                "<p>Six pips, a century of them, and who pressed the button.</p>",
            ),
        ],
    ),
    "weekly": (
        "Weekly notes",
        "",
        [
            ("Week 45", "Tilda", "<p>Rain. Bread. A new hinge for the gate.</p>"),
            ("Week 46", "Tilda", "<p>The gate leans the other way now.</p>"),
        ],
    ),
}
