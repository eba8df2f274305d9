"""Distributed scheduler: workers decide as a single process with all feeds would."""

import asyncio

import numpy as np
import pytest

from tests.postgres import database
from tests.trace_helpers import MONDAY
from tidings.aggregator.distributed_scheduler import LEADER_CHECK_S, DistributedScheduler
from tidings.aggregator.poll_observation import PollObservation
from tidings.aggregator.scheduler import Scheduler
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.policy import make_policy
from tidings.store import Store
from tidings.store.feed_models import EntryText, FeedState, NewSubscription, PollOutcome

BUDGET = Budget(6.0, True)


class WorkerHarness:
    """A database, a clock, and any number of workers."""

    def __init__(self, url):
        self.now, self._url = MONDAY, url
        self._loop = asyncio.new_event_loop()
        self._stores = []
        self.store = self.open()

    def open(self):
        store = Store.open(self._url, clock=lambda: self.now)
        self._stores.append(store)
        return store

    def wait(self, work):
        return self._loop.run_until_complete(work)

    def worker(self, store=None, budget=BUDGET):
        scheduler = DistributedScheduler(lambda: make_policy("price"), budget, store or self.store)
        self.wait(scheduler.start(scheduler._store, self.now))
        return scheduler

    def lead(self, scheduler):
        """Run a tick of the scheduler, as the polling loop does."""
        schedules = self.wait(scheduler.tick(self.now))
        self.wait(scheduler._store.reschedule(schedules))
        return schedules

    def add_feeds(self, scheduler, feeds, *, posts=20, every_s=DAY_S / 2):
        """Add feeds that a worker has just polled; returns their ids."""
        urls = [f"https://{len(self.wait(self.store.feeds()))}-{i}.example/" for i in range(feeds)]
        ids = [
            added.feed_id
            for added in self.wait(
                self.store.add_subscriptions([NewSubscription(url, self.now) for url in urls])
            )
        ]
        times = self.now - every_s * np.arange(posts)[::-1]
        observations = [
            PollObservation(
                i, self.now, added_at=self.now, times=times, new_count=posts, window=posts
            )
            for i in ids
        ]
        new = tuple(
            EntryText(identity=str(i), digest=b"", published_at=at)
            for i, at in enumerate(times.tolist())
        )
        return [
            self.record(scheduler, observation, new, window=posts).feed_id
            for observation in observations
        ]

    def record(self, scheduler, observation, new=(), window=20):
        (decision,) = self.wait(scheduler.decide([observation]))
        state = FeedState(
            window=window,
            next_poll_at=decision.at,
            reason=decision.reason,
            last_poll_at=observation.at,
        )
        outcome = PollOutcome(
            feed_id=observation.feed_id,
            at=observation.at,
            new=new,
            state=state,
            estimate=decision.estimate,
        )
        self.wait(self.store.record([outcome]))
        return outcome

    def close(self):
        for store in self._stores:
            self.wait(store.close())
        self._loop.close()


@pytest.fixture
def harness():
    with database() as url:
        worker_harness = WorkerHarness(url)
        yield worker_harness
        worker_harness.close()


def test_feeds_are_provisional_until_first_leader_tick(harness):
    worker = harness.worker()
    ids = harness.add_feeds(worker, 8)
    assert harness.wait(harness.store.feed(ids[0])).state.reason.code == "new_feed"
    assert {s.feed_id for s in harness.lead(worker)} == set(ids)
    assert harness.wait(harness.store.feed(ids[0])).state.reason.code != "new_feed"


def test_worker_decides_like_full_scheduler(harness):
    worker = harness.worker()
    ids = harness.add_feeds(worker, 12)
    harness.lead(worker)
    full_scheduler = Scheduler(make_policy("price"), BUDGET)
    harness.wait(full_scheduler.start(harness.store, harness.now))
    harness.now += 5 * HOUR_S
    observations = [
        PollObservation(
            i,
            harness.now,
            added_at=MONDAY,
            window=20,
            times=np.array([MONDAY, harness.now - 600.0 * i]),
            new_count=1,
        )
        for i in ids
    ]
    separate = [
        harness.wait(harness.worker().decide([observation]))[0] for observation in observations
    ]
    batch = harness.wait(harness.worker().decide(observations))
    full = harness.wait(full_scheduler.decide(observations))
    assert separate == batch == full
    assert all(decision.estimate is not None for decision in separate)


