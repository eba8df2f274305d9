"""kill -9 at any moment of a refresh: nothing lost, nothing doubled, no feed stuck, the budget held."""

import asyncio
import multiprocessing
import random

import pytest

from tests.live.refresher import BUDGET, refresh
from tests.live.village import story
from tidings.config import Budget
from tidings.model import DAY_S

FEEDS = 40
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.live.refresher"])


async def killed_while_refreshing(village, rng):
    """Start a refresh and kill it after some requests; it may be quicker, and end by itself."""
    before, after = len(village.requests), rng.randint(1, 12)
    process = PROCESSES.Process(target=refresh, args=(str(village.path), village.clock()))
    process.start()
    while len(village.requests) - before < after and process.is_alive():
        await asyncio.sleep(0.001)
    await asyncio.sleep(rng.random() * 0.01)  # waits for nothing: it is the dice's way to hit any moment
    process.kill()
    await asyncio.to_thread(process.join)
    return process.exitcode


async def survive(village, kills):
    rng = random.Random(4)
    paths = [f"/{i}" for i in range(FEEDS)]
    for path in paths:
        village.feed(path, posts=3, window=1000)
    async with village.awake():
        ids = await village.subscribe(*paths)
    began = village.clock()
    rounds = killed = 0
    while killed < kills and rounds < 5 * kills:
        rounds += 1
        killed += await killed_while_refreshing(village, rng) == -9
        village.clock.now += DAY_S
        for path in rng.sample(paths, 10):
            village.write(path)
    assert killed == kills
    async with village.awake(budget=Budget(BUDGET, False), serving=True):
        assert await village.store.check() == []
        assert await village.store.polls_since(began) <= BUDGET * (rounds + 1)
        assert village.brain.bucket.available(village.clock()) <= BUDGET
        assert (await village.poll()).asked == FEEDS
        for feed_id, path in zip(ids, paths, strict=True):
            stored = await village.store.entries(feed_id=feed_id, limit=1000)
            assert sorted(int(e.identity) for e in stored) == [number for number, _, _ in village.feeds[path].posts]
            assert sum(poll.new for poll in await village.store.polls(feed_id, 1000)) == len(stored)
            assert (await village.store.feed(feed_id)).state.next_poll_at > village.clock()


@story(asleep=True)
async def test_killed_ten_times(village):
    await survive(village, 10)


@pytest.mark.slow
@story(asleep=True, limit_s=300)
async def test_killed_fifty_times(village):
    await survive(village, 50)
