"""What publishers may expect of the whole aggregator, by the clock and by hand; rows of docs/politeness.md."""

import asyncio
from email.utils import formatdate

import numpy as np
import pytest

from tests.live.village import story
from tests.worlds import MONDAY
from tidings.aggregator.explain import explain
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.policy.constraints import Limits
from tidings.reasons import reason, render
from tidings.store import timing
from tidings.store.rows import Pause, PollOutcome

RICH = Budget(200.0, True)


@story(budget=RICH)
async def test_the_minimum_interval_follows_the_evidence(village):
    """A quarter of an hour where 304 is answered, an hour where the document comes every time."""
    for path, conditional in (("/a", True), ("/full", False)):
        village.feed(path, posts=10).posts[:] = [(i, MONDAY - 9000 + 900 * i, "") for i in range(10)]
        village.feeds[path].window = 50
        village.feeds[path].conditional = conditional
    await village.subscribe("/a", "/full")
    await village.live(hours=12)
    conditional, full = (np.diff(village.asked_at(path)) for path in ("/a", "/full"))
    assert 900 <= conditional.min() < 1200
    assert HOUR_S <= full.min() < 1.3 * HOUR_S
    assert len(conditional) > 2 * len(full) > 10


@story(budget=RICH, limits=Limits(min_interval_s=HOUR_S))
async def test_the_operator_may_set_another_minimum_interval(village):
    village.feed("/a", posts=10).posts[:] = [(i, MONDAY - 9000 + 900 * i, "") for i in range(10)]
    village.feeds["/a"].window = 50
    await village.subscribe("/a")
    await village.live(hours=12)
    assert HOUR_S <= np.diff(village.asked_at("/a")).min() < 1.3 * HOUR_S


@story(budget=RICH, bytes_per_day=200_000)
async def test_the_budget_of_bytes_is_kept_too(village):
    for path in ("/a", "/b"):
        village.feed(path, posts=20, window=20).conditional = False
    await village.subscribe("/a", "/b")
    await village.live(hours=72)
    days = await village.store.read(timing.week, village.clock())
    sizes = [day.bytes for day in days.days[-2:]]
    assert all(100_000 < size <= 210_000 for size in sizes)
    assert village.brain.budget_per_day < 200


@story(budget=RICH, policy="fixed:interval_h=0.05")
async def test_a_server_whose_validators_do_not_work_is_found_out(village):
    feed = village.feed("/a", posts=3)
    feed.conditional, feed.headers = False, {"ETag": '"never the same"'}
    await village.subscribe("/a")
    await village.live(hours=6)
    gaps = np.diff(village.asked_at("/a"))
    assert gaps[0] < 1200
    assert gaps[-1] >= HOUR_S
    assert (await village.explained("/a")).state.not_modified < 0.5


@story(budget=RICH, policy="fixed:interval_h=0.05")
async def test_a_feed_that_says_a_shorter_time_or_would_overflow_is_asked_sooner(village):
    village.feed("/ttl", posts=3).extra = "<ttl>10</ttl>"
    village.feed("/fast", window=10)
    village.write("/fast", 10, every_s=120)
    await village.subscribe("/ttl", "/fast")
    await village.live(hours=3)
    assert 600 <= np.diff(village.asked_at("/ttl")).min() < 900
    assert 600 <= np.diff(village.asked_at("/fast")).min() < 900


@story()
async def test_no_immediate_second_poll(village):
    village.feed("/a", posts=3)
    await village.subscribe("/a")
    await village.poll(due=True)
    await village.poll(due=True)
    assert len(village.asked("/a")) == 1


@story(asleep=True)
async def test_what_was_learned_outlives_the_process(village):
    village.feed("/a", posts=5)
    async with village.awake():
        await village.subscribe("/a")
        await village.poll(due=True)
        first = await village.explained("/a")
    async with village.awake():
        assert await village.explained("/a") == first
        assert village.brain.started
        assert not village.brain.unsettled
        village.clock.now = first.state.next_poll_at
        await village.poll(due=True)
    assert [request.headers.get("If-None-Match") is not None for request in village.asked("/a")] == [False, True]


@story(budget=Budget(4.0, True))
async def test_the_rhythm_of_a_feed_is_followed(village):
    for path, every_s in (("/busy", DAY_S / 4), ("/silent", 100 * DAY_S)):
        village.feed(path, window=30)
        village.write(path, 30, every_s=every_s, at=village.clock() - every_s)
    await village.subscribe("/busy", "/silent")
    for _ in range(12):
        village.write("/busy")
        await village.live(hours=6)
    assert len(village.asked("/busy")) > 2 * len(village.asked("/silent"))


