"""Processes that pages start: the demo world, and the laboratory's answers.

Such an answer takes a core for seconds. It is made when somebody asks, one at a time whoever asks, in a process that lets
others go first, and kept for hours.
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
from tidings.model import HOUR_S

#: How long answers are kept, and how many of them.
CACHE_TTL_S, MAX_CACHED_RESULTS = 6 * HOUR_S, 64
#: How far a replay stands back (nice).
NICE = 5


class SimulationCache:
    """Asks the laboratory, and keeps its last answers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._cache: dict[Hashable, Any] = {}
        self._lock = asyncio.Lock()

    async def get(self, about: Hashable, job: Callable[[], Awaitable[tuple[Any, ...]]]) -> Any:
        """The answer to a question (a function of a module, and its arguments), which is asked if none is kept ``about`` it."""
        key = (about, self._clock() // CACHE_TTL_S)
        async with self._lock:
            if key not in self._cache:
                answer = await run_in_subprocess(*await job())
                while len(self._cache) >= MAX_CACHED_RESULTS:
                    self._cache.pop(next(iter(self._cache)))
                self._cache[key] = answer
            return self._cache[key]


async def run_in_subprocess(*job: Any) -> Any:
    """What a function says to its arguments, asked where it does not slow down whoever serves."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdin=PIPE, stdout=PIPE
    )
    try:
        result, _said = await process.communicate(pickle.dumps(job))
    finally:
        await terminate(process, 0.0)
    answer = pickle.loads(result) if result else UsageError("the replay was ended by somebody")
    if isinstance(answer, TidingsError):
        raise answer
    return answer


def _run_job() -> None:
    """What the process does: the question comes from its parent and from nobody else."""
    os.nice(NICE)
    work, *arguments = pickle.load(sys.stdin.buffer)
    try:
        result = work(*arguments)
    except TidingsError as error:
        result = error
    sys.stdout.buffer.write(pickle.dumps(result))


async def terminate(process: Process, timeout_s: float) -> None:
    """Wait until it and its pipes are closed; who is too slow is killed.

    What is open when its loop is closed fails later, wherever memory happens to be tidied.
    """
    try:
        await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it has just ended
            process.kill()
        await process.communicate()


if __name__ == "__main__":
    _run_job()
