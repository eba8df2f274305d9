"""The value of time: what the future costs from each hour of the week on, when everything until then has been collected.

With costs in units of the price, a feed's future depends on its weekly shape and on one number, the ratio
``rho = w lambda / mu`` (posts a day, times weight, over the price in weighted post-days): polls of a steady feed then stand
``sqrt(2 / rho)`` days apart and cost ``sqrt(2 rho)`` a day. So the Bellman equation is solved once for a few shapes and a few
ratios, and looked up for every feed:

    V(s) = min over t of [ H(s, t) + 1 + V(t) ],    H(s, t) = rho int_s^t phi(u) (t - u) du

The table holds how much V falls in each hour of the week, divided by sqrt(rho), so that interpolating between ratios is
harmless.
"""

import numpy as np

from tidings.model import Floats, Ints

HOURS = 168
#: Ratios tabulated: steady gaps from half a month down to a quarter of an hour.
GAPS_DAYS = np.geomspace(16.0, 0.01, 22)
RATIOS = 2 / GAPS_DAYS**2
_LOG_RATIOS = np.log(RATIOS)
#: The recursion starts from a steady guess this many weeks ahead; what is left of the guess has died out in the first week.
WEEKS = 4
#: Longest gap considered, in steady gaps.
REACH = 4.0


def value_table(shapes: Floats) -> Floats:
    """Fall of V per hour of the week over sqrt(rho): (shapes, ratios, 168). ``shapes`` (k, 168) have mean 1."""
    table = np.empty((len(shapes), len(RATIOS), HOURS))
    for r, (gap, rho) in enumerate(zip(GAPS_DAYS, RATIOS, strict=True)):
        # Slots of a quarter of the gap or finer, at least one an hour; below that the feed is locally steady.
        per_hour = 1 if gap >= 0.7 else 2 if gap >= 0.3 else 4
        if gap < 0.1:
            table[:, r] = np.sqrt(2 * shapes) / 24
        else:
            table[:, r] = _solve(shapes, float(rho), per_hour, gap) / np.sqrt(rho)
    return table


def _solve(shapes: Floats, rho: float, per_hour: int, gap_days: float) -> Floats:
    """Backward recursion over WEEKS weeks for all shapes at once; the fall of V per hour in the first week."""
    slot = 1 / (24 * per_hour)  # days
    rate = np.repeat(np.tile(shapes, (1, WEEKS)), per_hour, axis=1) * rho * slot
    n = rate.shape[1]
    zero = np.zeros((len(shapes), 1))
    mass = np.concatenate([zero, np.cumsum(rate, axis=1)], axis=1)  # A at slot boundaries
    area = np.concatenate([zero, np.cumsum((mass[:, 1:] + mass[:, :-1]) / 2, axis=1) * slot], axis=1)  # Q
    reach = int(min(max(REACH * gap_days, 1.5) / slot, n - 1))
    time = np.arange(n + reach + 1) * slot
    future = np.empty((len(shapes), n + reach + 1))  # Q(t) + V(t)
    steady = np.sqrt(2 * rho)
    ahead = mass[:, -1:] + rho * (time[n:] - time[n])
    tail = area[:, -1:] + (mass[:, -1:] + ahead) / 2 * (time[n:] - time[n])
    future[:, n:] = tail - steady * (time[n:] - time[n])
    value = np.zeros((len(shapes), n + 1))
    row = np.arange(len(shapes))
    for s in range(n - 1, -1, -1):
        options = future[:, s + 1 : s + reach + 1] - mass[:, s : s + 1] * time[1 : reach + 1]
        best = options.argmin(axis=1)
        value[:, s] = options[row, best] - area[:, s] + 1
        future[:, s] = area[:, s] + value[:, s]
        reach = int(best.max()) + 2  # the earlier the look, the earlier the next: the best is never later than it was
    week = HOURS * per_hour
    return value[:, :week:per_hour] - value[:, per_hour : week + per_hour : per_hour]


def ratio_position(rho: Floats) -> tuple[Ints, Floats]:
    """Where each ratio lies in the table: index of the lower neighbour, and how far it is to the next in log."""
    x = np.interp(np.log(np.maximum(rho, 1e-300)), _LOG_RATIOS, np.arange(len(RATIOS)))
    low = np.minimum(x.astype(np.int64), len(RATIOS) - 2)
    return low, x - low
