"""Autodiscovery of the feeds and the icon to which a web page links."""

import re
from typing import Literal
from urllib.parse import urljoin, urlsplit

from lxml import etree  # type: ignore[import-untyped]  # it has no types
from msgspec import Struct

Kind = Literal["rss", "atom", "json"]

#: Maximum number of bytes of a page that are parsed. Feeds are linked in the head of the page,
#: which is never longer.
_MAX_PARSED_BYTES = 1_000_000
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
#: Common paths of feeds, which are tried on sites without feed links.
_PATHS = ("/feed", "/feed.xml", "/rss.xml", "/atom.xml", "/index.xml", "/feed.json")
_FEED_PATH = re.compile(
    r"(?:[./_-]|^)(?:rss|atom|rdf|feeds?|feed\.json)(?:\.xml|\.php)?/?$|/index\.xml$", re.IGNORECASE
)
#: Pattern for the start of an XML feed, after comments, processing instructions and a doctype. The
#: groups are atomic, which prevents catastrophic backtracking.
_FEED_START = re.compile(
    rb"^(?:\xef\xbb\xbf)?\s*"
    rb"(?>(?>(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[[^\]]*\])?\s*>)\s*)*)"
    rb"<(?:[a-z0-9]+:)?(?:rss|feed|rdf)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
_JSON_FEED_START = re.compile(
    rb'^(?:\xef\xbb\xbf)?\s*\{.{0,4000}?"https?:\\?/\\?/(?:www\.)?jsonfeed\.org\\?/version',
    re.DOTALL,
)


class FeedLink(Struct, frozen=True):
    """Link to a feed on a web page."""

    url: str
    title: str
    kind: Kind


def find_feeds(html: bytes, url: str) -> list[FeedLink]:
    """Return the feeds to which the page at `url` links, in page order and without duplicates.

    Ordinary links that look like feeds are used only if there is no `link` element for a feed.
    """
    page = _parse_html(html[:_MAX_PARSED_BYTES])
    if page is None:
        return []
    base = _base(page, url)
    declared: dict[str, FeedLink] = {}
    for link in page.iter("link"):
        relations = (link.get("rel") or "").lower().split()
        media_type = (link.get("type") or "").partition(";")[0].strip().lower()
        kind = _KINDS.get(media_type)
        # WordPress also declares its REST API as an alternate of type application/json.
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
    """Return the URL of the icon to which the page at `url` links, or an empty string."""
    page = _parse_html(html[:_MAX_PARSED_BYTES])
    for link in page.iter("link") if page is not None else ():
        href = (link.get("href") or "").strip()
        if "icon" in (link.get("rel") or "").lower().split() and href and not href.endswith(".svg"):
            icon_url = _join(_base(page, url), href)
            if icon_url.startswith(("http://", "https://")):
                return icon_url
    return ""


def looks_like_feed(body: bytes) -> bool:
    """Return whether a body starts like a feed, regardless of its Content-Type."""
    start = body[:10_000]
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        start = start.decode("utf-16", "ignore").encode()
    return bool(_FEED_START.match(start) or _JSON_FEED_START.match(start))


def common_paths(url: str) -> list[str]:
    """Return common feed URLs to try for a site whose page links to no feed.

    The list is short, because each URL costs the publisher a request.
    """
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    folder = (
        parts.path.rpartition("/")[0]
        if "." in parts.path.rpartition("/")[2]
        else parts.path.rstrip("/")
    )
    bases = [root + folder, root] if folder else [root]
    return [bases[0] + path for path in _PATHS] + [base + _PATHS[0] for base in bases[1:]]


def _path(href: str) -> str:
    """Return the path of a URL, or an empty string if the URL is invalid."""
    try:
        return urlsplit(href.strip()).path
    except ValueError:
        return ""


def _parse_html(html: bytes) -> etree._Element | None:
    # Without a declared encoding libxml2 assumes Latin-1, but most such pages are UTF-8.
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
    links: dict[str, FeedLink], href: str | None, title: str, kind: Kind, base: str
) -> None:
    url = _join(base, href.strip()) if href and href.strip() else ""
    if url.startswith(("http://", "https://")) and len(links) < _MAX_LINKS:
        links.setdefault(url, FeedLink(url, " ".join(title.split()), kind))


def _join(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return ""
