"""Tests of the clairvoyant bound, compared with all plans and with policies."""

import itertools

import numpy as np
import pytest

from tests.trace_helpers import poisson_trace, score_brute_force, trace_of
from tidings.lab.lower_bound import clairvoyant_bound
from tidings.lab.score import metrics, score_polls
from tidings.lab.simulate import simulate
from tidings.lab.traces import UNLIMITED
from tidings.policy import make_policy


def every_plan(posts, window, end, charge):
    """Return the lowest cost of one feed with exactly 0, 1, 2, ... polls.

    Every subset of its posting instants is tried.
    """
    trace = trace_of(posts, window=window)
    instants = sorted(set(posts))
    best = []
    for m in range(len(instants) + 1):
        costs = []
        for plan in itertools.combinations(instants, m):
            scores = score_brute_force(trace, {0: list(plan)}, end=end, start=0.0)
            costs.append(sum(c if d is not None else c - 86400 + charge for _, d, c in scores))
        best.append(min(costs))
    return best


@pytest.mark.parametrize("seed", range(25))
def test_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    feeds = [np.sort(rng.integers(0, 40, rng.integers(0, 6))).tolist() for _ in range(3)]
    feeds[0] = feeds[0] or [7]
    windows = rng.integers(1, 4, 3)
    trace = trace_of(*feeds, window=windows)
    end, charge = 45.0, float(rng.choice([0, 10, 500]))
    for with_windows in (False, True):
        curves = [
            every_plan(posts, int(w) if with_windows else UNLIMITED, end, charge)
            if posts
            else [0.0]
            for posts, w in zip(feeds, windows, strict=True)
        ]
        for polls in range(sum(len(c) for c in curves)):
            plans = itertools.product(*(range(len(c)) for c in curves))
            brute = min(
                sum(c[m] for c, m in zip(curves, plan, strict=True))
                for plan in plans
                if sum(plan) <= polls
            )
            limit = clairvoyant_bound(
                trace, polls, windows=with_windows, start=0.0, end=end, miss_charge_s=charge
            )
            assert limit.mean_s * limit.posts == pytest.approx(brute, abs=1e-6)


def test_fractional_polls_are_interpolated():
    trace = trace_of([0, 10, 30, 70, 150])
    whole = [clairvoyant_bound(trace, m, windows=False).mean_s for m in (1, 2)]
    assert clairvoyant_bound(trace, 1.5, windows=False).mean_s == pytest.approx(sum(whole) / 2)


def test_weights_shift_the_polls():
    trace = trace_of([0, 50], [0, 50], [100])
    trace.weight[:] = [1.0, 9.0, 1.0]
    # One poll: at the heavy feed's first post, which otherwise waits 100 s with weight 9 (its
    # second waits 50).
    assert clairvoyant_bound(trace, 1, windows=False).mean_s == pytest.approx(
        (9 * 50 + 100 + 50) / (2 * 9 + 2 + 1)
    )


def test_enough_polls_leave_no_delay():
    trace = poisson_trace([3.0] * 5, 10)
    assert clairvoyant_bound(trace, trace.n_posts, windows=True).mean_s == pytest.approx(
        0, abs=1e-9
    )


@pytest.mark.parametrize(
    "policy", ["uniform", "combined", "min-missing", "moving-average", "adaptive-ttl"]
)
def test_no_policy_beats_lower_bound(policy):
    trace = poisson_trace(np.array([0.3, 2.0, 20.0] * 8), 40, seed=2, window=8)
    start = trace.training_end(14)
    polls = simulate(trace, make_policy(policy), 1.0, start)
    figures = metrics(score_polls(trace, polls, start))
    assert (
        clairvoyant_bound(trace, len(polls), windows=False, start=start).mean_s
        <= figures["mean_delay_s"]
        or figures["missed"]
    )
    assert (
        clairvoyant_bound(trace, len(polls), windows=True, start=start).mean_s
        <= figures["charged_delay_s"]
    )
