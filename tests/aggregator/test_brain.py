"""The brain: what a policy is told and asked by the living service, without a network."""

import asyncio

import numpy as np
import pytest
from msgspec.structs import replace

from tests.worlds import MONDAY
from tidings.aggregator.brain import Brain
from tidings.aggregator.looks import Look
from tidings.config import Budget
from tidings.model import DAY_S, HOUR_S
from tidings.policy import make_policy
from tidings.policy.constraints import TTL
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.rows import EntryText, FeedState, PollOutcome, Wanted


class Head:
    """A brain on a store, and a clock: ``head.look(1)`` is a poll of feed 1 that found nothing new."""

    def __init__(self, path, *, policy="price", budget=Budget(6.0, True), **options):  # noqa: B008  # it is frozen: one for all is no harm
        self.now = MONDAY
        self._loop = asyncio.new_event_loop()
        self.store = Store.open(path / "store.db", clock=lambda: self.now)
        self.brain = Brain(make_policy(policy), budget, **options)

    def wait(self, work):
        return self._loop.run_until_complete(work)

    def close(self):
        self.wait(self.store.close())
        self._loop.close()

    def reborn(self, policy="price", budget=Budget(6.0, True), **options):  # noqa: B008  # it is frozen: one for all is no harm
        """As a process finds it that starts now; the one before was killed."""
        self.brain = Brain(make_policy(policy), budget, **options)
        self.wait(self.brain.start(self.store, self.now))
        return self

    def follow(self, feeds, *, posts=20, every_s=DAY_S / 2):
        """Feeds with their first documents, polled just now, and settled."""
        urls = [f"https://{len(self.wait(self.store.feeds()))}-{i}.example/" for i in range(feeds)]
        ids = [added.feed_id for added in self.wait(self.store.add([Wanted(url, self.now) for url in urls]))]
        times = self.now - every_s * np.arange(posts)[::-1]
        for feed_id in ids:
            look = Look(feed_id, self.now, added_at=self.now, times=times, fresh=posts, window=posts)
            (decision,) = self.wait(self.brain.decide([look]))
            new = tuple(EntryText(identity=str(i), digest=b"", published_at=at) for i, at in enumerate(times.tolist()))
            state = FeedState(window=posts, next_poll_at=decision.at, reason=decision.reason, last_poll_at=self.now)
            self.wait(self.store.record([PollOutcome(feed_id=feed_id, at=self.now, new=new, state=state)]))
        self.wait(self.store.reschedule(self.wait(self.brain.settle(self.store, self.now))))
        return ids

    def look(self, feed_id, **fields):
        (decision,) = self.wait(self.brain.decide([Look(feed_id, self.now, added_at=MONDAY, window=20, **fields)]))
        return decision


@pytest.fixture
def head(tmp_path):
    here = Head(tmp_path)
    yield here
    here.close()


def test_a_feed_has_a_provisional_time_until_the_brain_has_settled(head):
    (first,) = head.wait(head.store.add([Wanted("https://a.example/", MONDAY)]))
    decision = head.look(first.feed_id, times=np.array([MONDAY - DAY_S, MONDAY]), fresh=2)
    assert decision.reason.code == "new_feed"
    assert MONDAY < decision.at < MONDAY + DAY_S
    assert head.brain.unsettled


def test_after_settling_the_policy_gives_reasons_of_its_own_and_no_herd_forms(head):
    ids = head.follow(12)
    assert not head.brain.unsettled
    feeds = [head.wait(head.store.feed(i)) for i in ids]
    assert len({feed.state.next_poll_at for feed in feeds}) > 8
    assert feeds[0].state.reason.code in ("price", "min_interval")
    assert head.wait(head.store.estimates("price")).keys() == set(ids)


def test_polls_are_at_whole_seconds_after_now(head):
    (feed, *_) = head.follow(3)
    head.now += HOUR_S + 0.7
    decision = head.look(feed)
    assert decision.at == int(decision.at) > head.now
    assert decision.estimate.policy == "price"


