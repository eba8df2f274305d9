"""Tables and plots of the results of `tidings lab`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.output import print_result, print_table, progress
from tidings.formatting import common_unit, count, duration, figures, in_unit, percent

if TYPE_CHECKING:
    from tidings.lab.score import PollScores
    from tidings.lab.traces import Trace


def read_trace(trace: str) -> "Trace":
    """Read a trace and show progress; imports the simulator, which is slow, only when called."""
    from tidings.lab import traces

    with progress(f"reading {trace}"):
        return traces.read_trace(trace)


def save_and_print(result: Any, out: Path | None, show: Callable[[], object]) -> None:
    """Print a result, and write it as JSON to ``out`` if that is given."""
    if out is not None:
        out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print_result(result, show)


def as_served_note(min_interval_s: float | None) -> str:
    """Return a line that names the poll constraints of a run; empty without constraints."""
    if min_interval_s is None:
        return ""
    return f"As served, minimum interval {duration(min_interval_s)}\n"


def print_score(result: dict[str, Any]) -> None:
    """Print the metrics of one poll list, one per line."""
    lines = [
        ("Posts", count(result["posts"], "post")),
        ("Polls", f"{result['polls']:,}, {figures(result['polls_per_feed_day'])} per feed and day"),
        (
            "",
            f"{result['ignored_polls']:,} more outside the scored period were ignored"
            if result["ignored_polls"]
            else "",
        ),
        (
            "Mean delay",
            f"{duration(result['mean_delay_s'])} "
            f"({duration(result['weighted_delay_s'])} by weight)",
        ),
        ("Median delay", duration(result["median_delay_s"])),
        ("95 % within", duration(result["p95_delay_s"])),
        ("Maximum delay", duration(result["max_delay_s"])),
        ("Missed", f"{result['missed']:,}, {percent(result['missed_share'])} of posts"),
        (
            "Charged delay",
            f"{duration(result['charged_delay_s'])}; a missed post counts its time to eviction "
            "plus 24 h",
        ),
        ("Polls per post", figures(result["polls_per_post"])),
        ("Fresh", f"{percent(result['freshness'])} of the time"),
        (
            "Transfer",
            f"{megabytes(result['bytes'])} with conditional requests, "
            f"{megabytes(result['bytes_full'])} without",
        ),
    ]
    click.echo("\n".join(f"{label:<16}{text}" for label, text in lines if text))


def polls_per_day_text(budget: float) -> str:
    """Format a budget: ``4 polls per feed and day``."""
    return f"{figures(budget)} poll{'' if budget == 1 else 's'} per feed and day"


def megabytes(size: float) -> str:
    """Format a number of bytes: ``12.3 MB``."""
    return f"{figures(size / 1e6)} MB"


def print_comparison(comparison: dict[str, Any]) -> None:
    """Print a table with one row per policy; the heading names the unit of all delays."""
    results = comparison["results"]
    unit, size = common_unit([comparison["limit_charged_s"], *(r["mean_delay_s"] for r in results)])
    polls, days = polls_per_day_text(comparison["budget"]), f"{comparison['train_days']:g}"
    click.echo(f"{comparison['trace']}: {polls}, after {days} days of training; delays in {unit}")
    click.echo(as_served_note(comparison["min_interval_s"]))

    def delay(seconds: float | None) -> str:
        return in_unit(seconds, size)

    rows = [
        [
            result["policy"],
            figures(result["polls_per_feed_day"]),
            delay(result["mean_delay_s"]),
            delay(result["median_delay_s"]),
            delay(result["p95_delay_s"]),
            percent(result["missed_share"]),
            delay(result["charged_delay_s"]),
        ]
        for result in results
    ]
    limit = [
        "(limit)",
        figures(comparison["budget"]),
        delay(comparison["limit_delay_s"]),
        "",
        "",
        "",
        delay(comparison["limit_charged_s"]),
    ]
    print_table(["policy", "polls", "mean", "median", "95 %", "missed", "charged"], [*rows, limit])
    below = [result["policy"] for result in results if not result["reached_budget"]]
    if below:
        click.echo()
        click.echo("More than 5 % below the budget under the poll constraints:")
        click.echo("\n".join(f"  {policy}" for policy in below))


def print_against(comparison: dict[str, Any], reference: str) -> None:
    """Print ratios to a reference policy, with bootstrap confidence intervals over feeds."""
    rows = []
    for result in comparison["results"]:
        if "against" in result:
            charged, plain = result["against"]["charged_delay"], result["against"]["delay"]
            rows.append([result["policy"], *interval(charged), *interval(plain)])
    click.echo(f"Ratio to {reference}, with 95 % intervals over resampled feeds")
    click.echo()
    print_table(["policy", "charged", "", "mean", ""], rows)


def interval(ratio: dict[str, float]) -> list[str]:
    """Return a ratio and its confidence interval as two table cells."""
    return [f"{ratio['ratio']:.3f}", f"{ratio['low']:.3f} to {ratio['high']:.3f}"]


# --- plots ----------------------------------------------------------------------------------


def draw_budgets(file: Path, comparisons: Sequence[dict[str, Any]]) -> None:
    """Plot the charged delay by budget, one line per policy, and the limit.

    The axes are logarithmic, so budgets of 0 are left out.
    """
    from tidings.lab import plots

    comparisons = sorted(
        (at for at in comparisons if at["budget"] > 0), key=lambda at: float(at["budget"])
    )
    lines: dict[str, list[float | None]] = {}
    if "results" in comparisons[0]:
        for index, at in enumerate(comparisons):
            for result in at["results"]:
                if not result["policy"].endswith("@native"):  # the same at every budget
                    line = lines.setdefault(result["policy"], [None] * len(comparisons))
                    line[index] = result["charged_delay_s"]
        lines["the limit"] = [at["limit_charged_s"] for at in comparisons]
    else:
        lines = {
            "no windows": [at["mean_delay_s"] for at in comparisons],
            "with windows": [at["charged_delay_s"] for at in comparisons],
        }
    fig, ax = plots.figure(
        7.2,
        4.2,
        title="Effect of the budget: mean delay with missed posts charged",
        x="polls per feed and day",
    )
    plots.delay_curves(ax, [at["budget"] for at in comparisons], lines)
    plots.save(fig, file)


def draw_delays(file: Path, scores: "dict[str, PollScores]") -> None:
    """Plot the distribution of delays; with missed posts, a line ends before 100 %."""
    import numpy as np

    from tidings.lab import plots

    labels = {"x": "% of posts (missed posts last)", "y": "delay at most"}
    fig, ax = plots.figure(
        7.2, 4.2, title="Delay from publication to arrival", **labels, log="y", grids="both"
    )
    ends = []
    low, high = 3600.0, 60.0
    for index, (name, one) in enumerate(scores.items()):
        delay = one.delay_s[~one.missed]
        if len(delay) == 0:
            continue
        share = np.linspace(0.02, 0.99, 98)
        x, y = share * len(delay) / len(one.feed) * 100, np.maximum(np.quantile(delay, share), 1.0)
        color = plots.color_of(name, index)
        ax.plot(x, y, color=color, linestyle=plots.DASHES[index % len(plots.DASHES)])
        ends.append((100.0, float(y[-1]), name, color))
        low, high = min(low, float(y[3])), max(high, float(y[-1]))
    ax.set_ylim(low, high * 1.3)
    ax.set_xlim(0, 100)
    plots.time_ticks(ax, low, high)
    plots.line_labels(ax, ends)
    plots.save(fig, file)
