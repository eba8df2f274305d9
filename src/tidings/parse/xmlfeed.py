"""Parser for XML feeds (RSS 0.9x, 1.0, 1.1 and 2.0, Atom 0.3 and 1.0).

There is one parser for all formats, because real feeds mix them (Atom links or Dublin Core in RSS).
"""

import re
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import islice

from tidings.document import Document, Enclosure, Entry, Links
from tidings.parse.dates import ParsedDate, parse_date
from tidings.parse.elements import (
    RDF,
    XML_BASE,
    XML_LANG,
    Children,
    TagNames,
    absolute_url,
    atom_html,
    atom_text,
    element_text,
    first,
    first_text,
    inner_html,
    resolve_xml_base,
    rss_text,
    text_to_html,
)
from tidings.parse.entry_identity import MAX_ENTRIES, make_entry
from tidings.parse.hints import parse_hints
from tidings.parse.sanitize import plain_text
from tidings.parse.xml_tree import Element

_EMAIL_AND_NAME = re.compile(r"[^\s()<>]+@[^\s()<>]+\s*\((.+)\)$")
_NAME_AND_EMAIL = re.compile(r"(.+?)\s*[(<\[]\s*(?:mailto:)?[^\s()<>]+@[^\s()<>]+\s*[)>\]]$")
_AUTHOR_SEPARATOR = re.compile(r"(?<=[)>])\s*[,;]\s*")
_MAX_NAME_LENGTH = 300
_PAGED = re.compile(r"[?&]paged=([0-9]{1,6})(?![^&])")
_MAX_PEERS = 30
_FORMATS = {
    "http://www.w3.org/2005/Atom": "atom 1.0",
    "http://purl.org/atom/ns#": "atom 0.3",
    "http://my.netscape.com/rdf/simple/0.9/": "rdf 0.90",
    "http://channel.netscape.com/rdf/simple/0.9/": "rdf 0.90",
}
_PUBLISHED = (
    "pubdate",
    "published",
    "issued",
    "dcterms:issued",
    "atom:published",
    "dc:date",
    "created",
    "dcterms:created",
)
_UPDATED = ("updated", "modified", "atom:updated", "dcterms:modified", "dc:date")
_DESCRIPTION = (
    "description",
    "subtitle",
    "tagline",
    "dc:description",
    "itunes:subtitle",
    "itunes:summary",
    "abstract",
)

_AUTHORS = (
    "author",
    "atom:author",
    "dc:creator",
    "itunes:author",
    "dc:author",
    "managingeditor",
    "webmaster",
)
_ALTERNATE = ("alternate", "http://www.iana.org/assignments/relation/alternate")
_PAGES = ("text/html", "application/xhtml+xml", "html")
_RSS_CONTENT = ("content:encoded", "encoded", "xhtml:body", "xhtml:div", "body", "fullitem")


def is_feed(root: Element) -> bool:
    """Return whether an element is the root of a feed."""
    return root.tag.rpartition("}")[2].rpartition(":")[2].lower() in (
        "rss",
        "feed",
        "rdf",
        "channel",
    )


def parse_feed(root: Element, url: str, *, repaired: bool) -> Document:
    """Convert an XML tree with a feed root (see `is_feed`) to a document."""
    return _FeedParser(root, url).document(repaired=repaired)


