"""The event loop that everything here runs on: uvloop where there is one, which takes a tenth less of a refresh."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(work)


def new() -> asyncio.AbstractEventLoop:
    """One more loop, for a thread that waits where it stands."""
    return (_factory() or asyncio.new_event_loop)()


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Windows has none
        return None
    return uvloop.new_event_loop
