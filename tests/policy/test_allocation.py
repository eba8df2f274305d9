"""Budget allocation: worked examples of the papers, and independent computations."""

import itertools

import numpy as np
import pytest

from tidings.errors import UsageError
from tidings.policy.allocation import (
    ALLOCATIONS,
    allocate,
    integer_polls,
    min_missing,
    posts_missed,
)

RATES = np.array([30.0, 30.0, 10.0, 10.0])
WINDOWS = np.array([15, 10, 10, 5])


def test_han_example_2_table_1():
    fractional = allocate("min-delay", RATES, 8)
    assert fractional == pytest.approx(
        [2.535898385, 2.535898385, 1.464101615, 1.464101615], abs=5e-10
    )
    assert (fractional[0] / np.sqrt(30)) == pytest.approx(0.4629896, abs=5e-8)
    assert integer_polls(fractional, 8).tolist() == [3, 3, 1, 1]
    assert allocate("min-delay", RATES, 8, integer=True).tolist() == [3, 3, 1, 1]


@pytest.mark.parametrize(
    ("policy", "polls", "missed"),
    [
        ("uniform", [2, 2, 2, 2], [0, 10, 0, 0]),
        ("min-delay", [3, 3, 1, 1], [0, 0, 0, 5]),
        ("min-missing", [2, 3, 1, 2], [0, 0, 0, 0]),
    ],
)
def test_han_example_3_table_2(policy, polls, missed):
    allocated = allocate(policy, RATES, 8, windows=WINDOWS, integer=True)
    assert allocated.tolist() == polls
    assert posts_missed(RATES, WINDOWS, allocated).tolist() == missed


def test_han_table_3_row_by_row():
    rows = [
        [1, 0, 0, 0],
        [2, 0, 0, 0],
        [2, 1, 0, 0],
        [2, 2, 0, 0],
        [2, 3, 0, 0],
        [2, 3, 1, 0],
        [2, 3, 1, 1],
        [2, 3, 1, 2],
    ]
    for budget, row in enumerate(rows, start=1):
        assert allocate("min-missing", RATES, budget, windows=WINDOWS).tolist() == row


def test_han_refill_restarts_when_no_posts_are_left():
    assert allocate("min-missing", RATES, 16, windows=WINDOWS).tolist() == [4, 6, 2, 4]


def test_rounding_removes_the_gain_in_han_example_3():
    for policy in ("uniform", "min-delay", "min-missing"):
        polls = allocate(policy, RATES, 8, windows=WINDOWS, integer=True)
        assert (RATES / (2 * polls)).sum() == pytest.approx(20)
    assert (RATES / (2 * allocate("min-delay", RATES, 8))).sum() == pytest.approx(18.66, abs=0.005)


def greedy_min_missing(rates, weights, windows, budget):
    """Han et al. Fig. 8 step by step, with the refill that the text describes."""
    left, polls = rates.copy(), np.zeros(len(rates))
    for _ in range(budget):
        if left.sum() <= 0:
            left = rates.copy()
        gain = weights * np.minimum(left, windows)
        best = int(np.argmax(gain))
        left[best] -= min(left[best], windows[best])
        polls[best] += 1
    return polls


