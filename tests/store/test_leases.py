"""Leases of feeds and hosts, and the token bucket, shared by several workers."""

import pytest

from tests.store.conftest import LEASE_S


@pytest.fixture
def store_with_three_feeds(store):
    """Two feeds of one host, one of another, all due."""
    for url in ("https://a.example/1", "https://a.example/2", "https://b.example/"):
        store.subscribe(url)
        store.clock.forward(1)
    return store


def lease_feed_ids(store, worker, limit=9):
    return [feed.id for feed in store.lease_feeds(limit, lease_s=LEASE_S, worker=worker)]


def test_host_is_leased_by_one_worker_at_a_time(store_with_three_feeds):
    assert lease_feed_ids(store_with_three_feeds, "one", limit=1) == [1]
    assert lease_feed_ids(store_with_three_feeds, "two") == [3]
    assert lease_feed_ids(store_with_three_feeds, "one") == [2]


def test_leases_of_dead_worker_expire(
    store_with_three_feeds,
):
    assert lease_feed_ids(store_with_three_feeds, "one") == [1, 2, 3]
    store_with_three_feeds.clock.forward(LEASE_S - 1)
    assert lease_feed_ids(store_with_three_feeds, "two") == []
    store_with_three_feeds.clock.forward(1)
    assert lease_feed_ids(store_with_three_feeds, "two") == [1, 2, 3]


def test_release_returns_feeds_and_hosts(store_with_three_feeds):
    feeds = store_with_three_feeds.lease_feeds(9, lease_s=LEASE_S, worker="one")
    store_with_three_feeds.release(feeds[1:], "one")
    assert lease_feed_ids(store_with_three_feeds, "two") == [2, 3]


def test_released_host_is_available_from_its_time(store_with_three_feeds):
    lease_feed_ids(store_with_three_feeds, "one", limit=1)
    store_with_three_feeds.release_hosts(
        [("https://a.example", store_with_three_feeds.clock() + 10)], "one"
    )
    assert lease_feed_ids(store_with_three_feeds, "two") == [3]
    store_with_three_feeds.clock.forward(10)
    assert lease_feed_ids(store_with_three_feeds, "two") == [2]


def test_worker_cannot_release_host_of_another(store_with_three_feeds):
    lease_feed_ids(store_with_three_feeds, "one", limit=1)
    store_with_three_feeds.release_hosts([("https://a.example", 0.0)], "two")
    assert lease_feed_ids(store_with_three_feeds, "two") == [3]


def test_token_bucket_refills_at_constant_rate(store):
    assert store.take_tokens(1000, 240.0) == 240
    assert store.take_tokens(1, 240.0) == 0
    assert store.token_deficit(240.0) == pytest.approx(1.0)
    store.clock.forward(3600)
    store.consume_budget(-2)  # two tokens were not used
    assert store.take_tokens(1000, 240.0) == 12


def test_reserved_slots_of_a_host_are_spaced(store):
    now = store.clock()
    assert [store.reserve("https://a.example", 2.0) - now for _ in range(3)] == [0.0, 2.0, 4.0]
    store.clock.forward(100)
    assert store.reserve("https://a.example", 2.0) == now + 100
