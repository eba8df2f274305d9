"""`tidings timing`: the last week by day, and the effect of a different budget, as on the page Timing."""

import math
import time
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

import click

from tidings.cli.home import Home, with_home
from tidings.cli.output import json_option, plot_option, print_table, progress, tell
from tidings.formatting import NO_VALUE, duration_short, figures, percent

if TYPE_CHECKING:
    from tidings.aggregator.explain import Overview
    from tidings.store.poll_statistics import Day, Week
    from tidings.web.forecast import Forecast

WIDTH = 80


@click.command()
@click.option(
    "--budgets", "curve", is_flag=True, help="Also simulate other budgets; takes up to a minute."
)
@json_option
@plot_option("delay by day and, with --budgets, against the budget")
@with_home
async def timing(home: Home, curve: bool, plot: Path | None) -> None:
    """Delays and requests of the last week, by day.

    Figures appear once there is enough history for them, and until then the output says what is missing. With --budgets,
    your own history is simulated at 1 to 96 requests per feed and day, and under hourly polling.

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

    now, limits = time.time(), Limits(home.config.min_interval_s)
    async with home.open_store() as store:
        days = await store.read(week, now)
        whole = await overview(store, home.config.budget, limits)
        found = None
        if curve:
            own = await own_trace(store, now, limits, judged=True)
            with progress("simulating"):
                found = forecast(own, home.config.policy_name, whole.budget_per_day, now)
    if plot is not None:
        _draw(plot, days, found)
    result = {
        "days": msgspec.to_builtins(days.days),
        "evidence": msgspec.to_builtins(days.evidence),
        "budget_per_day": whole.budget_per_day,
        "usable_per_day": whole.usable_per_day,
        "feeds_at_min_interval": whole.feeds_at_min_interval,
        "budgets": msgspec.to_builtins(found),
    }
    tell(result, lambda: _print(days, whole, found))


def _print(days: "Week", whole: "Overview", found: "Forecast | None") -> None:
    from tidings.aggregator.explain import budget_note
    from tidings.store.evidence import Evidence, comparison_needs, delay_needs

    _print_days(days)
    _say(delay_needs(days.evidence), budget_note(whole))
    if found is not None:
        from tidings.web.timing import comparison

        click.echo()
        rows = [
            [figures(p.per_day), *_figures(p.polls_per_day, p.mean_s, p.median_s, p.missed_share)]
            for p in found.points
        ]
        print_table(["requests a day", "used", "mean delay", "median", "missed"], rows, left=0)
        _say(*(comparison(found) or [comparison_needs(Evidence(found.polled_days, found.posts))]))


def _figures(
    polls_per_day: float, mean_s: float, median_s: float, missed_share: float
) -> list[str]:
    return [
        figures(polls_per_day),
        duration_short(mean_s),
        duration_short(median_s),
        percent(missed_share),
    ]


def _say(*sentences: str) -> None:
    """Sentences below a table, each on lines of its own; empty ones are left out."""
    said = [fill(sentence, WIDTH) for sentence in sentences if sentence]
    if said:
        click.echo("\n" + "\n".join(said))


def _print_days(told: "Week") -> None:
    rows = [
        [_weekday(day), *(_cells(day, told) if day.has_data else [NO_VALUE] * 8)]
        for day in told.days
    ]
    print_table(
        ["", "requests", "304", "failed", "new", "median", "90 %", "missed", "recovered"], rows
    )


def _cells(day: "Day", told: "Week") -> list[str]:
    """The figures of one day; missed posts only where there was time enough to see some."""
    return [
        f"{day.requests:,}",
        f"{day.unchanged:,}",
        f"{day.failed:,}",
        f"{day.new_entries:,}",
        duration_short(day.p50_s),
        duration_short(day.p90_s),
        figures(day.missed) if day.missed and told.evidence.is_polled else NO_VALUE,
        f"{day.recovered:,}" if day.recovered else NO_VALUE,
    ]


def _draw(file: Path, told: "Week", found: "Forecast | None") -> None:
    from tidings.lab import plots

    fig, panels = plots.panels(1 if found is None else 2, 1, 7.0, 3.0 if found is None else 5.4)
    late, names = panels[0], [_weekday(day) for day in told.days]
    late.set_title("Delay by day", loc="left")
    late.set_ylabel("delay, minutes")
    for name, color, delays in (
        ("median", plots.ACCENT, [day.p50_s for day in told.days]),
        ("90 %", plots.GRAY, [day.p90_s for day in told.days]),
    ):
        values = [
            math.nan if delay_s is None else delay_s / 60 for delay_s in delays
        ]  # a gap in the line
        late.plot(names, values, color=color, marker="o", markersize=3.2)
        last = max((place for place, value in enumerate(values) if value == value), default=None)
        if last is not None:
            plots.line_labels(late, [(last, values[last], name, color)])
    late.set_ylim(bottom=0)
    plots.grid(late)
    if found is not None:
        panels[1].set_title("Effect of a different budget (simulated)", loc="left")
        panels[1].set_xlabel("requests a day")
        lines = {
            "mean": [p.mean_s for p in found.points],
            "median": [p.median_s for p in found.points],
        }
        plots.delay_curves(panels[1], [point.per_day for point in found.points], lines)
    plots.save(fig, file)


def _weekday(day: "Day") -> str:
    return time.strftime("%a %d", time.gmtime(day.at + 43200))
