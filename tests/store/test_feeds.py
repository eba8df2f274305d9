"""Feeds: subscriptions, leases, moves, retirement, estimates, pauses, WebSub subscriptions."""

import pytest

from tests.store.conftest import INTEGRITY_ERRORS, LEASE_S, entry
from tidings.document import Hints
from tidings.store.feed_models import Estimate, NewSubscription, Pause, PushSubscription, Schedule


def test_add_subscriptions_reports_what_is_new(store):
    store.subscribe("https://a.example/feed")
    first, second, third = store.add_subscriptions(
        [
            NewSubscription("https://a.example/feed", store.clock()),
            NewSubscription(
                "https://b.example/feed", store.clock(), title="My B", folder="News/Science"
            ),
            NewSubscription("https://b.example/feed", store.clock()),
        ]
    )
    assert (first.feed_new, first.subscription_new) == (False, False)
    assert (second.feed_new, second.subscription_new) == (True, True)
    assert third.feed_id == second.feed_id
    assert not third.feed_new
    assert [(f.title, f.folder) for f in store.feeds()] == [
        ("https://a.example/feed", ""),
        ("My B", "News/Science"),
    ]


def test_failed_add_subscriptions_is_rolled_back(store):
    broken = NewSubscription("https://b.example/feed", store.clock(), title=None)
    with pytest.raises(INTEGRITY_ERRORS):
        store.add_subscriptions([NewSubscription("https://a.example/feed", store.clock()), broken])
    assert store.feeds() == []


def test_feed_list_has_entry_counts_and_pages(store):
    a, b = store.subscribe("https://a.example/feed"), store.subscribe("https://b.example/feed")
    store.record_poll(a, new=[entry(1), entry(2)], state={"title": "A's own"})
    assert [(f.feed.id, f.title, f.entries, f.newest_at) for f in store.feeds(limit=1)] == [
        (a, "A's own", 2, entry(2).published_at)
    ]
    assert [f.feed.id for f in store.feeds(after=a)] == [b]


def test_feed_state_round_trip(store):
    feed = store.subscribe()
    hints = Hints(ttl_s=3600.0, skip_hours=frozenset({1, 2}), skip_days=frozenset({6}))
    fields = {
        "etag": 'W/"é"',
        "window": 15,
        "forbidden": bytes(21),
        "hints": hints,
        "hubs": ("https://hub.example/",),
        "errors": 2,
    }
    store.record_poll(feed, state=fields)
    state = store.feed(feed).state
    assert {name: getattr(state, name) for name in fields} == fields
    assert store.forbidden_hours() == {feed: bytes(21)}


def test_due_feeds_are_leased_once_longest_due_first(store):
    late = store.subscribe("https://late.example/", first_poll_at=store.clock() - 50)
    later = store.subscribe("https://later.example/", first_poll_at=store.clock() - 10)
    store.subscribe("https://future.example/", first_poll_at=store.clock() + 10)
    assert [f.id for f in store.lease_feeds(1, lease_s=LEASE_S)] == [late]
    assert [f.id for f in store.lease_feeds(9, lease_s=LEASE_S)] == [later]
    assert store.lease_feeds(9, lease_s=LEASE_S) == []


def test_lease_expires_without_recorded_outcome(store):
    feed = store.subscribe()
    store.lease_feeds(1, lease_s=LEASE_S)
    assert store.next_due() == store.clock() + LEASE_S
    store.clock.forward(LEASE_S)
    assert [f.id for f in store.lease_feeds(1, lease_s=LEASE_S)] == [feed]
    store.record_poll(feed, next_in_s=9000)
    store.clock.forward(LEASE_S)
    assert store.lease_feeds(1, lease_s=LEASE_S) == []


def test_lease_by_id_ignores_poll_time(store):
    a = store.subscribe("https://a.example/", first_poll_at=store.clock() + 1000)
    b = store.subscribe("https://b.example/")
    store.retire(b, "retired by the operator")
    assert [f.id for f in store.lease_feeds(9, lease_s=LEASE_S, feed_ids=[a, b])] == [a]


def test_reschedule_returns_a_leased_feed(store):
    feed = store.subscribe()
    (leased,) = store.lease_feeds(1, lease_s=LEASE_S)
    store.reschedule([Schedule(feed, leased.state.next_poll_at, leased.state.reason)])
    assert store.lease_feeds(1, lease_s=LEASE_S) == [leased]


