"""Comparison of a fetched document with the stored entries of its feed.

The comparison finds new and changed entries, detects gaps (periods with missed posts), and
estimates the window (number of entries that a feed document lists). A gap is suspected when a full
document has no known entry although the feed was polled before (Han et al. sect. 3). A feed whose
ids change with every fetch would always match that rule, so its repeated entries are recognized by
URL and title.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.entry_dates import (
    EntryDates,
    date_new_entries,
    declared_date,
    has_uniform_dates,
)
from tidings.document import Document, Entry
from tidings.model import DAY_S, Bools, Floats, Ints
from tidings.store.feed_models import Entry as StoredEntry
from tidings.store.feed_models import FeedState, KnownEntry, SuspectedGap

#: Minimum fraction of unknown ids whose URL and title are known. From this fraction on, the feed is
#: assumed to have changed its ids.
CHANGED_IDS_SHARE = 0.5
#: Period in seconds over which the recent posting rate of a feed is measured.
RECENT_S = 14 * DAY_S
#: Assumed window, in entries, of a feed that has never dropped an entry.
DEFAULT_WINDOW = 10
#: Window, in entries, that stands for the unlimited window of a feed that drops entries by age.
UNBOUNDED_WINDOW = 10_000
#: Number of consecutive documents that dropped entries without being full after which a feed is
#: assumed to drop entries by age.
MIN_AGE_DROPS = 3


class DocumentDiff(Struct, frozen=True):
    """New and changed entries of a document, and the entry times from which the policy learns."""

    new: tuple[Entry, ...]
    dates: tuple[EntryDates, ...]  #: dates of the entries in `new`
    changed: tuple[Entry, ...]
    #: Times of all entries for the policy. Known entries come before new entries; both parts are
    #: sorted from oldest to newest.
    times: Floats
    new_count: int  #: number of new entries in `times`
    gap: SuspectedGap | None = None


def diff_document(
    document: Document,
    known: Mapping[str, KnownEntry],
    stored_entries: Sequence[StoredEntry],
    previous_poll_at: float | None,
    now: float,
) -> DocumentDiff:
    """Compare a document with the stored entries of its feed.

    ``known`` maps identities of the document to stored entries. ``stored_entries`` are the feed's
    newest stored entries; they are needed only if `may_have_gap` returns True. ``previous_poll_at``
    is None for the first document of a feed.
    """
    entries = document.entries
    new = [entry for entry in entries if entry.identity not in known]
    if stored_entries:
        seen = {(entry.url, entry.title) for entry in stored_entries}
        unseen = [entry for entry in new if (entry.url, entry.title) not in seen]
        if len(unseen) <= (1 - CHANGED_IDS_SHARE) * len(new):
            new = unseen
    changed = [
        e
        for e in entries
        if (k := known.get(e.identity)) is not None
        and k.entry_id is not None
        and k.digest != e.digest
    ]
    dates = date_new_entries(new, previous_poll_at, now, uniform=has_uniform_dates(entries))
    new_ids = {entry.identity for entry in new}
    old = sorted(
        _known_time(entry, known, now) for entry in entries if entry.identity not in new_ids
    )
    new_times = sorted(
        entry_dates.appeared_at for entry_dates in dates if entry_dates.appeared_at is not None
    )
    times = np.maximum.accumulate(np.array(old + new_times)) if old or new_times else np.empty(0)
    gap = None
    if stored_entries and len(new) == len(entries):
        gap = _estimate_gap([d.published_at for d in dates], stored_entries, now)
    return DocumentDiff(tuple(new), tuple(dates), tuple(changed), times, len(new_times), gap)


def may_have_gap(
    document: Document, known: Mapping[str, KnownEntry], window: int, *, delta: bool
) -> bool:
    """Return whether posts may have been missed because a full document has no known entry.

    ``window`` is the number of entries that a full document lists, or 0 before the first document.
    A delta response (226, RFC 3229) omits known entries on purpose, so it is no sign of missed
    posts.
    """
    return window > 0 and not delta and len(document.entries) >= window and not known


def _known_time(entry: Entry, known: Mapping[str, KnownEntry], now: float) -> float:
    at = known[entry.identity].published_at if entry.identity in known else declared_date(entry)
    return now if at is None else min(at, now)


def _estimate_gap(
    visible: list[float], stored_entries: Sequence[StoredEntry], now: float
) -> SuspectedGap | None:
    """Estimate the number of missed posts from the posting rate before and after the gap.

    Returns None if the document reaches back to the stored entries.
    """
    last, oldest = max(entry.published_at for entry in stored_entries), min(visible)
    if oldest <= last:
        return None
    recent = [
        entry.published_at for entry in stored_entries if entry.published_at > last - RECENT_S
    ]
    counted = len(visible) - 1 + len(recent) - 1
    span_s = (max(visible) - oldest) + (last - min(recent))
    rate = counted / span_s if span_s > 0 else len(visible) / max(now - oldest, 1.0)
    return SuspectedGap(last, oldest, rate * (oldest - last))


class Window(Struct, frozen=True):
    """Estimate of a feed's window, which is the number of entries that its document lists."""

    most: int = 0  #: largest number of entries in any document
    shown: int = 0  #: number of entries in the last document
    oldest: float | None = None  #: time of the oldest entry in the last document
    dropped: bool = False  #: whether a full document has dropped entries (`most` is the window)
    by_age: int = 0  #: number of consecutive documents that dropped entries without being full
    usual_gap_s: float | None = None  #: mean time between two posts of the last document

    @classmethod
    def of(cls, state: FeedState) -> "Window":
        return cls(
            state.window,
            state.shown,
            state.oldest_at,
            bool(state.dropped),
            state.by_age,
            state.usual_gap_s,
        )

    def apply_to(self, state: FeedState) -> FeedState:
        """Return the feed state with the values of this window."""
        return replace(
            state,
            window=self.most,
            shown=self.shown,
            oldest_at=self.oldest,
            dropped=int(self.dropped),
            by_age=self.by_age,
            usual_gap_s=self.usual_gap_s,
        )

    def after(self, count: int, times: Floats) -> "Window":
        """Return the estimate after another document with ``count`` entries.

        ``times`` are the times of the dated entries in that document.
        """
        if not len(times):
            return replace(self, most=max(count, self.most), shown=count)
        oldest = float(times.min())
        has_dropped = self.oldest is not None and oldest > self.oldest
        full = count >= self.most
        by_age = (0 if full else self.by_age + 1) if has_dropped else self.by_age
        gap_s = (
            (float(times.max()) - oldest) / (len(times) - 1) if len(times) > 1 else self.usual_gap_s
        )
        return Window(
            most=max(count, self.most),
            shown=count,
            oldest=oldest,
            dropped=self.dropped or (has_dropped and full),
            by_age=by_age,
            usual_gap_s=gap_s,
        )

    @property
    def size(self) -> int:
        """Number of posts that may appear between two polls without any being missed."""
        return (
            UNBOUNDED_WINDOW
            if self.by_age >= MIN_AGE_DROPS
            else self.most
            if self.dropped
            else max(self.most, DEFAULT_WINDOW)
        )


def window_sizes(most: Ints, dropped: Bools, by_age: Ints) -> Ints:
    """Return `Window.size` of many feeds, given the fields of `Window` as arrays."""
    sizes: Ints = np.where(
        by_age >= MIN_AGE_DROPS,
        UNBOUNDED_WINDOW,
        np.where(dropped, most, np.maximum(most, DEFAULT_WINDOW)),
    )
    return sizes
