"""Publish a folder, feed, tag or saved search of a user as Atom, RSS or JSON Feed.

Each output feed has a secret link with an HMAC signature of user, view and the user's reset
counter. Links need no login and no stored tokens; raising the counter invalidates all links of the
user. Conditional requests (ETag, If-Modified-Since) get 304, or with ``A-IM: feed`` only new
entries (delta encoding, RFC 3229), which saves most of the traffic (Sia & Cho sect. 4.6).
"""

import hmac
import re
from datetime import UTC, datetime
from email.utils import formatdate, parsedate_to_datetime
from hashlib import blake2b
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from lxml import etree  # type: ignore[import-untyped]  # has no type annotations
from lxml.builder import ElementMaker  # type: ignore[import-untyped]  # has no type annotations
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings.document import Enclosure
from tidings.exchange.announce import peers_element
from tidings.i18n import _
from tidings.parse.opml import xml_safe
from tidings.store.user_models import Item, User
from tidings.users import NotFound
from tidings.web import templating, views
from tidings.web.request_context import AppServices, RequestContext
from tidings.web.uri_cleanup import clean_uri, media_type
from tidings.web.views import View

ATOM, DC, CONTENT = (
    "http://www.w3.org/2005/Atom",
    "http://purl.org/dc/elements/1.1/",
    "http://purl.org/rss/1.0/modules/content/",
)
MEDIA_TYPES = {
    "atom": "application/atom+xml",
    "rss": "application/rss+xml",
    "json": "application/feed+json",
}
_TITLE = re.compile(rb"<title>[^<]*")
MAX_ENTRIES = 50
SIGNATURE_LENGTH = 26
#: Views sorted by arrival. Delta encoding works only for these views, because there the entries
#: after the client's last id are new.
ARRIVAL_ORDERED_VIEWS = ("all", "unread", "feed", "folder", "saved")


class Document(Struct, frozen=True):
    """Content of an output feed at the time of a request."""

    view: View
    items: tuple[Item, ...]
    titles: dict[int, str]
    self_url: str
    base: str
    created_at: float  #: modification time of a feed without entries
    peers: tuple[str, ...] = ()  #: addresses of exchange nodes, announced in the feed

    @property
    def changed_at(self) -> float:
        return max((_modified_at(item) for item in self.items), default=self.created_at)

    @property
    def etag(self) -> str:
        """ETag ``"<last id>-<last change>-<digest>"``, which delta requests send back."""
        last = max((item.entry.id for item in self.items), default=0)
        ids = ",".join(str(item.entry.id) for item in self.items)
        digest = blake2b(ids.encode(), digest_size=6).hexdigest()
        return f'"{last}-{self.changed_at * 1000:.0f}-{digest}"'


def _modified_at(item: Item) -> float:
    return max(item.entry.first_seen_at, item.entry.changed_at or 0.0, item.starred_at or 0.0)


# --- links ----------------------------------------------------------------------------------------


async def feed_path(services: AppServices, user: User, view: str) -> str:
    """Return the secret path of a view's output feed, without the file extension."""
    settings = await services.user_service.settings(user)
    signature = hmac.digest(
        await services.key("output"), f"{user.id}:{settings.renewals}:{view}".encode(), "sha256"
    ).hex()[:SIGNATURE_LENGTH]
    return f"/out/{user.id}/{signature}/{quote(view)}"


async def feed_paths(context: RequestContext) -> list[tuple[str, str]]:
    """Return the title and path of each output feed of the user."""
    reader_service = context.reader_service
    names = [("all", ""), ("unread", ""), ("starred", "")]
    names += [(f"folder/{folder.id}", folder.name) for folder in await reader_service.folders()]
    names += [(f"tag/{tag.name}", tag.name) for tag in await reader_service.tags()]
    names += [(f"saved/{saved.id}", saved.name) for saved in await reader_service.saved_searches()]
    return [
        (
            title or (await views.find(reader_service, name)).title,
            await feed_path(context.services, context.user, name),
        )
        for name, title in names
    ]


async def rotate_links(context: RequestContext) -> None:
    """Invalidate all output feed links of the user by raising the counter in their signature."""
    settings = await context.settings()
    await context.services.user_service.save_settings(
        context.user, replace(settings, renewals=settings.renewals + 1)
    )


