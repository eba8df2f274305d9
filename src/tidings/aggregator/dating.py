"""When an entry was published, as far as its feed can be believed.

Three times come of it. What a reader is shown (`published_at`) stays close to what the feed says. What counts for the policy
(`counts_at`) must be a time at which posts really appeared, else an archive that is put online in one evening would look like
years of habits. The delay is told only where the feed's word and our polls do not contradict each other.
"""

from collections.abc import Sequence

from msgspec import Struct

from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S

#: Clocks of servers are so far ahead without meaning anything by it.
SKEW_S = 300.0
#: A date so long before the last look, at which the entry was not there, is not the time at which it appeared.
LATE_S = DAY_S
#: So many entries with one and the same time are dated by the program that wrote the document, not by their author.
ALIKE = 3
#: Programs that have no date write the beginning of their clock, of Unix or of .NET, in some time zone.
ZEROS, ZONES_S = (0.0, -62_135_596_800.0), 14 * HOUR_S


class Dated(Struct, frozen=True, gc=False):
    """The times of a new entry."""

    published_at: float
    delay_s: float | None  #: None where it says nothing
    counts_at: float | None  #: None where it says nothing: no date, in a feed's first document


def told(entry: Entry) -> float | None:
    """The date that the document gives it."""
    for at in (entry.published, entry.updated):
        if at is not None and (at > ZONES_S or not any(abs(at - zero) <= ZONES_S for zero in ZEROS)):
            return at
    return None


def dates_alike(entries: Sequence[Entry]) -> bool:
    """Whether all entries of a document bear one time: that of its making, usually."""
    if len(entries) < ALIKE or entries[0].date_only:
        return False
    first = told(entries[0])
    return first is not None and all(told(entry) == first for entry in entries)


def date_new(new: Sequence[Entry], previous: float | None, now: float, *, alike: bool = False) -> list[Dated]:
    """Times for the new entries of a document seen at ``now``, in its order; ``previous`` is the last look, if any."""
    undated = [i for i, entry in enumerate(new) if alike or told(entry) is None]
    places = {i: place for place, i in enumerate(undated)}
    return [_date(entry, places.get(i), len(undated), i, previous, now) for i, entry in enumerate(new)]


def _date(entry: Entry, place: int | None, places: int, position: int, previous: float | None, now: float) -> Dated:
    at = told(entry)
    if place is not None or at is None:
        if previous is None:
            return Dated(now - position, None, None)  # a second apart, to keep the document's order
        spread = now - (now - previous) * (place or 0) / max(places, 1)  # newest first, as documents are
        return Dated(spread, None, spread)
    if at > now:
        return Dated(now, 0.0 if at <= now + SKEW_S and previous is not None else None, now)
    if entry.date_only:
        return _date_of_day(at, previous, now)
    if previous is None:
        return Dated(at, None, at)
    if at < previous - LATE_S:
        return Dated(at, None, (previous + now) / 2)
    return Dated(at, now - at, at)


def _date_of_day(day: float, previous: float | None, now: float) -> Dated:
    """Some time of that day: of the part of it that was not over at the last look."""
    end = min(day + DAY_S, now)
    begin = day if previous is None else max(previous, day)
    if begin < end:
        return Dated((begin + end) / 2, None, (begin + end) / 2)
    middle = min(day + DAY_S / 2, now)
    if previous is not None and day < previous - LATE_S:
        return Dated(middle, None, (previous + now) / 2)
    return Dated(middle, None, middle)
