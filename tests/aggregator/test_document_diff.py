"""Document diff: new and changed entries, gaps, window sizes."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY
from tidings.aggregator.document_diff import (
    UNBOUNDED_WINDOW,
    Window,
    diff_document,
    may_have_gap,
    window_sizes,
)
from tidings.document import Document, Entry
from tidings.model import DAY_S, HOUR_S
from tidings.store.feed_models import Entry as StoredEntry
from tidings.store.feed_models import FeedState, KnownEntry

NOW = MONDAY + 10 * DAY_S


def post(number, *, digest=b"1", hour=None, id=None, title=None):
    """Return a numbered post; posts are hourly from Monday on."""
    at = MONDAY + (number if hour is None else hour) * HOUR_S
    return Entry(
        identity=id or f"id:{number}",
        digest=digest,
        url=f"/{number}",
        title=title or f"Post {number}",
        published=at,
    )


def document(*posts):
    return Document("rss 2.0", entries=tuple(posts))


def stored(number):
    return StoredEntry(
        **dict.fromkeys(StoredEntry.__struct_fields__, None)
        | {"published_at": MONDAY + number * HOUR_S, "url": f"/{number}", "title": f"Post {number}"}
    )


def known(*numbers):
    return {f"id:{n}": KnownEntry(n, b"1", MONDAY + n * HOUR_S) for n in numbers}


def diff(doc, seen, stored_entries=(), previous_poll_at=NOW - HOUR_S):
    return diff_document(doc, seen, stored_entries, previous_poll_at, NOW)


def test_new_and_changed_entries_are_distinguished():
    found = diff(document(post(5), post(4, digest=b"2"), post(3)), known(3, 4))
    assert [e.identity for e in found.new] == ["id:5"]
    assert [e.identity for e in found.changed] == ["id:4"]
    assert found.gap is None


def test_entry_deleted_by_retention_is_neither_new_nor_changed():
    found = diff(document(post(5)), {"id:5": KnownEntry(None, b"")})
    assert (found.new, found.changed) == ((), ())


def test_times_have_known_entries_first_in_order():
    found = diff(
        document(post(239.9), post(238), post(3)), known(3), previous_poll_at=NOW - 3 * HOUR_S
    )
    assert found.times.tolist() == [
        MONDAY + 3 * HOUR_S,
        MONDAY + 238 * HOUR_S,
        MONDAY + 239.9 * HOUR_S,
    ]
    assert found.new_count == 2


def test_full_document_without_known_entries_may_have_gap():
    full = document(post(20), post(19))
    assert may_have_gap(full, {}, 2, delta=False)
    assert not may_have_gap(full, {}, 0, delta=False)  # the feed's first document
    assert not may_have_gap(full, {}, 3, delta=False)  # not full: no entry was dropped
    assert not may_have_gap(full, known(19), 2, delta=False)
    assert not may_have_gap(full, {}, 2, delta=True)  # 226: known entries are omitted on purpose


def test_gap_is_estimated_from_rate_on_both_sides():
    found = diff(
        document(post(230), post(229), post(228)),
        {},
        [stored(208), stored(207), stored(206)],
        NOW - DAY_S,
    )
    assert found.gap is not None
    assert (found.gap.from_at, found.gap.until_at) == (MONDAY + 208 * HOUR_S, MONDAY + 228 * HOUR_S)
    assert found.gap.missed == pytest.approx(20)  # hourly before and after, 20 hours between


def test_changing_ids_give_no_gap_and_no_duplicates():
    refetched = document(post(9), post(8, id="x8"), post(7, id="x7"), post(6, id="x6"))
    found = diff(refetched, {}, [stored(8), stored(7), stored(6), stored(5)])
    assert [e.identity for e in found.new] == ["id:9"]
    assert found.gap is None


def test_window_is_assumed_until_full_document_drops_entries():
    times = MONDAY + HOUR_S * np.arange(30.0)
    young = Window().after(3, times[:3])
    assert young.size == 10
    full = young.after(3, times[1:4])
    assert full.size == 3
    assert Window().after(20, times[:20]).size == 20


def test_window_sizes_match_single_windows():
    most, dropped, by_age = (
        values.ravel() for values in np.meshgrid([0, 3, 10, 30], [False, True], [0, 1, 2, 3, 4])
    )
    each = [
        Window(int(m), dropped=bool(d), by_age=int(a)).size
        for m, d, a in zip(most, dropped, by_age, strict=True)
    ]
    assert window_sizes(most, dropped, by_age).tolist() == each


def test_window_is_unbounded_if_entries_drop_by_age():
    times = MONDAY + HOUR_S * np.arange(50.0)
    window = Window().after(12, times[:12])
    for day, count in enumerate((8, 5, 9), start=1):
        window = window.after(count, times[12 * day : 12 * day + count])
    assert window.size == UNBOUNDED_WINDOW


def test_window_is_stored_in_feed_state():
    window = (
        Window()
        .after(10, MONDAY + 60.0 * np.arange(10))
        .after(10, MONDAY + 60.0 * np.arange(5, 15))
    )
    assert window.dropped
    assert Window.of(window.apply_to(FeedState())) == window
