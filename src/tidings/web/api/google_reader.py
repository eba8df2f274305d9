"""Google Reader's API, as newsboat, Liferea, RSS Guard, NetNewsWire, Reeder, FeedMe, Readrops, Read You and others speak it.

There was never a specification; what is here is what these clients send and need. They put the same paths behind whatever
address a person has typed, so any prefix will do. Answers to writes are ``OK`` and nothing else: three clients compare it.
"""

import hmac
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings.errors import TidingsError, UsageError
from tidings.store.user_models import Folder, IdPage, Item, Page, Subscription, Tag, User
from tidings.users import AlreadyExists, NotFound, ReaderService
from tidings.web.api import google_items
from tidings.web.api.common import (
    CORS,
    RequestParams,
    conditional_response,
    fields,
    http_status,
    json,
    preflight,
    retry_after_header,
    subscribe,
    text,
)
from tidings.web.api.google_streams import (
    ID_OFFSET,
    LABEL,
    STATE,
    StreamResolver,
    canonical,
    entry_ids,
    label,
    state,
)
from tidings.web.api.icons import icon_url
from tidings.web.request_context import Site

#: What a client may ask for at once, in ids (RSS Guard asks for so many) and in whole items (Readrops); the rest is continued.
MAX_IDS, MAX_ITEMS = 200_000, 2500
DEFAULT_LIMIT = 20

AsyncResponse = Awaitable[Response]