def test_what_a_publisher_states_holds_and_is_the_reason(head):
    (feed, *_) = head.follow(3)
    head.now += HOUR_S
    decision = head.look(feed, bytes=0, ttl_s=20 * HOUR_S)
    assert decision.at == head.now + 20 * HOUR_S
    assert decision.reason == reason("ttl", interval_s=20 * HOUR_S)
    assert (decision.learned.stated_s, decision.learned.stated_by) == (20 * HOUR_S, TTL)


def test_a_failure_waits_for_its_backoff_and_says_why(head):
    (feed, *_) = head.follow(3)
    why = reason("backoff", error="timeout", failures=2, wait_s=2 * HOUR_S)
    decision = head.look(feed, ok=False, backoff_until=head.now + 2 * HOUR_S, failure=why)
    assert (decision.at, decision.reason) == (head.now + 2 * HOUR_S, why)
    assert decision.learned is None


def test_the_interval_that_subscribers_set_holds_at_once(head):
    (feed, *_) = head.follow(3, every_s=600.0)
    (again,) = head.brain.weigh({feed: 1.0}, {feed: 6 * HOUR_S}, head.now)
    assert again.next_poll_at >= head.now + 6 * HOUR_S
    assert again.reason.code == "min_interval_override"


def test_a_budget_that_cannot_be_spent_is_known_with_what_holds_it_back(tmp_path):
    head = Head(tmp_path, budget=Budget(500.0, True))
    head.follow(4)
    usable, held_back = head.brain.usable_budget
    assert held_back == 4
    assert 4 * 96 / 1.2 <= usable <= 4 * 96
    assert head.brain.policy.budget_per_day == pytest.approx(usable)
    head.close()


