"""One request at a time per host, a pause between two, silence when told; by a clock that only sleepers move."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.fetch.origin import MONDAY, RSS, Answer, Clock, Origin, World, story
from tidings.fetch import FetchProblem, FetchResult, Problem
from tidings.fetch.hosts import AT_ONCE_PER_ADDRESS, MANY, HostGate, is_bridge


class Visitors:
    """Count who is inside, and note when each entered."""

    def __init__(self, **gate: float) -> None:
        self.clock = Clock()
        self.gate = HostGate(self.clock, sleep=self.clock.sleep, **gate)
        self.inside = self.most = 0
        self.entered: list[float] = []

    async def visit(self, host: str, address: str | None = None) -> None:
        async with self.gate.visit(host, address=address):
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.entered.append(self.clock() - MONDAY)
            await asyncio.sleep(0)
            self.inside -= 1

    def run(self, *visits: Coroutine[None, None, None]) -> None:
        async def all_at_once() -> None:
            await asyncio.gather(*visits)

        asyncio.run(all_at_once())


def test_one_at_a_time_and_spaced() -> None:
    v = Visitors(spacing_s=2.0)
    v.run(*(v.visit("http://a") for _ in range(4)))
    assert (v.most, v.entered) == (1, [0, 2, 4, 6])


def test_different_hosts_do_not_wait_for_each_other() -> None:
    v = Visitors()
    v.run(*(v.visit(f"http://{n}") for n in range(9)))
    assert (v.most, v.entered) == (9, [0] * 9)


def test_not_more_at_once_than_allowed_and_those_in_line_for_a_host_hold_no_slot() -> None:
    v = Visitors(concurrency=2, spacing_s=0.0)
    v.run(*(v.visit("http://busy") for _ in range(9)), *(v.visit(f"http://{n}") for n in range(9)))
    assert v.most == 2


def test_many_hosts_on_one_machine_count_together() -> None:
    v = Visitors()
    v.run(*(v.visit(f"http://{n}.example", "192.0.2.1") for n in range(20)))
    assert v.most == AT_ONCE_PER_ADDRESS


def test_a_pause_ends_by_the_clock_and_a_shorter_one_does_not_end_it_sooner() -> None:
    v = Visitors()
    v.gate.pause("http://a", MONDAY + 100)
    v.gate.pause("http://a", MONDAY + 50)
    assert v.gate.paused_until("http://a") == MONDAY + 100
    assert v.gate.paused_until("http://b") is None
    assert v.gate.pauses() == {"http://a": MONDAY + 100}
    v.clock.now += 100
    assert v.gate.paused_until("http://a") is None
    assert v.gate.pauses() == {}


def test_requests_of_other_processes_are_kept_apart_even_if_a_clock_was_wrong() -> None:
    v = Visitors(spacing_s=2.0)
    v.gate.note_request("http://a", MONDAY - 1)
    v.run(v.visit("http://a"))
    v.gate.note_request("http://b", MONDAY + 1e6)
    v.run(v.visit("http://b"))
    assert v.entered == [1, 3]


def test_lanes_that_nobody_uses_are_swept_out_and_pauses_are_kept() -> None:
    v = Visitors()
    for n in range(2 * MANY):
        v.gate.pause(f"http://{n}", MONDAY + (100 if n == 0 else -1))
    assert len(v.gate._lanes) <= MANY + 1
    assert v.gate.pauses() == {"http://0": MONDAY + 100}


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
def test_bridges_stand_for_many_publishers(host: str, path: str, bridge: bool) -> None:
    assert is_bridge(host, path) is bridge


def _as_public(w: World) -> None:
    """Let loopback have a public address, as far as the fetcher knows."""
    w.fetcher.connections.address = lambda host: "93.184.216.34"


def public_story(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[bool], None]:
    """A test with a public host, and again with a loopback host and ``treat_private_as_public``."""

    @pytest.mark.parametrize("option", [False, True], ids=["public host", "treat_private_as_public"])
    @functools.wraps(test)
    def run(option: bool) -> None:
        @story(treat_private_as_public=option)
        async def tell(w: World) -> None:
            if not option:
                _as_public(w)
            await test(w)

        tell()

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would take the world for a fixture
    return run


def problem(result: FetchResult) -> FetchProblem:
    assert result.error is not None
    return result.error


@public_story
async def test_requests_to_one_host_are_spaced(w: World) -> None:
    for n in range(3):
        w.serve(f"/{n}")
    await asyncio.gather(*(w.poll(f"/{n}") for n in range(3)))
    assert w.clock.slept == [1.0, 1.0]


@story()
async def test_private_hosts_are_not_spaced(w: World) -> None:
    w.serve("/feed")
    await asyncio.gather(*(w.poll("/feed") for _ in range(3)))
    assert w.clock.slept == []


@public_story
async def test_a_redirect_on_the_same_host_is_part_of_the_visit(w: World) -> None:
    w.script("/old", Answer(302, headers={"Location": "/new"}))
    w.serve("/new")
    await w.poll("/old")
    assert w.clock.slept == []


@public_story
async def test_a_redirect_to_another_host_waits_for_its_turn_there(w: World) -> None:
    w.script("/old", Answer(302, headers={"Location": f"http://localhost:{w.origin.port}/new"}))
    w.serve("/new")
    await w.poll(f"http://localhost:{w.origin.port}/new")
    await w.poll("/old")
    assert w.clock.slept == [1.0]


@public_story
async def test_429_silences_the_whole_host_also_for_those_in_line(w: World) -> None:
    w.script("/limited", Answer(429, b"", {"Retry-After": "600"}))
    w.serve("/other")
    first, second = await asyncio.gather(w.poll("/limited"), w.poll("/other"))
    assert problem(first).kind is Problem.STATUS
    assert (problem(second).kind, second.retry_at, second.requests) == (Problem.PAUSED, MONDAY + 600, 0)
    assert len(w.origin.requests) == 1
    w.clock.now += 600
    assert (await w.poll("/other")).body == RSS


@public_story
async def test_429_without_a_time_pauses_the_host_too(w: World) -> None:
    w.script("/limited", Answer(429, b""))
    await w.poll("/limited")
    assert list(w.fetcher.gate.pauses().values()) == [MONDAY + 900]


@public_story
async def test_429_without_a_time_stops_requests_that_already_wait(w: World) -> None:
    w.script("/limited", Answer(429, b""))
    w.serve("/other")
    _, second = await asyncio.gather(w.poll("/limited"), w.poll("/other"))
    assert (problem(second).kind, second.retry_at) == (Problem.PAUSED, MONDAY + 900)
    assert len(w.origin.requests) == 1


@public_story
async def test_503_pauses_the_host_only_with_a_time(w: World) -> None:
    w.script("/down", Answer(503, b""))
    await w.poll("/down")
    assert w.fetcher.gate.pauses() == {}
    w.script("/down", Answer(503, b"", {"Retry-After": "60"}))
    await w.poll("/down")
    assert w.fetcher.gate.pauses() == {w.url("/")[:-1]: MONDAY + 61}


@story()
async def test_bridges_and_private_hosts_are_not_paused_as_a_whole(w: World) -> None:
    w.script("/limited", Answer(429, b"", {"Retry-After": "600"}))
    await w.poll("/limited")
    assert w.fetcher.gate.pauses() == {}
    _as_public(w)
    await w.poll("/limited?bridge=X")
    assert w.fetcher.gate.pauses() == {}


@story(treat_private_as_public=True)
async def test_loopback_hosts_share_the_limit_per_address(w: World) -> None:
    under_way = most = 0

    async def slow(writer: asyncio.StreamWriter) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.05)
        under_way -= 1
        writer.write(RSS)

    async with AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(Origin().running()) for _ in range(8)]
        for origin in origins:
            origin.scripts["/feed"] = lambda asked: Answer(body=slow, headers={"Content-Length": str(len(RSS))})
        results = await asyncio.gather(*(w.poll(f"http://127.0.0.1:{origin.port}/feed") for origin in origins))
    assert [result.body for result in results] == [RSS] * 8
    assert most == AT_ONCE_PER_ADDRESS
