"""`tidings lab score`, `compare` and `limit`: policies and poll lists on a trace."""

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
    Names,
    Numbers,
    Progress,
    Target,
    json_option,
    plot_option,
    print_table,
    progress,
    seed_option,
    tell,
)
from tidings.errors import UsageError
from tidings.formatting import count, duration, figures

if TYPE_CHECKING:
    from tidings.lab.simulate import Polls
    from tidings.lab.traces import Trace


# --- score --------------------------------------------------------------------------------------------------------------


@click.command(short_help="Judge a poll list, whoever made it.")
@click.argument("trace")
@click.option(
    "--polls",
    "poll_file",
    required=True,
    metavar="FILE",
    help="Poll list: feed_id, polled_at; Parquet or CSV.",
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Judge only what comes this many days after the first post; what came before is known (default: judge all).",
)
@json_option
@plot_option("how many posts had arrived after how long")
def score(trace: str, poll_file: str, train_days: float, plot: Path | None) -> None:
    """Judge a poll list, whoever made it, against the posts of a trace.

    Polls outside the judged period are ignored and counted.

    \b
    Example:
      tidings lab score sample --polls polls/min-delay.parquet --train-days 14
    """
    from tidings.lab.score import metrics, polls_within, read_polls, score_polls

    read = read_trace(trace)
    start = read.training_end(train_days) if train_days else read.start
    listed = read_polls(poll_file, read)
    polls = polls_within(listed, start, read.end)
    with progress("judging"):
        scores = score_polls(read, polls, start)
    found = {**metrics(scores), "ignored_polls": len(listed) - len(polls)}
    if plot is not None:
        draw_delays(plot, {Path(poll_file).stem: scores})
    tell(found, lambda: print_score(found))


# --- compare ------------------------------------------------------------------------------------------------------------


