"""Effect of subscription settings (priority, minimum interval) on the running scheduler."""

import random

import pytest

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.distributed_scheduler import DistributedScheduler
from tidings.aggregator.explain import budget_note, overview
from tidings.aggregator.scheduler import Scheduler
from tidings.config import Budget
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.model import DAY_S, HOUR_S
from tidings.policy.registry import make_policy
from tidings.users import ReaderService

FEEDS = "abcdef"
#: SQLite only: the tested code between store and policy is the same for both databases.
pytestmark = pytest.mark.parametrize("env", ["sqlite"], indirect=True)


class SchedulerEnv:
    """A running aggregator over feeds with similar rates, and its users."""

    def __init__(self, env):
        self.env, self.clock = env, env.clock
        env.ann.subscribe_to(*FEEDS)
        chance = random.Random(5)
        for number in range(120):
            env.publish(chance.choice(FEEDS), number)
            env.clock.forward(days=chance.uniform(0.0, 0.4))
        self.scheduler = Scheduler(make_policy("price"), Budget(1.0, True))
        self.aggregator = Aggregator(
            env.store, Fetcher(FetchSettings(), env.clock), self.scheduler, env.clock
        )
        env.wait(self.scheduler.start(env.store, env.clock()))
        env.reschedule(env.wait(self.scheduler.add_pending_feeds(env.store, env.clock())))

    def call_as(self, user, method, *args, **options):
        reader_service = ReaderService(
            user.user, self.env.store, self.clock, aggregator=self.aggregator
        )
        return self.env.wait(getattr(reader_service, method)(*args, **options))

    def weight(self, name):
        return self.scheduler.policy.feeds.weight[
            self.scheduler._planner.row[self.env.feed_id(name)]
        ]

    def next_poll_in_s(self, name):
        return self.env.feed(self.env.feed_id(name)).state.next_poll_at - self.clock()


@pytest.fixture
def service(env):
    return SchedulerEnv(env)


def test_priority_changes_weight_and_next_poll(service, env):
    a = env.feed_id("a")
    before = [service.next_poll_in_s(name) for name in FEEDS]
    for name in FEEDS:
        service.call_as(env.ann, "change", env.feed_id(name), priority="early")
    after = [service.next_poll_in_s(name) for name in FEEDS]
    assert service.weight("a") == 4.0
    assert all(now <= then for now, then in zip(after, before, strict=True))
    assert sum(after) < sum(before)
    service.call_as(env.ann, "change", a, priority="late")
    assert service.weight("a") == 0.25
    assert service.next_poll_in_s("a") == after[0]  # an earlier planned poll stays


def test_weight_is_sum_over_subscribers(service, env):
    b = env.bob.subscribe_to("b")
    service.call_as(env.bob, "change", b, priority="early")
    assert service.weight("b") == 5.0
    service.call_as(env.ann, "unsubscribe", b)
    assert service.weight("b") == 4.0


def test_feed_without_subscribers_is_not_polled(service, env):
    c = env.feed_id("c")
    row = service.scheduler._planner.row[c]
    service.call_as(env.ann, "unsubscribe", c)
    assert env.feed(c).state.next_poll_at is None
    assert service.scheduler.policy.feeds.weight[row] < 1e-6


def test_title_change_keeps_decision(service, env):
    before = env.feed(env.feed_id("a")).state
    service.call_as(env.ann, "change", env.feed_id("a"), title="Mine")
    assert env.feed(env.feed_id("a")).state == before


# --- minimum interval -----------------------------------------------------------------------------


def min_interval_s(service, name):
    """Return the minimum interval of a feed in the running policy."""
    return service.scheduler.policy.feeds.min_interval_s[
        service.scheduler._planner.row[service.env.feed_id(name)]
    ]


