"""Commands for subscriptions: `tidings add`, `import`, `export`, `feeds` and `poll`."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.context import CliContext, find_feed, with_context
from tidings.cli.output import json_option, print_result, print_table, progress, wants_json
from tidings.errors import TidingsError, UsageError
from tidings.formatting import NO_VALUE, ago, count
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
@click.option("--dry-run", is_flag=True, help="Report only, without changes.")
@json_option
@with_context
async def import_feeds(context: CliContext, file: str, dry_run: bool) -> None:
    """Import subscriptions from FILE.

    FILE is OPML, or a text file with one URL per line; - is stdin. An import is atomic. Duplicates
    and invalid rows are reported with their line numbers. New feeds are polled by the running
    service or by the next `tidings poll`.

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
        _ = context.config  # report an invalid option, although the import does not need it
        if location == context.store_path:
            context.create_data_dir()
        async with Store.open(location, clock=time.time) as store:
            with progress(f"importing {file}"):
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
    _print_errors([f"{name}, line {problem.line}: {problem.text}" for problem in report.problems])
    click.echo(("dry run: " if dry_run else "") + report.summary)


def _print_errors(lines: list[str]) -> None:
    """Print up to `MAX_LISTED` lines on stderr, without passwords of URLs."""
    for line in lines[:MAX_LISTED]:
        click.echo(redact_password(line), err=True)
    if (more := len(lines) - MAX_LISTED) > 0:
        click.echo(f"and {more:,} more; --json lists all", err=True)


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
        click.echo(f"{file}: {count(len(outlines), 'feed')}", err=True)


# --- add ------------------------------------------------------------------------------------


@click.command()
@click.argument("url")
@click.option(
    "--choose",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the feed, if the website has several.",
)
@click.option("--title", default="", help="Title to show instead of the feed's title.")
@click.option("--folder", default="", metavar="PATH", help="Folder, for example News/Local.")
@json_option
@with_context
async def add(context: CliContext, url: str, choose: int | None, title: str, folder: str) -> None:
    """Subscribe to the feed or website at URL.

    If the website has several feeds, they are listed, and --choose N selects one. The entries of
    the feed are stored immediately.

    \b
    Example:
      tidings add https://example.org/feed
      tidings add example.org --choose 2 --folder News
    """
    from tidings.aggregator.importer import add_feed

    context.create_data_dir()
    async with context.open_polling() as aggregator:
        with progress(f"fetching {redact_password(url)}"):
            found = await add_feed(aggregator, url, time.time, title=title, folder=folder)
            if found.choices and choose is not None:
                if choose > len(found.choices):
                    raise UsageError(
                        f"--choose {choose}: there are only {len(found.choices)} feeds at {url}"
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
    action = "subscribed to" if found.added.subscription_new else "already subscribed to"
    address = redact_password(feed.url)
    title = feed.state.title or address
    print_result(result, f"{action} {title} ({address}): feed {feed.id}, {entries:,} entries")


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
            "already subscribed" if subscribed else "",
        ]
        for n, c, subscribed in choices
    ]
    print_result({"choices": result}, lambda: print_table(["N", "title", "URL", ""], rows, left=4))
    raise UsageError(f"{url} has {len(choices)} feeds; select one with --choose N")


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
            "retired" if one.feed.retired_at is not None else ago(one.feed.state.next_poll_at, now),
            one.feed.state.error_kind if one.feed.state.errors else "",
        ]
        for one in summaries
    ]
    headings = ["id", "title", "URL", "entries", "newest", "checked", "next", "error"]
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
    "--due", "which", flag_value="due", default="due", help="Feeds that are due (the default)."
)
@click.option(
    "--all", "which", flag_value="all", help="All feeds, except where a server limits requests."
)
@json_option
@with_context
async def poll(context: CliContext, urls: tuple[str, ...], which: str) -> None:
    """Poll feeds now.

    Polls the given feeds, the due feeds, or --all. The schedule is ignored, but the limits of
    servers are not: Retry-After, HTTP freshness, skipHours, 410 and paused hosts. Skipped feeds are
    reported with the reason.

    \b
    Example:
      tidings poll --all
      tidings poll https://example.org/feed
    """

    async with context.open_store() as store:
        feed_ids = [(await find_feed(store, url)).id for url in urls] or None
    async with context.open_polling() as aggregator:
        with progress("polling", total=1) as bar:

            def report_progress(done: int, total: int) -> None:
                bar.set_position(done, total)
                bar.set_text("polling" if done < total else "scheduling the next polls")

            totals = await aggregator.poll(
                feed_ids, due=not urls and which == "due", progress=report_progress
            )
        skipped = [(await aggregator.store.feed(one.feed_id), one.reason) for one in totals.skipped]
    _print_poll_totals(totals, skipped)
    if urls and totals.failed:
        raise TidingsError(
            f"{count(totals.failed, 'poll')} failed; `tidings explain URL` shows the error"
        )


def _print_poll_totals(totals: "PollTotals", skipped: list[tuple["Feed | None", "Reason"]]) -> None:
    from tidings.reasons import render, to_json

    rows = [(feed.url if feed else "", reason) for feed, reason in skipped]
    text = (
        f"{count(totals.poll_count, 'feed')} checked, {totals.new:,} new entries, "
        f"{totals.changed:,} changed, {totals.failed:,} failed, {len(rows):,} skipped"
    )
    if not wants_json():
        _print_errors([f"skipped {url}: {render(reason)}" for url, reason in rows])
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