@pytest.mark.parametrize("seed", range(20))
def test_min_missing_equals_listing_of_han_fig_8(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    rates, windows = rng.integers(0, 40, n).astype(float), rng.integers(1, 16, n)
    rates[0] += 1
    weights = rng.choice([1.0, 1.0, 2.0], n)
    for budget in (1, 3, 10, 57):
        expected = greedy_min_missing(rates, weights, windows, budget)
        assert min_missing(rates, weights, windows, budget).tolist() == expected.tolist()


CGM03_RATES = np.arange(1.0, 6.0)


@pytest.mark.parametrize(
    ("policy", "polls"),
    [
        ("cgm-freshness", [1.150, 1.358, 1.354, 1.138, 0.0]),
        ("cgm-age", [0.835, 0.968, 1.034, 1.071, 1.093]),
        ("min-delay", [0.596, 0.844, 1.033, 1.193, 1.334]),
    ],
)
def test_cgm03_five_elements(policy, polls):
    assert allocate(policy, CGM03_RATES, 5) == pytest.approx(polls, abs=6e-4)


@pytest.mark.parametrize("policy", ["cgm-freshness", "cgm-age"])
def test_cgm03_is_optimal(policy):
    """Moving a small amount between any two feeds does not improve the objective."""

    def objective(f):
        r = CGM03_RATES / np.maximum(f, 1e-12)
        if policy == "cgm-freshness":
            return -(-np.expm1(-r) / r).sum()
        return ((1 / f) * (0.5 - 1 / r - np.expm1(-r) / r**2)).sum()

    best = allocate(policy, CGM03_RATES, 5)
    for i, j in itertools.permutations(range(5), 2):
        moved = best.copy()
        step = min(1e-3, moved[i])
        moved[i] -= step
        moved[j] += step
        assert objective(moved) >= objective(best) - 1e-9


def test_min_delay_is_optimal_with_weights():
    rng = np.random.default_rng(3)
    rates, weights = rng.lognormal(size=50), rng.lognormal(size=50)
    best = allocate("min-delay", rates, 100, weights)
    cost = (weights * rates / (2 * best)).sum()
    assert cost == pytest.approx((np.sqrt(weights * rates).sum()) ** 2 / (2 * 100))
    for _ in range(20):
        other = rng.lognormal(size=50)
        other *= 100 / other.sum()
        assert (weights * rates / (2 * other)).sum() >= cost


@pytest.mark.parametrize("seed", range(10))
def test_integer_min_delay_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    rates = rng.integers(1, 30, 4).astype(float)
    weights = rng.choice([0.5, 1.0, 3.0], 4)
    polls = allocate("min-delay", rates, 11, weights, integer=True)
    cost = (weights * rates / polls).sum()
    every = (c for c in itertools.product(range(1, 9), repeat=4) if sum(c) == 11)
    assert polls.sum() == 11
    assert cost == pytest.approx(min((weights * rates / np.array(c)).sum() for c in every))


@pytest.mark.parametrize("policy", list(ALLOCATIONS))
def test_all_allocations_spend_the_budget(policy):
    rng = np.random.default_rng(1)
    rates, windows = rng.lognormal(0, 2, 30_000), rng.integers(1, 60, 30_000)
    polls = allocate(policy, rates, 45_000.0, windows=windows)
    assert polls.sum() == pytest.approx(45_000, rel=1e-6)
    assert allocate(policy, rates, 45_000.0, windows=windows, integer=True).sum() == 45_000


def test_grouped_price_search_equals_direct_search():
    """Above 20,000 feeds the price is found on groups first; the result must not differ."""
    rng = np.random.default_rng(2)
    few = rng.lognormal(0, 2, 1_000)
    many = np.tile(few, 30)
    for policy in ("cgm-age", "cgm-freshness"):
        assert allocate(policy, many, 30_000.0)[:1_000] == pytest.approx(
            allocate(policy, few, 1_000.0), rel=2e-3, abs=1e-6
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "best"}, "choose from"),
        ({"policy": "min-missing"}, "--windows"),
        ({"rates": np.array([1.0, np.nan])}, "rates"),
        ({"rates": np.array([1.0, -1.0])}, "rates"),
        ({"weights": np.ones(3)}, "one for each feed"),
        ({"windows": np.zeros(2, dtype=np.int64)}, "windows"),
        ({"budget": -1.0}, "budget"),
    ],
)
def test_invalid_input_is_rejected(arguments, message):
    defaults = {"policy": "uniform", "rates": np.ones(2), "budget": 4.0}
    with pytest.raises(UsageError, match=message):
        allocate(**{**defaults, **arguments})