@click.command(short_help="Policies side by side at equal budget.")
@click.argument("trace")
@click.option(
    "--policies",
    type=Names(),
    required=True,
    metavar="A,B,...",
    help="Policies, as in uniform,fixed:interval_h=1.",
)
@click.option(
    "--budget",
    "budgets",
    type=Numbers(above=0),
    required=True,
    help="Polls per feed and day; several give a curve.",
)
@click.option(
    "--train-days",
    type=click.FloatRange(min=0),
    default=14.0,
    show_default=True,
    help="What policies learn from.",
)
@click.option(
    "--save-polls",
    type=Target(directory=True),
    metavar="DIR",
    help="Write each policy's polls to DIR/POLICY.parquet.",
)
@seed_option
@click.option(
    "--native/--no-native",
    default=True,
    help="Also run policies without a budget knob as they are.",
)
@click.option("--against", metavar="POLICY", help="Give ratios to this policy with 95 % intervals.")
@as_served_options
@json_option
@plot_option("delay against budget (or, at one budget, the distribution of the delay)")
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
    """Policies side by side at equal budget, with the limit that none can pass.

    A policy without a budget knob runs twice: as it is (NAME@native), and with all its intervals multiplied by the one
    factor that brings it to the budget. With --as-served all policies run under the poll constraints of the service,
    and those that cannot make as many polls are listed.

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
        make_policy(spec)  # an unknown name is refused before a long run
    if against is not None and against not in policies:
        raise UsageError(f"--against {against}: is not one of --policies; add it there")
    min_interval_s = chosen_min_interval(as_served, min_interval)
    conditions = None if min_interval_s is None else Conditions(Limits(min_interval_s))
    read = read_trace(trace)
    read.training_end(train_days)
    found = []
    scores = {}
    with progress("comparing", total=len(policies) * len(budgets)) as bar:
        step = _steps(bar)
        for budget in budgets:

            def begin(spec: str, budget: float = budget) -> None:
                step(f"{spec} at {budget:g} a day")

            comparison = run(
                read,
                policies,
                budget,
                train_days,
                seed=seed,
                native=native,
                progress=begin,
                conditions=conditions,
            )
            if save_polls is not None:
                folder = save_polls if len(budgets) == 1 else save_polls / f"{budget:g}"
                for result in comparison.results:
                    _save_polls(folder, read, result.policy, result.polls)
            if plot is not None and len(budgets) == 1:
                scores = {result.policy: result.scores for result in comparison.results}
            if against is not None:
                bar.say("resampling feeds")
            found.append(
                comparison.figures(against, seed)
            )  # figures only: the posts of many runs would fill the memory
    if plot is not None:
        if len(budgets) == 1:
            draw_delays(plot, scores)
        else:
            draw_budgets(plot, found)
    whole = (
        found[0]
        if len(found) == 1
        else {"trace": read.name, "train_days": train_days, "curve": found}
    )
    tell(whole, lambda: _show_comparisons(found, against))


def _show_comparisons(found: list[dict[str, Any]], against: str | None) -> None:
    for place, at_budget in enumerate(found):
        if place:
            click.echo()
        print_comparison(at_budget)
        if against is not None:
            click.echo()
            print_against(at_budget, against)


def _steps(bar: Progress) -> Callable[[str], None]:
    """Turns "this begins now" into "the one before is done"."""
    begun = False

    def step(text: str) -> None:
        nonlocal begun
        if begun:
            bar.done()
        begun = True
        bar.say(text)

    return step


def _save_polls(folder: Path, trace: "Trace", policy: str, polls: "Polls") -> None:
    import numpy as np

    from tidings.lab.traces import write_table

    folder.mkdir(parents=True, exist_ok=True)
    times = polls.times
    whole = bool(np.all(times == np.rint(times)))
    table = {
        "feed_id": trace.feed_ids[polls.feed],
        "polled_at": times.astype(np.int64) if whole else times,
    }
    write_table(folder / f"{policy.replace('/', '_')}.parquet", table)


# --- limit --------------------------------------------------------------------------------------------------------------


@click.command(short_help="The least delay that any policy could reach.")
@click.argument("trace")
@click.option(
    "--budget",
    "budgets",
    type=Numbers(low=0),
    required=True,
    help="Polls per feed and day; several give a curve.",
)
@json_option
@plot_option("the limit against the budget")
def limit(trace: str, budgets: list[float], plot: Path | None) -> None:
    """The least delay that any policy could reach, knowing every post beforehand.

    Over the whole trace: without windows (mean delay) and with them (charged delay, where a missed post costs its time to
    eviction plus 24 hours).

    \b
    Example:
      tidings lab limit sample --budget 4
    """
    from tidings.lab.compare import clairvoyant_bounds
    from tidings.lab.simulate import budget_polls

    if plot is not None and sum(budget > 0 for budget in budgets) < 2:
        raise UsageError(
            "--plot draws a curve; give several budgets above 0, as in --budget 0.5,1,2,4,8"
        )
    read = read_trace(trace)
    found: list[dict[str, Any]] = []
    with progress("limit", total=len(budgets)) as bar:
        for budget in budgets:
            polls = budget_polls(read, budget, read.start)
            without, within = clairvoyant_bounds(read, polls)
            found.append(
                {
                    "trace": read.name,
                    "budget": budget,
                    "polls": polls,
                    "posts": without.posts,
                    "mean_delay_s": without.mean_s,
                    "charged_delay_s": within.mean_s,
                }
            )
            bar.done()
    if plot is not None:
        draw_budgets(plot, found)
    tell(
        found[0] if len(found) == 1 else {"trace": read.name, "curve": found},
        lambda: _show_limits(read, found),
    )


def _show_limits(read: "Trace", found: list[dict[str, Any]]) -> None:
    click.echo(
        f"{read.name}: {count(read.n_feeds, 'feed')}, {count(read.n_posts, 'post')} in {read.days:.1f} days"
    )
    click.echo("No policy can be faster than:")
    click.echo()
    rows = [
        [
            figures(at["budget"]),
            f"{at['polls']:,.0f}",
            duration(at["mean_delay_s"]),
            duration(at["charged_delay_s"]),
        ]
        for at in found
    ]
    print_table(["polls/feed/day", "polls", "mean delay", "with windows, charged"], rows, left=0)