@story()
async def test_a_poll_that_is_being_recorded_is_not_forgotten_by_the_policy(village):
    """The policy starts while the first poll of a second feed is decided and not yet stored."""
    record, polled = village.store.record, []

    async def slow_record(outcomes):
        polled.extend(outcomes)
        if len(polled) == 2:
            started = asyncio.create_task(village.aggregator._settle(village.clock()))
            for _ in range(50):
                await asyncio.sleep(0.001)
            result = await record(outcomes)
            polled.append(started)
            return result
        return await record(outcomes)

    village.store.record = slow_record
    for path in ("/a", "/b"):
        village.feed(path, posts=5)
        await village.subscribe(path)
        feed = await village.explained(path)
        task = village.aggregator._begin(await village.aggregator.polls.hold(feed.id), feed.state.reason)
        await task
    await polled[-1]
    assert not village.brain.unsettled
    assert "new_feed" not in [(await village.explained(path)).state.reason.code for path in ("/a", "/b")]


@story(policy="min-delay", budget=Budget(6.0, True))
async def test_a_planned_policy_learns_again_in_the_service(village):
    """A feed that was silent becomes busy: the plan of the next days gives it more of the polls."""
    for i in range(4):
        village.feed(f"/{i}", window=40)
        village.write(f"/{i}", 5, every_s=DAY_S / 2)
    village.feed("/turns", window=40)
    village.write("/turns", 1, at=village.clock() - 12 * DAY_S)
    await village.subscribe("/turns", *(f"/{i}" for i in range(4)))
    await village.live(hours=24)
    before = len(village.asked("/turns"))
    for _ in range(3 * 24):
        village.write("/turns")
        await village.live(hours=1)
    last_day = [at for at in village.asked_at("/turns") if at > village.clock() - DAY_S]
    assert len(last_day) > 3 * max(before, 1)


@story()
async def test_only_feeds_are_asked(village):
    village.feed("/a", posts=3).extra = f"<link>{village.url('/home')}</link>"
    village.write("/a", text="&lt;img src='/picture.png'&gt;")
    await village.subscribe("/a")
    await village.live(hours=24)
    assert {request.path for _, request in village.requests} == {"/a"}
    assert {request.method for _, request in village.requests} == {"GET"}


@story()
async def test_polling_by_hand_is_conditional_too(village):
    village.feed("/a", posts=3)
    await village.subscribe("/a")
    for _ in range(3):
        await village.poll()
    assert [request.headers.get("If-None-Match") is not None for request in village.asked("/a")] == [False, True, True]


@pytest.mark.parametrize("as_public", [False, True])
@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_holds_also_by_hand(tmp_path, status, form, as_public):
    @story(fetch={"treat_private_as_public": as_public})
    async def tell(village):
        feed = village.feed("/a", posts=3)
        feed.status = status
        feed.headers = {"Retry-After": "86400" if form == "seconds" else formatdate(village.clock() + DAY_S, usegmt=True)}
        feed.headers["Date"] = formatdate(village.clock(), usegmt=True)
        await village.subscribe("/a")
        assert (await village.poll()).failed == 1
        village.clock.now += DAY_S / 2
        again = await village.poll()
        assert again.skipped[0].reason == reason("publisher_wait", wait_s=DAY_S / 2)
        assert len(village.asked("/a")) == 1
        feed.status = 200
        village.clock.now += DAY_S / 2 + 1
        assert (await village.poll()).new == 3

    tell(tmp_path)


@story()
async def test_freshness_and_ttl_hold_also_by_hand(village):
    village.feed("/fresh", posts=3).headers = {"Cache-Control": "max-age=7200"}
    village.feed("/ttl", posts=3).extra = "<ttl>120</ttl>"
    village.feed("/closed", posts=3).extra = "<skipDays><day>Tuesday</day></skipDays>"
    await village.subscribe("/fresh", "/ttl", "/closed")
    await village.poll()
    village.clock.now += HOUR_S
    assert len((await village.poll()).skipped) == 2
    village.clock.now += HOUR_S
    assert (await village.poll()).asked == 3
    village.clock.now = MONDAY + 1.5 * DAY_S
    assert [skipped.reason for skipped in (await village.poll()).skipped] == [reason("skip_hours")]


@story()
async def test_skip_hours_in_which_posts_appear_hold_all_the_same(village):
    """The publisher has said it; that a post came at such an hour does not unsay it."""
    feed = village.feed("/a", posts=3)
    feed.extra = "<skipHours>" + "".join(f"<hour>{hour}</hour>" for hour in range(3)) + "</skipHours>"
    await village.subscribe("/a")
    assert (await village.poll()).new == 3
    village.clock.now += 60
    assert [skipped.reason for skipped in (await village.poll()).skipped] == [reason("skip_hours")]
    village.clock.now = MONDAY + 3 * HOUR_S
    assert (await village.poll()).asked == 1