async def find(services: AppServices, path: str, base: str) -> tuple[Document, str]:
    """Return the output feed at a path and its format; raise `NotFound` for an invalid link."""
    stem, _dot, kind = path.rpartition(".")
    user_id, _slash, rest = stem.removeprefix("/out/").partition("/")
    _signature, _slash, view_name = rest.partition("/")
    known = user_id.isascii() and user_id.isdecimal() and len(user_id) < 10 and kind in MEDIA_TYPES
    user = await services.user_service.find_user(int(user_id)) if known else None
    if user is None or not hmac.compare_digest(
        quote(stem).encode(), (await feed_path(services, user, view_name)).encode()
    ):
        raise NotFound(_("this feed does not exist"))
    reader_service = services.reader_service(user)
    view = await views.find(reader_service, view_name)
    stream = replace(
        view.stream, unread=True if view.only_unread else None, by="arrival", oldest_first=False
    )
    items = (await reader_service.page(stream, limit=MAX_ENTRIES)).items
    titles = await reader_service.titles(item.entry.feed_id for item in items)
    peers = (
        tuple(services.peer_exchange.public_nodes()) if services.peer_exchange is not None else ()
    )
    return Document(
        view, items, titles, base + quote(path), base, user.created_at or services.clock(), peers
    ), kind


# --- HTTP responses -------------------------------------------------------------------------------


def routes(services: AppServices) -> list[BaseRoute]:
    async def answer(request: Request) -> Response:
        try:
            document, kind = await find(services, request.url.path, services.base(request))
        except NotFound:
            return Response(
                _("This feed does not exist.") + "\n",
                HTTPStatus.NOT_FOUND,
                media_type="text/plain",
            )
        # HTTP dates have whole seconds. An entry that arrives later within this second must not be
        # hidden by a 304, so Last-Modified is at most the previous second.
        modified = min(int(document.changed_at), int(services.clock()) - 1)
        headers = {
            "etag": document.etag,
            "last-modified": formatdate(modified, usegmt=True),
            "vary": "A-IM, If-None-Match, If-Modified-Since",
            "cache-control": "private, no-cache",
            "link": f'<{document.base}/hub>; rel="hub", <{document.self_url}>; rel="self"',
        }
        delta = _negotiate_delta(request, document)
        if delta is document:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if delta is not None and len(delta.items) < len(document.items):
            headers |= {"im": "feed", "cache-control": "no-store, im"}
            return Response(write(delta, kind), HTTPStatus.IM_USED, headers, MEDIA_TYPES[kind])
        return Response(write(document, kind), headers=headers, media_type=MEDIA_TYPES[kind])

    return [Route("/out/{path:path}", answer, methods=["GET"])]


def _negotiate_delta(request: Request, document: Document) -> Document | None:
    """Return the part of an output feed that a conditional request needs (RFC 3229).

    The result is the document itself if the client has it (304), a document with only the new
    entries if the client accepts delta encoding (``A-IM: feed``), else None (full document). The
    client states what it has by ETag or date.
    """
    etags = [
        etag.strip().removeprefix("W/")
        for etag in request.headers.get("if-none-match", "").split(",")
        if etag.strip()
    ]
    if document.etag in etags:
        return document
    accepts_delta = "feed" in [
        part.partition(";")[0].strip() for part in request.headers.get("a-im", "").split(",")
    ]
    by_arrival = document.view.name.partition("/")[0] in ARRIVAL_ORDERED_VIEWS
    if etags:
        last, _dash, rest = etags[-1].strip('"').partition("-")
        changed = rest.partition("-")[0]
        if not (accepts_delta and by_arrival and last.isdecimal() and changed.isdecimal()):
            return None
        return _newer(
            document,
            lambda item: (
                item.entry.id > int(last) or _modified_at(item) * 1000 > float(changed) + 0.5
            ),
        )
    try:
        since = parsedate_to_datetime(request.headers["if-modified-since"]).timestamp()
    except (KeyError, ValueError):
        return None
    if int(document.changed_at) <= since:
        return document
    if not (accepts_delta and by_arrival):
        return None
    return _newer(document, lambda item: _modified_at(item) > since)


def _newer(document: Document, is_new: Any) -> Document:
    return replace(document, items=tuple(item for item in document.items if is_new(item)))


# --- formats --------------------------------------------------------------------------------------


def write(document: Document, kind: str) -> bytes:
    """Return an output feed as bytes in the format ``atom``, ``rss`` or ``json``."""
    if kind == "json":
        return msgspec.json.encode(_json(document))
    root = _atom(document) if kind == "atom" else _rss(document)
    if (peers := peers_element(document.peers)) is not None:
        (root if kind == "atom" else root[0]).append(peers)
    result = bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8"))
    return result if kind == "atom" else _TITLE.sub(_as_plain, result)


def _as_plain(title: re.Match[bytes]) -> bytes:
    """Escape an RSS title so that it is read as plain text (RSS Advisory Board profile)."""
    return title[0].replace(b"&amp;", b"&#x26;").replace(b"&lt;", b"&#x3C;")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _title(document: Document) -> str:
    return f"{document.view.title} – tidings"


