"""Entries in Miniflux's words: which are asked for, and how they are told."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import UNSET

from tidings.errors import UsageError
from tidings.store.user_models import Item, Stream, Subscription
from tidings.web.api import miniflux_models as values
from tidings.web.api.miniflux_options import save_options
from tidings.web.api.rest import Call, not_found

#: The feeds that are in no folder are a category too: Miniflux knows no feed without one. Fits 31 bits, as newsboat needs.
ROOT_CATEGORY_ID = 2**31 - 1
ROOT_CATEGORY_TITLE = "All"
#: Entries and ids in one answer.
MAX_ENTRIES, MAX_IDS = 1000, 10_000
#: An enclosure's id is its entry's, with its place in two more digits.
MAX_ENCLOSURES = 100
ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
#: How fast people read, in words a minute.
READING_SPEED = 265


def to_datetime(at: float | None) -> datetime:
    return ZERO_TIME if at is None else datetime.fromtimestamp(at, UTC)


def category(
    user_id: int, folder_id: int | None, name: str, miniflux_options: Mapping[str, Any]
) -> values.Category:
    number = folder_id or ROOT_CATEGORY_ID
    hidden = bool(miniflux_options.get("categories", {}).get(str(number), {}).get("hide_globally"))
    return values.Category(
        id=number, title=name or ROOT_CATEGORY_TITLE, user_id=user_id, hide_globally=hidden
    )


def feed(user_id: int, s: Subscription, miniflux_options: Mapping[str, Any]) -> values.Feed:
    state = s.feed.state
    return values.Feed(
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
        icon=values.FeedIcon(s.feed.id, s.feed.id if s.has_icon else 0),
        priority=s.priority,
        min_interval_s=s.min_interval_s,
        **miniflux_options.get("feeds", {}).get(str(s.feed.id), {}),
    )


def reading_time(html: str) -> int:
    return math.ceil(len(re.sub(r"<[^>]*>", " ", html).split()) / READING_SPEED)


def enclosures(
    item: Item, user_id: int, miniflux_options: Mapping[str, Any]
) -> list[values.Enclosure]:
    progress = miniflux_options.get("enclosures", {})
    found = []
    for place, enclosure in enumerate(item.entry.enclosures[:MAX_ENCLOSURES]):
        number = item.entry.id * MAX_ENCLOSURES + place
        found.append(
            values.Enclosure(
                id=number,
                user_id=user_id,
                entry_id=item.entry.id,
                url=enclosure.url,
                mime_type=enclosure.type,
                size=enclosure.length or 0,
                media_progression=progress.get(str(number), {}).get("media_progression", 0),
            )
        )
    return found


def entry(
    item: Item, user_id: int, feeds: Mapping[int, values.Feed], miniflux_options: Mapping[str, Any]
) -> values.Entry:
    entry = item.entry
    html = entry.content or entry.summary
    return values.Entry(
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


async def entries(call: Call, items: Sequence[Item]) -> list[values.Entry]:
    """With the feeds that they are from."""
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    subscriptions = await call.reader_service.subscriptions({item.entry.feed_id for item in items})
    feeds = {s.feed.id: feed(call.user.id, s, miniflux_options) for s in subscriptions}
    return [entry(item, call.user.id, feeds, miniflux_options) for item in items]


async def stream(
    call: Call, params: values.EntriesQuery, *, feed_id: int = 0, category_id: int = 0
) -> Stream:
    """What is asked for, from the address and the query. The feed or category has to be there."""
    feed_id, category_id = params.feed_id or feed_id, params.category_id or category_id
    conditions: dict[str, Any] = {}
    if feed_id and not await call.reader_service.subscriptions([min(feed_id, ROOT_CATEGORY_ID)]):
        raise UsageError("invalid feed ID")
    if category_id:
        if category_id != ROOT_CATEGORY_ID and category_id not in {
            folder.id for folder in await call.reader_service.folders()
        }:
            raise UsageError("invalid category ID")
        conditions["folders"] = (0 if category_id == ROOT_CATEGORY_ID else category_id,)
    if params.globally_visible and parse_bool(params.globally_visible) is not False:
        conditions |= hidden((await call.site.user_service.settings(call.user)).miniflux_options)
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
        above_id=min(params.after_entry_id, ROOT_CATEGORY_ID) or None,
        below_id=min(params.before_entry_id, ROOT_CATEGORY_ID) or None,
        by="publication" if params.order == "published_at" else "arrival",
        oldest_first=params.direction == "asc",
    )


def hidden(miniflux_options: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What is not to be among all others."""
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
    """As Go reads it, and Python writes it."""
    return {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}.get(
        text.lower()
    )


