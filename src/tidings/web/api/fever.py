"""Fever API, for Reeder, Unread, ReadKit, Fluent Reader, Readrops, Read You and others.

There is one endpoint; the query or form names one or more selectors. The API key is
md5(name:secret), where the secret is that of an API token. The MD5 hash of a password is not used,
because storing it would expose the password.
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
    http_status,
    json_response,
    parse_int,
    preflight,
    read_params,
    retry_after_header,
)
from tidings.web.api.miniflux_entries import ROOT_CATEGORY_ID, ROOT_CATEGORY_TITLE
from tidings.web.request_context import AppServices

#: Number of items per page, as specified by Fever. Clients depend on it.
MAX_ITEMS = 50
#: Maximum number of ids in a response. Fever has no pagination for ids.
MAX_IDS = 1_000_000
#: Period of ``unread_recently_read`` in seconds.
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
    """Fever endpoint, which calls one function per selector in the request.

    Selectors that change state come first, so that responses include the new state.
    """

    def __init__(self, site: AppServices) -> None:
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
            params = await read_params(request)
            user = await self.site.user_service.user_by_fever_key(params.get("api_key"))
            if user is None:
                return json_response({"api_version": 3, "auth": 0})
            reader_service = self.site.reader_service(user)
            payload: Payload = {"api_version": 3, "auth": 1}
            for name, handler in self.selectors.items():
                if name in params and (
                    request.method == "POST" or name not in ("mark", "unread_recently_read")
                ):
                    payload |= await handler(reader_service, params)
            payload["last_refreshed_on_time"] = int((await reader_service.totals()).refreshed_at)
            return json_response(payload)
        except TidingsError as error:
            return json_response(
                {"api_version": 3, "auth": 0, "error": str(error)},
                http_status(error),
                retry_after_header(error),
            )

    async def groups(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        """Return the folders as groups, with one more group for the feeds without folder.

        Read You aborts its synchronization at a feed without a group.
        """
        subscriptions = await reader_service.subscriptions()
        groups = [
            {"id": folder.id, "title": folder.name} for folder in await reader_service.folders()
        ]
        no_folder = (
            [{"id": ROOT_CATEGORY_ID, "title": ROOT_CATEGORY_TITLE}]
            if any(s.folder_id is None for s in subscriptions)
            else []
        )
        return {"groups": no_folder + groups, "feeds_groups": _feeds_groups(subscriptions)}

    async def feeds(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        def feed_json(s: Subscription) -> Payload:
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
            "feeds": [feed_json(s) for s in subscriptions],
            "feeds_groups": _feeds_groups(subscriptions),
        }

    async def favicons(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        icons_by_feed = await reader_service.store.read(icons.icons, reader_service.user.id)
        favicons = [
            {"id": i, "data": f"{icon.type};base64,{base64.b64encode(icon.data).decode()}"}
            for i, icon in icons_by_feed
        ]
        return {"favicons": favicons}

    async def items(self, reader_service: ReaderService, params: RequestParams) -> Payload:
        """Return one page of items.

        With ``with_ids``, these are the items with the given ids. With ``max_id``, they are items
        with smaller ids, newest first, where 0 stands for the newest items. Otherwise they are the
        items after ``since_id``, oldest first.
        """
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
        """Change the state of an item, or mark a feed or group as read (idempotent).

        Group 0 stands for all feeds; group -1 ("sparks" in Fever) is always empty.
        """
        kind, new_state, before = params.get("mark"), params.get("as"), params.number("before")
        id = parse_int(params.get("id"))
        if kind == "item" and id is not None:
            if new_state in ("saved", "unsaved"):
                await reader_service.mark([id], starred=new_state == "saved")
                return await self.saved_item_ids(reader_service, params)
            if new_state in ("read", "unread"):
                await reader_service.mark([id], unread=new_state == "unread")
        elif kind in ("feed", "group") and new_state == "read" and id is not None:
            folders = (_folder(id),) if kind == "group" and id else ()
            stream = Stream(feeds=(id,) if kind == "feed" else (), folders=folders)
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
    """Return the folder id of a group, which is 0 for the feeds without folder."""
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
