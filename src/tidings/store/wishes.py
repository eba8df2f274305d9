"""What users want done for them: saved searches, and rules for what arrives."""

import re
from functools import lru_cache
from re import _parser as patterns  # type: ignore[attr-defined]  # nothing public tells what a pattern may cost
from typing import Any

import msgspec

from tidings.errors import UsageError
from tidings.store.connection import Connection
from tidings.store.people_rows import Rule, SavedSearch, Stream
from tidings.store.rows import EntryText

#: So much of a text is searched by a pattern.
PATTERN_READS = 2000
#: Repeats in a pattern: each that has no end multiplies its cost by the text's length, each that has one may double it.
MOST_ENDLESS, MOST_REPEATS = 2, 8

_TERM = re.compile(r'"([^"]+)"|(\S+)')
_stream = msgspec.json.Decoder(Stream)
_rule = msgspec.json.Decoder(Rule)


# --- saved searches ----------------------------------------------------------------------------------------------------


def saved_searches(db: Connection, user_id: int) -> list[SavedSearch]:
    rows = db.execute("SELECT id, name, stream FROM searches WHERE user_id = ? ORDER BY name", (user_id,))
    return [SavedSearch(i, name, _stream.decode(stream)) for i, name, stream in rows]


def save_search(db: Connection, user_id: int, name: str, stream: Stream) -> SavedSearch:
    row = db.execute(
        "INSERT INTO searches (user_id, name, stream) VALUES (?, ?, ?) "
        "ON CONFLICT (user_id, name) DO UPDATE SET stream = excluded.stream RETURNING id",
        (user_id, name, msgspec.json.encode(stream).decode()),
    ).fetchone()
    return SavedSearch(row[0], name, stream)


def remove_search(db: Connection, user_id: int, search_id: int) -> bool:
    return db.execute("DELETE FROM searches WHERE user_id = ? AND id = ?", (user_id, search_id)).rowcount == 1


# --- rules -------------------------------------------------------------------------------------------------------------


def rules(db: Connection, user_id: int) -> list[Rule]:
    rows = db.execute("SELECT id, rule FROM rules WHERE user_id = ? ORDER BY id", (user_id,))
    return [read_rule(i, rule) for i, rule in rows]


@lru_cache(maxsize=1000)
def read_rule(rule_id: int, text: str) -> Rule:
    return msgspec.structs.replace(_rule.decode(text), id=rule_id)


def save_rule(db: Connection, user_id: int, rule: Rule) -> int | None:
    """Its id; None where there is no such rule to be changed."""
    text = msgspec.json.encode(rule).decode()
    if rule.id:
        done = db.execute("UPDATE rules SET rule = ? WHERE user_id = ? AND id = ?", (text, user_id, rule.id))
        return rule.id if done.rowcount else None
    return int(db.execute("INSERT INTO rules (user_id, rule) VALUES (?, ?) RETURNING id", (user_id, text)).fetchone()[0])


def remove_rule(db: Connection, user_id: int, rule_id: int) -> bool:
    return db.execute("DELETE FROM rules WHERE user_id = ? AND id = ?", (user_id, rule_id)).rowcount == 1


def check(rule: Rule) -> None:
    """Refuses a rule that could not work, or whose pattern could hold up everybody's arrivals."""
    if rule.action == "tag" and not rule.tag.strip():
        raise UsageError("a rule that tags needs the tag")
    if rule.words.strip() and not _words(rule.words):
        raise UsageError(f"{rule.words!r} has no word to look for")
    if rule.regex:
        try:
            parsed = patterns.parse(rule.regex)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"the pattern {rule.regex!r} cannot be read: {error}") from None
        repeats = _repeats(parsed, within=False)
        if repeats is None or repeats.count(True) > MOST_ENDLESS or len(repeats) > MOST_REPEATS or len(rule.regex) > 500:
            raise UsageError(
                f"the pattern {rule.regex!r} may take too long: no repeat or choice within a repeat, no back reference, "
                f"at most {MOST_ENDLESS} of * and +, and {MOST_REPEATS} repeats in all"
            )


def matches(rule: Rule, feed_id: int, entry: EntryText) -> bool:
    """Whether a rule is for this entry."""
    if rule.feed_id is not None and rule.feed_id != feed_id:
        return False
    if rule.author and rule.author.casefold() not in entry.author.casefold():
        return False
    if rule.words and (found := _words(rule.words)) and not (found.search(entry.title) or found.search(entry.text)):
        return False
    if rule.regex:
        pattern = _pattern(rule.regex)
        return bool(pattern.search(entry.title) or pattern.search(entry.text[:PATTERN_READS]))
    return True


@lru_cache(maxsize=1000)
def _words(words: str) -> re.Pattern[str] | None:
    """Any of the words, each whole."""
    terms = [" ".join((phrase or word).split()) for phrase, word in _TERM.findall(words)]
    usable = [re.escape(term) for term in terms if any(c.isalnum() for c in term)]
    return re.compile(rf"(?<!\w)(?:{'|'.join(usable)})(?!\w)", re.IGNORECASE) if usable else None


@lru_cache(maxsize=1000)
def _pattern(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE)


def _repeats(parsed: Any, within: bool) -> list[bool] | None:
    """All repeats of a pattern, True for those without an end; None for what can take time without limit."""
    found: list[bool] = []
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, high, inner = argument
            if within:
                return None
            found.append(high == patterns.MAXREPEAT)
            deeper = _repeats(inner, within=high > 1)
        elif name == "SUBPATTERN":
            deeper = _repeats(argument[-1], within)
        elif name == "ATOMIC_GROUP":
            deeper = _repeats(argument, within)
        elif name in ("ASSERT", "ASSERT_NOT"):
            deeper = _repeats(argument[1], within)
        elif name == "BRANCH":
            parts = [_repeats(branch, within) for branch in argument[1]]
            if within or None in parts:
                return None
            deeper = [repeat for part in parts for repeat in part or ()]
        elif name in ("GROUPREF", "GROUPREF_EXISTS"):
            return None
        else:
            continue
        if deeper is None:
            return None
        found += deeper
    return found
