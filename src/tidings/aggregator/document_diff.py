"""What a document says about its feed: which entries are new or changed, and whether some were pushed out unseen.

A gap is suspected when a full document holds nothing that is known although the feed was known (Han et al. sect. 3). Feeds
whose ids change with every fetch would look like that for ever; what they repeat is recognised by address and title.
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

#: Share of a document's entries that must be found again by address and title for its ids to count as changed.
CHANGED_IDS_SHARE = 0.5
#: Posts of the last so many days tell a feed's recent rate.
RECENT_S = 14 * DAY_S
#: A guess at the window of a feed that has never been seen to drop an entry, and the window of one that drops them by age.
DEFAULT_WINDOW = 10
UNBOUNDED_WINDOW = 10_000
#: Documents in a row that dropped entries without being full, until a feed counts as one that drops them by age.
MIN_AGE_DROPS = 3


class DocumentDiff(Struct, frozen=True):
    """What is to be stored and learned from one document."""

    new: tuple[Entry, ...]
    dates: tuple[EntryDates, ...]  #: of the new ones
    changed: tuple[Entry, ...]
    times: (
        Floats  #: of all entries, known ones first, each part oldest first: what policies are shown
    )
    new_count: int  #: how many of `times` are new
    gap: SuspectedGap | None = None


def diff_document(
    document: Document,
    known: Mapping[str, KnownEntry],
    stored_entries: Sequence[StoredEntry],
    previous_poll_at: float | None,
    now: float,
) -> DocumentDiff:
    """Compare a document with what is known of its entries.

    ``before`` are the feed's newest entries in the store; they are needed (and have to be given) only where `suspicious`.
    """
    entries = document.entries
    new = [entry for entry in entries if entry.identity not in known]
    if stored_entries:
        seen = {(entry.url, entry.title) for entry in stored_entries}
        other = [entry for entry in new if (entry.url, entry.title) not in seen]
        if len(other) <= (1 - CHANGED_IDS_SHARE) * len(new):
            new = other
    changed = [
        e
        for e in entries
        if (k := known.get(e.identity)) is not None
        and k.entry_id is not None
        and k.digest != e.digest
    ]
    dates = date_new_entries(new, previous_poll_at, now, uniform=has_uniform_dates(entries))
    ours = {entry.identity for entry in new}
    old = sorted(_known_time(entry, known, now) for entry in entries if entry.identity not in ours)
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
    """Whether nothing in a full document is known, though the feed is. A delta (226) leaves known entries out on purpose."""
    return window > 0 and not delta and len(document.entries) >= window and not known


def _known_time(entry: Entry, known: Mapping[str, KnownEntry], now: float) -> float:
    at = known[entry.identity].published_at if entry.identity in known else declared_date(entry)
    return now if at is None else min(at, now)


def _estimate_gap(
    visible: list[float], stored_entries: Sequence[StoredEntry], now: float
) -> SuspectedGap | None:
    """Posts between the newest that was known and the oldest that can be seen, at the rate of both sides together."""
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
    """How many entries a feed's document holds, as far as documents have shown."""

    most: int = 0  #: entries seen in one document
    shown: int = 0  #: in the last one
    oldest: float | None = None  #: of these
    dropped: bool = False  #: a full document was seen to drop entries, so `most` is what it holds
    by_age: int = 0  #: documents in a row that dropped entries without being full
    usual_gap_s: float | None = None  #: between the posts of the last one

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
        """The state of a feed with this window."""
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
        """With another document of so many entries, which have these times, as far as they have any."""
        if not len(times):
            return replace(self, most=max(count, self.most), shown=count)
        oldest = float(times.min())
        gone = self.oldest is not None and oldest > self.oldest
        full = count >= self.most
        by_age = (0 if full else self.by_age + 1) if gone else self.by_age
        gap_s = (
            (float(times.max()) - oldest) / (len(times) - 1) if len(times) > 1 else self.usual_gap_s
        )
        return Window(
            max(count, self.most), count, oldest, self.dropped or (gone and full), by_age, gap_s
        )

    @property
    def size(self) -> int:
        """For a policy, which fears that more posts than this are lost."""
        return (
            UNBOUNDED_WINDOW
            if self.by_age >= MIN_AGE_DROPS
            else self.most
            if self.dropped
            else max(self.most, DEFAULT_WINDOW)
        )


def window_sizes(most: Ints, dropped: Bools, by_age: Ints) -> Ints:
    """As `Window.size`, of many feeds."""
    sizes: Ints = np.where(
        by_age >= MIN_AGE_DROPS,
        UNBOUNDED_WINDOW,
        np.where(dropped, most, np.maximum(most, DEFAULT_WINDOW)),
    )
    return sizes
