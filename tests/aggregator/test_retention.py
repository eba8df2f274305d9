"""Retention runs daily in the leader's polling loop and not in other workers."""

import asyncio

import pytest

from tests.postgres import database
from tests.trace_helpers import MONDAY
from tidings.aggregator import aggregator as aggregator_module
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.distributed_scheduler import DistributedScheduler
from tidings.config import Budget
from tidings.fetch import Fetcher, FetchSettings
from tidings.policy import make_policy
from tidings.store import Store
from tidings.store.feed_models import EntryText, FeedState, NewSubscription, PollOutcome


class Clock:
    """A clock that advances while the loop sleeps, and stops the loop at ``until``."""

    def __init__(self, until):
        self.now, self.until, self.stop, self.sleeps = MONDAY, until, asyncio.Event(), 0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        await asyncio.sleep(0)
        self.now, self.sleeps = self.now + seconds, self.sleeps + 1
        if self.now >= self.until or self.sleeps >= 1000:
            self.stop.set()


async def run_for_seven_retentions(url, *, other_is_leader):
    """Run the loop with a retention every minute; returns remaining entries and loop sleeps."""
    clock = Clock(MONDAY + 7 * 60)
    async with Store.open(url, clock=clock) as store, Store.open(url, clock=clock) as other:
        if other_is_leader:
            assert await other.acquire_leadership()
        (added,) = await store.add_subscriptions(
            [NewSubscription("https://a.example/", MONDAY + 1e9)]
        )
        old = [EntryText(identity=str(n), digest=b"", published_at=0.0) for n in range(5)]
        state = FeedState(next_poll_at=MONDAY + 1e9, reason="far away")
        await store.record(
            [
                PollOutcome(
                    feed_id=added.feed_id, at=MONDAY - 50 * 86400, new=tuple(old), state=state
                )
            ]
        )
        scheduler = DistributedScheduler(lambda: make_policy("price"), Budget(1.0, True), store)
        async with (
            Fetcher(FetchSettings(), clock) as fetcher,
            Aggregator(
                store,
                fetcher,
                scheduler,
                clock,
                sleep=clock.sleep,
                retain_days=30,
                retain_entries=2,
                worker="w",
            ) as aggregator,
        ):
            await aggregator.run(clock.stop)
        return len(await store.entries()), clock.sleeps


@pytest.mark.parametrize(("other_is_leader", "remaining"), [(False, 2), (True, 5)])
def test_retention_runs_only_in_leader(monkeypatch, other_is_leader, remaining):
    monkeypatch.setattr(aggregator_module, "RETENTION_S", 60.0)
    monkeypatch.setattr(aggregator_module, "FIRST_RETENTION_S", 60.0)
    with database() as url:
        entries, sleeps = asyncio.run(
            run_for_seven_retentions(url, other_is_leader=other_is_leader)
        )
    assert entries == remaining
    assert sleeps < 100
