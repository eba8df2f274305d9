"""Politeness of the aggregator in scheduled and manual polls (docs/politeness.md)."""

import asyncio
from email.utils import formatdate

import numpy as np
import pytest

from tests.live.feed_server import feed_server_test
from tests.trace_helpers import MONDAY
from tidings.aggregator.explain import explain
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.policy.constraints import Limits
from tidings.reasons import reason, render
from tidings.store import poll_statistics
from tidings.store.feed_models import Pause, PollOutcome

RICH = Budget(200.0, True)


@feed_server_test(budget=RICH)
async def test_min_interval_depends_on_304_responses(feed_server):
    """15 minutes if the server answers 304, an hour if it always sends the document."""
    for path, conditional in (("/a", True), ("/full", False)):
        feed_server.feed(path, posts=10).posts[:] = [
            (i, MONDAY - 9000 + 900 * i, "") for i in range(10)
        ]
        feed_server.feeds[path].window = 50
        feed_server.feeds[path].conditional = conditional
    await feed_server.subscribe("/a", "/full")
    await feed_server.run_for(hours=12)
    conditional, full = (np.diff(feed_server.request_times(path)) for path in ("/a", "/full"))
    assert 900 <= conditional.min() < 1200
    assert HOUR_S <= full.min() < 1.3 * HOUR_S
    assert len(conditional) > 2 * len(full) > 10


@feed_server_test(budget=RICH, limits=Limits(min_interval_s=HOUR_S))
async def test_configured_min_interval_is_used(feed_server):
    feed_server.feed("/a", posts=10).posts[:] = [
        (i, MONDAY - 9000 + 900 * i, "") for i in range(10)
    ]
    feed_server.feeds["/a"].window = 50
    await feed_server.subscribe("/a")
    await feed_server.run_for(hours=12)
    assert HOUR_S <= np.diff(feed_server.request_times("/a")).min() < 1.3 * HOUR_S


@feed_server_test(budget=RICH, bytes_per_day=200_000)
async def test_byte_budget_is_respected(feed_server):
    for path in ("/a", "/b"):
        feed_server.feed(path, posts=20, window=20).conditional = False
    await feed_server.subscribe("/a", "/b")
    await feed_server.run_for(hours=72)
    days = await feed_server.store.read(poll_statistics.week, feed_server.clock())
    sizes = [day.bytes for day in days.days[-2:]]
    assert all(100_000 < size <= 210_000 for size in sizes)
    assert feed_server.scheduler.budget_per_day < 200


@feed_server_test(budget=RICH, policy="fixed:interval_h=0.05")
async def test_useless_validators_are_detected(feed_server):
    feed = feed_server.feed("/a", posts=3)
    feed.conditional, feed.headers = False, {"ETag": '"never the same"'}
    await feed_server.subscribe("/a")
    await feed_server.run_for(hours=6)
    gaps = np.diff(feed_server.request_times("/a"))
    assert gaps[0] < 1200
    assert gaps[-1] >= HOUR_S
    assert (await feed_server.stored_feed("/a")).state.not_modified < 0.5


@feed_server_test(budget=RICH, policy="fixed:interval_h=0.05")
async def test_short_ttl_or_overflow_shortens_interval(feed_server):
    feed_server.feed("/ttl", posts=3).extra = "<ttl>10</ttl>"
    feed_server.feed("/fast", window=10)
    feed_server.write("/fast", 10, every_s=120)
    await feed_server.subscribe("/ttl", "/fast")
    await feed_server.run_for(hours=3)
    assert 600 <= np.diff(feed_server.request_times("/ttl")).min() < 900
    assert 600 <= np.diff(feed_server.request_times("/fast")).min() < 900


@feed_server_test()
async def test_no_immediate_second_poll(feed_server):
    feed_server.feed("/a", posts=3)
    await feed_server.subscribe("/a")
    await feed_server.poll(due=True)
    await feed_server.poll(due=True)
    assert len(feed_server.requests_for("/a")) == 1