class _FeedParser:
    """Parser of one document, with its tag names, its URL and its kind."""

    def __init__(self, root: Element, url: str) -> None:
        self.root, self.url = root, url
        self.names = TagNames(root)
        self.kind = root.tag.rpartition("}")[2].rpartition(":")[2].lower()
        self.is_atom = self.kind == "feed"
        self.text = atom_text if self.is_atom else rss_text
        self.has_bases = bool(root.xpath("boolean(//@xml:base)"))

    def document(self, *, repaired: bool) -> Document:
        top = self.names.children(self.root)
        channel = first(top, "channel")
        if channel is None or self.is_atom:
            channel = self.root
        feed = top if channel is self.root else self.names.children(channel)
        base = self.base(channel)
        self.feed_author = self.author(feed) if self.is_atom else ""
        language = (
            first_text(feed, "language", "dc:language")
            or channel.get(XML_LANG)
            or self.root.get(XML_LANG)
            or ""
        )
        return Document(
            format=self.format(top),
            title=self.text(first(feed, "title")) or rss_text(first(feed, "dc:title")),
            description=self.text(first(feed, *_DESCRIPTION)),
            author=self.author(feed),
            language=language.replace("_", "-"),
            icon_url=absolute_url(self.icon(feed, top), base),
            entries=tuple(self.entry(item) for item in islice(self.items(top, feed), MAX_ENTRIES)),
            hints=parse_hints(feed),
            links=self.links(channel, feed, base),
            archive="fh:archive" in feed,
            complete="fh:complete" in feed,
            repaired=repaired,
        )

    def icon(self, feed: Children, top: Children) -> str:
        if text := first_text(feed, "icon", "logo", "atom:icon", "atom:logo"):
            return text
        for image in (*feed.get("image", ()), *top.get("image", ())):
            if text := first_text(self.names.children(image), "url"):
                return text
        itunes_image = first(feed, "itunes:image")
        return (
            ""
            if itunes_image is None
            else itunes_image.get("href") or itunes_image.get("url") or ""
        )

    def format(self, top: Children) -> str:
        namespace = self.names.root_namespace
        if self.is_atom:
            return _FORMATS.get(namespace, f"atom {self.root.get('version') or '1.0'}")
        if self.kind == "rdf":
            inner = next((el.tag for name in ("channel", "item") for el in top.get(name, ())), "")
            return _FORMATS.get(inner.rpartition("}")[0][1:], "rdf 1.0")
        return f"rss {self.root.get('version') or ''}".strip()

    def items(self, top: Children, feed: Children) -> Iterator[Element]:
        """Return the items in the channel or next to it (RSS 0.9 and 1.0).

        If there are none, items anywhere in the document are returned.
        """
        name = "entry" if self.is_atom else "item"
        items = feed.get(name, []) if feed is top else [*feed.get(name, ()), *top.get(name, ())]
        for group in feed.get("items", ()):  # RSS 1.1
            items = [*items, *self.names.children(group).get(name, ())]
        return iter(items or self.root.iter("item", "entry", "{*}item", "{*}entry"))

    def base(self, element: Element) -> str:
        return resolve_xml_base(element, self.url) if self.has_bases else self.url

    def entry(self, item: Element) -> Entry:
        parts = self.names.children(item)
        base = self.base(item)
        guid = first(parts, "guid", "id", "atom:id")
        id = element_text(guid) or item.get(RDF + "about") or first_text(parts, "dc:identifier")
        if self.has_bases and "id" in parts:
            # The id is not resolved against the document's URL, which may change.
            id = absolute_url(id, resolve_xml_base(guid, ""))
        url = self.page(item, parts, base)
        if not url and guid is not None and self.is_permalink(guid):
            url = absolute_url(element_text(guid), base)
        content, content_base = self.content(parts, base)
        summary, summary_base = self.summary(parts, base)
        # Without xml:base, URLs in the text are in practice relative to the entry's page.
        text_base = content_base if content else summary_base
        if text_base == self.url and not self.has_bases and url.startswith(("http://", "https://")):
            text_base = url
        comments = first_text(parts, "comments") or first_text(
            parts, "wfw:comment", "wfw:commentrss"
        )
        return make_entry(
            id=id,
            url=url,
            title=self.text(first(parts, "title"))
            or rss_text(first(parts, "atom:title", "dc:title", "itunes:title", "media:title")),
            author=self.author(parts) or self.inherited_author(parts),
            content=content,
            summary=summary,
            base_url=text_base,
            published=_date(parts, _PUBLISHED),
            updated=_date(parts, _UPDATED) or parse_date(item.get("LASTMOD") or ""),
            tags=self.tags(parts),
            enclosures=self.enclosures(parts, base),
            comments_url=absolute_url(comments, base) or self.related(parts, base, "replies"),
        )

    def is_permalink(self, guid: Element) -> bool:
        """Return whether a guid or id is the URL of the entry's page.

        In RSS 2.0 it is, unless isPermaLink is "false". Many feeds omit the attribute, so the form
        of the guid is checked too. Atom has no such rule, but an id with http is usually the page.
        """
        text = element_text(guid)
        if guid.get("isPermaLink", "true").strip().lower() == "false":
            return False
        return text.startswith(("http://", "https://")) or (
            guid.get("isPermaLink") is not None and ":" not in text
        )

    def page(self, element: Element, parts: Children, base: str) -> str:
        """Return the URL of the page of an entry or feed, or an empty string.

        The RSS or Atom link has precedence over the link of CDF (a format of 1997).
        """
        linked = self.alternate(parts.get("link", ()), base) or self.alternate(
            parts.get("atom:link", ()), base
        )
        page_url = linked or absolute_url(
            first_text(parts, "feedburner:origlink") or element.get("HREF") or "", base
        )
        if page_url or not self.is_atom:
            return page_url
        return next(
            (file.url for file in self.external_content(parts, base) if _is_page(file.type)), ""
        )

    def alternate(self, links: Iterable[Element], base: str) -> str:
        """Return the URL of the link with the relation alternate or without a relation.

        Links with `href` and links to HTML have precedence.
        """
        candidates = [
            link for link in links if (link.get("rel") or "alternate").strip().lower() in _ALTERNATE
        ]
        if len(candidates) > 1:
            candidates.sort(
                key=lambda link: (
                    not link.get("href"),
                    (link.get("type") or "text/html").strip().lower() not in _PAGES,
                )
            )
        for link in candidates:
            if url := self.link_url(link, base):
                return url
        return ""

    def related(self, parts: Children, base: str, relation: str) -> str:
        return next(self.all_related(parts, base, relation), "")

    def all_related(self, parts: Children, base: str, relation: str) -> Iterator[str]:
        for name in ("link", "atom:link"):
            for link in parts.get(name, ()):
                relations = link.get("rel")
                if (
                    relations
                    and relation in relations.lower().split()
                    and (url := self.link_url(link, base))
                ):
                    yield url

    def link_url(self, link: Element, base: str) -> str:
        if self.has_bases and link.get("href") == "":
            # The link is the xml:base itself, but not the document's URL, which may change.
            return resolve_xml_base(link, "")
        return absolute_url(
            link.get("href") or element_text(link),
            base if link.get(XML_BASE) is None else self.base(link),
        )

    def links(self, channel: Element, feed: Children, base: str) -> Links:
        return Links(
            site=self.page(channel, feed, base),
            self_url=self.related(feed, base, "self"),
            hubs=tuple(dict.fromkeys(self.all_related(feed, base, "hub"))),
            next_page=self.related(feed, base, "next"),
            prev_archive=self.related(feed, base, "prev-archive"),
            likely_page=self.likely_page(first(feed, "generator")),
            peers=self.peers(feed),
        )

    def likely_page(self, generator: Element | None) -> str:
        """Return the URL of the next page of a WordPress feed, which does not link to it."""
        if (
            generator is None
            or "wordpress" not in f"{generator.get('uri')} {element_text(generator)}".lower()
        ):
            return ""
        url = self.url.partition("#")[0]
        if page := _PAGED.search(url):
            return f"{url[: page.start(1)]}{int(page[1]) + 1}{url[page.end(1) :]}"
        return f"{url}{'&' if '?' in url else '?'}paged=2" if url else ""

    def peers(self, feed: Children) -> tuple[str, ...]:
        """Return the exchange nodes that the feed declares (docs/exchange-protocol.md)."""
        peers_element = first(feed, "exchange:peers")
        declared = (
            self.names.children(peers_element).get("exchange:peer", ())
            if peers_element is not None
            else ()
        )
        return tuple(element_text(peer) for peer in declared[:_MAX_PEERS])

    def content(self, parts: Children, base: str) -> tuple[str, str]:
        if self.is_atom or "atom:content" in parts:
            for element in (*parts.get("content", ()), *parts.get("atom:content", ())):
                if html := atom_html(element):
                    return html, self.base(element)
        for name in _RSS_CONTENT:
            for element in parts.get(name, ()):
                if html := inner_html(element):
                    return html, self.base(element)
        summaries = _summaries(parts)
        if len(summaries) == 2 and not self.is_atom:
            element = parts[summaries[1]][0]
            return inner_html(element), self.base(element)
        return "", base

    def summary(self, parts: Children, base: str) -> tuple[str, str]:
        to_html = atom_html if self.is_atom else inner_html
        for name in _summaries(parts):
            for element in parts[name]:
                if html := to_html(element):
                    return html, self.base(element)
        for element in parts.get("atom:summary", ()):
            if html := atom_html(element):
                return html, self.base(element)
        for name in ("dc:description", "itunes:summary", "media:description", "itunes:subtitle"):
            for element in parts.get(name, ()):
                if html := inner_html(element):
                    return html, self.base(element)
        # The description of the media is the only text of a video entry.
        for group in (*parts.get("media:group", ()), *parts.get("media:content", ())):
            if text := first_text(self.names.children(group), "media:description"):
                return text_to_html(text), base
        return "", base

    def author(self, parts: Children) -> str:
        for name in _AUTHORS:
            if (
                name in parts
                and (author_names := [self.author_name(element) for element in parts[name]])
                and any(author_names)
            ):
                return unescape(
                    ", ".join(
                        dict.fromkeys(
                            " ".join(author_name.split())
                            for author_name in author_names
                            if author_name
                        )
                    )
                )
        return ""

    def inherited_author(self, parts: Children) -> str:
        """Return the author of the entry's source, or else of the feed (RFC 4287 sect. 4.2.1)."""
        source = first(parts, "source", "atom:source")
        source_author = (
            self.author(self.names.children(source)) if source is not None and len(source) else ""
        )
        return source_author or self.feed_author

    def author_name(self, element: Element) -> str:
        if len(element) == 0:
            return _parse_authors(element_text(element))
        name = first_text(self.names.children(element), "name", "atom:name", "email", "atom:email")
        return name if name or self.is_atom else _parse_authors(element_text(element))

    def tags(self, parts: Children) -> Iterable[str]:
        for name in ("category", "atom:category", "dc:subject", "media:category"):
            for element in parts.get(name, ()):
                yield plain_text(
                    element.get("label") or element.get("term") or element_text(element)
                )
        for category in parts.get("itunes:category", ()):  # may be nested
            yield from (element.get("text", "") for element in category.iter())
        for element in (*parts.get("itunes:keywords", ()), *parts.get("tags", ())):
            yield from (word.strip() for word in element_text(element).split(","))

    def enclosures(self, parts: Children, base: str) -> Iterator[Enclosure]:
        for element in parts.get("enclosure", ()):
            yield _enclosure(element.get("url") or element.get("href"), element, "length", base)
        for name in ("link", "atom:link"):
            for link in parts.get(name, ()):
                if (link.get("rel") or "").strip().lower() == "enclosure":
                    yield _enclosure(self.link_url(link, base), link, "length", base)
        for file in self.external_content(parts, base) if self.is_atom else ():
            if not _is_page(file.type):
                yield file
        media = list(parts.get("media:content", ()))
        for group in parts.get("media:group", ()):
            media.extend(self.names.children(group).get("media:content", ()))
        for element in media:
            yield _enclosure(element.get("url"), element, "fileSize", base)

    def external_content(self, parts: Children, base: str) -> Iterator[Enclosure]:
        """Yield Atom content at another URL, which is a page or a file (RFC 4287 sect. 4.1.3.2)."""
        for element in parts.get("content", ()):
            if source := element.get("src"):
                yield _enclosure(
                    source,
                    element,
                    "length",
                    base if element.get(XML_BASE) is None else self.base(element),
                )


