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
KEPT_S, KEPT = 6 * HOUR_S, 64
#: How far a replay stands back (nice).
NICE = 5


class Replays:
    """Asks the laboratory, and keeps its last answers."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[Hashable, Any] = {}
        self._one_at_a_time = asyncio.Lock()

    async def get(self, about: Hashable, question: Callable[[], Awaitable[tuple[Any, ...]]]) -> Any:
        """The answer to a question (a function of a module, and its arguments), which is asked if none is kept ``about`` it."""
        key = (about, self._clock() // KEPT_S)
        async with self._one_at_a_time:
            if key not in self._kept:
                answer = await answer_of(*await question())
                while len(self._kept) >= KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = answer
            return self._kept[key]


async def answer_of(*question: Any) -> Any:
    """What a function says to its arguments, asked where it does not slow down whoever serves."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", __name__, stdin=PIPE, stdout=PIPE)
    try:
        told, _said = await process.communicate(pickle.dumps(question))
    finally:
        await end(process, 0.0)
    answer = pickle.loads(told) if told else UsageError("the replay was ended by somebody")
    if isinstance(answer, TidingsError):
        raise answer
    return answer


def _answer() -> None:
    """What the process does: the question comes from its parent and from nobody else."""
    os.nice(NICE)
    work, *arguments = pickle.load(sys.stdin.buffer)
    try:
        told = work(*arguments)
    except TidingsError as error:
        told = error
    sys.stdout.buffer.write(pickle.dumps(told))


async def end(process: Process, patience_s: float) -> None:
    """Wait until it and its pipes are closed; who is too slow is killed.

    What is open when its loop is closed fails later, wherever memory happens to be tidied.
    """
    try:
        await asyncio.wait_for(process.communicate(), patience_s)
    except TimeoutError:
        with suppress(ProcessLookupError):  # it has just ended
            process.kill()
        await process.communicate()


if __name__ == "__main__":
    _answer()
