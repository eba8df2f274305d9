"""Policies that plan a fixed number of polls per feed and day from a budget.

Some of them also plan the times of the day. As in the experiments of the papers, the plan is made
once from the training data. With ``refit_days`` it is made again from the results of polls; the
service does this every day by default. Sia & Cho's four strategies (sect. 4.4) are `uniform`,
`scheduling`, `min-delay` and `combined`.
"""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, HOUR_S, Documents, Floats, Rows
from tidings.policy.allocation import ALLOCATIONS
from tidings.policy.base import Decisions, Policy, reason
from tidings.policy.estimate import CLUSTERS, ESTIMATION_DAYS, RecentCounts, cluster_patterns
from tidings.policy.schedule import (
    GRID_PER_DAY,
    DailyPattern,
    dense_times,
    expected_delay_h,
    optimal_times_up_to,
)
from tidings.reasons import Reason
from tidings.reasons import reason as reason_value

#: Codes of the reasons for a planned time.
EVENLY_SPACED, OPTIMAL_TIMES = 0, 1


class PlannedPolicy(Policy):
    """Base class of policies that poll feed i every ``1 / m_i`` days, with m_i by an allocation.

    m_i need not be an integer (docs/papers.md).
    """

    budgeted = True
    allocation: ClassVar[str]
    #: Rates drift, so the service refits every day; the experiments of the papers did not.
    live_defaults: ClassVar[dict[str, object]] = {"refit_days": 1}
    #: Period of the allocation in days; Han et al. plan for three weeks.
    period_days: ClassVar[float] = 1.0

    def __init__(
        self, *, days: int = ESTIMATION_DAYS, refit_days: int = 0, scale: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__(scale=scale, seed=seed)
        self.days = int(days)
        self.refit_days = int(refit_days)
        self.learns = self.refit_days > 0
        self.polls_per_day: Floats

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        return np.dtype([("since", "f8"), ("recent", "u2", (self.days, 24))])

    def _learn(self, history: Documents, now: float) -> None:
        rows, times = history.new_entries()
        self._started = now
        self._recent.add(rows, times, now - 1e-6)  # today has no posts yet
        self._plan(now)
        self._recent.clear_day(now)

    @property
    def _recent(self) -> RecentCounts:
        return RecentCounts(self.state["recent"], self._started % DAY_S)

    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        if self.learns:
            index, times = seen.new_entries()
            self._recent.add(rows[index], times, now[index])

    def tick(self, now: float, spent: int) -> Rows | None:
        if not self.learns:
            return None
        due = round((now - self._started) / DAY_S) % self.refit_days == 0
        if due:
            self._plan(now)
        self._recent.clear_day(now)
        return np.arange(len(self.feeds)) if due else None

    def _plan(self, now: float) -> None:
        period = self.period_days
        rates = self._recent.rate_per_day() * period
        budget = self.budget_per_day * period
        polls = ALLOCATIONS[self.allocation](rates, self.feeds.weight, self.feeds.window, budget)
        self.polls_per_day = polls / period / self.scale

    def _choose(self, rows: Rows, now: Floats, first: bool) -> Decisions:
        """Return the first planned time of each feed after ``now``.

        The planned times are (k + phase) / m days after the start, for k = 0, 1, 2, ...
        """
        m = self.polls_per_day[rows] / DAY_S
        phase = self.feeds.phase[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            k = np.floor((now - self._started) * m - phase + 1e-9) + 1
            times = np.where(m > 0, self._started + (np.maximum(k, 0) + phase) / m, np.inf)
        return Decisions(times, **reason(EVENLY_SPACED, m * DAY_S, n=len(rows)))

    def reason(self, code: int, numbers: npt.NDArray[np.float32]) -> Reason:
        polls_per_day = round(float(numbers[0]), 6)
        return reason_value(
            "planned", policy=self.name, polls_per_day=polls_per_day, timed=code == OPTIMAL_TIMES
        )


class TimedPolicy(PlannedPolicy):
    """Base class of policies that poll at the optimal times of day for the feed's cluster.

    The times are those of Sia & Cho Theorems 2 and 3. They need an integer number of polls per day:
    an error accumulator alternates floor(m) and ceil(m), so that the mean is m. Below one poll per
    day it selects the days, and Theorem 2 gives the time of day.
    """

    def _plan(self, now: float) -> None:
        super()._plan(now)
        clusters = cluster_patterns(self._recent.hourly(), CLUSTERS, self.seed)
        self.centroids, self.cluster_index = clusters.centroids, clusters.cluster_index
        max_polls = int(np.ceil(self.polls_per_day.max())) + 1
        self._times = np.full((len(self.centroids), max_polls + 1, max_polls), np.inf)
        for c, centroid in enumerate(self.centroids):
            for m, times in enumerate(_plan_table(DailyPattern(centroid), max_polls), start=1):
                self._times[c, m, :m] = times * HOUR_S

    def _choose(self, rows: Rows, now: Floats, first: bool) -> Decisions:
        m, phase = self.polls_per_day[rows], self.feeds.phase[rows]
        day = np.floor(now / DAY_S)
        polls_today = np.floor(m * (day + 1) + phase) - np.floor(m * day + phase)
        table = self._times[self.cluster_index[rows], polls_today.astype(np.int64)]
        after = np.where(table > (now - day * DAY_S)[:, None] + 1e-6, table, np.inf).min(axis=1)
        # No more polls today: take the first time of the next day on which the accumulator passes
        # an integer.
        with np.errstate(divide="ignore", invalid="ignore"):
            next_day = np.ceil((np.floor(m * (day + 1) + phase) + 1 - phase) / m - 1e-9) - 1
            next_day = np.where(m > 0, np.maximum(next_day, day + 1), 0.0)
        polls_then = np.floor(m * (next_day + 1) + phase) - np.floor(m * next_day + phase)
        polls_then = np.clip(polls_then, 1, self._times.shape[1] - 1).astype(np.int64)
        later = next_day * DAY_S + self._times[self.cluster_index[rows], polls_then, 0]
        times = np.where(np.isfinite(after), day * DAY_S + after, np.where(m > 0, later, np.inf))
        return Decisions(times, **reason(OPTIMAL_TIMES, m, n=len(rows)))


def _plan_table(pattern: DailyPattern, max_polls: int) -> list[Floats]:
    """Return the times of day in hours for 1, 2, ... ``max_polls`` polls a day.

    Times are exact on the grid of 30 minutes. For more polls than the grid has slots, the gaps are
    in proportion to lambda^-1/2 (`dense_times`).
    """
    exact = optimal_times_up_to(pattern, min(max_polls, GRID_PER_DAY))
    table = []
    for m in range(1, max_polls + 1):
        dense = dense_times(pattern, m)
        better = m <= len(exact) and expected_delay_h(pattern, exact[m - 1]) <= expected_delay_h(
            pattern, dense
        )
        table.append(exact[m - 1] if better else dense)
    return table


class Uniform(PlannedPolicy):
    name = "uniform"
    summary = "every feed equally often, evenly spaced"
    allocation = "uniform"


class Scheduling(TimedPolicy):
    name = "scheduling"
    summary = "every feed equally often, at the best times of its day (Sia & Cho, strategy 2)"
    allocation = "uniform"


class MinDelay(PlannedPolicy):
    name = "min-delay"
    summary = (
        "polls in proportion to the square root of weight times rate, evenly spaced"
        " (Sia & Cho, strategy 3)"
    )
    allocation = "min-delay"


class Combined(TimedPolicy):
    name = "combined"
    summary = "min-delay allocation, at the best times of the day (Sia & Cho, strategy 4)"
    allocation = "min-delay"


class MinMissing(PlannedPolicy):
    name = "min-missing"
    summary = "more polls for the feeds that would miss the most posts (Han et al.)"
    allocation = "min-missing"
    period_days = 21.0


class CgmAge(PlannedPolicy):
    name = "cgm-age"
    summary = "minimum age of stale copies, as for web crawlers (Cho & Garcia-Molina 2003)"
    allocation = "cgm-age"


class CgmFreshness(PlannedPolicy):
    name = "cgm-freshness"
    summary = "maximum share of fresh copies, as for web crawlers (Cho & Garcia-Molina 2003)"
    allocation = "cgm-freshness"
