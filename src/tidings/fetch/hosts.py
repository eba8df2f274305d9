"""Hosts are left in peace, whatever their feeds are due for: one request at a time, a pause between two, and silence when told.

All of it is first come, first served, by the clock that is handed in: nothing is random.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakValueDictionary

#: Names that many sites share a machine under; a 429 there is about one of the sources that it stands for, so the feed waits
#: and its neighbours need not. The last label pairs are compared.
BRIDGES = frozenset(
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
PAUSE_S = 900.0
#: Hosts behind one address, together: a shared machine or a small provider sees no more than this from us at once.
AT_ONCE_PER_ADDRESS = 4
#: Lanes that nobody uses are swept out when there are more than this, and then whenever they have doubled.
MANY = 4096


def is_bridge(host: str, path_and_query: str = "") -> bool:
    """Whether the host passes on what others publish. `bridge=` is how every RSS-Bridge, on whatever host, is asked."""
    return ".".join(host.split(".")[-2:]) in BRIDGES or "bridge=" in path_and_query


class _Lane:
    __slots__ = ("lock", "next_at", "paused_until", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.next_at = 0.0
        self.paused_until = 0.0
        self.users = 0


class HostGate:
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
        self._lanes: dict[str, _Lane] = {}
        self._many = MANY
        self._addresses: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def pause(self, host: str, until: float) -> None:
        """Nobody asks `host` before `until`; a shorter pause does not end a longer one."""
        lane = self._lane(host)
        lane.paused_until = max(lane.paused_until, until)

    def note_request(self, host: str, at: float) -> None:
        """Space the next request to `host` from one that another process sent at `at`."""
        lane = self._lane(host)
        lane.next_at = max(lane.next_at, min(at, self._clock()) + self._spacing_s)

    def paused_until(self, host: str) -> float | None:
        """When the host may be asked again; None if now."""
        lane = self._lanes.get(host)
        return lane.paused_until if lane is not None and lane.paused_until > self._clock() else None

    def pauses(self) -> dict[str, float]:
        """All pauses that still hold, to be kept over a restart."""
        now = self._clock()
        return {host: lane.paused_until for host, lane in self._lanes.items() if lane.paused_until > now}

    @asynccontextmanager
    async def visit(self, host: str, *, address: str | None = None, spaced: bool = True) -> AsyncIterator[float | None]:
        """Wait for one's turn at the host, then for one of the slots; those who wait for a host hold no slot.

        `address` is where the host is known to live, so that many hosts on one machine count together. Gives the end of the
        host's pause where there is one, also if it began while we stood in line: then nothing may be asked.
        """
        lane = self._lane(host)
        lane.users += 1
        try:
            async with lane.lock:
                wait_s = lane.next_at - self._clock()
                if spaced and wait_s > 0 and self.paused_until(host) is None:
                    await self._sleep(wait_s)
                async with self._at_address(address), self._slots:
                    until = self.paused_until(host)
                    try:
                        yield until
                    finally:
                        if until is None:
                            lane.next_at = self._clock() + self._spacing_s
        finally:
            lane.users -= 1

    def _at_address(self, address: str | None) -> AbstractAsyncContextManager[None]:
        if address is None:
            return nullcontext()
        slots = self._addresses.get(address)
        if slots is None:
            slots = self._addresses[address] = asyncio.Semaphore(AT_ONCE_PER_ADDRESS)
        return slots

    def _lane(self, host: str) -> _Lane:
        lane = self._lanes.get(host)
        if lane is None:
            if len(self._lanes) >= self._many:
                self._sweep()
            lane = self._lanes[host] = _Lane()
        return lane

    def _sweep(self) -> None:
        now = self._clock()
        self._lanes = {h: lane for h, lane in self._lanes.items() if lane.users or max(lane.next_at, lane.paused_until) > now}
        self._many = max(MANY, 2 * len(self._lanes))
