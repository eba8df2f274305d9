"""fetch.treat_private_as_public: the whole aggregator is as polite to loopback hosts as to public ones."""

from email.utils import formatdate

import numpy as np
import pytest

from tests.live.village import story
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S

RICH = Budget(200.0, True)
PUBLIC = {"treat_private_as_public": True}


@story(budget=RICH, fetch=PUBLIC)
async def test_polls_of_one_host_are_spaced(village):
    paths = [f"/{n}" for n in range(6)]
    for path in paths:
        village.feed(path, posts=3)
    await village.subscribe(*paths)
    await village.live(seconds=60)
    assert {request.path for _, request in village.requests} == set(paths)
    assert np.diff([at for at, _ in village.requests]).min() >= village.fetcher.settings.host_spacing_s - 1e-6


@story(asleep=True)
async def test_the_next_process_keeps_the_spacing(village):
    village.feed("/a", posts=3)
    for _ in range(2):
        async with village.awake(fetch=PUBLIC):
            await village.subscribe("/a")
            await village.poll()
    first, second = village.asked_at("/a")
    assert second >= first + village.fetcher.settings.host_spacing_s


@story(budget=RICH)
async def test_polls_of_a_private_host_are_not_spaced_by_default(village):
    for path in ("/a", "/b", "/c"):
        village.feed(path, posts=3)
    await village.subscribe("/a", "/b", "/c")
    await village.poll()
    assert len({at for at, _ in village.requests}) == 1


@pytest.mark.parametrize(("retry_after", "pause_s"), [("1800", 1800.0), ("", 900.0)])
def test_a_429_pauses_the_whole_host_also_for_waiting_polls(tmp_path, retry_after, pause_s):
    @story(budget=RICH, fetch=PUBLIC)
    async def tell(village):
        limited = village.feed("/limited", posts=3)
        limited.status, limited.headers = 429, {"Retry-After": retry_after} if retry_after else {}
        for path in ("/a", "/b", "/c"):
            village.feed(path, posts=3)
        await village.subscribe("/limited", "/a", "/b", "/c")
        start = village.clock()
        polled = await village.poll()
        assert (polled.asked, polled.failed, len(polled.skipped)) == (1, 1, 3)
        assert {request.path for _, request in village.requests} == {"/limited"}
        for path in ("/a", "/b", "/c"):
            assert (await village.explained(path)).state.next_poll_at >= start + pause_s
        await village.live(seconds=pause_s - 1)
        assert len(village.requests) == 1
        limited.status = 200
        await village.live(hours=1)
        assert all(village.asked(path) for path in ("/a", "/b", "/c"))

    tell(tmp_path)


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_the_pause_outlives_the_process(tmp_path, status, form):
    @story(asleep=True)
    async def tell(village):
        limited = village.feed("/limited", posts=3)
        now = village.clock()
        limited.status = status
        limited.headers = {"Retry-After": "7200" if form == "seconds" else formatdate(now + 7200, usegmt=True)}
        limited.headers["Date"] = formatdate(now, usegmt=True)
        village.feed("/other", posts=3)
        async with village.awake(fetch=PUBLIC):
            (feed_id, _) = await village.subscribe("/limited", "/other")
            await village.poll(feed_id)
        village.clock.now += HOUR_S
        async with village.awake(fetch=PUBLIC):
            assert len((await village.poll()).skipped) == 2
            assert len(village.requests) == 1
        limited.status = 200
        village.clock.now += HOUR_S + 1
        async with village.awake(fetch=PUBLIC):
            assert (await village.poll()).asked == 2

    tell(tmp_path)


@pytest.mark.parametrize("status", [500, 0])
def test_failures_back_off_from_an_hour_to_a_day(tmp_path, status):
    @story(budget=RICH, fetch=PUBLIC)
    async def tell(village):
        feed = village.feed("/a", posts=3)
        feed.status = status
        if not status:  # an answer that is no feed
            feed.status, feed.document = 200, lambda: "<html><body>maintenance</body></html>"
        await village.subscribe("/a")
        await village.live(hours=100)
        waits_h = np.diff(village.asked_at("/a")) / HOUR_S
        doubling = np.array([1, 2, 4, 8, 16, 24, 24])[: len(waits_h)]
        assert len(waits_h) >= 6
        assert ((doubling <= waits_h) & (waits_h <= 1.11 * doubling)).all()

    tell(tmp_path)


@story(budget=RICH, fetch=PUBLIC)
async def test_a_move_on_loopback_is_adopted_after_three_sightings(village):
    moved = village.feed("/old")
    moved.status, moved.headers = 301, {"Location": "/new"}
    village.feed("/new", posts=3)
    (feed_id,) = await village.subscribe("/old")
    for sighting in range(3):
        assert (await village.store.feed(feed_id)).url == village.url("/old"), sighting
        await village.poll()
        village.clock.now += DAY_S
    assert (await village.store.feed(feed_id)).url == village.url("/new")
