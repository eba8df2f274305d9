"""Host limiter, which limits the rate of requests per host and pauses hosts after 429.

Each host gets one request at a time, with a minimum spacing, and none during a pause. Requests are
served first in, first out, by the given clock; nothing is random.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from weakref import WeakValueDictionary

#: Domains of feed generators that fetch from many sites. The last two labels of a host name are
#: compared. A 429 there concerns one of these sites, so it pauses only the feed and not the host.
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
#: Pause of a host in seconds if there is no Retry-After. The feed itself waits longer (see
#: `error_policy`).
DEFAULT_PAUSE_S = 900.0
#: Maximum number of concurrent requests to all hosts at one IP address (shared hosting).
MAX_CONCURRENT_PER_ADDRESS = 4
#: Number of host states at which unused states are removed. They are removed again whenever the
#: number has doubled.
SWEEP_THRESHOLD = 4096


def is_bridge(host: str, path_and_query: str = "") -> bool:
    """Return whether a URL belongs to a feed generator that fetches from many sites.

    All URLs of RSS-Bridge contain `bridge=`.
    """
    return ".".join(host.split(".")[-2:]) in FEED_BRIDGES or "bridge=" in path_and_query


class _HostState:
    __slots__ = ("lock", "next_at", "paused_until", "waiting_count")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.next_at = 0.0
        self.paused_until = 0.0
        self.waiting_count = 0


class HostLimiter:
    """Limiter of the concurrency and the rate of requests to each host.

    A host is identified by scheme, name and port.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        spacing_s: float = 1.0,
        concurrency: int = 100,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Create a limiter.

        ``spacing_s`` is the minimum time in seconds between two requests to a host, ``concurrency``
        the maximum number of requests to all hosts together.
        """
        self._clock, self._sleep, self._spacing_s = clock, sleep, spacing_s
        self._slots = asyncio.Semaphore(concurrency)
        self._states: dict[str, _HostState] = {}
        self._sweep_threshold = SWEEP_THRESHOLD
        self._addresses: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def pause(self, host: str, until: float) -> None:
        """Pause all requests to a host until a time. A shorter pause does not end a longer one."""
        state = self._state(host)
        state.paused_until = max(state.paused_until, until)

    def record_request(self, host: str, at: float) -> None:
        """Apply the minimum spacing after a request that another process sent at ``at``."""
        state = self._state(host)
        state.next_at = max(state.next_at, min(at, self._clock()) + self._spacing_s)

    def paused_until(self, host: str) -> float | None:
        """Return the end of the host's pause, or None if the host is not paused."""
        state = self._states.get(host)
        return (
            state.paused_until if state is not None and state.paused_until > self._clock() else None
        )

    def pauses(self) -> dict[str, float]:
        """Return the ends of all current pauses by host, to be stored for a restart."""
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
        """Wait until a request to the host is allowed.

        The function waits for the host first and then for one of the ``concurrency`` slots, so that
        waiting for a host uses no slot. ``address`` is the host's IP address, if known: all hosts
        at one address are limited together. Without ``spaced`` the minimum spacing does not apply.

        Yields None, or the end of the pause if the host is paused. The caller must not send a
        request then. The pause may have started during the wait.
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
