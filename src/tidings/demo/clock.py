"""Virtual clock that runs faster than real time and stops while there is work to do.

The clock advances at a configurable speed, but stops while any part is busy, and never passes the
wake-up time of a sleeping task. Work therefore takes no virtual time, and a slow computer slows
down the clock instead of changing the results.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Real seconds between two steps of the clock while all parts are idle.
STEP_S = 0.02
#: Real seconds between two checks while a part is busy.
BUSY_CHECK_S = 0.0005
#: Maximum real seconds of a pause that the clock catches up with.
MAX_BACKLOG_S = 1.0
#: Event loop iterations that a woken task gets to become busy.
WAKE_LOOP_TURNS = 10
#: Real seconds over which the true speed is measured.
SPEED_WINDOW_S = 2.0


class Clock:
    """Virtual clock, which advances while `run` runs.

    Call the object to get the time in epoch seconds, and await `sleep` to wait in virtual time.
    """

    def __init__(self, now: float, speed: float) -> None:
        self.speed = speed  #: virtual seconds per real second; can be changed at any time
        self.true_speed = speed  #: speed measured over the last `SPEED_WINDOW_S` seconds
        self._now = now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._number = itertools.count()
        self._busy: list[Callable[[], bool]] = []
        self._held = 0

    def __call__(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> "asyncio.Future[None]":
        """Return a future that completes after ``seconds`` of virtual time.

        This is not a coroutine, so the wake-up time is registered at the call, before the clock can
        pass it.
        """
        until = self._now + max(seconds, 0.0)
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (until, next(self._number), woken))
        return woken

    def add_busy_check(self, busy: Callable[[], bool]) -> None:
        """Register a function that stops the clock while it returns true."""
        self._busy.append(busy)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Stop the clock inside the ``with`` block."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1

    async def run(self) -> None:
        """Advance the clock until the task is canceled."""
        backlog_s, last = 0.0, time.monotonic()  # virtual time to catch up
        measured_at, measured_now = last, self._now
        while True:
            real = time.monotonic()
            elapsed_s = self.speed * max(real - last, 1e-9)
            backlog_s = min(backlog_s + elapsed_s, self.speed * MAX_BACKLOG_S)
            last = real
            if real - measured_at > SPEED_WINDOW_S:
                self.true_speed = (self._now - measured_now) / (real - measured_at)
                measured_at, measured_now = real, self._now
            if self._held or any(busy() for busy in self._busy):
                await asyncio.sleep(BUSY_CHECK_S)
            elif (at := self._next_wake_up()) is not None and at - self._now <= backlog_s:
                backlog_s -= at - self._now
                self._now = at
                self._wake()
                for _ in range(WAKE_LOOP_TURNS):
                    await asyncio.sleep(0)
            else:
                # Without a sleeping task the clock stands still: the speed may be infinite.
                if at is not None:
                    self._now, backlog_s = self._now + backlog_s, 0.0
                await asyncio.sleep(
                    STEP_S if at is None else min(STEP_S, (at - self._now) / self.speed)
                )

    def _next_wake_up(self) -> float | None:
        """Return the earliest wake-up time of a sleeping task, or None if no task sleeps."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self._now:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)
