"""Compare policies at equal budget on one trace, with confidence intervals.

The intervals come from a paired bootstrap over feeds. A policy without a budget parameter is run
twice: unchanged (``NAME@native``), and with all its intervals multiplied by the factor that gives
it the common number of polls.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from tidings.lab.lower_bound import LowerBound, clairvoyant_bound
from tidings.lab.score import PollScores, metrics, score_polls, sum_by
from tidings.lab.simulate import Conditions, Polls, budget_polls, simulate
from tidings.lab.traces import Trace
from tidings.lab.whatif import exclude_pushed_feeds
from tidings.model import Floats
from tidings.policy import make_policy

#: Tolerated relative difference between the number of polls made and the budget.
TOLERANCE = 0.005
#: Maximum number of runs to find the interval factor of a policy without a budget parameter.
SCALING_RUNS = 14
#: Under poll constraints the search stops where a smaller factor adds less than this share of the
#: polls that it would add without them.
MIN_GAIN = 0.05
#: Smallest factors under constraints, for policies with and without a budget parameter. A plan for
#: four times the budget that stays below the budget will not reach it, and the timetable of
#: `planned.TimedPolicy` grows with the square of the planned polls.
MIN_SCALE_BUDGETED = 1 / 4
MIN_SCALE = 1e-4
#: Share of its polls that a run under poll constraints must make to count as reaching the budget.
#: Policies plan for a little less, and their control takes some days to settle.
REACHED_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """Polls and scores of one policy at one budget."""

    policy: str
    polls: Polls
    scores: PollScores
    scale: float  #: factor of the intervals
    reached_budget: bool = True  #: false if poll constraints cause 5 % fewer polls

    def figures(self) -> dict[str, Any]:
        extra = {"scale": self.scale, "reached_budget": self.reached_budget}
        return {**metrics(self.scores, self.policy), **extra}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of several policies at one budget, with the clairvoyant bounds.

    A clairvoyant bound is the lowest delay that the same number of polls could reach, knowing all
    posts.
    """

    trace: str
    budget: float  #: polls per feed and day
    train_days: float
    results: list[PolicyRun]
    limit_delay_s: float  #: clairvoyant bound of the mean delay
    limit_charged_s: float  #: clairvoyant bound of the charged delay
    min_interval_s: float | None = None  #: minimum interval; None without poll constraints

    def figures(self, against: str | None = None, seed: int = 0) -> dict[str, Any]:
        """Return the figures as JSON-compatible values.

        With ``against``, the name of a policy, the other results have ratios to that policy.
        """
        metadata = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "results"
        }
        results = [result.figures() for result in self.results]
        reference = next((result for result in self.results if result.policy == against), None)
        for result, figures in zip(self.results, results, strict=True):
            if reference is not None and result is not reference:
                figures["against"] = {"policy": against}
                for key, kind in (("charged_delay", "charged"), ("delay", "delay")):
                    figures["against"][key] = asdict(
                        paired_bootstrap(result.scores, reference.scores, kind, seed=seed)
                    )
        return {**metadata, "results": results}


Progress = Callable[[str], None]


def compare(
    trace: Trace,
    policies: Iterable[str],
    budget_per_feed_day: float,
    train_days: float = 14.0,
    *,
    seed: int = 0,
    native: bool = True,
    progress: Progress | None = None,
    conditions: Conditions | None = None,
) -> Comparison:
    """Run every policy after ``train_days`` of the trace, all with the same number of polls.

    ``budget_per_feed_day`` is in polls. With ``conditions`` the runs are as served, that is under
    the poll constraints of the service. Pushed posts are then not scored, and results name the
    policies that stay below the budget. ``native`` also runs policies without a budget parameter
    unchanged.
    """
    start = trace.training_end(train_days)
    results = []
    for spec in policies:
        if progress is not None:
            progress(spec)
        results.extend(
            run_policy(
                trace,
                spec,
                budget_per_feed_day,
                start,
                seed=seed,
                native=native,
                conditions=conditions,
            )
        )
    without, within = clairvoyant_bounds(
        trace, budget_polls(trace, budget_per_feed_day, start), start
    )
    return Comparison(
        trace=trace.name,
        budget=budget_per_feed_day,
        train_days=train_days,
        results=results,
        limit_delay_s=without.mean_s,
        limit_charged_s=within.mean_s,
        min_interval_s=None if conditions is None else conditions.limits.min_interval_s,
    )


def clairvoyant_bounds(
    trace: Trace, polls: float, start: float | None = None
) -> tuple[LowerBound, LowerBound]:
    """Return the clairvoyant bounds of the mean delay and of the charged delay.

    A clairvoyant bound is the lowest delay that this number of polls could reach, knowing all
    posts. The first one ignores windows (entries per document), the second one takes them into
    account. Every post has weight 1, as in `metrics`. The bound of a weighted mean may be higher.
    """
    plain = replace(trace, weight=np.ones(trace.n_feeds))
    return clairvoyant_bound(plain, polls, windows=False, start=start), clairvoyant_bound(
        plain, polls, windows=True, start=start
    )


