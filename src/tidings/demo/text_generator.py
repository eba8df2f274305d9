"""Generate names, titles and texts of simulated publishers from a grammar and a seed.

In a rule, `|` separates alternatives and `||` separates paragraphs. A name in braces is replaced by
an alternative of that rule. Within one post a name always has the same replacement, so the text
matches the title. The same seed gives the same text.
"""

import random
import re

#: Placeholder that is replaced by a text of another rule.
PLACEHOLDER = re.compile(r"\{(\w+)\}")
#: First letter of a sentence.
SENTENCE_START = re.compile(r"^[a-z]|(?<=[.?!] )[a-z]")

#: Rules shared by all styles.
COMMON = {
    "place": (
        "Harrow Quay|Lower Ashby|Castle Wend|Nettlebridge|Port Orren|Saltmarsh|Upper Tolling|"
        "Marrow Hill|Eastfen|Kirkmere|Dunmoor|Whitsand|Three Elms|Long Barrow|Old Ferry|"
        "Quillbrook|Starling Down|Thornby|Millrace|Amberley Cross"
    ),
    "name": (
        "Agnes|Bela|Carla|Dov|Edith|Farid|Greta|Hugo|Ines|Jonas|Kaja|Leo|Mira|Nils|Oona|Pavel|"
        "Rosa|Sefton|Tilda|Yusuf"
    ),
    "family": (
        "Abbot|Brandt|Calder|Dimitrov|Eklund|Fenn|Garrow|Hale|Iversen|Juric|Kemp|Lindqvist|Marsh|"
        "Novak|Okafor|Pryce"
    ),
    "day": (
        "yesterday|this morning|on Tuesday|last weekend|the other evening|before breakfast|in the "
        "rain"
    ),
    "number": "three|four|seven|eleven|fourteen|nineteen|twenty-two|forty",
    "time": "a week|ten days|a month|two winters|most of the spring|a year and a half",
}

