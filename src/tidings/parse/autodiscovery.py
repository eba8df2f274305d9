"""Feeds that a web page names: by `link` elements as it should be, or by plain links that look like feeds."""

import re
from typing import Literal
from urllib.parse import urljoin, urlsplit

from lxml import etree  # type: ignore[import-untyped]  # it has no types
from msgspec import Struct

Kind = Literal["rss", "atom", "json"]

#: Feeds are named in the head; nobody's head is longer.
_READ_BYTES = 1_000_000
_MAX_LINKS = 50
_KINDS: dict[str, Kind] = {
    "application/rss+xml": "rss",
    "application/rdf+xml": "rss",
    "application/xml": "rss",
    "text/xml": "rss",
    "application/x.atom+xml": "atom",
    "application/atom+xml": "atom",
    "application/feed+json": "json",
    "application/json": "json",
}
_PATHS = ("/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml", "/feed.json")
_FEED_PATH = re.compile(
    r"(?:[./_-]|^)(?:rss|atom|rdf|feeds?|feed\.json)(?:\.xml|\.php)?/?$|/index\.xml$", re.IGNORECASE
)
#: The beginning of a document that is a feed, whatever it is served as; comments and instructions may come first.
#: The groups are atomic: a thousand instructions are not tried in a thousand ways.
_FEED_START = re.compile(
    rb"^(?:\xef\xbb\xbf)?\s*(?>(?>(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[[^\]]*\])?\s*>)\s*)*)<(?:[a-z0-9]+:)?(?:rss|feed|rdf)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_JSON_FEED_START = re.compile(
    rb'^(?:\xef\xbb\xbf)?\s*\{.{0,4000}?"https?:\\?/\\?/(?:www\.)?jsonfeed\.org\\?/version',
    re.DOTALL,
)


class FeedLink(Struct, frozen=True):
    """A feed that a page names."""

    url: str
    title: str
    kind: Kind


def find_feeds(html: bytes, url: str) -> list[FeedLink]:
    """The feeds that a page at `url` names, the page's own order, each once; plain links count where no `link` names one."""
    page = _read(html[:_READ_BYTES])
    if page is None:
        return []
    base = _base(page, url)
    declared: dict[str, FeedLink] = {}
    for link in page.iter("link"):
        relations = (link.get("rel") or "").lower().split()
        media_type = (link.get("type") or "").partition(";")[0].strip().lower()
        kind = _KINDS.get(media_type)
        # WordPress names its REST API as an alternate of type application/json too.
        if media_type == "application/json" and "/wp-json/" in (link.get("href") or ""):
            kind = None
        if ("feed" in relations or "alternate" in relations) and (kind or "feed" in relations):
            _add_link(declared, link.get("href"), link.get("title") or "", kind or "rss", base)
    if declared:
        return list(declared.values())
    linked: dict[str, FeedLink] = {}
    for anchor in page.iter("a"):
        href = anchor.get("href") or ""
        path = _path(href)
        if path and _FEED_PATH.search(path):
            text = " ".join("".join(anchor.itertext()).split())
            kind = "atom" if "atom" in path.lower() else "json" if path.endswith(".json") else "rss"
            _add_link(linked, href, anchor.get("title") or text, kind, base)
    return list(linked.values())


def find_icon(html: bytes, url: str) -> str:
    """The address of the little picture that a page at `url` names, or nothing."""
    page = _read(html[:_READ_BYTES])
    for link in page.iter("link") if page is not None else ():
        href = (link.get("href") or "").strip()
        if "icon" in (link.get("rel") or "").lower().split() and href and not href.endswith(".svg"):
            address = _join(_base(page, url), href)
            if address.startswith(("http://", "https://")):
                return address
    return ""


def looks_like_feed(body: bytes) -> bool:
    """Whether a body served as text/html or text/plain is a feed all the same."""
    start = body[:10_000]
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        start = start.decode("utf-16", "ignore").encode()
    return bool(_FEED_START.match(start) or _JSON_FEED_START.match(start))


def common_paths(url: str) -> list[str]:
    """Where a site's feed may be when the page names none. Few: each is a request that its publisher did not ask for."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    folder = (
        parts.path.rpartition("/")[0]
        if "." in parts.path.rpartition("/")[2]
        else parts.path.rstrip("/")
    )
    places = [root + folder, root] if folder else [root]
    return [places[0] + path for path in _PATHS] + [place + _PATHS[0] for place in places[1:]]


def _path(href: str) -> str:
    """The path of an address, lenient: an address that cannot be split has none."""
    try:
        return urlsplit(href.strip()).path
    except ValueError:
        return ""


def _read(html: bytes) -> etree._Element | None:
    # A page that says nothing is UTF-8 far more often than Latin-1, which is libxml2's guess.
    try:
        html.decode()
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = None
    parser = etree.HTMLParser(no_network=True, recover=True, encoding=encoding)
    try:
        return etree.fromstring(html, parser)
    except etree.XMLSyntaxError:
        return None


def _base(page: etree._Element, url: str) -> str:
    for element in page.iter("base"):
        href = (element.get("href") or "").strip()
        if href:
            return _join(url, href) or url
    return url


def _add_link(
    found: dict[str, FeedLink], href: str | None, title: str, kind: Kind, base: str
) -> None:
    address = _join(base, href.strip()) if href and href.strip() else ""
    if address.startswith(("http://", "https://")) and len(found) < _MAX_LINKS:
        found.setdefault(address, FeedLink(address, " ".join(title.split()), kind))


def _join(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return ""