def run_policy(
    trace: Trace,
    spec: str,
    budget_per_feed_day: float,
    start: float,
    *,
    seed: int = 0,
    native: bool = False,
    conditions: Conditions | None = None,
    progress: Callable[[float], None] | None = None,
) -> list[PolicyRun]:
    """Run one policy from ``start``, scaled to the number of polls that the budget allows.

    This run is the last result. With ``native``, a policy without a budget parameter is also run
    unchanged, as the first result. ``progress`` gets the finished share of the first run.
    """
    target_polls = budget_polls(trace, budget_per_feed_day, start)

    def at(scale: float, progress: Callable[[float], None] | None = None) -> Polls:
        policy = make_policy(spec, live=conditions is not None, scale=scale, seed=seed)
        return simulate(
            trace,
            policy,
            budget_per_feed_day,
            start,
            seed=seed,
            conditions=conditions,
            progress=progress,
        )

    def result(name: str, polls: Polls, scale: float, reached: bool) -> PolicyRun:
        scores = score_polls(trace, polls, start, conditions=conditions)
        return PolicyRun(name, polls, exclude_pushed_feeds(scores, conditions), scale, reached)

    def reached(polls: Polls) -> bool:
        return conditions is None or len(polls) >= REACHED_SHARE * target_polls

    polls = at(1.0, progress)
    policy = make_policy(spec)
    if policy.holds_budget:
        return [result(spec, polls, 1.0, reached(polls))]
    runs = []
    if not policy.budgeted and native:
        runs.append(result(f"{spec}@native", polls, 1.0, True))
    least = None
    if conditions is not None:
        least = MIN_SCALE_BUDGETED if policy.budgeted else MIN_SCALE
    scale, polls = _scaled(at, polls, target_polls, least)
    runs.append(result(spec, polls, scale, reached(polls)))
    return runs


def _scaled(
    at: Callable[[float], Polls], polls: Polls, target_polls: float, least: float | None = None
) -> tuple[float, Polls]:
    """Return the factor at which a policy makes ``target_polls`` polls, and these polls.

    The search is a bracketed secant method in log-log coordinates. ``least`` is the smallest factor
    to try, where poll constraints may keep the polls below ``target_polls`` at any factor. None
    stands for no constraints.
    """
    tried: list[tuple[float, float]] = []
    best = (1.0, polls)
    scale = 1.0
    for _ in range(SCALING_RUNS):
        error = np.log(max(len(polls), 0.5) / max(target_polls, 0.5))
        if not tried or abs(error) < min(abs(e) for _, e in tried):
            best = (scale, polls)
        tried.append((float(np.log(scale)), float(error)))
        if abs(len(polls) - target_polls) <= max(TOLERANCE * 0.5 * target_polls, 0.5):
            break
        if least is not None and _is_out_of_reach(tried, float(np.log(least))):
            break
        x = _next_trial(tried)
        scale = float(np.exp(x)) if least is None else max(float(np.exp(x)), least)
        polls = at(scale)
    return best


def _is_out_of_reach(tried: list[tuple[float, float]], least: float) -> bool:
    """Return whether poll constraints keep the polls below the budget at every factor.

    ``tried`` are (log factor, log of polls over budget) of all runs, ``least`` is the smallest log
    factor.
    """
    if tried[-1][1] >= -TOLERANCE or any(error > 0 for _, error in tried):
        return False
    if tried[-1][0] <= least:
        return True
    if len(tried) < 2:
        return False
    (x_before, error_before), (x, error) = tried[-2:]
    return error - error_before < MIN_GAIN * (x_before - x)


def _next_trial(tried: list[tuple[float, float]]) -> float:
    """Return the log factor to try next.

    It is between the two nearest trials on both sides of the budget. If all trials are on one side,
    it is a growing step beyond them.
    """
    over = max((t for t in tried if t[1] > 0), default=None)
    under = min((t for t in tried if t[1] <= 0), default=None)
    if over is None or under is None:
        x, error = tried[-1]
        return x + float(np.clip(error * 1.05 * 2 ** (len(tried) - 1), -3, 3))
    if len(tried) % 4 == 0 or under[1] == over[1]:
        return (over[0] + under[0]) / 2
    share = over[1] / (over[1] - under[1])
    return over[0] + float(np.clip(share, 0.02, 0.98)) * (under[0] - over[0])


# --- confidence intervals -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratio of the figures of two policies, with a 95 % confidence interval over feeds."""

    ratio: float
    low: float
    high: float


def paired_bootstrap(
    ours: PollScores,
    theirs: PollScores,
    figure: str = "charged",
    resamples: int = 10_000,
    seed: int = 0,
) -> Ratio:
    """Return the ratio of the mean figures of two policies, with a paired bootstrap over feeds.

    ``figure`` is ``charged`` (charged delay), ``delay`` (of collected posts) or ``missed``.
    """
    top, top_count = _feed_sums(ours, figure)
    bottom, bottom_count = _feed_sums(theirs, figure)
    n = ours.n_feeds
    rng = np.random.default_rng(seed)
    table = np.stack([top, top_count, bottom, bottom_count])
    ratios = np.empty(resamples)
    step = max(1, 4_000_000 // max(n, 1))
    for begin in range(0, resamples, step):
        size = min(step, resamples - begin)
        counts = rng.multinomial(n, np.full(n, 1 / n), size=size)
        sums = counts @ table.T
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios[begin : begin + size] = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (top.sum() / top_count.sum()) / (bottom.sum() / bottom_count.sum())
    low, high = (
        np.nanpercentile(ratios, [2.5, 97.5]) if np.isfinite(ratios).any() else (np.nan, np.nan)
    )
    return Ratio(float(ratio), float(low), float(high))


def _feed_sums(scores: PollScores, figure: str) -> tuple[Floats, Floats]:
    """Return the sum and the number of values of a figure for each feed.

    ``figure`` is ``charged`` (charged delay), ``delay`` (of collected posts) or ``missed``.
    """
    keep = ~scores.missed if figure == "delay" else np.ones(len(scores.feed), dtype=np.bool_)
    values = {
        "charged": scores.charged_s,
        "delay": scores.delay_s,
        "missed": scores.missed.astype(np.float64),
    }[figure]
    count = np.bincount(scores.feed[keep], minlength=scores.n_feeds).astype(np.float64)
    return sum_by(scores.feed[keep], values[keep], scores.n_feeds), count