def test_retired_feed_is_not_leased_until_added_again(store):
    feed = store.subscribe("https://a.example/feed")
    store.record_poll(feed, retire_reason="the server says 410 Gone", status=410)
    store.reschedule([Schedule(feed, store.clock(), "a late decision")])
    store.clock.forward(days=400)
    assert store.lease_feeds(9, lease_s=LEASE_S) == []
    assert store.feed(feed).retired_reason == "the server says 410 Gone"
    assert len(store.timings()) == 0

    assert store.subscribe("https://a.example/feed") == feed
    assert [f.id for f in store.lease_feeds(9, lease_s=LEASE_S)] == [feed]


def test_moved_feed_is_found_by_both_urls(store):
    feed = store.subscribe("http://a.example/feed")
    store.record_poll(feed, new_url="https://a.example/feed")
    assert (
        store.feed("http://a.example/feed")
        == store.feed("https://a.example/feed")
        == store.feed(feed)
    )
    assert store.feed(feed).url == "https://a.example/feed"

    store.record_poll(feed, new_url="http://a.example/feed")
    assert store.feed("https://a.example/feed").url == "http://a.example/feed"


def test_feed_moved_to_existing_url_transfers_its_subscribers(store):
    old = store.subscribe("http://a.example/feed", folder="News")
    new = store.subscribe("https://a.example/feed")
    store.record_poll(old, new_url="https://a.example/feed")
    assert [f.feed.id for f in store.feeds()] == [new]
    assert store.feed(old).retired_at is not None
    assert store.feed("http://a.example/feed").id == new
    assert store.subscribe("http://a.example/feed") == new


def test_timings_array_by_feed(store):
    a, b = store.subscribe("https://a.example/"), store.subscribe("https://b.example/")
    store.record_poll(b, next_in_s=500, state={"window": 12, "earliest_at": store.clock() + 60})
    timings = store.timings()
    assert timings["feed_id"].tolist() == [a, b]
    assert timings["window"].tolist() == [0, 12]
    assert timings["earliest_at"].tolist() == [float("-inf"), store.clock() - 1 + 60]
    assert timings["next_poll_at"].tolist() == [store.clock() - 1, store.clock() - 1 + 500]


def test_estimates_and_key_values_are_saved_by_name(store):
    feed = store.subscribe()
    store.record_poll(feed, estimate=Estimate("price", b"first"))
    store.save_estimates({feed: Estimate("price", b"second")})
    store.save_values({"price": b"0.5"})
    store.save_values({"price": b"0.7", "clusters": b"..."})
    assert store.estimates("price") == {feed: b"second"}
    assert store.estimates("uniform") == {}
    assert store.load_values() == {"price": b"0.7", "clusters": b"..."}


def test_host_is_paused_until_retry_after(store):
    feed = store.subscribe()
    pause = Pause("a.example", store.clock() + 600, "429, Retry-After: 600")
    store.record_poll(feed, host="a.example", pause=pause, status=429)
    store.record_poll(feed, host="a.example")
    assert store.paused_hosts() == (pause,)
    assert store.last_request_times(store.clock() - 1) == {"a.example": store.clock() - 1}
    assert store.last_request_times(store.clock()) == {}
    store.clock.forward(600)
    assert store.paused_hosts() == ()


def test_push_subscriptions_by_token_and_lease_end(store):
    a, b = store.subscribe("https://a.example/"), store.subscribe("https://b.example/")
    first = PushSubscription(
        a, "https://hub.example/", "https://a.example/", "token-a", "secret", "asked"
    )
    store.save_push_subscription(first)
    store.save_push_subscription(
        PushSubscription(
            b,
            "https://hub.example/",
            "https://b.example/",
            "token-b",
            "secret",
            "active",
            lease_until=500.0,
        )
    )
    assert (
        store.find_push_subscription_by_token("token-a") == store.find_push_subscription(a) == first
    )
    assert store.find_push_subscription_by_token("guess") is None
    assert [p.feed_id for p in store.expiring_push_subscriptions(501.0)] == [b]
    store.save_push_subscription(
        PushSubscription(
            b,
            "https://hub.example/",
            "https://b.example/",
            "token-b",
            "secret",
            "active",
            lease_until=900.0,
            pushed_count=3,
        )
    )
    assert store.expiring_push_subscriptions(501.0) == []
