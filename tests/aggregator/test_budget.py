"""Requests cannot run away."""

from tests.trace_helpers import MONDAY
from tidings.aggregator.budget import MEAN_POLLS, MeanBytes, TokenBucket
from tidings.model import DAY_S, HOUR_S


def test_a_day_of_requests_may_be_spent_at_once_and_then_as_they_come():
    bucket = TokenBucket.full(240, MONDAY)
    assert bucket.available(MONDAY) == 240
    bucket.consume(240, MONDAY)
    assert bucket.available(MONDAY) == 0
    assert bucket.ready_at(MONDAY) == MONDAY + 360
    assert bucket.available(MONDAY + HOUR_S) == 10


def test_no_more_than_a_day_is_saved_up():
    assert TokenBucket.full(240, MONDAY).available(MONDAY + 30 * DAY_S) == 240


def test_what_is_asked_by_hand_is_paid_back_but_not_for_ever():
    bucket = TokenBucket.full(24, MONDAY)
    bucket.consume(1000, MONDAY)
    assert bucket.available(MONDAY + DAY_S) == 0
    assert bucket.available(MONDAY + 1.5 * DAY_S) == 12


def test_a_larger_budget_counts_at_once():
    bucket = TokenBucket.full(24, MONDAY)
    bucket.consume(24, MONDAY)
    bucket.set_budget(48, MONDAY)
    assert bucket.available(MONDAY) == 24


def test_the_mean_transfer_follows_the_polls():
    assert MeanBytes().after([100, 300]) == MeanBytes(2, 200.0)
    assert MeanBytes().after([]) == MeanBytes()
    old = MeanBytes(10 * MEAN_POLLS, 1000.0)
    assert old.after([0] * MEAN_POLLS).mean == 500.0
