"""Retention: old entries are deleted and never new again; the poll log is pruned."""

import pytest

from tests.store.conftest import entry
from tests.trace_helpers import MONDAY
from tidings.store import retention
from tidings.store.feed_models import KnownEntry


@pytest.fixture
def store_with_old_entries(store):
    """A feed with entries 1 to 6, a hundred days old, whose document lists entries 2 and 6."""
    feed = store.subscribe()
    store.record_poll(feed, new=[entry(n, text=f"word{n}") for n in range(1, 7)])
    store.record_poll(feed, document=("id:2", "id:6"))
    store.clock.forward(days=100)
    return store


def test_retention_keeps_newest_and_listed_entries(store_with_old_entries):
    assert store_with_old_entries.apply_retention(days=90, min_entries=2).entries == 3
    assert store_with_old_entries.titles() == ["Post 6", "Post 5", "Post 2"]
    assert store_with_old_entries.titles(search="word1") == []
    assert store_with_old_entries.titles(search="word2") == ["Post 2"]
    assert store_with_old_entries.check() == []
    assert store_with_old_entries.apply_retention(days=90, min_entries=2).entries == 0


def test_retention_keeps_young_entries(store_with_old_entries):
    assert store_with_old_entries.apply_retention(days=101, min_entries=0).entries == 0


def test_deleted_entries_are_not_new_again(store_with_old_entries):
    store_with_old_entries.apply_retention(days=90, min_entries=0)
    assert store_with_old_entries.known_entries(1, ["id:1", "id:2", "id:9"]) == {
        "id:1": KnownEntry(None, b""),
        "id:2": KnownEntry(2, b"1", MONDAY + 7200),
    }
    assert store_with_old_entries.record_poll(
        1, source="archive", new=[entry(1), entry(9)]
    ).new == (7,)
    assert store_with_old_entries.titles() == ["Post 9", "Post 6", "Post 2"]


def test_poll_log_is_pruned_and_then_deleted(store):
    feed = store.subscribe()
    store.record_poll(feed, new=[entry(1)])
    store.record_poll(feed)
    store.record_poll(feed, error_kind="timeout", error="no answer")
    store.clock.forward(days=7)
    assert store.apply_retention(days=90, min_entries=0).polls == 0
    store.clock.forward(days=2)
    assert store.apply_retention(days=90, min_entries=0).polls == 1
    assert [(p.new, p.error_kind) for p in store.polls(feed)] == [(0, "timeout"), (1, "")]
    store.clock.forward(days=90)
    assert store.apply_retention(days=90, min_entries=0).polls == 2
    assert store.polls(feed) == []


def test_long_poll_log_is_pruned_in_steps(store, monkeypatch):
    """Two of three polls find nothing; polls of the same time are pruned in one step."""
    monkeypatch.setattr(retention, "POLLS_PER_TRANSACTION", 2)
    feeds = [store.subscribe(f"https://{n}.example/") for n in range(5)]
    for day in range(12):
        store.record(
            [store.outcome(feed, new=[entry(day)] if day % 3 == 0 else ()) for feed in feeds]
        )
        store.clock.forward(days=1)
    assert store.apply_retention(days=90, min_entries=0).polls == 5 * 3
    assert store.apply_retention(days=90, min_entries=0).polls == 0
    store.clock.forward(days=2)
    assert store.apply_retention(days=90, min_entries=0).polls == 5
    assert [p.new for p in store.polls(feeds[0], limit=50)] == [0, 0, 1, 0, 0, 1, 1, 1]
