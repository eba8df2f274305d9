"""Scheduler: decisions, budget and persistence, without a network."""

import asyncio

import numpy as np
import pytest
from msgspec.structs import replace

from tests.trace_helpers import MONDAY
from tidings.aggregator.poll_observation import PollObservation
from tidings.aggregator.scheduler import Scheduler
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.policy import make_policy
from tidings.policy.constraints import TTL
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.feed_models import EntryText, FeedState, NewSubscription, PollOutcome

DEFAULT_BUDGET = Budget(6.0, True)


class SchedulerHarness:
    """A scheduler with store and clock; ``harness.poll(1)`` polls feed 1 without new posts."""

    def __init__(self, path, *, policy="price", budget=DEFAULT_BUDGET, **options):
        self.now = MONDAY
        self._loop = asyncio.new_event_loop()
        self.store = Store.open(path / "store.db", clock=lambda: self.now)
        self.scheduler = Scheduler(make_policy(policy), budget, **options)

    def wait(self, work):
        return self._loop.run_until_complete(work)

    def close(self):
        self.wait(self.store.close())
        self._loop.close()

    def restart(self, policy="price", budget=DEFAULT_BUDGET, **options):
        """Start a new scheduler on the store, as after a kill."""
        self.scheduler = Scheduler(make_policy(policy), budget, **options)
        self.wait(self.scheduler.start(self.store, self.now))
        return self

    def add_feeds(self, feeds, *, posts=20, every_s=DAY_S / 2):
        """Add feeds with their first documents, polled now, to store and policy; returns ids."""
        urls = [f"https://{len(self.wait(self.store.feeds()))}-{i}.example/" for i in range(feeds)]
        ids = [
            added.feed_id
            for added in self.wait(
                self.store.add_subscriptions([NewSubscription(url, self.now) for url in urls])
            )
        ]
        times = self.now - every_s * np.arange(posts)[::-1]
        for feed_id in ids:
            poll = PollObservation(
                feed_id, self.now, added_at=self.now, times=times, new_count=posts, window=posts
            )
            (decision,) = self.wait(self.scheduler.decide([poll]))
            new = tuple(
                EntryText(identity=str(i), digest=b"", published_at=at)
                for i, at in enumerate(times.tolist())
            )
            state = FeedState(
                window=posts,
                next_poll_at=decision.at,
                reason=decision.reason,
                last_poll_at=self.now,
            )
            self.wait(
                self.store.record([PollOutcome(feed_id=feed_id, at=self.now, new=new, state=state)])
            )
        self.wait(
            self.store.reschedule(self.wait(self.scheduler.add_pending_feeds(self.store, self.now)))
        )
        return ids

    def poll(self, feed_id, **fields):
        (decision,) = self.wait(
            self.scheduler.decide(
                [PollObservation(feed_id, self.now, added_at=MONDAY, window=20, **fields)]
            )
        )
        return decision


@pytest.fixture
def harness(tmp_path):
    scheduler_harness = SchedulerHarness(tmp_path)
    yield scheduler_harness
    scheduler_harness.close()


def test_new_feed_has_provisional_schedule(harness):
    (first,) = harness.wait(
        harness.store.add_subscriptions([NewSubscription("https://a.example/", MONDAY)])
    )
    decision = harness.poll(first.feed_id, times=np.array([MONDAY - DAY_S, MONDAY]), new_count=2)
    assert decision.reason.code == "new_feed"
    assert MONDAY < decision.at < MONDAY + DAY_S
    assert harness.scheduler.has_pending_feeds


def test_added_feeds_have_policy_reasons_and_spread_times(harness):
    ids = harness.add_feeds(12)
    assert not harness.scheduler.has_pending_feeds
    feeds = [harness.wait(harness.store.feed(i)) for i in ids]
    assert len({feed.state.next_poll_at for feed in feeds}) > 8
    assert feeds[0].state.reason.code in ("price", "min_interval")
    assert harness.wait(harness.store.estimates("price")).keys() == set(ids)


def test_polls_are_at_whole_seconds_in_future(harness):
    (feed, *_) = harness.add_feeds(3)
    harness.now += HOUR_S + 0.7
    decision = harness.poll(feed)
    assert decision.at == int(decision.at) > harness.now
    assert decision.estimate.policy == "price"


