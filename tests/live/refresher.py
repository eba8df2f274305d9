"""A refresh in a process of its own, to be killed; it ends by itself when nothing is left to do."""

import asyncio
from pathlib import Path

from tests.live.village import Clock, Village
from tidings.config import Budget

BUDGET = 20.0


def refresh(path: str, now: float) -> None:
    asyncio.run(_refresh(Village(Clock(now), Path(path))))


async def _refresh(village: Village) -> None:
    async with village.awake(budget=Budget(BUDGET, False), serving=True):
        await village.live()
