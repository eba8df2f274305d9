"""Commands of `tidings lab`: traces (describe, generate), the papers' report, and the group."""

from pathlib import Path

import click

from tidings.cli.lab_delivered import delivered
from tidings.cli.lab_evaluate import ablate, evaluate, whatif
from tidings.cli.lab_exchange import exchange
from tidings.cli.lab_formulas import allocate, schedule
from tidings.cli.lab_runs import compare, limit, score
from tidings.cli.lab_tables import read_trace
from tidings.cli.output import (
    OutputPath,
    feeds_text,
    json_option,
    plot_option,
    posts_text,
    print_result,
    progress,
    seed_option,
)
from tidings.errors import UsageError
from tidings.i18n import _


@click.group()
def lab() -> None:
    """Simulate and compare polling policies.

    A trace is a directory with posts.parquet (feed_id, published_at in epoch seconds, optional
    size) and feeds.parquet (feed_id, optional name, window, weight), or the same files as CSV. The
    window is the number of posts that a feed lists.

    The charged delay includes missed posts. Each of them counts with the time until it left the
    feed, plus 24 hours.
    """


for command in (
    allocate,
    schedule,
    score,
    compare,
    limit,
    delivered,
    evaluate,
    ablate,
    whatif,
    exchange,
):
    lab.add_command(command)


@lab.command()
@click.argument("trace")
@json_option
@plot_option(_("rates, Zipf fit, hours, weekdays, bursts and lifetimes"))
def describe(trace: str, plot: Path | None) -> None:
    """Describe a trace: rates, patterns, bursts.

    Also shows how many posts the feeds list, the Zipf fit and the lifetimes of entries.

    \b
    Example:
      tidings lab describe sample --plot sample.png
    """
    from tidings.lab import describe as description

    posts = read_trace(trace)
    with progress(_("describing %(trace)s", trace=trace)):
        result = description.describe(posts)
    if plot is not None:
        from tidings.lab import plots

        with progress(_("drawing %(plot)s", plot=plot)):
            plots.save(description.picture(posts, result), plot)
    print_result(result, lambda: click.echo(description.as_text(result)))


@lab.command()
@click.argument("directory", type=OutputPath(directory=True))
@click.option(
    "--like",
    "kind",
    required=True,
    metavar="NAME",
    help=_("Model: sia-cho, han, feedex, urbansky or homogeneous."),
)
@click.option(
    "--feeds",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help=_("Number of feeds."),
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=90.0,
    show_default=True,
    help=_("Length of the trace in days."),
)
@seed_option
@click.option("--csv", "as_csv", is_flag=True, help=_("CSV instead of Parquet."))
@click.option(
    "--force", is_flag=True, help=_("Overwrite a trace in a directory that is not empty.")
)
@json_option
def generate(
    directory: Path, kind: str, feeds: int, days: float, seed: int, as_csv: bool, force: bool
) -> None:
    """Generate a synthetic trace.

    The trace has the statistics that a paper has published.

    \b
    Example:
      tidings lab generate sample --like sia-cho --feeds 300 --days 28 --seed 1
    """
    from tidings.lab.generate import generate as make_trace
    from tidings.lab.traces import write_trace

    if directory.is_dir() and any(directory.iterdir()):
        if not force:
            raise UsageError(
                _(
                    "%(directory)s is not empty; choose another directory, or add "
                    "--force to write into it",
                    directory=directory,
                )
            )
        _delete_other_format(directory, as_csv)
    with progress(_("generating %(feeds)s", feeds=feeds_text(feeds))):
        trace = make_trace(kind, feeds=feeds, days=days, seed=seed)
        write_trace(trace, directory, as_csv=as_csv)
    totals = {"feeds": trace.n_feeds, "posts": trace.n_posts, "days": trace.days}
    text = _(
        "%(directory)s: %(feeds)s, %(posts)s in %(days)s days",
        directory=directory,
        feeds=feeds_text(trace.n_feeds),
        posts=posts_text(trace.n_posts),
        days=f"{trace.days:.1f}",
    )
    print_result({"directory": directory, "like": kind, "seed": seed, **totals}, text)


def _delete_other_format(directory: Path, as_csv: bool) -> None:
    """Delete a trace in the other file format, which would be read instead of the new one."""
    for stem in ("posts", "feeds"):
        (directory / f"{stem}.{'parquet' if as_csv else 'csv'}").unlink(missing_ok=True)


@lab.command()
@click.option(
    "--out",
    type=OutputPath(directory=True),
    required=True,
    metavar="DIR",
    help=_("Directory of the report (DIR/index.html)."),
)
@click.option(
    "--quick", is_flag=True, help=_("Smaller traces: minutes instead of an hour, but more noise.")
)
@seed_option
@json_option
def papers(out: Path, quick: bool, seed: int) -> None:
    """Reproduce the papers' tables and figures.

    Writes one HTML report with the published values beside ours.

    \b
    Example:
      tidings lab papers --quick --out report
    """
    from tidings.lab.papers import run_papers

    with progress(_("running the papers' experiments")) as bar:
        result = run_papers(out, quick=quick, seed=seed, progress=bar.set_text)
    print_result(result, f"{out / 'index.html'}")
