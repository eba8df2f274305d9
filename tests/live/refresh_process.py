"""A refresh in a separate process, for tests that kill it; it ends when no feed is due."""

import asyncio
from pathlib import Path

from tests.live.feed_server import Clock, FeedServer
from tidings.config import Budget

BUDGET = 20.0


def refresh(path: str, now: float) -> None:
    asyncio.run(_refresh(FeedServer(Clock(now), Path(path))))


async def _refresh(feed_server: FeedServer) -> None:
    async with feed_server.run_aggregator(budget=Budget(BUDGET, False), serving=True):
        await feed_server.run_for()
