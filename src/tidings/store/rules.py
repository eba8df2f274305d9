"""Rules of users that mute, star, tag, mark as read or notify about new entries."""

import math
import re
from functools import lru_cache
from re import _parser as patterns  # type: ignore[attr-defined]  # no public API parses patterns
from typing import Any

import msgspec

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store.connection import Connection
from tidings.store.feed_models import EntryText
from tidings.store.user_models import Rule

#: Maximum number of characters of a text that a regular expression searches, and maximum number of
#: its backtracking steps. The search takes 0.1 s in the worst case.
MAX_PATTERN_TEXT, MAX_PATTERN_STEPS = 1000, 5e6
#: Maximum number of rules per user.
MAX_RULES = 200

_TERM = re.compile(r'"([^"]+)"|(\S+)')
_rule_decoder = msgspec.json.Decoder(Rule)


def rules(db: Connection, user_id: int) -> list[Rule]:
    """List a user's rules in the order in which they were created."""
    rows = db.execute("SELECT id, rule FROM rules WHERE user_id = ? ORDER BY id", (user_id,))
    return [decode_rule(i, rule) for i, rule in rows]


@lru_cache(maxsize=1000)
def decode_rule(rule_id: int, text: str) -> Rule:
    """Return a rule from the JSON of its row."""
    return msgspec.structs.replace(_rule_decoder.decode(text), id=rule_id)


def save_rule(db: Connection, user_id: int, rule: Rule) -> int | None:
    """Insert a rule (id 0) or update a rule, and return its id.

    Returns None if there is no rule with this id. Raises `UsageError` if the user already has
    `MAX_RULES` rules.
    """
    if (
        not rule.id
        and db.execute("SELECT count(*) FROM rules WHERE user_id = ?", (user_id,)).fetchone()[0]
        >= MAX_RULES
    ):
        raise UsageError(_("you already have %(count)s rules; delete one first", count=MAX_RULES))
    text = msgspec.json.encode(rule).decode()
    if rule.id:
        updated = db.execute(
            "UPDATE rules SET rule = ? WHERE user_id = ? AND id = ?", (text, user_id, rule.id)
        )
        return rule.id if updated.rowcount else None
    return int(
        db.execute(
            "INSERT INTO rules (user_id, rule) VALUES (?, ?) RETURNING id", (user_id, text)
        ).fetchone()[0]
    )


def remove_rule(db: Connection, user_id: int, rule_id: int) -> bool:
    """Delete a rule, and return whether it existed."""
    return (
        db.execute("DELETE FROM rules WHERE user_id = ? AND id = ?", (user_id, rule_id)).rowcount
        == 1
    )


def validate_rule(rule: Rule) -> None:
    """Raise `UsageError` for a rule that cannot work or may take too long.

    A regular expression may take too long because of backtracking (ReDoS).
    """
    if rule.action == "tag" and not rule.tag.strip():
        raise UsageError(_("enter the tag to add"))
    if rule.words.strip() and not _compile_words(rule.words):
        raise UsageError(_("%(words)r contains no word; enter at least one", words=rule.words))
    if rule.regex:
        try:
            parsed = patterns.parse(rule.regex)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(
                _(
                    "the regular expression %(regex)r is not valid: %(error)s",
                    regex=rule.regex,
                    error=error,
                )
            ) from None
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
                _(
                    "the regular expression %(regex)r may be slow; use only one * or "
                    "+, no back reference, and no nested repetition",
                    regex=rule.regex,
                )
            )


def matches(rule: Rule, feed_id: int, entry: EntryText) -> bool:
    """Return whether an entry of a feed fulfills all conditions of a rule."""
    if rule.feed_id is not None and rule.feed_id != feed_id:
        return False
    if rule.author and rule.author.casefold() not in entry.author.casefold():
        return False
    if (
        rule.words
        and (pattern := _compile_words(rule.words))
        and not (pattern.search(entry.title) or pattern.search(entry.text))
    ):
        return False
    if rule.regex:
        regex = _compile_regex(rule.regex)
        return bool(regex.search(entry.title) or regex.search(entry.text[:MAX_PATTERN_TEXT]))
    return True


@lru_cache(maxsize=1000)
def _compile_words(words: str) -> re.Pattern[str] | None:
    """Return a pattern that finds any of the words or quoted phrases as whole words.

    Returns None if there is no word in the text.
    """
    terms = [" ".join((phrase or word).split()) for phrase, word in _TERM.findall(words)]
    usable = [re.escape(term) for term in terms if any(c.isalnum() for c in term)]
    return re.compile(rf"(?<!\w)(?:{'|'.join(usable)})(?!\w)", re.IGNORECASE) if usable else None


@lru_cache(maxsize=1000)
def _compile_regex(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.IGNORECASE)


def _count_match_paths(parsed: Any, within: bool = False) -> float:
    """Return an upper bound of the paths that backtracking tries from one start position.

    The bound may be infinite. Every repetition multiplies it by the number of possible lengths,
    every alternative by its branches. ``within`` says that the expression is part of a repetition:
    nested repetition counts as infinite (exponential backtracking).
    """
    paths = 1.0
    for operation, argument in parsed:
        name = str(operation)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            low, high, inner = argument
            lengths = max(min(high, MAX_PATTERN_TEXT) - low, 0) + 1
            paths *= math.inf if within else lengths * _count_match_paths(inner, within=high > 1)
        elif name == "SUBPATTERN":
            paths *= _count_match_paths(argument[-1], within)
        elif name == "ATOMIC_GROUP":
            paths *= _count_match_paths(argument, within)
        elif name in ("ASSERT", "ASSERT_NOT"):
            paths *= _count_match_paths(argument[1], within)
        elif name == "BRANCH":
            paths *= (
                math.inf if within else sum(_count_match_paths(branch) for branch in argument[1])
            )
        elif name in ("GROUPREF", "GROUPREF_EXISTS"):
            return math.inf
    return paths
