"""At what times of the day: the optimal retrieval times of Sia & Cho's Theorems 2 and 3.

A daily pattern is 24 hourly rates (posts per hour), repeated every day. Polls at times tau_1 < ... < tau_m of a day cost
``sum int lambda(t) (tau_next - t) dt`` in post-hours of delay. Three ways to the least of it: an exact dynamic program on
a grid of 30 minutes, and the paper's two, which are tested against it.
"""

import itertools
from collections.abc import Callable

import numpy as np

from tidings.errors import UsageError
from tidings.model import Floats, Ints

DAY_H = 24.0
#: Sia & Cho sect. 3.2.2: "reasonable performance ... when a time granularity of 30 minutes is used".
GRID_PER_DAY = 48
#: Beyond, the exhaustive search may take minutes (flat patterns, where hardly anything can be pruned, are the slowest).
MAX_EXHAUSTIVE_POLLS = 12


class DailyPattern:
    """A day of hourly rates with its integrals: A(t), posts since midnight, and Q(t), the integral of A."""

    def __init__(self, hourly: Floats) -> None:
        if hourly.shape != (24,) or not np.all(np.isfinite(hourly)) or np.any(hourly < 0):
            raise UsageError("a daily pattern is 24 hourly rates of at least 0")
        self.hourly = hourly
        self._mass = np.concatenate([[0.0], np.cumsum(hourly)])
        self._area = np.concatenate([[0.0], np.cumsum((self._mass[:-1] + self._mass[1:]) / 2)])
        self.posts = float(self._mass[-1])

    def mass(self, t: Floats) -> Floats:
        """A(t): expected posts in [0, t] hours; t may lie days ahead or behind."""
        day, hour, part = self._split(t)
        posts: Floats = day * self.posts + self._mass[hour] + self.hourly[hour] * part
        return posts

    def area(self, t: Floats) -> Floats:
        """Q(t), the integral of A over [0, t]."""
        day, hour, part = self._split(t)
        whole = self._area[-1] * day + self.posts * DAY_H * day * (day - 1) / 2
        within = self._area[hour] + self._mass[hour] * part + self.hourly[hour] * part**2 / 2
        integral: Floats = whole + day * self.posts * (hour + part) + within
        return integral

    def delay(self, start: Floats, end: Floats) -> Floats:
        """Lemma 1: expected delay, in post-hours, of the posts between a poll at start and the next at end."""
        return self.area(end) - self.area(start) - self.mass(start) * (end - start)

    @staticmethod
    def _split(t: Floats) -> tuple[Floats, Ints, Floats]:
        day = np.floor(t / DAY_H)
        rest = t - day * DAY_H
        hour = np.minimum(rest.astype(np.int64), 23)
        return day, hour, rest - hour


def expected_delay_h(pattern: DailyPattern, times: Floats) -> float:
    """Post-hours of delay in one day when it is polled at ``times`` every day (Lemma 1, cyclic)."""
    if len(times) == 0:
        return float("inf") if pattern.posts > 0 else 0.0
    times = np.sort(times)
    following = np.append(times[1:], times[0] + DAY_H)
    return float(pattern.delay(times, following).sum())


def _slot_times(n: int, grid: int) -> Floats:
    """The first n slots of a grid, in hours."""
    return np.arange(n, dtype=np.float64) * (DAY_H / grid)


def even_times(polls: int, phase: float = 0.0) -> Floats:
    """Polls at equal distances, the first ``phase`` of a distance after midnight."""
    return (np.arange(polls) + phase) * DAY_H / polls


# --- exact: dynamic program ---------------------------------------------------------------------------------------------


def _cost_by_rotation(pattern: DailyPattern, grid: int) -> Floats:
    """C[r, i, j]: delay between polls at slots r + i and r + j of the grid, for i < j <= grid; inf elsewhere."""
    slots = _slot_times(2 * grid + 1, grid)
    mass, area = pattern.mass(slots), pattern.area(slots)
    i = np.arange(grid)[:, None, None] + np.arange(grid + 1)[None, :, None]
    j = np.arange(grid)[:, None, None] + np.arange(grid + 1)[None, None, :]
    cost = area[j] - area[i] - mass[i] * (slots[j] - slots[i])
    return np.where(j > i, cost, np.inf)


def optimal_times_up_to(
    pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY
) -> list[Floats]:
    """The best times for 1, 2, ... ``polls`` polls a day, exact on the grid.

    For every rotation r of the day (a poll at slot r), the cheapest way from r to r + grid in m links: O(m grid^2) each, and
    all rotations and all m in one sweep.
    """
    if not 0 < polls <= grid:
        raise UsageError(
            f"between 1 and {grid} polls a day fit a grid of {grid} slots, not {polls}"
        )
    cost = _cost_by_rotation(pattern, grid)
    best = cost[:, 0, :]  # one link from slot r
    links = [np.zeros(best.shape, dtype=np.int64)]
    found = []
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
        found.append(np.sort(np.array(slots)) * (DAY_H / grid))
    return found


def dp_times(pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY) -> Floats:
    """The best times for ``polls`` polls a day, exact on the grid."""
    return optimal_times_up_to(pattern, polls, grid)[-1]


# --- the paper's first method: exhaustive search with pruning -----------------------------------------------------------


