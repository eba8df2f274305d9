"""Distribute a budget of polls over feeds by the formulas of the papers.

Every function takes rates (posts per period), weights, windows (entries per document) and the
budget (polls per period). It returns polls per feed, fractional unless noted. docs/papers.md has
the formulas and worked examples.
"""

from collections.abc import Callable

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats, Ints

#: Signature of an allocation function: rates, weights, windows, budget.
Allocate = Callable[[Floats, Floats, Ints, float], Floats]


def uniform(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Allocate the same number of polls to every feed."""
    return np.full(len(rates), budget / max(len(rates), 1))


def min_delay(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Allocate polls so that the total delay is minimal (Sia & Cho Theorem 1, Eq. 1).

    m_i = k sqrt(w_i lambda_i), where k is such that the polls add up to the budget.
    """
    roots = np.sqrt(weights * rates)
    total = roots.sum()
    return roots * (budget / total) if total > 0 else uniform(rates, weights, windows, budget)


def min_missing(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Allocate an integer number of polls so that missed posts are minimal (Han et al. Fig. 8).

    The algorithm gives the next poll to the feed that would yield the most posts (w PPA, with PPA
    = min(TP, S); ties go to the lowest index). When no posts are left to collect, it starts again
    with TP = lambda, as the text of the paper describes. (Line 22 of the printed listing sums
    TP_{i,1}, so that this refill never happens; see docs/papers.md.) A feed yields w S for
    floor(lambda / S) polls and then w (lambda mod S) once. The yields never increase, so a round is
    a sort, and all rounds are equal. This function therefore gets the same result without M steps.
    """
    n = len(rates)
    full = np.floor(rates / windows)
    rest = rates - full * windows
    per_round = full + (rest > 0)
    total = int(per_round.sum())
    polls = int(budget)
    if total == 0:
        return integer_polls(uniform(rates, weights, windows, budget), budget)
    rounds, remaining = divmod(polls, total)
    allocated = rounds * per_round
    value = np.concatenate([weights * windows, weights * rest])
    count = np.concatenate([full, rest > 0])
    feed = np.concatenate([np.arange(n), np.arange(n)])
    order = np.lexsort((feed, -value))
    taken = np.clip(remaining - (np.cumsum(count[order]) - count[order]), 0, count[order])
    return allocated + np.bincount(feed[order], weights=taken, minlength=n)


def posts_missed(rates: Floats, windows: Ints, polls: Floats) -> Floats:
    """Return the posts of each feed that its polls cannot collect (Han et al. sect. 2.2).

    MP_i = max(lambda_i - m_i S_i, 0), where m_i are the polls.
    """
    return np.maximum(rates - polls * windows, 0.0)


# --- CGM03: optimal crawling of Cho & Garcia-Molina 2003 (docs/papers.md) -----------------------
# With r = lambda / f both optimality conditions depend only on r, so their left sides are tabulated
# once and inverted by log-log interpolation. Below r = 0.01 the closed forms suffer catastrophic
# cancellation, so their series are used.
_R = np.logspace(-6, 6, 20_001)
_E = np.exp(-_R)
_FRESHNESS = np.where(_R < 1e-2, _R**2 / 2 - _R**3 / 3 + _R**4 / 8, -np.expm1(-_R) - _R * _E)
_AGE = np.where(_R < 1e-2, _R**3 / 3 - _R**4 / 8 + _R**5 / 30, _R * _R / 2 - 1 + (1 + _R) * _E)
#: Range in which the freshness curve can be inverted. Above r = 34 it rounds to 1, and such feeds
#: get no polls.
_RISING = _R < 34
_LOG_R, _LOG_AGE = np.log(_R), np.log(_AGE)
_LOG_R_RISING, _LOG_FRESHNESS = np.log(_R[_RISING]), np.log(_FRESHNESS[_RISING])


def cgm_freshness(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Allocate polls so that the share of fresh copies is maximal (Cho & Garcia-Molina 2003).

    (w / lambda)(1 - (1 + r) e^-r) = mu, with r = lambda / f. Feeds with mu lambda / w >= 1 get no
    polls.
    """

    def polls(price: float, rates: Floats, weights: Floats) -> Floats:
        y = price * rates / weights
        polled = y < _FRESHNESS[_RISING][-1]
        r = np.exp(np.interp(np.log(y), _LOG_FRESHNESS, _LOG_R_RISING))
        return np.where(polled, rates / r, 0.0)

    return _allocate_at_price(polls, rates, weights, windows, budget)


def cgm_age(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Allocate polls so that the mean age of stale copies is minimal (Cho & Garcia-Molina 2003).

    (w / lambda^2)(r^2 / 2 - 1 + (1 + r) e^-r) = mu, with r = lambda / f.
    """

    def polls(price: float, rates: Floats, weights: Floats) -> Floats:
        y = price * rates * rates / weights
        return rates / np.exp(np.interp(np.log(y), _LOG_AGE, _LOG_R))

    return _allocate_at_price(polls, rates, weights, windows, budget)


def _allocate_at_price(
    polls: Callable[[float, Floats, Floats], Floats],
    rates: Floats,
    weights: Floats,
    windows: Ints,
    budget: float,
) -> Floats:
    """Return the polls per feed at the price at which they add up to the budget.

    The price is the Lagrange multiplier of the budget. ``polls(price, rates, weights)`` must
    decrease with the price. For more than 20,000 feeds the price is found on a few thousand groups
    with similar rate and weight. The difference between all feeds and the groups then corrects the
    target of the groups. This takes three evaluations for all feeds instead of sixty.
    """
    positive = (rates > 0) & (weights > 0)
    if not positive.any():
        return uniform(rates, weights, windows, budget)
    r, w = rates[positive], weights[positive]
    if len(r) <= 20_000:
        allocated = polls(
            float(np.exp(_bisect(lambda price: float(polls(price, r, w).sum()), budget))), r, w
        )
    else:
        cell = np.round(np.log(r) * 50).astype(np.int64) * 1_000 + np.round(np.log(w) * 10).astype(
            np.int64
        )
        _, index, count = np.unique(cell, return_index=True, return_counts=True)
        group_r, group_w, target = r[index], w[index], budget
        for _ in range(3):
            price = _bisect(lambda mu: float((polls(mu, group_r, group_w) * count).sum()), target)
            allocated = polls(float(np.exp(price)), r, w)
            target *= budget / max(float(allocated.sum()), 1e-300)
    total = allocated.sum()
    result = np.zeros(len(rates))
    result[positive] = allocated * (budget / total) if total > 0 else allocated
    return result


def _bisect(spending: Callable[[float], float], budget: float) -> float:
    """Return the log price at which the decreasing function ``spending`` equals the budget."""
    low, high = -80.0, 80.0
    for _ in range(60):
        middle = (low + high) / 2
        if spending(float(np.exp(middle))) > budget:
            low = middle
        else:
            high = middle
    return high


# --- integer polls -------------------------------------------------------------------------------


def integer_polls(polls: Floats, budget: float) -> Floats:
    """Round polls per feed to integers that add up to the budget (largest remainder method).

    Ties go to the lowest index.
    """
    base = np.floor(polls + 1e-12)
    remaining = int(budget) - int(base.sum())
    order = np.lexsort((np.arange(len(polls)), -np.round(polls - base, 12)))
    base[order[: max(remaining, 0)]] += 1
    return base


def integer_min_delay(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Allocate an integer number of polls so that the total delay is minimal.

    This is the integer optimum of Sia & Cho Theorem 1. The m-th poll of a feed gains w lambda / (2
    m (m - 1)). The gains decrease with m, so the greedy allocation is optimal, and the number of
    polls that gain more than a price has a closed form. The price is found by bisection, and
    remaining polls go to the next best gains. The gain of the first poll is infinite, so every feed
    gets one. If the budget is too small for that, the feeds with the highest rate times weight get
    one.
    """
    value = weights * rates
    polls = int(budget)
    n = len(rates)
    if polls <= n:
        order = np.lexsort((np.arange(n), -value))
        first = np.zeros(n)
        first[order[:polls]] = 1
        return first

    def polls_at(price: float) -> Floats:
        return np.floor((1 + np.sqrt(1 + 2 * value / price)) / 2 + 1e-12)

    log_price = _bisect(lambda price: float(polls_at(price).sum()), polls)
    allocated = np.maximum(polls_at(float(np.exp(log_price + 1e-9))), 1)
    # Feeds whose next poll gains exactly the price get one more each, in order of the gain.
    remaining = polls - int(allocated.sum())
    with np.errstate(divide="ignore"):
        gain = np.round(np.log(value / (2 * allocated * (allocated + 1))), 9)
    allocated[np.lexsort((np.arange(n), -gain))[:remaining]] += 1
    return allocated


#: Allocation functions by the name of the policy that uses them.
ALLOCATIONS: dict[str, Allocate] = {
    "uniform": uniform,
    "min-delay": min_delay,
    "min-missing": min_missing,
    "cgm-age": cgm_age,
    "cgm-freshness": cgm_freshness,
}


def allocate(
    policy: str,
    rates: Floats,
    budget: float,
    weights: Floats | None = None,
    windows: Ints | None = None,
    *,
    integer: bool = False,
) -> Floats:
    """Check the input and return the polls per feed of the allocation with the name ``policy``.

    ``rates`` are posts per period, ``budget`` is in polls per period. ``weights`` and ``windows``
    (entries per document) default to 1. ``integer`` returns integers that add up to the budget.
    Raises `UsageError` for an unknown name or invalid input.
    """
    if policy not in ALLOCATIONS:
        raise UsageError(f"unknown allocation {policy!r}; choose from {', '.join(ALLOCATIONS)}")
    n = len(rates)
    weights = np.ones(n) if weights is None else weights
    if policy == "min-missing" and windows is None:
        raise UsageError("min-missing needs --windows: the number of entries per document")
    windows = np.ones(n, dtype=np.int64) if windows is None else windows
    for label, values in (("rates", rates), ("weights", weights), ("windows", windows)):
        if len(values) != n:
            raise UsageError(f"{len(values)} {label} for {n} rates; give one for each feed")
        minimum = 1 if label == "windows" else 0
        if not np.all(np.isfinite(values)) or np.any(np.asarray(values) < minimum):
            raise UsageError(f"{label} must be numbers of at least {minimum}")
    if not np.isfinite(budget) or budget < 0:
        raise UsageError(f"the budget must be a number of polls, 0 or more, not {budget}")
    if policy == "min-delay" and integer:
        return integer_min_delay(rates, weights, windows, budget)
    polls = ALLOCATIONS[policy](rates, weights, windows, budget)
    return integer_polls(polls, budget) if integer else polls
