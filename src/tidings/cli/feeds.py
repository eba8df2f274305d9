"""Commands for subscriptions: `tidings add`, `import`, `export`, `feeds` and `poll`."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.context import CliContext, find_feed, with_context
from tidings.cli.output import (
    feeds_text,
    json_option,
    print_result,
    print_table,
    progress,
    wants_json,
)
from tidings.errors import TidingsError, UsageError
from tidings.formatting import NO_VALUE, ago
from tidings.i18n import _, n_
from tidings.redaction import redact_password

if TYPE_CHECKING:
    from tidings.aggregator.aggregator import PollTotals
    from tidings.aggregator.importer import AddResult, ImportReport
    from tidings.reasons import Reason
    from tidings.store import Store
    from tidings.store.feed_models import Feed, FeedSummary

#: Maximum number of invalid rows or skipped feeds in the text output; JSON has all of them.
MAX_LISTED = 20
#: Rows per database query (keyset pagination), which bounds the memory use.
PAGE_SIZE = 1000


# --- import and export ----------------------------------------------------------------------


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help=_("Only a report, without an import."))
@json_option
@with_context
async def import_feeds(context: CliContext, file: str, dry_run: bool) -> None:
    """Import subscriptions from FILE.

    FILE is an OPML file, or a text file with one URL per line. Use - for stdin. If an error occurs,
    nothing is imported. Duplicates and invalid lines are reported with their line numbers. The
    running service or the next `tidings poll` fetches the new feeds.

    \b
    Example:
      tidings import subscriptions.opml --dry-run
    """
    from tempfile import TemporaryDirectory

    from tidings.aggregator import importer
    from tidings.store import Store

    with click.open_file(file, "rb") as opened:
        body = opened.read()
    # A dry run must not create a database, so it uses a temporary one if there is none yet.
    with TemporaryDirectory() as temporary:
        location = (
            Path(temporary) / "tidings.db"
            if dry_run and not context.store_exists
            else context.store_location
        )
        assert context.config  # reports an invalid option, although the import does not need it
        if location == context.store_path:
            context.create_data_dir()
        async with Store.open(location, clock=time.time) as store:
            with progress(_("importing %(file)s", file=file)):
                report = await importer.import_feeds(store, body, time.time, dry_run=dry_run)
    result = {
        "dry_run": dry_run,
        "new": [
            {"line": row.line, "url": row.url, "title": row.title, "folder": row.folder}
            for row in report.new
        ],
        "known": [{"line": row.line, "url": row.url} for row in report.known],
        "problems": [
            {"line": problem.line, "problem": problem.text} for problem in report.problems
        ],
    }
    print_result(result, lambda: _print_import(report, file, dry_run))


def _print_import(report: "ImportReport", name: str, dry_run: bool) -> None:
    _print_errors(
        [
            _("%(name)s, line %(line)s: %(text)s", name=name, line=problem.line, text=problem.text)
            for problem in report.problems
        ]
    )
    summary = report.summary
    click.echo(_("dry run: %(summary)s", summary=summary) if dry_run else summary)


def _print_errors(lines: list[str]) -> None:
    """Print up to `MAX_LISTED` lines on stderr, without passwords of URLs."""
    for line in lines[:MAX_LISTED]:
        click.echo(redact_password(line), err=True)
    if (more := len(lines) - MAX_LISTED) > 0:
        click.echo(_("and %(more)s more; use --json to list all", more=f"{more:,}"), err=True)


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@with_context
async def export(context: CliContext, file: Path | None) -> None:
    """Export subscriptions as OPML.

    Writes to FILE, or to stdout.

    \b
    Example:
      tidings export feeds.opml
    """
    from tidings.parse.opml import Outline, write_opml

    async with context.open_store() as store:
        outlines = [
            Outline(one.feed.url, one.title, one.feed.state.site_url, one.folder)
            async for one in iter_feeds(store)
        ]
    text = write_opml(outlines, "tidings")
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write_bytes(text)
        click.echo(f"{file}: {feeds_text(len(outlines))}", err=True)


# --- add ------------------------------------------------------------------------------------


@click.command()
@click.argument("url")
@click.option(
    "--choose",
    type=click.IntRange(min=1),
    metavar="N",
    help=_("Number of the feed, if the website has several."),
)
@click.option("--title", default="", help=_("Title to show instead of the feed's title."))
@click.option("--folder", default="", metavar="PATH", help=_("Folder, for example News/Local."))
@json_option
@with_context
async def add(context: CliContext, url: str, choose: int | None, title: str, folder: str) -> None:
    """Subscribe to the feed or website at URL.

    If the website has several feeds, the command lists them. Choose one with --choose N. The
    entries of the feed are stored immediately.

    \b
    Example:
      tidings add https://example.org/feed
      tidings add example.org --choose 2 --folder News
    """
    from tidings.aggregator.importer import add_feed

    context.create_data_dir()
    async with context.open_polling() as aggregator:
        with progress(_("fetching %(url)s", url=redact_password(url))):
            found = await add_feed(aggregator, url, time.time, title=title, folder=folder)
            if found.choices and choose is not None:
                if choose > len(found.choices):
                    raise UsageError(
                        _(
                            "--choose %(choose)s: there are only %(choices)s feeds at %(url)s",
                            choose=choose,
                            choices=len(found.choices),
                            url=url,
                        )
                    )
                found = await add_feed(
                    aggregator, found.choices[choose - 1].url, time.time, title=title, folder=folder
                )
        if found.added is None:
            _print_choices(url, found)
            return
        feed = await aggregator.store.feed(found.added.feed_id)
        entries = len(await aggregator.store.entries(feed_id=found.added.feed_id, limit=1000))
    from tidings.reasons import to_json

    assert feed is not None
    result = {
        "id": feed.id,
        "url": feed.url,
        "title": feed.state.title,
        "new": found.added.subscription_new,
        "entries": entries,
        "next_poll": feed.state.next_poll_at,
        "reason": to_json(feed.state.reason),
    }
    address = redact_password(feed.url)
    values = {
        "title": feed.state.title or address,
        "address": address,
        "id": feed.id,
        "entries": f"{entries:,}",
    }
    print_result(
        result,
        _("subscribed to %(title)s (%(address)s): feed %(id)s, %(entries)s entries", **values)
        if found.added.subscription_new
        else _(
            "already subscribed to %(title)s (%(address)s): feed %(id)s, %(entries)s entries",
            **values,
        ),
    )


def _print_choices(url: str, add_result: "AddResult") -> None:
    """List the feeds of a website, and raise `UsageError` to request a choice."""
    choices = [
        (n, c, c.url in add_result.subscribed) for n, c in enumerate(add_result.choices, start=1)
    ]
    result = [
        {"number": n, "url": c.url, "title": c.title, "followed": subscribed}
        for n, c, subscribed in choices
    ]
    rows = [
        [
            str(n),
            c.title or NO_VALUE,
            redact_password(c.url),
            _("already subscribed") if subscribed else "",
        ]
        for n, c, subscribed in choices
    ]
    print_result(
        {"choices": result}, lambda: print_table([_("N"), _("title"), _("URL"), ""], rows, left=4)
    )
    raise UsageError(
        _(
            "%(url)s has %(choices)s feeds; choose one with --choose N",
            url=url,
            choices=len(choices),
        )
    )


# --- feeds ----------------------------------------------------------------------------------


async def iter_feeds(store: "Store") -> AsyncIterator["FeedSummary"]:
    """Iterate over all feeds, by id, in pages."""
    after = 0
    while page := await store.feeds(after=after, limit=PAGE_SIZE):
        for summary in page:
            yield summary
        after = page[-1].feed.id


@click.command()
@json_option
@with_context
async def feeds(context: CliContext) -> None:
    """List subscribed feeds.

    Shows the number of entries, the last and next poll, and the current error of each feed.

    \b
    Example:
      tidings feeds
      tidings feeds --json | jq -r '.[] | select(.errors > 0) | .url'
    """
    now = time.time()
    async with context.open_store() as store:
        summaries = [summary async for summary in iter_feeds(store)]
    rows = [
        [
            str(one.feed.id),
            one.title,
            redact_password(one.feed.url),
            f"{one.entries:,}",
            ago(one.newest_at, now),
            ago(one.feed.state.last_poll_at, now),
            _("never")
            if one.feed.retired_at is not None
            else ago(one.feed.state.next_poll_at, now),
            one.feed.state.error_kind if one.feed.state.errors else "",
        ]
        for one in summaries
    ]
    headings = [
        _("id"),
        _("title"),
        _("URL"),
        _("entries"),
        _("newest"),
        _("last poll"),
        _("next poll"),
        _("error"),
    ]
    print_result(
        [_feed_json(one) for one in summaries], lambda: print_table(headings, rows, left=3)
    )


def _feed_json(summary: "FeedSummary") -> dict[str, Any]:
    from tidings.reasons import to_json

    feed, state = summary.feed, summary.feed.state
    return {
        "id": feed.id,
        "url": feed.url,
        "title": summary.title,
        "folder": summary.folder,
        "site_url": state.site_url,
        "format": state.format,
        "added": feed.added_at,
        "weight": feed.weight,
        "entries": summary.entries,
        "window": state.window,
        "newest": summary.newest_at,
        "last_poll": state.last_poll_at,
        "last_ok": state.last_ok_at,
        "next_poll": state.next_poll_at,
        "reason": to_json(state.reason),
        "errors": state.errors,
        "error": state.last_error if state.errors else "",
        "retired": feed.retired_at,
        "retired_why": feed.retired_reason,
    }


# --- poll -----------------------------------------------------------------------------------


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL|ID]...")
@click.option(
    "--due", "which", flag_value="due", default="due", help=_("All feeds that are due (default).")
)
@click.option(
    "--all", "which", flag_value="all", help=_("All feeds, except on servers that limit requests.")
)
@json_option
@with_context
async def poll(context: CliContext, urls: tuple[str, ...], which: str) -> None:
    """Poll feeds now.

    Polls the given feeds, all due feeds, or all feeds (--all). This ignores the schedule, but
    respects the limits of servers, such as Retry-After and skipHours. Skipped feeds are reported
    with the reason.

    \b
    Example:
      tidings poll --all
      tidings poll https://example.org/feed
    """

    async with context.open_store() as store:
        feed_ids = [(await find_feed(store, url)).id for url in urls] or None
    async with context.open_polling() as aggregator:
        with progress(_("polling"), total=1) as bar:

            def report_progress(done: int, total: int) -> None:
                bar.set_position(done, total)
                bar.set_text(_("polling") if done < total else _("scheduling the next polls"))

            totals = await aggregator.poll(
                feed_ids, due=not urls and which == "due", progress=report_progress
            )
        skipped = [(await aggregator.store.feed(one.feed_id), one.reason) for one in totals.skipped]
    _print_poll_totals(totals, skipped)
    if urls and totals.failed:
        raise TidingsError(
            _(
                "%(polls)s failed; `tidings explain URL` shows the error",
                polls=n_("%(num)s poll", "%(num)s polls", totals.failed),
            )
        )


def _print_poll_totals(totals: "PollTotals", skipped: list[tuple["Feed | None", "Reason"]]) -> None:
    from tidings.reasons import render, to_json

    rows = [(feed.url if feed else "", reason) for feed, reason in skipped]
    text = _(
        "%(feeds)s checked, %(new)s new entries, %(changed)s changed, %(failed)s "
        "failed, %(rows)s skipped",
        feeds=feeds_text(totals.poll_count),
        new=f"{totals.new:,}",
        changed=f"{totals.changed:,}",
        failed=f"{totals.failed:,}",
        rows=f"{len(rows):,}",
    )
    if not wants_json():
        _print_errors(
            [
                _("skipped %(url)s: %(reason)s", url=url, reason=render(reason))
                for url, reason in rows
            ]
        )
    result = {
        "asked": totals.poll_count,
        "new": totals.new,
        "changed": totals.changed,
        "failed": totals.failed,
        "skipped": [
            {"url": url, "why": render(reason), "reason": to_json(reason)} for url, reason in rows
        ],
    }
    print_result(result, text)
