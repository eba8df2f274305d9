"""Commands `tidings lab evaluate` (policies on traces and budgets), `ablate` and `whatif`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.lab_options import as_served_options, chosen_min_interval
from tidings.cli.lab_tables import (
    as_served_note,
    interval,
    polls_per_day_text,
    read_trace,
    save_and_print,
)
from tidings.cli.output import (
    Decorated,
    NameList,
    NumberList,
    OutputPath,
    feeds_text,
    json_option,
    plot_option,
    posts_text,
    print_result,
    print_table,
    progress,
    seed_option,
)
from tidings.formatting import NO_VALUE, common_unit, duration, figures, in_unit, percent
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.lab.whatif import Point


def _evaluation_options(command: Decorated) -> Decorated:
    """Add the shared options of `evaluate` and `ablate`, which run every trace at every budget."""
    for add in (
        json_option,
        as_served_options,
        click.option(
            "--jobs",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help=_("Parallel processes."),
        ),
        click.option(
            "--out", type=OutputPath(), metavar="FILE.json", help=_("JSON file of the result.")
        ),
        seed_option,
        click.option(
            "--train-days",
            type=click.FloatRange(min=0),
            default=28.0,
            show_default=True,
            help=_("Length of the training period in days."),
        ),
        click.option(
            "--budgets",
            type=NumberList(above=0),
            default="0.5,1,4,12",
            show_default=True,
            help=_("Polls per feed and day."),
        ),
        click.argument("traces", nargs=-1, required=True, metavar="TRACE..."),
    ):
        command = add(command)
    return command


# --- evaluate -------------------------------------------------------------------------------


@click.command()
@_evaluation_options
@click.option(
    "--policies",
    type=NameList(),
    metavar="A,B,...",
    help=_("Other policies.  [default: those of the papers]"),
)
@click.option(
    "--ours",
    default="price",
    show_default=True,
    metavar="POLICY",
    help=_("Policy to evaluate."),
)
def evaluate(
    policies: list[str] | None,
    ours: str,
    out: Path | None,
    as_served: bool,
    min_interval: float | None,
    **run: Any,
) -> None:
    """Evaluate a policy on traces and budgets.

    Runs every policy on every trace at every budget, with the same number of polls. For each trace
    and budget, the output names the best other policy by delay including missed posts. It shows the
    ratio of both delays with a 95 % interval over resampled feeds. It also shows the difference in
    missed posts to min-missing, in percentage points. The geometric mean and the worst ratio
    follow.

    \b
    Example:
      tidings lab evaluate sample --budgets 1,4 --train-days 14 --out table.json
    """
    from tidings.lab import evaluate as evaluation

    run["min_interval_s"] = chosen_min_interval(as_served, min_interval)
    chosen = list(evaluation.PAPER_POLICIES) if policies is None else policies
    steps = len(run["traces"]) * len(run["budgets"]) * (len([p for p in chosen if p != ours]) + 1)
    with progress(_("evaluating"), total=steps) as bar:
        result = evaluation.evaluate(policies=chosen, ours=ours, report=bar.report, **run)
    save_and_print(result, out, lambda: _print_evaluation(result))


def _print_evaluation(result: dict[str, Any]) -> None:
    from tidings.lab.compare import TOLERANCE

    ours = result["ours"]
    if note := as_served_note(result["min_interval_s"]):
        click.echo(note)
    for cell in result["cells"]:
        _print_cell(cell, result["train_days"])
        click.echo()
    click.echo(_("%(ours)s compared with the best other policy, by charged delay", ours=ours))
    click.echo()
    rows = []
    for cell in result["cells"]:
        charged = {one["policy"]: one["charged_delay_s"] for one in cell["results"]}
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
            _("trace"),
            _("budget"),
            _("best"),
            _("best delay"),
            ours,
            _("ratio"),
            _("95 % interval"),
            _("missed vs. min-missing, points"),
        ],
        rows,
    )
    overall = result["overall"]
    worst = overall["worst"]
    click.echo()
    click.echo(
        _("Geometric mean of the ratios  %(overall)s", overall=f"{overall['geometric_mean']:.3f}")
    )
    click.echo(
        _(
            "Worst ratio                   %(worst)s (%(where)s)",
            worst=f"{worst['ratio']:.3f}",
            where=_cell_label(worst),
        )
    )
    click.echo(
        _(
            "Most missed above min-missing %(overall)s points",
            overall=_points(overall["most_missed_points"]),
        )
    )
    click.echo(
        _(
            "Largest deviation from budget %(overall)s %%",
            overall=f"{overall['off_budget'] * 100:+.2f}",
        )
    )
    cells = result["cells"]
    off = [
        f"{_cell_label(cell)} ({cell['off_budget'] * 100:+.2f} %)"
        for cell in cells
        if abs(cell["off_budget"]) > TOLERANCE
    ]
    if off:  # these ratios do not compare equal numbers of polls
        click.echo(
            _(
                "Runs more than %(tolerance)s %% off the budget: %(off)s",
                tolerance=f"{TOLERANCE * 100:g}",
                off=", ".join(off),
            )
        )
    scaled = [f"{_cell_label(cell)} ({cell['scale']:.4f})" for cell in cells if cell["scale"] != 1]
    if scaled:
        click.echo(
            _(
                "Policies whose intervals were multiplied to meet the budget: %(scaled)s",
                scaled=", ".join(scaled),
            )
        )


def _cell_label(cell: dict[str, Any]) -> str:
    return _("%(trace)s at %(budget)s", trace=cell["trace"], budget=f"{cell['budget']:g}")


def _print_cell(cell: dict[str, Any], train_days: float) -> None:
    """Print one trace at one budget: a row per policy, with the ratio of ours to it."""
    results = cell["results"]
    unit, size = common_unit([result["mean_delay_s"] for result in results])
    click.echo(
        _(
            "%(trace)s: %(polls)s, %(feeds)s, %(posts)s after %(train_days)s days of "
            "training; delays in %(unit)s",
            trace=cell["trace"],
            polls=polls_per_day_text(cell["budget"]),
            feeds=feeds_text(cell["feeds"]),
            posts=posts_text(cell["posts"]),
            train_days=f"{train_days:g}",
            unit=unit,
        )
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
            *_ratio_cells(cell, result["policy"]),
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
        [
            _("policy"),
            _("polls"),
            _("mean"),
            _("missed"),
            _("charged"),
            _("ratio"),
            _("95 % interval"),
        ],
        [*rows, [*limit, "", ""]],
    )


def _ratio_cells(cell: dict[str, Any], policy: str) -> list[str]:
    """Return the ratio of our policy to ``policy`` with its interval, as table cells."""
    return interval(cell["against"][policy]) if policy in cell["against"] else ["", ""]


def _points(points: float | None) -> str:
    return NO_VALUE if points is None else f"{points:+.2f}"


# --- ablate ---------------------------------------------------------------------------------


@click.command()
@_evaluation_options
@click.option(
    "--policy",
    default="price",
    show_default=True,
    help=_("Policy whose parts are turned off, one at a time."),
)
@click.option(
    "--parts", type=NameList(), metavar="A,B,...", help=_("Parts to turn off.  [default: all]")
)
def ablate(
    policy: str,
    parts: list[str] | None,
    out: Path | None,
    as_served: bool,
    min_interval: float | None,
    **run: Any,
) -> None:
    """Measure the value of each policy part.

    Prints the delay (including missed posts) without a part, divided by the delay with it, at the
    same budget. A ratio above 1 means that the part helps.

    \b
    Example:
      tidings lab ablate sample --budgets 1,4 --train-days 14
    """
    from tidings.lab import evaluate as evaluation

    run["min_interval_s"] = chosen_min_interval(as_served, min_interval)
    chosen = evaluation.ablation_parts(policy) if parts is None else parts
    with progress(
        _("turning off parts"), total=len(run["traces"]) * len(run["budgets"]) * (len(chosen) + 1)
    ) as bar:
        result = evaluation.ablate(policy=policy, parts=chosen, report=bar.report, **run)
    save_and_print(result, out, lambda: _print_ablation(result))


def _print_ablation(result: dict[str, Any]) -> None:
    click.echo(
        _(
            "Charged delay of %(policy)s without a part / with it; above 1, the part helps",
            policy=result["policy"],
        )
    )
    click.echo(as_served_note(result["min_interval_s"]))
    parts = list(result["overall"])
    rows = []
    for cell in result["cells"]:
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
        [
            _("trace"),
            _("budget"),
            _("without part"),
            _("ratio"),
            _("95 % interval"),
            _("more polls"),
        ],
        rows,
        left=1,
    )
    click.echo()
    names = list(next(iter(result["by_trace"].values())))
    click.echo(_("Geometric means over all budgets"))
    click.echo()
    table = [
        [
            part,
            *(f"{result['by_trace'][part][name]:.3f}" for name in names),
            f"{result['overall'][part]:.3f}",
        ]
        for part in parts
    ]
    print_table([_("without part"), *names, _("all")], table)


# --- whatif ---------------------------------------------------------------------------------


@click.command()
@click.argument("trace")
@click.option("--policy", default="price", show_default=True, help=_("Policy to simulate."))
@click.option(
    "--budgets",
    type=NumberList(above=0),
    default="0.25,0.5,1,2,4,8,16,24",
    show_default=True,
    help=_("Polls per feed and day."),
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    help=_("Length of the training period in days.  [default: 28, or half of a shorter trace]"),
)
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="FEEDS",
    help=_("Number of feeds in a random sample (polls are scaled up)."),
)
@seed_option
@json_option
@plot_option(_("delay and missed posts by budget"))
def whatif(
    trace: str,
    policy: str,
    budgets: list[float],
    train_days: float | None,
    sample: int | None,
    seed: int,
    plot: Path | None,
) -> None:
    """Simulate other budgets on a trace.

    Shows the delay and the missed posts of the policy at each budget. The posts after the training
    period are simulated once per budget.

    \b
    Example:
      tidings lab whatif sample --budgets 0.5,1,2,4,8 --plot budget.png
    """
    from tidings.lab import whatif as simulation

    posts = read_trace(trace)
    days = simulation.training_days(posts, train_days)
    with progress(_("simulating"), total=1.0) as bar:
        points = simulation.whatif(
            posts,
            budgets,
            policy,
            days,
            sample,
            lambda share: bar.set_position(share, 1.0),
            seed=seed,
        )
    if plot is not None:
        from tidings.lab import plots

        title = _("%(name)s: effect of the budget on %(policy)s", name=posts.name, policy=policy)
        plots.save(simulation.picture(points, title), plot)
    result = {"trace": posts.name, "policy": policy, "train_days": days, "feeds": posts.n_feeds}
    result |= {
        "sample": sample and min(sample, posts.n_feeds),
        "points": [asdict(point) for point in points],
    }
    print_result(result, lambda: _print_points(result, points))


def _print_points(result: dict[str, Any], points: "list[Point]") -> None:
    feeds, sample = result["feeds"], result["sample"]
    values = {
        "trace": result["trace"],
        "policy": result["policy"],
        "days": figures(result["train_days"]),
        "feeds": feeds_text(feeds),
    }
    if sample in (None, feeds):
        text = _("%(trace)s: %(policy)s after %(days)s days of training; %(feeds)s", **values)
    else:
        text = _(
            "%(trace)s: %(policy)s after %(days)s days of training; %(feeds)s, simulated on a "
            "sample of %(sample)s",
            **values,
            sample=f"{sample:,}",
        )
    click.echo(text)
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
        [
            _("budget"),
            _("polls per day"),
            _("mean"),
            _("median"),
            _("95 % of posts"),
            _("missed"),
            _("charged"),
        ],
        rows,
        left=0,
    )