async def page(call: Call, params: values.EntriesQuery, **place: int) -> values.Entries:
    """Offsets are Miniflux's, not ours: the ids before are walked over, which is cheap, and then left out."""
    wanted = await stream(call, params, **place)
    limit = min(params.limit or MAX_ENTRIES, MAX_ENTRIES)
    ids = (
        await call.reader_service.ids(wanted, limit=min(params.offset + limit, ROOT_CATEGORY_ID))
    ).ids[params.offset :]
    entry = await entries(call, await call.reader_service.items(ids))
    key = SORT_KEYS.get(params.order)
    if key is not None:
        entry.sort(key=key, reverse=params.direction == "desc")
    return values.Entries(await call.reader_service.count(wanted), entry)


#: Orders that no index has: within one answer.
SORT_KEYS: dict[str, Any] = {
    "status": lambda entry: entry.status,
    "changed_at": lambda entry: entry.changed_at,
    "title": lambda entry: entry.title.casefold(),
    "author": lambda entry: entry.author.casefold(),
    "category_title": lambda entry: entry.feed.category.title.casefold() if entry.feed else "",
    "category_id": lambda entry: entry.feed.category.id if entry.feed else 0,
}


# --- operations --------------------------------------------------------------------------------------------------------


async def get_entries(call: Call) -> values.Entries:
    return await page(call, call.query)


async def get_feed_entries(call: Call) -> values.Entries:
    return await page(call, call.query, feed_id=call.ids["feed_id"])


async def get_category_entries(call: Call) -> values.Entries:
    return await page(call, call.query, category_id=call.ids["category_id"])


async def get_entry(call: Call) -> values.Entry:
    """By its id, and where the address says so only in this feed or category."""
    (entry,) = await entries(call, [await call.reader_service.item(call.ids["entry_id"])])
    if call.ids.get("feed_id", entry.feed_id) != entry.feed_id:
        raise not_found("entry")
    if "category_id" in call.ids and (
        entry.feed is UNSET or entry.feed.category.id != call.ids["category_id"]
    ):
        raise not_found("entry")
    return entry


async def get_entry_ids(call: Call) -> values.EntryIds:
    params: values.IdsQuery = call.query
    wanted = Stream(
        unread=None if params.status is None else params.status == "unread",
        starred=None if params.starred is None else params.starred == "true",
    )
    limit = min(params.limit or MAX_IDS, MAX_IDS)
    ids = (
        await call.reader_service.ids(wanted, limit=min(params.offset + limit, ROOT_CATEGORY_ID))
    ).ids[params.offset :]
    return values.EntryIds(await call.reader_service.count(wanted), list(ids))


async def mark_entries(call: Call) -> None:
    params: values.EntriesUpdate = call.body
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


async def change_entry(call: Call) -> values.Entry:
    if "" in (call.body.title, call.body.content):
        raise UsageError("neither the title nor the content of an entry can be empty")
    await call.reader_service.override_text(
        call.ids["entry_id"], title=call.body.title, content=call.body.content
    )
    return await get_entry(call)


async def toggle_star(call: Call) -> None:
    item = await call.reader_service.item(call.ids["entry_id"])
    await call.reader_service.mark([item.entry.id], starred=not item.starred)


async def save_entry(call: Call) -> None:
    await call.reader_service.send(call.ids["entry_id"])


async def fetch_content(call: Call) -> values.Content:
    html = await call.reader_service.full_text(call.ids["entry_id"])
    return values.Content(html, reading_time(html))


async def flush_history(call: Call) -> None:
    await call.reader_service.flush_history()


async def get_enclosure(call: Call) -> values.Enclosure:
    entry_id, place = divmod(call.ids["enclosure_id"], MAX_ENCLOSURES)
    miniflux_options = (await call.site.user_service.settings(call.user)).miniflux_options
    found = enclosures(await call.reader_service.item(entry_id), call.user.id, miniflux_options)
    if place >= len(found):
        raise not_found("enclosure")
    return found[place]


async def set_progress(call: Call) -> None:
    enclosure = await get_enclosure(call)
    await save_options(
        call, "enclosures", str(enclosure.id), {"media_progression": call.body.media_progression}
    )
