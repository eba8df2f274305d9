"""fetch.treat_private_as_public: politeness rules apply to loopback hosts too."""

from email.utils import formatdate

import numpy as np
import pytest

from tests.live.feed_server import feed_server_test
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S

RICH = Budget(200.0, True)
PUBLIC = {"treat_private_as_public": True}


@feed_server_test(budget=RICH, fetch=PUBLIC)
async def test_polls_of_one_host_are_spaced(feed_server):
    paths = [f"/{n}" for n in range(6)]
    for path in paths:
        feed_server.feed(path, posts=3)
    await feed_server.subscribe(*paths)
    await feed_server.run_for(seconds=60)
    assert {request.path for _, request in feed_server.requests} == set(paths)
    assert (
        np.diff([at for at, _ in feed_server.requests]).min()
        >= feed_server.fetcher.settings.host_spacing_s - 1e-6
    )


@feed_server_test(stopped=True)
async def test_host_spacing_survives_restart(feed_server):
    feed_server.feed("/a", posts=3)
    for _ in range(2):
        async with feed_server.run_aggregator(fetch=PUBLIC):
            await feed_server.subscribe("/a")
            await feed_server.poll()
    first, second = feed_server.request_times("/a")
    assert second >= first + feed_server.fetcher.settings.host_spacing_s


@feed_server_test(budget=RICH)
async def test_polls_of_a_private_host_are_not_spaced_by_default(feed_server):
    for path in ("/a", "/b", "/c"):
        feed_server.feed(path, posts=3)
    await feed_server.subscribe("/a", "/b", "/c")
    await feed_server.poll()
    assert len({at for at, _ in feed_server.requests}) == 1


@pytest.mark.parametrize(("retry_after", "pause_s"), [("1800", 1800.0), ("", 900.0)])
def test_429_pauses_host_for_waiting_polls(tmp_path, retry_after, pause_s):
    @feed_server_test(budget=RICH, fetch=PUBLIC)
    async def run_test(feed_server):
        limited = feed_server.feed("/limited", posts=3)
        limited.status, limited.headers = 429, {"Retry-After": retry_after} if retry_after else {}
        for path in ("/a", "/b", "/c"):
            feed_server.feed(path, posts=3)
        await feed_server.subscribe("/limited", "/a", "/b", "/c")
        start = feed_server.clock()
        polled = await feed_server.poll()
        assert (polled.poll_count, polled.failed, len(polled.skipped)) == (1, 1, 3)
        assert {request.path for _, request in feed_server.requests} == {"/limited"}
        for path in ("/a", "/b", "/c"):
            assert (await feed_server.stored_feed(path)).state.next_poll_at >= start + pause_s
        await feed_server.run_for(seconds=pause_s - 1)
        assert len(feed_server.requests) == 1
        limited.status = 200
        await feed_server.run_for(hours=1)
        assert all(feed_server.requests_for(path) for path in ("/a", "/b", "/c"))

    run_test(tmp_path)


@pytest.mark.parametrize("form", ["seconds", "date"])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_pause_survives_restart(tmp_path, status, form):
    @feed_server_test(stopped=True)
    async def run_test(feed_server):
        limited = feed_server.feed("/limited", posts=3)
        now = feed_server.clock()
        limited.status = status
        limited.headers = {
            "Retry-After": "7200" if form == "seconds" else formatdate(now + 7200, usegmt=True)
        }
        limited.headers["Date"] = formatdate(now, usegmt=True)
        feed_server.feed("/other", posts=3)
        async with feed_server.run_aggregator(fetch=PUBLIC):
            (feed_id, _) = await feed_server.subscribe("/limited", "/other")
            await feed_server.poll(feed_id)
        feed_server.clock.now += HOUR_S
        async with feed_server.run_aggregator(fetch=PUBLIC):
            assert len((await feed_server.poll()).skipped) == 2
            assert len(feed_server.requests) == 1
        limited.status = 200
        feed_server.clock.now += HOUR_S + 1
        async with feed_server.run_aggregator(fetch=PUBLIC):
            assert (await feed_server.poll()).poll_count == 2

    run_test(tmp_path)


@pytest.mark.parametrize("status", [500, 0])
def test_backoff_grows_from_one_hour_to_one_day(tmp_path, status):
    @feed_server_test(budget=RICH, fetch=PUBLIC)
    async def run_test(feed_server):
        feed = feed_server.feed("/a", posts=3)
        feed.status = status
        if not status:  # a response that is not a feed
            feed.status, feed.document = 200, lambda: "<html><body>maintenance</body></html>"
        await feed_server.subscribe("/a")
        await feed_server.run_for(hours=100)
        waits_h = np.diff(feed_server.request_times("/a")) / HOUR_S
        doubling = np.array([1, 2, 4, 8, 16, 24, 24])[: len(waits_h)]
        assert len(waits_h) >= 6
        assert ((doubling <= waits_h) & (waits_h <= 1.11 * doubling)).all()

    run_test(tmp_path)


@feed_server_test(budget=RICH, fetch=PUBLIC)
async def test_loopback_redirect_is_adopted_after_three_responses(feed_server):
    moved = feed_server.feed("/old")
    moved.status, moved.headers = 301, {"Location": "/new"}
    feed_server.feed("/new", posts=3)
    (feed_id,) = await feed_server.subscribe("/old")
    for response in range(3):
        assert (await feed_server.store.feed(feed_id)).url == feed_server.url("/old"), response
        await feed_server.poll()
        feed_server.clock.now += DAY_S
    assert (await feed_server.store.feed(feed_id)).url == feed_server.url("/new")
