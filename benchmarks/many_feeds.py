"""Benchmark of one simulated hour with 100,000 feeds in one store.

``make STORE BASE FEEDS`` creates the store; ``work STORE STARTED`` runs the hour and prints the
figures as JSON. The clock is simulated and advances when nothing is left to do. The requests are
real, to the nginx at BASE: every twentieth feed has a document of 20 entries, the others answer
304. STARTED is the monotonic time at which the process was started, since imports are part of the
start-up.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.scheduler import Scheduler
from tidings.config import Budget
from tidings.fetch import Fetcher, FetchSettings
from tidings.model import DAY_S, HOUR_S, Documents
from tidings.policy import Feeds, make_policy
from tidings.store import Store
from tidings.store.feed_models import Estimate, FeedState, NewSubscription, PollOutcome

NOW = 1_790_000_000.0  #: start of the simulated hour
BUDGET = Budget(2.0, each=True)
#: Number of feeds whose learned state is copied to all feeds, and of posts per feed.
LEARNED, POSTS = 2_000, 20
#: Rows per transaction when the store is created.
CHUNK = 2_000
STEP_S = 20.0  #: minimum step of the simulated clock
#: Measured methods of the store.
MEASURED = ("lease_feeds", "next_due")


def address(base: str, feed: int) -> str:
    return (
        f"{base}/{feed % 100}.{'rss' if feed % 5 < 3 else 'atom'}?{feed}"
        if feed % 20 == 0
        else f"{base}/same/{feed}"
    )


async def make(path: Path, base: str, feeds: int) -> None:
    """Create feeds added a month ago and polled within the last 12 hours, with estimates."""
    rng = np.random.default_rng(0)
    async with Store.open(path, clock=lambda: NOW - 30 * DAY_S) as store:
        for begin in range(0, feeds, CHUNK):
            await store.add_subscriptions(
                [
                    NewSubscription(address(base, f), first_poll_at=NOW)
                    for f in range(begin, min(begin + CHUNK, feeds))
                ]
            )
        policy = make_policy("price")
        paces = rng.lognormal(0.0, 1.2, LEARNED)
        times = [
            np.sort(NOW - DAY_S / 2 - rng.random(POSTS) * POSTS * DAY_S / pace) for pace in paces
        ]
        first = np.arange(LEARNED) * POSTS
        history = Documents(
            np.concatenate(times), first, first, first + POSTS, np.zeros(LEARNED, dtype=np.bool_)
        )
        since = np.array([feed_times[0] for feed_times in times])
        policy.start(
            Feeds.of(np.full(LEARNED, POSTS)), history, since, NOW, BUDGET.per_day(LEARNED)
        )
        tile = np.resize(np.arange(LEARNED), feeds)
        policy.state, policy.feeds = policy.state[tile], Feeds.of(np.full(feeds, POSTS))
        policy.state["last"] = NOW - rng.random(feeds) * DAY_S / 2
        policy.set_budget(BUDGET.per_day(feeds), NOW)
        for begin in range(0, feeds, CHUNK):
            rows = np.arange(begin, min(begin + CHUNK, feeds))
            times_due = policy.decide(rows, np.full(len(rows), NOW), first=True).times
            estimates = [Estimate("price", policy.save_row(row)) for row in rows.tolist()]
            await store.record(
                [
                    PollOutcome(
                        feed_id=row + 1,
                        at=float(policy.state["last"][row]),
                        status=304,
                        state=FeedState(
                            title=f"Feed {row}",
                            window=POSTS,
                            last_poll_at=float(policy.state["last"][row]),
                            last_ok_at=float(policy.state["last"][row]),
                            etag='"made"',
                            validators_url=address(base, row),
                            validators_since=NOW - DAY_S,
                            next_poll_at=float(due),
                        ),
                        estimate=estimate,
                    )
                    for row, due, estimate in zip(rows.tolist(), times_due, estimates, strict=True)
                ]
            )
        scheduler = Scheduler(policy, BUDGET)
        scheduler._planner.assign_rows(list(range(1, feeds + 1)))
        scheduler._planner.ready = True
        await scheduler.save(store, NOW)


class SimulatedHour:
    """Simulated clock with measurements of memory and of store operations."""

    def __init__(self) -> None:
        self.now = NOW
        self.aggregator: Aggregator
        self.stop = asyncio.Event()
        self.mb: list[float] = []
        self.durations_ms: dict[str, list[float]] = {name: [] for name in MEASURED}

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Advance the clock if no poll is running; otherwise a finished poll wakes the loop."""
        if self.aggregator.polls_in_flight:
            await asyncio.Event().wait()
        self.now += max(seconds, STEP_S)
        if self.now >= NOW + len(self.mb) * 600.0:
            self.mb.append(resident_mb())
        if self.now >= NOW + HOUR_S:
            self.stop.set()

    def measure(self, store: Store, name: str) -> None:
        inner: Callable[..., Any] = getattr(store, name)

        async def measured(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            result = await inner(*arguments, **options)
            self.durations_ms[name].append(1e3 * (time.perf_counter() - started))
            return result

        setattr(store, name, measured)


async def work(path: Path, started: float) -> dict[str, Any]:
    """Start like the service and run for one simulated hour; returns the figures."""
    hour = SimulatedHour()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(Store.open(path, clock=hour.clock, serving=True))
        fetcher = await stack.enter_async_context(
            Fetcher(FetchSettings(allow_private=True), hour.clock)
        )
        scheduler = Scheduler(make_policy("price"), BUDGET)
        hour.aggregator = Aggregator(store, fetcher, scheduler, hour.clock, sleep=hour.sleep)
        await stack.enter_async_context(hour.aggregator)
        start_s = time.monotonic() - started
        if scheduler.has_pending_feeds or not scheduler.started:
            raise SystemExit("the estimates were not restored")
        hour.mb.append(resident_mb())
        for name in MEASURED:
            hour.measure(store, name)
        before, cpu_before = await store.polls_since(NOW), time.process_time()
        await hour.aggregator.run(hour.stop)
        status = await store.status()
        return {
            "start_s": start_s,
            "mb": hour.mb,
            "polls": await store.polls_since(NOW) - before,
            "new": status.hour.new,
            "cpu_s": time.process_time() - cpu_before,
            **{
                f"{name}_ms": statistics.median(durations_ms)
                for name, durations_ms in hour.durations_ms.items()
            },
            **{
                f"{name}_worst_ms": max(durations_ms)
                for name, durations_ms in hour.durations_ms.items()
            },
        }


def resident_mb() -> float:
    """Return the current memory; the peak would not show whether memory stays constant."""
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * 4096 / 2**20


def main() -> None:
    match sys.argv[1:]:
        case ["make", path, base, feeds]:
            asyncio.run(make(Path(path), base, int(feeds)))
        case ["work", path, started]:
            print(json.dumps(asyncio.run(work(Path(path), float(started)))))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
