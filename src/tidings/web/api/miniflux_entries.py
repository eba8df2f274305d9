"""Handlers of the Miniflux API for entries, with filters and pagination."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import UNSET

from tidings.errors import UsageError
from tidings.store.user_models import Item, Stream, Subscription
from tidings.web.api import miniflux_models as models
from tidings.web.api.miniflux_options import save_options
from tidings.web.api.rest import Call, not_found

#: Largest id in the store. Larger ids in a request are clamped, since databases reject them.
MAX_ID = 2**31 - 1
#: Category of feeds without folder, since every feed of Miniflux has a category. The id fits into
#: 31 bits, as newsboat requires.
ROOT_CATEGORY_ID = MAX_ID
ROOT_CATEGORY_TITLE = "All"
#: Maximum number of entries and of ids in one response.
MAX_ENTRIES, MAX_IDS = 1000, 10_000
#: Maximum number of enclosures of an entry. The id of an enclosure is entry id * 100 + position.
MAX_ENCLOSURES = 100
#: Go's zero time, which Miniflux returns for "never".
ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
#: Miniflux's default reading speed, in words per minute.
READING_SPEED = 265


def to_datetime(at: float | None) -> datetime:
    return ZERO_TIME if at is None else datetime.fromtimestamp(at, UTC)


def category(
    user_id: int, folder_id: int | None, name: str, miniflux_options: Mapping[str, Any]
) -> models.Category:
    category_id = folder_id or ROOT_CATEGORY_ID
    options = miniflux_options.get("categories", {}).get(str(category_id), {})
    hidden = bool(options.get("hide_globally"))
    return models.Category(
        id=category_id, title=name or ROOT_CATEGORY_TITLE, user_id=user_id, hide_globally=hidden
    )


def feed(user_id: int, s: Subscription, miniflux_options: Mapping[str, Any]) -> models.Feed:
    state = s.feed.state
    return models.Feed(
        id=s.feed.id,
        user_id=user_id,
        feed_url=s.feed.url,
        site_url=state.site_url,
        title=s.title,
        checked_at=to_datetime(state.last_poll_at),
        next_check_at=to_datetime(state.next_poll_at),
        etag_header=state.etag,
        last_modified_header=state.last_modified,
        parsing_error_message=state.last_error if state.errors else "",
        parsing_error_count=state.errors,
        crawler=s.full_text,
        category=category(user_id, s.folder_id, s.folder, miniflux_options),
        icon=models.FeedIcon(s.feed.id, s.feed.id if s.has_icon else 0),
        priority=s.priority,
        min_interval_s=s.min_interval_s,
        **miniflux_options.get("feeds", {}).get(str(s.feed.id), {}),
    )


def reading_time(html: str) -> int:
    """Return the estimated reading time of HTML in minutes."""
    return math.ceil(len(re.sub(r"<[^>]*>", " ", html).split()) / READING_SPEED)


def enclosures(
    item: Item, user_id: int, miniflux_options: Mapping[str, Any]
) -> list[models.Enclosure]:
    progress = miniflux_options.get("enclosures", {})
    enclosure_models = []
    for position, enclosure in enumerate(item.entry.enclosures[:MAX_ENCLOSURES]):
        enclosure_id = item.entry.id * MAX_ENCLOSURES + position
        enclosure_models.append(
            models.Enclosure(
                id=enclosure_id,
                user_id=user_id,
                entry_id=item.entry.id,
                url=enclosure.url,
                mime_type=enclosure.type,
                size=enclosure.length or 0,
                media_progression=progress.get(str(enclosure_id), {}).get("media_progression", 0),
            )
        )
    return enclosure_models


def entry(
    item: Item, user_id: int, feeds: Mapping[int, models.Feed], miniflux_options: Mapping[str, Any]
) -> models.Entry:
    entry = item.entry
    html = entry.content or entry.summary
    return models.Entry(
        id=entry.id,
        user_id=user_id,
        feed_id=entry.feed_id,
        status="unread" if item.unread else "read",
        hash=sha256(entry.identity.encode("utf-8", "replace")).hexdigest(),
        title=entry.title or entry.url,
        url=entry.url,
        comments_url=entry.comments_url,
        published_at=to_datetime(entry.published_at),
        created_at=to_datetime(entry.first_seen_at),
        changed_at=to_datetime(
            max(
                filter(None, (entry.first_seen_at, entry.changed_at, item.read_at, item.starred_at))
            )
        ),
        content=html,
        author=entry.author,
        starred=item.starred,
        reading_time=reading_time(html),
        enclosures=enclosures(item, user_id, miniflux_options),
        feed=feeds.get(entry.feed_id, UNSET),
        tags=list(entry.tags),
        rating=item.rating,
        own_tags=list(item.tags),
    )


async def entries(call: Call, items: Sequence[Item]) -> list[models.Entry]:
    """Return items as Miniflux entries with their feeds."""
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    subscriptions = await call.reader_service.subscriptions({item.entry.feed_id for item in items})
    feeds = {s.feed.id: feed(call.user.id, s, miniflux_options) for s in subscriptions}
    return [entry(item, call.user.id, feeds, miniflux_options) for item in items]


async def build_stream(
    call: Call, params: models.EntriesQuery, *, feed_id: int = 0, category_id: int = 0
) -> Stream:
    """Return the stream that the path and query of a request describe.

    Raises `UsageError` for a feed or category that does not exist.
    """
    feed_id, category_id = params.feed_id or feed_id, params.category_id or category_id
    conditions: dict[str, Any] = {}
    if feed_id and not await call.reader_service.subscriptions([min(feed_id, MAX_ID)]):
        raise UsageError("invalid feed ID")
    if category_id:
        if category_id != ROOT_CATEGORY_ID and category_id not in {
            folder.id for folder in await call.reader_service.folders()
        }:
            raise UsageError("invalid category ID")
        conditions["folders"] = (0 if category_id == ROOT_CATEGORY_ID else category_id,)
    if params.globally_visible and parse_bool(params.globally_visible) is not False:
        settings = await call.site.user_service.settings(call.user)
        conditions |= hidden_sources(settings.miniflux_options)
    after, before = (
        max(params.after, params.published_after),
        min_nonzero(params.before, params.published_before),
    )
    return Stream(
        **conditions,
        feeds=(feed_id,) if feed_id else (),
        unread=None if len(set(params.status)) != 1 else params.status[0] == "unread",
        starred=parse_bool(params.starred),
        tags=tuple(params.tags),
        search=params.search,
        published_from=math.nextafter(after, math.inf) if after else None,
        published_until=before or None,
        seen_from=math.nextafter(params.changed_after, math.inf) if params.changed_after else None,
        seen_until=params.changed_before or None,
        above_id=min(params.after_entry_id, MAX_ID) or None,
        below_id=min(params.before_entry_id, MAX_ID) or None,
        by="publication" if params.order == "published_at" else "arrival",
        oldest_first=params.direction == "asc",
    )


def hidden_sources(miniflux_options: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return stream conditions that exclude feeds and categories with `hide_globally`."""
    feeds = [
        int(i)
        for i, options in miniflux_options.get("feeds", {}).items()
        if options.get("hide_globally")
    ]
    categories = [
        int(i)
        for i, options in miniflux_options.get("categories", {}).items()
        if options.get("hide_globally")
    ]
    return {
        "not_feeds": tuple(feeds),
        "not_folders": tuple(0 if i == ROOT_CATEGORY_ID else i for i in categories),
    }


