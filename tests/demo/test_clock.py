"""Virtual clock of the demo: exact wake-up times, stop while busy, speed."""

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


def test_sleepers_wake_at_exact_times_in_order():
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


def test_clock_stops_while_busy_or_paused():
    async def scenario(clock):
        busy = True
        clock.add_busy_check(lambda: busy)
        later = clock.sleep(60.0)
        for _ in range(200):
            await asyncio.sleep(0)
        assert clock() == 1000.0
        busy = False
        with clock.pause():
            for _ in range(200):
                await asyncio.sleep(0)
            assert not later.done()
        await later
        return clock()

    assert with_clock(scenario) == 1060.0


def test_woken_task_that_becomes_busy_stops_the_clock():
    async def scenario(clock):
        busy = False
        clock.add_busy_check(lambda: busy)
        clock.sleep(100.0)
        await clock.sleep(50.0)
        busy = True
        await asyncio.sleep(0.01)
        return clock()

    assert with_clock(scenario) == 1050.0


def test_clock_keeps_its_speed_and_catches_up_after_a_pause():
    async def scenario(clock):
        started_at = time.monotonic()
        with clock.pause():
            await asyncio.sleep(0.1)
        await clock.sleep(300.0)
        return time.monotonic() - started_at

    assert 0.3 <= with_clock(scenario, speed=1000.0) < 0.39


def test_long_pause_slows_the_clock(monkeypatch):
    monkeypatch.setattr(clocks, "MAX_BACKLOG_S", 0.05)

    async def scenario(clock):
        clock.sleep(1e6)  # the clock advances only while a task sleeps
        with clock.pause():
            await asyncio.sleep(0.3)
        await asyncio.sleep(0.03)
        return clock() - 1000.0

    assert with_clock(scenario, speed=1000.0) < 200.0
