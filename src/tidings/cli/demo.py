"""`tidings demo`: the whole of it at work in a small world of its own."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import click

from tidings.cli.output import Span, print_table

STDIN = 0


@click.command()
@click.option(
    "--speed",
    type=click.FloatRange(1, 1000),
    default=500.0,
    show_default=True,
    help="Times as fast as life.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8035,
    show_default=True,
    help="Port; 0 picks a free one.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Another seed is another world.",
)
@click.option(
    "--publishers",
    type=click.IntRange(1, 5000),
    default=300,
    show_default=True,
    help="How many blogs and papers.",
)
@click.option(
    "--for",
    "lasts_s",
    type=Span(),
    default="7d",
    show_default=True,
    help="In the world's own time: 12h, 7d, 2w.",
)
@click.option(
    "--until-closed",
    is_flag=True,
    hidden=True,
    help="End when there is nothing to read any more: for a service.",
)
def demo(
    speed: float, port: int, seed: int, publishers: int, lasts_s: float, until_closed: bool
) -> None:
    """Watch two policies spend the same budget on a miniature blogosphere.

    Everything is on this machine: publishers with habits of their own, and two whole services that differ in nothing but
    their policy. One screen shows how late each has the news. Nothing is left behind when it ends, or at Ctrl-C.

    \b
    Example:
      tidings demo
      tidings demo --speed 1000 --publishers 60 --for 2d
    """
    from tidings import logs
    from tidings.demo.demo import Plan
    from tidings.demo.run import TOLD, run_demo
    from tidings.formatting import duration, percent
    from tidings.model import DAY_S
    from tidings.service import listen, run_until_signal

    logs.configure_logging("error")
    plan = Plan(publishers, lasts_s / DAY_S, speed, seed)

    async def show(stop: asyncio.Event) -> dict[str, dict[str, Any]]:
        loop = asyncio.get_running_loop()

        def heard() -> None:
            if not os.read(STDIN, 100):
                loop.remove_reader(STDIN)
                stop.set()

        if until_closed:
            loop.add_reader(STDIN, heard)
        return await run_demo(plan, listening, stop, click.echo)

    with listen("127.0.0.1", port) as listening:
        found = run_until_signal(show)
    words: tuple[Callable[[float], str], ...] = (
        lambda polls: f"{polls:,}",
        duration,
        duration,
        duration,
        percent,
    )
    rows = [
        [name, *(word(told[key]) for key, word in zip(TOLD, words, strict=True))]
        for name, told in found.items()
    ]
    print_table(["", "looks", "mean delay", "half within", "95 % within", "missed"], rows)