def test_stated_ttl_is_respected_and_is_the_reason(harness):
    (feed, *_) = harness.add_feeds(3)
    harness.now += HOUR_S
    decision = harness.poll(feed, bytes=0, ttl_s=20 * HOUR_S)
    assert decision.at == harness.now + 20 * HOUR_S
    assert decision.reason == reason("ttl", interval_s=20 * HOUR_S)
    assert (decision.learned.stated_s, decision.learned.stated_by) == (20 * HOUR_S, TTL)


def test_failure_waits_for_backoff_with_reason(harness):
    (feed, *_) = harness.add_feeds(3)
    failure = reason("backoff", error="timeout", failures=2, wait_s=2 * HOUR_S)
    decision = harness.poll(feed, ok=False, backoff_until=harness.now + 2 * HOUR_S, failure=failure)
    assert (decision.at, decision.reason) == (harness.now + 2 * HOUR_S, failure)
    assert decision.learned is None


def test_subscribers_min_interval_applies_immediately(harness):
    (feed, *_) = harness.add_feeds(3, every_s=600.0)
    (schedule,) = harness.scheduler.update_weights({feed: 1.0}, {feed: 6 * HOUR_S}, harness.now)
    assert schedule.next_poll_at >= harness.now + 6 * HOUR_S
    assert schedule.reason.code == "min_interval_override"


def test_usable_budget_is_limited_by_min_intervals(tmp_path):
    harness = SchedulerHarness(tmp_path, budget=Budget(500.0, True))
    harness.add_feeds(4)
    usable, held_back = harness.scheduler.usable_budget
    assert held_back == 4
    assert 4 * 96 / 1.2 <= usable <= 4 * 96
    assert harness.scheduler.policy.budget_per_day == pytest.approx(usable)
    harness.close()