def exhaustive_times(pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY) -> Floats:
    """All choices of the first two points; Eq. 2 gives the rest; plans that cannot win any more are cut.

    On a grid, and where hourly rates jump, Eq. 2 becomes two inequalities: moving tau_j one slot either way must not
    help. Both are linear in tau_{j+1}, so they leave a short run of slots for it, mostly one or two. A day is a circle: the two
    points to begin with may be taken to be those of the shortest gap.
    """
    if not 0 < polls <= grid:
        raise UsageError(
            f"between 1 and {grid} polls a day fit a grid of {grid} slots, not {polls}"
        )
    width = DAY_H / grid
    slots = _slot_times(3 * grid + 1, grid)
    mass, area = pattern.mass(slots), pattern.area(slots)

    def cost(i: int, j: int) -> float:
        return float(area[j] - area[i] - mass[i] * (slots[j] - slots[i]))

    if polls > MAX_EXHAUSTIVE_POLLS:
        raise UsageError(
            f"exhaustive search beyond {MAX_EXHAUSTIVE_POLLS} polls a day takes too long; use the method dp"
        )
    best_cost, best_plan = np.inf, [0]

    def next_slots(before: int, here: int) -> range:
        """Slots n for which neither ``here - 1`` nor ``here + 1`` is better between ``before`` and n."""
        low, high = here + 1, before + grid + grid
        right = (
            mass[here + 1] - mass[here]
        )  # moving right: posts of the slot wait until n instead of here + 1
        if right > 1e-12:
            gain_free = cost(before, here + 1) - cost(before, here) - cost(here, here + 1)
            high = min(high, here + 1 + int(np.floor(gain_free / (right * width) + 1e-9)))
        left = mass[here] - mass[here - 1]
        saved = cost(before, here) - cost(before, here - 1) - cost(here - 1, here)
        if left > 1e-12:
            low = max(low, here + int(np.ceil(saved / (left * width) - 1e-9)))
        elif saved > 1e-12:
            return range(
                0
            )  # nothing was posted in the slot before: polling then is as good and sooner
        return range(low, high + 1)

    def extend(plan: list[int], so_far: float) -> None:
        nonlocal best_cost, best_plan
        if so_far >= best_cost - 1e-12:
            return
        if len(plan) == polls:
            total = so_far + cost(plan[-1], plan[0] + grid)
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
            extend([*plan, n], so_far + cost(plan[-1], n))

    for start in range(grid):
        extend([start + grid // 2], 0.0)
    return np.sort(np.mod(np.array(best_plan), grid)) * width


# --- the paper's second method: iterative refinement --------------------------------------------------------------------


def iterative_times(pattern: DailyPattern, polls: int, grid: int = GRID_PER_DAY) -> Floats:
    """Start evenly spaced, move one point at a time to where it helps most, until nothing moves.

    The paper leaves the size of a move to an unseen longer version; here a point may go to any free slot. One start
    finds a local optimum, so every phase of the even start is refined, and of one that follows the root of the pattern, and the
    best is kept.
    """
    if not 0 < polls <= grid:
        raise UsageError(
            f"between 1 and {grid} polls a day fit a grid of {grid} slots, not {polls}"
        )
    slots = _slot_times(2 * grid + 1, grid)
    mass, area = pattern.mass(slots), pattern.area(slots)
    i, j = np.meshgrid(np.arange(2 * grid + 1), np.arange(2 * grid + 1), indexing="ij")
    table = np.where(j > i, area[j] - area[i] - mass[i] * (slots[j] - slots[i]), np.inf)

    def total(plan: Ints) -> float:
        return float(table[plan, np.append(plan[1:], plan[0] + grid)].sum())

    best_cost, best_plan = np.inf, np.arange(polls)
    even = np.arange(polls) * grid // polls
    uneven = np.round(dense_times(pattern, polls) / DAY_H * grid).astype(np.int64)
    for start, phase in itertools.product((even, uneven), range(max(1, grid // polls))):
        plan = np.unique((phase + start) % grid)
        if len(plan) < polls:  # two points fell on one slot
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
    """Total delay of ``rest`` plus one point at each slot of the grid."""
    slot = np.arange(grid)
    if len(rest) == 0:
        alone: Floats = table[slot, slot + grid]
        return alone
    following = np.append(rest[1:], rest[0] + grid)
    gaps = table[rest, following]
    g = (
        np.searchsorted(rest, slot, side="right") - 1
    )  # the gap a slot falls into; -1 is the one over midnight
    before, after = rest[g], following[g]
    shifted = np.where(g < 0, slot + grid, slot)
    split = table[before, shifted] + table[shifted, after]
    total: Floats = gaps.sum() - gaps[g] + split
    return total


METHODS: dict[str, Callable[[DailyPattern, int], Floats]] = {
    "dp": dp_times,
    "exhaustive": exhaustive_times,
    "iterative": iterative_times,
}


# --- beyond the grid ----------------------------------------------------------------------------------------------------


def dense_times(pattern: DailyPattern, polls: int) -> Floats:
    """Many polls a day: gaps in proportion to lambda^-1/2, the limit of Theorem 3 when lambda is constant within a gap."""
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
    """Solve Theorem 3 for a smooth rate by Newton's method from a good start (the dynamic program's, say).

    Eq. 2: lambda(tau_j) (tau_{j+1} - tau_j) = mass between tau_{j-1} and tau_j. ``mass`` is the integral of ``rate``.
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
    """Left side minus right side of Eq. 2 at each point; zero at an optimum."""
    following = np.append(tau[1:], tau[0] + period)
    before = np.append(tau[-1] - period, tau[:-1])
    residual: Floats = rate(tau) * (following - tau) - (mass(tau) - mass(before))
    return residual
