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
from tidings.store import icons
from tidings.store.user_models import Item, Stream, Subscription
from tidings.users import ReaderService
from tidings.web.api.common import (
    RequestParams,
    fields,
    http_status,
    json,
    parse_int,
    preflight,
    retry_after_header,
)
from tidings.web.api.miniflux_entries import ROOT_CATEGORY_ID, ROOT_CATEGORY_TITLE
from tidings.web.request_context import Site

#: Items in one answer; clients count on it.
MAX_ITEMS = 50
#: All ids are told at once.
MAX_IDS = 1_000_000
#: "Unread again what I have just read" looks back so far.
RECENTLY_READ_S = 900.0
PATHS = (
    "/fever",
    "/fever/",
    "/fever.php",
    "/api/fever",
    "/api/fever/",
    "/api/fever.php",
    "/api/fever.php/",
)

Payload = dict[str, Any]


class Fever:
    """The selectors by name; the last ones change something, and are done before anything is told."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.selectors: dict[str, Callable[[ReaderService, RequestParams], Awaitable[Payload]]] = {
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
        return [Route(path, self.handle, methods=["GET", "POST", "OPTIONS"]) for path in PATHS]

    async def handle(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return preflight()
        try:
            params = await fields(request)
            user = await self.site.user_service.user_by_fever_key(params.get("api_key"))
            if user is None:
                return json({"api_version": 3, "auth": 0})
            reader_service = self.site.reader_service(user)
            payload: Payload = {"api_version": 3, "auth": 1}
            for name, select in self.selectors.items():
                if name in params and (
                    request.method == "POST" or name not in ("mark", "unread_recently_read")
                ):
                    payload |= await select(reader_service, params)
            payload["last_refreshed_on_time"] = int((await reader_service.totals()).refreshed_at)
            return json(payload)
        except TidingsError as error:
            return json(
                {"api_version": 3, "auth": 0, "error": str(error)},
                http_status(error),
                retry_after_header(error),
            )

    async def groups(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        """What is in no folder is a group too: Read You's sync ends at a feed without one."""
        subscriptions = await reader_service.subscriptions()
        groups = [
            {"id": folder.id, "title": folder.name} for folder in await reader_service.folders()
        ]
        top = (
            [{"id": ROOT_CATEGORY_ID, "title": ROOT_CATEGORY_TITLE}]
            if any(s.folder_id is None for s in subscriptions)
            else []
        )
        return {"groups": top + groups, "feeds_groups": _feeds_groups(subscriptions)}

    async def feeds(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        def one(s: Subscription) -> Payload:
            return {
                "id": s.feed.id,
                "favicon_id": s.feed.id if s.has_icon else 0,
                "title": s.title,
                "url": s.feed.url,
                "site_url": s.feed.state.site_url,
                "is_spark": 0,
                "last_updated_on_time": int(s.feed.state.last_ok_at or 0),
            }

        subscriptions = await reader_service.subscriptions()
        return {
            "feeds": [one(s) for s in subscriptions],
            "feeds_groups": _feeds_groups(subscriptions),
        }

    async def favicons(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        found = await reader_service.store.read(icons.icons, reader_service.user.id)
        payload = [
            {"id": i, "data": f"{icon.type};base64,{base64.b64encode(icon.data).decode()}"}
            for i, icon in found
        ]
        return {"favicons": payload}

    async def items(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        """``with_ids`` exactly these; ``max_id`` older ones, newest first (0, or none at all known: the newest); else those
        after ``since_id``, oldest first."""
        total = await reader_service.count(Stream())
        if "with_ids" in params:
            items = await reader_service.items(_numbers(params.get("with_ids"))[:MAX_ITEMS])
            return {"total_items": total, "items": [_item(item) for item in items]}
        backward, bound = (
            "max_id" in params,
            params.number("max_id" if "max_id" in params else "since_id"),
        )
        stream = Stream(
            feeds=tuple(_numbers(params.get("feed_ids"))),
            folders=tuple(map(_folder, _numbers(params.get("group_ids")))),
            above_id=None if backward else min(bound or 0, 2**31),
            below_id=min(bound, 2**31) if backward and bound else None,
            oldest_first=not backward,
        )
        page = await reader_service.page(stream, limit=MAX_ITEMS)
        return {"total_items": total, "items": [_item(item) for item in page.items]}

    async def links(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        return {"links": []}

    async def unread_item_ids(
        self, reader_service: ReaderService, params: RequestParams
    ) -> Payload:
        return {"unread_item_ids": await _ids(reader_service, Stream(unread=True))}

    async def saved_item_ids(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        return {"saved_item_ids": await _ids(reader_service, Stream(starred=True))}

    async def mark(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        """Said twice, it is done once. Group 0 is everything, and -1 what Fever called sparks, of which there are none."""
        what, how, before = params.get("mark"), params.get("as"), params.number("before")
        number = parse_int(params.get("id"))
        if what == "item" and number is not None:
            if how in ("saved", "unsaved"):
                await reader_service.mark([number], starred=how == "saved")
                return await self.saved_item_ids(reader_service, params)
            if how in ("read", "unread"):
                await reader_service.mark([number], unread=how == "unread")
        elif what in ("feed", "group") and how == "read" and number is not None:
            folders = (_folder(number),) if what == "group" and number else ()
            stream = Stream(feeds=(number,) if what == "feed" else (), folders=folders)
            await reader_service.mark_all_read(
                stream, until=None if before is None else before + 0.999
            )
        return await self.unread_item_ids(reader_service, params)

    async def unread_recently_read(
        self, reader_service: ReaderService, params: RequestParams
    ) -> Payload:
        await reader_service.mark_unread_since(self.site.clock() - RECENTLY_READ_S)
        return await self.unread_item_ids(reader_service, params)


def _feeds_groups(subscriptions: list[Subscription]) -> list[Payload]:
    groups: dict[int, list[str]] = {}
    for s in subscriptions:
        groups.setdefault(s.folder_id or ROOT_CATEGORY_ID, []).append(str(s.feed.id))
    return [
        {"group_id": folder_id, "feed_ids": ",".join(feeds)} for folder_id, feeds in groups.items()
    ]


def _folder(group_id: int) -> int:
    """Of a group; 0 is in none."""
    return 0 if group_id == ROOT_CATEGORY_ID else group_id


def _item(item: Item) -> Payload:
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
    return [number for part in re.split(r"[,\s]+", text) if (number := parse_int(part)) is not None]


async def _ids(reader_service: ReaderService, stream: Stream) -> str:
    return ",".join(map(str, (await reader_service.ids(stream, limit=MAX_IDS)).ids))