#: Rules by writing style.
STYLES: dict[str, dict[str, str]] = {
    "news": {
        "feed": (
            "The {place} Courier|{place} Evening Post|{place} Gazette|Radio {place} News|The "
            "{place} Observer"
        ),
        "matter": (
            "the harbor wall|the tram line|the old mill|the library roof|the night bus|the river "
            "path"
        ),
        "body": "council|planning board|port authority|parish assembly|transport committee",
        "title": (
            "{body} votes to repair {matter}|Work on {matter} to begin in {place}|{name} {family} "
            "named head of {body}|Petition to keep {matter} has {number} thousand names|What the "
            "{body} said about {matter}, and what it did not"
        ),
        "text": (
            "The {body} of {place} has agreed to spend more on {matter}, after a debate of "
            "{number} hours.|"
            "There will be no decision on {matter} before the summer, the {body} of {place} said "
            "{day}.|"
            "{number} residents came to hear the {body} of {place} explain its plans for "
            "{matter}; few were convinced.||"
            "“We have waited {time} for this,” said {name} {family}, who lives across the road.|"
            "{name} {family}, who speaks for the residents, called it a start, “if a late one”.|"
            "The figures, which this paper has seen, were drawn up {time} ago and have not been "
            "checked since.||"
            "Work is expected to take {time}.|"
            "An earlier plan was dropped when the estimate rose.|"
            "The {body} meets again next month."
        ),
    },
    "night": {
        "feed": (
            "Letters after midnight|{name}, awake|The lamp in {place}|Small hours, {place}|Notes "
            "by {name} {family}"
        ),
        "thing": (
            "the moth on the screen|a film without an ending|the piano next door|an unsent letter|"
            "the last train|rain"
        ),
        "title": (
            "On {thing}|{thing}, again|Something about {thing}|Why I keep thinking of {thing}"
        ),
        "text": (
            "It is past one and I should be asleep, but there is {thing}, and I have {number} "
            "minutes of tea left.|"
            "All is quiet. I sat down to write about something else, and then {thing} came "
            "into it.|"
            "{name} wanted to know {day} what I do at this hour. I said: {thing}. That was not "
            "quite a lie.||"
            "{family} once wrote that you only notice {thing} after {time} of not looking for it.|"
            "For {time} I had a theory about {thing}. It fell apart {day}, in {place}, at a bus "
            "stop.|"
            "There are {number} ways to put this, and in all of them {thing} wins.||"
            "Nothing follows from this. Good night.|"
            "I will read this tomorrow and take it down. Or not.|"
            "The lamp in the window opposite is still on."
        ),
    },
    "weekend": {
        "feed": (
            "{place} on foot|The {family} allotment|Bread and {place}|Saturday workshop, {place}|"
            "Slow miles"
        ),
        "thing": (
            "the rye starter|the leaning gate|a row of broad beans|the bicycle from the skip|the "
            "path above {place}"
        ),
        "title": (
            "A weekend with {thing}|{thing}: {number} hours, one blister|What {thing} taught me|"
            "Photos: {thing}"
        ),
        "text": (
            "We set out early for {thing}, with a flask and {number} plasters, and came home "
            "late.|"
            "Saturday was meant for {thing}. Sunday was, too, as it turned out.|"
            "{name} came over with tools, {family} with cake, and by noon there was {thing} to "
            "show for it.||"
            "The trick, {name} says, is to leave it for {time} and then to do everything at once.|"
            "If you try this in {place}, bring gloves. I counted {number} reasons afterwards.|"
            "I had put it off for {time}, which is about as long as I usually do.||"
            "More next weekend, if the weather in {place} holds.|"
            "Recipe and drawings on request.|"
            "The pictures do not show the mud."
        ),
    },
    "cron": {
        "feed": (
            "{place} tide tables|{place} weather station|Build status: {tool}|Levels at {place} "
            "weir|{tool} nightly"
        ),
        "tool": "lantern|quern|rookery|thimble|mangrove|sextant",
        "state": "rising|falling|steady|within limits|above the mean",
        "title": (
            "Reading for {place}: {state}|{tool}: {number} checks passed|Report at the hour, "
            "{place}: {state}"
        ),
        "text": (
            "Automatic report for {place}. {number} sensors answered; the value is {state}.|"
            "{number} of {number} checks are done. Compared with {time} ago: {state}.|"
            "This message was made by a machine in {place}. All readings are {state}.||"
            "The next report follows on the hour.|"
            "Mail to this address is not read.|"
            "Maintenance by {name} {family}."
        ),
    },
    "burst": {
        "feed": (
            "{name} links|Found by {name} {family}|The {place} scrapbook|Tabs I closed|{name}'s "
            "pile"
        ),
        "thing": (
            "old timetables|hand-drawn maps|the history of buttons|letterpress ink|lighthouse "
            "logs|museum card indexes"
        ),
        "title": (
            "Link: {thing}|More on {thing}|{number} pages about {thing}|{thing}, found {day}"
        ),
        "text": (
            "Cleaning out my tabs, all in one sitting. This one is about {thing}, and better than "
            "it sounds.|"
            "A collector in {place} has spent {time} on {thing}, and it shows.|"
            "{number} scans, no comments, no cookies: {thing}.||"
            "The part about {place} is worth the walk.|"
            "By way of {name}, who finds everything.|"
            "I read it {day} and have annoyed {name} with it since."
        ),
    },
    "dying": {
        "feed": (
            "{name} {family}'s weblog|My year in {place}|Learning {tool}|The {tool} diaries|"
            "Postcards, {place}"
        ),
        "tool": "Esperanto|the accordion|bookbinding|archery|Old Norse|beekeeping",
        "title": (
            "Sorry for the silence|Still here, more or less|{tool}, part {number}|I have not "
            "forgotten {tool}"
        ),
        "text": (
            "It has been {time} since I wrote. {tool} turned out to take longer than I thought.|"
            "A short one: {tool} goes on, if slowly. {name} has given up and sends regards from "
            "{place}.|"
            "I found a draft of this from {time} ago and no longer knew what I had meant.||"
            "I will try to post more often. I said that {time} ago, too.|"
            "Thank you, all {number} of you, for staying.|"
            "Comments are off until I find out how {tool} got into them."
        ),
    },
    "shop": {
        "feed": (
            "{family} & Daughters|{place} Instruments|The {tool} changelog|News from {tool}|"
            "{place} Seeds"
        ),
        "tool": "lantern|quern|rookery|thimble|mangrove|sextant",
        "title": (
            "{tool} {number}: what is new|A fix for {tool}|{tool} at the {place} fair|Shipping is "
            "back in {place}"
        ),
        "text": (
            "Today's release of {tool} brings {number} fixes. The one that was requested most "
            "took us {time}.|"
            "We moved {tool} to the workshop in {place} {day}. Everything works again, except the "
            "bell.|"
            "{name} {family} has joined us in {place} and will answer your questions about "
            "{tool}.||"
            "Thanks to all in {place} for the patient reports. Update when it suits you.|"
            "Orders of the last {number} days go out first.|"
            "If something broke, write to {name}: it was {name}'s idea."
        ),
    },
}

#: Alternatives of each paragraph, by style and rule.
GRAMMARS = {
    style: {
        name: [paragraph.split("|") for paragraph in rule.split("||")]
        for name, rule in {**COMMON, **rules}.items()
    }
    for style, rules in STYLES.items()
}


def generate_text(style: str, rule: str, seed: str, phrases: dict[str, str] | None = None) -> str:
    """Return a random text by a rule of a writing style.

    Args:
        style: key of `STYLES`.
        rule: rule to expand: "feed" (name of the publisher), "title" or "text".
        seed: random seed.
        phrases: replacements of names that are already chosen; new replacements are added to it.

    Returns:
        The text, with one line per paragraph.
    """
    rng, grammar = random.Random(seed), GRAMMARS[style]
    chosen = {} if phrases is None else phrases

    def expand(alternatives: list[str]) -> str:
        return PLACEHOLDER.sub(lambda match: choose(match[1]), rng.choice(alternatives))

    def choose(name: str) -> str:
        if name not in chosen:
            chosen[name] = expand(grammar[name][0])
        return chosen[name]

    return "\n".join(
        SENTENCE_START.sub(lambda match: match[0].upper(), expand(alternatives))
        for alternatives in grammar[rule]
    )