def test_worker_adds_new_feed_to_policy(harness):
    harness.lead(leader := harness.worker())
    harness.add_feeds(leader, 8)
    harness.lead(leader)
    (late,) = harness.add_feeds(harness.worker(), 1)
    assert harness.wait(harness.store.feed(late)).state.reason.code != "new_feed"
    assert late in harness.wait(harness.store.estimates("price", [late]))


def test_other_process_takes_over_leadership(harness):
    first, second = harness.worker(harness.open()), harness.worker(harness.open())
    harness.add_feeds(first, 4)
    harness.lead(first)
    harness.lead(second)
    assert (first.is_leader, second.is_leader) == (True, False)
    harness.wait(first._store.close())
    harness._stores.remove(first._store)
    harness.now += LEADER_CHECK_S
    harness.lead(second)
    assert second.is_leader


def test_leader_updates_shared_price(harness):
    leader, other = harness.worker(), harness.worker()
    ids = harness.add_feeds(leader, 10)
    harness.now += 60
    harness.lead(leader)
    harness.now += 60
    before = harness.wait(harness.store.load_values())["policy"]
    for _ in range(3):  # three ticks in which a feed is polled far too often
        for minute in range(40):
            harness.record(
                other, PollObservation(ids[0], harness.now + minute, added_at=MONDAY, window=20)
            )
        harness.now += 4 * HOUR_S + 1
        harness.lead(leader)
    assert harness.wait(harness.store.load_values())["policy"] != before
    policy = make_policy("price")
    full_scheduler = Scheduler(policy, BUDGET)
    harness.wait(full_scheduler.start(harness.store, harness.now))
    assert policy.controller.spent == 120


def test_leader_uses_peer_poll_counts_for_participation(harness):
    leader, service = harness.worker(), harness.worker(harness.open())
    ids = harness.add_feeds(leader, 10)
    harness.lead(leader)
    peer_poll_counts = [0, 3, 240]
    for peer_polls in peer_poll_counts:
        for _ in range(peer_polls):
            harness.wait(service.count_peer_poll())
        service = harness.worker(harness.open())  # counting continues after a restart
        harness.now += 4 * HOUR_S + 1
        harness.lead(leader)
    policy = make_policy("price")
    harness.wait(Scheduler(policy, BUDGET).start(harness.store, harness.now))
    controller = policy.controller
    assert [
        total - own
        for total, own in zip(controller.polls_with_peers, controller.polls, strict=True)
    ] == peer_poll_counts
    assert controller.participation < 0.5
    observation = PollObservation(ids[0], harness.now, added_at=MONDAY, window=20)
    for worker in (leader, service):
        harness.wait(worker.decide([observation]))
        assert worker.policy.participation == controller.participation


def test_leader_does_not_reschedule_leased_feed(harness):
    leader = harness.worker()
    (held, *_) = harness.add_feeds(leader, 6)
    harness.now += DAY_S
    leased = harness.wait(harness.store.lease_feeds(1, lease_s=900, worker="another"))
    assert held in {feed.id for feed in leased} or leased
    lease = {feed.id: harness.now + 900 for feed in leased}
    harness.now += 1  # as if the leader had read the times before the lease
    schedules = harness.wait(leader.tick(harness.now))
    stale = [s for s in schedules if s.feed_id in lease]
    harness.wait(
        harness.store.reschedule(
            [type(s)(s.feed_id, s.next_poll_at, s.reason, expected_poll_at=MONDAY) for s in stale]
        )
    )
    for feed_id, until in lease.items():
        assert harness.wait(harness.store.feed(feed_id)).state.next_poll_at == until


def test_workers_share_one_budget(harness):
    one, two = (
        harness.worker(budget=Budget(10.0, False)),
        harness.worker(budget=Budget(10.0, False)),
    )
    assert harness.wait(one.take_tokens(6, harness.now)) == 6
    assert harness.wait(two.take_tokens(6, harness.now)) == 4
    assert harness.wait(one.take_tokens(1, harness.now)) == 0
    (first, second) = harness.wait(one.next_token_times(harness.store, 2, harness.now))
    assert first == pytest.approx(harness.now + DAY_S / 10)
    assert second == pytest.approx(harness.now + 2 * DAY_S / 10)
    harness.wait(two.consume_budget(-3, harness.now))
    assert harness.wait(one.take_tokens(5, harness.now)) == 3
