"""Commands `tidings explain` (schedule of a feed) and `tidings status` (overview)."""

import time
from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING

import click

from tidings.cli.context import CliContext, find_feed, with_context
from tidings.cli.output import json_option, print_result, print_table
from tidings.formatting import NO_VALUE, ago, count, duration_short, figures, percent_short
from tidings.redaction import redact_password

if TYPE_CHECKING:
    from tidings.aggregator.explain import FeedExplanation, Overview
    from tidings.store.feed_models import Period, Poll

#: Maximum number of paused hosts in the text output; JSON has all of them.
MAX_LISTED = 10
LABEL_WIDTH, POLL_LABEL_WIDTH, WIDTH = 11, 15, 80


@click.command()
@click.argument("feed", metavar="URL|ID")
@click.option(
    "--polls",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Number of recent polls to show.",
)
@json_option
@with_context
async def explain(context: CliContext, feed: str, polls: int) -> None:
    """Explain when and why a feed is polled.

    Shows the learned posting rate, the poll constraints of the publisher, the next poll with its
    reason, and the recent polls.

    \b
    Example:
      tidings explain https://example.org/feed
    """
    from tidings.aggregator.explain import as_json
    from tidings.aggregator.explain import explain as explain_feed
    from tidings.policy.constraints import Limits

    now = time.time()
    async with context.open_store() as store:
        limits = Limits(context.config.min_interval_s)
        found = await find_feed(store, feed)
        explanation = await explain_feed(store, found, now, polls=polls, limits=limits)
    print_result(as_json(explanation), lambda: _print_explanation(explanation, now))


def _print_explanation(explanation: "FeedExplanation", now: float) -> None:
    from tidings.reasons import render

    feed, state = explanation.feed, explanation.feed.state
    address = redact_password(feed.url)
    click.echo(state.title or address)
    click.echo(f"{address} (feed {feed.id}{f', {state.format}' if state.format else ''})\n")
    if explanation.next_poll_at is None:
        _print_labeled("next poll", ["automatic polls are off"])
    else:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(explanation.next_poll_at))
        _print_labeled(
            "next poll",
            [
                f"{ago(explanation.next_poll_at, now)}, at {at}",
                f"reason: {render(explanation.reason)}" if explanation.reason else "",
            ],
        )
    _print_labeled("posts", explanation.habits)
    _print_labeled("limits", explanation.poll_constraints or ["none from the publisher"])
    _print_labeled("problems", explanation.problems or ["none"])
    if explanation.polls:
        click.echo("\nrecent polls")
    for poll in explanation.polls:
        _print_labeled(
            ago(poll.at, now),
            [_describe_poll_outcome(poll), f"reason: {render(poll.reason)}" if poll.reason else ""],
            POLL_LABEL_WIDTH,
        )


def _describe_poll_outcome(poll: "Poll") -> str:
    """Return the result of a poll: error, or new entries, delay, changes and missed entries."""
    if poll.error_kind:
        return f"{poll.error_kind}: {poll.error}"
    results = [f"{count(poll.new, 'new post')}" if poll.new else "nothing new"]
    if poll.delay_mean_s is not None:
        results.append(f"{duration_short(poll.delay_mean_s)} after publication")
    if poll.changed:
        results.append(f"{poll.changed:,} changed")
    if poll.missed is not None:
        results.append(f"about {figures(poll.missed, 2)} missed")
    return f"{poll.status or poll.source}: {', '.join(results)}; {poll.bytes:,} bytes"


@click.command()
@json_option
@with_context
async def status(context: CliContext) -> None:
    """Overview: budget, delays, errors.

    Also shows the paused hosts, and estimates of missed posts.

    \b
    Example:
      tidings status
    """
    import msgspec

    from tidings.aggregator.explain import overview
    from tidings.policy.constraints import Limits

    async with context.open_store() as store:
        summary = await overview(
            store, context.config.budget, Limits(context.config.min_interval_s)
        )
    print_result(msgspec.to_builtins(summary), lambda: _print_overview(summary, time.time()))


def _print_overview(summary: "Overview", now: float) -> None:
    from tidings.aggregator.explain import budget_note
    from tidings.store.evidence import delay_needs

    status = summary.status
    feeds = (
        f"{status.active_feeds:,} subscribed, {status.failing:,} failing, "
        f"{status.retired:,} retired"
    )
    _print_labeled(
        "feeds",
        [
            feeds,
            f"{status.due:,} due now" if status.due else f"next due {ago(status.next_due_at, now)}",
        ],
    )
    _print_labeled("entries", [f"{status.entries:,}"])
    budget = (
        f"{figures(summary.budget_per_day)} requests per day, "
        f"{percent_short(summary.spent_share)} used in the last 24 hours"
    )
    _print_labeled("budget", [budget, budget_note(summary)])
    _print_labeled(
        "errors",
        ["; ".join(f"{count(n, 'feed')}: {kind}" for kind, n in status.errors.items()) or "none"],
    )
    pauses = [
        f"{pause.host}, for {duration_short(pause.until - now)}: {pause.reason}"
        for pause in status.paused[:MAX_LISTED]
    ]
    more = [f"and {more:,} more"] if (more := len(status.paused) - MAX_LISTED) > 0 else []
    _print_labeled("paused", [*pauses, *more] or ["no host"])
    click.echo()
    periods: tuple[Period, ...] = (status.hour, status.day, status.week)
    rows = {
        "requests": [f"{p.polls:,}" for p in periods],
        "megabytes": [f"{p.bytes / 1e6:,.1f}" for p in periods],
        "new entries": [f"{p.new:,}" for p in periods],
        "median delay": [duration_short(p.delay_p50_s) for p in periods],
        "90 % within": [duration_short(p.delay_p90_s) for p in periods],
        "posts probably missed": [figures(p.missed, 2) if p.missed else NO_VALUE for p in periods],
        "recovered": [f"{p.recovered:,}" if p.recovered else NO_VALUE for p in periods],
    }
    print_table(
        ["in the last", "hour", "day", "week"], [[name, *cells] for name, cells in rows.items()]
    )
    if needs := delay_needs(summary.evidence):
        click.echo("\n" + fill(needs, WIDTH))


def _print_labeled(label: str, sentences: Iterable[str], width: int = LABEL_WIDTH) -> None:
    """Print sentences beside a label, each starting on a new line; empty ones are skipped."""
    for sentence in filter(None, sentences):
        click.echo(
            fill(sentence, WIDTH, initial_indent=f"{label:{width}}", subsequent_indent=" " * width)
        )
        label = ""
