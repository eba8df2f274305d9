"""Compare the simulated exchange with the figures of FeedEx (Figs. 4 to 6 and Table 3)."""

from typing import TYPE_CHECKING

import numpy as np

from tidings.formatting import duration, figures, percent
from tidings.lab import plots
from tidings.lab.exchange_experiment import ExperimentResult
from tidings.model import HOUR_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Values of the paper by interval in hours: lag ratio standalone to exchange, entries per bundle.
PAPER_RATIO = {0.5: 7.0, 16.0: 15.2}
PAPER_BUNDLE = {0.5: 2.67, 1.0: 2.63, 2.0: 2.83, 4.0: 2.87, 8.0: 3.29, 16.0: 3.65}
#: Values of the paper at 16 hours: coverage and lag standalone, coverage and lag with exchange.
PAPER_16H = (0.36, 5.7 * HOUR_S, 0.90, 22 * 60.0)
#: Calls per minute in the paper, as means over all intervals.
PAPER_PUTS, PAPER_CHECKS = 0.9, 6.3


def compare_with_paper(results: list[ExperimentResult]) -> list[list[str]]:
    """Return table rows with the name, the paper's value and the simulated value."""
    rows: list[list[str]] = []
    for outcome in results:
        hours = outcome.setup.interval_s / HOUR_S
        (alone_cover, alone_lag), (cover, lag) = _means(outcome)
        every = f"every {duration(outcome.setup.interval_s)}"
        if hours == 16:
            rows.append([f"coverage alone, {every}", percent(PAPER_16H[0]), percent(alone_cover)])
            rows.append(
                [f"coverage in exchange, {every}", f"over {percent(PAPER_16H[2])}", percent(cover)]
            )
            rows.append([f"lag alone, {every}", duration(PAPER_16H[1]), duration(alone_lag)])
            rows.append([f"lag in exchange, {every}", duration(PAPER_16H[3]), duration(lag)])
        rows.append(
            [
                f"lag alone over lag in exchange, {every}",
                figures(PAPER_RATIO.get(hours)),
                figures(alone_lag / lag),
            ]
        )
        bundle = outcome.counts.entries / max(outcome.counts.puts, 1)
        rows.append(
            [f"entries in a bundle, {every}", figures(PAPER_BUNDLE.get(hours)), figures(bundle)]
        )
    puts = np.mean([float(str(outcome.rows()[1]["put_entries_per_min"])) for outcome in results])
    checks = np.mean([float(str(outcome.rows()[1]["check_did_per_min"])) for outcome in results])
    rows.append(["put_entries a minute, mean", figures(PAPER_PUTS), figures(float(puts))])
    rows.append(["check_did a minute, mean", figures(PAPER_CHECKS), figures(float(checks))])
    return rows


def _means(outcome: ExperimentResult) -> tuple[tuple[float, float], tuple[float, float]]:
    standalone, with_exchange = (
        np.nanmean(outcome.standalone, axis=0),
        np.nanmean(outcome.with_exchange, axis=0),
    )
    return (float(standalone[0]), float(standalone[1])), (
        float(with_exchange[0]),
        float(with_exchange[1]),
    )


def picture(results: list[ExperimentResult]) -> "Figure":
    """Draw four panels over the poll interval, with the paper's printed values as rings."""
    results = sorted(results, key=lambda outcome: outcome.setup.interval_s)
    hours = [outcome.setup.interval_s / HOUR_S for outcome in results]
    fig, (lag, missing, calls, bundle) = plots.panels(2, 2, 9.0, 6.2)
    for place, (name, color) in enumerate((("alone", plots.GRAY), ("exchange", plots.ACCENT))):
        scores = [
            outcome.standalone if place == 0 else outcome.with_exchange for outcome in results
        ]
        _range(lag, hours, [s[:, 1] / 60 for s in scores], name, color)
        _range(missing, hours, [100 * (1 - s[:, 0]) for s in scores], name, color)
    lag.set_yscale("log")
    _rings(lag, [16.0, 16.0], [PAPER_16H[1] / 60, PAPER_16H[3] / 60])
    _rings(missing, [16.0, 16.0], [100 * (1 - PAPER_16H[0]), 100 * (1 - PAPER_16H[2])])
    lag.set_title("Time lag, minutes (Fig. 4)")
    missing.set_title("Missing entries, % (Fig. 5)")
    rows = [outcome.rows()[1] for outcome in results]
    for key, color, name in (
        ("check_did_per_min", plots.GRAY, "check_did"),
        ("put_entries_per_min", plots.ACCENT, "put_entries"),
    ):
        values = [float(str(row[key])) for row in rows]
        calls.plot(hours, values, color=color, marker="o", markersize=3.2, label=name)
    calls.set_title("Calls that a node gets in a minute (Fig. 6)")
    bundle.plot(
        hours,
        [float(str(row["bundle_size"])) for row in rows],
        color=plots.ACCENT,
        marker="o",
        markersize=3.2,
        label="here",
    )
    _rings(bundle, list(PAPER_BUNDLE), list(PAPER_BUNDLE.values()))
    bundle.set_title("Entries in a bundle (Table 3)")
    for ax in (lag, missing, calls, bundle):
        ax.set_xscale("log")
        plots.grid(ax)
        plots.log_ticks(ax, "x", [0.5, 1, 2, 4, 8, 16])
        ax.set_xlabel("hours between polls")
        ax.legend(fontsize=8.5, labelcolor="linecolor")
    for ax in (missing, calls, bundle):
        ax.set_ylim(0, None)
    return fig


def _range(ax: "Axes", hours: list[float], nodes: list[np.ndarray], name: str, color: str) -> None:
    """Draw the mean over nodes with the 5th to 95th percentile range, as in the paper."""
    mean = [float(np.nanmean(values)) for values in nodes]
    low, high = (np.array([np.nanpercentile(values, q) for values in nodes]) for q in (5, 95))
    ax.fill_between(hours, low, high, color=color, alpha=0.15, linewidth=0)
    ax.plot(hours, mean, color=color, marker="o", markersize=3.2, label=name)


def _rings(ax: "Axes", hours: list[float], values: list[float]) -> None:
    ax.plot(
        hours, values, "o", color="#cc6d2e", markersize=7, markerfacecolor="none", label="paper"
    )
