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
from tidings.people import NotFound, Reading, Taken
from tidings.store.people_rows import Folder, IdPage, Item, Page, Subscription, Tag, User
from tidings.web.api import google_items
from tidings.web.api.desk import (
    CORS,
    Fields,
    fields,
    json,
    preflight,
    retry_after,
    status_of,
    subscribe,
    text,
    unless_known,
)
from tidings.web.api.google_streams import FIRST_ID, LABEL, STATE, Streams, canonical, entry_ids, label, state
from tidings.web.api.icons import icon_url
from tidings.web.visit import Site

#: What a client may ask for at once, in ids (RSS Guard asks for so many) and in whole items (Readrops); the rest is continued.
MOST_IDS, MOST_ITEMS = 200_000, 2500
USUAL = 20

Answer = Awaitable[Response]


class GoogleReader:
    """The calls, by the names that they have under ``/reader/api/0/``."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.reads: dict[str, Callable[[Request, Reading, Fields], Answer]] = {
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
        self.writes: dict[str, Callable[[Reading, Fields], Awaitable[str | dict[str, Any]]]] = {
            "edit-tag": self.edit_tag,
            "mark-all-as-read": self.mark_all_as_read,
            "subscription/edit": self.edit_subscription,
            "subscription/quickadd": self.quickadd,
            "subscription/import": self.import_opml,
            "import/opml": self.import_opml,
            "rename-tag": self.rename_tag,
            "disable-tag": self.disable_tag,
            **dict.fromkeys(("preference/set", "preference/stream/set", "friend/edit", "comment/edit"), self.nothing),
        }

    def routes(self) -> list[BaseRoute]:
        methods = ["GET", "POST", "OPTIONS"]
        return [
            Route("/{prefix:path}accounts/ClientLogin", self.client_login, methods=methods),
            Route("/{prefix:path}reader/api/0/{call:path}", self.call, methods=methods),
            Route("/{prefix:path}reader/atom/{stream:path}", self.atom, methods=["GET", "OPTIONS"]),
            Route("/{prefix:path}reader/subscriptions/export", self.call_export, methods=["GET", "OPTIONS"]),
            Route("/{prefix:path}reader/ping", self.here, methods=["GET"]),
            Route("/api/greader.php", self.here, methods=["GET", "OPTIONS"]),
            Route("/api/greader.php/", self.here, methods=["GET", "OPTIONS"]),
        ]

    # --- who asks ------------------------------------------------------------------------------------------------------

    async def client_login(self, request: Request) -> Response:
        """Three lines; NetNewsWire wants exactly one ``=`` in each, Vienna the second of them."""
        if request.method == "OPTIONS":
            return preflight()
        try:
            asked = await fields(request)
            auth = await self.site.people.client_login(asked.get("Email"), asked.get("Passwd"), self.site.address(request))
        except TidingsError as error:
            return text("Error=BadAuthentication\n", status_of(error), retry_after(error))
        if asked.get("output") == "json":
            return json({"SID": auth, "LSID": "null", "Auth": auth})
        return text(f"SID={auth}\nLSID=null\nAuth={auth}\n")

    async def _user(self, request: Request, asked: Fields) -> User | None:
        """By the header; or by the Auth token as ``T`` of a form, which is all that Liferea sends with one of its calls."""
        found = re.fullmatch(r"\s*GoogleLogin\s+auth\s*=\s*(\S+)\s*", request.headers.get("authorization", ""), re.IGNORECASE)
        if found:
            return await self.site.people.by_auth(found[1])
        given = asked.get("T").strip()
        return await self.site.people.by_auth(given) if given and request.method == "POST" else None

    async def _answer(self, request: Request, work: Callable[[Reading, Fields], Answer]) -> Response:
        if request.method == "OPTIONS":
            return preflight()
        try:
            asked = await fields(request)
            user = await self._user(request, asked)
            if user is None:
                bad = {"Google-Bad-Token": "true", "X-Reader-Google-Bad-Token": "true"}
                return text("Unauthorized\n", 401, bad)
            # ``T`` of a write needs no further proof: clients send it empty, as "x", with a line's end, or not at all, and no
            # other site can make a browser send the Authorization header.
            return await work(self.site.reading(user), asked)
        except TidingsError as error:
            return text(f"{error}\n", status_of(error), retry_after(error))

    async def call(self, request: Request) -> Response:
        name = request.path_params["call"].strip("/")
        write, read = self.writes.get(name), self.reads.get(name)
        if name.startswith("stream/contents/"):
            read = self.stream_contents

        async def work(reading: Reading, asked: Fields) -> Response:
            if write is not None:
                if request.method != "POST":
                    return text("POST is needed\n", 405, {"Allow": "POST"})
                told = await write(reading, asked)
                return text(told) if isinstance(told, str) else json(told)
            return text("Not found\n", 404) if read is None else await read(request, reading, asked)

        return await self._answer(request, work)

    async def here(self, request: Request) -> Response:
        return preflight() if request.method == "OPTIONS" else text("OK")

    # --- what there is -------------------------------------------------------------------------------------------------

    async def user_info(self, request: Request, reading: Reading, asked: Fields) -> Response:
        user = reading.user
        return json({"userId": str(user.id), "userName": user.name, "userProfileId": str(user.id), "userEmail": user.name})

    async def token(self, request: Request, reading: Reading, asked: Fields) -> Response:
        key = await self.site.people.key("google reader token")
        return text(hmac.digest(key, str(reading.user.id).encode(), "sha256").hex()[:57] + "\n")

    async def tag_list(self, request: Request, reading: Reading, asked: Fields) -> Response:
        labels = [
            {"id": LABEL + label.name, "type": "folder" if isinstance(label, Folder) else "tag", "unread_count": label.unread}
            for label in await _labels(reading)
        ]
        return unless_known(request, json({"tags": [{"id": f"{STATE}starred"}, *labels]}))

    async def subscription_list(self, request: Request, reading: Reading, asked: Fields) -> Response:
        """newsboat needs every title, Liferea every url; Readrops takes no more than one category."""
        key = await self.site.people.key("icons")
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

        return unless_known(request, json({"subscriptions": [one(s) for s in await reading.subscriptions()]}))

    async def export(self, request: Request, reading: Reading, asked: Fields) -> Response:
        return Response(await reading.export_opml(), headers=CORS, media_type="text/xml")

    async def call_export(self, request: Request) -> Response:
        return await self._answer(request, lambda reading, asked: self.export(request, reading, asked))

    async def unread_count(self, request: Request, reading: Reading, asked: Fields) -> Response:
        subscriptions = await reading.subscriptions()
        newest: dict[str, float] = {}
        counts: dict[str, int] = {f"feed/{s.feed.id}": s.unread for s in subscriptions}
        counts |= {LABEL + label.name: label.unread for label in await _labels(reading)}
        counts[f"{STATE}reading-list"] = total = sum(s.unread for s in subscriptions)
        for s in subscriptions:
            for name in (f"feed/{s.feed.id}", LABEL + s.folder, f"{STATE}reading-list"):
                newest[name] = max(newest.get(name, 0.0), s.newest_unread_at or 0.0)
        rows = [
            {"id": name, "count": count, "newestItemTimestampUsec": str(int(newest.get(name, 0.0) * 1e6))}
            for name, count in counts.items()
        ]
        return json({"max": total, "unreadcounts": rows})

    # --- streams -------------------------------------------------------------------------------------------------------

    async def item_ids(self, request: Request, reading: Reading, asked: Fields) -> Response:
        """Nothing but ``id`` in each reference: Readrops reads one key and then demands the end."""
        stream = (await _streams(reading, asked, _names(asked))).stream(_names(asked), asked)
        limit, after = _limit(asked, MOST_IDS), asked.get("c") or None
        page = IdPage((), None) if stream is None else await reading.ids(stream, limit=limit, after=after)
        told: dict[str, Any] = {"itemRefs": [{"id": str(i + FIRST_ID)} for i in page.ids]}
        if page.next is not None:
            told["continuation"] = page.next
        return json(told)

    async def item_count(self, request: Request, reading: Reading, asked: Fields) -> Response:
        stream = (await _streams(reading, asked, _names(asked))).stream(_names(asked), asked)
        return text(str(0 if stream is None else await reading.count(stream)))

    async def item_contents(self, request: Request, reading: Reading, asked: Fields) -> Response:
        items = await reading.items(entry_ids(asked.all("i")))
        by_id, name = await _feeds_of(reading, items), f"{STATE}reading-list"
        return json(google_items.contents(items, by_id, name, "Reading list", self.site.clock(), None))

    async def stream_contents(self, request: Request, reading: Reading, asked: Fields) -> Response:
        name = request.path_params["call"].strip("/").removeprefix("stream/contents").lstrip("/")
        return json(google_items.contents(*await self._page(reading, asked, [name] if name else _names(asked))))

    async def atom(self, request: Request) -> Response:
        async def work(reading: Reading, asked: Fields) -> Response:
            page = await self._page(reading, asked, [request.path_params["stream"]])
            return Response(google_items.atom(*page), headers=CORS, media_type="application/atom+xml")

        return await self._answer(request, work)

    async def _page(
        self, reading: Reading, asked: Fields, names: list[str]
    ) -> tuple[tuple[Any, ...], dict[int, Subscription], str, str, float, str | None]:
        streams = await _streams(reading, asked, names)
        stream = streams.stream(names, asked)
        limit, after = _limit(asked, MOST_ITEMS), asked.get("c") or None
        page = Page((), None) if stream is None else await reading.page(stream, limit=limit, after=after)
        name = canonical(names[0]) if names else f"{STATE}reading-list"
        subscription = streams.subscription(name) if name.startswith("feed/") else None
        title = subscription.title if subscription else label(name) or (state(name) or name).replace("-", " ").capitalize()
        return page.items, await _feeds_of(reading, page.items), name, title, self.site.clock(), page.next

    async def subscribed(self, request: Request, reading: Reading, asked: Fields) -> Response:
        found = (await Streams.of(reading)).subscription(asked.get("s"))
        return text("true" if found else "false")

    # --- changes -------------------------------------------------------------------------------------------------------

    async def edit_tag(self, reading: Reading, asked: Fields) -> str:
        """``read`` is looked at before ``kept-unread``, which newsboat sends along with its opposite."""
        added, removed = asked.all("a"), asked.all("r")
        ids = entry_ids(asked.all("i"))
        to, off = {state(name) for name in added}, {state(name) for name in removed}
        unread = False if "read" in to else True if "read" in off else None
        if unread is None:
            unread = True if "kept-unread" in to else False if "kept-unread" in off else None
        starred = True if "starred" in to else False if "starred" in off else None
        names = [name for tag in added if (name := label(tag))]
        if not asked.all("i"):
            for name in names:  # Readrops makes an empty folder so
                await _folder(reading, name)
            return "OK"
        gone = [name for tag in removed if (name := label(tag))]
        await reading.mark(ids, unread=unread, starred=starred, add_tags=names, remove_tags=gone)
        return "OK"

    async def mark_all_as_read(self, reading: Reading, asked: Fields) -> str:
        """newsboat tells no time, which means now, as 0 does; others tell it in seconds, milli-, micro- or nanoseconds.

        Of which stream has to be said: everything is more than a client can have meant by nothing.
        """
        if not _names(asked):
            raise UsageError("mark-all-as-read needs the stream s")
        stream = (await Streams.of(reading)).stream(_names(asked), Fields([]))
        told = asked.get("ts").strip("0") and asked.get("ts")
        until = _seconds(told) if told.isascii() and told.isdecimal() and len(told) < 20 else None
        if stream is not None:
            await reading.mark_all_read(stream, until=until)
        return "OK"

    async def edit_subscription(self, reading: Reading, asked: Fields) -> str:
        streams, titles = await Streams.of(reading), asked.all("t")
        to = next((name for tag in asked.all("a") if (name := label(tag))), None)
        off = {label(tag) for tag in asked.all("r")}
        if to and not asked.all("s"):  # Read You makes an empty folder so
            await _folder(reading, to)
        for position, name in enumerate(asked.all("s")):
            title = titles[position] if position < len(titles) else None
            found = streams.subscription(name)
            if found is None and asked.get("ac") == "subscribe":
                await subscribe(reading, canonical(name).removeprefix("feed/"), title or "", to or "")
            elif found is None:
                raise NotFound(f"there is no {name} among your subscriptions")
            elif asked.get("ac") == "unsubscribe":
                await reading.unsubscribe(found.feed.id)
            else:
                folder = to if to is not None else "" if found.folder in off else None
                await reading.change(found.feed.id, title=title, folder=folder)
        return "OK"

    async def quickadd(self, reading: Reading, asked: Fields) -> dict[str, Any]:
        """A failure is told in a good answer: clients show its words."""
        url = canonical(asked.get("quickadd")).removeprefix("feed/")
        try:
            subscription, _ = await subscribe(reading, url)
        except TidingsError as error:
            return {"query": url, "numResults": 0, "error": str(error)}
        name = f"feed/{subscription.feed.id}"
        return {"query": url, "numResults": 1, "streamId": name, "streamName": subscription.title}

    async def import_opml(self, reading: Reading, asked: Fields) -> str:
        await reading.import_opml(asked.get("opml").encode() or asked.raw)
        return "OK"

    async def rename_tag(self, reading: Reading, asked: Fields) -> str:
        """A label may be a folder, a tag, or both."""
        name, new = label(asked.get("s")), label(asked.get("dest"))
        if not name or not new:
            raise UsageError("rename-tag needs the labels s and dest")
        folder, is_tag = await _label(reading, name)
        if folder is not None:
            await reading.rename_folder(folder.id, new)
        if is_tag:
            await reading.rename_tag(name, new)
        return "OK"

    async def disable_tag(self, reading: Reading, asked: Fields) -> str:
        for name in filter(None, map(label, [*asked.all("s"), *(LABEL + t for t in asked.all("t"))])):
            folder, is_tag = await _label(reading, name)
            if folder is not None:
                await reading.remove_folder(folder.id)
            if is_tag:
                await reading.remove_tag(name)
        return "OK"

    async def nothing(self, reading: Reading, asked: Fields) -> str:
        """What Google had and nobody else has."""
        return "OK"


def _always(told: dict[str, Any]) -> Callable[[Request, Reading, Fields], Answer]:
    async def answer(request: Request, reading: Reading, asked: Fields) -> Response:
        return json(told)

    return answer


def _names(asked: Fields) -> list[str]:
    """No stream named means the whole reading list (Fluent Reader, Inoreader's clients)."""
    return [name for name in asked.all("s") if name]


def _limit(asked: Fields, most: int) -> int:
    return max(1, min(asked.number("n") or USUAL, most))


def _seconds(digits: str) -> float:
    """By magnitude: ten digits are seconds until the year 2286."""
    at = float(digits)
    return at / (1.0 if len(digits) < 12 else 1e3 if len(digits) < 15 else 1e6 if len(digits) < 18 else 1e9)


async def _labels(reading: Reading) -> list[Folder | Tag]:
    """A label is a folder before it is a tag."""
    folders = await reading.folders()
    taken = {folder.name for folder in folders}
    return [*folders, *(tag for tag in await reading.tags() if tag.name not in taken)]


async def _label(reading: Reading, name: str) -> tuple[Folder | None, bool]:
    folder = next((folder for folder in await reading.folders() if folder.name == name), None)
    return folder, any(tag.name == name for tag in await reading.tags())


async def _folder(reading: Reading, name: str) -> None:
    with suppress(Taken):
        await reading.add_folder(name)


async def _streams(reading: Reading, asked: Fields, names: list[str]) -> Streams:
    """For a look at these names. An intersection may need to know which feeds are in a folder."""
    return await Streams.of(reading, None if asked.all("it") else [*names, *asked.all("xt")])


async def _feeds_of(reading: Reading, items: Iterable[Item]) -> dict[int, Subscription]:
    return {s.feed.id: s for s in await reading.subscriptions({item.entry.feed_id for item in items})}
