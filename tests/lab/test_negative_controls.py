"""Tests that no policy gains on data without a pattern; a gain would show a leak of data."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, poisson_trace, trace_of
from tidings.lab.compare import compare
from tidings.lab.evaluate import OURS, PAPER_POLICIES
from tidings.lab.traces import UNLIMITED, Trace
from tidings.model import DAY_S, HOUR_S


def charged_delays(trace, policies, budget, train_days=28):
    """Return the charged delay of each policy with the same number of polls."""
    compared = compare(trace, policies, budget, train_days, native=False)
    return {result.policy: result.figures()["charged_delay_s"] for result in compared.results}


def test_homogeneous_poisson_leaves_nothing_but_the_root_rule():
    """Square-root allocation is optimal here, so `price` may be at most 3 % worse (noise).

    Only a policy that sees the future could be better.
    """
    rates = np.random.default_rng(2).lognormal(0.5, 1.0, 400)
    trace = poisson_trace(rates, 84, seed=11, window=10_000)
    delay = charged_delays(trace, ["min-delay", "price"], 2.0)
    assert 0.985 < delay["price"] / delay["min-delay"] < 1.03


def weekly_trace(feeds=100, days=70, seed=0):
    """Return feeds that post in office hours on two weekdays, which differ between feeds.

    All feeds post about equally often.
    """
    rng = np.random.default_rng(seed)
    posts = []
    for _ in range(feeds):
        mine = rng.choice(7, 2, replace=False)
        active = np.flatnonzero(np.isin(np.arange(days) % 7, mine))
        counts = rng.poisson(rng.lognormal(1.2, 0.2), len(active))
        day = np.repeat(active, counts)
        posts.append(np.sort(day * DAY_S + np.floor((8 + 10 * rng.random(len(day))) * HOUR_S)))
    return trace_of(*posts, window=UNLIMITED, start=MONDAY)


def shuffled_days(trace: Trace, seed=0):
    """Return a trace in which the days of each feed are in random order.

    Hours of the day and daily counts stay the same, and the weekly pattern disappears.
    """
    rng = np.random.default_rng(seed)
    days = int(np.ceil((trace.end - MONDAY) / DAY_S))
    order = np.argsort(rng.random((trace.n_feeds, days)), axis=1)
    day, within = np.divmod(trace.times - MONDAY, DAY_S)
    times = MONDAY + order[trace.feed_of_post, day.astype(np.int64)] * DAY_S + within
    return Trace.build("shuffled", trace.feed_of_post, times, trace.window)


def test_shuffled_days_take_the_weekly_gain_away():
    """`price` is better than `scheduling` only by the weekly pattern.

    `scheduling` knows the hours of the day and gives all feeds the same number of polls.
    """
    trace = weekly_trace()
    real, shuffled = (
        charged_delays(t, ["scheduling", "price"], 1.0) for t in (trace, shuffled_days(trace))
    )
    assert real["price"] / real["scheduling"] < 0.7
    assert shuffled["price"] / shuffled["scheduling"] > 0.97


@pytest.mark.parametrize("policy", [*PAPER_POLICIES, "cgm-freshness", OURS])
def test_unlimited_windows_miss_nothing(policy):
    trace = poisson_trace(np.geomspace(0.5, 40, 30), 42, seed=3, window=UNLIMITED)
    compared = compare(trace, [policy], 0.5, 28, native=True)
    for result in compared.results:
        assert not result.scores.missed.any()
        assert np.isfinite(result.scores.delay_s).all()
