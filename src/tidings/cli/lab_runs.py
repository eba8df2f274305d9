"""Commands `tidings lab score`, `compare` and `limit`: poll lists and policies on a trace."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.lab_options import as_served_options, chosen_min_interval
from tidings.cli.lab_tables import (
    draw_budgets,
    draw_delays,
    print_against,
    print_comparison,
    print_score,
    read_trace,
)
from tidings.cli.output import (
    NameList,
    NumberList,
    OutputPath,
    Progress,
    feeds_text,
    json_option,
    plot_option,
    posts_text,
    print_result,
    print_table,
    progress,
    seed_option,
)
from tidings.errors import UsageError
from tidings.formatting import duration, figures
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.lab.simulate import Polls
    from tidings.lab.traces import Trace


# --- score ----------------------------------------------------------------------------------


@click.command()
@click.argument("trace")
@click.option(
    "--polls",
    "poll_file",
    required=True,
    metavar="FILE",
    help=_("Poll list (feed_id, polled_at) as Parquet or CSV."),
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    default=0.0,
    help=_("Number of days at the start that are not scored.  [default: 0]"),
)
@json_option
@plot_option(_("the distribution of delays"))
def score(trace: str, poll_file: str, train_days: float, plot: Path | None) -> None:
    """Score a list of polls on a trace.

    Polls outside the scored period are ignored. Their number is shown.

    \b
    Example:
      tidings lab score sample --polls polls/min-delay.parquet --train-days 14
    """
    from tidings.lab.score import metrics, polls_within, read_polls, score_polls

    posts = read_trace(trace)
    start = posts.training_end(train_days) if train_days else posts.start
    all_polls = read_polls(poll_file, posts)
    polls = polls_within(all_polls, start, posts.end)
    with progress(_("scoring")):
        scores = score_polls(posts, polls, start)
    result = {**metrics(scores), "ignored_polls": len(all_polls) - len(polls)}
    if plot is not None:
        draw_delays(plot, {Path(poll_file).stem: scores})
    print_result(result, lambda: print_score(result))


# --- compare --------------------------------------------------------------------------------


@click.command()
@click.argument("trace")
@click.option(
    "--policies",
    type=NameList(),
    required=True,
    metavar="A,B,...",
    help=_("Policies, for example uniform,fixed:interval_h=1."),
)
@click.option(
    "--budget",
    "budgets",
    type=NumberList(above=0),
    required=True,
    help=_("Polls per feed and day. Several values give a curve."),
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    default=14.0,
    show_default=True,
    help=_("Length of the training period in days."),
)
@click.option(
    "--save-polls",
    type=OutputPath(directory=True),
    metavar="DIR",
    help=_("Directory for each policy's polls (DIR/POLICY.parquet)."),
)
@seed_option
@click.option(
    "--native/--no-native",
    default=True,
    help=_("Also a run without a budget, for policies that have no budget parameter."),
)
@click.option(
    "--against", metavar="POLICY", help=_("Reference policy for ratios with 95 % intervals.")
)
@as_served_options
@json_option
@plot_option(_("the delay by budget or, for one budget, the distribution of delays"))
def compare(
    trace: str,
    policies: list[str],
    budgets: list[float],
    train_days: float,
    save_polls: Path | None,
    seed: int,
    native: bool,
    against: str | None,
    as_served: bool,
    min_interval: float | None,
    plot: Path | None,
) -> None:
    """Compare policies at an equal budget.

    The last row is the limit that no policy can pass. A policy without a budget parameter runs
    twice: unchanged (NAME@native), and with its intervals multiplied by a factor that meets the
    budget. With --as-served, all policies run under the poll constraints of the service. The output
    then lists the policies that cannot use the whole budget.

    \b
    Examples:
      tidings lab compare sample --policies uniform,min-delay,combined \\
        --budget 4 --against uniform
      tidings lab compare sample --policies uniform,combined \\
        --budget 0.5,1,2,4,8 --plot curve.png
    """
    from tidings.lab.compare import compare as run
    from tidings.lab.simulate import Conditions
    from tidings.policy import make_policy
    from tidings.policy.constraints import Limits

    for spec in policies:
        make_policy(spec)  # reject an unknown name before the long run
    if against is not None and against not in policies:
        raise UsageError(
            _("--against %(against)s is not in --policies; add it there", against=against)
        )
    min_interval_s = chosen_min_interval(as_served, min_interval)
    conditions = None if min_interval_s is None else Conditions(Limits(min_interval_s))
    posts = read_trace(trace)
    posts.training_end(train_days)
    comparisons = []
    scores = {}
    with progress(_("comparing"), total=len(policies) * len(budgets)) as bar:
        step = _step_reporter(bar)
        for budget in budgets:

            def report_start(spec: str, budget: float = budget) -> None:
                step(_("%(spec)s at %(budget)s per day", spec=spec, budget=f"{budget:g}"))

            comparison = run(
                posts,
                policies,
                budget,
                train_days,
                seed=seed,
                native=native,
                progress=report_start,
                conditions=conditions,
            )
            if save_polls is not None:
                folder = save_polls if len(budgets) == 1 else save_polls / f"{budget:g}"
                for result in comparison.results:
                    _save_polls(folder, posts, result.policy, result.polls)
            if plot is not None and len(budgets) == 1:
                scores = {result.policy: result.scores for result in comparison.results}
            if against is not None:
                bar.set_text(_("resampling feeds"))
            # Keep only the figures: the scores of all posts in many runs need too much memory.
            comparisons.append(comparison.figures(against, seed))
    if plot is not None:
        if len(budgets) == 1:
            draw_delays(plot, scores)
        else:
            draw_budgets(plot, comparisons)
    output = (
        comparisons[0]
        if len(comparisons) == 1
        else {"trace": posts.name, "train_days": train_days, "curve": comparisons}
    )
    print_result(output, lambda: _print_comparisons(comparisons, against))


def _print_comparisons(comparisons: list[dict[str, Any]], against: str | None) -> None:
    for index, comparison in enumerate(comparisons):
        if index:
            click.echo()
        print_comparison(comparison)
        if against is not None:
            click.echo()
            print_against(comparison, against)


def _step_reporter(bar: Progress) -> Callable[[str], None]:
    """Return a function to call at the start of each step; it completes the previous step."""
    is_started = False

    def step(text: str) -> None:
        nonlocal is_started
        if is_started:
            bar.advance()
        is_started = True
        bar.set_text(text)

    return step


def _save_polls(folder: Path, trace: "Trace", policy: str, polls: "Polls") -> None:
    import numpy as np

    from tidings.lab.traces import write_table

    folder.mkdir(parents=True, exist_ok=True)
    times = polls.times
    is_integer = bool(np.all(times == np.rint(times)))
    table = {
        "feed_id": trace.feed_ids[polls.feed],
        "polled_at": times.astype(np.int64) if is_integer else times,
    }
    write_table(folder / f"{policy.replace('/', '_')}.parquet", table)


# --- limit ----------------------------------------------------------------------------------


@click.command()
@click.argument("trace")
@click.option(
    "--budget",
    "budgets",
    type=NumberList(low=0),
    required=True,
    help=_("Polls per feed and day. Several values give a curve."),
)
@json_option
@plot_option(_("the limit by budget"))
def limit(trace: str, budgets: list[float], plot: Path | None) -> None:
    """Compute the minimum delay of any policy.

    Computes the delay of a policy that knows every post in advance. The mean delay assumes that
    feeds list all posts. The delay including missed posts assumes that feeds list only their latest
    posts. A missed post counts the time until it left the feed, plus 24 hours.

    \b
    Example:
      tidings lab limit sample --budget 4
    """
    from tidings.lab.compare import clairvoyant_bounds
    from tidings.lab.simulate import budget_polls

    if plot is not None and sum(budget > 0 for budget in budgets) < 2:
        raise UsageError(
            _(
                "--plot draws a curve and needs several budgets above 0, for example "
                "--budget 0.5,1,2,4,8"
            )
        )
    posts = read_trace(trace)
    bounds: list[dict[str, Any]] = []
    with progress(_("computing the limit"), total=len(budgets)) as bar:
        for budget in budgets:
            polls = budget_polls(posts, budget, posts.start)
            without_windows, with_windows = clairvoyant_bounds(posts, polls)
            bounds.append(
                {
                    "trace": posts.name,
                    "budget": budget,
                    "polls": polls,
                    "posts": without_windows.posts,
                    "mean_delay_s": without_windows.mean_s,
                    "charged_delay_s": with_windows.mean_s,
                }
            )
            bar.advance()
    if plot is not None:
        draw_budgets(plot, bounds)
    print_result(
        bounds[0] if len(bounds) == 1 else {"trace": posts.name, "curve": bounds},
        lambda: _print_limits(posts, bounds),
    )


def _print_limits(trace: "Trace", bounds: list[dict[str, Any]]) -> None:
    click.echo(
        _(
            "%(name)s: %(feeds)s, %(posts)s in %(days)s days",
            name=trace.name,
            feeds=feeds_text(trace.n_feeds),
            posts=posts_text(trace.n_posts),
            days=f"{trace.days:.1f}",
        )
    )
    click.echo(_("No policy can be faster than:"))
    click.echo()
    rows = [
        [
            figures(at["budget"]),
            f"{at['polls']:,.0f}",
            duration(at["mean_delay_s"]),
            duration(at["charged_delay_s"]),
        ]
        for at in bounds
    ]
    print_table(
        [_("polls per feed and day"), _("polls"), _("mean delay"), _("charged delay")],
        rows,
        left=0,
    )
