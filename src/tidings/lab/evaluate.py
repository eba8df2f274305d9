"""Compare the policy `price` with the policies of the papers on several traces and budgets.

A cell is one trace at one budget. In each cell all policies make the same number of polls
(`compare`), the best of the papers' policies by charged delay is determined, and the evaluated
policy is compared with each of them by a paired bootstrap over feeds. `ablate` compares a policy
with itself with parts switched off. Cells are independent and can run in separate processes.
"""

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidings.errors import UsageError
from tidings.lab.compare import compare, paired_bootstrap
from tidings.lab.processes import Report, run_tasks
from tidings.lab.simulate import Conditions, budget_polls
from tidings.lab.traces import read_trace
from tidings.policy import make_policy, policy_class
from tidings.policy.constraints import Limits

#: Policies of the papers. Those without a budget parameter are scaled to the budget by one factor.
PAPER_POLICIES = (
    "uniform",
    "scheduling",
    "min-delay",
    "combined",
    "min-missing",
    "cgm-age",
    "fixed-learned",
    "moving-average",
    "post-rate",
    "freshness-rate",
)
OURS = "price"
#: Policy of the papers that misses the fewest posts, with which missed posts are compared.
FEWEST_MISSED_POLICY = "min-missing"
BUDGETS = (0.5, 1.0, 4.0, 12.0)
TRAIN_DAYS = 28.0
RESAMPLES = 10_000

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """Parameters of one cell, a trace directory at one budget.

    They are small enough to send to other processes.
    """

    trace: str
    budget: float
    train_days: float
    policies: tuple[str, ...]
    ours: str
    seed: int
    resamples: int = RESAMPLES
    min_interval_s: float | None = (
        None  #: minimum interval of the poll constraints; None without constraints
    )

    @property
    def name(self) -> str:
        """Name of the trace and budget, for progress messages."""
        return f"{Path(self.trace).name} at {self.budget:g}"


# --- the table ------------------------------------------------------------------------------------


def evaluate(
    traces: Iterable[str | Path],
    budgets: Sequence[float] = BUDGETS,
    train_days: float = TRAIN_DAYS,
    policies: Sequence[str] = PAPER_POLICIES,
    ours: str = OURS,
    *,
    seed: int = 0,
    jobs: int = 1,
    resamples: int = RESAMPLES,
    min_interval_s: float | None = None,
    report: Report | None = None,
) -> Figures:
    """Run every policy on every trace at every budget, and compare ``ours`` with the others.

    Returns the cells, and over all cells the geometric mean of the ratios and the worst ratio. With
    ``min_interval_s`` the runs are as served, that is under poll constraints with that minimum
    interval. Raises `UsageError` if there are no other policies, no traces or an unknown policy.
    """
    others = tuple(spec for spec in policies if spec != ours)
    if not others:
        raise UsageError(f"nothing to set {ours} against; give other policies")
    for spec in (*others, ours):
        make_policy(spec)  # reject an unknown name before a long run
    tasks = [
        Task(str(trace), b, train_days, others, ours, seed, resamples, min_interval_s)
        for trace in traces
        for b in budgets
    ]
    if not tasks:
        raise UsageError("no traces to run on; name at least one, and at least one budget")
    cells = run_tasks(
        _cell, tasks, jobs, report, name=lambda task: task.name, steps=len(others) + 1
    )
    run = {"ours": ours, "train_days": train_days, "seed": seed, "min_interval_s": min_interval_s}
    return {**run, "cells": cells, "overall": _overall(cells)}


def _cell(task: Task, report: Report | None = None) -> Figures:
    trace = read_trace(task.trace)
    place = f"{trace.name} at {task.budget:g}"
    has_started = False

    def step(spec: str) -> None:
        nonlocal has_started
        if report is not None:
            report(f"{place}: {spec}", int(has_started))
        has_started = True

    specs = (*task.policies, task.ours)
    conditions = None if task.min_interval_s is None else Conditions(Limits(task.min_interval_s))
    compared = compare(
        trace,
        specs,
        task.budget,
        task.train_days,
        seed=task.seed,
        native=False,
        progress=step,
        conditions=conditions,
    )
    if report is not None:
        report(f"{place}: resampling feeds", 1)
    scores = {result.policy: result.scores for result in compared.results}
    against = {
        spec: asdict(
            paired_bootstrap(scores[task.ours], scores[spec], "charged", task.resamples, task.seed)
        )
        for spec in task.policies
    }
    target_polls = budget_polls(trace, task.budget, trace.training_end(task.train_days))
    comparison_figures = compared.figures()
    rows = {
        row["policy"]: {**row, "off_budget": row["polls"] / target_polls - 1}
        for row in comparison_figures["results"]
    }
    ours, least = rows[task.ours], rows.get(FEWEST_MISSED_POLICY)
    best = min(task.policies, key=lambda spec: _value_or(rows[spec]["charged_delay_s"], np.inf))
    return {
        **comparison_figures,
        "results": list(rows.values()),
        "feeds": trace.n_feeds,
        "posts": ours["posts"],
        "budget_polls": target_polls,
        "off_budget": ours["off_budget"],
        "scale": ours["scale"],  # 1 where the policy meets the budget without scaling
        "best": best,
        "ratio": against[best],
        "against": against,
        "missed_points": least
        and 100 * (_value_or(ours["missed_share"], 0.0) - _value_or(least["missed_share"], 0.0)),
    }


