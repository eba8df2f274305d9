"""Google Reader API, for newsboat, Liferea, RSS Guard, NetNewsWire, Reeder and others.

There is no specification; this module implements what these clients send and require. Clients
append the paths to the server URL that the user enters, so any path prefix is accepted. The
response to a write is exactly ``OK``, because three clients compare it.
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
    http_status,
    json_response,
    preflight,
    read_params,
    retry_after_header,
    subscribe,
    text_response,
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
from tidings.web.request_context import AppServices

#: Maximum page size in ids (the size that RSS Guard requests) and in items (that of Readrops).
MAX_IDS, MAX_ITEMS = 200_000, 2500
DEFAULT_LIMIT = 20

AsyncResponse = Awaitable[Response]


class GoogleReader:
    """Endpoints of the Google Reader API.

    The keys of `reads` and `writes` are paths under /reader/api/0/.
    """

    def __init__(self, site: AppServices) -> None:
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

    # --- authentication ---------------------------------------------------------------------------

    async def client_login(self, request: Request) -> Response:
        """Log in and return a response with the Auth token in three lines.

        NetNewsWire requires exactly one ``=`` per line; Vienna requires the second line.
        """
        if request.method == "OPTIONS":
            return preflight()
        try:
            params = await read_params(request)
            auth = await self.site.user_service.client_login(
                params.get("Email"), params.get("Passwd"), self.site.client_address(request)
            )
        except TidingsError as error:
            return text_response(
                "Error=BadAuthentication\n", http_status(error), retry_after_header(error)
            )
        if params.get("output") == "json":
            return json_response({"SID": auth, "LSID": "null", "Auth": auth})
        return text_response(f"SID={auth}\nLSID=null\nAuth={auth}\n")

    async def _user(self, request: Request, params: RequestParams) -> User | None:
        """Return the user of the Auth token in the Authorization header or the form field ``T``.

        Liferea sends only ``T`` with one of its requests.
        """
        match = re.fullmatch(
            r"\s*GoogleLogin\s+auth\s*=\s*(\S+)\s*",
            request.headers.get("authorization", ""),
            re.IGNORECASE,
        )
        if match:
            return await self.site.user_service.user_by_auth_token(match[1])
        auth = params.get("T").strip()
        return (
            await self.site.user_service.user_by_auth_token(auth)
            if auth and request.method == "POST"
            else None
        )

    async def _respond(
        self, request: Request, handler: Callable[[ReaderService, RequestParams], AsyncResponse]
    ) -> Response:
        """Authenticate the request, call the handler, and convert errors to text responses."""
        if request.method == "OPTIONS":
            return preflight()
        try:
            params = await read_params(request)
            user = await self._user(request, params)
            if user is None:
                headers = {"Google-Bad-Token": "true", "X-Reader-Google-Bad-Token": "true"}
                return text_response("Unauthorized\n", 401, headers)
            # The CSRF token ``T`` of a write is not verified: clients send it empty, as "x", with a
            # line end, or not at all. CSRF is not possible, because another site cannot make a
            # browser send the Authorization header.
            return await handler(self.site.reader_service(user), params)
        except TidingsError as error:
            return text_response(f"{error}\n", http_status(error), retry_after_header(error))

    async def call(self, request: Request) -> Response:
        name = request.path_params["call"].strip("/")
        write, read = self.writes.get(name), self.reads.get(name)
        if name.startswith("stream/contents/"):
            read = self.stream_contents

        async def handler(reader_service: ReaderService, params: RequestParams) -> Response:
            if write is not None:
                if request.method != "POST":
                    return text_response("Method not allowed; use POST\n", 405, {"Allow": "POST"})
                payload = await write(reader_service, params)
                return (
                    text_response(payload) if isinstance(payload, str) else json_response(payload)
                )
            return (
                text_response("Not found\n", 404)
                if read is None
                else await read(request, reader_service, params)
            )

        return await self._respond(request, handler)

    async def ping(self, request: Request) -> Response:
        return preflight() if request.method == "OPTIONS" else text_response("OK")

    # --- user, labels and subscriptions -----------------------------------------------------------

    async def user_info(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        user = reader_service.user
        return json_response(
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
        key = await self.site.user_service.signing_key("google reader token")
        return text_response(
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
        return conditional_response(
            request, json_response({"tags": [{"id": f"{STATE}starred"}, *labels]})
        )

    async def subscription_list(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        """Return the subscriptions of the user.

        newsboat requires every title, Liferea every url; Readrops accepts at most one category.
        """
        key = await self.site.user_service.signing_key("icons")
        base = str(request.base_url).rstrip("/")

        def subscription_json(s: Subscription) -> dict[str, Any]:
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
            request,
            json_response(
                {
                    "subscriptions": [
                        subscription_json(s) for s in await reader_service.subscriptions()
                    ]
                }
            ),
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
        return json_response({"max": total, "unreadcounts": rows})

    # --- streams ----------------------------------------------------------------------------------

    async def item_ids(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        """Return the ids of the items of a stream.

        Each reference has only the key ``id``, because Readrops rejects others.
        """
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
        return json_response(payload)

    async def item_count(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        stream = (await _streams(reader_service, params, _names(params))).stream(
            _names(params), params
        )
        return text_response(str(0 if stream is None else await reader_service.count(stream)))

    async def item_contents(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        items = await reader_service.items(entry_ids(params.all("i")))
        by_id, name = await _feeds_of(reader_service, items), f"{STATE}reading-list"
        return json_response(
            google_items.contents(items, by_id, name, "Reading list", self.site.clock(), None)
        )

    async def stream_contents(
        self, request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        name = request.path_params["call"].strip("/").removeprefix("stream/contents").lstrip("/")
        return json_response(
            google_items.contents(
                *await self._page(reader_service, params, [name] if name else _names(params))
            )
        )

    async def atom(self, request: Request) -> Response:
        async def handler(reader_service: ReaderService, params: RequestParams) -> Response:
            page = await self._page(reader_service, params, [request.path_params["stream"]])
            return Response(
                google_items.atom(*page), headers=CORS, media_type="application/atom+xml"
            )

        return await self._respond(request, handler)

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
        subscription = (await StreamResolver.load(reader_service)).subscription(params.get("s"))
        return text_response("true" if subscription else "false")

    # --- changes ----------------------------------------------------------------------------------

    async def edit_tag(self, reader_service: ReaderService, params: RequestParams) -> str:
        """Change the read and starred state or the tags of items.

        ``read`` has precedence over ``kept-unread``, because newsboat sends both with opposite
        meanings. Without items, the request creates an empty folder, as Readrops expects.
        """
        added, removed = params.all("a"), params.all("r")
        ids = entry_ids(params.all("i"))
        added_states = {state(name) for name in added}
        removed_states = {state(name) for name in removed}
        unread = False if "read" in added_states else True if "read" in removed_states else None
        if unread is None and "kept-unread" in added_states:
            unread = True
        elif unread is None and "kept-unread" in removed_states:
            unread = False
        starred = (
            True if "starred" in added_states else False if "starred" in removed_states else None
        )
        add_tags = [name for tag in added if (name := label(tag))]
        if not params.all("i"):
            for name in add_tags:
                await _ensure_folder(reader_service, name)
            return "OK"
        remove_tags = [name for tag in removed if (name := label(tag))]
        await reader_service.mark(
            ids, unread=unread, starred=starred, add_tags=add_tags, remove_tags=remove_tags
        )
        return "OK"

    async def mark_all_as_read(self, reader_service: ReaderService, params: RequestParams) -> str:
        """Mark the entries of a stream up to the time ``ts`` as read.

        The time is in s, ms, µs or ns; if it is missing or 0, all entries until now are marked. The
        stream ``s`` is required: without it, all entries would be marked by mistake.
        """
        if not _names(params):
            raise UsageError("mark-all-as-read requires the parameter s (stream)")
        stream = (await StreamResolver.load(reader_service)).stream(
            _names(params), RequestParams([])
        )
        ts = params.get("ts").strip("0") and params.get("ts")
        until = _seconds(ts) if ts.isascii() and ts.isdecimal() and len(ts) < 20 else None
        if stream is not None:
            await reader_service.mark_all_read(stream, until=until)
        return "OK"

    async def edit_subscription(self, reader_service: ReaderService, params: RequestParams) -> str:
        streams, titles = await StreamResolver.load(reader_service), params.all("t")
        new_folder = next((name for tag in params.all("a") if (name := label(tag))), None)
        removed_folders = {label(tag) for tag in params.all("r")}
        if new_folder and not params.all("s"):  # Read You creates an empty folder this way
            await _ensure_folder(reader_service, new_folder)
        for position, name in enumerate(params.all("s")):
            title = titles[position] if position < len(titles) else None
            subscription = streams.subscription(name)
            if subscription is None and params.get("ac") == "subscribe":
                url = canonical(name).removeprefix("feed/")
                await subscribe(reader_service, url, title or "", new_folder or "")
            elif subscription is None:
                raise NotFound(f"you are not subscribed to {name}")
            elif params.get("ac") == "unsubscribe":
                await reader_service.unsubscribe(subscription.feed.id)
            else:
                folder = new_folder
                if folder is None and subscription.folder in removed_folders:
                    folder = ""
                await reader_service.change(subscription.feed.id, title=title, folder=folder)
        return "OK"

    async def quickadd(
        self, reader_service: ReaderService, params: RequestParams
    ) -> dict[str, Any]:
        """Subscribe to a URL and return the result with status 200, even for an error.

        With another status, clients would not show the error message.
        """
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
        """Rename a folder, a tag, or both, if they have the name of the label."""
        name, new = label(params.get("s")), label(params.get("dest"))
        if not name or not new:
            raise UsageError("rename-tag requires the parameters s and dest (labels)")
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
        """Do nothing, for features of Google Reader that are not supported."""
        return "OK"


def _always(
    payload: dict[str, Any],
) -> Callable[[Request, ReaderService, RequestParams], AsyncResponse]:
    async def respond(
        request: Request, reader_service: ReaderService, params: RequestParams
    ) -> Response:
        return json_response(payload)

    return respond


def _names(params: RequestParams) -> list[str]:
    """Return the stream ids in the parameters ``s``.

    Fluent Reader and Inoreader clients send none, which stands for the reading list.
    """
    return [name for name in params.all("s") if name]


def _limit(params: RequestParams, maximum: int) -> int:
    return max(1, min(params.number("n") or DEFAULT_LIMIT, maximum))


def _seconds(digits: str) -> float:
    """Return a time in seconds from a time in s, ms, µs or ns, by its number of digits.

    Seconds have ten digits until the year 2286.
    """
    at = float(digits)
    return at / (
        1.0 if len(digits) < 12 else 1e3 if len(digits) < 15 else 1e6 if len(digits) < 18 else 1e9
    )


async def _labels(reader_service: ReaderService) -> list[Folder | Tag]:
    """Return folders and tags, without tags that have the name of a folder."""
    folders = await reader_service.folders()
    names = {folder.name for folder in folders}
    return [*folders, *(tag for tag in await reader_service.tags() if tag.name not in names)]


async def _label(reader_service: ReaderService, name: str) -> tuple[Folder | None, bool]:
    """Return the folder with the name of a label, and whether a tag has that name."""
    folder = next(
        (folder for folder in await reader_service.folders() if folder.name == name), None
    )
    return folder, any(tag.name == name for tag in await reader_service.tags())


async def _ensure_folder(reader_service: ReaderService, name: str) -> None:
    with suppress(AlreadyExists):
        await reader_service.add_folder(name)


async def _streams(
    reader_service: ReaderService, params: RequestParams, names: list[str]
) -> StreamResolver:
    """Return a resolver for these stream ids.

    An intersection (``it``) needs all subscriptions, to know which feeds are in a folder.
    """
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
