"""Host limiter: concurrency, spacing and pauses per host, on a virtual clock."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.fetch.origin_server import (
    MONDAY,
    RSS,
    Clock,
    OriginServer,
    PollHarness,
    Response,
    with_harness,
)
from tidings.fetch import FetchProblem, FetchResult, Problem
from tidings.fetch.host_limiter import (
    MAX_CONCURRENT_PER_ADDRESS,
    SWEEP_THRESHOLD,
    HostLimiter,
    is_bridge,
)


class LimiterHarness:
    """A limiter that records the number of requests in flight and their start times."""

    def __init__(self, **host_limiter: float) -> None:
        self.clock = Clock()
        self.host_limiter = HostLimiter(self.clock, sleep=self.clock.sleep, **host_limiter)
        self.in_flight = self.peak = 0
        self.started_at: list[float] = []

    async def acquire(self, host: str, address: str | None = None) -> None:
        async with self.host_limiter.acquire(host, address=address):
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
            self.started_at.append(self.clock() - MONDAY)
            await asyncio.sleep(0)
            self.in_flight -= 1

    def run(self, *requests: Coroutine[None, None, None]) -> None:
        async def run_all() -> None:
            await asyncio.gather(*requests)

        asyncio.run(run_all())


def test_requests_to_a_host_are_serial_and_spaced() -> None:
    v = LimiterHarness(spacing_s=2.0)
    v.run(*(v.acquire("http://a") for _ in range(4)))
    assert (v.peak, v.started_at) == (1, [0, 2, 4, 6])


def test_different_hosts_run_concurrently() -> None:
    v = LimiterHarness()
    v.run(*(v.acquire(f"http://{n}") for n in range(9)))
    assert (v.peak, v.started_at) == (9, [0] * 9)


def test_concurrency_limit_and_waiting_requests_hold_no_slot() -> None:
    v = LimiterHarness(concurrency=2, spacing_s=0.0)
    v.run(
        *(v.acquire("http://busy") for _ in range(9)), *(v.acquire(f"http://{n}") for n in range(9))
    )
    assert v.peak == 2


def test_hosts_at_one_address_share_a_limit() -> None:
    v = LimiterHarness()
    v.run(*(v.acquire(f"http://{n}.example", "192.0.2.1") for n in range(20)))
    assert v.peak == MAX_CONCURRENT_PER_ADDRESS


def test_pause_expires_and_is_not_shortened() -> None:
    v = LimiterHarness()
    v.host_limiter.pause("http://a", MONDAY + 100)
    v.host_limiter.pause("http://a", MONDAY + 50)
    assert v.host_limiter.paused_until("http://a") == MONDAY + 100
    assert v.host_limiter.paused_until("http://b") is None
    assert v.host_limiter.pauses() == {"http://a": MONDAY + 100}
    v.clock.now += 100
    assert v.host_limiter.paused_until("http://a") is None
    assert v.host_limiter.pauses() == {}


def test_requests_of_other_processes_are_spaced_despite_clock_skew() -> None:
    v = LimiterHarness(spacing_s=2.0)
    v.host_limiter.record_request("http://a", MONDAY - 1)
    v.run(v.acquire("http://a"))
    v.host_limiter.record_request("http://b", MONDAY + 1e6)
    v.run(v.acquire("http://b"))
    assert v.started_at == [1, 3]


def test_unused_host_states_are_removed_and_pauses_kept() -> None:
    v = LimiterHarness()
    for n in range(2 * SWEEP_THRESHOLD):
        v.host_limiter.pause(f"http://{n}", MONDAY + (100 if n == 0 else -1))
    assert len(v.host_limiter._states) <= SWEEP_THRESHOLD + 1
    assert v.host_limiter.pauses() == {"http://0": MONDAY + 100}


@pytest.mark.parametrize(
    ("host", "path", "bridge"),
    [
        ("rsshub.app", "/x", True),
        ("feeds.feedburner.com", "/x", True),
        ("my.example", "/?action=display&bridge=Twitter", True),
        ("example.org", "/feed", False),
        ("bridge.example", "/feed", False),
    ],
)
def test_feed_bridges_are_recognized(host: str, path: str, bridge: bool) -> None:
    assert is_bridge(host, path) is bridge


def _as_public(w: PollHarness) -> None:
    """Make the fetcher treat loopback as a public address."""
    w.fetcher.connection_pool.address = lambda host: "93.184.216.34"


def with_public_host(
    test: Callable[[PollHarness], Coroutine[Any, Any, None]],
) -> Callable[[bool], None]:
    """Run a test with a public host, and with loopback and ``treat_private_as_public``."""

    @pytest.mark.parametrize(
        "option", [False, True], ids=["public host", "treat_private_as_public"]
    )
    @functools.wraps(test)
    def run(option: bool) -> None:
        @with_harness(treat_private_as_public=option)
        async def scenario(w: PollHarness) -> None:
            if not option:
                _as_public(w)
            await test(w)

        scenario()

    del run.__wrapped__  # type: ignore[attr-defined]  # else pytest takes `w` for a fixture
    return run


def problem(result: FetchResult) -> FetchProblem:
    assert result.error is not None
    return result.error


@with_public_host
async def test_requests_to_one_host_are_spaced(w: PollHarness) -> None:
    for n in range(3):
        w.serve(f"/{n}")
    await asyncio.gather(*(w.poll(f"/{n}") for n in range(3)))
    assert w.clock.sleeps == [1.0, 1.0]


@with_harness()
async def test_private_hosts_are_not_spaced(w: PollHarness) -> None:
    w.serve("/feed")
    await asyncio.gather(*(w.poll("/feed") for _ in range(3)))
    assert w.clock.sleeps == []


@with_public_host
async def test_redirect_on_the_same_host_is_not_spaced(w: PollHarness) -> None:
    w.script("/old", Response(302, headers={"Location": "/new"}))
    w.serve("/new")
    await w.poll("/old")
    assert w.clock.sleeps == []


@with_public_host
async def test_redirect_to_another_host_is_spaced(w: PollHarness) -> None:
    w.script("/old", Response(302, headers={"Location": f"http://localhost:{w.origin.port}/new"}))
    w.serve("/new")
    await w.poll(f"http://localhost:{w.origin.port}/new")
    await w.poll("/old")
    assert w.clock.sleeps == [1.0]


@with_public_host
async def test_429_pauses_the_host_for_waiting_requests_too(w: PollHarness) -> None:
    w.script("/limited", Response(429, b"", {"Retry-After": "600"}))
    w.serve("/other")
    first, second = await asyncio.gather(w.poll("/limited"), w.poll("/other"))
    assert problem(first).kind is Problem.STATUS
    assert (problem(second).kind, second.retry_at, second.requests) == (
        Problem.PAUSED,
        MONDAY + 600,
        0,
    )
    assert len(w.origin.requests) == 1
    w.clock.now += 600
    assert (await w.poll("/other")).body == RSS


@with_public_host
async def test_429_without_retry_after_pauses_the_host(w: PollHarness) -> None:
    w.script("/limited", Response(429, b""))
    await w.poll("/limited")
    assert list(w.fetcher.host_limiter.pauses().values()) == [MONDAY + 900]


@with_public_host
async def test_429_without_retry_after_stops_waiting_requests(w: PollHarness) -> None:
    w.script("/limited", Response(429, b""))
    w.serve("/other")
    _, second = await asyncio.gather(w.poll("/limited"), w.poll("/other"))
    assert (problem(second).kind, second.retry_at) == (Problem.PAUSED, MONDAY + 900)
    assert len(w.origin.requests) == 1


@with_public_host
async def test_503_pauses_the_host_only_with_retry_after(w: PollHarness) -> None:
    w.script("/down", Response(503, b""))
    await w.poll("/down")
    assert w.fetcher.host_limiter.pauses() == {}
    w.script("/down", Response(503, b"", {"Retry-After": "60"}))
    await w.poll("/down")
    assert w.fetcher.host_limiter.pauses() == {w.url("/")[:-1]: MONDAY + 61}


@with_harness()
async def test_bridges_and_private_hosts_are_not_paused(w: PollHarness) -> None:
    w.script("/limited", Response(429, b"", {"Retry-After": "600"}))
    await w.poll("/limited")
    assert w.fetcher.host_limiter.pauses() == {}
    _as_public(w)
    await w.poll("/limited?bridge=X")
    assert w.fetcher.host_limiter.pauses() == {}


@with_harness(treat_private_as_public=True)
async def test_loopback_hosts_share_the_limit_per_address(w: PollHarness) -> None:
    in_flight = peak = 0

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal in_flight, peak
        in_flight += 1
        peak = max(peak, in_flight)
        await asyncio.sleep(0.05)
        in_flight -= 1
        writer.write(RSS)

    async with AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(OriginServer().running()) for _ in range(8)]
        for origin in origins:
            origin.scripts["/feed"] = lambda request: Response(
                body=slow, headers={"Content-Length": str(len(RSS))}
            )
        results = await asyncio.gather(
            *(w.poll(f"http://127.0.0.1:{origin.port}/feed") for origin in origins)
        )
    assert [result.body for result in results] == [RSS] * 8
    assert peak == MAX_CONCURRENT_PER_ADDRESS
