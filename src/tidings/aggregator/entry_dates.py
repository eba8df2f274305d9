"""Plausible publication times of entries, computed from declared dates and poll times.

Each new entry gets three values. `published_at`, for display, stays close to the declared date.
`appeared_at`, for the policy, is when the post really appeared in the feed; otherwise an archive
that is published in one evening would look like years of posting history. `delay_s` is set only if
the declared date is consistent with the times of the polls.
"""

from collections.abc import Sequence

from msgspec import Struct

from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S

#: Tolerated clock skew of servers in seconds. A date in the near future is treated as now.
CLOCK_SKEW_S = 300.0
#: Maximum age in seconds, at the previous poll, of a declared date that is credible. An older entry
#: would have been in the previous document, so it must have appeared after its declared date.
MAX_LATENESS_S = DAY_S
#: Minimum number of entries for the rule that identical dates come from the document's generator.
MIN_UNIFORM_ENTRIES = 3
#: Dates that mean "no date", and their tolerance in seconds. Programs without a date write the
#: epoch of Unix or .NET, in any time zone.
EPOCHS, ZONES_S = (0.0, -62_135_596_800.0), 14 * HOUR_S


class EntryDates(Struct, frozen=True, gc=False):
    """Publication time, delay and time of appearance of a new entry."""

    published_at: float
    delay_s: float | None  #: seconds from publication to the poll, or None if unknown
    appeared_at: float | None  #: None for undated entries of a feed's first document


def declared_date(entry: Entry) -> float | None:
    """Return the date that the document declares for an entry, or None if there is no real date.

    The epoch of Unix or .NET is a placeholder and not a real date.
    """
    for at in (entry.published, entry.updated):
        if at is not None and (
            at > ZONES_S or not any(abs(at - zero) <= ZONES_S for zero in EPOCHS)
        ):
            return at
    return None


def has_uniform_dates(entries: Sequence[Entry]) -> bool:
    """Return whether all entries have the same date, which is usually that of the document."""
    if len(entries) < MIN_UNIFORM_ENTRIES or entries[0].date_only:
        return False
    first = declared_date(entries[0])
    return first is not None and all(declared_date(entry) == first for entry in entries)


def date_new_entries(
    new: Sequence[Entry], previous_poll_at: float | None, now: float, *, uniform: bool = False
) -> list[EntryDates]:
    """Return the dates of the new entries of a document that was fetched at ``now``.

    The result has the order of the document. ``previous_poll_at`` is None for a feed's first
    document. With ``uniform``, declared dates are ignored (see `has_uniform_dates`). Undated
    entries are spread evenly over the time since the previous poll.
    """
    undated = [i for i, entry in enumerate(new) if uniform or declared_date(entry) is None]
    undated_index = {i: index for index, i in enumerate(undated)}
    return [
        _date(entry, undated_index.get(i), len(undated), i, previous_poll_at, now)
        for i, entry in enumerate(new)
    ]


def _date(
    entry: Entry,
    undated_index: int | None,
    undated_count: int,
    position: int,
    previous_poll_at: float | None,
    now: float,
) -> EntryDates:
    at = declared_date(entry)
    if undated_index is not None or at is None:
        if previous_poll_at is None:
            # The times are one second apart, to keep the order of the document.
            return EntryDates(now - position, None, None)
        # Documents list the newest entry first, so the first undated entry gets the newest time.
        age_s = (now - previous_poll_at) * (undated_index or 0) / max(undated_count, 1)
        return EntryDates(now - age_s, None, now - age_s)
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
    """Return the dates of an entry whose declared date has no time of day.

    The time is the middle of the part of that day that lies after the previous poll.
    """
    end = min(day + DAY_S, now)
    start = day if previous_poll_at is None else max(previous_poll_at, day)
    if start < end:
        return EntryDates((start + end) / 2, None, (start + end) / 2)
    middle = min(day + DAY_S / 2, now)
    if previous_poll_at is not None and day < previous_poll_at - MAX_LATENESS_S:
        return EntryDates(middle, None, (previous_poll_at + now) / 2)
    return EntryDates(middle, None, middle)
