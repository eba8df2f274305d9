"""Old entries go, and nothing that went comes back as new."""

import pytest

from tests.store.conftest import entry
from tests.worlds import MONDAY
from tidings.store import upkeep
from tidings.store.rows import Known


@pytest.fixture
def aged(store):
    """A feed with entries 1 to 6, a hundred days old, whose document now shows entries 2 and 6."""
    feed = store.subscribe()
    store.polled(feed, new=[entry(n, text=f"word{n}") for n in range(1, 7)])
    store.polled(feed, document=("id:2", "id:6"))
    store.clock.forward(days=100)
    return store


def test_old_entries_go_except_the_newest_and_what_the_document_shows(aged):
    assert aged.retain(days=90, least=2).entries == 3
    assert aged.titles() == ["Post 6", "Post 5", "Post 2"]
    assert aged.titles(search="word1") == []
    assert aged.titles(search="word2") == ["Post 2"]
    assert aged.check() == []
    assert aged.retain(days=90, least=2).entries == 0


def test_young_entries_stay(aged):
    assert aged.retain(days=101, least=0).entries == 0


def test_what_went_does_not_come_back_as_new(aged):
    aged.retain(days=90, least=0)
    assert aged.known(1, ["id:1", "id:2", "id:9"]) == {"id:1": Known(None, b""), "id:2": Known(2, b"1", MONDAY + 7200)}
    assert aged.polled(1, source="archive", new=[entry(1), entry(9)]).new == (7,)
    assert aged.titles() == ["Post 9", "Post 6", "Post 2"]


def test_the_log_is_thinned_to_what_tells_something_and_then_forgotten(store):
    feed = store.subscribe()
    store.polled(feed, new=[entry(1)])
    store.polled(feed)
    store.polled(feed, error_kind="timeout", error="no answer")
    store.clock.forward(days=7)
    assert store.retain(days=90, least=0).polls == 0
    store.clock.forward(days=2)
    assert store.retain(days=90, least=0).polls == 1
    assert [(p.new, p.error_kind) for p in store.polls(feed)] == [(0, "timeout"), (1, "")]
    store.clock.forward(days=90)
    assert store.retain(days=90, least=0).polls == 2
    assert store.polls(feed) == []


def test_a_long_log_is_thinned_in_many_steps(store, monkeypatch):
    """Two of three polls bring nothing; several polls of one moment are never half done."""
    monkeypatch.setattr(upkeep, "POLLS_AT_ONCE", 2)
    feeds = [store.subscribe(f"https://{n}.example/") for n in range(5)]
    for day in range(12):
        store.record([store.outcome(feed, new=[entry(day)] if day % 3 == 0 else ()) for feed in feeds])
        store.clock.forward(days=1)
    assert store.retain(days=90, least=0).polls == 5 * 3
    assert store.retain(days=90, least=0).polls == 0
    store.clock.forward(days=2)
    assert store.retain(days=90, least=0).polls == 5
    assert [p.new for p in store.polls(feeds[0], limit=50)] == [0, 0, 1, 0, 0, 1, 1, 1]