@feed_server_test(stopped=True)
async def test_scheduler_state_survives_restart(feed_server):
    feed_server.feed("/a", posts=5)
    async with feed_server.run_aggregator():
        await feed_server.subscribe("/a")
        await feed_server.poll(due=True)
        first = await feed_server.stored_feed("/a")
    async with feed_server.run_aggregator():
        assert await feed_server.stored_feed("/a") == first
        assert feed_server.scheduler.started
        assert not feed_server.scheduler.has_pending_feeds
        feed_server.clock.now = first.state.next_poll_at
        await feed_server.poll(due=True)
    assert [
        request.headers.get("If-None-Match") is not None
        for request in feed_server.requests_for("/a")
    ] == [False, True]


@feed_server_test(budget=Budget(4.0, True))
async def test_busy_feed_is_polled_more_often(feed_server):
    for path, every_s in (("/busy", DAY_S / 4), ("/silent", 100 * DAY_S)):
        feed_server.feed(path, window=30)
        feed_server.write(path, 30, every_s=every_s, at=feed_server.clock() - every_s)
    await feed_server.subscribe("/busy", "/silent")
    for _ in range(12):
        feed_server.write("/busy")
        await feed_server.run_for(hours=6)
    assert len(feed_server.requests_for("/busy")) > 2 * len(feed_server.requests_for("/silent"))


@feed_server_test()
async def test_policy_start_waits_for_poll_being_recorded(feed_server):
    """The policy starts while the first poll of a second feed is decided and not yet stored."""
    record, polled = feed_server.store.record, []

    async def slow_record(outcomes):
        polled.extend(outcomes)
        if len(polled) == 2:
            started = asyncio.create_task(
                feed_server.aggregator._add_pending_feeds(feed_server.clock())
            )
            for _ in range(50):
                await asyncio.sleep(0.001)
            result = await record(outcomes)
            polled.append(started)
            return result
        return await record(outcomes)

    feed_server.store.record = slow_record
    for path in ("/a", "/b"):
        feed_server.feed(path, posts=5)
        await feed_server.subscribe(path)
        feed = await feed_server.stored_feed(path)
        task = feed_server.aggregator._start_poll(
            await feed_server.aggregator.polls.lease_feed(feed.id), feed.state.reason
        )
        await task
    await polled[-1]
    assert not feed_server.scheduler.has_pending_feeds
    assert "new_feed" not in [
        (await feed_server.stored_feed(path)).state.reason.code for path in ("/a", "/b")
    ]


@feed_server_test(policy="min-delay", budget=Budget(6.0, True))
async def test_planned_policy_replans_in_service(feed_server):
    """A silent feed becomes busy: the plans of the next days give it more polls."""
    for i in range(4):
        feed_server.feed(f"/{i}", window=40)
        feed_server.write(f"/{i}", 5, every_s=DAY_S / 2)
    feed_server.feed("/changing", window=40)
    feed_server.write("/changing", 1, at=feed_server.clock() - 12 * DAY_S)
    await feed_server.subscribe("/changing", *(f"/{i}" for i in range(4)))
    await feed_server.run_for(hours=24)
    before = len(feed_server.requests_for("/changing"))
    for _ in range(3 * 24):
        feed_server.write("/changing")
        await feed_server.run_for(hours=1)
    last_day = [
        at for at in feed_server.request_times("/changing") if at > feed_server.clock() - DAY_S
    ]
    assert len(last_day) > 3 * max(before, 1)


@feed_server_test()
async def test_only_feeds_are_requested(feed_server):
    feed_server.feed("/a", posts=3).extra = f"<link>{feed_server.url('/home')}</link>"
    feed_server.write("/a", text="&lt;img src='/picture.png'&gt;")
    await feed_server.subscribe("/a")
    await feed_server.run_for(hours=24)
    assert {request.path for _, request in feed_server.requests} == {"/a"}
    assert {request.method for _, request in feed_server.requests} == {"GET"}


@feed_server_test()
async def test_manual_poll_is_conditional(feed_server):
    feed_server.feed("/a", posts=3)
    await feed_server.subscribe("/a")
    for _ in range(3):
        await feed_server.poll()
    assert [
        request.headers.get("If-None-Match") is not None
        for request in feed_server.requests_for("/a")
    ] == [False, True, True]


