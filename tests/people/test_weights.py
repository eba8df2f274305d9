"""What readers want early is asked early: from a subscriber's priority to the weights of the policy, while the service runs."""

import random

import pytest

from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.brain import Brain
from tidings.config import Budget
from tidings.fetch import Fetcher, FetchSettings
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