def test_hours_that_a_feed_closes_are_left_out(head):
    (feed, *_) = head.follow(3)
    closed = np.ones(168, dtype=bool)
    closed[100] = False
    decision = head.look(feed, skip=np.packbits(closed).tobytes())
    assert ((decision.at - MONDAY) // HOUR_S) % 168 == 100


def test_no_feed_is_forgotten(tmp_path):
    head = Head(tmp_path, budget=Budget(0.001, True))
    (feed, *_) = head.follow(2, posts=2, every_s=50 * DAY_S)
    decision = head.look(feed)
    assert decision.at <= head.now + 7 * DAY_S + 1
    assert decision.reason == reason("max_interval", interval_s=7 * DAY_S)
    head.close()


def test_feeds_that_come_later_are_taken_in_beside_the_others(head):
    old = head.follow(10)
    head.now += DAY_S
    new = head.follow(1)
    assert head.brain.policy.feeds.weight.shape == (11,)
    assert all(head.look(feed).reason.code != "new_feed" for feed in old + new)


def test_many_more_feeds_share_the_budget_from_then_on(tmp_path):
    head = Head(tmp_path, budget=Budget(40.0, False))
    feeds = head.follow(4)
    for _ in range(30):
        head.now += HOUR_S
        for feed in feeds:
            head.look(feed)
        if head.now >= head.brain.next_tick:
            head.wait(head.brain.tick(head.now))
    head.follow(6)
    price = head.brain.policy.control.price
    for _ in range(3):
        head.now = head.brain.next_tick
        head.wait(head.brain.tick(head.now))
    assert head.brain.policy.control.price < 1.01 * price  # what was spent before is not held against them
    head.close()


@pytest.mark.parametrize("policy", ["price", "moving-average", "min-delay"])
def test_a_killed_process_leaves_all_that_was_learned(tmp_path, policy):
    head = Head(tmp_path, policy=policy)
    feeds = head.follow(4)
    head.now += 2 * HOUR_S
    kept = {feed: head.look(feed) for feed in feeds}
    head.wait(head.store.save_estimates({feed: decision.estimate for feed, decision in kept.items()}))
    times = [head.wait(head.store.feed(feed)).state.next_poll_at for feed in feeds]
    head.reborn(policy)
    assert not head.brain.unsettled
    assert [head.wait(head.store.feed(feed)).state.next_poll_at for feed in feeds] == times
    if policy == "price":
        assert {f: head.brain.policy.save_row(row) for row, f in enumerate(feeds)} == {
            f: decision.estimate.state for f, decision in kept.items()
        }
    head.close()


def test_estimates_of_another_version_are_learned_anew(head):
    feeds = head.follow(3)
    head.wait(head.store.save_estimates({f: replace(head.look(f).estimate, state=b"old") for f in feeds}))
    head.reborn()
    assert head.brain.unsettled
    head.wait(head.brain.settle(head.store, head.now))
    assert not head.brain.unsettled


def test_what_was_spent_is_remembered_over_a_kill(head):
    head.follow(3)
    head.now += 1
    tokens = head.brain.bucket.tokens
    head.wait(head.brain.save(head.store, head.now))
    for _ in range(5):
        head.now += 1
        head.wait(head.store.record([PollOutcome(feed_id=1, at=head.now)]))
    head.reborn()
    assert head.brain.bucket.tokens == pytest.approx(tokens - 5, abs=0.1)


def test_feeds_that_were_added_meanwhile_bring_their_budget_along(head):
    head.reborn()
    head.wait(head.brain.save(head.store, head.now))  # nobody follows anything yet
    head.wait(head.store.add([Wanted(f"https://{i}.example/", head.now) for i in range(8)]))
    assert head.reborn().brain.bucket.available(head.now) == 48


def test_a_tick_decides_anew_where_the_price_has_fallen(head):
    head.follow(6)
    ticked = []
    for _ in range(12):
        head.now = head.brain.next_tick
        ticked += head.wait(head.brain.tick(head.now))
    assert head.brain.next_tick > head.now
    assert all(schedule.next_poll_at >= MONDAY for schedule in ticked)
    assert ticked


def test_a_retired_feed_is_not_decided_for(head):
    feeds = head.follow(4)
    head.brain.forget(feeds[0])
    schedules = []
    for _ in range(6):
        head.now = head.brain.next_tick
        schedules += head.wait(head.brain.tick(head.now))
    assert feeds[0] not in {schedule.feed_id for schedule in schedules}
    assert head.look(feeds[0]).reason.code == "new_feed"


def test_posts_that_come_by_push_make_polls_rarer(head):
    (feed, *_) = head.follow(4, every_s=HOUR_S * 6)
    head.now += HOUR_S
    before = head.look(feed).at
    head.brain.pushed(feed, 0.95)
    assert head.look(feed).at > before


@pytest.mark.parametrize("policy", ["price", "uniform"])
def test_another_budget_holds_at_once_and_for_the_next_process(tmp_path, policy):
    head = Head(tmp_path, policy=policy)
    ids = head.follow(12)
    head.now += HOUR_S
    before = [head.wait(head.store.feed(i)).state.next_poll_at for i in ids]
    head.wait(head.brain.change_budget(head.store, Budget(1.0, True), head.now))
    assert head.brain.next_tick <= head.now
    schedules = head.wait(head.brain.tick(head.now))
    if head.brain.unsettled:  # planned policies are started anew
        schedules = head.wait(head.brain.settle(head.store, head.now))
    assert len(schedules) == 12
    assert sum(s.next_poll_at for s in schedules) > sum(before) + 12 * 4 * HOUR_S
    assert head.brain.policy.budget_per_day == pytest.approx(12.0, rel=0.01)
    assert head.reborn(policy).brain.budget == Budget(1.0, True)
    assert head.reborn(policy, budget=Budget(7.0, True)).brain.budget == Budget(7.0, True)  # the configuration has spoken since
    head.close()
