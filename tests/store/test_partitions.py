"""Entries in PostgreSQL lie in partitions by age: made ahead, and dropped whole when they are old, but for what must stay."""

import pytest

from tests import postgres
from tests.store.conftest import entry
from tidings.store import partitions, status
from tidings.store.marks import Wish, mark
from tidings.store.people_rows import Stream
from tidings.store.reading import ids


@pytest.fixture
def place(monkeypatch):
    """A database whose partitions hold ten entries."""
    monkeypatch.setattr(partitions, "LEAST_SPAN", 10)
    with postgres.database(empty=True) as url:
        yield url


def spans(store):
    return [(p.low, p.high) for p in store.read(partitions.partitions)]


def tables(place):
    return sorted(name for (name,) in postgres.sql(place, "SELECT relname FROM pg_class WHERE relname ~ '^entries_[0-9_]+$'"))


def fill(store, feed, first, count):
    """A post each week, one poll each."""
    for n in range(first, first + count):
        store.polled(feed, new=[entry(n, text=f"word{n}")], document=(f"id:{n}",))
        store.clock.forward(days=7)


def test_the_next_partition_is_there_before_it_is_needed(store):
    feed = store.subscribe()
    assert spans(store) == [(1, 11)]
    fill(store, feed, 1, 5)
    assert spans(store) == [(1, 11)]
    fill(store, feed, 6, 1)
    assert spans(store) == [(1, 11), (11, 21)]


def test_partitions_that_fill_quickly_are_followed_by_larger_ones(store):
    feed = store.subscribe()
    for n in range(1, 22, 2):
        store.polled(feed, new=[entry(n), entry(n + 1)])
    assert spans(store) == [(1, 11), (11, 31), (31, 71)]


@pytest.fixture
def grown(store):
    """26 weekly posts of one feed; the last ten are younger than 70 days, so all of the first partition is older."""
    fill(store, store.subscribe(), 1, 26)
    return store


def test_an_old_partition_is_dropped_but_for_what_must_stay(grown, place):
    """What somebody starred and what the document shows stays; with the rest goes all that hung on it."""
    grown.write(mark, 1, [4], Wish(starred=True), grown.clock())
    grown.polled(1, changed=(entry(5, digest=b"2", text="corrected"),), document=("id:7", "id:26"))
    before = postgres.sql(place, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'")
    assert grown.retain(days=70, least=3).entries == 8
    assert postgres.sql(place, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'") != before
    assert grown.titles(limit=100)[-2:] == ["Post 7", "Post 4"]
    assert tables(place) == ["entries_11_21", "entries_1_11", "entries_21_31", "entries_31_41"]
    assert grown.versions(5) == []
    assert grown.titles(search="word6") == []
    assert grown.titles(search="word7") == ["Post 7"]
    unread = {i for (i,) in postgres.sql(place, "SELECT entry_id FROM unread")}
    assert unread == {e.id for e in grown.entries(limit=100)}
    assert grown.check() == []


def test_what_went_with_its_partition_is_not_new_again(grown):
    grown.retain(days=70, least=0)
    assert grown.polled(1, source="archive", new=[entry(1), entry(27)]).new == (27,)


def test_a_partition_of_which_most_stays_is_left_as_it_is(grown, place):
    before = postgres.sql(place, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'")
    assert grown.retain(days=70, least=22).entries == 0
    assert postgres.sql(place, "SELECT oid FROM pg_class WHERE relname = 'entries_1_11'") == before


def test_what_changes_or_is_kept_while_survivors_are_copied_is_not_lost(grown):
    """Between the copy and the swap an entry that stays is edited, and one that would go is starred."""
    (old, *_) = grown.read(partitions.old, grown.clock() - 70 * 86400, grown.clock())
    assert grown.write(partitions.copy_survivors, old, 20, grown.clock()) == 6
    grown.polled(1, changed=(entry(9, digest=b"2", title="Edited"),))
    grown.write(mark, 1, [2], Wish(starred=True), grown.clock())
    grown.write(partitions.swap, old)
    assert grown.titles(limit=100)[-5:] == ["Post 10", "Edited", "Post 8", "Post 7", "Post 2"]
    assert grown.read(ids, 1, Stream(starred=True), 10, None).ids == (2,)


def test_a_copy_that_was_left_behind_is_made_anew(grown, place):
    """A process died between the copy and the swap."""
    (old, *_) = grown.read(partitions.old, grown.clock() - 70 * 86400, grown.clock())
    grown.write(partitions.copy_survivors, old, 0, grown.clock())
    assert grown.retain(days=70, least=0).entries > 0
    assert tables(place) == ["entries_11_21", "entries_1_11", "entries_21_31", "entries_31_41"]
    assert grown.check() == []


def test_very_many_entries_are_not_counted_one_by_one(grown, place, monkeypatch):
    monkeypatch.setattr(status, "COUNTED", 20)
    postgres.sql(place, "ANALYZE")
    fill(grown, 1, 27, 2)
    assert grown.status().entries == 26  # as PostgreSQL has counted last
    monkeypatch.setattr(status, "COUNTED", 26)
    assert grown.status().entries == 28
