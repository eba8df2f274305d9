"""`tidings explain` and `status`: what is known, what was decided, and why."""

import time
from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING

import click

from tidings.cli.home import Home, find_feed, with_home
from tidings.cli.output import json_option, print_table, tell
from tidings.formatting import NO_VALUE, ago, count, duration_short, figures, percent_short
from tidings.redaction import redact_password

if TYPE_CHECKING:
    from tidings.aggregator.explain import FeedExplanation, Overview
    from tidings.store.feed_models import Period, Poll

#: Paused hosts that are named; all of them with --json.
MOST_LISTED = 10
LABEL, POLL_LABEL, WIDTH = 11, 15, 80


@click.command()
@click.argument("feed", metavar="URL|ID")
@click.option(
    "--polls",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="So many of the last polls.",
)
@json_option
@with_home
async def explain(home: Home, feed: str, polls: int) -> None:
    """One feed: what was learned, what its publisher wishes, the next poll and why, the last polls.

    \b
    Example:
      tidings explain https://example.org/feed
    """
    from tidings.aggregator.explain import as_json
    from tidings.aggregator.explain import explain as explained
    from tidings.policy.constraints import Limits

    now = time.time()
    async with home.open_store() as store:
        limits = Limits(home.config.min_interval_s)
        told = await explained(store, await find_feed(store, feed), now, polls=polls, limits=limits)
    tell(as_json(told), lambda: _tell_feed(told, now))


def _tell_feed(told: "FeedExplanation", now: float) -> None:
    from tidings.reasons import render

    feed, state = told.feed, told.feed.state
    address = redact_password(feed.url)
    click.echo(state.title or address)
    click.echo(f"{address} (feed {feed.id}{f', {state.format}' if state.format else ''})\n")
    if told.next_poll_at is None:
        _line("next poll", ["never by itself"])
    else:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(told.next_poll_at))
        _line(
            "next poll",
            [
                f"{ago(told.next_poll_at, now)}, at {at}",
                f"why: {render(told.reason)}" if told.reason else "",
            ],
        )
    _line("posts", told.habits)
    _line("wishes", told.poll_constraints or ["its publisher has none"])
    _line("troubles", told.problems or ["none"])
    if told.polls:
        click.echo("\nlast polls")
    for poll in told.polls:
        _line(
            ago(poll.at, now),
            [_outcome(poll), f"why: {render(poll.reason)}" if poll.reason else ""],
            POLL_LABEL,
        )


def _outcome(poll: "Poll") -> str:
    """What came of a poll, in words."""
    if poll.error_kind:
        return f"{poll.error_kind}: {poll.error}"
    found = [f"{count(poll.new, 'new post')}" if poll.new else "nothing new"]
    if poll.delay_mean_s is not None:
        found.append(f"{duration_short(poll.delay_mean_s)} after publication")
    if poll.changed:
        found.append(f"{poll.changed:,} changed")
    if poll.missed is not None:
        found.append(f"about {figures(poll.missed, 2)} lost")
    return f"{poll.status or poll.source}: {', '.join(found)}; {poll.bytes:,} bytes"


@click.command()
@json_option
@with_home
async def status(home: Home) -> None:
    """Overview: budget, delays, missed posts, errors, paused hosts.

    \b
    Example:
      tidings status
    """
    import msgspec

    from tidings.aggregator.explain import overview
    from tidings.policy.constraints import Limits

    async with home.open_store() as store:
        told = await overview(store, home.config.budget, Limits(home.config.min_interval_s))
    tell(msgspec.to_builtins(told), lambda: _tell_all(told, time.time()))


def _tell_all(told: "Overview", now: float) -> None:
    from tidings.aggregator.explain import budget_note
    from tidings.store.evidence import delay_needs

    status = told.status
    feeds = (
        f"{status.active_feeds:,} followed, {status.failing:,} failing, {status.retired:,} retired"
    )
    _line(
        "feeds",
        [
            feeds,
            f"{status.due:,} due now"
            if status.due
            else f"the next is due {ago(status.next_due_at, now)}",
        ],
    )
    _line("entries", [f"{status.entries:,}"])
    budget = f"{figures(told.budget_per_day)} requests a day, of which {percent_short(told.spent_share)} were spent in the last"
    _line("budget", [f"{budget} 24 hours", budget_note(told)])
    _line(
        "errors",
        ["; ".join(f"{count(n, 'feed')}: {kind}" for kind, n in status.errors.items()) or "none"],
    )
    pauses = [
        f"{pause.host}, for {duration_short(pause.until - now)}: {pause.reason}"
        for pause in status.paused[:MOST_LISTED]
    ]
    more = [f"and {more:,} more"] if (more := len(status.paused) - MOST_LISTED) > 0 else []
    _line("paused", [*pauses, *more] or ["no host"])
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
    if needs := delay_needs(told.evidence):
        click.echo("\n" + fill(needs, WIDTH))


def _line(label: str, sentences: Iterable[str], width: int = LABEL) -> None:
    """A label, and beside it sentences, each beginning on a line of its own."""
    for sentence in filter(None, sentences):
        click.echo(
            fill(sentence, WIDTH, initial_indent=f"{label:{width}}", subsequent_indent=" " * width)
        )
        label = ""
