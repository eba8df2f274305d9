"""What readers want early is asked early: from a subscriber's priority to the weights of the policy, while the service runs."""

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
#: It is about what is between the store and the policy, which is the same on either database.
pytestmark = pytest.mark.parametrize("town", ["sqlite"], indirect=True)


class Service:
    """A living aggregator over feeds that post alike, and the readers who use it."""

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
    return Service(env)


def test_a_priority_moves_the_weight_of_the_living_policy_and_the_next_poll(service, env):
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
    assert service.next_poll_in_s("a") == after[0]  # what was planned is kept to


def test_every_subscriber_counts_and_one_who_leaves_does_not(service, env):
    b = env.bob.subscribe_to("b")
    service.call_as(env.bob, "change", b, priority="early")
    assert service.weight("b") == 5.0
    service.call_as(env.ann, "unsubscribe", b)
    assert service.weight("b") == 4.0


def test_what_nobody_wants_is_neither_asked_nor_paid_for(service, env):
    c = env.feed_id("c")
    row = service.scheduler._planner.row[c]
    service.call_as(env.ann, "unsubscribe", c)
    assert env.feed(c).state.next_poll_at is None
    assert service.scheduler.policy.feeds.weight[row] < 1e-6


def test_another_title_is_no_reason_to_decide_anew(service, env):
    before = env.feed(env.feed_id("a")).state
    service.call_as(env.ann, "change", env.feed_id("a"), title="Mine")
    assert env.feed(env.feed_id("a")).state == before


# --- minimum interval -----------------------------------------------------------------------------


def min_interval_s(service, name):
    """Of the living policy."""
    return service.scheduler.policy.feeds.min_interval_s[
        service.scheduler._planner.row[service.env.feed_id(name)]
    ]


def test_a_minimum_interval_holds_in_the_living_policy_at_once(service, env):
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


def test_the_shortest_minimum_interval_of_all_subscribers_counts(service, env):
    b = env.bob.subscribe_to("b")
    service.call_as(env.bob, "change", b, min_interval_s=6 * HOUR_S)
    service.call_as(env.ann, "change", b, min_interval_s=2 * HOUR_S)
    assert env.feed(b).min_interval_s == 2 * HOUR_S
    service.call_as(env.ann, "unsubscribe", b)
    assert env.feed(b).min_interval_s == 6 * HOUR_S
    assert 6 * HOUR_S <= min_interval_s(service, "b") <= 1.2 * 6 * HOUR_S


def test_where_another_process_plans_a_longer_interval_postpones_the_next_poll_all_the_same(
    service, env
):
    a = env.feed_id("a")
    env.record_poll(a, state={"last_poll_at": env.clock()})
    fetcher = Fetcher(FetchSettings(), env.clock)
    shared = DistributedScheduler(lambda: make_policy("price"), Budget(1.0, True), env.store)
    service.aggregator = Aggregator(env.store, fetcher, shared, env.clock)
    service.call_as(env.ann, "change", a, min_interval_s=DAY_S)
    assert service.next_poll_in_s("a") == pytest.approx(DAY_S, abs=2)


@pytest.mark.parametrize("seconds", [60.0, 8 * DAY_S, -1.0, float("nan")])
def test_a_minimum_interval_outside_of_the_operators_bounds_is_refused(service, env, seconds):
    a = env.feed_id("a")
    with pytest.raises(UsageError, match="must be between 15 min and 7 d, or automatic"):
        service.call_as(env.ann, "change", a, min_interval_s=seconds)
    assert env.ann.subscription(a).min_interval_s == 0


def test_a_minimum_interval_goes_along_to_another_address_and_comes_back_with_undo(service, env):
    a = env.feed_id("a")
    service.call_as(env.ann, "change", a, min_interval_s=DAY_S)
    old = env.ann.subscription(a)
    service.call_as(env.ann, "unsubscribe", a)
    service.call_as(env.ann, "subscribe_again", old, [], env.clock())
    assert env.ann.subscription(a).min_interval_s == DAY_S
    moved = service.call_as(env.ann, "readdress", a, "https://elsewhere.example/feed")
    assert env.ann.subscription(moved).min_interval_s == DAY_S


# --- budget that can be used ------------------------------------------------------------------------


def test_any_process_knows_from_the_store_how_much_of_a_budget_can_be_used(service, env):
    """The same as the policy of the process that polls plans with."""
    limits = service.scheduler.limits
    status = env.wait(overview(env.store, Budget(1e6, False), limits))
    capacity = service.scheduler._planner.usable_budget(1e6)
    assert (status.usable_per_day, status.feeds_at_min_interval) == (
        pytest.approx(capacity[0]),
        len(FEEDS),
    )
    assert budget_note(status).endswith(
        "of 1,000,000 requests a day can be used: 6 feeds are at their minimum interval."
    )
    little = env.wait(overview(env.store, Budget(1.0, True), limits))
    assert (little.usable_per_day, little.feeds_at_min_interval, budget_note(little)) == (
        6.0,
        0,
        "",
    )


def test_a_budget_within_what_policies_leave_unplanned_is_no_complaint(service, env):
    limits = service.scheduler.limits
    capacity = env.wait(overview(env.store, Budget(1.0, True), limits)).capacity_per_day
    assert budget_note(env.wait(overview(env.store, Budget(capacity * 1.004, False), limits))) == ""
    assert budget_note(env.wait(overview(env.store, Budget(capacity * 1.02, False), limits))) != ""
