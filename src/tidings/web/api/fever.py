"""Fever's API, as Reeder, Unread, ReadKit, Fluent Reader, Readrops, Read You and others speak it.

One address for everything: what is asked for stands as names in the query or in the form, several at once. The key is
md5(name:secret), with the secret of a token in place of the password: an md5 of a person's own password is nothing to keep.
"""

import base64
import re
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings.errors import TidingsError
from tidings.people import Reading
from tidings.store import icons
from tidings.store.people_rows import Item, Stream, Subscription
from tidings.web.api.desk import Fields, fields, json, preflight, retry_after, status_of, whole
from tidings.web.api.miniflux_entries import TOP, TOP_TITLE
from tidings.web.visit import Site

#: Items in one answer; clients count on it.
MOST_ITEMS = 50
#: All ids are told at once.
MOST_IDS = 1_000_000
#: "Unread again what I have just read" looks back so far.
RECENTLY_S = 900.0
PATHS = ("/fever", "/fever/", "/fever.php", "/api/fever", "/api/fever/", "/api/fever.php", "/api/fever.php/")

Told = dict[str, Any]


class Fever:
    """The selectors by name; the last ones change something, and are done before anything is told."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.selectors: dict[str, Callable[[Reading, Fields], Awaitable[Told]]] = {
            "mark": self.mark,
            "unread_recently_read": self.unread_recently_read,
            "groups": self.groups,
            "feeds": self.feeds,
            "favicons": self.favicons,
            "items": self.items,
            "links": self.links,
            "unread_item_ids": self.unread_item_ids,
            "saved_item_ids": self.saved_item_ids,
        }

    def routes(self) -> list[BaseRoute]:
        return [Route(path, self.answer, methods=["GET", "POST", "OPTIONS"]) for path in PATHS]

    async def answer(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return preflight()
        try:
            asked = await fields(request)
            user = await self.site.people.by_fever_key(asked.get("api_key"))
            if user is None:
                return json({"api_version": 3, "auth": 0})
            reading = self.site.reading(user)
            told: Told = {"api_version": 3, "auth": 1}
            for name, select in self.selectors.items():
                if name in asked and (request.method == "POST" or name not in ("mark", "unread_recently_read")):
                    told |= await select(reading, asked)
            told["last_refreshed_on_time"] = int((await reading.totals()).refreshed_at)
            return json(told)
        except TidingsError as error:
            return json({"api_version": 3, "auth": 0, "error": str(error)}, status_of(error), retry_after(error))

    async def groups(self, reading: Reading, asked: Fields) -> Told:
        """What is in no folder is a group too: Read You's sync ends at a feed without one."""
        subscriptions = await reading.subscriptions()
        groups = [{"id": folder.id, "title": folder.name} for folder in await reading.folders()]
        top = [{"id": TOP, "title": TOP_TITLE}] if any(s.folder_id is None for s in subscriptions) else []
        return {"groups": top + groups, "feeds_groups": _feeds_groups(subscriptions)}

    async def feeds(self, reading: Reading, asked: Fields) -> Told:
        def one(s: Subscription) -> Told:
            return {
                "id": s.feed.id,
                "favicon_id": s.feed.id if s.has_icon else 0,
                "title": s.title,
                "url": s.feed.url,
                "site_url": s.feed.state.site_url,
                "is_spark": 0,
                "last_updated_on_time": int(s.feed.state.last_ok_at or 0),
            }

        subscriptions = await reading.subscriptions()
        return {"feeds": [one(s) for s in subscriptions], "feeds_groups": _feeds_groups(subscriptions)}

    async def favicons(self, reading: Reading, asked: Fields) -> Told:
        found = await reading.store.read(icons.icons, reading.user.id)
        told = [{"id": i, "data": f"{icon.type};base64,{base64.b64encode(icon.data).decode()}"} for i, icon in found]
        return {"favicons": told}

    async def items(self, reading: Reading, asked: Fields) -> Told:
        """``with_ids`` exactly these; ``max_id`` older ones, newest first (0, or none at all known: the newest); else those
        after ``since_id``, oldest first."""
        total = await reading.count(Stream())
        if "with_ids" in asked:
            items = await reading.items(_numbers(asked.get("with_ids"))[:MOST_ITEMS])
            return {"total_items": total, "items": [_item(item) for item in items]}
        backward, bound = "max_id" in asked, asked.number("max_id" if "max_id" in asked else "since_id")
        stream = Stream(
            feeds=tuple(_numbers(asked.get("feed_ids"))),
            folders=tuple(map(_folder, _numbers(asked.get("group_ids")))),
            above_id=None if backward else min(bound or 0, 2**31),
            below_id=min(bound, 2**31) if backward and bound else None,
            oldest_first=not backward,
        )
        page = await reading.page(stream, limit=MOST_ITEMS)
        return {"total_items": total, "items": [_item(item) for item in page.items]}

    async def links(self, reading: Reading, asked: Fields) -> Told:
        return {"links": []}

    async def unread_item_ids(self, reading: Reading, asked: Fields) -> Told:
        return {"unread_item_ids": await _ids(reading, Stream(unread=True))}

    async def saved_item_ids(self, reading: Reading, asked: Fields) -> Told:
        return {"saved_item_ids": await _ids(reading, Stream(starred=True))}

    async def mark(self, reading: Reading, asked: Fields) -> Told:
        """Said twice, it is done once. Group 0 is everything, and -1 what Fever called sparks, of which there are none."""
        what, how, before = asked.get("mark"), asked.get("as"), asked.number("before")
        number = whole(asked.get("id"))
        if what == "item" and number is not None:
            if how in ("saved", "unsaved"):
                await reading.mark([number], starred=how == "saved")
                return await self.saved_item_ids(reading, asked)
            if how in ("read", "unread"):
                await reading.mark([number], unread=how == "unread")
        elif what in ("feed", "group") and how == "read" and number is not None:
            folders = (_folder(number),) if what == "group" and number else ()
            stream = Stream(feeds=(number,) if what == "feed" else (), folders=folders)
            await reading.mark_all_read(stream, until=None if before is None else before + 0.999)
        return await self.unread_item_ids(reading, asked)

    async def unread_recently_read(self, reading: Reading, asked: Fields) -> Told:
        await reading.unread_again(self.site.clock() - RECENTLY_S)
        return await self.unread_item_ids(reading, asked)


def _feeds_groups(subscriptions: list[Subscription]) -> list[Told]:
    groups: dict[int, list[str]] = {}
    for s in subscriptions:
        groups.setdefault(s.folder_id or TOP, []).append(str(s.feed.id))
    return [{"group_id": folder_id, "feed_ids": ",".join(feeds)} for folder_id, feeds in groups.items()]


def _folder(group_id: int) -> int:
    """Of a group; 0 is in none."""
    return 0 if group_id == TOP else group_id


def _item(item: Item) -> Told:
    entry = item.entry
    return {
        "id": entry.id,
        "feed_id": entry.feed_id,
        "title": entry.title,
        "author": entry.author,
        "html": entry.content or entry.summary,
        "url": entry.url,
        "is_saved": int(item.starred),
        "is_read": int(not item.unread),
        "created_on_time": int(entry.published_at),
    }


def _numbers(text: str) -> list[int]:
    return [number for part in re.split(r"[,\s]+", text) if (number := whole(part)) is not None]


async def _ids(reading: Reading, stream: Stream) -> str:
    return ",".join(map(str, (await reading.ids(stream, limit=MOST_IDS)).ids))
