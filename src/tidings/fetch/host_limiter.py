"""Hosts are left in peace, whatever their feeds are due for: one request at a time, a pause between two, and silence when told.

All of it is first come, first served, by the clock that is handed in: nothing is random.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakValueDictionary

#: Names that many sites share a machine under; a 429 there is about one of the sources that it stands for, so the feed waits
#: and its neighbours need not. The last label pairs are compared.
FEED_BRIDGES = frozenset(
    {
        "rss-bridge.org",
        "rsshub.app",
        "openrss.org",
        "feedburner.com",
        "kill-the-newsletter.com",
        "fetchrss.com",
        "politepaul.com",
        "morss.it",
        "rss.app",
    }
)
#: Without a Retry-After the whole host rests this long; the feed that was turned away rests longer (see `outcomes`).
DEFAULT_PAUSE_S = 900.0
#: Hosts behind one address, together: a shared machine or a small provider sees no more than this from us at once.
MAX_CONCURRENT_PER_ADDRESS = 4
#: Lanes that nobody uses are swept out when there are more than this, and then whenever they have doubled.
SWEEP_THRESHOLD = 4096


def is_bridge(host: str, path_and_query: str = "") -> bool:
    """Whether the host passes on what others publish. `bridge=` is how every RSS-Bridge, on whatever host, is asked."""
    return ".".join(host.split(".")[-2:]) in FEED_BRIDGES or "bridge=" in path_and_query


class _HostState:
    __slots__ = ("lock", "next_at", "paused_until", "waiting_count")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.next_at = 0.0
        self.paused_until = 0.0
        self.waiting_count = 0


class HostLimiter:
    """Every request passes here. A host is scheme, name and port."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        spacing_s: float = 1.0,
        concurrency: int = 100,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._clock, self._sleep, self._spacing_s = clock, sleep, spacing_s
        self._slots = asyncio.Semaphore(concurrency)
        self._states: dict[str, _HostState] = {}
        self._sweep_threshold = SWEEP_THRESHOLD
        self._addresses: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def pause(self, host: str, until: float) -> None:
        """Nobody asks `host` before `until`; a shorter pause does not end a longer one."""
        state = self._state(host)
        state.paused_until = max(state.paused_until, until)

    def record_request(self, host: str, at: float) -> None:
        """Space the next request to `host` from one that another process sent at `at`."""
        state = self._state(host)
        state.next_at = max(state.next_at, min(at, self._clock()) + self._spacing_s)

    def paused_until(self, host: str) -> float | None:
        """When the host may be asked again; None if now."""
        state = self._states.get(host)
        return (
            state.paused_until if state is not None and state.paused_until > self._clock() else None
        )

    def pauses(self) -> dict[str, float]:
        """All pauses that still hold, to be kept over a restart."""
        now = self._clock()
        return {
            host: state.paused_until
            for host, state in self._states.items()
            if state.paused_until > now
        }

    @asynccontextmanager
    async def acquire(
        self, host: str, *, address: str | None = None, spaced: bool = True
    ) -> AsyncIterator[float | None]:
        """Wait for one's turn at the host, then for one of the slots; those who wait for a host hold no slot.

        `address` is where the host is known to live, so that many hosts on one machine count together. Gives the end of the
        host's pause where there is one, also if it began while we stood in line: then nothing may be asked.
        """
        state = self._state(host)
        state.waiting_count += 1
        try:
            async with state.lock:
                wait_s = state.next_at - self._clock()
                if spaced and wait_s > 0 and self.paused_until(host) is None:
                    await self._sleep(wait_s)
                async with self._address_semaphore(address), self._slots:
                    until = self.paused_until(host)
                    try:
                        yield until
                    finally:
                        if until is None:
                            state.next_at = self._clock() + self._spacing_s
        finally:
            state.waiting_count -= 1

    def _address_semaphore(self, address: str | None) -> AbstractAsyncContextManager[None]:
        if address is None:
            return nullcontext()
        slots = self._addresses.get(address)
        if slots is None:
            slots = self._addresses[address] = asyncio.Semaphore(MAX_CONCURRENT_PER_ADDRESS)
        return slots

    def _state(self, host: str) -> _HostState:
        state = self._states.get(host)
        if state is None:
            if len(self._states) >= self._sweep_threshold:
                self._sweep()
            state = self._states[host] = _HostState()
        return state

    def _sweep(self) -> None:
        now = self._clock()
        self._states = {
            h: state
            for h, state in self._states.items()
            if state.waiting_count or max(state.next_at, state.paused_until) > now
        }
        self._sweep_threshold = max(SWEEP_THRESHOLD, 2 * len(self._states))
