"""Entries in Miniflux's words: which are asked for, and how they are told."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import UNSET

from tidings.errors import UsageError
from tidings.store.people_rows import Item, Stream, Subscription
from tidings.web.api import miniflux_values as values
from tidings.web.api.miniflux_kept import keep
from tidings.web.api.rest import Call, not_found

#: The feeds that are in no folder are a category too: Miniflux knows no feed without one. Fits 31 bits, as newsboat needs.
TOP = 2**31 - 1
TOP_TITLE = "All"
#: Entries and ids in one answer.
MOST, MOST_IDS = 1000, 10_000
#: An enclosure's id is its entry's, with its place in two more digits.
PLACES = 100
NEVER = datetime(1, 1, 1, tzinfo=UTC)
#: How fast people read, in words a minute.
READING_SPEED = 265


def moment(at: float | None) -> datetime:
    return NEVER if at is None else datetime.fromtimestamp(at, UTC)


def category(user_id: int, folder_id: int | None, name: str, kept: Mapping[str, Any]) -> values.Category:
    number = folder_id or TOP
    hidden = bool(kept.get("categories", {}).get(str(number), {}).get("hide_globally"))
    return values.Category(id=number, title=name or TOP_TITLE, user_id=user_id, hide_globally=hidden)


def feed(user_id: int, s: Subscription, kept: Mapping[str, Any]) -> values.Feed:
    state = s.feed.state
    return values.Feed(
        id=s.feed.id,
        user_id=user_id,
        feed_url=s.feed.url,
        site_url=state.site_url,
        title=s.title,
        checked_at=moment(state.last_poll_at),
        next_check_at=moment(state.next_poll_at),
        etag_header=state.etag,
        last_modified_header=state.last_modified,
        parsing_error_message=state.last_error if state.errors else "",
        parsing_error_count=state.errors,
        crawler=s.full_text,
        category=category(user_id, s.folder_id, s.folder, kept),
        icon=values.FeedIcon(s.feed.id, s.feed.id if s.has_icon else 0),
        priority=s.priority,
        min_interval_s=s.min_interval_s,
        **kept.get("feeds", {}).get(str(s.feed.id), {}),
    )


def reading_time(html: str) -> int:
    return math.ceil(len(re.sub(r"<[^>]*>", " ", html).split()) / READING_SPEED)


def enclosures(item: Item, user_id: int, kept: Mapping[str, Any]) -> list[values.Enclosure]:
    heard = kept.get("enclosures", {})
    found = []
    for place, enclosure in enumerate(item.entry.enclosures[:PLACES]):
        number = item.entry.id * PLACES + place
        found.append(
            values.Enclosure(
                id=number,
                user_id=user_id,
                entry_id=item.entry.id,
                url=enclosure.url,
                mime_type=enclosure.type,
                size=enclosure.length or 0,
                media_progression=heard.get(str(number), {}).get("media_progression", 0),
            )
        )
    return found


def entry(item: Item, user_id: int, feeds: Mapping[int, values.Feed], kept: Mapping[str, Any]) -> values.Entry:
    told = item.entry
    html = told.content or told.summary
    return values.Entry(
        id=told.id,
        user_id=user_id,
        feed_id=told.feed_id,
        status="unread" if item.unread else "read",
        hash=sha256(told.identity.encode("utf-8", "replace")).hexdigest(),
        title=told.title or told.url,
        url=told.url,
        comments_url=told.comments_url,
        published_at=moment(told.published_at),
        created_at=moment(told.first_seen_at),
        changed_at=moment(max(filter(None, (told.first_seen_at, told.changed_at, item.read_at, item.starred_at)))),
        content=html,
        author=told.author,
        starred=item.starred,
        reading_time=reading_time(html),
        enclosures=enclosures(item, user_id, kept),
        feed=feeds.get(told.feed_id, UNSET),
        tags=list(told.tags),
        rating=item.rating,
        own_tags=list(item.tags),
    )


async def entries(call: Call, items: Sequence[Item]) -> list[values.Entry]:
    """With the feeds that they are from."""
    kept = (await call.site.people.settings(call.user)).kept
    subscriptions = await call.reading.subscriptions({item.entry.feed_id for item in items})
    feeds = {s.feed.id: feed(call.user.id, s, kept) for s in subscriptions}
    return [entry(item, call.user.id, feeds, kept) for item in items]


async def stream(call: Call, asked: values.EntriesQuery, *, feed_id: int = 0, category_id: int = 0) -> Stream:
    """What is asked for, from the address and the query. The feed or category has to be there."""
    feed_id, category_id = asked.feed_id or feed_id, asked.category_id or category_id
    conditions: dict[str, Any] = {}
    if feed_id and not await call.reading.subscriptions([min(feed_id, TOP)]):
        raise UsageError("invalid feed ID")
    if category_id:
        if category_id != TOP and category_id not in {folder.id for folder in await call.reading.folders()}:
            raise UsageError("invalid category ID")
        conditions["folders"] = (0 if category_id == TOP else category_id,)
    if asked.globally_visible and truth(asked.globally_visible) is not False:
        conditions |= hidden((await call.site.people.settings(call.user)).kept)
    after, before = max(asked.after, asked.published_after), min_given(asked.before, asked.published_before)
    return Stream(
        **conditions,
        feeds=(feed_id,) if feed_id else (),
        unread=None if len(set(asked.status)) != 1 else asked.status[0] == "unread",
        starred=truth(asked.starred),
        tags=tuple(asked.tags),
        search=asked.search,
        published_from=math.nextafter(after, math.inf) if after else None,
        published_until=before or None,
        seen_from=math.nextafter(asked.changed_after, math.inf) if asked.changed_after else None,
        seen_until=asked.changed_before or None,
        above_id=min(asked.after_entry_id, TOP) or None,
        below_id=min(asked.before_entry_id, TOP) or None,
        by="publication" if asked.order == "published_at" else "arrival",
        oldest_first=asked.direction == "asc",
    )


def hidden(kept: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """What is not to be among all others."""
    feeds = [int(i) for i, options in kept.get("feeds", {}).items() if options.get("hide_globally")]
    categories = [int(i) for i, options in kept.get("categories", {}).items() if options.get("hide_globally")]
    return {"not_feeds": tuple(feeds), "not_folders": tuple(0 if i == TOP else i for i in categories)}


def min_given(*times: int) -> int:
    return min(filter(None, times), default=0)


def truth(text: str) -> bool | None:
    """As Go reads it, and Python writes it."""
    return {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}.get(text.lower())


async def page(call: Call, asked: values.EntriesQuery, **place: int) -> values.Entries:
    """Offsets are Miniflux's, not ours: the ids before are walked over, which is cheap, and then left out."""
    wanted = await stream(call, asked, **place)
    limit = min(asked.limit or MOST, MOST)
    ids = (await call.reading.ids(wanted, limit=min(asked.offset + limit, TOP))).ids[asked.offset :]
    told = await entries(call, await call.reading.items(ids))
    key = ORDERS.get(asked.order)
    if key is not None:
        told.sort(key=key, reverse=asked.direction == "desc")
    return values.Entries(await call.reading.count(wanted), told)


