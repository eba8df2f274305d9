"""Negative controls: where there is nothing to know, knowing must gain nothing. A gain here would
be a leak or a mistake.
"""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, poisson_trace, trace_of
from tidings.lab.compare import compare
from tidings.lab.evaluate import OURS, PAPER_POLICIES
from tidings.lab.traces import UNLIMITED, Trace
from tidings.model import DAY_S, HOUR_S


def charged_delays(trace, policies, budget, train_days=28):
    """Charged delay of each policy at the same polls."""
    compared = compare(trace, policies, budget, train_days, native=False)
    return {result.policy: result.figures()["charged_delay_s"] for result in compared.results}


def test_homogeneous_poisson_leaves_nothing_but_the_root_rule():
    """Evenly spaced root allocation is optimal among all policies that cannot see the future; ours
    may lose 3 % to noise.
    """
    rates = np.random.default_rng(2).lognormal(0.5, 1.0, 400)
    trace = poisson_trace(rates, 84, seed=11, window=10_000)
    delay = charged_delays(trace, ["min-delay", "price"], 2.0)
    assert 0.985 < delay["price"] / delay["min-delay"] < 1.03


def weekly_trace(feeds=100, days=70, seed=0):
    """Feeds that post on two days of the week of their own, at office hours, all about equally
    often.
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
    """Every feed's days in an order of their own: hours of the day and days' counts stay, days of
    the week go.
    """
    rng = np.random.default_rng(seed)
    days = int(np.ceil((trace.end - MONDAY) / DAY_S))
    order = np.argsort(rng.random((trace.n_feeds, days)), axis=1)
    day, within = np.divmod(trace.times - MONDAY, DAY_S)
    times = MONDAY + order[trace.feed_of_post, day.astype(np.int64)] * DAY_S + within
    return Trace.build("shuffled", trace.feed_of_post, times, trace.window)


def test_shuffled_days_take_the_weekly_gain_away():
    """`scheduling` knows the hours of the day and gives all feeds the same: the week is all that is
    left to gain.
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
