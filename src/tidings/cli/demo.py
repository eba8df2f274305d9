"""Command `tidings demo`: run tidings on simulated publishers."""

import os
from collections.abc import Callable
from typing import Any

import click

from tidings.cli.output import Duration, print_table
from tidings.i18n import _

STDIN_FD = 0


@click.command()
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    default=500.0,
    show_default=True,
    help=_("Speed of the simulated clock (1 = real time)."),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8035,
    show_default=True,
    help=_("Port (0 = any free port)."),
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help=_("Random seed."),
)
@click.option(
    "--publishers",
    type=click.IntRange(1, 5000),
    default=300,
    show_default=True,
    help=_("Number of simulated publishers."),
)
@click.option(
    "--for",
    "duration_s",
    type=Duration(),
    default="7d",
    show_default=True,
    help=_("Duration in simulated time: 12h, 7d, 2w."),
)
@click.option(
    "--until-closed",
    is_flag=True,
    hidden=True,
    help=_("End of the demo when stdin is closed, for parent processes."),
)
def demo(
    speed: float, port: int, seed: int, publishers: int, duration_s: float, until_closed: bool
) -> None:
    """Run a demo with simulated publishers.

    The demo simulates publishers on this computer. Two tidings services poll them with the same
    budget, but with different polling policies. A web page compares their delays. The demo leaves
    no files behind.

    \b
    Example:
      tidings demo
      tidings demo --speed 1000 --publishers 60 --for 2d
    """
    import asyncio

    from tidings import logs
    from tidings.demo.demo import Plan
    from tidings.demo.run import RESULT_COLUMNS, run_demo
    from tidings.formatting import duration, percent
    from tidings.model import DAY_S
    from tidings.service import listen, run_until_signal

    logs.configure_logging("error")
    plan = Plan(publishers, duration_s / DAY_S, speed, seed)

    async def run(stop: asyncio.Event) -> dict[str, dict[str, Any]]:
        loop = asyncio.get_running_loop()

        def stop_at_end_of_stdin() -> None:
            if not os.read(STDIN_FD, 100):
                loop.remove_reader(STDIN_FD)
                stop.set()

        if until_closed:
            loop.add_reader(STDIN_FD, stop_at_end_of_stdin)
        return await run_demo(plan, server_socket, stop, click.echo)

    with listen("127.0.0.1", port) as server_socket:
        results = run_until_signal(run)
    formats: tuple[Callable[[float], str], ...] = (
        lambda polls: f"{polls:,}",
        duration,
        duration,
        duration,
        percent,
    )
    rows = [
        [name, *(form(result[key]) for key, form in zip(RESULT_COLUMNS, formats, strict=True))]
        for name, result in results.items()
    ]
    print_table(
        ["", _("polls"), _("mean delay"), _("median delay"), _("95 % of posts"), _("missed")], rows
    )
