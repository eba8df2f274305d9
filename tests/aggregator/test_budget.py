"""Token bucket and mean bytes per poll."""

from tests.trace_helpers import MONDAY
from tidings.aggregator.budget import MEAN_POLLS, MeanBytes, TokenBucket
from tidings.model import DAY_S, HOUR_S


def test_bucket_holds_one_day_and_refills_evenly():
    bucket = TokenBucket.full(240, MONDAY)
    assert bucket.available(MONDAY) == 240
    bucket.consume(240, MONDAY)
    assert bucket.available(MONDAY) == 0
    assert bucket.ready_at(MONDAY) == MONDAY + 360
    assert bucket.available(MONDAY + HOUR_S) == 10


def test_bucket_capacity_is_one_day():
    assert TokenBucket.full(240, MONDAY).available(MONDAY + 30 * DAY_S) == 240


def test_debt_of_manual_polls_is_limited_to_one_day():
    bucket = TokenBucket.full(24, MONDAY)
    bucket.consume(1000, MONDAY)
    assert bucket.available(MONDAY + DAY_S) == 0
    assert bucket.available(MONDAY + 1.5 * DAY_S) == 12


def test_larger_budget_is_available_immediately():
    bucket = TokenBucket.full(24, MONDAY)
    bucket.consume(24, MONDAY)
    bucket.set_budget(48, MONDAY)
    assert bucket.available(MONDAY) == 24


def test_mean_bytes_follow_recent_polls():
    assert MeanBytes().after([100, 300]) == MeanBytes(2, 200.0)
    assert MeanBytes().after([]) == MeanBytes()
    old = MeanBytes(10 * MEAN_POLLS, 1000.0)
    assert old.after([0] * MEAN_POLLS).mean == 500.0
