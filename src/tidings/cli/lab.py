"""`tidings lab`: the laboratory's commands about traces, and the papers' report."""

from pathlib import Path

import click

from tidings.cli.lab_delivered import delivered
from tidings.cli.lab_evaluate import ablate, evaluate, whatif
from tidings.cli.lab_exchange import exchange
from tidings.cli.lab_formulas import allocate, schedule
from tidings.cli.lab_runs import compare, limit, score
from tidings.cli.lab_tables import read_trace
from tidings.cli.output import Target, json_option, plot_option, progress, seed_option, tell
from tidings.errors import UsageError
from tidings.formatting import count


@click.group()
def lab() -> None:
    """The laboratory: traces, policies, and what a budget buys.

    A trace is a directory with posts.parquet (feed_id, published_at in epoch seconds, optional size) and feeds.parquet
    (feed_id, optional name, window, weight), or the same as CSV.
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


@lab.command(short_help="What a trace looks like.")
@click.argument("trace")
@json_option
@plot_option("six panels (rates, Zipf, hours, week, bursts, lifetimes)")
def describe(trace: str, plot: Path | None) -> None:
    """What a trace looks like: rates, windows, patterns, Zipf fit, bursts, entry lifetimes.

    \b
    Example:
      tidings lab describe sample --plot sample.png
    """
    from tidings.lab import describe as describing

    read = read_trace(trace)
    with progress(f"describing {trace}"):
        found = describing.describe(read)
    if plot is not None:
        from tidings.lab import plots

        with progress(f"drawing {plot}"):
            plots.save(describing.picture(read, found), plot)
    tell(found, lambda: click.echo(describing.as_text(found)))


@lab.command(short_help="Write a synthetic trace like a paper's.")
@click.argument("directory", type=Target(directory=True))
@click.option(
    "--like",
    "kind",
    required=True,
    metavar="NAME",
    help="Whose statistics: sia-cho, han, feedex, urbansky, homogeneous.",
)
@click.option(
    "--feeds", type=click.IntRange(min=1), default=1000, show_default=True, help="Number of feeds."
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    default=90.0,
    show_default=True,
    help="Days of posts.",
)
@seed_option
@click.option("--csv", "as_csv", is_flag=True, help="Write CSV instead of Parquet.")
@click.option("--force", is_flag=True, help="Write into a directory that already holds something.")
@json_option
def generate(
    directory: Path, kind: str, feeds: int, days: float, seed: int, as_csv: bool, force: bool
) -> None:
    """Write a synthetic trace with the statistics that a paper published.

    \b
    Example:
      tidings lab generate sample --like sia-cho --feeds 300 --days 28 --seed 1
    """
    from tidings.lab.generate import generate as make_trace
    from tidings.lab.traces import write_trace

    if directory.is_dir() and any(directory.iterdir()):
        if not force:
            raise UsageError(
                f"{directory} is not empty; name another directory, or add --force to write into it"
            )
        _clear(directory, as_csv)
    with progress(f"generating {count(feeds, 'feed')}"):
        made = make_trace(kind, feeds=feeds, days=days, seed=seed)
        write_trace(made, directory, as_csv=as_csv)
    facts = {"feeds": made.n_feeds, "posts": made.n_posts, "days": made.days}
    words = f"{directory}: {count(made.n_feeds, 'feed')}, {count(made.n_posts, 'post')} in {made.days:.1f} days"
    tell({"directory": directory, "like": kind, "seed": seed, **facts}, words)


def _clear(folder: Path, as_csv: bool) -> None:
    """A trace may not stand there twice: the other format would be read instead of what is written now."""
    for stem in ("posts", "feeds"):
        (folder / f"{stem}.{'parquet' if as_csv else 'csv'}").unlink(missing_ok=True)


@lab.command(short_help="All tables and figures of the papers, as HTML.")
@click.option(
    "--out",
    type=Target(directory=True),
    required=True,
    metavar="DIR",
    help="Where the report goes: DIR/index.html.",
)
@click.option(
    "--quick", is_flag=True, help="Smaller traces: minutes instead of an hour, with more noise."
)
@seed_option
@json_option
def papers(out: Path, quick: bool, seed: int) -> None:
    """Every table and figure of the papers, theirs beside ours, as one HTML report.

    \b
    Example:
      tidings lab papers --quick --out report
    """
    from tidings.lab.papers import run_papers

    with progress("the papers' experiments") as bar:
        result = run_papers(out, quick=quick, seed=seed, progress=bar.say)
    tell(result, f"{out / 'index.html'}")
