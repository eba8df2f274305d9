"""Parser for the polling hints of RSS feeds (ttl, skipHours, skipDays, syndication module).

Implausible values are ignored.
"""

from collections.abc import Iterator

from tidings.document import Hints
from tidings.parse.elements import Children, element_text, first_text

#: Maximum plausible interval in seconds. A longer ttl is probably in the wrong unit.
_MAX_HINT_S = 31 * 86400.0
_PERIODS_S = {
    "hourly": 3600.0,
    "daily": 86400.0,
    "weekly": 7 * 86400.0,
    "monthly": 30 * 86400.0,
    "yearly": 365 * 86400.0,
}
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def parse_hints(feed: Children) -> Hints:
    """Return the polling hints in a channel, given the channel's child elements."""
    return Hints(
        ttl_s=_plausible_interval(_number(first_text(feed, "ttl")) * 60),
        period_s=_plausible_interval(_period_s(feed)),
        skip_hours=_ignore_if_all(frozenset(_hours(feed)), 24),
        skip_days=_ignore_if_all(frozenset(_days(feed)), 7),
    )


def _plausible_interval(seconds: float) -> float | None:
    return seconds if 0 < seconds <= _MAX_HINT_S else None


def _ignore_if_all(skipped: frozenset[int], total: int) -> frozenset[int]:
    """Return the skipped hours or days, or an empty set if all of them are skipped."""
    return skipped if len(skipped) < total else frozenset()


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 < number < 1e9 else 0.0


def _period_s(feed: Children) -> float:
    """Return sy:updatePeriod divided by sy:updateFrequency in seconds, or 0 if there is neither.

    The default of sy:updatePeriod is daily, as specified.
    """
    if "sy:updateperiod" not in feed and "sy:updatefrequency" not in feed:
        return 0.0
    period_s = _PERIODS_S.get(first_text(feed, "sy:updateperiod").lower() or "daily", 0.0)
    return period_s / (_number(first_text(feed, "sy:updatefrequency")) or 1.0)


def _hours(feed: Children) -> Iterator[int]:
    """Yield the hours of skipHours as 0 to 23. RSS 0.91 has 1 to 24, where 24 is midnight."""
    for text in _child_texts(feed, "skiphours"):
        if text.isascii() and text.isdigit() and int(text[:4]) <= 24:
            yield int(text) % 24


def _days(feed: Children) -> Iterator[int]:
    for text in _child_texts(feed, "skipdays"):
        if text[:3].lower() in _DAYS:
            yield _DAYS.index(text[:3].lower())


def _child_texts(feed: Children, name: str) -> Iterator[str]:
    for group in feed.get(name, ()):
        yield from (element_text(child) for child in group if isinstance(child.tag, str))
