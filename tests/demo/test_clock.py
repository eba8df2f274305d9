"""The clock: exact for sleepers, still for the busy, as fast as it is told otherwise."""

import asyncio
import time

from tests import TEST_TIMEOUT_S
from tidings.demo import clock as clocks
from tidings.demo.clock import Clock


def with_clock(scenario, speed=float("inf")):
    async def run_test():
        clock = Clock(1000.0, speed)
        running = asyncio.create_task(clock.run())
        try:
            return await asyncio.wait_for(scenario(clock), TEST_TIMEOUT_S)
        finally:
            running.cancel()

    return asyncio.run(run_test())


def test_everybody_wakes_at_the_very_moment_and_in_turn():
    woken = []

    async def sleeper(clock, seconds):
        await clock.sleep(seconds)
        woken.append(clock())

    async def scenario(clock):
        await asyncio.gather(
            *(sleeper(clock, seconds) for seconds in (300.0, 0.25, 86400.0, 300.0))
        )

    with_clock(scenario)
    assert woken == [1000.25, 1300.0, 1300.0, 87400.0]


def test_it_waits_for_whoever_is_busy():
    async def scenario(clock):
        busy = True
        clock.watch(lambda: busy)
        later = clock.sleep(60.0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert clock() == 1000.0
        busy = False
        with clock.hold():
            for _ in range(200):
                await asyncio.sleep(0)
            assert not later.done()
        await later
        return clock()

    assert with_clock(scenario) == 1060.0


def test_somebody_who_is_woken_and_gets_busy_stops_it_at_that_moment():
    async def scenario(clock):
        busy = False
        clock.watch(lambda: busy)
        clock.sleep(100.0)
        await clock.sleep(50.0)
        busy = True
        await asyncio.sleep(0.01)
        return clock()

    assert with_clock(scenario) == 1050.0


def test_it_keeps_its_speed_and_makes_up_for_work():
    async def scenario(clock):
        began = time.monotonic()
        with clock.hold():
            await asyncio.sleep(0.1)
        await clock.sleep(300.0)
        return time.monotonic() - began

    assert 0.3 <= with_clock(scenario, speed=1000.0) < 0.39


def test_a_machine_that_is_too_slow_makes_the_clock_slow(monkeypatch):
    monkeypatch.setattr(clocks, "BEHIND_S", 0.05)

    async def scenario(clock):
        clock.sleep(1e6)  # there is always something to come
        with clock.hold():
            await asyncio.sleep(0.3)
        await asyncio.sleep(0.03)
        return clock() - 1000.0

    assert with_clock(scenario, speed=1000.0) < 200.0
