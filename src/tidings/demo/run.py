"""A demo from its beginning to its end, with its screen: what `tidings demo` does, and what a button can start."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from tidings.demo.demo import Demo, Plan
from tidings.demo.screen import make_app
from tidings.demo.services import open_demo
from tidings.lab.score import metrics
from tidings.service import address
from tidings.web.server import serving

#: The columns of what is told at the end.
TOLD = ("polls", "mean_delay_s", "median_delay_s", "p95_delay_s", "missed_share")


async def run_demo(
    plan: Plan, listening: socket.socket, stop: asyncio.Event, echo: Callable[[str], object]
) -> dict[str, dict[str, Any]]:
    """Show a demo at ``listening`` until its time is over, or ``stop``; returns the figures of each policy.

    If its time was over, they are followed by what the simulator says of the same world.
    """
    echo(f"making a world of {plan.publishers} publishers")
    async with open_demo(plan) as demo, serving(make_app(demo), listening):
        echo(f"the demo world is at {address(listening)}demo (Ctrl-C stops it)")
        over = asyncio.create_task(demo.until_the_end())
        await asyncio.wait(
            {over, asyncio.ensure_future(stop.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        found = {f"{name}, live": metrics(demo.score_polls(name)) for name in plan.policies}
        if over.done():
            found |= await asyncio.to_thread(_foretold, demo)
        over.cancel()
    return found


def _foretold(demo: Demo) -> dict[str, dict[str, Any]]:
    return {
        f"{name}, simulated": metrics(demo.foretell(name, demo.world.end))
        for name in demo.plan.policies
    }