def _is_page(type: str) -> bool:
    return not type or type.lower() in _PAGES


def _summaries(parts: Children) -> list[str]:
    """Return the names of the summary elements. If there are two, the second is the full text."""
    return [name for name in parts if name in ("description", "summary", "abstract")]


def _enclosure(url: str | None, element: Element, length_name: str, base: str) -> Enclosure:
    length = (element.get(length_name) or "").strip()
    return Enclosure(
        absolute_url(url or "", base),
        (element.get("type") or "").strip(),
        int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None,
    )


def _parse_authors(text: str) -> str:
    """Return the names in texts such as `me@example.org (Name)` and `Name <me@example.org>`."""
    text = " ".join(text.split())[:_MAX_NAME_LENGTH]
    if "@" not in text and "<" not in text:
        return text
    return ", ".join(filter(None, map(_parse_author, _AUTHOR_SEPARATOR.split(text))))


def _parse_author(text: str) -> str:
    match = _EMAIL_AND_NAME.match(text) or _NAME_AND_EMAIL.match(text)
    name = match[1].strip() if match else text
    return (plain_text(name) or name) if "<" in name else name


def _date(parts: Children, names: tuple[str, ...]) -> ParsedDate | None:
    for name in names:
        if name in parts:
            for element in reversed(parts[name]):
                if when := parse_date(element_text(element)):
                    return when
    return None
