"""Crash recovery: kill -9 during a refresh neither loses nor duplicates entries."""

import asyncio
import multiprocessing
import random

import pytest

from tests.live.feed_server import feed_server_test
from tests.live.refresh_process import BUDGET, refresh
from tidings.config import Budget
from tidings.model import DAY_S

FEEDS = 40
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.live.refresh_process"])


async def kill_during_refresh(feed_server, rng):
    """Start a refresh and kill it after some requests; returns the exit code."""
    before, after = len(feed_server.requests), rng.randint(1, 12)
    process = PROCESSES.Process(target=refresh, args=(str(feed_server.path), feed_server.clock()))
    process.start()
    while len(feed_server.requests) - before < after and process.is_alive():
        await asyncio.sleep(0.001)
    await asyncio.sleep(rng.random() * 0.01)  # to kill it at a random moment
    process.kill()
    await asyncio.to_thread(process.join)
    return process.exitcode


async def survive(feed_server, kills):
    rng = random.Random(4)
    paths = [f"/{i}" for i in range(FEEDS)]
    for path in paths:
        feed_server.feed(path, posts=3, window=1000)
    async with feed_server.run_aggregator():
        ids = await feed_server.subscribe(*paths)
    started_at = feed_server.clock()
    rounds = killed = 0
    while killed < kills and rounds < 5 * kills:
        rounds += 1
        killed += await kill_during_refresh(feed_server, rng) == -9
        feed_server.clock.now += DAY_S
        for path in rng.sample(paths, 10):
            feed_server.write(path)
    assert killed == kills
    async with feed_server.run_aggregator(budget=Budget(BUDGET, False), serving=True):
        assert await feed_server.store.check() == []
        assert await feed_server.store.polls_since(started_at) <= BUDGET * (rounds + 1)
        assert feed_server.scheduler.bucket.available(feed_server.clock()) <= BUDGET
        assert (await feed_server.poll()).poll_count == FEEDS
        for feed_id, path in zip(ids, paths, strict=True):
            stored = await feed_server.store.entries(feed_id=feed_id, limit=1000)
            assert sorted(int(e.identity) for e in stored) == [
                number for number, _, _ in feed_server.feeds[path].posts
            ]
            assert sum(poll.new for poll in await feed_server.store.polls(feed_id, 1000)) == len(
                stored
            )
            assert (await feed_server.store.feed(feed_id)).state.next_poll_at > feed_server.clock()


@feed_server_test(stopped=True)
async def test_refresh_survives_ten_kills(feed_server):
    await survive(feed_server, 10)


@pytest.mark.slow
@feed_server_test(stopped=True, limit_s=300)
async def test_refresh_survives_fifty_kills(feed_server):
    await survive(feed_server, 50)