class GoogleReader:
    """The calls, by the names that they have under ``/reader/api/0/``."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.reads: dict[str, Callable[[Request, ReaderService, RequestParams], AsyncResponse]] = {
            "user-info": self.user_info,
            "token": self.token,
            "tag/list": self.tag_list,
            "subscription/list": self.subscription_list,
            "subscription/export": self.export,
            "unread-count": self.unread_count,
            "stream/items/ids": self.item_ids,
            "stream/items/count": self.item_count,
            "stream/items/contents": self.item_contents,
            "stream/contents": self.stream_contents,
            "subscribed": self.subscribed,
            "preference/list": _always({"prefs": []}),
            "preference/stream/list": _always({"streamprefs": {}}),
            "friend/list": _always({"friends": []}),
        }
        self.writes: dict[
            str, Callable[[ReaderService, RequestParams], Awaitable[str | dict[str, Any]]]
        ] = {
            "edit-tag": self.edit_tag,
            "mark-all-as-read": self.mark_all_as_read,
            "subscription/edit": self.edit_subscription,
            "subscription/quickadd": self.quickadd,
            "subscription/import": self.import_opml,
            "import/opml": self.import_opml,
            "rename-tag": self.rename_tag,
            "disable-tag": self.disable_tag,
            **dict.fromkeys(
                ("preference/set", "preference/stream/set", "friend/edit", "comment/edit"),
                self.no_op,
            ),
        }

    def routes(self) -> list[BaseRoute]:
        methods = ["GET", "POST", "OPTIONS"]
        return [
            Route("/{prefix:path}accounts/ClientLogin", self.client_login, methods=methods),
            Route("/{prefix:path}reader/api/0/{call:path}", self.call, methods=methods),
            Route("/{prefix:path}reader/atom/{stream:path}", self.atom, methods=["GET", "OPTIONS"]),
            Route(
                "/{prefix:path}reader/subscriptions/export",
                self.call_export,
                methods=["GET", "OPTIONS"],
            ),
            Route("/{prefix:path}reader/ping", self.ping, methods=["GET"]),
            Route("/api/greader.php", self.ping, methods=["GET", "OPTIONS"]),
            Route("/api/greader.php/", self.ping, methods=["GET", "OPTIONS"]),
        ]

    # --- who asks ------------------------------------------------------------------------------------------------------

    async def client_login(self, request: Request) -> Response:
        """Three lines; NetNewsWire wants exactly one ``=`` in each, Vienna the second of them."""
        if request.method == "OPTIONS":
            return preflight()
        try:
            params = await fields(request)
            auth = await self.site.user_service.client_login(
                params.get("Email"), params.get("Passwd"), self.site.address(request)
            )
        except TidingsError as error:
            return text("Error=BadAuthentication\n", http_status(error), retry_after_header(error))
        if params.get("output") == "json":
            return json({"SID": auth, "LSID": "null", "Auth": auth})
        return text(f"SID={auth}\nLSID=null\nAuth={auth}\n")

    async def _user(self, request: Request, params: RequestParams) -> User | None:
        """By the header; or by the Auth token as ``T`` of a form, which is all that Liferea sends with one of its calls."""
        found = re.fullmatch(
            r"\s*GoogleLogin\s+auth\s*=\s*(\S+)\s*",
            request.headers.get("authorization", ""),
            re.IGNORECASE,
        )
        if found:
            return await self.site.user_service.user_by_auth_token(found[1])
        given = params.get("T").strip()
        return (
            await self.site.user_service.user_by_auth_token(given)
            if given and request.method == "POST"
            else None
        )

    async def _respond(
        self, request: Request, work: Callable[[ReaderService, RequestParams], AsyncResponse]
    ) -> Response:
        if request.method == "OPTIONS":
            return preflight()
        try:
            params = await fields(request)
            user = await self._user(request, params)
            if user is None:
                bad = {"Google-Bad-Token": "true", "X-Reader-Google-Bad-Token": "true"}
                return text("Unauthorized\n", 401, bad)
            # ``T`` of a write needs no further proof: clients send it empty, as "x", with a line's end, or not at all, and no
            # other site can make a browser send the Authorization header.
            return await work(self.site.reader_service(user), params)
        except TidingsError as error:
            return text(f"{error}\n", http_status(error), retry_after_header(error))

    async def call(self, request: Request) -> Response:
        name = request.path_params["call"].strip("/")
        write, read = self.writes.get(name), self.reads.get(name)
        if name.startswith("stream/contents/"):
            read = self.stream_contents

        async def work(reader_service: ReaderService, params: RequestParams) -> Response:
            if write is not None:
                if request.method != "POST":
                    return text("POST is needed\n", 405, {"Allow": "POST"})
                payload = await write(reader_service, params)
                return text(payload) if isinstance(payload, str) else json(payload)
            return (
                text("Not found\n", 404)
                if read is None
                else await read(request, reader_service, params)
            )

        return await self._respond(request, work)

    async def ping(self, request: Request) -> Response:
        return preflight() if request.method == "OPTIONS" else text("OK")

    # --- what there is -------------------------------------------------------------------------------------------------

    async def user_info(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        user = reader_service.user
        return json(
            {
                "userId": str(user.id),
                "userName": user.name,
                "userProfileId": str(user.id),
                "userEmail": user.name,
            }
        )

    async def token(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        key = await self.site.user_service.key("google reader token")
        return text(
            hmac.digest(key, str(reader_service.user.id).encode(), "sha256").hex()[:57] + "\n"
        )

    async def tag_list(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        labels = [
            {
                "id": LABEL + label.name,
                "type": "folder" if isinstance(label, Folder) else "tag",
                "unread_count": label.unread,
            }
            for label in await _labels(reader_service)
        ]
        return conditional_response(request, json({"tags": [{"id": f"{STATE}starred"}, *labels]}))

    async def subscription_list(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        """newsboat needs every title, Liferea every url; Readrops takes no more than one category."""
        key = await self.site.user_service.key("icons")
        base = str(request.base_url).rstrip("/")

        def one(s: Subscription) -> dict[str, Any]:
            return {
                "id": f"feed/{s.feed.id}",
                "title": s.title,
                "categories": [{"id": LABEL + s.folder, "label": s.folder}] if s.folder else [],
                "sortid": f"{s.feed.id:08X}",
                "firstitemmsec": str(int(s.added_at * 1e3)),
                "url": s.feed.url,
                "htmlUrl": s.feed.state.site_url,
                "iconUrl": base + icon_url(key, s.feed.id) if s.has_icon else "",
            }

        return conditional_response(
            request, json({"subscriptions": [one(s) for s in await reader_service.subscriptions()]})
        )

    async def export(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        return Response(await reader_service.export_opml(), headers=CORS, media_type="text/xml")

    async def call_export(self, request: Request) -> Response:
        return await self._respond(
            request, lambda reader_service, params: self.export(request, reader_service, params)
        )

    async def unread_count(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        subscriptions = await reader_service.subscriptions()
        newest: dict[str, float] = {}
        counts: dict[str, int] = {f"feed/{s.feed.id}": s.unread for s in subscriptions}
        counts |= {LABEL + label.name: label.unread for label in await _labels(reader_service)}
        counts[f"{STATE}reading-list"] = total = sum(s.unread for s in subscriptions)
        for s in subscriptions:
            for name in (f"feed/{s.feed.id}", LABEL + s.folder, f"{STATE}reading-list"):
                newest[name] = max(newest.get(name, 0.0), s.newest_unread_at or 0.0)
        rows = [
            {
                "id": name,
                "count": count,
                "newestItemTimestampUsec": str(int(newest.get(name, 0.0) * 1e6)),
            }
            for name, count in counts.items()
        ]
        return json({"max": total, "unreadcounts": rows})

    # --- streams -------------------------------------------------------------------------------------------------------

    async def item_ids(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        """Nothing but ``id`` in each reference: Readrops reads one key and then demands the end."""
        stream = (await _streams(reader_service, params, _names(params))).stream(
            _names(params), params
        )
        limit, after = _limit(params, MAX_IDS), params.get("c") or None
        page = (
            IdPage((), None)
            if stream is None
            else await reader_service.ids(stream, limit=limit, after=after)
        )
        payload: dict[str, Any] = {"itemRefs": [{"id": str(i + ID_OFFSET)} for i in page.ids]}
        if page.next is not None:
            payload["continuation"] = page.next
        return json(payload)

    async def item_count(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        stream = (await _streams(reader_service, params, _names(params))).stream(
            _names(params), params
        )
        return text(str(0 if stream is None else await reader_service.count(stream)))

    async def item_contents(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        items = await reader_service.items(entry_ids(params.all("i")))
        by_id, name = await _feeds_of(reader_service, items), f"{STATE}reading-list"
        return json(
            google_items.contents(items, by_id, name, "Reading list", self.site.clock(), None)
        )

    async def stream_contents(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        name = request.path_params["call"].strip("/").removeprefix("stream/contents").lstrip("/")
        return json(
            google_items.contents(
                *await self._page(reader_service, params, [name] if name else _names(params))
            )
        )

    async def atom(self, request: Request) -> Response:
        async def work(reader_service: ReaderService, params: RequestParams) -> Response:
            page = await self._page(reader_service, params, [request.path_params["stream"]])
            return Response(
                google_items.atom(*page), headers=CORS, media_type="application/atom+xml"
            )

        return await self._respond(request, work)

    async def _page(
        self, reader_service: ReaderService, params: RequestParams, names: list[str]
    ) -> tuple[tuple[Any, ...], dict[int, Subscription], str, str, float, str | None]:
        streams = await _streams(reader_service, params, names)
        stream = streams.stream(names, params)
        limit, after = _limit(params, MAX_ITEMS), params.get("c") or None
        page = (
            Page((), None)
            if stream is None
            else await reader_service.page(stream, limit=limit, after=after)
        )
        name = canonical(names[0]) if names else f"{STATE}reading-list"
        subscription = streams.subscription(name) if name.startswith("feed/") else None
        title = (
            subscription.title
            if subscription
            else label(name) or (state(name) or name).replace("-", " ").capitalize()
        )
        return (
            page.items,
            await _feeds_of(reader_service, page.items),
            name,
            title,
            self.site.clock(),
            page.next,
        )

    async def subscribed(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        found = (await StreamResolver.load(reader_service)).subscription(params.get("s"))
        return text("true" if found else "false")

    # --- changes -------------------------------------------------------------------------------------------------------

    async def edit_tag(self, reader_service: ReaderService, params: RequestParams) -> str:
        """``read`` is looked at before ``kept-unread``, which newsboat sends along with its opposite."""
        added, removed = params.all("a"), params.all("r")
        ids = entry_ids(params.all("i"))
        to, off = {state(name) for name in added}, {state(name) for name in removed}
        unread = False if "read" in to else True if "read" in off else None
        if unread is None:
            unread = True if "kept-unread" in to else False if "kept-unread" in off else None
        starred = True if "starred" in to else False if "starred" in off else None
        names = [name for tag in added if (name := label(tag))]
        if not params.all("i"):
            for name in names:  # Readrops makes an empty folder so
                await _folder(reader_service, name)
            return "OK"
        gone = [name for tag in removed if (name := label(tag))]
        await reader_service.mark(
            ids, unread=unread, starred=starred, add_tags=names, remove_tags=gone
        )
        return "OK"

    async def mark_all_as_read(self, reader_service: ReaderService, params: RequestParams) -> str:
        """newsboat tells no time, which means now, as 0 does; others tell it in seconds, milli-, micro- or nanoseconds.

        Of which stream has to be said: everything is more than a client can have meant by nothing.
        """
        if not _names(params):
            raise UsageError("mark-all-as-read needs the stream s")
        stream = (await StreamResolver.load(reader_service)).stream(
            _names(params), RequestParams([])
        )
        payload = params.get("ts").strip("0") and params.get("ts")
        until = (
            _seconds(payload)
            if payload.isascii() and payload.isdecimal() and len(payload) < 20
            else None
        )
        if stream is not None:
            await reader_service.mark_all_read(stream, until=until)
        return "OK"

    async def edit_subscription(self, reader_service: ReaderService, params: RequestParams) -> str:
        streams, titles = await StreamResolver.load(reader_service), params.all("t")
        to = next((name for tag in params.all("a") if (name := label(tag))), None)
        off = {label(tag) for tag in params.all("r")}
        if to and not params.all("s"):  # Read You makes an empty folder so
            await _folder(reader_service, to)
        for position, name in enumerate(params.all("s")):
            title = titles[position] if position < len(titles) else None
            found = streams.subscription(name)
            if found is None and params.get("ac") == "subscribe":
                await subscribe(
                    reader_service, canonical(name).removeprefix("feed/"), title or "", to or ""
                )
            elif found is None:
                raise NotFound(f"there is no {name} among your subscriptions")
            elif params.get("ac") == "unsubscribe":
                await reader_service.unsubscribe(found.feed.id)
            else:
                folder = to if to is not None else "" if found.folder in off else None
                await reader_service.change(found.feed.id, title=title, folder=folder)
        return "OK"

    async def quickadd(
        self, reader_service: ReaderService, params: RequestParams
    ) -> dict[str, Any]:
        """A failure is told in a good answer: clients show its words."""
        url = canonical(params.get("quickadd")).removeprefix("feed/")
        try:
            subscription, _ = await subscribe(reader_service, url)
        except TidingsError as error:
            return {"query": url, "numResults": 0, "error": str(error)}
        name = f"feed/{subscription.feed.id}"
        return {"query": url, "numResults": 1, "streamId": name, "streamName": subscription.title}

    async def import_opml(self, reader_service: ReaderService, params: RequestParams) -> str:
        await reader_service.import_opml(params.get("opml").encode() or params.raw)
        return "OK"

    async def rename_tag(self, reader_service: ReaderService, params: RequestParams) -> str:
        """A label may be a folder, a tag, or both."""
        name, new = label(params.get("s")), label(params.get("dest"))
        if not name or not new:
            raise UsageError("rename-tag needs the labels s and dest")
        folder, is_tag = await _label(reader_service, name)
        if folder is not None:
            await reader_service.rename_folder(folder.id, new)
        if is_tag:
            await reader_service.rename_tag(name, new)
        return "OK"

    async def disable_tag(self, reader_service: ReaderService, params: RequestParams) -> str:
        for name in filter(
            None, map(label, [*params.all("s"), *(LABEL + t for t in params.all("t"))])
        ):
            folder, is_tag = await _label(reader_service, name)
            if folder is not None:
                await reader_service.remove_folder(folder.id)
            if is_tag:
                await reader_service.remove_tag(name)
        return "OK"

    async def no_op(self, reader_service: ReaderService, params: RequestParams) -> str:
        """What Google had and nobody else has."""
        return "OK"


def _always(
    payload: dict[str, Any],
) -> Callable[[Request, ReaderService, RequestParams], AsyncResponse]:
    async def respond(
        request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        return json(payload)

    return respond


def _names(params: RequestParams) -> list[str]:
    """No stream named means the whole reading list (Fluent Reader, Inoreader's clients)."""
    return [name for name in params.all("s") if name]


def _limit(params: RequestParams, most: int) -> int:
    return max(1, min(params.number("n") or DEFAULT_LIMIT, most))


def _seconds(digits: str) -> float:
    """By magnitude: ten digits are seconds until the year 2286."""
    at = float(digits)
    return at / (
        1.0 if len(digits) < 12 else 1e3 if len(digits) < 15 else 1e6 if len(digits) < 18 else 1e9
    )


async def _labels(reader_service: ReaderService) -> list[Folder | Tag]:
    """A label is a folder before it is a tag."""
    folders = await reader_service.folders()
    taken = {folder.name for folder in folders}
    return [*folders, *(tag for tag in await reader_service.tags() if tag.name not in taken)]


async def _label(reader_service: ReaderService, name: str) -> tuple[Folder | None, bool]:
    folder = next(
        (folder for folder in await reader_service.folders() if folder.name == name), None
    )
    return folder, any(tag.name == name for tag in await reader_service.tags())


async def _folder(reader_service: ReaderService, name: str) -> None:
    with suppress(AlreadyExists):
        await reader_service.add_folder(name)


async def _streams(
    reader_service: ReaderService, params: RequestParams, names: list[str]
) -> StreamResolver:
    """For a look at these names. An intersection may need to know which feeds are in a folder."""
    return await StreamResolver.load(
        reader_service, None if params.all("it") else [*names, *params.all("xt")]
    )


async def _feeds_of(
    reader_service: ReaderService, items: Iterable[Item]
) -> dict[int, Subscription]:
    return {
        s.feed.id: s
        for s in await reader_service.subscriptions({item.entry.feed_id for item in items})
    }
