"""Command `tidings lab delivered`: delays of the service compared with hourly polling."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from tidings.cli.lab_options import MinIntervalList
from tidings.cli.lab_tables import save_and_print
from tidings.cli.output import (
    NameList,
    NumberList,
    OutputPath,
    feeds_text,
    json_option,
    posts_text,
    print_table,
    progress,
    seed_option,
)
from tidings.config import Config
from tidings.formatting import NO_VALUE, common_unit, duration, figures, percent
from tidings.i18n import _


@click.command()
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--policies",
    type=NameList(),
    default=Config().policy_name,
    show_default=True,
    metavar="A,B,...",
    help=_("Policies to simulate."),
)
@click.option(
    "--budgets",
    type=NumberList(above=0),
    default="6,12,24",
    show_default=True,
    help=_("Polls per feed and day; the default budget is added."),
)
@click.option(
    "--min-intervals",
    type=MinIntervalList(),
    default="1h",
    show_default=True,
    metavar="A,B,...",
    help=_("Minimum intervals in addition to the default."),
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    default=28.0,
    show_default=True,
    help=_("Length of the training period in days."),
)
@seed_option
@click.option("--out", type=OutputPath(), metavar="FILE.json", help=_("JSON file of the rows."))
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help=_("Parallel processes."),
)
@json_option
def delivered(
    traces: tuple[str, ...],
    policies: list[str],
    budgets: list[float],
    min_intervals: list[float],
    train_days: float,
    seed: int,
    out: Path | None,
    jobs: int,
) -> None:
    """Compare the service with hourly polling.

    All rows are simulated with the poll constraints and poll costs of the service. Each budget is
    simulated at the default minimum interval. The default budget and the largest budget are also
    simulated at the other intervals. Hourly polling and the default settings are always included.
    With several traces, the command also prints the geometric mean and the worst ratio.

    \b
    Example:
      tidings lab delivered sample --train-days 14 --budgets 4,12
    """
    from tidings.lab import hourly_baseline as lab

    with progress(_("reading traces")):
        tasks = lab.plan(traces, policies, budgets, min_intervals, train_days, seed)
    with progress(_("simulating"), total=len(tasks)) as bar:
        rows = lab.run_plan(tasks, jobs, report=bar.report)
    save_and_print(rows, out, lambda: _print_delivered(rows, train_days))


Row = dict[str, Any]


def _print_delivered(all_rows: list[Row], train_days: float) -> None:
    from tidings.lab.hourly_baseline import summarize

    traces = list(_group_by_trace(all_rows))
    for rows in traces:
        _print_trace(rows, train_days)
        click.echo()
    click.echo(_("Ratios are relative to hourly polling. * marks the default settings."))
    if not all(row["reached_budget"] for row in all_rows):
        click.echo(_("! marks runs below 95 % of the budget, because of the poll constraints."))
    if len(traces) > 1:
        click.echo()
        click.echo(
            _("All traces: geometric mean of the ratios, and worst ratio of the charged delay")
        )
        click.echo()
        lines = [
            [
                f"{line.policy} {_setting(line.budget, line.default)}",
                _("default settings") if line.default else _("equal requests"),
                f"{line.requests_ratio:.3f}",
                f"{line.charged_delay_ratio:.3f}",
                f"{line.worst_ratio:.3f}",
                line.worst_trace,
            ]
            for line in summarize(all_rows)
        ]
        print_table(
            [_("policy"), "", _("requests"), _("charged"), _("worst ratio"), _("worst trace")],
            lines,
            left=2,
        )


def _group_by_trace(all_rows: list[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each trace; the first row of a trace is hourly polling."""
    from tidings.lab.hourly_baseline import HOURLY

    rows: list[Row] = []
    for row in all_rows:
        if row["policy"] == HOURLY and rows:
            yield rows
            rows = []
        rows.append(row)
    yield rows


def _print_trace(rows: list[Row], train_days: float) -> None:
    """Print a table for each minimum interval, with one time unit for the whole trace."""
    unit, size = common_unit([row["mean_delay_s"] for row in rows])
    first = rows[0]
    posts = f"{feeds_text(first['feeds'])}, {posts_text(first['posts'])}"
    click.echo(
        _(
            "%(trace)s: %(posts)s after %(train_days)s days of training; delays in %(unit)s",
            trace=first["trace"],
            posts=posts,
            train_days=f"{train_days:g}",
            unit=unit,
        )
    )
    for interval, group in groupby(rows, key=lambda row: float(row["min_interval_s"])):
        click.echo()
        click.echo(_("Minimum interval %(interval)s", interval=duration(interval)))
        table = [_cells(row, size) for row in group]
        headings = [
            _("policy"),
            _("polls"),
            _("ratio"),
            _("MB"),
            _("mean"),
            _("median"),
            _("90 %"),
            _("missed"),
            _("charged"),
            _("ratio"),
        ]
        print_table(headings, table)


def _cells(row: Row, size: float) -> list[str]:
    from tidings.lab.hourly_baseline import HOURLY

    delays = [
        row[key] for key in ("mean_delay_s", "median_delay_s", "p90_delay_s", "charged_delay_s")
    ]
    mean, median, p90, charged = (NO_VALUE if s is None else figures(s / size) for s in delays)
    label = row["policy"]
    if label != HOURLY:
        label += f" {_setting(row['budget_per_feed_day'], row['default'])}"
    return [
        label + ("" if row["reached_budget"] else "!"),
        figures(row["polls_per_feed_day"]),
        _ratio(row["requests_ratio"]),
        figures(row["bytes"] / 1e6),
        mean,
        median,
        p90,
        percent(row["missed_share"]),
        charged,
        _ratio(row["charged_delay_ratio"]),
    ]


def _setting(budget: float, default: bool) -> str:
    return f"{budget:g}{'*' if default else ''}"


def _ratio(ratio: float | None) -> str:
    return NO_VALUE if ratio is None else f"{ratio:.3f}"
