"""How the laboratory's results look: tables for the terminal, curves for `--plot`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.output import print_table, progress, tell
from tidings.formatting import common_unit, count, duration, figures, in_unit, percent

if TYPE_CHECKING:
    from tidings.lab.score import PollScores
    from tidings.lab.traces import Trace


def read_trace(trace: str) -> "Trace":
    """As the laboratory does, which is imported only now, and on a terminal one sees that it is being read."""
    from tidings.lab import traces

    with progress(f"reading {trace}"):
        return traces.read_trace(trace)


def save_and_tell(found: Any, out: Path | None, show: Callable[[], object]) -> None:
    """Print a result, and write it to a file as JSON where one is given."""
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    tell(found, show)


def as_served_note(min_interval_s: float | None) -> str:
    """A line that names the poll constraints of a run; empty for a run without them."""
    if min_interval_s is None:
        return ""
    return f"As served, minimum interval {duration(min_interval_s)}\n"


def print_score(found: dict[str, Any]) -> None:
    """The metrics of one poll list, a line each."""
    lines = [
        ("Posts", count(found["posts"], "post")),
        ("Polls", f"{found['polls']:,}, {figures(found['polls_per_feed_day'])} per feed and day"),
        (
            "",
            f"{found['ignored_polls']:,} more outside the judged period were ignored"
            if found["ignored_polls"]
            else "",
        ),
        (
            "Mean delay",
            f"{duration(found['mean_delay_s'])} ({duration(found['weighted_delay_s'])} by weight)",
        ),
        ("Half within", duration(found["median_delay_s"])),
        ("95 % within", duration(found["p95_delay_s"])),
        ("All within", duration(found["max_delay_s"])),
        ("Missed", f"{found['missed']:,}, {percent(found['missed_share'])} of posts"),
        (
            "Charged delay",
            f"{duration(found['charged_delay_s'])}, a missed post counting its time to eviction plus 24 h",
        ),
        ("Polls per post", figures(found["polls_per_post"])),
        ("Fresh", f"{percent(found['freshness'])} of the time"),
        (
            "Transfer",
            f"{megabytes(found['bytes'])} with conditional requests, {megabytes(found['bytes_full'])} without",
        ),
    ]
    click.echo("\n".join(f"{label:<16}{text}" for label, text in lines if text))


def a_day(budget: float) -> str:
    """``4 polls per feed and day``."""
    return f"{figures(budget)} poll{'' if budget == 1 else 's'} per feed and day"


def megabytes(size: float) -> str:
    """``12.3 MB``."""
    return f"{figures(size / 1e6)} MB"


def print_comparison(found: dict[str, Any]) -> None:
    """One row per policy; all delays in one unit, named in the heading."""
    results = found["results"]
    unit, size = common_unit([found["limit_charged_s"], *(r["mean_delay_s"] for r in results)])
    polls, days = a_day(found["budget"]), f"{found['train_days']:g}"
    click.echo(f"{found['trace']}: {polls}, after {days} days of training; delays in {unit}")
    click.echo(as_served_note(found["min_interval_s"]))

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
        figures(found["budget"]),
        delay(found["limit_delay_s"]),
        "",
        "",
        "",
        delay(found["limit_charged_s"]),
    ]
    print_table(["policy", "polls", "mean", "median", "95 %", "missed", "charged"], [*rows, limit])
    below = [result["policy"] for result in results if not result["reached_budget"]]
    if below:
        click.echo()
        click.echo("More than 5 % below the budget under the poll constraints:")
        click.echo("\n".join(f"  {policy}" for policy in below))


def print_against(found: dict[str, Any], reference: str) -> None:
    """Ratios to one policy, with what chance among feeds leaves open."""
    rows = []
    for result in found["results"]:
        if "against" in result:
            charged, plain = result["against"]["charged_delay"], result["against"]["delay"]
            rows.append([result["policy"], *interval(charged), *interval(plain)])
    click.echo(f"Ratio to {reference}, with 95 % intervals over resampled feeds")
    click.echo()
    print_table(["policy", "charged", "", "mean", ""], rows)


def interval(ratio: dict[str, float]) -> list[str]:
    return [f"{ratio['ratio']:.3f}", f"{ratio['low']:.3f} to {ratio['high']:.3f}"]


# --- pictures -----------------------------------------------------------------------------------------------------------


def draw_budgets(file: Path, found: Sequence[dict[str, Any]]) -> None:
    """Charged delay against budget, one line per policy, and the limit; zeros have no place on the axes."""
    from tidings.lab import plots

    found = sorted((at for at in found if at["budget"] > 0), key=lambda at: float(at["budget"]))
    lines: dict[str, list[float | None]] = {}
    if "results" in found[0]:
        for place, at in enumerate(found):
            for result in at["results"]:
                if not result["policy"].endswith("@native"):  # the same at every budget
                    line = lines.setdefault(result["policy"], [None] * len(found))
                    line[place] = result["charged_delay_s"]
        lines["the limit"] = [at["limit_charged_s"] for at in found]
    else:
        lines = {
            "no windows": [at["mean_delay_s"] for at in found],
            "with windows": [at["charged_delay_s"] for at in found],
        }
    fig, ax = plots.figure(
        7.2,
        4.2,
        title="What a bigger budget buys: mean delay, missed posts charged",
        x="polls per feed and day",
    )
    plots.delay_curves(ax, [at["budget"] for at in found], lines)
    plots.save(fig, file)


def draw_delays(file: Path, scores: "dict[str, PollScores]") -> None:
    """Within how long how many posts had arrived; missed posts never do, so such a line ends before 100 %."""
    import numpy as np

    from tidings.lab import plots

    words = {"x": "% of posts (missed ones last)", "y": "had arrived within"}
    fig, ax = plots.figure(
        7.2, 4.2, title="How late the news arrives", **words, log="y", grids="both"
    )
    ends = []
    low, high = 3600.0, 60.0
    for place, (name, one) in enumerate(scores.items()):
        delay = one.delay_s[~one.missed]
        if len(delay) == 0:
            continue
        share = np.linspace(0.02, 0.99, 98)
        x, y = share * len(delay) / len(one.feed) * 100, np.maximum(np.quantile(delay, share), 1.0)
        color = plots.color_of(name, place)
        ax.plot(x, y, color=color, linestyle=plots.DASHES[place % len(plots.DASHES)])
        ends.append((100.0, float(y[-1]), name, color))
        low, high = min(low, float(y[3])), max(high, float(y[-1]))
    ax.set_ylim(low, high * 1.3)
    ax.set_xlim(0, 100)
    plots.time_ticks(ax, low, high)
    plots.line_labels(ax, ends)
    plots.save(fig, file)
