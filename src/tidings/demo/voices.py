"""How the demo's publishers write: a small grammar, a voice for each kind, so that posts can be read and told apart.

A bar stands between phrases of which one is chosen, two bars between paragraphs. A phrase names others in braces; within
one post a name always stands for the same words, so that a text sticks to what its title says. The same seed
writes the same post.
"""

import random
import re

NAME = re.compile(r"\{(\w+)\}")
BEGIN = re.compile(r"^[a-z]|(?<=[.?!] )[a-z]")

#: What all voices share.
COMMON = {
    "place": "Harrow Quay|Lower Ashby|Castle Wend|Nettlebridge|Port Orren|Saltmarsh|Upper Tolling|Marrow Hill|Eastfen|Kirkmere|"
    "Dunmoor|Whitsand|Three Elms|Long Barrow|Old Ferry|Quillbrook|Starling Down|Thornby|Millrace|Amberley Cross",
    "name": "Agnes|Bela|Carla|Dov|Edith|Farid|Greta|Hugo|Ines|Jonas|Kaja|Leo|Mira|Nils|Oona|Pavel|Rosa|Sefton|Tilda|Yusuf",
    "family": "Abbot|Brandt|Calder|Dimitrov|Eklund|Fenn|Garrow|Hale|Iversen|Juric|Kemp|Lindqvist|Marsh|Novak|Okafor|Pryce",
    "day": "yesterday|this morning|on Tuesday|last weekend|the other evening|before breakfast|in the rain",
    "number": "three|four|seven|eleven|fourteen|nineteen|twenty-two|forty",
    "time": "a week|ten days|a month|two winters|most of the spring|a year and a half",
}

