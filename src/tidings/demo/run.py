"""Run a demo with its dashboard, as `tidings demo` does."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from tidings.demo.dashboard import make_app
from tidings.demo.demo import Demo, Plan
from tidings.demo.services import open_demo
from tidings.i18n import _
from tidings.lab.score import metrics
from tidings.service import address
from tidings.web.server import serve_app

#: Metrics in the result table of `tidings demo`.
RESULT_COLUMNS = ("polls", "mean_delay_s", "median_delay_s", "p95_delay_s", "missed_share")


async def run_demo(
    plan: Plan, server_socket: socket.socket, stop: asyncio.Event, echo: Callable[[str], object]
) -> dict[str, dict[str, Any]]:
    """Run a demo until its end or until ``stop`` is set, and return the metrics of each policy.

    If the demo has run to its end, the result also has the metrics of the lab's simulator for the
    same posts.

    Args:
        plan: settings of the demo.
        server_socket: listening socket of the dashboard.
        stop: event that stops the demo.
        echo: function that prints a line, for example the URL of the dashboard.
    """
    echo(_("starting %(number)s simulated publishers", number=plan.publishers))
    async with open_demo(plan) as demo, serve_app(make_app(demo), server_socket):
        echo(
            _(
                "the demo is running at %(url)s (press Ctrl-C to stop)",
                url=f"{address(server_socket)}demo",
            )
        )
        over = asyncio.create_task(demo.wait_until_end())
        await asyncio.wait(
            {over, asyncio.ensure_future(stop.wait())}, return_when=asyncio.FIRST_COMPLETED
        )
        results = {
            _("%(policy)s, live", policy=name): metrics(demo.score_polls(name))
            for name in plan.policies
        }
        if over.done():
            results |= await asyncio.to_thread(_simulated_metrics, demo)
        over.cancel()
    return results


def _simulated_metrics(demo: Demo) -> dict[str, dict[str, Any]]:
    return {
        _("%(policy)s, simulated", policy=name): metrics(
            demo.simulate_policy(name, demo.publishers.end)
        )
        for name in demo.plan.policies
    }
