"""What readers want early is asked early: from a subscriber's priority to the weights of the policy, while the service runs."""

import random

import pytest

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.brain import Brain
from tidings.aggregator.explain import budget_note, overview
from tidings.aggregator.shared import SharedBrain
from tidings.config import Budget
from tidings.errors import UsageError
from tidings.fetch import Fetcher, FetchSettings
from tidings.model import DAY_S, HOUR_S
from tidings.people import Reading
from tidings.policy.registry import make_policy

FEEDS = "abcdef"
#: It is about what is between the store and the policy, which is the same on either database.
pytestmark = pytest.mark.parametrize("town", ["sqlite"], indirect=True)


class Service:
    """A living aggregator over feeds that post alike, and the readers who use it."""

    def __init__(self, town):
        self.town, self.clock = town, town.clock
        town.ann.follows(*FEEDS)
        chance = random.Random(5)
        for number in range(120):
            town.posted(chance.choice(FEEDS), number)
            town.clock.forward(days=chance.uniform(0.0, 0.4))
        self.brain = Brain(make_policy("price"), Budget(1.0, True))
        self.aggregator = Aggregator(town.store, Fetcher(FetchSettings(), town.clock), self.brain, town.clock)
        town.wait(self.brain.start(town.store, town.clock()))
        town.reschedule(town.wait(self.brain.settle(town.store, town.clock())))

    def does(self, person, method, *args, **options):
        reading = Reading(person.user, self.town.store, self.clock, aggregator=self.aggregator)
        return self.town.wait(getattr(reading, method)(*args, **options))

    def weight(self, name):
        return self.brain.policy.feeds.weight[self.brain._planner.row[self.town.feed_id(name)]]

    def waits_s(self, name):
        return self.town.feed(self.town.feed_id(name)).state.next_poll_at - self.clock()


@pytest.fixture
def service(town):
    return Service(town)


def test_a_priority_moves_the_weight_of_the_living_policy_and_the_next_poll(service, town):
    a = town.feed_id("a")
    before = [service.waits_s(name) for name in FEEDS]
    for name in FEEDS:
        service.does(town.ann, "change", town.feed_id(name), priority="early")
    after = [service.waits_s(name) for name in FEEDS]
    assert service.weight("a") == 4.0
    assert all(now <= then for now, then in zip(after, before, strict=True))
    assert sum(after) < sum(before)
    service.does(town.ann, "change", a, priority="late")
    assert service.weight("a") == 0.25
    assert service.waits_s("a") == after[0]  # what was planned is kept to


def test_every_subscriber_counts_and_one_who_leaves_does_not(service, town):
    b = town.bob.follows("b")
    service.does(town.bob, "change", b, priority="early")
    assert service.weight("b") == 5.0
    service.does(town.ann, "unsubscribe", b)
    assert service.weight("b") == 4.0


def test_what_nobody_wants_is_neither_asked_nor_paid_for(service, town):
    c = town.feed_id("c")
    row = service.brain._planner.row[c]
    service.does(town.ann, "unsubscribe", c)
    assert town.feed(c).state.next_poll_at is None
    assert service.brain.policy.feeds.weight[row] < 1e-6


def test_another_title_is_no_reason_to_decide_anew(service, town):
    before = town.feed(town.feed_id("a")).state
    service.does(town.ann, "change", town.feed_id("a"), title="Mine")
    assert town.feed(town.feed_id("a")).state == before


# --- minimum interval -----------------------------------------------------------------------------


def min_interval_s(service, name):
    """Of the living policy."""
    return service.brain.policy.feeds.min_interval_s[service.brain._planner.row[service.town.feed_id(name)]]