@story()
async def test_our_own_patience_gives_way_by_hand(village):
    village.feed("/a", posts=3).status = 404
    await village.subscribe("/a")
    assert (await village.poll()).failed == 1
    village.clock.now += 60
    assert (await village.poll(due=True)).asked == 0
    assert (await village.poll()).failed == 1


@story()
async def test_410_ends_the_asking_also_by_hand(village):
    village.feed("/a", posts=3).status = 410
    (feed_id,) = await village.subscribe("/a")
    await village.poll()
    village.clock.now += 100 * DAY_S
    polled = await village.poll(feed_id)
    assert polled.asked == 0
    assert "gone for good (410)" in render(polled.skipped[0].reason)
    assert len(village.asked("/a")) == 1


@story(asleep=True)
async def test_a_paused_host_is_left_alone_by_the_next_process_too(village):
    village.feed("/a", posts=3)
    async with village.awake():
        (feed_id,) = await village.subscribe("/a")
        host = village.url("")
        pause = Pause(host, village.clock() + HOUR_S, "the server answered 429")
        await village.store.record([PollOutcome(feed_id=feed_id, at=village.clock(), host=host, status=429, pause=pause)])
    async with village.awake():
        polled = await village.poll()
        assert polled.skipped[0].reason.code == "host_paused"
        assert polled.skipped[0].reason.params["wait_s"] == HOUR_S
        assert village.requests == []
        feed = await village.explained("/a")
        assert feed.state.next_poll_at >= village.clock() + HOUR_S
        await village.live(hours=1.2)
        assert len(village.asked("/a")) == 1


@story(budget=RICH)
async def test_a_move_for_good_is_adopted_and_told(village):
    moved = village.feed("/old")
    moved.status, moved.headers = 301, {"Location": "/new"}
    village.feed("/new", posts=3)
    (feed_id,) = await village.subscribe("/old")
    await village.poll()
    feed = await village.store.feed(feed_id)
    assert any("has moved to" in words for words in (await explain(village.store, feed, village.clock())).troubles)
    for _ in range(2):
        village.clock.now += 0.6 * DAY_S
        await village.poll()
    feed = await village.store.feed(feed_id)
    assert feed.url == village.url("/new")
    assert (feed.state.reason.code, feed.state.reason.params["url"]) == ("feed_moved", village.url("/new"))
    assert (await village.store.feed(village.url("/old"))).id == feed_id
    village.clock.now += DAY_S
    await village.poll()
    assert len(village.asked("/old")) == 3


@story()
async def test_a_passing_move_is_told_and_not_adopted(village):
    moved = village.feed("/old")
    moved.status, moved.headers = 302, {"Location": "/new"}
    village.feed("/new", posts=3)
    (feed_id,) = await village.subscribe("/old")
    for _ in range(4):
        await village.poll()
        village.clock.now += DAY_S
    feed = await village.store.feed(feed_id)
    assert feed.url == village.url("/old")
    assert any("for the time being" in words for words in (await explain(village.store, feed, village.clock())).troubles)


@story()
async def test_feeds_that_move_to_one_address_become_one(village):
    moved = village.feed("/old")
    moved.status, moved.headers = 308, {"Location": "/new"}
    village.feed("/new", posts=3)
    old, new = await village.subscribe("/old", "/new")
    for _ in range(3):
        await village.poll()
        village.clock.now += 0.6 * DAY_S
    assert (await village.store.feed(village.url("/old"))).id == new
    assert (await village.store.feed(old)).retired_at is not None
    assert [listed.feed.id for listed in await village.store.feeds()] == [new]


@story(budget=Budget(2.0, True))
async def test_a_server_that_says_304_for_ever_is_found_out(village):
    feed = village.feed("/a", window=10)
    feed.etag = '"always"'
    village.write("/a", 10, every_s=DAY_S)
    await village.subscribe("/a")
    await village.live(hours=24)
    village.write("/a", 3, every_s=60)
    await village.live(hours=24 * 10)
    assert (await village.store.status()).entries == 13
    assert sum(request.headers.get("If-None-Match") is None for request in village.asked("/a")) == 2


@story(budget=Budget(10.0, False))
async def test_the_budget_is_never_overrun(village):
    paths = [f"/{i}" for i in range(30)]
    for path in paths:
        village.feed(path, posts=3)
    await village.subscribe(*paths)
    await village.live(hours=1)
    assert len(village.requests) == 10
    waiting = [feed for path in paths if not village.asked(path) and (feed := await village.explained(path))]
    assert {render(feed.state.reason) for feed in waiting} == {
        "the request budget is used up for now; new feed, not checked before"
    }
    assert len({feed.state.next_poll_at for feed in waiting}) == 20
    await village.live(hours=47)
    assert len(village.requests) <= 30
    assert (await village.store.status()).entries > 60  # it goes on, as fast as it may
