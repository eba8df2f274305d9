"""Several workers, one brain: what each decides is what one process that knows everything would have decided."""

import asyncio

import numpy as np
import pytest

from tests.postgres import database
from tests.worlds import MONDAY
from tidings.aggregator.brain import Brain
from tidings.aggregator.looks import Look
from tidings.aggregator.shared import CHECK_S, SharedBrain
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.policy import make_policy
from tidings.store import Store
from tidings.store.rows import EntryText, FeedState, PollOutcome, Wanted

BUDGET = Budget(6.0, True)


class Office:
    """A database, a clock, and as many workers as one likes."""

    def __init__(self, place):
        self.now, self._place = MONDAY, place
        self._loop = asyncio.new_event_loop()
        self._stores = []
        self.store = self.open()

    def open(self):
        store = Store.open(self._place, clock=lambda: self.now)
        self._stores.append(store)
        return store

    def wait(self, work):
        return self._loop.run_until_complete(work)

    def worker(self, store=None, budget=BUDGET):
        brain = SharedBrain(lambda: make_policy("price"), budget, store or self.store)
        self.wait(brain.start(brain._store, self.now))
        return brain

    def lead(self, brain):
        """The brain's slow work, as the loop would do it."""
        schedules = self.wait(brain.tick(self.now))
        self.wait(brain._store.reschedule(schedules))
        return schedules

    def follow(self, brain, feeds, *, posts=20, every_s=DAY_S / 2):
        """New feeds, polled just now by a worker."""
        urls = [f"https://{len(self.wait(self.store.feeds()))}-{i}.example/" for i in range(feeds)]
        ids = [added.feed_id for added in self.wait(self.store.add([Wanted(url, self.now) for url in urls]))]
        times = self.now - every_s * np.arange(posts)[::-1]
        looks = [Look(i, self.now, added_at=self.now, times=times, fresh=posts, window=posts) for i in ids]
        new = tuple(EntryText(identity=str(i), digest=b"", published_at=at) for i, at in enumerate(times.tolist()))
        return [self.record(brain, look, new, window=posts).feed_id for look in looks]

    def record(self, brain, look, new=(), window=20):
        (decision,) = self.wait(brain.decide([look]))
        state = FeedState(window=window, next_poll_at=decision.at, reason=decision.reason, last_poll_at=look.at)
        outcome = PollOutcome(feed_id=look.feed_id, at=look.at, new=new, state=state, estimate=decision.estimate)
        self.wait(self.store.record([outcome]))
        return outcome

    def close(self):
        for store in self._stores:
            self.wait(store.close())
        self._loop.close()


@pytest.fixture
def office():
    with database() as place:
        here = Office(place)
        yield here
        here.close()


def test_before_anybody_has_led_feeds_have_provisional_times_and_then_not(office):
    worker = office.worker()
    ids = office.follow(worker, 8)
    assert office.wait(office.store.feed(ids[0])).state.reason.code == "new_feed"
    assert {s.feed_id for s in office.lead(worker)} == set(ids)
    assert office.wait(office.store.feed(ids[0])).state.reason.code != "new_feed"


def test_a_worker_decides_as_one_who_knows_everything(office):
    worker = office.worker()
    ids = office.follow(worker, 12)
    office.lead(worker)
    whole = Brain(make_policy("price"), BUDGET)
    office.wait(whole.start(office.store, office.now))
    office.now += 5 * HOUR_S
    looks = [
        Look(i, office.now, added_at=MONDAY, window=20, times=np.array([MONDAY, office.now - 600.0 * i]), fresh=1) for i in ids
    ]
    alone = [office.wait(office.worker().decide([look]))[0] for look in looks]
    together = office.wait(office.worker().decide(looks))
    known = office.wait(whole.decide(looks))
    for one, batch, all_of_it in zip(alone, together, known, strict=True):
        assert one == batch == all_of_it
        assert one.estimate is not None


