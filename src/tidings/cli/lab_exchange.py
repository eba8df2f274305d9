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

if TYPE_CHECKING:
    from tidings.lab.exchange_experiment import ExperimentResult


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(3, 5000),
    default=161,
    show_default=True,
    help="Number of nodes that stay.",
)
@click.option(
    "--interval",
    "intervals",
    type=DurationList(),
    default="16h",
    show_default=True,
    help="Poll interval of a node for each feed; several values give curves.",
)
@click.option(
    "--hours",
    type=click.FloatRange(1, 100),
    default=22.0,
    show_default=True,
    help="Simulated hours.",
)
@click.option(
    "--cut-off",
    type=click.IntRange(0),
    help="Nodes that cannot reach publishers.  [default: 27 of 161, as in the paper]",
)
@click.option(
    "--leave",
    type=click.IntRange(0),
    help="Additional nodes that leave.  [default: 28 for 161, as in the paper]",
)
@click.option(
    "--free-riders",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Nodes that receive but never send.",
)
@click.option(
    "--deficit",
    type=click.FloatRange(0),
    help="Limit of entries sent minus entries received per peer.  [default: no limit]",
)
@click.option(
    "--forgers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Nodes that send a forged entry every hour.",
)
@click.option(
    "--call",
    "call_s",
    type=click.FloatRange(0, 600),
    default=8.0,
    show_default=True,
    help="Duration of a call in seconds.",
)
@click.option(
    "--notices",
    is_flag=True,
    help="Simulation of poll notices among nodes with the same feeds instead.",
)
@seed_option
@json_option
@plot_option("lag, missing entries, calls and bundle sizes, with the paper's values")
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
            f"--nodes {nodes}: all are cut off, free riders or forgers ({special}); "
            "add nodes or lower these numbers"
        )
    rules = NodeSettings(
        notices=False, calls_per_min=1e9, deficit=float("inf") if deficit is None else deficit
    )
    results: list[ExperimentResult] = []
    with progress("", total=len(intervals) * 100) as bar:
        for interval_s in intervals:
            bar.set_text(f"{nodes} nodes, every {duration(interval_s)}")
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
        "interval",
        "mode",
        "coverage",
        "mean lag",
        "5 %",
        "95 %",
        "puts/min",
        "checks/min",
        "entries/bundle",
        "requests",
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
    print_table(["", "paper", "ours"], compare_with_paper(results))
    for result in results:
        if result.setup.forgers:
            click.echo(
                f"Forged entries: {result.forged_seen} were shown by a node, {result.forged_left} "
                f"remain; {percent(result.disconnected_share)} of the forgers' connections are cut."
            )
        if result.setup.free_riders:
            click.echo(f"Free riders have {percent(result.free_rider_coverage)} of the entries.")


def _run_notices(seed: int) -> None:
    from tidings.lab.exchange_notices import NoticesSetup, run

    setup = NoticesSetup(seed=seed)
    with progress(f"{setup.nodes} nodes with {setup.feeds} feeds", total=50) as bar:
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
    text = (
        f"With notices, {setup.nodes} nodes together poll each of {setup.feeds} feeds "
        f"{figures(shared.polls)} times per day.\n"
        f"Mean delay {duration(result['mean_lag_s'])}; "
        f"{duration(result['latest_node_lag_s'])} for the slowest node.\n"
        f"A single node needs {figures(shared.standalone_polls)} polls per feed and day for this "
        f"delay ({figures(shared.ratio)} times as many).\n"
        f"With only its own share of the polls, its delay is {duration(shared.standalone_lag_s)}."
    )
    print_result(result, text)
