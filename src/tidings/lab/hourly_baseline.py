"""Compare policies with hourly polling under the conditions of the service.

Every run is under the poll constraints of the service and counts the cost of polls (`Conditions`).
Hourly polling runs under the same constraints, at the default minimum interval. There is a row for
each policy at each budget with the default minimum interval, and at other minimum intervals with
the default and the largest budget. The command is `tidings lab delivered`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidings.config import Config
from tidings.errors import UsageError
from tidings.lab.compare import run_policy
from tidings.lab.evaluate import geometric_mean
from tidings.lab.processes import Report, run_tasks
from tidings.lab.score import metrics, score_polls
from tidings.lab.simulate import Conditions, simulate
from tidings.lab.traces import Trace, read_trace
from tidings.model import MINUTE_S
from tidings.policy import make_policy
from tidings.policy.constraints import Limits

HOURLY = "hourly"
HOURLY_POLICY = "fixed:interval_h=1"
#: Polls per feed and day of hourly polling. A policy with this budget makes as many requests.
HOURLY_BUDGET = 24.0
BUDGETS = (6.0, 12.0, HOURLY_BUDGET)
#: Minimum intervals in seconds that are simulated besides the default.
MIN_INTERVALS_S = (60 * MINUTE_S,)
TRAIN_DAYS = 28.0

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """Policy, budget and minimum interval of one row of the comparison."""

    policy: str
    budget: float  #: polls per feed and day
    min_interval_s: float


@dataclass(frozen=True, slots=True)
class Task:
    """Parameters of one simulation, which are small enough to send to other processes."""

    trace: str  #: directory of the trace
    settings: Settings
    default: bool  #: whether these are the default settings
    train_days: float
    seed: int

    @property
    def name(self) -> str:
        """Name of the trace and settings, for progress messages."""
        chosen = self.settings
        place = f"{Path(self.trace).name}: {chosen.policy}"
        return place if chosen.policy == HOURLY else f"{place} at {chosen.budget:g} a day"


def default_settings(n_feeds: int) -> Settings:
    """Return the default settings for an installation with this number of feeds."""
    config = Config()
    budget = config.budget.per_day(n_feeds) / max(n_feeds, 1)
    return Settings(config.policy_name, budget, config.min_interval_s)


def settings_grid(
    default: Settings,
    policies: Sequence[str],
    budgets: Sequence[float] = BUDGETS,
    min_intervals_s: Sequence[float] = MIN_INTERVALS_S,
) -> list[Settings]:
    """Return the settings of the rows for one trace, with hourly polling first.

    The default settings are always included.
    """
    at_default = sorted({*budgets, default.budget})
    elsewhere = sorted({max(budgets), default.budget})
    others = sorted({*min_intervals_s} - {default.min_interval_s})
    rows = [Settings(HOURLY, HOURLY_BUDGET, default.min_interval_s)]
    if default.policy not in policies:
        rows.append(default)
    rows += [Settings(policy, b, default.min_interval_s) for policy in policies for b in at_default]
    rows += [Settings(policy, b, i) for i in others for policy in policies for b in elsewhere]
    return rows


def compare_with_hourly(
    traces: Iterable[str | Path],
    policies: Sequence[str] | None = None,
    budgets: Sequence[float] = BUDGETS,
    min_intervals_s: Sequence[float] = MIN_INTERVALS_S,
    train_days: float = TRAIN_DAYS,
    *,
    seed: int = 0,
    jobs: int = 1,
    report: Report | None = None,
) -> list[Row]:
    """Simulate all settings on all traces and return one flat list of rows.

    A row has the keys of `metrics`, and ``trace``, ``policy`` (`HOURLY` for hourly polling),
    ``feeds``, ``budget_per_feed_day``, ``min_interval_s``, ``default`` (true for the default
    settings, once per trace), ``reached_budget``, and the ratios to hourly polling
    ``requests_ratio`` and ``charged_delay_ratio`` (None where there is nothing to divide by).

    Raises `UsageError` and `TraceError` before anything is simulated. ``report`` counts rows.
    """
    tasks = plan(traces, policies, budgets, min_intervals_s, train_days, seed)
    return run_plan(tasks, jobs, report)


def run_plan(tasks: Sequence[Task], jobs: int = 1, report: Report | None = None) -> list[Row]:
    """Simulate the tasks from `plan` and return their rows with ratios to hourly polling."""
    rows = run_tasks(_simulate, tasks, jobs, report, name=lambda task: task.name)
    hourly: Row = {}
    for row in rows:  # the first row of each trace is hourly polling
        if row["policy"] == HOURLY:
            hourly = row
        row["requests_ratio"] = _ratio(row["polls"], hourly["polls"])
        row["charged_delay_ratio"] = _ratio(row["charged_delay_s"], hourly["charged_delay_s"])
    return rows


def plan(
    traces: Iterable[str | Path],
    policies: Sequence[str] | None = None,
    budgets: Sequence[float] = BUDGETS,
    min_intervals_s: Sequence[float] = MIN_INTERVALS_S,
    train_days: float = TRAIN_DAYS,
    seed: int = 0,
) -> list[Task]:
    """Check all arguments and return one task per row, with hourly polling first.

    Raises `UsageError` for invalid arguments and `TraceError` for a trace that is invalid or too
    short.
    """
    names = [str(trace) for trace in traces]
    chosen = [Config().policy_name] if policies is None else list(policies)
    if not names or not chosen or not budgets:
        raise UsageError("nothing to simulate; give at least one trace, one policy and one budget")
    for spec in chosen:
        make_policy(spec)
    tasks = []
    for name in names:
        trace = read_trace(name)
        trace.training_end(train_days)
        default = default_settings(trace.n_feeds)
        tasks += [
            Task(name, row, row == default, train_days, seed)
            for row in settings_grid(default, chosen, budgets, min_intervals_s)
        ]
    return tasks


def _simulate(task: Task, report: Report | None = None) -> Row:
    trace = read_trace(task.trace)
    start = trace.training_end(task.train_days)
    chosen = task.settings
    conditions = Conditions(Limits(min_interval_s=chosen.min_interval_s))
    finished = 0.0

    def progress(share: float) -> None:
        nonlocal finished
        if report is not None:
            report(task.name, share - finished)
        finished = share

    progress(0.0)
    seed = task.seed
    if chosen.policy == HOURLY:
        hourly = make_policy(HOURLY_POLICY, seed=seed)
        polls = simulate(
            trace, hourly, chosen.budget, start, seed=seed, conditions=conditions, progress=progress
        )
        scores, reached = score_polls(trace, polls, start, conditions=conditions), True
    else:
        *_, result = run_policy(
            trace,
            chosen.policy,
            chosen.budget,
            start,
            seed=seed,
            conditions=conditions,
            progress=progress,
        )
        scores, reached = result.scores, result.reached_budget
    progress(1.0)
    return {**_columns(trace, task), **metrics(scores), "reached_budget": reached}


def _columns(trace: Trace, task: Task) -> Row:
    return {
        "trace": trace.name,
        "policy": task.settings.policy,
        "feeds": trace.n_feeds,
        "budget_per_feed_day": task.settings.budget,
        "min_interval_s": task.settings.min_interval_s,
        "default": task.default,
    }


def _ratio(figure: float | None, hourly: float | None) -> float | None:
    return figure / hourly if figure is not None and hourly else None


# --- over several traces --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one setting over all traces, relative to hourly polling."""

    policy: str
    budget: float  #: polls per feed and day
    default: bool
    requests_ratio: float  #: geometric mean over the traces
    charged_delay_ratio: float  #: geometric mean over the traces
    worst_ratio: float  #: largest ratio of the charged delay
    worst_trace: str


def summarize(rows: Sequence[Row]) -> list[Summary]:
    """Return a summary of each policy at the budget of hourly polling and by default.

    The default is the default budget and minimum interval.
    """
    interval = next((row["min_interval_s"] for row in rows if row["policy"] == HOURLY), None)
    groups: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        if row["policy"] == HOURLY or row["charged_delay_ratio"] is None:
            continue
        if row["budget_per_feed_day"] == HOURLY_BUDGET and row["min_interval_s"] == interval:
            groups.setdefault((row["policy"], False), []).append(row)
        if row["default"]:
            groups.setdefault((row["policy"], True), []).append(row)
    return [_summary(group, default) for (_, default), group in groups.items()]


def _summary(rows: Sequence[Row], default: bool) -> Summary:
    worst = max(rows, key=lambda row: float(row["charged_delay_ratio"]))
    return Summary(
        policy=worst["policy"],
        budget=worst["budget_per_feed_day"],
        default=default,
        requests_ratio=geometric_mean([row["requests_ratio"] for row in rows]),
        charged_delay_ratio=geometric_mean([row["charged_delay_ratio"] for row in rows]),
        worst_ratio=worst["charged_delay_ratio"],
        worst_trace=worst["trace"],
    )
