"""The value of time: what the future costs from each hour of the week on, when everything until then has been collected.

With costs in units of the price, a feed's future depends on its weekly shape and on one number, the ratio
``rho = w lambda / mu`` (posts a day, times weight, over the price in weighted post-days): polls of a steady feed then stand
``sqrt(2 / rho)`` days apart and cost ``sqrt(2 rho)`` a day. The Bellman equation, solved for each feed once a week:

    V(s) = min over t of [ H(s, t) + 1 + V(t) ],    H(s, t) = rho int_s^t phi(u) (t - u) du

What is kept is how much V falls in each hour of the week, divided by sqrt(rho), so that it serves while the price or the level
moves a little.
"""

import numpy as np

from tidings.model import Floats

HOURS_PER_WEEK = 168
#: Feeds with shorter gaps are locally steady: V falls by sqrt(2 rho phi).
MAX_STEADY_GAP_DAYS = 0.1
#: Gaps within a factor of this are solved together, so many feeds at a time.
GAP_GROUP_FACTOR = 1.5
CHUNK_ROWS = 300
#: Longest gap considered, in days and in steady gaps.
MAX_GAP_DAYS = 16.0
HORIZON_GAPS = 4.0


def value_decrease(shapes: Floats, rho: Floats) -> Floats:
    """Fall of V in each hour of the week over sqrt(rho): (n, 168), for shapes (n, 168) of mean 1."""
    gaps = np.minimum(np.sqrt(2 / rho), MAX_GAP_DAYS)
    fall: Floats = np.sqrt(2 * shapes) / 24
    slow = np.flatnonzero(gaps > MAX_STEADY_GAP_DAYS)
    slow = slow[np.argsort(gaps[slow])]
    begin = 0
    while begin < len(slow):
        alike = int(np.searchsorted(gaps[slow], GAP_GROUP_FACTOR * gaps[slow[begin]], side="right"))
        rows = slow[begin : min(alike, begin + CHUNK_ROWS)]
        ratio = 2 / gaps[rows] ** 2
        fall[rows] = _solve(shapes[rows], ratio, gaps[rows]) / np.sqrt(ratio)[:, None]
        begin += len(rows)
    return fall


def _solve(shapes: Floats, rho: Floats, gaps_days: Floats) -> Floats:
    """Backward recursion for feeds of like gaps; the fall of V per hour in the first week."""
    shortest, longest = float(gaps_days.min()), float(gaps_days.max())
    # Slots of a quarter of the gap or finer, at least one an hour. The recursion starts from a steady guess some weeks ahead,
    # and what is wrong with the guess has died out in the first week.
    per_hour = 1 if shortest >= 0.7 else 2 if shortest >= 0.3 else 4
    weeks = 2 if longest < 1.0 else 3 if longest < 4.0 else 4
    slot = 1 / (24 * per_hour)  # days
    rate = np.repeat(np.tile(shapes, (1, weeks)), per_hour, axis=1) * (rho * slot)[:, None]
    n = rate.shape[1]
    zero = np.zeros((len(shapes), 1))
    mass = np.concatenate([zero, np.cumsum(rate, axis=1)], axis=1)  # A at slot boundaries
    area = np.concatenate(
        [zero, np.cumsum((mass[:, 1:] + mass[:, :-1]) / 2, axis=1) * slot], axis=1
    )  # Q
    reach = int(min(max(HORIZON_GAPS * longest, 1.5) / slot, n - 1))
    time = np.arange(n + reach + 1) * slot
    future = np.empty((len(shapes), n + reach + 1))  # Q(t) + V(t)
    beyond = time[n:] - time[n]
    ahead = mass[:, -1:] + rho[:, None] * beyond
    tail = area[:, -1:] + (mass[:, -1:] + ahead) / 2 * beyond
    future[:, n:] = tail - np.sqrt(2 * rho)[:, None] * beyond
    value = np.zeros((len(shapes), n + 1))
    row = np.arange(len(shapes))
    for s in range(n - 1, -1, -1):
        options = future[:, s + 1 : s + reach + 1] - mass[:, s : s + 1] * time[1 : reach + 1]
        best = options.argmin(axis=1)
        value[:, s] = options[row, best] - area[:, s] + 1
        future[:, s] = area[:, s] + value[:, s]
        reach = (
            int(best.max()) + 2
        )  # the earlier the look, the earlier the next: the best is never later than it was
    week = HOURS_PER_WEEK * per_hour
    return value[:, :week:per_hour] - value[:, per_hour : week + per_hour : per_hour]
