"""Adaptive policies: Urbansky et al., FeedEx's rule in both directions, simple baselines."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, document
from tidings.errors import UsageError
from tidings.model import DAY_S, HOUR_S, MINUTE_S
from tidings.policy import Feeds, make_policy
from tidings.policy.adaptive import time_to_expect

ROW = np.array([0])


def started_policy(spec, *history, now=1000.0, window=5, since=0.0):
    policy = make_policy(spec)
    policy.start(Feeds.of([window]), document(*history), since, now, 1.0)
    return policy


def interval(policy, now):
    return float(policy.decide(ROW, np.array([now])).times[0] - now)


def poll_interval(policy, now, *entries, new):
    policy.observe(ROW, np.array([now]), document(*entries, new=new))
    return interval(policy, now)


HOURS = [h * HOUR_S for h in (0, 2, 3, 5, 8)]


def test_fixed_keeps_its_interval():
    assert interval(started_policy("fixed:interval_h=24"), 5.0) == DAY_S


def test_fixed_learned_interval_is_mean_gap_of_first_document():
    policy = started_policy("fixed-learned", *HOURS)
    assert interval(policy, 9 * HOUR_S) == 2 * HOUR_S  # Eq. 1: (8 - 0) / (5 - 1) hours
    # One entry has no gap: the default is one hour.
    assert interval(started_policy("fixed-learned", 7.0), 10.0) == HOUR_S


def test_moving_average_with_new_entries_is_equation_1():
    policy = started_policy("moving-average", *HOURS)
    shifted = [h * HOUR_S for h in (2, 3, 5, 8, 9)]
    assert poll_interval(policy, 9.5 * HOUR_S, *shifted, new=1) == pytest.approx(7 / 4 * HOUR_S)


def test_moving_average_without_new_entries_is_equation_2():
    policy = started_policy("moving-average", *HOURS)
    # u - (i_1 - i_0) / (w - 1) + (p - i_{w-1}) / (w - 1) with u = 2 h, p = 12 h.
    assert poll_interval(policy, 12 * HOUR_S, *HOURS, new=0) == pytest.approx(
        (2 - 2 / 4 + (12 - 8) / 4) * HOUR_S
    )


def test_moving_average_interval_grows_with_repeated_empty_polls():
    policy = started_policy("moving-average", *HOURS)
    first = poll_interval(policy, 20 * HOUR_S, *HOURS, new=0)
    later = poll_interval(policy, 100 * HOUR_S, *HOURS, new=0)
    assert first == pytest.approx((20 - 2) / 4 * HOUR_S)
    assert later == pytest.approx((100 - 2) / 4 * HOUR_S)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ((), 31 * DAY_S),
        ((5.0,), HOUR_S / 2),
        ((5.0, 5.0, 5.0), 31 * DAY_S),
        ((5.0, 6.0), 2 * MINUTE_S),
    ],
)
def test_moving_average_edge_cases(entries, expected):
    policy = started_policy("moving-average", *HOURS)
    assert poll_interval(policy, 10.0, *entries, new=len(entries)) == expected


def test_post_rate_waits_for_one_expected_post():
    nine_every_day = [MONDAY + d * DAY_S + 9 * HOUR_S for d in range(10)]
    policy = started_policy(
        "post-rate", *nine_every_day, since=MONDAY, now=MONDAY + 10 * DAY_S, window=10
    )
    # The post of the hour from 9:00 is expected by 10:00.
    assert interval(policy, MONDAY + 10 * DAY_S) == pytest.approx(10 * HOUR_S)


def test_post_rate_interval_grows_when_feed_stops_posting():
    daily = [MONDAY + d * DAY_S + 9 * HOUR_S for d in range(10)]
    policy = started_policy("post-rate", *daily, since=MONDAY, now=MONDAY + 10 * DAY_S, window=10)
    before = interval(policy, MONDAY + 10 * DAY_S)
    after = poll_interval(policy, MONDAY + 40 * DAY_S, *daily, new=0)
    assert after > 3 * before


def test_time_to_expect_equals_sum_over_minutes():
    rng = np.random.default_rng(0)
    per_hour = rng.gamma(0.3, 0.3, (40, 24))
    now = MINUTE_S * rng.integers(0, 3 * 1440, 40)
    waits = time_to_expect(per_hour, now, 1.0, 31 * DAY_S)
    for rates, start, wait in zip(per_hour, now, waits, strict=True):
        minutes = start + MINUTE_S * np.arange(31 * 1440)
        expected = np.cumsum(rates[((minutes % DAY_S) // HOUR_S).astype(int)]) / 60
        slow = MINUTE_S * (np.searchsorted(expected, 1.0) + 1)
        assert wait == pytest.approx(min(slow, 31 * DAY_S), abs=1.01 * MINUTE_S)


def test_freshness_rate_corrected_doubles_interval_when_few_entries_are_new():
    policy = started_policy("freshness-rate:target=0.5", *HOURS)
    assert poll_interval(policy, 1.0, *HOURS, new=0) == 2 * HOUR_S
    assert poll_interval(policy, 2.0, *HOURS, new=5) == HOUR_S


def test_freshness_rate_as_printed_reaches_its_bounds():
    policy = started_policy("freshness-rate:target=0.5:literal=true", *HOURS)
    intervals = [poll_interval(policy, float(n), *HOURS, new=0) for n in range(4)]
    # A feed without new posts is polled at the minimum interval.
    assert intervals == [HOUR_S / 2, HOUR_S / 4, HOUR_S / 4, HOUR_S / 4]
    assert poll_interval(policy, 9.0, *HOURS, new=5) == HOUR_S / 2


def test_adaptive_ttl_interval_is_share_of_newest_entry_age():
    assert poll_interval(
        started_policy("adaptive-ttl", *HOURS), 18 * HOUR_S, *HOURS, new=0
    ) == pytest.approx(0.2 * 10 * HOUR_S)


def test_lru_2_interval_is_newest_gap():
    assert poll_interval(started_policy("lru-2", *HOURS), 9 * HOUR_S, *HOURS, new=0) == 3 * HOUR_S


def test_individual_history_does_not_learn_from_polls():
    daily = [MONDAY + d * DAY_S + 9 * HOUR_S for d in range(10)]
    policy = started_policy(
        "individual-history", *daily, since=MONDAY, now=MONDAY + 10 * DAY_S, window=10
    )
    assert poll_interval(policy, MONDAY + 40 * DAY_S, *daily, new=0) == pytest.approx(10 * HOUR_S)


def test_scale_multiplies_every_interval():
    assert interval(started_policy("fixed-learned:scale=3", *HOURS), 0.0) == 6 * HOUR_S


@pytest.mark.parametrize(
    "spec",
    ["fixed:interval_h=0", "post-rate:target=-1", "freshness-rate:target=2", "uniform:scale=0"],
)
def test_invalid_parameters_are_rejected(spec):
    with pytest.raises(UsageError):
        make_policy(spec)