VOICES: dict[str, dict[str, str]] = {
    "news": {
        "feed": "The {place} Courier|{place} Evening Post|{place} Gazette|Radio {place} News|The {place} Observer",
        "matter": "the harbour wall|the tram line|the old mill|the library roof|the night bus|the river path",
        "body": "council|planning board|port authority|parish assembly|transport committee",
        "title": "{body} votes to repair {matter}|Work on {matter} to begin in {place}|{name} {family} named head of {body}|"
        "Petition to keep {matter} has {number} thousand names|What the {body} said about {matter}, and what it did not",
        "text": "The {body} of {place} has agreed to spend more on {matter}, after a debate of {number} hours.|"
        "There will be no decision on {matter} before the summer, the {body} of {place} said {day}.|"
        "{number} people came to hear the {body} of {place} explain its plans for {matter}; few were convinced.||"
        "“We have waited {time} for this,” said {name} {family}, who lives across the road.|"
        "{name} {family}, who speaks for the neighbours, called it a start, “if a late one”.|"
        "The figures, which this paper has seen, were drawn up {time} ago and have not been checked since.||"
        "Work is expected to take {time}.|An earlier plan was dropped when the estimate rose.|"
        "The {body} meets again next month.",
    },
    "night": {
        "feed": "Letters after midnight|{name}, awake|The lamp in {place}|Small hours, {place}|Notes by {name} {family}",
        "thing": "the moth on the screen|a film without an ending|the neighbour's piano|an unsent letter|the last train|rain",
        "title": "On {thing}|{thing}, again|Something about {thing}|Why I keep thinking of {thing}",
        "text": "It is past one and I should be asleep, but there is {thing}, and I have {number} minutes of tea left.|"
        "The house is quiet. I sat down to write about something else, and then {thing} came into it.|"
        "{name} asked me {day} what I do at this hour. I said: {thing}. That was not quite a lie.||"
        "{family} once wrote that you only notice {thing} after {time} of not looking for it.|"
        "For {time} I had a theory about {thing}. It fell apart {day}, in {place}, at a bus stop.|"
        "There are {number} ways to tell this, and in all of them {thing} wins.||"
        "Nothing follows from this. Good night.|I will read this tomorrow and take it down. Or not.|"
        "The lamp in the window opposite is still on.",
    },
    "weekend": {
        "feed": "{place} on foot|The {family} allotment|Bread and {place}|Saturday workshop, {place}|Slow miles",
        "thing": "the rye starter|the leaning gate|a row of broad beans|the bicycle from the skip|the path above {place}",
        "title": "A weekend with {thing}|{thing}: {number} hours, one blister|What {thing} taught me|Photos: {thing}",
        "text": "We set out early for {thing}, with a flask and {number} plasters, and came home late.|"
        "Saturday was meant for {thing}. Sunday was, too, as it turned out.|"
        "{name} came over with tools, {family} with cake, and by noon there was {thing} to show for it.||"
        "The trick, {name} says, is to leave it alone for {time} and then to do everything at once.|"
        "If you try this in {place}, bring gloves. I counted {number} reasons afterwards.|"
        "I had put it off for {time}, which is about the time that one should put it off.||"
        "More next weekend, if the weather in {place} holds.|Recipe and drawings on request.|The pictures do not show the mud.",
    },
    "cron": {
        "feed": "{place} tide tables|{place} weather station|Build status: {tool}|Levels at {place} weir|{tool} nightly",
        "tool": "lantern|quern|rookery|thimble|mangrove|sextant",
        "state": "rising|falling|steady|within limits|above the mean",
        "title": "Reading for {place}: {state}|{tool}: {number} checks passed|Report at the hour, {place}: {state}",
        "text": "Automatic report for {place}. {number} sensors answered; the value is {state}.|"
        "{number} of {number} checks are done. Compared with {time} ago: {state}.|"
        "This message was made by a machine in {place}. All readings are {state}.||"
        "The next report follows on the hour.|Nobody reads this address.|Maintenance by {name} {family}.",
    },
    "burst": {
        "feed": "{name} links|Found by {name} {family}|The {place} scrapbook|Tabs I closed|{name}'s pile",
        "thing": "old timetables|hand-drawn maps|the history of buttons|letterpress ink|lighthouse logs|museum card indexes",
        "title": "Link: {thing}|More on {thing}|{number} pages about {thing}|{thing}, found {day}",
        "text": "Cleaning out my tabs, all in one sitting. This one is about {thing}, and better than it sounds.|"
        "Somebody in {place} has spent {time} on {thing}, and it shows.|"
        "{number} scans, no comments, no cookies: {thing}.||"
        "The part about {place} alone is worth the walk.|By way of {name}, who finds everything.|"
        "I read it {day} and have annoyed {name} with it since.",
    },
    "dying": {
        "feed": "{name} {family}'s weblog|My year in {place}|Learning {tool}|The {tool} diaries|Postcards, {place}",
        "tool": "Esperanto|the accordion|bookbinding|archery|Old Norse|beekeeping",
        "title": "Sorry for the silence|Still here, more or less|{tool}, part {number}|I have not forgotten {tool}",
        "text": "It has been {time} since I wrote. {tool} turned out to take longer than I thought.|"
        "A short one: {tool} goes on, if slowly. {name} has given up and sends regards from {place}.|"
        "I found a draft of this from {time} ago and could not tell what I had meant.||"
        "I will try to post more often. I said that {time} ago, too.|Thank you, all {number} of you, for staying.|"
        "Comments are off until I find out how {tool} got into them.",
    },
    "shop": {
        "feed": "{family} & Daughters|{place} Instruments|The {tool} changelog|News from {tool}|{place} Seeds",
        "tool": "lantern|quern|rookery|thimble|mangrove|sextant",
        "title": "{tool} {number}: what is new|A fix for {tool}|{tool} at the {place} fair|Shipping is back in {place}",
        "text": "Today's release of {tool} brings {number} fixes. The one that you have asked for most took us {time}.|"
        "We moved {tool} to the workshop in {place} {day}. Everything works again, except the bell.|"
        "{name} {family} has joined us in {place} and will answer your questions about {tool}.||"
        "Thanks to everybody in {place} for the patient reports. Update when it suits you.|"
        "Orders of the last {number} days go out first.|If something broke, write to {name}: it was {name}'s idea.",
    },
}


#: By voice and name: the paragraphs, and for each the phrases of which one is chosen.
GRAMMARS = {
    voice: {
        name: [words.split("|") for words in rules.split("||")]
        for name, rules in {**COMMON, **own}.items()
    }
    for voice, own in VOICES.items()
}


def write(voice: str, what: str, seed: str, known: dict[str, str] | None = None) -> str:
    """The phrase ``what`` (feed, title, text) in a voice, a line a paragraph; ``known`` collects what names stand for."""
    rng, grammar, chosen = random.Random(seed), GRAMMARS[voice], {} if known is None else known

    def fill(phrases: list[str]) -> str:
        return NAME.sub(lambda found: choose(found[1]), rng.choice(phrases))

    def choose(name: str) -> str:
        if name not in chosen:
            chosen[name] = fill(grammar[name][0])
        return chosen[name]

    return "\n".join(
        BEGIN.sub(lambda found: found[0].upper(), fill(phrases)) for phrases in grammar[what]
    )