def test_min_interval_takes_effect_immediately(service, env):
    a = env.feed_id("a")
    env.record_poll(a, state={"last_poll_at": env.clock()})
    service.call_as(env.ann, "change", a, min_interval_s=7 * DAY_S)
    assert 7 * DAY_S <= min_interval_s(service, "a") <= 1.2 * 7 * DAY_S
    assert service.next_poll_in_s("a") > 6.9 * DAY_S
    state = env.feed(a).state
    assert state.reason.code == "min_interval_override"
    assert env.ann.subscription(a).min_interval_s == 7 * DAY_S
    service.call_as(env.ann, "change", a, min_interval_s=0)
    assert min_interval_s(service, "a") < 7 * DAY_S
    assert env.ann.subscription(a).min_interval_s == 0
    assert env.feed(a).min_interval_s == 0


def test_smallest_min_interval_of_subscribers_is_used(service, env):
    b = env.bob.subscribe_to("b")
    service.call_as(env.bob, "change", b, min_interval_s=6 * HOUR_S)
    service.call_as(env.ann, "change", b, min_interval_s=2 * HOUR_S)
    assert env.feed(b).min_interval_s == 2 * HOUR_S
    service.call_as(env.ann, "unsubscribe", b)
    assert env.feed(b).min_interval_s == 6 * HOUR_S
    assert 6 * HOUR_S <= min_interval_s(service, "b") <= 1.2 * 6 * HOUR_S


def test_longer_min_interval_postpones_poll_of_distributed_scheduler(service, env):
    a = env.feed_id("a")
    env.record_poll(a, state={"last_poll_at": env.clock()})
    fetcher = Fetcher(FetchSettings(), env.clock)
    shared = DistributedScheduler(lambda: make_policy("price"), Budget(1.0, True), env.store)
    service.aggregator = Aggregator(env.store, fetcher, shared, env.clock)
    service.call_as(env.ann, "change", a, min_interval_s=DAY_S)
    assert service.next_poll_in_s("a") == pytest.approx(DAY_S, abs=2)


@pytest.mark.parametrize("seconds", [60.0, 8 * DAY_S, -1.0, float("nan")])
def test_min_interval_out_of_bounds_raises(service, env, seconds):
    a = env.feed_id("a")
    with pytest.raises(UsageError, match="choose automatic, or 15 min to 7 d"):
        service.call_as(env.ann, "change", a, min_interval_s=seconds)
    assert env.ann.subscription(a).min_interval_s == 0


def test_min_interval_is_kept_by_url_change_and_undo(service, env):
    a = env.feed_id("a")
    service.call_as(env.ann, "change", a, min_interval_s=DAY_S)
    old = env.ann.subscription(a)
    service.call_as(env.ann, "unsubscribe", a)
    service.call_as(env.ann, "restore_subscription", old, [], env.clock())
    assert env.ann.subscription(a).min_interval_s == DAY_S
    moved = service.call_as(env.ann, "change_url", a, "https://elsewhere.example/feed")
    assert env.ann.subscription(moved).min_interval_s == DAY_S


# --- usable budget --------------------------------------------------------------------------------


def test_usable_budget_is_computed_from_store(service, env):
    """It equals the usable budget in the policy of the polling process."""
    limits = service.scheduler.limits
    status = env.wait(overview(env.store, Budget(1e6, False), limits))
    capacity = service.scheduler._planner.usable_budget(1e6)
    assert (status.usable_per_day, status.feeds_at_min_interval) == (
        pytest.approx(capacity[0]),
        len(FEEDS),
    )
    assert budget_note(status).endswith(
        "of 1,000,000 requests a day can be used. 6 feeds are already checked as often as allowed."
    )
    little = env.wait(overview(env.store, Budget(1.0, True), limits))
    assert (little.usable_per_day, little.feeds_at_min_interval, budget_note(little)) == (
        6.0,
        0,
        "",
    )


def test_budget_note_has_tolerance(service, env):
    limits = service.scheduler.limits
    capacity = env.wait(overview(env.store, Budget(1.0, True), limits)).capacity_per_day
    assert budget_note(env.wait(overview(env.store, Budget(capacity * 1.004, False), limits))) == ""
    assert budget_note(env.wait(overview(env.store, Budget(capacity * 1.02, False), limits))) != ""