def _value_or(figure: float | None, otherwise: float) -> float:
    """Return a figure, or ``otherwise`` where there are no posts (None)."""
    return otherwise if figure is None else figure


def _overall(cells: Sequence[Figures]) -> Figures:
    """Return summary figures over all cells.

    They are the geometric mean and the worst of the ratios, the largest excess of the missed share,
    and the largest deviation from the budget.
    """
    ratios = np.array([cell["ratio"]["ratio"] for cell in cells])
    worst = cells[int(np.argmax(ratios))]
    points = [cell["missed_points"] for cell in cells if cell["missed_points"] is not None]
    return {
        "geometric_mean": geometric_mean(ratios),
        "worst": {
            "trace": worst["trace"],
            "budget": worst["budget"],
            "ratio": worst["ratio"]["ratio"],
        },
        "most_missed_points": max(points, default=None),
        "off_budget": max((cell["off_budget"] for cell in cells), key=abs),
    }


# --- ablation: parts of the policy switched off ---------------------------------------------------


def ablation_parts(policy: str = OURS) -> list[str]:
    """Return the parts of a policy that can be switched off.

    These are the parameters with the default true.
    """
    parameters = inspect.signature(policy_class(policy).__init__).parameters
    return [name for name, parameter in parameters.items() if parameter.default is True]


def ablate(
    traces: Iterable[str | Path],
    budgets: Sequence[float] = BUDGETS,
    train_days: float = TRAIN_DAYS,
    policy: str = OURS,
    parts: Sequence[str] | None = None,
    **options: Any,
) -> Figures:
    """Measure the effect of each part of a policy by switching it off.

    The result is the charged delay without the part divided by that of the complete policy.
    ``options`` are those of `evaluate`.
    """
    known = ablation_parts(policy)
    chosen = list(known if parts is None else parts)
    unknown = [part for part in chosen if part not in known]
    if unknown or not chosen:
        has = f"it has {', '.join(known)}" if known else "it has no part that can be switched off"
        raise UsageError(
            f"policy {policy!r} has no part {', '.join(unknown)}; {has}"
            if unknown
            else f"policy {policy!r}: {has}"
        )
    without = {part: f"{policy}:{part}=false" for part in chosen}
    evaluation = evaluate(traces, budgets, train_days, list(without.values()), policy, **options)
    cells = evaluation["cells"]
    for cell in cells:
        cell["worth"] = {part: _worth(cell, spec, policy) for part, spec in without.items()}
    names = list(dict.fromkeys(cell["trace"] for cell in cells))

    def worth(part: str, trace: str | None) -> float:
        ratios = [cell["worth"][part]["ratio"] for cell in cells if trace in (None, cell["trace"])]
        return geometric_mean(np.array(ratios))

    by_trace = {part: {name: worth(part, name) for name in names} for part in chosen}
    overall = {part: worth(part, None) for part in chosen}
    run = {key: evaluation[key] for key in ("train_days", "seed", "min_interval_s", "cells")}
    return {"policy": policy, **run, "by_trace": by_trace, "overall": overall}


def _worth(cell: Figures, spec: str, policy: str) -> Figures:
    """Return the charged delay without a part divided by that of the complete policy.

    This is the inverse of the ratio of `evaluate`. A policy with its own budget control may end
    slightly off the budget, so the difference to the complete policy is reported beside the ratio.
    """
    ratio, high, low = (1 / x if x else np.inf for x in cell["against"][spec].values())
    polls = {row["policy"]: row["polls"] for row in cell["results"]}
    return {
        "ratio": ratio,
        "low": low,
        "high": high,
        "more_polls": polls[spec] / max(polls[policy], 1) - 1,
    }


def geometric_mean(ratios: Any) -> float:
    """Return the geometric mean of ratios, which must be above 0."""
    return float(np.exp(np.log(ratios).mean()))
