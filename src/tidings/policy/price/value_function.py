"""Compute the expected future cost of a feed after a poll at each hour of the week.

This is the value function V of the policy `price`. With costs in units of the price, the future
cost of a feed depends on its weekly profile phi and on one number, ``rho = w lambda / mu``: posts
per day times weight, over the price in weighted post-days. Polls of a feed with a constant rate are
``sqrt(2 / rho)`` days apart and cost ``sqrt(2 rho)`` per day (docs/policy.md Eq. 2). The Bellman
equation (docs/policy.md Eq. 3) is solved per feed, once a week:

    V(s) = min over t of [ H(s, t) + 1 + V(t) ],    H(s, t) = rho int_s^t phi(u) (t - u) du

H is the delay of Sia & Cho Lemma 1. The state of a feed stores the decrease of V in each hour of
the week, divided by sqrt(rho): it changes little with rho, so that it stays valid for small changes
of the price and of the rate.
"""

import numpy as np

from tidings.model import Floats
from tidings.policy.base import HOURS_PER_WEEK

#: Gap up to which the rate counts as locally constant: V then decreases by sqrt(2 rho phi) per day.
MAX_STEADY_GAP_DAYS = 0.1
#: Maximum ratio between the gaps of feeds that are solved together, and maximum number of them.
GAP_GROUP_FACTOR = 1.5
CHUNK_ROWS = 300
#: Longest gap considered, in days and in steady gaps.
MAX_GAP_DAYS = 16.0
HORIZON_GAPS = 4.0


def value_decrease(profiles: Floats, rho: Floats) -> Floats:
    """Return the decrease of V in each hour of the week, divided by sqrt(rho) (n, 168).

    V is the value function. ``profiles`` (n, 168) are weekly profiles with mean 1.
    """
    gaps = np.minimum(np.sqrt(2 / rho), MAX_GAP_DAYS)
    decrease: Floats = np.sqrt(2 * profiles) / 24
    slow = np.flatnonzero(gaps > MAX_STEADY_GAP_DAYS)
    slow = slow[np.argsort(gaps[slow])]
    start = 0
    while start < len(slow):
        max_gap = GAP_GROUP_FACTOR * gaps[slow[start]]
        group_end = int(np.searchsorted(gaps[slow], max_gap, side="right"))
        rows = slow[start : min(group_end, start + CHUNK_ROWS)]
        ratio = 2 / gaps[rows] ** 2
        decrease[rows] = _solve(profiles[rows], ratio, gaps[rows]) / np.sqrt(ratio)[:, None]
        start += len(rows)
    return decrease


def _solve(profiles: Floats, rho: Floats, gaps_days: Floats) -> Floats:
    """Solve the Bellman equation backwards in time for feeds with similar gaps.

    Returns the decrease of V per hour in the first week (n, 168).
    """
    shortest, longest = float(gaps_days.min()), float(gaps_days.max())
    # Slots of at most a quarter of the gap, at least one per hour. The recursion starts from the
    # value of a constant rate some weeks ahead; its error has vanished in the first week.
    per_hour = 1 if shortest >= 0.7 else 2 if shortest >= 0.3 else 4
    weeks = 2 if longest < 1.0 else 3 if longest < 4.0 else 4
    slot = 1 / (24 * per_hour)  # days
    rate = np.repeat(np.tile(profiles, (1, weeks)), per_hour, axis=1) * (rho * slot)[:, None]
    n = rate.shape[1]
    zero = np.zeros((len(profiles), 1))
    # A(t), the integral of the rate, and Q(t), the integral of A, at slot boundaries.
    mass = np.concatenate([zero, np.cumsum(rate, axis=1)], axis=1)
    area = np.concatenate(
        [zero, np.cumsum((mass[:, 1:] + mass[:, :-1]) / 2, axis=1) * slot], axis=1
    )
    horizon = int(min(max(HORIZON_GAPS * longest, 1.5) / slot, n - 1))
    time = np.arange(n + horizon + 1) * slot
    future = np.empty((len(profiles), n + horizon + 1))  # Q(t) + V(t)
    beyond = time[n:] - time[n]
    mass_beyond = mass[:, -1:] + rho[:, None] * beyond
    area_beyond = area[:, -1:] + (mass[:, -1:] + mass_beyond) / 2 * beyond
    future[:, n:] = area_beyond - np.sqrt(2 * rho)[:, None] * beyond
    value = np.zeros((len(profiles), n + 1))
    row = np.arange(len(profiles))
    for s in range(n - 1, -1, -1):
        options = future[:, s + 1 : s + horizon + 1] - mass[:, s : s + 1] * time[1 : horizon + 1]
        best = options.argmin(axis=1)
        value[:, s] = options[row, best] - area[:, s] + 1
        future[:, s] = area[:, s] + value[:, s]
        # The best next poll is never later for an earlier s (the costs are Monge), so the search
        # range can shrink.
        horizon = int(best.max()) + 2
    week = HOURS_PER_WEEK * per_hour
    return value[:, :week:per_hour] - value[:, per_hour : week + per_hour : per_hour]
