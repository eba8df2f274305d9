"""The brain: what a policy is told and asked by the living service, without a network."""

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


class SchedulerHarness:
    """A brain on a store, and a clock: ``head.look(1)`` is a poll of feed 1 that found nothing new."""

    def __init__(self, path, *, policy="price", budget=Budget(6.0, True), **options):  # noqa: B008  # it is frozen: one for all is no harm
        self.now = MONDAY
        self._loop = asyncio.new_event_loop()
        self.store = Store.open(path / "store.db", clock=lambda: self.now)
        self.scheduler = Scheduler(make_policy(policy), budget, **options)

    def wait(self, work):
        return self._loop.run_until_complete(work)

    def close(self):
        self.wait(self.store.close())
        self._loop.close()

    def restart(self, policy="price", budget=Budget(6.0, True), **options):  # noqa: B008  # it is frozen: one for all is no harm
        """As a process finds it that starts now; the one before was killed."""
        self.scheduler = Scheduler(make_policy(policy), budget, **options)
        self.wait(self.scheduler.start(self.store, self.now))
        return self

    def add_feeds(self, feeds, *, posts=20, every_s=DAY_S / 2):
        """Feeds with their first documents, polled just now, and settled."""
        urls = [f"https://{len(self.wait(self.store.feeds()))}-{i}.example/" for i in range(feeds)]
        ids = [
            added.feed_id
            for added in self.wait(self.store.add([NewSubscription(url, self.now) for url in urls]))
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
    here = SchedulerHarness(tmp_path)
    yield here
    here.close()


def test_a_feed_has_a_provisional_time_until_the_brain_has_settled(harness):
    (first,) = harness.wait(harness.store.add([NewSubscription("https://a.example/", MONDAY)]))
    decision = harness.poll(first.feed_id, times=np.array([MONDAY - DAY_S, MONDAY]), new_count=2)
    assert decision.reason.code == "new_feed"
    assert MONDAY < decision.at < MONDAY + DAY_S
    assert harness.scheduler.has_pending_feeds


def test_after_settling_the_policy_gives_reasons_of_its_own_and_no_herd_forms(harness):
    ids = harness.add_feeds(12)
    assert not harness.scheduler.has_pending_feeds
    feeds = [harness.wait(harness.store.feed(i)) for i in ids]
    assert len({feed.state.next_poll_at for feed in feeds}) > 8
    assert feeds[0].state.reason.code in ("price", "min_interval")
    assert harness.wait(harness.store.estimates("price")).keys() == set(ids)


def test_polls_are_at_whole_seconds_after_now(harness):
    (feed, *_) = harness.add_feeds(3)
    harness.now += HOUR_S + 0.7
    decision = harness.poll(feed)
    assert decision.at == int(decision.at) > harness.now
    assert decision.estimate.policy == "price"


def test_what_a_publisher_states_holds_and_is_the_reason(harness):
    (feed, *_) = harness.add_feeds(3)
    harness.now += HOUR_S
    decision = harness.poll(feed, bytes=0, ttl_s=20 * HOUR_S)
    assert decision.at == harness.now + 20 * HOUR_S
    assert decision.reason == reason("ttl", interval_s=20 * HOUR_S)
    assert (decision.learned.stated_s, decision.learned.stated_by) == (20 * HOUR_S, TTL)


def test_a_failure_waits_for_its_backoff_and_says_why(harness):
    (feed, *_) = harness.add_feeds(3)
    why = reason("backoff", error="timeout", failures=2, wait_s=2 * HOUR_S)
    decision = harness.poll(feed, ok=False, backoff_until=harness.now + 2 * HOUR_S, failure=why)
    assert (decision.at, decision.reason) == (harness.now + 2 * HOUR_S, why)
    assert decision.learned is None


def test_the_interval_that_subscribers_set_holds_at_once(harness):
    (feed, *_) = harness.add_feeds(3, every_s=600.0)
    (again,) = harness.scheduler.update_weights({feed: 1.0}, {feed: 6 * HOUR_S}, harness.now)
    assert again.next_poll_at >= harness.now + 6 * HOUR_S
    assert again.reason.code == "min_interval_override"


def test_a_budget_that_cannot_be_spent_is_known_with_what_holds_it_back(tmp_path):
    harness = SchedulerHarness(tmp_path, budget=Budget(500.0, True))
    harness.add_feeds(4)
    usable, held_back = harness.scheduler.usable_budget
    assert held_back == 4
    assert 4 * 96 / 1.2 <= usable <= 4 * 96
    assert harness.scheduler.policy.budget_per_day == pytest.approx(usable)
    harness.close()


def test_hours_that_a_feed_closes_are_left_out(harness):
    (feed, *_) = harness.add_feeds(3)
    closed = np.ones(168, dtype=bool)
    closed[100] = False
    decision = harness.poll(feed, skip=np.packbits(closed).tobytes())
    assert ((decision.at - MONDAY) // HOUR_S) % 168 == 100


def test_no_feed_is_forgotten(tmp_path):
    harness = SchedulerHarness(tmp_path, budget=Budget(0.001, True))
    (feed, *_) = harness.add_feeds(2, posts=2, every_s=50 * DAY_S)
    decision = harness.poll(feed)
    assert decision.at <= harness.now + 7 * DAY_S + 1
    assert decision.reason == reason("max_interval", interval_s=7 * DAY_S)
    harness.close()


def test_feeds_that_come_later_are_taken_in_beside_the_others(harness):
    old = harness.add_feeds(10)
    harness.now += DAY_S
    new = harness.add_feeds(1)
    assert harness.scheduler.policy.feeds.weight.shape == (11,)
    assert all(harness.poll(feed).reason.code != "new_feed" for feed in old + new)


def test_many_more_feeds_share_the_budget_from_then_on(tmp_path):
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
    assert (
        harness.scheduler.policy.controller.price < 1.01 * price
    )  # what was spent before is not held against them
    harness.close()


@pytest.mark.parametrize("policy", ["price", "moving-average", "min-delay"])
def test_a_killed_process_leaves_all_that_was_learned(tmp_path, policy):
    harness = SchedulerHarness(tmp_path, policy=policy)
    feeds = harness.add_feeds(4)
    harness.now += 2 * HOUR_S
    kept = {feed: harness.poll(feed) for feed in feeds}
    harness.wait(
        harness.store.save_estimates({feed: decision.estimate for feed, decision in kept.items()})
    )
    times = [harness.wait(harness.store.feed(feed)).state.next_poll_at for feed in feeds]
    harness.restart(policy)
    assert not harness.scheduler.has_pending_feeds
    assert [harness.wait(harness.store.feed(feed)).state.next_poll_at for feed in feeds] == times
    if policy == "price":
        assert {f: harness.scheduler.policy.save_row(row) for row, f in enumerate(feeds)} == {
            f: decision.estimate.state for f, decision in kept.items()
        }
    harness.close()


def test_estimates_of_another_version_are_learned_anew(harness):
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


def test_what_was_spent_is_remembered_over_a_kill(harness):
    harness.add_feeds(3)
    harness.now += 1
    tokens = harness.scheduler.bucket.tokens
    harness.wait(harness.scheduler.save(harness.store, harness.now))
    for _ in range(5):
        harness.now += 1
        harness.wait(harness.store.record([PollOutcome(feed_id=1, at=harness.now)]))
    harness.restart()
    assert harness.scheduler.bucket.tokens == pytest.approx(tokens - 5, abs=0.1)


def test_feeds_that_were_added_meanwhile_bring_their_budget_along(harness):
    harness.restart()
    harness.wait(harness.scheduler.save(harness.store, harness.now))  # nobody follows anything yet
    harness.wait(
        harness.store.add([NewSubscription(f"https://{i}.example/", harness.now) for i in range(8)])
    )
    assert harness.restart().scheduler.bucket.available(harness.now) == 48


def test_a_tick_decides_anew_where_the_price_has_fallen(harness):
    harness.add_feeds(6)
    ticked = []
    for _ in range(12):
        harness.now = harness.scheduler.next_tick
        ticked += harness.wait(harness.scheduler.tick(harness.now))
    assert harness.scheduler.next_tick > harness.now
    assert all(schedule.next_poll_at >= MONDAY for schedule in ticked)
    assert ticked


def test_a_retired_feed_is_not_decided_for(harness):
    feeds = harness.add_feeds(4)
    harness.scheduler.remove_feed(feeds[0])
    schedules = []
    for _ in range(6):
        harness.now = harness.scheduler.next_tick
        schedules += harness.wait(harness.scheduler.tick(harness.now))
    assert feeds[0] not in {schedule.feed_id for schedule in schedules}
    assert harness.poll(feeds[0]).reason.code == "new_feed"


def test_posts_that_come_by_push_make_polls_rarer(harness):
    (feed, *_) = harness.add_feeds(4, every_s=HOUR_S * 6)
    harness.now += HOUR_S
    before = harness.poll(feed).at
    harness.scheduler.set_push_share(feed, 0.95)
    assert harness.poll(feed).at > before


@pytest.mark.parametrize("policy", ["price", "uniform"])
def test_another_budget_holds_at_once_and_for_the_next_process(tmp_path, policy):
    harness = SchedulerHarness(tmp_path, policy=policy)
    ids = harness.add_feeds(12)
    harness.now += HOUR_S
    before = [harness.wait(harness.store.feed(i)).state.next_poll_at for i in ids]
    harness.wait(harness.scheduler.change_budget(harness.store, Budget(1.0, True), harness.now))
    assert harness.scheduler.next_tick <= harness.now
    schedules = harness.wait(harness.scheduler.tick(harness.now))
    if harness.scheduler.has_pending_feeds:  # planned policies are started anew
        schedules = harness.wait(harness.scheduler.add_pending_feeds(harness.store, harness.now))
    assert len(schedules) == 12
    assert sum(s.next_poll_at for s in schedules) > sum(before) + 12 * 4 * HOUR_S
    assert harness.scheduler.policy.budget_per_day == pytest.approx(12.0, rel=0.01)
    assert harness.restart(policy).scheduler.budget == Budget(1.0, True)
    assert harness.restart(policy, budget=Budget(7.0, True)).scheduler.budget == Budget(
        7.0, True
    )  # the configuration has spoken since
    harness.close()