@pytest.mark.parametrize("as_public", [False, True])
@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_applies_to_manual_polls(tmp_path, status, form, as_public):
    @feed_server_test(fetch={"treat_private_as_public": as_public})
    async def run_test(feed_server):
        feed = feed_server.feed("/a", posts=3)
        feed.status = status
        feed.headers = {
            "Retry-After": "86400"
            if form == "seconds"
            else formatdate(feed_server.clock() + DAY_S, usegmt=True)
        }
        feed.headers["Date"] = formatdate(feed_server.clock(), usegmt=True)
        await feed_server.subscribe("/a")
        assert (await feed_server.poll()).failed == 1
        feed_server.clock.now += DAY_S / 2
        totals = await feed_server.poll()
        assert totals.skipped[0].reason == reason("publisher_wait", wait_s=DAY_S / 2)
        assert len(feed_server.requests_for("/a")) == 1
        feed.status = 200
        feed_server.clock.now += DAY_S / 2 + 1
        assert (await feed_server.poll()).new == 3

    run_test(tmp_path)


@feed_server_test()
async def test_freshness_and_ttl_apply_to_manual_polls(feed_server):
    feed_server.feed("/fresh", posts=3).headers = {"Cache-Control": "max-age=7200"}
    feed_server.feed("/ttl", posts=3).extra = "<ttl>120</ttl>"
    feed_server.feed("/closed", posts=3).extra = "<skipDays><day>Tuesday</day></skipDays>"
    await feed_server.subscribe("/fresh", "/ttl", "/closed")
    await feed_server.poll()
    feed_server.clock.now += HOUR_S
    assert len((await feed_server.poll()).skipped) == 2
    feed_server.clock.now += HOUR_S
    assert (await feed_server.poll()).poll_count == 3
    feed_server.clock.now = MONDAY + 1.5 * DAY_S
    assert [skipped.reason for skipped in (await feed_server.poll()).skipped] == [
        reason("skip_hours")
    ]


@feed_server_test()
async def test_skip_hours_apply_even_if_posts_appear(feed_server):
    """A post at an excluded hour does not change what the publisher has declared."""
    feed = feed_server.feed("/a", posts=3)
    feed.extra = (
        "<skipHours>" + "".join(f"<hour>{hour}</hour>" for hour in range(3)) + "</skipHours>"
    )
    await feed_server.subscribe("/a")
    assert (await feed_server.poll()).new == 3
    feed_server.clock.now += 60
    assert [skipped.reason for skipped in (await feed_server.poll()).skipped] == [
        reason("skip_hours")
    ]
    feed_server.clock.now = MONDAY + 3 * HOUR_S
    assert (await feed_server.poll()).poll_count == 1


@feed_server_test()
async def test_manual_poll_ignores_our_backoff(feed_server):
    feed_server.feed("/a", posts=3).status = 404
    await feed_server.subscribe("/a")
    assert (await feed_server.poll()).failed == 1
    feed_server.clock.now += 60
    assert (await feed_server.poll(due=True)).poll_count == 0
    assert (await feed_server.poll()).failed == 1


@feed_server_test()
async def test_410_stops_manual_polls_too(feed_server):
    feed_server.feed("/a", posts=3).status = 410
    (feed_id,) = await feed_server.subscribe("/a")
    await feed_server.poll()
    feed_server.clock.now += 100 * DAY_S
    polled = await feed_server.poll(feed_id)
    assert polled.poll_count == 0
    assert "removed the feed (410 Gone)" in render(polled.skipped[0].reason)
    assert len(feed_server.requests_for("/a")) == 1


@feed_server_test(stopped=True)
async def test_host_pause_survives_restart(feed_server):
    feed_server.feed("/a", posts=3)
    async with feed_server.run_aggregator():
        (feed_id,) = await feed_server.subscribe("/a")
        host = feed_server.url("")
        pause = Pause(host, feed_server.clock() + HOUR_S, "the server responded with status 429")
        await feed_server.store.record(
            [
                PollOutcome(
                    feed_id=feed_id, at=feed_server.clock(), host=host, status=429, pause=pause
                )
            ]
        )
    async with feed_server.run_aggregator():
        polled = await feed_server.poll()
        assert polled.skipped[0].reason.code == "host_paused"
        assert polled.skipped[0].reason.params["wait_s"] == HOUR_S
        assert feed_server.requests == []
        feed = await feed_server.stored_feed("/a")
        assert feed.state.next_poll_at >= feed_server.clock() + HOUR_S
        await feed_server.run_for(hours=1.2)
        assert len(feed_server.requests_for("/a")) == 1


