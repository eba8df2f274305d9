"""Imported entries: visible only to the user who imported them, and to no statistics or peers."""

import pytest

from tests.store.conftest import entry
from tests.trace_helpers import MONDAY
from tidings.store import entry_queries, folders, insights, peers, poll_statistics, users
from tidings.store.entry_state import EntryStateChange, update_entry_state
from tidings.store.feed_models import NewSubscription
from tidings.store.imported_entries import import_entry
from tidings.store.user_models import Stream

UNREAD, READ = EntryStateChange(unread=True), EntryStateChange(unread=False)


@pytest.fixture
def two_users(store):
    """A feed with two published entries and two subscribers: the first user, and Bob."""
    feed = store.subscribe()
    bob = store.write(users.add_user, "bob", "", False, MONDAY).id
    store.add_subscriptions([NewSubscription("https://a.example/feed", MONDAY)], bob)
    store.record_poll(feed, new=[entry(1), entry(2)], state={"window": 2})
    return store, feed, bob


def import_into(store, feed, user=1, number=9, change=UNREAD, **fields):
    return store.write(
        import_entry,
        user,
        feed,
        entry(number, text="imported words", **fields),
        change,
        store.clock(),
    )


def listed(store, user, **conditions):
    return set(store.read(entry_queries.ids, user, Stream(**conditions), 100, None).ids)


def test_only_the_importing_user_sees_the_entry(two_users):
    store, feed, bob = two_users
    number, is_new = import_into(store, feed)
    assert is_new
    for conditions in (
        {},
        {"unread": True},
        {"feeds": (feed,)},
        {"search": "imported words"},
        {"by": "publication"},
    ):
        assert number in listed(store, 1, **conditions)
        assert number not in listed(store, bob, **conditions)
    assert [item.entry.source for item in store.read(entry_queries.items, 1, [number])] == [
        "import"
    ]
    assert store.read(entry_queries.items, bob, [number]) == []
    assert store.read(entry_queries.count, bob, Stream()) == 2
    assert store.read(folders.counters, 1) == [(feed, 3, 3)]
    assert store.read(folders.counters, bob) == [(feed, 2, 2)]


def test_others_cannot_change_an_imported_entry(two_users):
    store, feed, bob = two_users
    number, _ = import_into(store, feed)
    change = EntryStateChange(unread=True, starred=True, add_tags=("mine",))
    assert store.write(update_entry_state, bob, [number], change, MONDAY) == []
    assert listed(store, bob, starred=True) == set()
    assert listed(store, bob, tags=("mine",)) == set()


def test_new_subscribers_do_not_get_it_as_unread(two_users):
    store, feed, _bob = two_users
    number, _ = import_into(store, feed)
    eve = store.write(users.add_user, "eve", "", False, MONDAY).id
    store.add_subscriptions([NewSubscription("https://a.example/feed", MONDAY)], eve)
    assert number not in listed(store, eve, unread=True)
    assert len(listed(store, eve, unread=True)) == 2


def test_second_import_changes_only_the_state(two_users):
    store, feed, _bob = two_users
    number, _ = import_into(store, feed, change=READ)
    assert number in listed(store, 1, unread=False)
    starred = EntryStateChange(unread=True, starred=True)
    assert import_into(store, feed, change=starred, title="Other") == (number, False)
    (item,) = store.read(entry_queries.items, 1, [number])
    assert (item.unread, item.starred, item.entry.title) == (True, True, "Post 9")


def test_deleted_entry_is_not_imported_again(two_users):
    store, feed, _bob = two_users
    number, _ = import_into(store, feed)
    store.clock.forward(days=400)
    store.record_poll(feed, new=[entry(3)])
    assert store.apply_retention(days=30, min_entries=1).entries >= 1
    assert number not in listed(store, 1)
    assert import_into(store, feed) is None


def test_no_statistics_and_no_peer_get_imported_entries(two_users):
    store, feed, _bob = two_users
    store.clock.forward(3600)

    def figures():
        now = store.clock()
        return (
            store.status().hour.new,
            [(f.entries, f.newest_at) for f in store.feeds()],
            len(store.posting_times(0.0)),
            store.titles(),
            store.read(insights.statistics, 1, 0.0, now).new_entries,
            [day.new_entries for day in store.read(poll_statistics.week, now).days],
            [e.title for e in store.read(peers.archived_entries, feed, 0.0, 1e12, "", 100)],
            store.read(peers.archive_extent, feed, 0.0, 1e12, ""),
        )

    before = figures()
    import_into(store, feed, published_at=store.clock() + 86400)
    store.clock.forward(1)
    assert figures() == before


def test_imports_do_not_hide_that_a_feed_is_silent(two_users):
    store, feed, _bob = two_users
    store.clock.forward(days=400)
    import_into(store, feed, published_at=store.clock())
    problems = store.read(poll_statistics.feed_problems, store.clock())
    assert ("silent", feed) in [(problem.kind, problem.feed_id) for problem in problems]


def test_removing_a_user_deletes_their_imported_entries(two_users):
    store, feed, bob = two_users
    number, _ = import_into(store, feed, user=bob)
    store.write(users.set_admin, 1, True)
    store.write(users.remove_user, bob, MONDAY)
    assert store.entry(number) is None
    assert number not in listed(store, 1)
    assert store.check() == []
