"""Range partitions of entries in PostgreSQL: creation in advance, pruning of old ones."""

import pytest

from tests import postgres
from tests.store.conftest import entry
from tidings.store import partitions, status
from tidings.store.entry_queries import ids
from tidings.store.entry_state import EntryStateChange, update_entry_state
from tidings.store.user_models import Stream


@pytest.fixture
def location(monkeypatch):
    """A database whose partitions hold ten entries."""
    monkeypatch.setattr(partitions, "MIN_SPAN", 10)
    with postgres.database(empty=True) as url:
        yield url


def spans(store):
    return [(p.low, p.high) for p in store.read(partitions.partitions)]


def tables(location):
    return sorted(
        name
        for (name,) in postgres.sql(
            location, "SELECT relname FROM pg_class WHERE relname ~ '^entries_[0-9_]+$'"
        )
    )


def fill(store, feed, first, count):
    """Record a poll with one new entry each week."""
    for n in range(first, first + count):
        store.record_poll(feed, new=[entry(n, text=f"word{n}")], document=(f"id:{n}",))
        store.clock.forward(days=7)


def test_next_partition_is_created_in_advance(store):
    feed = store.subscribe()
    assert spans(store) == [(1, 11)]
    fill(store, feed, 1, 5)
    assert spans(store) == [(1, 11)]
    fill(store, feed, 6, 1)
    assert spans(store) == [(1, 11), (11, 21)]


def test_quickly_filled_partition_is_followed_by_larger_one(store):
    feed = store.subscribe()
    for n in range(1, 22, 2):
        store.record_poll(feed, new=[entry(n), entry(n + 1)])
    assert spans(store) == [(1, 11), (11, 31), (31, 71)]


@pytest.fixture
def filled_store(store):
    """26 weekly entries; the last ten are younger than 70 days, the first partition is older."""
    fill(store, store.subscribe(), 1, 26)
    return store


def test_old_partition_is_pruned_except_retained_entries(filled_store, location):
    """Starred and listed entries stay; dependent rows of the others are deleted."""
    filled_store.write(
        update_entry_state, 1, [4], EntryStateChange(starred=True), filled_store.clock()
    )
    filled_store.record_poll(
        1, changed=(entry(5, digest=b"2", text="corrected"),), document=("id:7", "id:26")
    )
    before = postgres.sql(location, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'")
    assert filled_store.apply_retention(days=70, min_entries=3).entries == 8
    assert (
        postgres.sql(location, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'") != before
    )
    assert filled_store.titles(limit=100)[-2:] == ["Post 7", "Post 4"]
    assert tables(location) == ["entries_11_21", "entries_1_11", "entries_21_31", "entries_31_41"]
    assert filled_store.versions(5) == []
    assert filled_store.titles(search="word6") == []
    assert filled_store.titles(search="word7") == ["Post 7"]
    unread = {i for (i,) in postgres.sql(location, "SELECT entry_id FROM unread")}
    assert unread == {e.id for e in filled_store.entries(limit=100)}
    assert filled_store.check() == []


def test_pruned_entries_are_not_new_again(filled_store):
    filled_store.apply_retention(days=70, min_entries=0)
    assert filled_store.record_poll(1, source="archive", new=[entry(1), entry(27)]).new == (27,)


def test_partition_with_mostly_retained_entries_is_unchanged(filled_store, location):
    before = postgres.sql(location, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'")
    assert filled_store.apply_retention(days=70, min_entries=22).entries == 0
    assert (
        postgres.sql(location, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'") == before
    )


def test_changes_between_copy_and_swap_are_not_lost(filled_store):
    """Between copy and swap a retained entry is edited, and a deletable one is starred."""
    (partition, *_) = filled_store.read(
        partitions.prunable_partitions, filled_store.clock() - 70 * 86400, filled_store.clock()
    )
    assert (
        filled_store.write(partitions.copy_retained_entries, partition, 20, filled_store.clock())
        == 6
    )
    filled_store.record_poll(1, changed=(entry(9, digest=b"2", title="Edited"),))
    filled_store.write(
        update_entry_state, 1, [2], EntryStateChange(starred=True), filled_store.clock()
    )
    filled_store.write(partitions.swap_partition, partition)
    assert filled_store.titles(limit=100)[-5:] == [
        "Post 10",
        "Edited",
        "Post 8",
        "Post 7",
        "Post 2",
    ]
    assert filled_store.read(ids, 1, Stream(starred=True), 10, None).ids == (2,)


def test_leftover_copy_is_created_again(filled_store, location):
    """A process died between copy and swap."""
    (partition, *_) = filled_store.read(
        partitions.prunable_partitions, filled_store.clock() - 70 * 86400, filled_store.clock()
    )
    filled_store.write(partitions.copy_retained_entries, partition, 0, filled_store.clock())
    assert filled_store.apply_retention(days=70, min_entries=0).entries > 0
    assert tables(location) == ["entries_11_21", "entries_1_11", "entries_21_31", "entries_31_41"]
    assert filled_store.check() == []


def test_large_entry_counts_are_estimated(filled_store, location, monkeypatch):
    monkeypatch.setattr(status, "MAX_EXACT_COUNT", 20)
    postgres.sql(location, "ANALYZE")
    fill(filled_store, 1, 27, 2)
    assert filled_store.status().entries == 26  # PostgreSQL's estimate
    monkeypatch.setattr(status, "MAX_EXACT_COUNT", 26)
    assert filled_store.status().entries == 28
