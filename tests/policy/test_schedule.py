"""Poll schedule: examples of Sia & Cho, brute force, and agreement of the three methods."""

import itertools

import numpy as np
import pytest

from tidings.errors import UsageError
from tidings.policy.schedule import (
    METHODS,
    DailyPattern,
    dense_times,
    dp_times,
    even_times,
    exhaustive_times,
    expected_delay_h,
    iterative_times,
    optimal_times_up_to,
    refine_times_newton,
    theorem3_residual,
)


def half_day_pattern():
    """Example 1 scaled to a day: posts in the first twelve hours only (1 unit = 12 h)."""
    return DailyPattern(np.repeat([1 / 12, 0.0], 12))


def test_sia_cho_example_1():
    pattern = half_day_pattern()
    for method in METHODS.values():
        assert method(pattern, 1).tolist() == [12.0]
    assert expected_delay_h(pattern, np.array([12.0])) / 12 == pytest.approx(0.5)
    assert expected_delay_h(pattern, np.array([0.0])) / 12 == pytest.approx(1.5)


# Example 2: lambda(t) = 2 + 2 sin(2 pi t), T = 1, with its integral A and A's integral Q.


def rate(t):
    return 2 + 2 * np.sin(2 * np.pi * t)


def mass(t):
    return 2 * t + (1 - np.cos(2 * np.pi * t)) / np.pi


def area(t):
    return t * t + t / np.pi - np.sin(2 * np.pi * t) / (2 * np.pi**2)


def delay(tau):
    following = np.append(tau[1:], tau[0] + 1)
    return float((area(following) - area(tau) - mass(tau) * (following - tau)).sum())


EXAMPLE_2 = {
    1: ([0.5], 0.681690),
    2: ([0.27362, 0.56753], 0.366287),
    3: ([0.17614, 0.37494, 0.59898], 0.251427),
    4: ([0.11860, 0.27721, 0.42965, 0.61822], 0.191611),
    6: ([0.05070, 0.17084, 0.27481, 0.37774, 0.49144, 0.64152], 0.129948),
}


@pytest.mark.parametrize("polls", EXAMPLE_2)
def test_sia_cho_example_2(polls):
    hourly = np.diff(mass(np.arange(25) / 24))
    start = dp_times(DailyPattern(hourly), polls) / 24
    tau = refine_times_newton(rate, mass, start, 1.0)
    times, expected = EXAMPLE_2[polls]
    assert tau == pytest.approx(times, abs=5e-5)
    assert delay(tau) == pytest.approx(expected, abs=5e-5)
    assert np.abs(theorem3_residual(rate, mass, tau, 1.0)).max() < 1e-6


@pytest.mark.parametrize("polls", [2, 3, 4, 6])
def test_evenly_spaced_times_of_example_2_cost_one_over_m_at_any_phase(polls):
    for phase in (0.0, 0.3, 0.77):
        assert delay((np.arange(polls) + phase) / polls) == pytest.approx(1 / polls)


def test_theorem_3_residual_is_large_away_from_optimum():
    assert np.abs(theorem3_residual(rate, mass, np.array([0.1, 0.6]), 1.0)).max() > 0.1


def random_pattern(rng):
    """Return a random pattern with or without peaks and hours without posts."""
    return DailyPattern(
        rng.exponential(size=24) ** rng.choice([1, 2]) * (rng.random(24) < rng.choice([1.0, 0.6]))
    )


@pytest.mark.parametrize("polls", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_dynamic_programming_equals_brute_force(polls, seed):
    pattern = random_pattern(np.random.default_rng(seed))
    brute = min(
        expected_delay_h(pattern, np.array(c) / 2) for c in itertools.combinations(range(48), polls)
    )
    assert expected_delay_h(pattern, dp_times(pattern, polls)) == pytest.approx(brute, rel=1e-9)


def test_dynamic_programming_equals_brute_force_for_four_polls():
    """Compare with all 48 choose 4 plans."""
    pattern = random_pattern(np.random.default_rng(11))
    slots = np.arange(97) / 2
    i, j = np.meshgrid(np.arange(97), np.arange(97), indexing="ij")
    gap = np.where(j > i, pattern.delay(slots[i], slots[np.maximum(i, j)]), np.inf)
    plans = np.array(list(itertools.combinations(range(48), 4)))
    costs = (
        sum(gap[plans[:, k], plans[:, k + 1]] for k in range(3))
        + gap[plans[:, 3], plans[:, 0] + 48]
    )
    assert expected_delay_h(pattern, dp_times(pattern, 4)) == pytest.approx(costs.min(), rel=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_the_three_methods_agree(seed):
    pattern = random_pattern(np.random.default_rng(100 + seed))
    for polls in (1, 2, 3, 4, 5):
        best = expected_delay_h(pattern, dp_times(pattern, polls))
        assert expected_delay_h(pattern, exhaustive_times(pattern, polls)) == pytest.approx(
            best, rel=1e-9
        )
        assert expected_delay_h(pattern, iterative_times(pattern, polls)) == pytest.approx(
            best, rel=1e-9
        )


def test_delay_equals_numerical_integral():
    pattern = random_pattern(np.random.default_rng(5))
    times = np.array([2.25, 9.5, 17.75])
    t = (np.arange(240_000) + 0.5) / 10_000
    following = np.append(times, times[0] + 24)[np.searchsorted(times, t)]
    numeric = (pattern.hourly[t.astype(int)] * (following - t)).sum() / 10_000
    assert expected_delay_h(pattern, times) == pytest.approx(numeric, rel=1e-6)


def test_delay_is_decreasing_and_convex_in_polls():
    pattern = random_pattern(np.random.default_rng(7))
    cost = [expected_delay_h(pattern, times) for times in optimal_times_up_to(pattern, 48)]
    assert np.all(np.diff(cost) <= 1e-9)
    assert np.all(np.diff(cost, 2) >= -1e-9)


def test_dense_times_approach_optimum_and_beat_even_spacing():
    pattern = DailyPattern(1 + np.sin(2 * np.pi * (np.arange(24) + 0.5) / 24))
    dense = expected_delay_h(pattern, dense_times(pattern, 200))
    assert dense < expected_delay_h(pattern, even_times(200))
    # High-resolution limit: (int sqrt lambda)^2 / (2 m).
    assert dense == pytest.approx(np.sqrt(pattern.hourly).sum() ** 2 / 400, rel=0.02)


def test_day_without_posts_has_no_delay():
    assert expected_delay_h(DailyPattern(np.zeros(24)), np.array([3.0])) == 0


@pytest.mark.parametrize("method", METHODS.values())
def test_polls_must_fit_the_grid(method):
    with pytest.raises(UsageError, match="between 1 and 48"):
        method(DailyPattern(np.ones(24)), 49)


def test_exhaustive_search_with_too_many_polls_is_rejected():
    with pytest.raises(UsageError, match="use the method dp"):
        exhaustive_times(DailyPattern(np.ones(24)), 13)


@pytest.mark.parametrize("hourly", [np.ones(23), np.full(24, np.nan), -np.ones(24)])
def test_daily_pattern_requires_24_rates(hourly):
    with pytest.raises(UsageError, match="24 hourly rates"):
        DailyPattern(hourly)