def test_skip_hours_are_excluded(harness):
    (feed, *_) = harness.add_feeds(3)
    skipped = np.ones(168, dtype=bool)
    skipped[100] = False
    decision = harness.poll(feed, skip=np.packbits(skipped).tobytes())
    assert ((decision.at - MONDAY) // HOUR_S) % 168 == 100


def test_max_interval_limits_every_feed(tmp_path):
    harness = SchedulerHarness(tmp_path, budget=Budget(0.001, True))
    (feed, *_) = harness.add_feeds(2, posts=2, every_s=50 * DAY_S)
    decision = harness.poll(feed)
    assert decision.at <= harness.now + 7 * DAY_S + 1
    assert decision.reason == reason("max_interval", interval_s=7 * DAY_S)
    harness.close()


def test_later_feeds_are_added_to_running_policy(harness):
    old = harness.add_feeds(10)
    harness.now += DAY_S
    new = harness.add_feeds(1)
    assert harness.scheduler.policy.feeds.weight.shape == (11,)
    assert all(harness.poll(feed).reason.code != "new_feed" for feed in old + new)


def test_added_feeds_do_not_raise_price_for_past_spending(tmp_path):
    harness = SchedulerHarness(tmp_path, budget=Budget(40.0, False))
    feeds = harness.add_feeds(4)
    for _ in range(30):
        harness.now += HOUR_S
        for feed in feeds:
            harness.poll(feed)
        if harness.now >= harness.scheduler.next_tick:
            harness.wait(harness.scheduler.tick(harness.now))
    harness.add_feeds(6)
    price = harness.scheduler.policy.controller.price
    for _ in range(3):
        harness.now = harness.scheduler.next_tick
        harness.wait(harness.scheduler.tick(harness.now))
    assert harness.scheduler.policy.controller.price < 1.01 * price
    harness.close()


@pytest.mark.parametrize("policy", ["price", "moving-average", "min-delay"])
def test_learned_state_survives_kill(tmp_path, policy):
    harness = SchedulerHarness(tmp_path, policy=policy)
    feeds = harness.add_feeds(4)
    harness.now += 2 * HOUR_S
    decisions = {feed: harness.poll(feed) for feed in feeds}
    harness.wait(
        harness.store.save_estimates(
            {feed: decision.estimate for feed, decision in decisions.items()}
        )
    )
    times = [harness.wait(harness.store.feed(feed)).state.next_poll_at for feed in feeds]
    harness.restart(policy)
    assert not harness.scheduler.has_pending_feeds
    assert [harness.wait(harness.store.feed(feed)).state.next_poll_at for feed in feeds] == times
    if policy == "price":
        assert {f: harness.scheduler.policy.save_row(row) for row, f in enumerate(feeds)} == {
            f: decision.estimate.state for f, decision in decisions.items()
        }
    harness.close()


def test_incompatible_estimates_are_learned_again(harness):
    feeds = harness.add_feeds(3)
    harness.wait(
        harness.store.save_estimates(
            {f: replace(harness.poll(f).estimate, state=b"old") for f in feeds}
        )
    )
    harness.restart()
    assert harness.scheduler.has_pending_feeds
    harness.wait(harness.scheduler.add_pending_feeds(harness.store, harness.now))
    assert not harness.scheduler.has_pending_feeds


def test_spent_tokens_survive_kill(harness):
    harness.add_feeds(3)
    harness.now += 1
    tokens = harness.scheduler.bucket.tokens
    harness.wait(harness.scheduler.save(harness.store, harness.now))
    for _ in range(5):
        harness.now += 1
        harness.wait(harness.store.record([PollOutcome(feed_id=1, at=harness.now)]))
    harness.restart()
    assert harness.scheduler.bucket.tokens == pytest.approx(tokens - 5, abs=0.1)


def test_budget_grows_with_feeds_added_before_restart(harness):
    harness.restart()
    harness.wait(harness.scheduler.save(harness.store, harness.now))  # no subscriptions yet
    harness.wait(
        harness.store.add_subscriptions(
            [NewSubscription(f"https://{i}.example/", harness.now) for i in range(8)]
        )
    )
    assert harness.restart().scheduler.bucket.available(harness.now) == 48


def test_tick_reschedules_feeds_after_price_drop(harness):
    harness.add_feeds(6)
    rescheduled = []
    for _ in range(12):
        harness.now = harness.scheduler.next_tick
        rescheduled += harness.wait(harness.scheduler.tick(harness.now))
    assert harness.scheduler.next_tick > harness.now
    assert all(schedule.next_poll_at >= MONDAY for schedule in rescheduled)
    assert rescheduled


def test_removed_feed_is_not_scheduled(harness):
    feeds = harness.add_feeds(4)
    harness.scheduler.remove_feed(feeds[0])
    schedules = []
    for _ in range(6):
        harness.now = harness.scheduler.next_tick
        schedules += harness.wait(harness.scheduler.tick(harness.now))
    assert feeds[0] not in {schedule.feed_id for schedule in schedules}
    assert harness.poll(feeds[0]).reason.code == "new_feed"


def test_pushed_feed_is_polled_less_often(tmp_path):
    harness = SchedulerHarness(tmp_path, budget=Budget(2.0, True))
    (feed, *_) = harness.add_feeds(4, every_s=HOUR_S * 6)
    harness.now += HOUR_S
    before = harness.poll(feed).at
    harness.scheduler.set_push_share(feed, 0.95)
    assert harness.poll(feed).at > before
    harness.close()


@pytest.mark.parametrize("policy", ["price", "uniform"])
def test_changed_budget_applies_immediately_and_after_restart(tmp_path, policy):
    harness = SchedulerHarness(tmp_path, policy=policy)
    ids = harness.add_feeds(12)
    harness.now += HOUR_S
    before = [harness.wait(harness.store.feed(i)).state.next_poll_at for i in ids]
    harness.wait(harness.scheduler.change_budget(harness.store, Budget(1.0, True), harness.now))
    assert harness.scheduler.next_tick <= harness.now
    schedules = harness.wait(harness.scheduler.tick(harness.now))
    if harness.scheduler.has_pending_feeds:  # planned policies are started again
        schedules = harness.wait(harness.scheduler.add_pending_feeds(harness.store, harness.now))
    assert len(schedules) == 12
    assert sum(s.next_poll_at for s in schedules) > sum(before) + 12 * 4 * HOUR_S
    assert harness.scheduler.policy.budget_per_day == pytest.approx(12.0, rel=0.01)
    assert harness.restart(policy).scheduler.budget == Budget(1.0, True)
    # A changed configuration overrides the budget set at run time.
    assert harness.restart(policy, budget=Budget(7.0, True)).scheduler.budget == Budget(7.0, True)
    harness.close()