def _home(document: Document) -> str:
    return document.base + document.view.path


def _id(document: Document, item: Item) -> str:
    return f"{document.base}/entry/{item.entry.id}"


def _html(item: Item) -> str:
    return item.entry.content or item.entry.summary


def _link(document: Document, item: Item) -> str:
    return clean_uri(item.entry.url) or _id(document, item)


def _atom(document: Document) -> Any:
    a = ElementMaker(namespace=ATOM, nsmap={None: ATOM})
    root = a.feed(
        a.id(document.self_url),
        a.title(xml_safe(_title(document))),
        a.updated(_iso(document.changed_at)),
        a.link(rel="self", href=document.self_url, type=MEDIA_TYPES["atom"]),
        a.link(rel="hub", href=f"{document.base}/hub"),
        a.link(rel="alternate", href=_home(document), type="text/html"),
        a.author(a.name("tidings")),
    )
    for item in document.items:
        entry = item.entry
        source = document.titles.get(entry.feed_id, "")
        element = a.entry(
            a.id(_id(document, item)),
            a.title(xml_safe(templating.title(item))),
            a.published(_iso(entry.published_at)),
            a.updated(_iso(entry.updated_at or entry.changed_at or entry.published_at)),
            a.link(rel="alternate", href=_link(document, item)),
            a.author(a.name(xml_safe(entry.author or source) or "unknown")),
        )
        if _html(item):
            element.append(a.content(xml_safe(_html(item)), type="html"))
        element.extend(
            a.category(term=xml_safe(tag)) for tag in dict.fromkeys((*entry.tags, *item.tags))
        )
        element.extend(
            _enclosure(a.link, "href", file, rel="enclosure") for file in entry.enclosures
        )
        root.append(element)
    return root


def _enclosure(make: Any, url_attribute: str, file: Enclosure, **attributes: str) -> Any:
    attributes |= {url_attribute: clean_uri(file.url), "length": str(file.length or 0)}
    return make(**attributes, type=media_type(file))


def _rss(document: Document) -> Any:
    e = ElementMaker(nsmap={"atom": ATOM, "dc": DC, "content": CONTENT})
    channel = e.channel(
        e.title(xml_safe(_title(document))),
        e.link(_home(document)),
        e.description(_("Posts collected by tidings")),
        e.lastBuildDate(formatdate(document.changed_at, usegmt=True)),
        e(f"{{{ATOM}}}link", rel="self", href=document.self_url, type=MEDIA_TYPES["rss"]),
        e(f"{{{ATOM}}}link", rel="hub", href=f"{document.base}/hub"),
    )
    for item in document.items:
        entry = item.entry
        element = e.item(
            e.title(xml_safe(templating.title(item))),
            e.link(_link(document, item)),
            e.guid(_id(document, item), isPermaLink="false"),
            e.pubDate(formatdate(entry.published_at, usegmt=True)),
            e(
                f"{{{DC}}}creator",
                xml_safe(entry.author or document.titles.get(entry.feed_id, "")) or "unknown",
            ),
        )
        if _html(item):
            element.append(e.description(xml_safe(_html(item))))
        element.extend(
            e.category(xml_safe(tag)) for tag in dict.fromkeys((*entry.tags, *item.tags))
        )
        files = [
            file for file in entry.enclosures if file.url.startswith(("http://", "https://"))
        ]  # RSS allows only http and https
        element.extend(_enclosure(e.enclosure, "url", file) for file in files[:1])
        channel.append(element)
    return e.rss(channel, version="2.0")


def _json(document: Document) -> dict[str, Any]:
    return {
        "version": "https://jsonfeed.org/version/1.1",
        "title": _title(document),
        "home_page_url": _home(document),
        "feed_url": document.self_url,
        "hubs": [{"type": "WebSub", "url": f"{document.base}/hub"}],
        "items": [_json_item(document, item) for item in document.items],
    }


def _json_item(document: Document, item: Item) -> dict[str, Any]:
    entry = item.entry
    result: dict[str, Any] = {
        "id": _id(document, item),
        "url": _link(document, item),
        "title": templating.title(item),
        "content_html": _html(item),
        "date_published": _iso(entry.published_at),
        "tags": list(dict.fromkeys((*entry.tags, *item.tags))),
    }
    if author := entry.author or document.titles.get(entry.feed_id, ""):
        result["authors"] = [{"name": author}]
    if entry.updated_at is not None:
        result["date_modified"] = _iso(entry.updated_at)
    if entry.enclosures:
        result["attachments"] = [
            {"url": clean_uri(file.url), "mime_type": media_type(file)}
            | ({"size_in_bytes": file.length} if file.length else {})
            for file in entry.enclosures
        ]
    return result
