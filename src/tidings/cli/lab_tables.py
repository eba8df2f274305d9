"""Tables and plots of the results of `tidings lab`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.output import posts_text, print_result, print_table, progress
from tidings.formatting import common_unit, duration, figures, in_unit, percent
from tidings.i18n import _, n_

if TYPE_CHECKING:
    from tidings.lab.score import PollScores
    from tidings.lab.traces import Trace


def read_trace(trace: str) -> "Trace":
    """Read a trace and show progress; imports the simulator, which is slow, only when called."""
    from tidings.lab import traces

    with progress(_("reading %(trace)s", trace=trace)):
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
    return _(
        "With the constraints of the service, minimum interval %(min_interval_s)s\n",
        min_interval_s=duration(min_interval_s),
    )


def print_score(result: dict[str, Any]) -> None:
    """Print the metrics of one poll list, one per line."""
    lines = [
        (_("Posts"), posts_text(result["posts"])),
        (
            _("Polls"),
            _(
                "%(polls)s, %(per_day)s per feed and day",
                polls=f"{result['polls']:,}",
                per_day=figures(result["polls_per_feed_day"]),
            ),
        ),
        (
            "",
            n_(
                "%(num)s poll outside the scored period was ignored",
                "%(num)s polls outside the scored period were ignored",
                result["ignored_polls"],
            )
            if result["ignored_polls"]
            else "",
        ),
        (
            _("Mean delay"),
            _(
                "%(mean)s (%(weighted)s by weight)",
                mean=duration(result["mean_delay_s"]),
                weighted=duration(result["weighted_delay_s"]),
            ),
        ),
        (_("Median delay"), duration(result["median_delay_s"])),
        (_("95 % of posts"), _("within %(delay)s", delay=duration(result["p95_delay_s"]))),
        (_("Maximum delay"), duration(result["max_delay_s"])),
        (
            _("Missed"),
            _(
                "%(missed)s, %(share)s of posts",
                missed=f"{result['missed']:,}",
                share=percent(result["missed_share"]),
            ),
        ),
        (
            _("Charged delay"),
            _(
                "%(delay)s; a missed post counts until it left the feed, plus 24 h",
                delay=duration(result["charged_delay_s"]),
            ),
        ),
        (_("Polls per post"), figures(result["polls_per_post"])),
        (_("Up to date"), _("%(share)s of the time", share=percent(result["freshness"]))),
        (
            _("Transfer"),
            _(
                "%(bytes)s with conditional requests, %(full)s without",
                bytes=megabytes(result["bytes"]),
                full=megabytes(result["bytes_full"]),
            ),
        ),
    ]
    click.echo("\n".join(f"{label:<16}{text}" for label, text in lines if text))


def polls_per_day_text(budget: float) -> str:
    """Format a budget: ``4 polls per feed and day``."""
    if budget == 1:
        return _("1 poll per feed and day")
    return _("%(budget)s polls per feed and day", budget=figures(budget))


def megabytes(size: float) -> str:
    """Format a number of bytes: ``12.3 MB``."""
    return _("%(size)s MB", size=figures(size / 1e6))


def print_comparison(comparison: dict[str, Any]) -> None:
    """Print a table with one row per policy; the heading names the unit of all delays."""
    results = comparison["results"]
    unit, size = common_unit([comparison["limit_charged_s"], *(r["mean_delay_s"] for r in results)])
    polls, days = polls_per_day_text(comparison["budget"]), f"{comparison['train_days']:g}"
    click.echo(
        _(
            "%(trace)s: %(polls)s, after %(days)s days of training; delays in %(unit)s",
            trace=comparison["trace"],
            polls=polls,
            days=days,
            unit=unit,
        )
    )
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
        _("(limit)"),
        figures(comparison["budget"]),
        delay(comparison["limit_delay_s"]),
        "",
        "",
        "",
        delay(comparison["limit_charged_s"]),
    ]
    print_table(
        [
            _("policy"),
            _("polls"),
            _("mean"),
            _("median"),
            _("95 %"),
            _("missed"),
            _("charged"),
        ],
        [*rows, limit],
    )
    below = [result["policy"] for result in results if not result["reached_budget"]]
    if below:
        click.echo()
        click.echo(_("Below 95 % of the budget, because of the poll constraints:"))
        click.echo("\n".join(f"  {policy}" for policy in below))


def print_against(comparison: dict[str, Any], reference: str) -> None:
    """Print ratios to a reference policy, with bootstrap confidence intervals over feeds."""
    rows = []
    for result in comparison["results"]:
        if "against" in result:
            charged, plain = result["against"]["charged_delay"], result["against"]["delay"]
            rows.append([result["policy"], *interval(charged), *interval(plain)])
    click.echo(
        _("Ratio to %(reference)s, with 95 %% intervals over resampled feeds", reference=reference)
    )
    click.echo()
    print_table([_("policy"), _("charged"), "", _("mean"), ""], rows)


def interval(ratio: dict[str, float]) -> list[str]:
    """Return a ratio and its confidence interval as two table cells."""
    return [
        f"{ratio['ratio']:.3f}",
        _("%(low)s to %(high)s", low=f"{ratio['low']:.3f}", high=f"{ratio['high']:.3f}"),
    ]


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
        lines[_("the limit")] = [at["limit_charged_s"] for at in comparisons]
    else:
        lines = {
            _("if feeds list all posts"): [at["mean_delay_s"] for at in comparisons],
            _("incl. missed posts"): [at["charged_delay_s"] for at in comparisons],
        }
    fig, ax = plots.figure(
        7.2,
        4.2,
        title=_("Effect of the budget: mean delay incl. missed posts"),
        x=_("polls per feed and day"),
    )
    plots.delay_curves(ax, [at["budget"] for at in comparisons], lines)
    plots.save(fig, file)


def draw_delays(file: Path, scores: "dict[str, PollScores]") -> None:
    """Plot the distribution of delays; with missed posts, a line ends before 100 %."""
    import numpy as np

    from tidings.lab import plots

    labels = {"x": _("share of posts in % (missed posts last)"), "y": _("delay")}
    fig, ax = plots.figure(
        7.2, 4.2, title=_("Delay from publication to arrival"), **labels, log="y", grids="both"
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
