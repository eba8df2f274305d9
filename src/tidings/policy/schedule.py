"""Compute the optimal times of polls within a day (Sia & Cho Theorems 2 and 3).

A daily pattern is 24 hourly rates (posts per hour), repeated every day. Polls at the times tau_1 <
... < tau_m of a day cost ``sum int lambda(t) (tau_next - t) dt`` post-hours of delay (Lemma 1).
Three methods minimize this cost: dynamic programming on a grid of 30 minutes, which is exact, and
the two methods of the paper (sect. 3.2.2), which are tested against it.
"""

import itertools
from collections.abc import Callable

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats, Ints

DAY_H = 24.0
#: Slots per day. Sia & Cho sect. 3.2.2: "reasonable performance ... when a time granularity of 30
#: minutes is used".
GRID_PER_DAY = 48
#: Maximum polls per day for the exhaustive search. With more it may take minutes, above all for
#: flat patterns, where little can be pruned.
MAX_EXHAUSTIVE_POLLS = 12


class DailyPattern:
    """Posting rate by hour of the day, with its first and second integral.

    A(t), the number of posts since midnight, is the integral of the rate. Q(t) is the integral of
    A. Raises `UsageError` unless ``hourly`` has 24 rates of at least 0.
    """

    def __init__(self, hourly: Floats) -> None:
        if hourly.shape != (24,) or not np.all(np.isfinite(hourly)) or np.any(hourly < 0):
            raise UsageError("a daily pattern needs 24 hourly rates of at least 0")
        self.hourly = hourly
        self._mass = np.concatenate([[0.0], np.cumsum(hourly)])
        self._area = np.concatenate([[0.0], np.cumsum((self._mass[:-1] + self._mass[1:]) / 2)])
        self.posts = float(self._mass[-1])

    def mass(self, t: Floats) -> Floats:
        """Return A(t), the expected posts in [0, t] hours; t may be outside of [0, 24]."""
        day, hour, part = self._split(t)
        posts: Floats = day * self.posts + self._mass[hour] + self.hourly[hour] * part
        return posts

    def area(self, t: Floats) -> Floats:
        """Return Q(t), the integral of A over [0, t] hours, in post-hours."""
        day, hour, part = self._split(t)
        full_days = self._area[-1] * day + self.posts * DAY_H * day * (day - 1) / 2
        part_day = self._area[hour] + self._mass[hour] * part + self.hourly[hour] * part**2 / 2
        integral: Floats = full_days + day * self.posts * (hour + part) + part_day
        return integral

    def delay(self, start: Floats, end: Floats) -> Floats:
        """Return the expected delay, in post-hours, of the posts between two polls (Lemma 1)."""
        return self.area(end) - self.area(start) - self.mass(start) * (end - start)

    @staticmethod
    def _split(t: Floats) -> tuple[Floats, Ints, Floats]:
        day = np.floor(t / DAY_H)
        rest = t - day * DAY_H
        hour = np.minimum(rest.astype(np.int64), 23)
        return day, hour, rest - hour


def expected_delay_h(pattern: DailyPattern, times: Floats) -> float:
    """Return the delay in post-hours per day with polls at ``times`` every day (Lemma 1).

    ``times`` are hours after midnight. The result is inf without polls, unless there are no posts.
    """
    if len(times) == 0:
        return float("inf") if pattern.posts > 0 else 0.0
    times = np.sort(times)
    following = np.append(times[1:], times[0] + DAY_H)
    return float(pattern.delay(times, following).sum())


def _slot_times(n: int, grid: int) -> Floats:
    """Return the times of the first n slots of a grid, in hours."""
    return np.arange(n, dtype=np.float64) * (DAY_H / grid)


def even_times(polls: int, phase: float = 0.0) -> Floats:
    """Return evenly spaced times of day in hours.

    The first time is the share ``phase`` of a gap after midnight.
    """
    return (np.arange(polls) + phase) * DAY_H / polls


# --- exact: dynamic programming ------------------------------------------------------------------


def _cost_by_rotation(pattern: DailyPattern, grid: int) -> Floats:
    """Return C[r, i, j], the delay between polls at slots r + i and r + j, or inf if i >= j."""
    slots = _slot_times(2 * grid + 1, grid)
    mass, area = pattern.mass(slots), pattern.area(slots)
    i = np.arange(grid)[:, None, None] + np.arange(grid + 1)[None, :, None]
    j = np.arange(grid)[:, None, None] + np.arange(grid + 1)[None, None, :]
    cost = area[j] - area[i] - mass[i] * (slots[j] - slots[i])
    return np.where(j > i, cost, np.inf)


