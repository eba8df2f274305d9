"""What users want done for them: saved searches, and rules for what arrives."""

import math
import re
from functools import lru_cache
from re import _parser as patterns  # type: ignore[attr-defined]  # nothing public tells what a pattern may cost
from typing import Any

import msgspec

from tidings.errors import UsageError
from tidings.store.connection import Connection
from tidings.store.feed_models import EntryText
from tidings.store.user_models import Rule, SavedSearch, Stream

#: So much of a text is searched by a pattern, in at most so many steps: a tenth of a second, in the worst of texts.
MAX_PATTERN_TEXT, MAX_PATTERN_STEPS = 1000, 5e6
MAX_RULES = 200

_TERM = re.compile(r'"([^"]+)"|(\S+)')
_stream = msgspec.json.Decoder(Stream)
_rule = msgspec.json.Decoder(Rule)


# --- saved searches ----------------------------------------------------------------------------------------------------


def saved_searches(db: Connection, user_id: int) -> list[SavedSearch]:
    rows = db.execute(
        "SELECT id, name, stream FROM searches WHERE user_id = ? ORDER BY name", (user_id,)
    )
    return [SavedSearch(i, name, _stream.decode(stream)) for i, name, stream in rows]


def save_search(db: Connection, user_id: int, name: str, stream: Stream) -> SavedSearch:
    row = db.execute(
        "INSERT INTO searches (user_id, name, stream) VALUES (?, ?, ?) "
        "ON CONFLICT (user_id, name) DO UPDATE SET stream = excluded.stream RETURNING id",
        (user_id, name, msgspec.json.encode(stream).decode()),
    ).fetchone()
    return SavedSearch(row[0], name, stream)


def remove_search(db: Connection, user_id: int, search_id: int) -> bool:
    return (
        db.execute(
            "DELETE FROM searches WHERE user_id = ? AND id = ?", (user_id, search_id)
        ).rowcount
        == 1
    )


# --- rules -------------------------------------------------------------------------------------------------------------


def rules(db: Connection, user_id: int) -> list[Rule]:
    rows = db.execute("SELECT id, rule FROM rules WHERE user_id = ? ORDER BY id", (user_id,))
    return [decode_rule(i, rule) for i, rule in rows]


@lru_cache(maxsize=1000)
def decode_rule(rule_id: int, text: str) -> Rule:
    return msgspec.structs.replace(_rule.decode(text), id=rule_id)


def save_rule(db: Connection, user_id: int, rule: Rule) -> int | None:
    """Its id; None where there is no such rule to be changed."""
    if (
        not rule.id
        and db.execute("SELECT count(*) FROM rules WHERE user_id = ?", (user_id,)).fetchone()[0]
        >= MAX_RULES
    ):
        raise UsageError(f"there are {MAX_RULES} rules already; remove one first")
    text = msgspec.json.encode(rule).decode()
    if rule.id:
        done = db.execute(
            "UPDATE rules SET rule = ? WHERE user_id = ? AND id = ?", (text, user_id, rule.id)
        )
        return rule.id if done.rowcount else None
    return int(
        db.execute(
            "INSERT INTO rules (user_id, rule) VALUES (?, ?) RETURNING id", (user_id, text)
        ).fetchone()[0]
    )


def remove_rule(db: Connection, user_id: int, rule_id: int) -> bool:
    return (
        db.execute("DELETE FROM rules WHERE user_id = ? AND id = ?", (user_id, rule_id)).rowcount
        == 1
    )


def validate_rule(rule: Rule) -> None:
    """Refuses a rule that could not work, or whose pattern could hold up everybody's arrivals."""
    if rule.action == "tag" and not rule.tag.strip():
        raise UsageError("a rule that tags needs the tag")
    if rule.words.strip() and not _compile_words(rule.words):
        raise UsageError(f"{rule.words!r} has no word to look for")
    if rule.regex:
        try:
            parsed = patterns.parse(rule.regex)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(f"the pattern {rule.regex!r} cannot be read: {error}") from None
        anchored = (
            list(parsed)[:1] == [(patterns.AT, patterns.AT_BEGINNING)]
            and not parsed.state.flags & re.MULTILINE
        )
        if (
            len(rule.regex) > 500
            or _count_match_paths(parsed) * (1 if anchored else MAX_PATTERN_TEXT)
            > MAX_PATTERN_STEPS
        ):
            raise UsageError(
                f"the pattern {rule.regex!r} may take too long: use one * or + (two after a ^ at the beginning), "
                "{1,9} in place of others, no repeat or choice within a repeat, and no back reference"
            )


def matches(rule: Rule, feed_id: int, entry: EntryText) -> bool:
    """Whether a rule is for this entry."""
    if rule.feed_id is not None and rule.feed_id != feed_id:
        return False
    if rule.author and rule.author.casefold() not in entry.author.casefold():
        return False
    if (
        rule.words
        and (found := _compile_words(rule.words))
        and not (found.search(entry.title) or found.search(entry.text))
    ):
        return False
    if rule.regex:
        pattern = _compile_regex(rule.regex)
        return bool(pattern.search(entry.title) or pattern.search(entry.text[:MAX_PATTERN_TEXT]))
    return True


@lru_cache(maxsize=1000)
def _compile_words(words: str) -> re.Pattern[str] | None:
    """Any of the words, each whole."""
    terms = [" ".join((phrase or word).split()) for phrase, word in _TERM.findall(words)]
    usable = [re.escape(term) for term in terms if any(c.isalnum() for c in term)]
    return re.compile(rf"(?<!\w)(?:{'|'.join(usable)})(?!\w)", re.IGNORECASE) if usable else None


@lru_cache(maxsize=1000)
def _compile_regex(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE)


def _count_match_paths(parsed: Any, within: bool = False) -> float:
    """In how many ways a pattern can be laid over a text from one place on; all may have to be tried. Infinity for too many.

    Every repeat multiplies by the lengths that it can have, every choice by its branches.
    """
    ways = 1.0
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = argument
            lengths = max(min(high, MAX_PATTERN_TEXT) - low, 0) + 1
            ways *= math.inf if within else lengths * _count_match_paths(inner, within=high > 1)
        elif name == "SUBPATTERN":
            ways *= _count_match_paths(argument[-1], within)
        elif name == "ATOMIC_GROUP":
            ways *= _count_match_paths(argument, within)
        elif name in ("ASSERT", "ASSERT_NOT"):
            ways *= _count_match_paths(argument[1], within)
        elif name == "BRANCH":
            ways *= (
                math.inf if within else sum(_count_match_paths(branch) for branch in argument[1])
            )
        elif name in ("GROUPREF", "GROUPREF_EXISTS"):
            return math.inf
    return ways
