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
CLOCK_SKEW_S = 300.0
#: A date so long before the last look, at which the entry was not there, is not the time at which it appeared.
MAX_LATENESS_S = DAY_S
#: So many entries with one and the same time are dated by the program that wrote the document, not by their author.
MIN_UNIFORM_ENTRIES = 3
#: Programs that have no date write the beginning of their clock, of Unix or of .NET, in some time zone.
EPOCHS, ZONES_S = (0.0, -62_135_596_800.0), 14 * HOUR_S


class EntryDates(Struct, frozen=True, gc=False):
    """The times of a new entry."""

    published_at: float
    delay_s: float | None  #: None where it says nothing
    appeared_at: float | None  #: None where it says nothing: no date, in a feed's first document


def declared_date(entry: Entry) -> float | None:
    """The date that the document gives it."""
    for at in (entry.published, entry.updated):
        if at is not None and (
            at > ZONES_S or not any(abs(at - zero) <= ZONES_S for zero in EPOCHS)
        ):
            return at
    return None


def has_uniform_dates(entries: Sequence[Entry]) -> bool:
    """Whether all entries of a document bear one time: that of its making, usually."""
    if len(entries) < MIN_UNIFORM_ENTRIES or entries[0].date_only:
        return False
    first = declared_date(entries[0])
    return first is not None and all(declared_date(entry) == first for entry in entries)


def date_new_entries(
    new: Sequence[Entry], previous_poll_at: float | None, now: float, *, uniform: bool = False
) -> list[EntryDates]:
    """Times for the new entries of a document seen at ``now``, in its order; ``previous`` is the last look, if any."""
    undated = [i for i, entry in enumerate(new) if uniform or declared_date(entry) is None]
    places = {i: place for place, i in enumerate(undated)}
    return [
        _date(entry, places.get(i), len(undated), i, previous_poll_at, now)
        for i, entry in enumerate(new)
    ]


def _date(
    entry: Entry,
    place: int | None,
    places: int,
    position: int,
    previous_poll_at: float | None,
    now: float,
) -> EntryDates:
    at = declared_date(entry)
    if place is not None or at is None:
        if previous_poll_at is None:
            return EntryDates(
                now - position, None, None
            )  # a second apart, to keep the document's order
        spread = now - (now - previous_poll_at) * (place or 0) / max(
            places, 1
        )  # newest first, as documents are
        return EntryDates(spread, None, spread)
    if at > now:
        return EntryDates(
            now, 0.0 if at <= now + CLOCK_SKEW_S and previous_poll_at is not None else None, now
        )
    if entry.date_only:
        return _date_of_day(at, previous_poll_at, now)
    if previous_poll_at is None:
        return EntryDates(at, None, at)
    if at < previous_poll_at - MAX_LATENESS_S:
        return EntryDates(at, None, (previous_poll_at + now) / 2)
    return EntryDates(at, now - at, at)


def _date_of_day(day: float, previous_poll_at: float | None, now: float) -> EntryDates:
    """Some time of that day: of the part of it that was not over at the last look."""
    end = min(day + DAY_S, now)
    begin = day if previous_poll_at is None else max(previous_poll_at, day)
    if begin < end:
        return EntryDates((begin + end) / 2, None, (begin + end) / 2)
    middle = min(day + DAY_S / 2, now)
    if previous_poll_at is not None and day < previous_poll_at - MAX_LATENESS_S:
        return EntryDates(middle, None, (previous_poll_at + now) / 2)
    return EntryDates(middle, None, middle)
