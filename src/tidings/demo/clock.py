"""A clock that runs faster than life and never runs away from the work.

It goes on by so many seconds for each second of real time, but stands still while anybody is busy, and never passes a moment at
which somebody wants to wake. What is done at a moment is therefore done exactly then, however long it really took, and a
machine that is too slow makes the clock slow, not the results wrong.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: How often the clock moves while there is nothing to do, and looks again while there is.
STEP_S = 0.02
BUSY_S = 0.0005
#: After work the clock makes up for the time that it stood still, up to this much of it; the rest is lost.
BEHIND_S = 1.0
#: Turns of the event loop in which whoever was woken begins to look busy.
TURNS = 10
#: Real time over which the clock's true speed is told.
TOLD_S = 2.0


class Clock:
    """Call it for the time; `sleep` until a time by it. It moves while `run` does."""

    def __init__(self, now: float, speed: float) -> None:
        self.speed = speed  #: seconds for each second of real time; may be changed at any time
        self.true_speed = speed  #: as it was of late
        self._now = now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()
        self._busy: list[Callable[[], bool]] = []
        self._held = 0

    def __call__(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> "asyncio.Future[None]":
        """Not a coroutine: whoever calls is in the line of sleepers at once, and the clock cannot overtake them."""
        until = self._now + max(seconds, 0.0)
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (until, next(self._number), woken))
        return woken

    def watch(self, busy: Callable[[], bool]) -> None:
        """The clock stands still while this says so."""
        self._busy.append(busy)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """The clock stands still within."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def run(self) -> None:
        """Move until cancelled."""
        owed, last = 0.0, time.monotonic()
        told_at, told_now = last, self._now
        while True:
            real = time.monotonic()
            owed = min(owed + self.speed * max(real - last, 1e-9), self.speed * BEHIND_S)
            last = real
            if real - told_at > TOLD_S:
                self.true_speed = (self._now - told_now) / (real - told_at)
                told_at, told_now = real, self._now
            if self._held or any(busy() for busy in self._busy):
                await asyncio.sleep(BUSY_S)
            elif (at := self._next()) is not None and at - self._now <= owed:
                owed -= at - self._now
                self._now = at
                self._wake()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
            else:
                if at is not None:  # with nobody to wake, an endless speed leads nowhere
                    self._now, owed = self._now + owed, 0.0
                await asyncio.sleep(
                    STEP_S if at is None else min(STEP_S, (at - self._now) / self.speed)
                )

    def _next(self) -> float | None:
        """When the next sleeper wants to wake."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self._now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)
