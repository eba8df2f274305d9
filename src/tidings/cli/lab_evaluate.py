"""`tidings lab evaluate`, `ablate`, `whatif`: our policy against all others, itself in parts, and the budget."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.lab_options import as_served_options, chosen_min_interval
from tidings.cli.lab_tables import a_day, as_served_note, interval, read_trace, save_and_tell
from tidings.cli.output import (
    Decorated,
    Names,
    Numbers,
    Target,
    json_option,
    plot_option,
    print_table,
    progress,
    seed_option,
    tell,
)
from tidings.formatting import NO_VALUE, common_unit, count, duration, figures, in_unit, percent

if TYPE_CHECKING:
    from tidings.lab.whatif import Point


def _on_cells(command: Decorated) -> Decorated:
    """The options of the two commands that run cells; ``run`` takes those that they only pass on."""
    for add in (
        json_option,
        as_served_options,
        click.option(
            "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes."
        ),
        click.option(
            "--out", type=Target(), metavar="FILE.json", help="Also write the whole result as JSON."
        ),
        seed_option,
        click.option(
            "--train-days",
            type=click.FloatRange(min=0),
            default=28.0,
            show_default=True,
            help="What policies learn from.",
        ),
        click.option(
            "--budgets",
            type=Numbers(above=0),
            default="0.5,1,4,12",
            show_default=True,
            help="Polls per feed and day.",
        ),
        click.argument("traces", nargs=-1, required=True, metavar="TRACE..."),
    ):
        command = add(command)
    return command


# --- evaluate -----------------------------------------------------------------------------------------------------------


@click.command(short_help="Our policy against all others: traces x budgets.")
@_on_cells
@click.option(
    "--policies",
    type=Names(),
    metavar="A,B,...",
    help="Policies to beat (default: those of the papers).",
)
@click.option(
    "--ours",
    default="price",
    show_default=True,
    metavar="POLICY",
    help="The policy that is to beat them.",
)
def evaluate(
    policies: list[str] | None,
    ours: str,
    out: Path | None,
    as_served: bool,
    min_interval: float | None,
    **run: Any,
) -> None:
    """The whole table: every policy on every trace at every budget, all with the same number of polls.

    For each trace and budget: the best of the other policies by charged delay, the ratio of ours to it with a 95 % interval
    over resampled feeds, and how many points more (or fewer) posts ours misses than min-missing. At the end the geometric
    mean and the worst of the ratios.

    \b
    Example:
      tidings lab evaluate sample --budgets 1,4 --train-days 14 --out table.json
    """
    from tidings.lab import evaluate as evaluating

    run["min_interval_s"] = chosen_min_interval(as_served, min_interval)
    chosen = list(evaluating.PAPER_POLICIES) if policies is None else policies
    steps = len(run["traces"]) * len(run["budgets"]) * (len([p for p in chosen if p != ours]) + 1)
    with progress("evaluating", total=steps) as bar:
        found = evaluating.evaluate(policies=chosen, ours=ours, report=bar.tell, **run)
    save_and_tell(found, out, lambda: _show_evaluation(found))


def _show_evaluation(found: dict[str, Any]) -> None:
    from tidings.lab.compare import TOLERANCE

    ours = found["ours"]
    if note := as_served_note(found["min_interval_s"]):
        click.echo(note)
    for cell in found["cells"]:
        _show_cell(cell, found["train_days"])
        click.echo()
    click.echo(f"{ours} against the best of the others, by charged delay")
    click.echo()
    rows = []
    for cell in found["cells"]:
        charged = {result["policy"]: result["charged_delay_s"] for result in cell["results"]}
        rows.append(
            [
                cell["trace"],
                figures(cell["budget"]),
                cell["best"],
                duration(charged[cell["best"]]),
                duration(charged[ours]),
                *interval(cell["ratio"]),
                _points(cell["missed_points"]),
            ]
        )
    print_table(
        [
            "trace",
            "budget",
            "best",
            "its delay",
            ours,
            "ratio",
            "95 % interval",
            "missed, points to min-missing",
        ],
        rows,
    )
    overall = found["overall"]
    worst = overall["worst"]
    click.echo()
    click.echo(f"Geometric mean of the ratios  {overall['geometric_mean']:.3f}")
    click.echo(f"Worst                         {worst['ratio']:.3f} ({_place(worst)})")
    click.echo(f"Most missed above min-missing {_points(overall['most_missed_points'])} points")
    click.echo(f"Polls furthest off the budget {overall['off_budget'] * 100:+.2f} %")
    cells = found["cells"]
    off = [
        f"{_place(cell)} ({cell['off_budget'] * 100:+.2f} %)"
        for cell in cells
        if abs(cell["off_budget"]) > TOLERANCE
    ]
    if off:  # such ratios are not at equal polls
        click.echo(f"Further off than {TOLERANCE * 100:g} %: {', '.join(off)}")
    scaled = [f"{_place(cell)} ({cell['scale']:.4f})" for cell in cells if cell["scale"] != 1]
    if scaled:
        click.echo(f"Brought to the budget by a factor on its intervals: {', '.join(scaled)}")


def _place(cell: dict[str, Any]) -> str:
    return f"{cell['trace']} at {cell['budget']:g}"


def _show_cell(cell: dict[str, Any], train_days: float) -> None:
    """One trace at one budget, a row per policy; the ratio is that of ours to it."""
    results = cell["results"]
    unit, size = common_unit([result["mean_delay_s"] for result in results])
    click.echo(
        f"{cell['trace']}: {a_day(cell['budget'])}, {count(cell['feeds'], 'feed')}, "
        f"{count(cell['posts'], 'post')} after {train_days:g} days of training; delays in {unit}"
    )
    click.echo()
    rows = [
        [
            result["policy"],
            f"{result['polls_per_feed_day']:.4g}"
            if result["polls_per_feed_day"] is not None
            else NO_VALUE,
            in_unit(result["mean_delay_s"], size),
            percent(result["missed_share"]),
            in_unit(result["charged_delay_s"], size),
            *_against(cell, result["policy"]),
        ]
        for result in results
    ]
    limit = [
        "(limit)",
        figures(cell["budget"]),
        in_unit(cell["limit_delay_s"], size),
        "",
        in_unit(cell["limit_charged_s"], size),
    ]
    print_table(
        ["policy", "polls", "mean", "missed", "charged", "ratio", "95 % interval"],
        [*rows, [*limit, "", ""]],
    )


def _against(cell: dict[str, Any], policy: str) -> list[str]:
    """The ratio of ours to this policy."""
    return interval(cell["against"][policy]) if policy in cell["against"] else ["", ""]


def _points(points: float | None) -> str:
    return NO_VALUE if points is None else f"{points:+.2f}"


# --- ablate -------------------------------------------------------------------------------------------------------------


@click.command(short_help="What each part of our policy is worth.")
@_on_cells
@click.option(
    "--policy",
    default="price",
    show_default=True,
    help="The policy whose parts are switched off, one at a time.",
)
@click.option(
    "--parts", type=Names(), metavar="A,B,...", help="Which parts (default: all that it has)."
)
def ablate(
    policy: str,
    parts: list[str] | None,
    out: Path | None,
    as_served: bool,
    min_interval: float | None,
    **run: Any,
) -> None:
    """What each part of a policy is worth: charged delay without it, over charged delay with it, at the same budget.

    Above 1 the part helps, below 1 it harms.

    \b
    Example:
      tidings lab ablate sample --budgets 1,4 --train-days 14
    """
    from tidings.lab import evaluate as evaluating

    run["min_interval_s"] = chosen_min_interval(as_served, min_interval)
    chosen = evaluating.ablation_parts(policy) if parts is None else parts
    with progress(
        "ablating", total=len(run["traces"]) * len(run["budgets"]) * (len(chosen) + 1)
    ) as bar:
        found = evaluating.ablate(policy=policy, parts=chosen, report=bar.tell, **run)
    save_and_tell(found, out, lambda: _show_ablation(found))


def _show_ablation(found: dict[str, Any]) -> None:
    click.echo(
        f"Charged delay of {found['policy']} without a part, over that with it; above 1 the part helps"
    )
    click.echo(as_served_note(found["min_interval_s"]))
    parts = list(found["overall"])
    rows = []
    for cell in found["cells"]:
        rows += [
            [
                cell["trace"],
                figures(cell["budget"]),
                part,
                *interval(cell["worth"][part]),
                f"{cell['worth'][part]['more_polls'] * 100:+.2f} %",
            ]
            for part in parts
        ]
    print_table(
        ["trace", "budget", "without", "ratio", "95 % interval", "more polls"], rows, left=1
    )
    click.echo()
    names = list(next(iter(found["by_trace"].values())))
    click.echo("Geometric means over the budgets")
    click.echo()
    table = [
        [
            part,
            *(f"{found['by_trace'][part][name]:.3f}" for name in names),
            f"{found['overall'][part]:.3f}",
        ]
        for part in parts
    ]
    print_table(["without", *names, "all"], table)


# --- whatif -------------------------------------------------------------------------------------------------------------


@click.command(short_help="What a bigger or smaller budget would buy.")
@click.argument("trace")
@click.option("--policy", default="price", show_default=True, help="The policy that is replayed.")
@click.option(
    "--budgets",
    type=Numbers(above=0),
    default="0.25,0.5,1,2,4,8,16,24",
    show_default=True,
    help="Polls per feed and day.",
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    help="What the policy learns from (default: 28, or half of a shorter trace).",
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="FEEDS",
    help="Replay a sample of the feeds; polls are scaled up.",
)
@seed_option
@json_option
@plot_option("delay and missed posts against the budget")
def whatif(
    trace: str,
    policy: str,
    budgets: list[float],
    train_days: float | None,
    sample: int | None,
    seed: int,
    plot: Path | None,
) -> None:
    """What a bigger or smaller budget would buy: delay and missed posts, had the policy had it.

    The posts after the training part are replayed once at each budget.

    \b
    Example:
      tidings lab whatif sample --budgets 0.5,1,2,4,8 --plot budget.png
    """
    from tidings.lab import whatif as asking

    read = read_trace(trace)
    days = asking.training_days(read, train_days)
    with progress("replaying", total=1.0) as bar:
        points = asking.whatif(
            read, budgets, policy, days, sample, lambda share: bar.reached(share, 1.0), seed=seed
        )
    if plot is not None:
        from tidings.lab import plots

        plots.save(asking.picture(points, f"{read.name}: what a budget buys under {policy}"), plot)
    result = {"trace": read.name, "policy": policy, "train_days": days, "feeds": read.n_feeds}
    result |= {
        "sample": sample and min(sample, read.n_feeds),
        "points": [asdict(point) for point in points],
    }
    tell(result, lambda: _show_points(result, points))


def _show_points(found: dict[str, Any], points: "list[Point]") -> None:
    feeds, sample = found["feeds"], found["sample"]
    of = "" if sample in (None, feeds) else f", replayed on {sample:,} of them"
    days = figures(found["train_days"])
    click.echo(
        f"{found['trace']}: {found['policy']} after {days} days of training; {count(feeds, 'feed')}{of}"
    )
    click.echo()
    rows = [
        [
            figures(point.budget),
            f"{point.polls_per_day:,.0f}",
            duration(point.mean_delay_s),
            duration(point.median_delay_s),
            duration(point.p95_delay_s),
            percent(point.missed_share),
            duration(point.charged_delay_s),
        ]
        for point in points
    ]
    print_table(
        ["budget", "polls a day", "mean", "half within", "95 % within", "missed", "charged"],
        rows,
        left=0,
    )