def optimal_times_up_to(
    pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY
) -> list[Floats]:
    """Return the optimal times of day for 1, 2, ... ``polls`` polls a day, exact on the grid.

    Times are hours after midnight. Dynamic programming finds, for every rotation r of the day (a
    poll at slot r), the shortest path from r to r + grid with m links, in O(m grid^2). All
    rotations and all m are computed in one pass. Raises `UsageError` if ``polls`` is not between 1
    and the number of slots.
    """
    if not 0 < polls <= grid:
        raise UsageError(
            f"polls a day must be between 1 and {grid}, the slots of the grid, not {polls}"
        )
    cost = _cost_by_rotation(pattern, grid)
    best = cost[:, 0, :]  # one link from slot r
    links = [np.zeros(best.shape, dtype=np.int64)]
    plans = []
    for m in range(1, polls + 1):
        if m > 1:
            through = best[:, :, None] + cost
            choice = np.argmin(through, axis=1)
            best = np.take_along_axis(through, choice[:, None, :], axis=1)[:, 0, :]
            links.append(choice)
        r = int(np.argmin(best[:, grid]))
        slots, position = [], grid
        for back in reversed(links[:m]):
            position = int(back[r, position])
            slots.append((r + position) % grid)
        plans.append(np.sort(np.array(slots)) * (DAY_H / grid))
    return plans


def dp_times(pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY) -> Floats:
    """Return the optimal times of day in hours for ``polls`` polls, by dynamic programming."""
    return optimal_times_up_to(pattern, polls, grid)[-1]


# --- Sia & Cho sect. 3.2.2, first method: exhaustive search with pruning --------------------------


