"""Command `tidings lab exchange`: simulation of the FeedEx experiment and of poll notices."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.output import (
    DurationList,
    json_option,
    plot_option,
    print_result,
    print_table,
    progress,
    seed_option,
)
from tidings.errors import UsageError
from tidings.formatting import duration, figures, percent
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.lab.exchange_experiment import ExperimentResult


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(3, 5000),
    default=161,
    show_default=True,
    help=_("Number of nodes that stay for the whole run."),
)
@click.option(
    "--interval",
    "intervals",
    type=DurationList(),
    default="16h",
    show_default=True,
    help=_("Time between two polls of a feed by a node. Several values give curves."),
)
@click.option(
    "--hours",
    type=click.FloatRange(1, 100),
    default=22.0,
    show_default=True,
    help=_("Duration in simulated hours."),
)
@click.option(
    "--cut-off",
    type=click.IntRange(0),
    help=_("Number of nodes that cannot reach publishers.  [default: 27 of 161, as in the paper]"),
)
@click.option(
    "--leave",
    type=click.IntRange(0),
    help=_("Number of additional nodes that leave.  [default: 28 for 161, as in the paper]"),
)
@click.option(
    "--free-riders",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help=_("Number of nodes that receive but never send."),
)
@click.option(
    "--deficit",
    type=click.FloatRange(0),
    help=_("Limit of entries sent minus received, for each peer.  [default: no limit]"),
)
@click.option(
    "--forgers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help=_("Number of nodes that send a forged entry every hour."),
)
@click.option(
    "--call",
    "call_s",
    type=click.FloatRange(0, 600),
    default=8.0,
    show_default=True,
    help=_("Duration of a call in seconds."),
)
@click.option(
    "--notices",
    is_flag=True,
    help=_("Simulation of poll notices instead of the experiment."),
)
@seed_option
@json_option
@plot_option(_("lag, missing entries, calls and bundle sizes, with the paper's values"))
def exchange(
    plot: Path | None, notices: bool, intervals: list[float], deficit: float | None, **options: Any
) -> None:
    """Simulate the FeedEx experiment.

    Hundreds of nodes exchange entries on a virtual clock (FeedEx, section 4), compared with nodes
    without exchange.

    \b
    Examples:
      tidings lab exchange --nodes 161 --interval 16h
      tidings lab exchange --nodes 60 --interval 30min,2h,16h --plot exchange.png
      tidings lab exchange --nodes 80 --free-riders 20 --deficit 100
      tidings lab exchange --notices
    """
    from tidings.exchange.protocol import NodeSettings
    from tidings.lab.exchange_experiment import Setup, run

    if notices:
        return _run_notices(options["seed"])
    nodes = options["nodes"]
    for name, paper in (("cut_off", 27), ("leave", 28)):
        if options[name] is None:
            options[name] = round(nodes * paper / 161)
    special = options["cut_off"] + options["free_riders"] + options["forgers"]
    if special >= nodes:
        raise UsageError(
            _(
                "--nodes %(nodes)s leaves no normal node (%(special)s are cut off, "
                "free riders or forgers); use more nodes",
                nodes=nodes,
                special=special,
            )
        )
    rules = NodeSettings(
        notices=False, calls_per_min=1e9, deficit=float("inf") if deficit is None else deficit
    )
    results: list[ExperimentResult] = []
    with progress("", total=len(intervals) * 100) as bar:
        for interval_s in intervals:
            bar.set_text(
                _(
                    "%(nodes)s nodes that poll every %(interval_s)s",
                    nodes=nodes,
                    interval_s=duration(interval_s),
                )
            )
            results.append(
                run(Setup(interval_s=interval_s, rules=rules, **options), lambda _: bar.advance())
            )
    if plot is not None:
        from tidings.lab import plots
        from tidings.lab.exchange_report import picture

        plots.save(picture(results), plot)
    return print_result(
        [_result_fields(result) | row for result in results for row in result.rows()],
        lambda: _print_results(results),
    )


def _result_fields(result: "ExperimentResult") -> dict[str, object]:
    setup = result.setup
    fields: dict[str, object] = {"nodes": setup.nodes, "interval_s": setup.interval_s}
    if setup.forgers:
        fields |= {
            "forged_left": result.forged_left,
            "forged_seen": result.forged_seen,
            "forgers_shunned": result.disconnected_share,
        }
    if setup.free_riders:
        fields |= {"free_riders_coverage": result.free_rider_coverage}
    return fields


def _print_results(results: "list[ExperimentResult]") -> None:
    from tidings.lab.exchange_report import compare_with_paper

    headings = [
        _("interval"),
        _("mode"),
        _("coverage"),
        _("mean lag"),
        "5 %",
        "95 %",
        _("puts/min"),
        _("checks/min"),
        _("entries/bundle"),
        _("requests"),
    ]
    rows = []
    for result in results:
        for row in result.rows():
            lags = [
                duration(float(str(row[key]))) for key in ("mean_lag_s", "p5_lag_s", "p95_lag_s")
            ]
            calls = [
                figures(float(str(row[key])))
                for key in ("put_entries_per_min", "check_did_per_min", "bundle_size")
            ]
            rows.append(
                [
                    duration(result.setup.interval_s),
                    str(row["mode"]),
                    percent(float(str(row["coverage"]))),
                    *lags,
                    *calls,
                    f"{row['origin_requests']:,}",
                ]
            )
    print_table(headings, rows, left=2)
    click.echo()
    print_table(["", _("paper"), _("ours")], compare_with_paper(results))
    for result in results:
        if result.setup.forgers:
            click.echo(
                _(
                    "Forged entries: %(forged_seen)s were shown by a node and "
                    "%(forged_left)s remain. %(disconnected_share)s of the forgers' "
                    "connections are closed.",
                    forged_seen=result.forged_seen,
                    forged_left=result.forged_left,
                    disconnected_share=percent(result.disconnected_share),
                )
            )
        if result.setup.free_riders:
            click.echo(
                _(
                    "Free riders have %(free_rider_coverage)s of the entries.",
                    free_rider_coverage=percent(result.free_rider_coverage),
                )
            )


def _run_notices(seed: int) -> None:
    from tidings.lab.exchange_notices import NoticesSetup, run

    setup = NoticesSetup(seed=seed)
    with progress(
        _("%(nodes)s nodes with %(feeds)s feeds", nodes=setup.nodes, feeds=setup.feeds), total=50
    ) as bar:
        shared = run(setup, lambda _: bar.advance())
    result = {
        "nodes": setup.nodes,
        "feeds": setup.feeds,
        "polls_per_feed_day": shared.polls,
        "mean_lag_s": float(shared.lag_s.mean()),
        "latest_node_lag_s": float(shared.lag_s.max()),
        "coverage": float(shared.coverage.mean()),
        "alone_polls_per_feed_day_at_same_lag": shared.standalone_polls,
        "ratio": shared.ratio,
        "ratio_of_feeds_median": float(sorted(shared.feed_ratio)[len(shared.feed_ratio) // 2]),
        "ratio_of_feeds_max": float(shared.feed_ratio.max()),
        "alone_lag_s_with_own_budget": shared.standalone_lag_s,
    }
    text = _(
        "With notices, %(nodes)s nodes together poll each of %(feeds)s feeds "
        "%(polls)s times per day.\nMean delay %(mean)s; %(slowest)s for the slowest "
        "node.\nA single node needs %(standalone_polls)s polls per feed and day for "
        "this delay (%(ratio)s times as many).\nWith only its own share of the polls, "
        "its delay is %(standalone_lag_s)s.",
        nodes=setup.nodes,
        feeds=setup.feeds,
        polls=figures(shared.polls),
        mean=duration(result["mean_lag_s"]),
        slowest=duration(result["latest_node_lag_s"]),
        standalone_polls=figures(shared.standalone_polls),
        ratio=figures(shared.ratio),
        standalone_lag_s=duration(shared.standalone_lag_s),
    )
    print_result(result, text)
