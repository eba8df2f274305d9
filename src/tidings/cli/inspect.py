"""Commands `tidings explain` (schedule of a feed) and `tidings status` (overview)."""

import time
from collections.abc import Iterable
from textwrap import fill
from typing import TYPE_CHECKING

import click

from tidings.cli.context import CliContext, find_feed, with_context
from tidings.cli.output import feeds_text, json_option, print_result, print_table
from tidings.formatting import NO_VALUE, ago, duration_short, figures, percent_short
from tidings.i18n import _, n_
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
    help=_("Number of recent polls to show."),
)
@json_option
@with_context
async def explain(context: CliContext, feed: str, polls: int) -> None:
    """Explain when and why a feed is polled.

    Shows the learned posting rate, the limits set by the publisher, the next poll with its reason,
    and the recent polls.

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
    about = _("feed %(id)s", id=feed.id)
    click.echo(f"{address} ({about}{f', {state.format}' if state.format else ''})\n")
    if explanation.next_poll_at is None:
        _print_labeled(_("next poll"), [_("automatic polls are off")])
    else:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(explanation.next_poll_at))
        _print_labeled(
            _("next poll"),
            [
                _(
                    "%(next_poll_at)s, at %(at)s",
                    next_poll_at=ago(explanation.next_poll_at, now),
                    at=at,
                ),
                _("reason: %(reason)s", reason=render(explanation.reason))
                if explanation.reason
                else "",
            ],
        )
    _print_labeled(_("posts"), explanation.habits)
    _print_labeled(_("limits"), explanation.poll_constraints or [_("the publisher sets no limits")])
    _print_labeled(_("problems"), explanation.problems or [_("none")])
    if explanation.polls:
        click.echo("\n" + _("recent polls"))
    for poll in explanation.polls:
        _print_labeled(
            ago(poll.at, now),
            [
                _describe_poll_outcome(poll),
                _("reason: %(reason)s", reason=render(poll.reason)) if poll.reason else "",
            ],
            POLL_LABEL_WIDTH,
        )


def _describe_poll_outcome(poll: "Poll") -> str:
    """Return the result of a poll: error, or new entries, delay, changes and missed entries."""
    if poll.error_kind:
        return f"{poll.error_kind}: {poll.error}"
    results = [
        n_("%(num)s new post", "%(num)s new posts", poll.new) if poll.new else _("no new posts")
    ]
    if poll.delay_mean_s is not None:
        results.append(
            _("found %(delay)s after publication", delay=duration_short(poll.delay_mean_s))
        )
    if poll.changed:
        results.append(_("%(changed)s posts changed", changed=f"{poll.changed:,}"))
    if poll.missed is not None:
        results.append(_("about %(missed)s posts missed", missed=figures(poll.missed, 2)))
    return _(
        "%(status)s: %(results)s; %(bytes)s bytes",
        status=poll.status or poll.source,
        results=", ".join(results),
        bytes=f"{poll.bytes:,}",
    )


@click.command()
@json_option
@with_context
async def status(context: CliContext) -> None:
    """Show budget, delays and errors.

    Also shows the paused hosts and the estimated number of missed posts.

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
    feeds = _(
        "%(active_feeds)s subscribed, %(failing)s failing, %(retired)s no longer polled",
        active_feeds=f"{status.active_feeds:,}",
        failing=f"{status.failing:,}",
        retired=f"{status.retired:,}",
    )
    _print_labeled(
        _("feeds"),
        [
            feeds,
            _("%(due)s due for a poll now", due=f"{status.due:,}")
            if status.due
            else _(
                "the next poll is due %(next_due_at)s", next_due_at=ago(status.next_due_at, now)
            ),
        ],
    )
    _print_labeled(_("entries"), [f"{status.entries:,}"])
    budget = _(
        "%(budget_per_day)s requests a day, %(spent_share)s used in the last 24 hours",
        budget_per_day=figures(summary.budget_per_day),
        spent_share=percent_short(summary.spent_share),
    )
    _print_labeled(_("budget"), [budget, budget_note(summary)])
    _print_labeled(
        _("errors"),
        ["; ".join(f"{feeds_text(n)}: {kind}" for kind, n in status.errors.items()) or _("none")],
    )
    pauses = [
        _(
            "%(host)s is paused for %(until)s: %(reason)s",
            host=pause.host,
            until=duration_short(pause.until - now),
            reason=pause.reason,
        )
        for pause in status.paused[:MAX_LISTED]
    ]
    more = (
        [_("and %(more)s more hosts", more=f"{more:,}")]
        if (more := len(status.paused) - MAX_LISTED) > 0
        else []
    )
    _print_labeled(_("paused"), [*pauses, *more] or [_("no host is paused")])
    click.echo()
    periods: tuple[Period, ...] = (status.hour, status.day, status.week)
    rows = {
        _("requests"): [f"{p.polls:,}" for p in periods],
        _("megabytes"): [f"{p.bytes / 1e6:,.1f}" for p in periods],
        _("new entries"): [f"{p.new:,}" for p in periods],
        _("median delay"): [duration_short(p.delay_p50_s) for p in periods],
        _("90 % of posts within"): [duration_short(p.delay_p90_s) for p in periods],
        _("posts probably missed"): [
            figures(p.missed, 2) if p.missed else NO_VALUE for p in periods
        ],
        _("posts recovered"): [f"{p.recovered:,}" if p.recovered else NO_VALUE for p in periods],
    }
    print_table(
        [_("in the last"), _("hour"), _("day"), _("week")],
        [[name, *cells] for name, cells in rows.items()],
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
