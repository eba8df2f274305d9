"""`tidings lab exchange`: FeedEx's experiment, and what notices are worth to publishers."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.output import (
    Spans,
    json_option,
    plot_option,
    print_table,
    progress,
    seed_option,
    tell,
)
from tidings.errors import UsageError
from tidings.formatting import duration, figures, percent

if TYPE_CHECKING:
    from tidings.lab.exchange_experiment import ExperimentResult


@click.command(short_help="Nodes that pass on what they fetch, against nodes alone.")
@click.option(
    "--nodes", type=click.IntRange(3, 5000), default=161, show_default=True, help="Nodes that stay."
)
@click.option(
    "--interval",
    "intervals",
    type=Spans(),
    default="16h",
    show_default=True,
    help="Between two polls of a feed by a node; several make curves.",
)
@click.option(
    "--hours",
    type=click.FloatRange(1, 100),
    default=22.0,
    show_default=True,
    help="How long it goes on.",
)
@click.option(
    "--cut-off",
    type=click.IntRange(0),
    help="Nodes that reach no server.  [default: 27 of 161, as in the paper]",
)
@click.option(
    "--leave",
    type=click.IntRange(0),
    help="More nodes, that leave.  [default: 28 for 161, as in the paper]",
)
@click.option(
    "--free-riders",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Nodes that take and never give.",
)
@click.option(
    "--deficit",
    type=click.FloatRange(0),
    help="What a node gives beyond what comes back.  [default: no bound]",
)
@click.option(
    "--forgers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Nodes that tell a lie every hour.",
)
@click.option(
    "--call",
    "call_s",
    type=click.FloatRange(0, 600),
    default=8.0,
    show_default=True,
    help="Seconds a call takes.",
)
@click.option(
    "--notices",
    is_flag=True,
    help="Instead: friends with the same feeds who tell each other when they looked.",
)
@seed_option
@json_option
@plot_option("lag, missing entries, calls and bundle sizes beside the paper's (several intervals)")
def exchange(
    plot: Path | None, notices: bool, intervals: list[float], deficit: float | None, **options: Any
) -> None:
    """FeedEx's experiment (sect. 4): hundreds of nodes of the exchange, on a virtual clock.

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
        return _notices(options["seed"])
    nodes = options["nodes"]
    for name, paper in (("cut_off", 27), ("leave", 28)):
        if options[name] is None:
            options[name] = round(nodes * paper / 161)
    bad = options["cut_off"] + options["free_riders"] + options["forgers"]
    if bad >= nodes:
        raise UsageError(
            f"--nodes {nodes}: there are {bad} that are cut off, free riders or forgers; some must be left"
        )
    rules = NodeSettings(
        notices=False, calls_per_min=1e9, deficit=float("inf") if deficit is None else deficit
    )
    found: list[ExperimentResult] = []
    with progress("", total=len(intervals) * 100) as bar:
        for interval_s in intervals:
            bar.say(f"{nodes} nodes, every {duration(interval_s)}")
            found.append(
                run(Setup(interval_s=interval_s, rules=rules, **options), lambda _: bar.done())
            )
    if plot is not None:
        from tidings.lab import plots
        from tidings.lab.exchange_report import picture

        plots.save(picture(found), plot)
    return tell(
        [_facts(outcome) | row for outcome in found for row in outcome.rows()],
        lambda: _print(found),
    )


def _facts(outcome: "ExperimentResult") -> dict[str, object]:
    setup = outcome.setup
    facts: dict[str, object] = {"nodes": setup.nodes, "interval_s": setup.interval_s}
    if setup.forgers:
        facts |= {
            "forged_left": outcome.forged_left,
            "forged_seen": outcome.forged_seen,
            "forgers_shunned": outcome.disconnected_share,
        }
    if setup.free_riders:
        facts |= {"free_riders_coverage": outcome.free_rider_coverage}
    return facts


def _print(found: "list[ExperimentResult]") -> None:
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
    for outcome in found:
        for row in outcome.rows():
            lags = [
                duration(float(str(row[key]))) for key in ("mean_lag_s", "p5_lag_s", "p95_lag_s")
            ]
            calls = [
                figures(float(str(row[key])))
                for key in ("put_entries_per_min", "check_did_per_min", "bundle_size")
            ]
            rows.append(
                [
                    duration(outcome.setup.interval_s),
                    str(row["mode"]),
                    percent(float(str(row["coverage"]))),
                    *lags,
                    *calls,
                    f"{row['origin_requests']:,}",
                ]
            )
    print_table(headings, rows, left=2)
    click.echo()
    print_table(["", "paper", "here"], compare_with_paper(found))
    for outcome in found:
        if outcome.setup.forgers:
            click.echo(
                f"{outcome.forged_seen} forged entries were shown by some node for a while, {outcome.forged_left} still are; "
                f"{percent(outcome.disconnected_share)} of their places are empty."
            )
        if outcome.setup.free_riders:
            click.echo(f"Free riders have {percent(outcome.free_rider_coverage)} of the entries.")


def _notices(seed: int) -> None:
    from tidings.lab.exchange_notices import NoticesSetup, run

    setup = NoticesSetup(seed=seed)
    with progress(f"{setup.nodes} friends with {setup.feeds} feeds", total=50) as bar:
        shared = run(setup, lambda _: bar.done())
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
    words = (
        f"{setup.nodes} friends ask each of their {setup.feeds} feeds {figures(shared.polls)} times a day, together, and have "
        f"posts {duration(result['mean_lag_s'])} late, the latest of them {duration(result['latest_node_lag_s'])}.\n"
        f"One alone would ask {figures(shared.standalone_polls)} times for that: {figures(shared.ratio)} times as many requests. "
        f"With its own share of requests, alone, each would be {duration(shared.standalone_lag_s)} late."
    )
    tell(result, words)