def test_a_minimum_interval_holds_in_the_living_policy_at_once(service, town):
    a = town.feed_id("a")
    town.polled(a, state={"last_poll_at": town.clock()})
    service.does(town.ann, "change", a, min_interval_s=7 * DAY_S)
    assert 7 * DAY_S <= min_interval_s(service, "a") <= 1.2 * 7 * DAY_S
    assert service.waits_s("a") > 6.9 * DAY_S
    state = town.feed(a).state
    assert state.reason.code == "min_interval_override"
    assert town.ann.subscription(a).min_interval_s == 7 * DAY_S
    service.does(town.ann, "change", a, min_interval_s=0)
    assert min_interval_s(service, "a") < 7 * DAY_S
    assert town.ann.subscription(a).min_interval_s == 0
    assert town.feed(a).min_interval_s == 0


def test_the_shortest_minimum_interval_of_all_subscribers_counts(service, town):
    b = town.bob.follows("b")
    service.does(town.bob, "change", b, min_interval_s=6 * HOUR_S)
    service.does(town.ann, "change", b, min_interval_s=2 * HOUR_S)
    assert town.feed(b).min_interval_s == 2 * HOUR_S
    service.does(town.ann, "unsubscribe", b)
    assert town.feed(b).min_interval_s == 6 * HOUR_S
    assert 6 * HOUR_S <= min_interval_s(service, "b") <= 1.2 * 6 * HOUR_S


def test_where_another_process_plans_a_longer_interval_postpones_the_next_poll_all_the_same(service, town):
    a = town.feed_id("a")
    town.polled(a, state={"last_poll_at": town.clock()})
    fetcher = Fetcher(FetchSettings(), town.clock)
    shared = SharedBrain(lambda: make_policy("price"), Budget(1.0, True), town.store)
    service.aggregator = Aggregator(town.store, fetcher, shared, town.clock)
    service.does(town.ann, "change", a, min_interval_s=DAY_S)
    assert service.waits_s("a") == pytest.approx(DAY_S, abs=2)


@pytest.mark.parametrize("seconds", [60.0, 8 * DAY_S, -1.0, float("nan")])
def test_a_minimum_interval_outside_of_the_operators_bounds_is_refused(service, town, seconds):
    a = town.feed_id("a")
    with pytest.raises(UsageError, match="must be between 15 min and 7 d, or automatic"):
        service.does(town.ann, "change", a, min_interval_s=seconds)
    assert town.ann.subscription(a).min_interval_s == 0


def test_a_minimum_interval_goes_along_to_another_address_and_comes_back_with_undo(service, town):
    a = town.feed_id("a")
    service.does(town.ann, "change", a, min_interval_s=DAY_S)
    old = town.ann.subscription(a)
    service.does(town.ann, "unsubscribe", a)
    service.does(town.ann, "subscribe_again", old, [], town.clock())
    assert town.ann.subscription(a).min_interval_s == DAY_S
    moved = service.does(town.ann, "readdress", a, "https://elsewhere.example/feed")
    assert town.ann.subscription(moved).min_interval_s == DAY_S


# --- budget that can be used ------------------------------------------------------------------------


def test_any_process_knows_from_the_store_how_much_of_a_budget_can_be_used(service, town):
    """The same as the policy of the process that polls plans with."""
    limits = service.brain.limits
    told = town.wait(overview(town.store, Budget(1e6, False), limits))
    capacity = service.brain._planner.usable_budget(1e6)
    assert (told.usable_per_day, told.feeds_at_min_interval) == (pytest.approx(capacity[0]), len(FEEDS))
    assert budget_note(told).endswith("of 1,000,000 requests a day can be used: 6 feeds are at their minimum interval.")
    little = town.wait(overview(town.store, Budget(1.0, True), limits))
    assert (little.usable_per_day, little.feeds_at_min_interval, budget_note(little)) == (6.0, 0, "")


def test_a_budget_within_what_policies_leave_unplanned_is_no_complaint(service, town):
    limits = service.brain.limits
    capacity = town.wait(overview(town.store, Budget(1.0, True), limits)).capacity_per_day
    assert budget_note(town.wait(overview(town.store, Budget(capacity * 1.004, False), limits))) == ""
    assert budget_note(town.wait(overview(town.store, Budget(capacity * 1.02, False), limits))) != ""