def test_a_feed_that_is_new_to_the_policy_is_taken_in_by_whoever_polls_it(office):
    office.lead(leader := office.worker())
    office.follow(leader, 8)
    office.lead(leader)
    (late,) = office.follow(office.worker(), 1)
    assert office.wait(office.store.feed(late)).state.reason.code != "new_feed"
    assert late in office.wait(office.store.estimates("price", [late]))


def test_one_leads_and_another_takes_over(office):
    first, second = office.worker(office.open()), office.worker(office.open())
    office.follow(first, 4)
    office.lead(first)
    office.lead(second)
    assert (first.leads, second.leads) == (True, False)
    office.wait(first._store.close())
    office._stores.remove(first._store)
    office.now += CHECK_S
    office.lead(second)
    assert second.leads


def test_the_leader_moves_the_price_and_all_decide_by_it(office):
    leader, other = office.worker(), office.worker()
    ids = office.follow(leader, 10)
    office.now += 60
    office.lead(leader)
    office.now += 60
    before = office.wait(office.store.shared())["policy"]
    for _ in range(3):  # three slots in which a feed is polled far too often
        for minute in range(40):
            office.record(other, Look(ids[0], office.now + minute, added_at=MONDAY, window=20))
        office.now += 4 * HOUR_S + 1
        office.lead(leader)
    assert office.wait(office.store.shared())["policy"] != before
    policy = make_policy("price")
    whole = Brain(policy, BUDGET)
    office.wait(whole.start(office.store, office.now))
    assert policy.control.spent == 120


def test_the_leader_is_told_how_often_others_look_and_all_take_their_turns(office):
    leader, service = office.worker(), office.worker(office.open())
    ids = office.follow(leader, 10)
    office.lead(leader)
    told = [0, 3, 240]
    for looks in told:
        for _ in range(looks):
            office.wait(service.hear())
        service = office.worker(office.open())  # it may be started anew at any time, and goes on counting
        office.now += 4 * HOUR_S + 1
        office.lead(leader)
    policy = make_policy("price")
    office.wait(Brain(policy, BUDGET).start(office.store, office.now))
    control = policy.control
    assert [looks - polls for looks, polls in zip(control.looks, control.polls, strict=True)] == told
    assert control.turns < 0.5
    look = Look(ids[0], office.now, added_at=MONDAY, window=20)
    for worker in (leader, service):
        office.wait(worker.decide([look]))
        assert worker.policy.turns == control.turns


def test_the_leader_gives_no_new_time_to_a_feed_that_somebody_holds(office):
    leader = office.worker()
    (held, *_) = office.follow(leader, 6)
    office.now += DAY_S
    claimed = office.wait(office.store.claim(1, lease_s=900, worker="another"))
    assert held in {feed.id for feed in claimed} or claimed
    lease = {feed.id: office.now + 900 for feed in claimed}
    office.now += 1  # the leader has read the times before the claim, say
    schedules = office.wait(leader.tick(office.now))
    stale = [s for s in schedules if s.feed_id in lease]
    office.wait(office.store.reschedule([type(s)(s.feed_id, s.next_poll_at, s.reason, was=MONDAY) for s in stale]))
    for feed_id, until in lease.items():
        assert office.wait(office.store.feed(feed_id)).state.next_poll_at == until


def test_the_budget_is_one_for_all(office):
    one, two = office.worker(budget=Budget(10.0, False)), office.worker(budget=Budget(10.0, False))
    assert office.wait(one.grant(6, office.now)) == 6
    assert office.wait(two.grant(6, office.now)) == 4
    assert office.wait(one.grant(1, office.now)) == 0
    (first, second) = office.wait(one.wait_for_grant(office.store, 2, office.now))
    assert first == pytest.approx(office.now + DAY_S / 10)
    assert second == pytest.approx(office.now + 2 * DAY_S / 10)
    office.wait(two.spend(-3, office.now))
    assert office.wait(one.grant(5, office.now)) == 3
