"""Poll statistics and minimum sample sizes, on both databases."""

import pytest

from tests.store.conftest import entry
from tests.trace_helpers import MONDAY
from tidings.store.evidence import Evidence, comparison_needs, curve_needs, delay_needs
from tidings.store.feed_models import SuspectedGap
from tidings.store.poll_statistics import feed_problems, peer_arrivals, rate_limited_hosts, week

DAY_S = 86400.0


def late(number, delay_s, **fields):
    return entry(number, delay_s=delay_s, **fields)


def test_week_statistics_by_day(store):
    feed = store.subscribe()
    store.record_poll(feed)
    store.clock.forward(days=3)
    store.record_poll(feed, new=[late(n, 60.0 * n) for n in range(1, 51)], bytes=500)
    store.clock.forward(days=1)
    store.record_poll(feed, status=304, bytes=90)
    store.record_poll(feed, status=0, error_kind="timeout", error="no answer")
    store.record_poll(feed, source="push", new=[late(60, 2.0)])
    store.record_poll(feed, gap=SuspectedGap(MONDAY, MONDAY + 1, 4.0), new=[late(61, 6000.0)])
    days = store.read(week, store.clock())
    assert [day.requests for day in days.days] == [0, 0, 1, 0, 0, 1, 3]
    assert [day.has_data for day in days.days] == [False, False, True, False, False, True, True]
    before, today = days.days[-2:]
    assert (
        before.polls_with_new_entries,
        before.bytes,
        before.new_entries,
        before.p50_s,
        before.p90_s,
    ) == (
        1,
        500,
        50,
        1500.0,
        2700.0,
    )
    assert (
        today.unchanged,
        today.failed,
        today.pushed,
        today.polls_with_new_entries,
        today.missed,
    ) == (
        1,
        1,
        1,
        1,
        4.0,
    )
    assert (today.p50_s, today.p90_s) == (None, None)  # of two posts
    assert (days.p50_s, days.p90_s, days.total("new_entries"), len(days.delays_s)) == (
        1500.0,
        2760.0,
        52.0,
        52,
    )


def test_week_statistics_of_empty_store(store):
    empty = store.read(week, MONDAY)
    assert (empty.p50_s, empty.total("requests"), empty.days[0].p90_s) == (None, 0.0, None)
    assert empty.evidence == Evidence(0.0, 0)
    assert (store.read(rate_limited_hosts, MONDAY), store.read(feed_problems, MONDAY)) == ([], [])


@pytest.mark.parametrize(("days", "posts"), [(2.9, 50), (3.1, 49)])
def test_delays_appear_after_three_days_and_fifty_posts(store, days, posts):
    feed = store.subscribe()
    store.record_poll(feed)
    store.clock.forward(days=days)
    store.record_poll(feed, new=[late(n, 60.0) for n in range(posts)])
    found = store.read(week, store.clock())
    assert (found.p50_s, found.p90_s, found.days[-1].p50_s) == (None, None, None)
    assert found.evidence.posts == posts
    assert found.evidence.polled_days == pytest.approx(days, abs=0.01)
    store.clock.forward(days=0.2)
    store.record_poll(feed, new=[late(100, 60.0)])
    assert store.read(week, store.clock()).p50_s == 60.0


def test_minimum_sample_sizes_of_parts():
    enough, young = Evidence(3.0, 50), Evidence(2.0, 500)
    assert [enough.has_median(n) for n in (5, 6)] == [False, True]
    assert [enough.has_p90(n) for n in (19, 20)] == [False, True]
    assert not any((young.has_delays, young.has_median(500), young.has_p90(500)))


def test_texts_about_missing_history():
    assert delay_needs(Evidence(3.0, 50)) == ""
    assert (
        delay_needs(Evidence(1.9, 12))
        == "Delays are shown after 3 days of checks and 50 posts (so far: 1 day and 12 posts)."
    )
    assert "7 days of checks (so far: 6 days)" in comparison_needs(Evidence(6.9, 0))
    assert "(so far: 0 days of checks)" in curve_needs(None, 0.5, None)
    assert "(so far: 13 days and 49 posts)" in curve_needs(13.5, 9.0, 49)
    assert curve_needs(14.0, 3.0, 50) == comparison_needs(Evidence(7.0, 0)) == ""


def test_peer_arrivals(store):
    feed = store.subscribe()
    store.record_poll(feed, new=[entry(1)])
    at = store.clock()
    store.record_poll(
        feed, source="neighbour", new=[entry(2), entry(3)], peer_path=("10.0.0.1:80",)
    )
    assert store.read(peer_arrivals, feed, MONDAY) == [(at, 2)]
    assert store.read(week, store.clock()).days[-1].pushed == 2


def test_rate_limited_hosts(store):
    strict, lax = (
        store.subscribe("https://strict.example/feed"),
        store.subscribe("https://lax.example/feed"),
    )
    for _ in range(2):
        store.record_poll(strict, status=429, error_kind="http 429", error="too many")
    store.record_poll(lax, status=503, error_kind="http 503", error="busy")
    store.record_poll(lax, status=200)
    first, second = store.read(rate_limited_hosts, store.clock())
    assert (first.host, first.refusals) == ("https://strict.example", 2)
    assert (second.host, second.refusals, second.last_at) == ("https://lax.example", 1, MONDAY + 2)
    assert store.read(rate_limited_hosts, MONDAY + 9 * DAY_S) == []


@pytest.mark.parametrize("kind", ["broken", "late", "silent", "lying"])
def test_feed_problems(store, kind):
    good, bad = (store.subscribe(f"https://{name}.example/") for name in ("good", "bad"))
    outcome = {
        "broken": {
            "status": 404,
            "state": {"errors": 3, "failing_since": MONDAY, "last_error": "gone", "title": "Bad"},
        },
        "late": {"new": [late(n, 9000.0) for n in range(100, 106)]},
        "silent": {
            "new": [entry(1, published_at=MONDAY - 40 * DAY_S)],
            "state": {"usual_gap_s": DAY_S},
        },
        "lying": {"new": [entry(1, declared_published_at=MONDAY + 4 * DAY_S)]},
    }[kind]
    store.record_poll(good)
    store.clock.forward(days=3)
    store.record_poll(
        good, new=[late(n, 600.0, declared_published_at=MONDAY - n) for n in range(1, 51)]
    )
    store.record_poll(bad, **outcome)
    (found,) = store.read(feed_problems, store.clock())
    assert (found.kind, found.feed_id) == (kind, bad)
    assert (found.since, found.number) == {
        "broken": (MONDAY, 3.0),
        "late": (None, 9000.0),
        "silent": (MONDAY - 40 * DAY_S, DAY_S),
        "lying": (None, 1.0),
    }[kind]


def test_no_late_feeds_without_enough_history(store):
    good, bad = (store.subscribe(f"https://{name}.example/") for name in ("good", "bad"))
    store.record_poll(good, new=[late(n, 600.0) for n in range(1, 51)])
    store.record_poll(bad, new=[late(n, 9000.0) for n in range(100, 106)])
    assert store.read(feed_problems, store.clock()) == []
    assert [one.kind for one in store.read(feed_problems, store.clock() + 3 * DAY_S)] == ["late"]


def test_rarely_polled_feed_is_broken_after_a_day_of_failure(store):
    feed = store.subscribe("https://bad.example/")
    store.record_poll(
        feed, status=404, state={"errors": 1, "failing_since": MONDAY, "last_error": "gone"}
    )
    assert store.read(feed_problems, MONDAY + DAY_S - 1) == []
    assert [one.kind for one in store.read(feed_problems, MONDAY + DAY_S)] == ["broken"]
