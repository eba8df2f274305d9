"""`tidings add`, `import` and `poll`: feeds come in, and what they say."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.cli.home import Home, find_feed, with_home
from tidings.cli.output import json_option, print_table, progress, tell, wants_json
from tidings.errors import TidingsError, UsageError
from tidings.formatting import count
from tidings.redaction import redact_password

if TYPE_CHECKING:
    from tidings.aggregator.aggregator import PollTotals
    from tidings.aggregator.importer import AddResult, ImportReport
    from tidings.reasons import Reason
    from tidings.store.feed_models import Feed

#: Bad rows and skipped feeds that are listed; all of them with --json.
MOST_LISTED = 20


@click.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
@with_home
async def import_feeds(home: Home, file: str, dry_run: bool) -> None:
    """Follow the feeds of FILE: OPML, or an address on each line; - is stdin.

    All of them or, if they cannot be stored, none. Duplicates and bad rows are reported with their lines. The service that
    runs on the same data folder, or the next `tidings poll`, asks them.

    \b
    Example:
      tidings import subscriptions.opml --dry-run
    """
    from tempfile import TemporaryDirectory

    from tidings.aggregator import importer
    from tidings.store import Store

    with click.open_file(file, "rb") as opened:
        body = opened.read()
    with TemporaryDirectory() as nowhere:  # a trial leaves no trace, not even an empty store
        place = Path(nowhere) / "tidings.db" if dry_run and not home.has_store else home.place
        _ = home.config  # a wrong option is told by every command
        if place == home.store_path:
            home.make_folder()
        async with Store.open(place, clock=time.time) as store:
            with progress(f"importing {file}"):
                report = await importer.import_feeds(store, body, time.time, dry_run=dry_run)
    found = {
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
    tell(found, lambda: _tell_import(report, file, dry_run))


def _tell_import(report: "ImportReport", name: str, dry_run: bool) -> None:
    _complain([f"{name}, line {problem.line}: {problem.text}" for problem in report.problems])
    click.echo(("would be: " if dry_run else "") + report.summary)


def _complain(lines: list[str]) -> None:
    """Beside the result; not endlessly."""
    for line in lines[:MOST_LISTED]:
        click.echo(redact_password(line), err=True)
    if (more := len(lines) - MOST_LISTED) > 0:
        click.echo(f"and {more:,} more; all of them with --json", err=True)


@click.command()
@click.argument("url")
@click.option(
    "--choose",
    type=click.IntRange(min=1),
    metavar="N",
    help="Which, where a site has several feeds.",
)
@click.option("--title", default="", help="A name of your own for it.")
@click.option("--folder", default="", metavar="PATH", help="Where it belongs: News/Local.")
@json_option
@with_home
async def add(home: Home, url: str, choose: int | None, title: str, folder: str) -> None:
    """Follow the feed at URL, or the feed of the site at URL.

    A site that has several feeds has them listed, and --choose N takes one. What the feed says is stored at once.

    \b
    Example:
      tidings add https://example.org/feed
      tidings add example.org --choose 2 --folder News
    """
    from tidings.aggregator.importer import add_feed

    home.make_folder()
    async with home.open_polling() as aggregator:
        with progress(f"looking at {redact_password(url)}"):
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
            _offer(url, found)
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
    what = "added" if found.added.subscription_new else "is followed already:"
    address = redact_password(feed.url)
    tell(
        result,
        f"{what} {feed.state.title or address} ({address}): feed {feed.id}, {entries:,} entries",
    )


def _offer(url: str, add_result: "AddResult") -> None:
    """Several feeds to choose from."""
    offered = [
        (n, c, c.url in add_result.subscribed) for n, c in enumerate(add_result.choices, start=1)
    ]
    found = [
        {"number": n, "url": c.url, "title": c.title, "followed": followed}
        for n, c, followed in offered
    ]
    rows = [
        [str(n), c.title or "–", redact_password(c.url), "followed already" if followed else ""]
        for n, c, followed in offered
    ]
    tell({"choices": found}, lambda: print_table(["N", "title", "address", ""], rows, left=4))
    raise UsageError(f"{url} has {len(offered)} feeds; say which with --choose N")


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL|ID]...")
@click.option(
    "--due",
    "which",
    flag_value="due",
    default="due",
    help="Those whose time has come (the default).",
)
@click.option(
    "--all", "which", flag_value="all", help="Every feed, save where a server told us to wait."
)
@json_option
@with_home
async def poll(home: Home, urls: tuple[str, ...], which: str) -> None:
    """Poll feeds now: these, those that are due, or --all.

    Our own timing gives way; the servers' wishes never do. Retry-After, freshness, skipHours, 410 and paused hosts hold, and
    what was skipped is told with its reason.

    \b
    Example:
      tidings poll --all
      tidings poll https://example.org/feed
    """

    async with home.open_store() as store:
        feed_ids = [(await find_feed(store, url)).id for url in urls] or None
    async with home.open_polling() as aggregator:
        with progress("polling", total=1) as bar:

            def reached(done: int, of: int) -> None:
                bar.reached(done, of)
                bar.say("polling" if done < of else "deciding when to look next")

            polled = await aggregator.poll(
                feed_ids, due=not urls and which == "due", progress=reached
            )
        skipped = [(await aggregator.store.feed(one.feed_id), one.reason) for one in polled.skipped]
    _tell_poll(polled, skipped)
    if urls and polled.failed:
        raise TidingsError(f"{count(polled.failed, 'poll')} failed; `tidings explain URL` says why")


def _tell_poll(polled: "PollTotals", skipped: list[tuple["Feed | None", "Reason"]]) -> None:
    from tidings.reasons import render, to_json

    rows = [(feed.url if feed else "", why) for feed, why in skipped]
    words = (
        f"{count(polled.poll_count, 'feed')} asked, {polled.new:,} new entries, {polled.changed:,} changed, "
        f"{polled.failed:,} failed, {len(rows):,} skipped"
    )
    if not wants_json():
        _complain([f"skipped {url}: {render(why)}" for url, why in rows])
    numbers = {
        "asked": polled.poll_count,
        "new": polled.new,
        "changed": polled.changed,
        "failed": polled.failed,
    }
    tell(
        {
            **numbers,
            "skipped": [
                {"url": url, "why": render(why), "reason": to_json(why)} for url, why in rows
            ],
        },
        words,
    )
