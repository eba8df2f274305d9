"""How many polls for each feed: the papers' allocations of one budget.

Every function takes rates (posts in the period), weights, windows and the budget (polls in the period), and returns polls
per feed, fractional unless it says otherwise. Formulas and worked values: docs/papers.md.
"""

from collections.abc import Callable

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats, Ints

Allocate = Callable[[Floats, Floats, Ints, float], Floats]


def uniform(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """The same for every feed."""
    return np.full(len(rates), budget / max(len(rates), 1))


def min_delay(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Sia & Cho Theorem 1: m_i = k sqrt(w_i lambda_i), k such that the polls add up to the budget."""
    roots = np.sqrt(weights * rates)
    total = roots.sum()
    return roots * (budget / total) if total > 0 else uniform(rates, weights, windows, budget)


def min_missing(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """Han et al. Fig. 8, with the refill that its prose intends; whole polls.

    The listing gives the next poll to the feed that would yield the most posts (w PPA, PPA = min(TP, S); ties: the lowest
    index), and when nothing is left to collect starts again with TP = lambda. A feed yields w S for floor(lambda / S)
    polls and then w (lambda mod S) once, never more than before, so a round is a sort and the rounds repeat: the same
    result without M steps. (Line 22 of the printed listing sums TP_{i,1}, so its refill never fires; see docs/papers.md.)
    """
    n = len(rates)
    full = np.floor(rates / windows)
    rest = rates - full * windows
    per_round = full + (rest > 0)
    total = int(per_round.sum())
    polls = int(budget)
    if total == 0:
        return integer_polls(uniform(rates, weights, windows, budget), budget)
    rounds, left = divmod(polls, total)
    granted = rounds * per_round
    value = np.concatenate([weights * windows, weights * rest])
    count = np.concatenate([full, rest > 0])
    feed = np.concatenate([np.arange(n), np.arange(n)])
    order = np.lexsort((feed, -value))
    taken = np.clip(left - (np.cumsum(count[order]) - count[order]), 0, count[order])
    return granted + np.bincount(feed[order], weights=taken, minlength=n)


def missed(rates: Floats, windows: Ints, polls: Floats) -> Floats:
    """Han et al.: MP_i = max(lambda_i - m_i S_i, 0), the posts that m_i polls cannot collect."""
    return np.maximum(rates - polls * windows, 0.0)


# --- CGM03: Cho & Garcia-Molina's crawler optima (docs/papers.md) ------------------------------------------------------
# With r = lambda / f both optimality conditions depend on r alone, so their left sides are tabulated once and inverted by
# interpolation in log-log. Below r = 0.01 the closed forms cancel catastrophically; the series take over.
_R = np.logspace(-6, 6, 20_001)
_E = np.exp(-_R)
_FRESHNESS = np.where(_R < 1e-2, _R**2 / 2 - _R**3 / 3 + _R**4 / 8, -np.expm1(-_R) - _R * _E)
_AGE = np.where(_R < 1e-2, _R**3 / 3 - _R**4 / 8 + _R**5 / 30, _R * _R / 2 - 1 + (1 + _R) * _E)
#: Beyond r = 34 the freshness curve rounds to 1 and cannot be inverted: such feeds are abandoned.
_RISING = _R < 34
_LOG_R, _LOG_AGE = np.log(_R), np.log(_AGE)
_LOG_R_RISING, _LOG_FRESHNESS = np.log(_R[_RISING]), np.log(_FRESHNESS[_RISING])


def cgm_freshness(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """CGM03, most pages up to date: (w / lambda)(1 - (1 + r) e^-r) = mu. Feeds with mu lambda / w >= 1 get nothing."""

    def polls(price: float, rates: Floats, weights: Floats) -> Floats:
        y = price * rates / weights
        worth = y < _FRESHNESS[_RISING][-1]
        r = np.exp(np.interp(np.log(y), _LOG_FRESHNESS, _LOG_R_RISING))
        return np.where(worth, rates / r, 0.0)

    return _allocate_at_price(polls, rates, weights, windows, budget)


def cgm_age(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """CGM03, least age of stale pages: (w / lambda^2)(r^2 / 2 - 1 + (1 + r) e^-r) = mu."""

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
    """Polls at the price at which they add up to the budget; ``polls`` falls with the price.

    Of many feeds the price is first found on groups alike in rate and weight, a few thousand of them; the groups' error at
    that price then tells what to ask of them so that all feeds together meet the budget. Three full evaluations, not a hundred.
    """
    positive = (rates > 0) & (weights > 0)
    if not positive.any():
        return uniform(rates, weights, windows, budget)
    r, w = rates[positive], weights[positive]
    if len(r) <= 20_000:
        found = polls(
            float(np.exp(_bisect(lambda price: float(polls(price, r, w).sum()), budget))), r, w
        )
    else:
        cell = np.round(np.log(r) * 50).astype(np.int64) * 1_000 + np.round(np.log(w) * 10).astype(
            np.int64
        )
        _, index, count = np.unique(cell, return_index=True, return_counts=True)
        group_r, group_w, aim = r[index], w[index], budget
        for _ in range(3):
            price = _bisect(lambda mu: float((polls(mu, group_r, group_w) * count).sum()), aim)
            found = polls(float(np.exp(price)), r, w)
            aim *= budget / max(float(found.sum()), 1e-300)
    total = found.sum()
    result = np.zeros(len(rates))
    result[positive] = found * (budget / total) if total > 0 else found
    return result


def _bisect(spending: Callable[[float], float], budget: float) -> float:
    """The log price at which a falling spending meets the budget."""
    low, high = -80.0, 80.0
    for _ in range(60):
        middle = (low + high) / 2
        if spending(float(np.exp(middle))) > budget:
            low = middle
        else:
            high = middle
    return high


# --- whole polls -------------------------------------------------------------------------------------------------------


def integer_polls(polls: Floats, budget: float) -> Floats:
    """Largest remainder: whole polls that add up to the budget, nearest to fractional ones (ties: the lowest index)."""
    base = np.floor(polls + 1e-12)
    left = int(budget) - int(base.sum())
    order = np.lexsort((np.arange(len(polls)), -np.round(polls - base, 12)))
    base[order[: max(left, 0)]] += 1
    return base


def integer_min_delay(rates: Floats, weights: Floats, windows: Ints, budget: float) -> Floats:
    """The exact optimum of Theorem 1 in whole polls: greedy on the marginal gains w lambda / (2 m (m - 1)) of the m-th poll.

    The gains fall with m, so the greedy is exact, and the polls worth more than a price have a closed form; the price is
    bisected and what is left goes to the next best gains. The first poll of a feed has no finite gain: all get one, the
    most valuable first where the budget does not reach.
    """
    value = weights * rates
    polls = int(budget)
    n = len(rates)
    if polls <= n:
        order = np.lexsort((np.arange(n), -value))
        first = np.zeros(n)
        first[order[:polls]] = 1
        return first

    def worth(price: float) -> Floats:
        return np.floor((1 + np.sqrt(1 + 2 * value / price)) / 2 + 1e-12)

    log_price = _bisect(lambda price: float(worth(price).sum()), polls)
    granted = np.maximum(worth(float(np.exp(log_price + 1e-9))), 1)
    left = polls - int(
        granted.sum()
    )  # feeds whose next poll is worth the price itself: one more each, best first
    with np.errstate(divide="ignore"):
        gain = np.round(np.log(value / (2 * granted * (granted + 1))), 9)
    granted[np.lexsort((np.arange(n), -gain))[:left]] += 1
    return granted


#: Allocations by the name of the policy that uses them.
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
    """Polls per feed under an allocation by name; the laboratory's and the command line's way in."""
    if policy not in ALLOCATIONS:
        raise UsageError(f"unknown allocation {policy!r}; choose from {', '.join(ALLOCATIONS)}")
    n = len(rates)
    weights = np.ones(n) if weights is None else weights
    if policy == "min-missing" and windows is None:
        raise UsageError("min-missing needs --windows: how many entries each feed's document holds")
    windows = np.ones(n, dtype=np.int64) if windows is None else windows
    for what, values in (("rates", rates), ("weights", weights), ("windows", windows)):
        if len(values) != n:
            raise UsageError(f"{len(values)} {what} for {n} rates; give one for each feed")
        if not np.all(np.isfinite(values)) or np.any(
            np.asarray(values) < (1 if what == "windows" else 0)
        ):
            raise UsageError(f"{what} must be numbers of at least {1 if what == 'windows' else 0}")
    if not np.isfinite(budget) or budget < 0:
        raise UsageError(f"the budget must be a number of polls, 0 or more, not {budget}")
    if policy == "min-delay" and integer:
        return integer_min_delay(rates, weights, windows, budget)
    polls = ALLOCATIONS[policy](rates, weights, windows, budget)
    return integer_polls(polls, budget) if integer else polls
