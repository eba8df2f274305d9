"""Tests of policy comparisons under the poll constraints of the service."""

import numpy as np
import pytest

from tests.trace_helpers import poisson_trace
from tidings.lab.compare import MIN_SCALE_BUDGETED, compare, run_policy
from tidings.lab.simulate import Conditions, simulate
from tidings.model import HOUR_S, MINUTE_S
from tidings.policy.constraints import Limits

HOURLY_LIMIT = Conditions(Limits(min_interval_s=HOUR_S))


@pytest.fixture(scope="module")
def trace():
    """Return feeds of very different rates, whose documents list all entries."""
    return poisson_trace(np.geomspace(0.1, 100, 30), 16, seed=1, window=5000)


@pytest.fixture
def scales(monkeypatch):
    """Return a list to which each simulated run appends its interval factor."""
    tried = []

    def recording_simulate(trace, policy, *arguments, **options):
        tried.append(policy.scale)
        return simulate(trace, policy, *arguments, **options)

    monkeypatch.setattr("tidings.lab.compare.simulate", recording_simulate)
    return tried


def shortest_gap_s(polls):
    feed, times = polls.feed, polls.times
    return np.diff(times)[feed[1:] == feed[:-1]].min()


@pytest.mark.parametrize(
    ("policy", "min_interval_s", "budget"),
    [
        ("price", HOUR_S, 12),
        ("combined", HOUR_S, 12),
        ("moving-average", HOUR_S, 12),
        ("uniform", 15 * MINUTE_S, 40),
        ("min-delay", 15 * MINUTE_S, 40),
    ],
)
def test_no_two_polls_of_a_feed_are_closer_than_the_minimum_interval(
    trace, policy, min_interval_s, budget
):
    conditions = Conditions(Limits(min_interval_s=min_interval_s))
    *_, served = run_policy(trace, policy, budget, trace.training_end(10), conditions=conditions)
    assert shortest_gap_s(served.polls) >= min_interval_s
    if policy in ("min-delay", "price"):  # whose polls go to the fast feeds
        *_, free = run_policy(trace, policy, budget, trace.training_end(10))
        assert shortest_gap_s(free.polls) < min_interval_s


@pytest.mark.parametrize("policy", ["uniform", "min-delay", "combined", "scheduling"])
def test_search_stops_where_constraints_keep_the_budget_out_of_reach(trace, scales, policy):
    """The poll constraints allow 20 to 24 polls per feed and day, so 24 cannot be reached."""
    compared = compare(trace, [policy], 24, 10, conditions=HOURLY_LIMIT)
    assert min(scales) >= MIN_SCALE_BUDGETED
    assert len(scales) <= 6
    (result,) = compared.results
    assert not result.reached_budget
    assert result.figures()["reached_budget"] is False
    assert 15 < result.figures()["polls_per_feed_day"] < 23


def test_search_of_a_policy_without_a_budget_stops_too(trace, scales):
    native, scaled = compare(trace, ["moving-average"], 40, 10, conditions=HOURLY_LIMIT).results
    assert len(scales) <= 8
    assert (native.policy, native.reached_budget) == ("moving-average@native", True)
    assert not scaled.reached_budget
    assert len(scaled.polls) > len(native.polls)


def test_a_policy_that_holds_its_budget_says_that_it_stays_below(trace):
    (low,) = run_policy(trace, "price", 12, trace.training_end(10), conditions=HOURLY_LIMIT)
    (high,) = run_policy(trace, "price", 24, trace.training_end(10), conditions=HOURLY_LIMIT)
    assert low.reached_budget
    assert not high.reached_budget


@pytest.mark.parametrize("policy", ["combined", "min-delay", "fixed-learned"])
def test_budgets_in_reach_are_reached_as_served(trace, policy):
    """Constraints limit the fast feeds, so a smaller factor gives more polls to the others."""
    compared = compare(trace, [policy], 12, 10, native=False, conditions=HOURLY_LIMIT)
    (result,) = compared.results
    assert result.reached_budget
    assert result.figures()["polls_per_feed_day"] == pytest.approx(12, rel=0.005)
    assert compared.figures()["min_interval_s"] == HOUR_S
