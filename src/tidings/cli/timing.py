"""Command `tidings timing`: delays by day, and simulated delays at other budgets."""

import math
import time
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from tidings.cli.context import CliContext, with_context
from tidings.cli.output import json_option, plot_option, print_result, print_table, progress
from tidings.formatting import NO_VALUE, duration_short, figures, percent
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.aggregator.explain import Overview
    from tidings.store.poll_statistics import Day, Week
    from tidings.web.forecast import Forecast

WIDTH = 80


@click.command()
@click.option(
    "--budgets", "curve", is_flag=True, help=_("Simulation of other budgets (up to a minute).")
)
@json_option
@plot_option(_("the delay by day and, with --budgets, by budget"))
@with_context
async def timing(context: CliContext, curve: bool, plot: Path | None) -> None:
    """Show delays and requests of the last week.

    A delay is shown when there is enough history for it. Until then, the output says what is
    missing. With --budgets, your own history is simulated with 1 to 96 requests per feed and day,
    and with hourly polling.

    \b
    Examples:
      tidings timing
      tidings timing --budgets --plot timing.svg
    """
    import msgspec

    from tidings.aggregator.explain import overview
    from tidings.policy.constraints import Limits
    from tidings.store.poll_statistics import week
    from tidings.web.forecast import forecast, own_trace

    now, limits = time.time(), Limits(context.config.min_interval_s)
    async with context.open_store() as store:
        statistics = await store.read(week, now)
        summary = await overview(store, context.config.budget, limits)
        budgets = None
        if curve:
            trace = await own_trace(store, now, limits, judged=True)
            with progress(_("simulating")):
                budgets = forecast(trace, context.config.policy_name, summary.budget_per_day, now)
    if plot is not None:
        _draw_week(plot, statistics, budgets)
    result = {
        "days": msgspec.to_builtins(statistics.days),
        "evidence": msgspec.to_builtins(statistics.evidence),
        "budget_per_day": summary.budget_per_day,
        "usable_per_day": summary.usable_per_day,
        "feeds_at_min_interval": summary.feeds_at_min_interval,
        "budgets": msgspec.to_builtins(budgets),
    }
    print_result(result, lambda: _print_timing(statistics, summary, budgets))


def _print_timing(statistics: "Week", summary: "Overview", budgets: "Forecast | None") -> None:
    from tidings.aggregator.explain import budget_note
    from tidings.store.evidence import Evidence, comparison_needs, delay_needs

    _print_days(statistics)
    _print_notes(delay_needs(statistics.evidence), budget_note(summary))
    if budgets is not None:
        from tidings.web.timing import comparison

        click.echo()
        rows = [
            [figures(p.per_day), *_figures(p.polls_per_day, p.mean_s, p.median_s, p.missed_share)]
            for p in budgets.points
        ]
        print_table(
            [_("requests per day"), _("requests used"), _("mean delay"), _("median"), _("missed")],
            rows,
            left=0,
        )
        evidence = Evidence(budgets.polled_days, budgets.posts)
        _print_notes(*(comparison(budgets) or [comparison_needs(evidence)]))


def _figures(
    polls_per_day: float, mean_s: float, median_s: float, missed_share: float
) -> list[str]:
    return [
        figures(polls_per_day),
        duration_short(mean_s),
        duration_short(median_s),
        percent(missed_share),
    ]


def _print_notes(*sentences: str) -> None:
    """Print sentences below a table, each starting on a new line; empty ones are skipped."""
    notes = [fill(sentence, WIDTH) for sentence in sentences if sentence]
    if notes:
        click.echo("\n" + "\n".join(notes))


def _print_days(statistics: "Week") -> None:
    rows = [
        [_weekday(day), *(_cells(day, statistics) if day.has_data else [NO_VALUE] * 8)]
        for day in statistics.days
    ]
    print_table(
        [
            "",
            _("requests"),
            _("unchanged"),
            _("failed"),
            _("new posts"),
            _("median"),
            _("90 % of posts"),
            _("missed"),
            _("recovered"),
        ],
        rows,
    )


def _cells(day: "Day", statistics: "Week") -> list[str]:
    """Return the table row of one day; missed posts only if the feeds were polled long enough."""
    return [
        f"{day.requests:,}",
        f"{day.unchanged:,}",
        f"{day.failed:,}",
        f"{day.new_entries:,}",
        duration_short(day.p50_s),
        duration_short(day.p90_s),
        figures(day.missed) if day.missed and statistics.evidence.is_polled else NO_VALUE,
        f"{day.recovered:,}" if day.recovered else NO_VALUE,
    ]


def _draw_week(file: Path, statistics: "Week", budgets: "Forecast | None") -> None:
    from tidings.lab import plots

    fig, panels = plots.panels(1 if budgets is None else 2, 1, 7.0, 3.0 if budgets is None else 5.4)
    by_day, names = panels[0], [_weekday(day) for day in statistics.days]
    by_day.set_title(_("Delay by day"), loc="left")
    by_day.set_ylabel(_("delay, minutes"))
    for name, color, delays in (
        (_("median"), plots.ACCENT, [day.p50_s for day in statistics.days]),
        (_("90 % of posts"), plots.GRAY, [day.p90_s for day in statistics.days]),
    ):
        # NaN leaves a gap in the line.
        values = [math.nan if delay_s is None else delay_s / 60 for delay_s in delays]
        by_day.plot(names, values, color=color, marker="o", markersize=3.2)
        last = max((index for index, value in enumerate(values) if value == value), default=None)
        if last is not None:
            plots.line_labels(by_day, [(last, values[last], name, color)])
    by_day.set_ylim(bottom=0)
    plots.grid(by_day)
    if budgets is not None:
        panels[1].set_title(_("Effect of a different budget (simulated)"), loc="left")
        panels[1].set_xlabel(_("requests per day"))
        lines = {
            _("mean"): [p.mean_s for p in budgets.points],
            _("median"): [p.median_s for p in budgets.points],
        }
        plots.delay_curves(panels[1], [point.per_day for point in budgets.points], lines)
    plots.save(fig, file)


def _weekday(day: "Day") -> str:
    return time.strftime("%a %d", time.gmtime(day.at + 43200))