@feed_server_test(budget=RICH)
async def test_permanent_redirect_is_adopted_and_reported(feed_server):
    moved = feed_server.feed("/old")
    moved.status, moved.headers = 301, {"Location": "/new"}
    feed_server.feed("/new", posts=3)
    (feed_id,) = await feed_server.subscribe("/old")
    await feed_server.poll()
    feed = await feed_server.store.feed(feed_id)
    assert any(
        "the server redirects permanently to" in problem
        for problem in (await explain(feed_server.store, feed, feed_server.clock())).problems
    )
    for _ in range(2):
        feed_server.clock.now += 0.6 * DAY_S
        await feed_server.poll()
    feed = await feed_server.store.feed(feed_id)
    assert feed.url == feed_server.url("/new")
    assert (feed.state.reason.code, feed.state.reason.params["url"]) == (
        "feed_moved",
        feed_server.url("/new"),
    )
    assert (await feed_server.store.feed(feed_server.url("/old"))).id == feed_id
    feed_server.clock.now += DAY_S
    await feed_server.poll()
    assert len(feed_server.requests_for("/old")) == 3


@feed_server_test()
async def test_temporary_redirect_is_reported_and_not_adopted(feed_server):
    moved = feed_server.feed("/old")
    moved.status, moved.headers = 302, {"Location": "/new"}
    feed_server.feed("/new", posts=3)
    (feed_id,) = await feed_server.subscribe("/old")
    for _ in range(4):
        await feed_server.poll()
        feed_server.clock.now += DAY_S
    feed = await feed_server.store.feed(feed_id)
    assert feed.url == feed_server.url("/old")
    assert any(
        "the server redirects temporarily" in problem
        for problem in (await explain(feed_server.store, feed, feed_server.clock())).problems
    )


@feed_server_test()
async def test_feeds_redirected_to_one_url_are_merged(feed_server):
    moved = feed_server.feed("/old")
    moved.status, moved.headers = 308, {"Location": "/new"}
    feed_server.feed("/new", posts=3)
    old, new = await feed_server.subscribe("/old", "/new")
    for _ in range(3):
        await feed_server.poll()
        feed_server.clock.now += 0.6 * DAY_S
    assert (await feed_server.store.feed(feed_server.url("/old"))).id == new
    assert (await feed_server.store.feed(old)).retired_at is not None
    assert [listed.feed.id for listed in await feed_server.store.feeds()] == [new]


@feed_server_test(budget=Budget(2.0, True))
async def test_permanent_304_is_detected(feed_server):
    feed = feed_server.feed("/a", window=10)
    feed.etag = '"always"'
    feed_server.write("/a", 10, every_s=DAY_S)
    await feed_server.subscribe("/a")
    await feed_server.run_for(hours=24)
    feed_server.write("/a", 3, every_s=60)
    await feed_server.run_for(hours=24 * 10)
    assert (await feed_server.store.status()).entries == 13
    assert (
        sum(
            request.headers.get("If-None-Match") is None
            for request in feed_server.requests_for("/a")
        )
        == 2
    )


@feed_server_test(budget=Budget(10.0, False))
async def test_budget_is_never_exceeded(feed_server):
    paths = [f"/{i}" for i in range(30)]
    for path in paths:
        feed_server.feed(path, posts=3)
    await feed_server.subscribe(*paths)
    await feed_server.run_for(hours=1)
    assert len(feed_server.requests) == 10
    waiting = [
        feed
        for path in paths
        if not feed_server.requests_for(path) and (feed := await feed_server.stored_feed(path))
    ]
    assert {render(feed.state.reason) for feed in waiting} == {
        "the request budget is used up for now; the feed is new and has not been checked before"
    }
    assert len({feed.state.next_poll_at for feed in waiting}) == 20
    await feed_server.run_for(hours=47)
    assert len(feed_server.requests) <= 30
    # The new feeds get the first tokens: none of the others is polled again before them.
    assert all(feed_server.requests_for(path) for path in paths)
