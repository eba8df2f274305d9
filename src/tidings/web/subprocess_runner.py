"""Run simulations in a subprocess with low priority and cache their results.

A simulation takes seconds of one core. It runs when a page needs it, one at a time, so that it does
not block the event loop or slow down other requests.
"""

import asyncio
import os
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any

from tidings.errors import TidingsError, UsageError
from tidings.i18n import _
from tidings.model import HOUR_S

#: Lifetime of cached results in seconds, and their maximum number.
CACHE_TTL_S, MAX_CACHED_RESULTS = 6 * HOUR_S, 64
#: Niceness (Unix priority) of the subprocess.
NICE = 5


class SimulationCache:
    """Cache of simulation results, which runs one simulation at a time in a subprocess."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cache: dict[Hashable, Any] = {}
        self._lock = asyncio.Lock()

    async def get(self, cache_key: Hashable, job: Callable[[], Awaitable[tuple[Any, ...]]]) -> Any:
        """Return the cached result for ``cache_key``, or run the job and cache its result.

        ``job`` returns a module-level function and its arguments.
        """
        key = (cache_key, self._clock() // CACHE_TTL_S)
        async with self._lock:
            if key not in self._cache:
                result = await run_in_subprocess(*await job())
                while len(self._cache) >= MAX_CACHED_RESULTS:
                    self._cache.pop(next(iter(self._cache)))
                self._cache[key] = result
            return self._cache[key]


async def run_in_subprocess(*job: Any) -> Any:
    """Run a function in a subprocess and return its result, or raise its `TidingsError`.

    ``job`` is a module-level function and its arguments.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=PIPE, stdout=PIPE
    )
    try:
        output, _stderr = await process.communicate(pickle.dumps(job))
    finally:
        await terminate(process, 0.0)
    result = (
        pickle.loads(output) if output else UsageError(_("the simulation was stopped; try again"))
    )
    if isinstance(result, TidingsError):
        raise result
    return result


def _run_job() -> None:
    """Run the job that the parent process pickled to standard input, and pickle the result."""
    os.nice(NICE)
    function, *arguments = pickle.load(sys.stdin.buffer)
    try:
        result = function(*arguments)
    except TidingsError as error:
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))


async def terminate(process: Process, timeout_s: float) -> None:
    """Wait until a process has ended and its pipes are closed; kill it after ``timeout_s``.

    Pipes that are still open when the event loop closes raise errors later, at garbage collection.
    """
    try:
        await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it has ended in the meantime
            process.kill()
        await process.communicate()


if __name__ == "__main__":
    _run_job()
