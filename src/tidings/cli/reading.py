"""`tidings feeds`, `entries` and `export`: what there is, for people and for programs."""

import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.home import Home, find_feed, with_home
from tidings.cli.output import Span, json_option, print_json_list, print_table, tell, wants_json
from tidings.formatting import NO_VALUE, ago, duration_short
from tidings.redaction import redact_password

if TYPE_CHECKING:
    from tidings.store import Store
    from tidings.store.feed_models import Entry, FeedSummary

#: Rows asked of the store at once: memory stays small however much is listed.
PAGE = 1000


class Moment(Span):
    """``2h``, ``3d`` (ago), ``2026-11-16``, ``2026-11-16T09:00`` (UTC unless it says otherwise), or seconds since the epoch."""

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        import time
        from datetime import UTC, datetime

        text = str(value).strip()
        if self.form.fullmatch(text):
            return time.time() - super().convert(text, param, ctx)
        if re.fullmatch(r"\d{9,}(\.\d+)?", text):
            return float(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                f"{text!r} is not a time; write 2h or 3d (ago), 2026-11-16, or 2026-11-16T09:00"
            )
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


async def all_feeds(store: "Store") -> AsyncIterator["FeedSummary"]:
    after = 0
    while page := await store.feeds(after=after, limit=PAGE):
        for listed in page:
            yield listed
        after = page[-1].feed.id


@click.command()
@json_option
@with_home
async def feeds(home: Home) -> None:
    """The feeds that are followed, with their last and next polls.

    \b
    Example:
      tidings feeds
      tidings feeds --json | jq -r '.[] | select(.errors > 0) | .url'
    """
    import time

    now = time.time()
    async with home.open_store() as store:
        listed = [feed async for feed in all_feeds(store)]
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
        for one in listed
    ]
    heads = ["id", "title", "address", "entries", "newest", "asked", "next", "error"]
    tell([_feed(one) for one in listed], lambda: print_table(heads, rows, left=3))


def _feed(one: "FeedSummary") -> dict[str, Any]:
    from tidings.reasons import to_json

    feed, state = one.feed, one.feed.state
    return {
        "id": feed.id,
        "url": feed.url,
        "title": one.title,
        "folder": one.folder,
        "site_url": state.site_url,
        "format": state.format,
        "added": feed.added_at,
        "weight": feed.weight,
        "entries": one.entries,
        "window": state.window,
        "newest": one.newest_at,
        "last_poll": state.last_poll_at,
        "last_ok": state.last_ok_at,
        "next_poll": state.next_poll_at,
        "reason": to_json(state.reason),
        "errors": state.errors,
        "error": state.last_error if state.errors else "",
        "retired": feed.retired_at,
        "retired_why": feed.retired_reason,
    }


@click.command()
@click.option("--feed", metavar="URL|ID", help="Of this feed alone.")
@click.option("--since", type=Moment(), help="That arrived since: 2h, 3d, 2026-11-16.")
@click.option(
    "--search",
    metavar="WORDS",
    default="",
    help="That hold all the words; -word: without; word*: beginning with.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help="So many at most; 0 for all.",
)
@json_option
@with_home
async def entries(
    home: Home, feed: str | None, since: float | None, search: str, limit: int
) -> None:
    """Entries, the last to arrive first.

    \b
    Example:
      tidings entries --since 1d --search 'tide*'
      tidings entries --feed https://example.org/feed --limit 0 --json
    """
    import time

    now = time.time()
    async with home.open_store() as store:
        feed_id = None if feed is None else (await find_feed(store, feed)).id
        names = {one.feed.id: one async for one in all_feeds(store)}
        found = _entries(store, feed_id, since, search, limit)
        if wants_json():
            await print_json_list(_entry(entry, names) async for entry in found)
            return
        rows = [
            [
                str(e.id),
                e.title or e.url,
                names[e.feed_id].title if e.feed_id in names else "",
                ago(e.published_at, now),
                late(e),
            ]
            async for e in found
        ]
    print_table(["id", "title", "feed", "published", "arrived"], rows, left=3)


def late(entry: "Entry") -> str:
    """How long after its publication we had it."""
    return NO_VALUE if entry.delay_s is None else f"{duration_short(entry.delay_s)} later"


async def _entries(
    store: "Store", feed_id: int | None, since: float | None, search: str, limit: int
) -> AsyncIterator["Entry"]:
    left, before = limit or sys.maxsize, None
    while left > 0 and (
        page := await store.entries(
            feed_id=feed_id, since=since, search=search, before=before, limit=min(left, PAGE)
        )
    ):
        for entry in page:
            yield entry
        left, before = left - len(page), page[-1].id


def _entry(entry: "Entry", names: dict[int, "FeedSummary"]) -> dict[str, Any]:
    """Every field that is kept."""
    feed = names.get(entry.feed_id)
    return {
        "id": entry.id,
        "feed": entry.feed_id,
        "feed_url": feed.feed.url if feed else "",
        "feed_title": feed.title if feed else "",
        "identity": entry.identity,
        "url": entry.url,
        "title": entry.title,
        "author": entry.author,
        "content": entry.content,
        "summary": entry.summary,
        "published": entry.published_at,
        "published_told": entry.declared_published_at,
        "updated": entry.updated_at,
        "first_seen": entry.first_seen_at,
        "changed": entry.changed_at,
        "delay_s": entry.delay_s,
        "tags": entry.tags,
        "enclosures": [
            {"url": e.url, "type": e.type, "length": e.length} for e in entry.enclosures
        ],
        "comments_url": entry.comments_url,
        "source": entry.source,
    }


@click.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@with_home
async def export(home: Home, file: Path | None) -> None:
    """Write the feeds as OPML, which every reader imports, to FILE or to stdout.

    \b
    Example:
      tidings export feeds.opml
    """
    from tidings.parse.opml import Outline, write_opml

    async with home.open_store() as store:
        outlines = [
            Outline(one.feed.url, one.title, one.feed.state.site_url, one.folder)
            async for one in all_feeds(store)
        ]
    text = write_opml(outlines, "tidings")
    if file is None:
        click.echo(text, nl=False)
    else:
        file.write_bytes(text)
        click.echo(f"{file}: {len(outlines)} feeds", err=True)