#: Orders that no index has: within one answer.
ORDERS: dict[str, Any] = {
    "status": lambda told: told.status,
    "changed_at": lambda told: told.changed_at,
    "title": lambda told: told.title.casefold(),
    "author": lambda told: told.author.casefold(),
    "category_title": lambda told: told.feed.category.title.casefold() if told.feed else "",
    "category_id": lambda told: told.feed.category.id if told.feed else 0,
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
    (told,) = await entries(call, [await call.reading.item(call.ids["entry_id"])])
    if call.ids.get("feed_id", told.feed_id) != told.feed_id:
        raise not_found("entry")
    if "category_id" in call.ids and (told.feed is UNSET or told.feed.category.id != call.ids["category_id"]):
        raise not_found("entry")
    return told


async def get_entry_ids(call: Call) -> values.EntryIds:
    asked: values.IdsQuery = call.query
    wanted = Stream(
        unread=None if asked.status is None else asked.status == "unread",
        starred=None if asked.starred is None else asked.starred == "true",
    )
    limit = min(asked.limit or MOST_IDS, MOST_IDS)
    ids = (await call.reading.ids(wanted, limit=min(asked.offset + limit, TOP))).ids[asked.offset :]
    return values.EntryIds(await call.reading.count(wanted), list(ids))


async def mark_entries(call: Call) -> None:
    asked: values.Marks = call.body
    if not asked.status and (asked.starred, asked.rating) == (None, None) and not asked.add_tags and not asked.remove_tags:
        raise UsageError("either the status or the starred field must be specified")
    await call.reading.mark(
        asked.entry_ids,
        unread=asked.status == "unread" if asked.status else None,
        starred=asked.starred,
        rating=asked.rating,
        add_tags=asked.add_tags,
        remove_tags=asked.remove_tags,
    )


async def change_entry(call: Call) -> values.Entry:
    if "" in (call.body.title, call.body.content):
        raise UsageError("neither the title nor the content of an entry can be empty")
    await call.reading.rewrite(call.ids["entry_id"], title=call.body.title, content=call.body.content)
    return await get_entry(call)


async def toggle_star(call: Call) -> None:
    item = await call.reading.item(call.ids["entry_id"])
    await call.reading.mark([item.entry.id], starred=not item.starred)


async def save_entry(call: Call) -> None:
    await call.reading.send(call.ids["entry_id"])


async def fetch_content(call: Call) -> values.Content:
    html = await call.reading.full_text(call.ids["entry_id"])
    return values.Content(html, reading_time(html))


async def put_away_read(call: Call) -> None:
    await call.reading.put_away_read()


async def get_enclosure(call: Call) -> values.Enclosure:
    entry_id, place = divmod(call.ids["enclosure_id"], PLACES)
    kept = (await call.site.people.settings(call.user)).kept
    found = enclosures(await call.reading.item(entry_id), call.user.id, kept)
    if place >= len(found):
        raise not_found("enclosure")
    return found[place]


async def set_progress(call: Call) -> None:
    enclosure = await get_enclosure(call)
    await keep(call, "enclosures", str(enclosure.id), {"media_progression": call.body.media_progression})
