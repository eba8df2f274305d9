"""Command `tidings entries`: list and search entries."""

import re
import sys
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from tidings.cli.context import CliContext, find_feed, with_context
from tidings.cli.feeds import PAGE_SIZE, iter_feeds
from tidings.cli.output import Duration, json_option, print_json_list, print_table, wants_json
from tidings.formatting import NO_VALUE, ago, duration_short
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.store import Store
    from tidings.store.feed_models import Entry, FeedSummary


class Timestamp(Duration):
    """Point in time, converted to seconds since the epoch.

    Accepts a duration before now (``2h``, ``3d``), an ISO 8601 date or time (``2026-11-16``,
    ``2026-11-16T09:00``; UTC unless it has an offset), or seconds since the epoch.
    """

    name = "when"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        if self.pattern.fullmatch(text):
            return time.time() - super().convert(text, param, ctx)
        if re.fullmatch(r"\d{9,}(\.\d+)?", text):
            return float(text)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            self.fail(
                _(
                    "%(text)r is not a time; write 2h or 3d (ago), 2026-11-16, or 2026-11-16T09:00",
                    text=text,
                )
            )
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@click.command()
@click.option("--feed", metavar="URL|ID", help=_("Only entries of this feed."))
@click.option(
    "--since", type=Timestamp(), help=_("Only entries received since 2h, 3d (ago) or 2026-11-16.")
)
@click.option(
    "--search",
    metavar="WORDS",
    default="",
    help=_("Only entries with all words (-word excludes, word* is a prefix)."),
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    help=_("Maximum number of entries (0 = all)."),
)
@json_option
@with_context
async def entries(
    context: CliContext, feed: str | None, since: float | None, search: str, limit: int
) -> None:
    """List entries, most recently received first.

    \b
    Example:
      tidings entries --since 1d --search 'tide*'
      tidings entries --feed https://example.org/feed --limit 0 --json
    """
    now = time.time()
    async with context.open_store() as store:
        feed_id = None if feed is None else (await find_feed(store, feed)).id
        feeds = {one.feed.id: one async for one in iter_feeds(store)}
        found = _iter_entries(store, feed_id, since, search, limit)
        if wants_json():
            await print_json_list(_entry_json(entry, feeds) async for entry in found)
            return
        rows = [
            [
                str(e.id),
                e.title or e.url,
                feeds[e.feed_id].title if e.feed_id in feeds else "",
                ago(e.published_at, now),
                _format_delay(e),
            ]
            async for e in found
        ]
    print_table([_("id"), _("title"), _("feed"), _("published"), _("received")], rows, left=3)


def _format_delay(entry: "Entry") -> str:
    """Format the time from publication to the first poll that found the entry."""
    return (
        NO_VALUE
        if entry.delay_s is None
        else _("%(delay_s)s later", delay_s=duration_short(entry.delay_s))
    )


async def _iter_entries(
    store: "Store", feed_id: int | None, since: float | None, search: str, limit: int
) -> AsyncIterator["Entry"]:
    """Iterate over the matching entries in pages (keyset pagination)."""
    left, before = limit or sys.maxsize, None
    while left > 0 and (
        page := await store.entries(
            feed_id=feed_id, since=since, search=search, before=before, limit=min(left, PAGE_SIZE)
        )
    ):
        for entry in page:
            yield entry
        left, before = left - len(page), page[-1].id


def _entry_json(entry: "Entry", feeds: dict[int, "FeedSummary"]) -> dict[str, Any]:
    """Return all stored fields of an entry."""
    feed = feeds.get(entry.feed_id)
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
