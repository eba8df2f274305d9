"""`tidings timing`: the last week by day, and what another budget would buy, as on the page of that name."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.cli.home import Home, with_home
from tidings.cli.output import json_option, plot_option, print_table, progress, tell
from tidings.words import NOTHING, figures, percent, roughly

if TYPE_CHECKING:
    from tidings.store.timing import Day, Week
    from tidings.web.forecast import Forecast


@click.command()
@click.option("--budgets", "curve", is_flag=True, help="Also replay the own history at other budgets; takes some seconds.")
@json_option
@plot_option("delay by day and, with --budgets, against the budget")
@with_home
async def timing(home: Home, curve: bool, plot: Path | None) -> None:
    """How late posts came in the last week, day by day, and what that cost.

    \b
    Examples:
      tidings timing
      tidings timing --budgets --plot timing.svg
    """
    import msgspec

    from tidings.aggregator.explain import overview
    from tidings.policy.constraints import Limits
    from tidings.store.timing import week
    from tidings.web.forecast import forecast, own_trace

    now = time.time()
    async with home.open_store() as store:
        told = await store.read(week, now)
        found = None
        if curve:
            budget = (await overview(store, home.config.budget)).budget_per_day
            trace, conditions = await own_trace(store, now, Limits(home.config.min_interval_s))
            with progress("replaying"):
                found = forecast(trace, conditions, home.config.policy_name, budget, now)
    if plot is not None:
        _draw(plot, told, found)
    result = {"days": msgspec.to_builtins(told.days), "budgets": msgspec.to_builtins(found)}
    tell(result, lambda: _print(told, found))


def _print(told: "Week", found: "Forecast | None") -> None:
    _print_days(told)
    if found is not None:
        click.echo()
        rows = [[figures(p.per_day), roughly(p.mean_s), roughly(p.half_s), percent(p.missed_share)] for p in found.points]
        print_table(["requests a day", "mean delay", "half within", "missed"], rows, left=0)


def _print_days(told: "Week") -> None:
    rows = [
        [
            _weekday(day),
            f"{day.asked:,}",
            f"{day.unchanged:,}",
            f"{day.failed:,}",
            f"{day.came:,}",
            roughly(day.p50_s),
            roughly(day.p90_s),
            figures(day.lost) if day.lost else NOTHING,
            f"{day.recovered:,}" if day.recovered else NOTHING,
        ]
        for day in told.days
    ]
    print_table(["", "asked", "304", "failed", "new", "half in", "90 % in", "lost", "back"], rows)


def _draw(file: Path, told: "Week", found: "Forecast | None") -> None:
    from tidings.lab import plots

    fig, panels = plots.panels(1 if found is None else 2, 1, 7.0, 3.0 if found is None else 5.4)
    late, days = panels[0], [day for day in told.days if day.p50_s and day.p90_s]
    names = [_weekday(day) for day in days]
    late.set_title("How late posts came", loc="left")
    late.set_ylabel("delay, minutes")
    for name, colour, values in (
        ("half", plots.ACCENT, [(day.p50_s or 0) / 60 for day in days]),
        ("nine in ten", plots.GREY, [(day.p90_s or 0) / 60 for day in days]),
    ):
        late.plot(names, values, color=colour, marker="o", markersize=3.2)
        if values:
            plots.line_labels(late, [(len(names) - 1, values[-1], name, colour)])
    late.set_ylim(bottom=0)
    plots.grid(late)
    if found is not None:
        panels[1].set_title("What a budget would buy", loc="left")
        panels[1].set_xlabel("requests a day")
        lines = {"mean": [p.mean_s for p in found.points], "half within": [p.half_s for p in found.points]}
        plots.delay_curves(panels[1], [point.per_day for point in found.points], lines)
    plots.save(fig, file)


def _weekday(day: "Day") -> str:
    return time.strftime("%a %d", time.gmtime(day.at + 43200))