def min_nonzero(*times: int) -> int:
    return min(filter(None, times), default=0)


def parse_bool(text: str) -> bool | None:
    """Return a boolean from its spelling in Go or Python, or None for another text."""
    return {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}.get(
        text.lower()
    )


async def page(call: Call, params: models.EntriesQuery, **source: int) -> models.Entries:
    """Return one page of entries with offset pagination.

    The store has only keyset pagination, so all ids up to the end of the page are read, which is
    cheap, and those before the offset are dropped.
    """
    stream = await build_stream(call, params, **source)
    limit = min(params.limit or MAX_ENTRIES, MAX_ENTRIES)
    ids = (await call.reader_service.ids(stream, limit=min(params.offset + limit, MAX_ID))).ids[
        params.offset :
    ]
    entry_list = await entries(call, await call.reader_service.items(ids))
    key = SORT_KEYS.get(params.order)
    if key is not None:
        entry_list.sort(key=key, reverse=params.direction == "desc")
    return models.Entries(await call.reader_service.count(stream), entry_list)


#: Sort keys of orders without an index. They apply only within one page.
SORT_KEYS: dict[str, Any] = {
    "status": lambda entry: entry.status,
    "changed_at": lambda entry: entry.changed_at,
    "title": lambda entry: entry.title.casefold(),
    "author": lambda entry: entry.author.casefold(),
    "category_title": lambda entry: entry.feed.category.title.casefold() if entry.feed else "",
    "category_id": lambda entry: entry.feed.category.id if entry.feed else 0,
}


