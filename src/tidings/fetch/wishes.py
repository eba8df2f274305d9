"""What a publisher asks of those who poll, made into what a policy understands: not before, and never in these hours.

Wishes only ever slow us down. A policy decides within them, and polling by hand keeps to them too.
"""

from functools import lru_cache

from msgspec import Struct

from tidings.document import Hints
from tidings.model import DAY_S, HOUR_S
from tidings.words import duration

HOURS_A_WEEK = 168
#: ttl and sy:updatePeriod are lower bounds, believed up to a day: feeds of daily papers have been seen with a ttl of a month,
#: and "yearly" is what some generators write who were never asked.
PERIOD_CAP_S = DAY_S
#: More than this is a mistake of units (seconds or milliseconds told as minutes), not a wish, and is ignored.
ABSURD_S = 366 * DAY_S

Mask = tuple[bool, ...]


class Wish(Struct, frozen=True):
    """Between polls of one feed."""

    earliest: float  #: no poll before this time; -inf if any will do
    forbidden: Mask | None  #: 168 hours of the week, Monday 0:00 GMT first, in which not to ask; None if none
    reason: str  #: why `earliest`, in words; empty where nothing was wished


def wishes(
    hints: Hints,
    polled_at: float,
    *,
    fresh_until: float | None = None,
    retry_at: float | None = None,
) -> Wish:
    """Join everything that was wished at the poll of `polled_at`: the latest time wins, and gives the reason."""
    times: list[tuple[float, str]] = []
    for said_s, name in ((hints.ttl_s, "its ttl"), (hints.period_s, "its update period")):
        if said_s is not None and 0 < said_s <= ABSURD_S:
            times.append((polled_at + min(said_s, PERIOD_CAP_S), f"{name} asks for {duration(said_s)} between polls"))
    if fresh_until is not None and fresh_until > polled_at:
        times.append((fresh_until, f"the server calls the document fresh for {duration(fresh_until - polled_at)}"))
    if retry_at is not None and retry_at > polled_at:
        times.append((retry_at, f"the server asked to be left alone for {duration(retry_at - polled_at)}"))
    earliest, reason = max(times, default=(float("-inf"), ""))
    return Wish(earliest, forbidden_hours(hints.skip_hours, hints.skip_days), reason)


@lru_cache(maxsize=1024)  # a handful of different masks serves a million feeds
def forbidden_hours(hours: frozenset[int], days: frozenset[int]) -> Mask | None:
    """skipHours and skipDays as hours of the week; None where there are none, or where they cannot be meant."""
    if not hours and not days:
        return None
    mask = tuple(hour % 24 in hours or hour // 24 in days for hour in range(HOURS_A_WEEK))
    return None if all(mask) else mask


def hour_of_week(time: float) -> int:
    """0 is Monday 0:00 to 1:00 GMT. The epoch was a Thursday."""
    return int((time + 3 * DAY_S) // HOUR_S) % HOURS_A_WEEK
