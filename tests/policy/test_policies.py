"""Properties of all registered policies, and the effect of poll constraints on them."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, poisson_trace, trace_of
from tidings.errors import UsageError
from tidings.lab.simulate import budget_polls, simulate
from tidings.model import DAY_S, HOUR_S
from tidings.policy import POLICIES, Feeds, make_policy
from tidings.policy.base import clamp, golden_ratio_phases, hour_of_week
from tidings.reasons import render

RATES = np.array([0.0, 0.05, 0.5, 2.0, 8.0, 30.0] * 10)


@pytest.fixture(scope="module")
def trace():
    return poisson_trace(RATES, 42, seed=5)


def started_policy(spec, trace):
    policy = make_policy(spec)
    start = trace.training_end(14)
    policy.start(
        Feeds.of(trace.window), trace.history(start), trace.start, start, 2.0 * trace.n_feeds
    )
    return policy, start


@pytest.mark.parametrize("name", POLICIES)
def test_decisions_are_in_the_future_and_have_reasons(name, trace):
    policy, start = started_policy(name, trace)
    rows = np.arange(trace.n_feeds)
    now = np.full(trace.n_feeds, start)
    for first in (True, False):
        decided = policy.decide(rows, now, first=first)
        assert np.all(decided.times >= now)
        for code, numbers in zip(decided.code[:6], decided.numbers[:6], strict=True):
            text = render(policy.reason(int(code), numbers))
            assert len(text) > 20
            assert "nan" not in text


@pytest.mark.parametrize("name", POLICIES)
def test_same_seed_gives_same_polls(name, trace):
    start = trace.training_end(35)
    one, two = (simulate(trace, make_policy(name, seed=3), 2.0, start, seed=3) for _ in range(2))
    assert np.array_equal(one.times, two.times)
    assert np.array_equal(one.offsets, two.offsets)


@pytest.mark.parametrize("name", POLICIES)
def test_saved_and_loaded_row_gives_same_decision(name, trace):
    policy, start = started_policy(name, trace)
    other, _ = started_policy(name, trace)
    other.state[:] = np.zeros(1, dtype=other.row_dtype)
    for row in range(trace.n_feeds):
        other.load_row(row, policy.save_row(row))
    rows, now = np.arange(trace.n_feeds), np.full(trace.n_feeds, start + HOUR_S)
    assert np.array_equal(policy.decide(rows, now).times, other.decide(rows, now).times)


@pytest.mark.parametrize("name", [name for name, policy in POLICIES.items() if policy.budgeted])
@pytest.mark.parametrize("budget", [0.3, 1.0, 5.5])
def test_budgeted_policy_spends_its_budget(name, budget, trace):
    start = trace.training_end(14)
    polls = simulate(trace, make_policy(name), budget, start)
    # A policy that controls its spending may deviate by a fraction of a poll per feed in this time.
    slack = 0.3 * trace.n_feeds if POLICIES[name].holds_budget else 0.0
    assert len(polls) == pytest.approx(budget_polls(trace, budget, start), rel=0.02, abs=slack)


@pytest.mark.parametrize("name", ["min-delay", "combined", "min-missing"])
def test_refitting_follows_rate_change(name):
    """One of ten feeds starts posting after the training period; refitting gives it more polls."""
    rates = np.full(10, 3.0)
    rates[0] = 0.0
    before, after = (
        poisson_trace(rates, 14, seed=1),
        poisson_trace(np.where(rates == 0, 40.0, 3.0), 28, seed=2),
    )
    feeds = [
        np.concatenate(
            [
                before.times[before.offsets[f] : before.offsets[f + 1]] - MONDAY,
                after.times[after.offsets[f] : after.offsets[f + 1]] - MONDAY + 14 * DAY_S,
            ]
        )
        for f in range(10)
    ]
    trace = trace_of(*feeds, window=12, start=MONDAY)
    start = MONDAY + 14 * DAY_S
    static = simulate(trace, make_policy(name), 4.0, start)
    fresh = simulate(trace, make_policy(f"{name}:refit_days=1"), 4.0, start)
    assert np.diff(fresh.offsets)[0] > 2 * np.diff(static.offsets)[0]
    assert len(fresh) == pytest.approx(len(static), rel=0.03)


def test_optimal_times_are_used(trace):
    """A feed that posts only from 9:00 to 10:00 is polled at 10:00 every day."""
    posts = [d * DAY_S + 9 * HOUR_S + m * 60 for d in range(28) for m in range(0, 60, 5)]
    clock = trace_of(posts, window=20, start=MONDAY)
    polls = simulate(clock, make_policy("scheduling"), 1.0, clock.training_end(14))
    assert set(((polls.times % DAY_S) / HOUR_S).tolist()) == {10.0}


def test_golden_ratio_phases_are_evenly_distributed():
    phases = np.sort(golden_ratio_phases(1000, seed=4))
    assert np.diff(phases).max() < 0.004
    assert len(np.unique(np.round(phases, 6))) == 1000


def test_clamp_moves_polls_to_allowed_times():
    feeds = Feeds.of(np.full(4, 10))
    now = np.full(4, MONDAY)
    feeds.earliest[1] = MONDAY + 5 * HOUR_S
    feeds.max_interval_s[2] = HOUR_S
    feeds.skip = np.zeros((4, 168), dtype=bool)
    feeds.skip[3, 2:9] = True
    times = clamp(feeds, np.arange(4), now, np.full(4, MONDAY + 2.5 * HOUR_S))
    assert ((times - MONDAY) / HOUR_S).tolist() == [2.5, 5.0, 1.0, 9.0]


@pytest.mark.parametrize(
    "name", ["uniform", "scheduling", "min-delay", "combined", "min-missing", "cgm-age"]
)
def test_planned_policies_refit_daily_in_the_service(name):
    assert make_policy(name).refit_days == 0
    assert make_policy(name, live=True).refit_days == 1
    assert make_policy(f"{name}:refit_days=7", live=True).refit_days == 7


def test_hour_of_week_starts_on_monday():
    assert hour_of_week(np.array([MONDAY, MONDAY + 25 * HOUR_S, MONDAY - 1])).tolist() == [
        0,
        25,
        167,
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("best", "choose from"),
        ("uniform:color=red", "no parameter"),
        ("fixed:interval_h=soon", "not a float"),
        ("freshness-rate:literal=perhaps", "not a bool"),
        ("uniform:scale", "no parameter"),
    ],
)
def test_invalid_specification_is_rejected_with_choices(spec, message):
    with pytest.raises(UsageError, match=message):
        make_policy(spec)