# --- operations -----------------------------------------------------------------------------------


async def get_entries(call: Call) -> models.Entries:
    return await page(call, call.query)


async def get_feed_entries(call: Call) -> models.Entries:
    return await page(call, call.query, feed_id=call.ids["feed_id"])


async def get_category_entries(call: Call) -> models.Entries:
    return await page(call, call.query, category_id=call.ids["category_id"])


async def get_entry(call: Call) -> models.Entry:
    """Return the entry with the id in the path.

    If the path also has a feed or category, the entry must belong to it.
    """
    (entry,) = await entries(call, [await call.reader_service.item(call.ids["entry_id"])])
    if call.ids.get("feed_id", entry.feed_id) != entry.feed_id:
        raise not_found("entry")
    if "category_id" in call.ids and (
        entry.feed is UNSET or entry.feed.category.id != call.ids["category_id"]
    ):
        raise not_found("entry")
    return entry


async def get_entry_ids(call: Call) -> models.EntryIds:
    params: models.IdsQuery = call.query
    stream = Stream(
        unread=None if params.status is None else params.status == "unread",
        starred=None if params.starred is None else params.starred == "true",
    )
    limit = min(params.limit or MAX_IDS, MAX_IDS)
    ids = (await call.reader_service.ids(stream, limit=min(params.offset + limit, MAX_ID))).ids[
        params.offset :
    ]
    return models.EntryIds(await call.reader_service.count(stream), list(ids))


async def mark_entries(call: Call) -> None:
    params: models.EntriesUpdate = call.body
    if (
        not params.status
        and (params.starred, params.rating) == (None, None)
        and not params.add_tags
        and not params.remove_tags
    ):
        raise UsageError("either the status or the starred field must be specified")
    await call.reader_service.mark(
        params.entry_ids,
        unread=params.status == "unread" if params.status else None,
        starred=params.starred,
        rating=params.rating,
        add_tags=params.add_tags,
        remove_tags=params.remove_tags,
    )


async def change_entry(call: Call) -> models.Entry:
    if "" in (call.body.title, call.body.content):
        raise UsageError("the title and the content must not be empty")
    await call.reader_service.override_text(
        call.ids["entry_id"], title=call.body.title, content=call.body.content
    )
    return await get_entry(call)


async def toggle_star(call: Call) -> None:
    item = await call.reader_service.item(call.ids["entry_id"])
    await call.reader_service.mark([item.entry.id], starred=not item.starred)


async def save_entry(call: Call) -> None:
    await call.reader_service.send_to_webhook(call.ids["entry_id"])


async def fetch_content(call: Call) -> models.Content:
    html = await call.reader_service.full_text(call.ids["entry_id"])
    return models.Content(html, reading_time(html))


async def flush_history(call: Call) -> None:
    await call.reader_service.flush_history()


async def get_enclosure(call: Call) -> models.Enclosure:
    entry_id, position = divmod(call.ids["enclosure_id"], MAX_ENCLOSURES)
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    entry_enclosures = enclosures(
        await call.reader_service.item(entry_id), call.user.id, miniflux_options
    )
    if position >= len(entry_enclosures):
        raise not_found("enclosure")
    return entry_enclosures[position]


async def set_progress(call: Call) -> None:
    enclosure = await get_enclosure(call)
    await save_options(
        call, "enclosures", str(enclosure.id), {"media_progression": call.body.media_progression}
    )