def exhaustive_times(pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY) -> Floats:
    """Return the optimal times of day in hours, by exhaustive search with pruning.

    The search tries all choices of the first two times. The others follow from Eq. 2 (branch and
    bound). On a grid, and where hourly rates jump, Eq. 2 becomes two inequalities: moving tau_j by
    one slot in either direction must not reduce the delay. Both are linear in tau_{j+1}, so that
    they leave few slots for it, mostly one or two. The day is cyclic, so the first two times can be
    those of the shortest gap. Raises `UsageError` above `MAX_EXHAUSTIVE_POLLS`.
    """
    if not 0 < polls <= grid:
        raise UsageError(
            f"polls a day must be between 1 and {grid}, the slots of the grid, not {polls}"
        )
    width = DAY_H / grid
    slots = _slot_times(3 * grid + 1, grid)
    mass, area = pattern.mass(slots), pattern.area(slots)

    def cost(i: int, j: int) -> float:
        return float(area[j] - area[i] - mass[i] * (slots[j] - slots[i]))

    if polls > MAX_EXHAUSTIVE_POLLS:
        raise UsageError(
            f"exhaustive search is limited to {MAX_EXHAUSTIVE_POLLS} polls a day; use the method dp"
        )
    best_cost, best_plan = np.inf, [0]

    def next_slots(previous: int, current: int) -> range:
        """Return the slots n for which neither ``current - 1`` nor ``current + 1`` is better."""
        low, high = current + 1, previous + grid + grid
        # One slot later: the posts of that slot would wait until current + 1 instead of until n.
        right = mass[current + 1] - mass[current]
        if right > 1e-12:
            added = cost(previous, current + 1) - cost(previous, current)
            added -= cost(current, current + 1)
            high = min(high, current + 1 + int(np.floor(added / (right * width) + 1e-9)))
        left = mass[current] - mass[current - 1]
        saved = cost(previous, current) - cost(previous, current - 1) - cost(current - 1, current)
        if left > 1e-12:
            low = max(low, current + int(np.ceil(saved / (left * width) - 1e-9)))
        elif saved > 1e-12:
            return range(0)  # no posts in the slot before, so an earlier poll is better
        return range(low, high + 1)

    def extend(plan: list[int], plan_cost: float) -> None:
        nonlocal best_cost, best_plan
        if plan_cost >= best_cost - 1e-12:
            return
        if len(plan) == polls:
            total = plan_cost + cost(plan[-1], plan[0] + grid)
            if total < best_cost - 1e-12:
                best_cost, best_plan = total, list(plan)
            return
        if len(plan) == 1:
            choices = range(plan[0] + 1, plan[0] + grid // polls + 1)
        else:
            shortest = plan[1] - plan[0]
            allowed = next_slots(plan[-2], plan[-1])
            last = plan[0] + grid - (polls - len(plan)) * shortest
            choices = range(max(allowed.start, plan[-1] + shortest), min(allowed.stop, last + 1))
        for n in choices:
            extend([*plan, n], plan_cost + cost(plan[-1], n))

    for start in range(grid):
        extend([start + grid // 2], 0.0)
    return np.sort(np.mod(np.array(best_plan), grid)) * width


# --- Sia & Cho sect. 3.2.2, second method: iterative refinement -----------------------------------


def iterative_times(pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY) -> Floats:
    """Return good times of day in hours, by moving single times until no move reduces the delay.

    This is coordinate descent. The paper does not give the size of a move; here a time can move to
    any free slot. One start finds a local optimum. The search therefore starts from every phase of
    evenly spaced times, and of times whose density follows the square root of the pattern, and
    returns the best result.
    """
    if not 0 < polls <= grid:
        raise UsageError(
            f"polls a day must be between 1 and {grid}, the slots of the grid, not {polls}"
        )
    slots = _slot_times(2 * grid + 1, grid)
    mass, area = pattern.mass(slots), pattern.area(slots)
    i, j = np.meshgrid(np.arange(2 * grid + 1), np.arange(2 * grid + 1), indexing="ij")
    table = np.where(j > i, area[j] - area[i] - mass[i] * (slots[j] - slots[i]), np.inf)

    def total(plan: Ints) -> float:
        return float(table[plan, np.append(plan[1:], plan[0] + grid)].sum())

    best_cost, best_plan = np.inf, np.arange(polls)
    evenly_spaced = np.arange(polls) * grid // polls
    dense = np.round(dense_times(pattern, polls) / DAY_H * grid).astype(np.int64)
    for start, phase in itertools.product((evenly_spaced, dense), range(max(1, grid // polls))):
        plan = np.unique((phase + start) % grid)
        if len(plan) < polls:  # two times fell on one slot
            continue
        current = total(plan)
        moved = True
        while moved:
            moved = False
            for k in range(polls):
                rest = np.delete(plan, k)
                candidates = _insertion_costs(rest, table, grid)
                slot = int(np.argmin(candidates))
                if candidates[slot] < current - 1e-12:
                    plan, current, moved = (
                        np.sort(np.append(rest, slot)),
                        float(candidates[slot]),
                        True,
                    )
        if current < best_cost - 1e-12:
            best_cost, best_plan = current, plan
    return best_plan.astype(np.float64) * (DAY_H / grid)


def _insertion_costs(rest: Ints, table: Floats, grid: int) -> Floats:
    """Return, for each slot of the grid, the total delay of the plan ``rest`` plus that slot."""
    slot = np.arange(grid)
    if len(rest) == 0:
        single: Floats = table[slot, slot + grid]
        return single
    following = np.append(rest[1:], rest[0] + grid)
    gaps = table[rest, following]
    # Index of the gap that contains the slot; -1 is the gap over midnight.
    g = np.searchsorted(rest, slot, side="right") - 1
    before, after = rest[g], following[g]
    shifted = np.where(g < 0, slot + grid, slot)
    split = table[before, shifted] + table[shifted, after]
    total: Floats = gaps.sum() - gaps[g] + split
    return total


#: Methods by the name that the command line uses for them.
METHODS: dict[str, Callable[[DailyPattern, int], Floats]] = {
    "dp": dp_times,
    "exhaustive": exhaustive_times,
    "iterative": iterative_times,
}


# --- beyond the grid -----------------------------------------------------------------------------


def dense_times(pattern: DailyPattern, polls: int) -> Floats:
    """Return times of day in hours for many polls, with gaps in proportion to lambda^-1/2.

    These are the times of Theorem 3 in the limit where lambda is constant within a gap.
    """
    density = np.sqrt(np.maximum(pattern.hourly, 1e-4 * max(pattern.hourly.max(), 1e-300)))
    cumulative = np.concatenate([[0.0], np.cumsum(density)])
    times: Floats = np.interp(
        (np.arange(polls) + 0.5) / polls * cumulative[-1], cumulative, np.arange(25.0)
    )
    return times


def refine_times_newton(
    rate: Callable[[Floats], Floats],
    mass: Callable[[Floats], Floats],
    times: Floats,
    period: float,
    rounds: int = 200,
) -> Floats:
    """Solve Theorem 3 for a smooth rate by Newton's method, starting from ``times``.

    Eq. 2: lambda(tau_j) (tau_{j+1} - tau_j) = integral of lambda from tau_{j-1} to tau_j. ``mass``
    is the integral of ``rate``. ``times`` can come from `dp_times`. Times have the unit of
    ``period``.
    """
    tau, m, step = np.sort(times).astype(np.float64), len(times), 1e-6 * period
    for _ in range(rounds):
        residual = theorem3_residual(rate, mass, tau, period)
        if np.abs(residual).max() < 1e-13:
            break
        jacobian = np.empty((m, m))
        for k in range(m):
            moved = tau.copy()
            moved[k] += step
            jacobian[:, k] = (theorem3_residual(rate, mass, moved, period) - residual) / step
        tau = tau - np.linalg.solve(jacobian, residual)
    return np.sort(np.mod(tau, period))


def theorem3_residual(
    rate: Callable[[Floats], Floats], mass: Callable[[Floats], Floats], tau: Floats, period: float
) -> Floats:
    """Return the left minus the right side of Eq. 2 at each time, which is 0 at an optimum."""
    following = np.append(tau[1:], tau[0] + period)
    before = np.append(tau[-1] - period, tau[:-1])
    residual: Floats = rate(tau) * (following - tau) - (mass(tau) - mass(before))
    return residual
