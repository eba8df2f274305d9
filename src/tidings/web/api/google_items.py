"""Convert entries to items of the Google Reader API, as JSON or as Atom.

newsboat's `feedhq` mode and old clients use Atom.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from lxml import etree  # type: ignore[import-untyped]  # it has no types

from tidings.parse.opml import xml_safe
from tidings.store.user_models import Item, Subscription
from tidings.web.api.google_streams import LABEL, STATE, long_id
from tidings.web.uri_cleanup import clean_uri, media_type

ATOM = "http://www.w3.org/2005/Atom"
READER = "http://www.google.com/schemas/reader/atom/"
#: Scheme of the state categories. newsboat reads the read state only from categories with it.
SCHEME = "http://www.google.com/reader/"

Subscriptions = Mapping[int, Subscription]


def categories(item: Item, subscriptions: Subscriptions) -> list[str]:
    """Return the stream ids of an item's states, folder and tags."""
    states = [
        f"{STATE}reading-list",
        *([] if item.unread else [f"{STATE}read"]),
        *([f"{STATE}starred"] if item.starred else []),
    ]
    subscription = subscriptions.get(item.entry.feed_id)
    folder = [subscription.folder] if subscription and subscription.folder else []
    return [*states, *(f"{LABEL}{name}" for name in (*folder, *item.tags))]


def item_json(item: Item, subscriptions: Subscriptions) -> dict[str, Any]:
    """Return an item as JSON, with every field that at least one client requires."""
    entry, subscription = item.entry, subscriptions.get(item.entry.feed_id)
    site = subscription.feed.state.site_url if subscription else ""
    origin = {
        "streamId": f"feed/{entry.feed_id}",
        "title": subscription.title if subscription else "",
        "htmlUrl": site,
    }
    payload = {
        "id": long_id(entry.id),
        "crawlTimeMsec": str(int(entry.first_seen_at * 1e3)),
        "timestampUsec": str(int(entry.first_seen_at * 1e6)),
        "published": int(entry.published_at),
        "updated": int(entry.updated_at or entry.published_at),
        "title": entry.title or entry.url or "(untitled)",  # Readrops rejects an empty title
        "canonical": [{"href": entry.url}],  # Fluent Reader requires an element
        "alternate": [{"href": entry.url, "type": "text/html"}],
        "categories": categories(item, subscriptions),
        "origin": origin,
        "summary": {"direction": "ltr", "content": entry.content or entry.summary},
        "author": entry.author,
    }
    if entry.enclosures:
        payload["enclosure"] = [
            {"href": e.url, "type": e.type, "length": str(e.length or 0)} for e in entry.enclosures
        ]
    return payload


def contents(
    items: Iterable[Item],
    subscriptions: Subscriptions,
    stream_id: str,
    title: str,
    now: float,
    after: str | None,
) -> dict[str, Any]:
    """Return a page of a stream as JSON; ``after`` is the continuation (cursor) or None."""
    payload: dict[str, Any] = {
        "direction": "ltr",
        "id": stream_id,
        "title": title,
        "updated": int(now),
    }
    payload["items"] = [item_json(item, subscriptions) for item in items]
    if after is not None:  # NetNewsWire continues while there is a cursor, even on an empty page
        payload["continuation"] = after
    return payload


def atom(
    items: Iterable[Item],
    subscriptions: Subscriptions,
    stream_id: str,
    title: str,
    now: float,
    after: str | None,
) -> bytes:
    """Return a page of a stream as Atom; ``after`` is the continuation (cursor) or None."""
    feed = etree.Element(f"{{{ATOM}}}feed", nsmap={None: ATOM, "gr": READER})
    _add(feed, "id", f"tag:google.com,2005:reader/{stream_id}")
    _add(feed, "title", title)
    _add(feed, "updated", _format_time(now))
    if after is not None:
        etree.SubElement(feed, f"{{{READER}}}continuation").text = after
    for item in items:
        _entry(feed, item, subscriptions)
    return bytes(etree.tostring(feed, xml_declaration=True, encoding="utf-8"))


def _entry(feed: etree._Element, item: Item, subscriptions: Subscriptions) -> None:
    entry = item.entry
    node = etree.SubElement(feed, f"{{{ATOM}}}entry")
    node.set(f"{{{READER}}}crawl-timestamp-msec", str(int(entry.first_seen_at * 1e3)))
    _add(node, "id", long_id(entry.id))  # newsboat returns this id unchanged
    for name in categories(item, subscriptions):
        _add(node, "category", scheme=SCHEME, term=name, label=name.rpartition("/")[2])
    if item.unread:
        _add(node, "category", scheme=SCHEME, term=f"{STATE}fresh", label="fresh")
    _add(node, "title", entry.title or entry.url or "(untitled)", type="text")
    _add(node, "published", _format_time(entry.published_at))
    _add(node, "updated", _format_time(entry.updated_at or entry.published_at))
    _add(node, "link", rel="alternate", href=clean_uri(entry.url), type="text/html")
    for enclosure in entry.enclosures:
        attributes = {
            "href": clean_uri(enclosure.url),
            "type": media_type(enclosure),
            "length": str(enclosure.length or 0),
        }
        _add(node, "link", rel="enclosure", **attributes)
    _add(node, "content", entry.content or entry.summary, type="html")
    _add(_add(node, "author"), "name", entry.author or "(unknown)")
    if (subscription := subscriptions.get(entry.feed_id)) is not None:
        source = _add(node, "source")
        source.set(f"{{{READER}}}stream-id", f"feed/{entry.feed_id}")
        _add(source, "id", f"tag:google.com,2005:reader/feed/{entry.feed_id}")
        _add(source, "title", subscription.title)
        _add(
            source, "link", rel="alternate", href=subscription.feed.state.site_url, type="text/html"
        )


def _add(
    parent: etree._Element, tag: str, text: str | None = None, **attributes: str
) -> etree._Element:
    node = etree.SubElement(
        parent, f"{{{ATOM}}}{tag}", {name: xml_safe(value) for name, value in attributes.items()}
    )
    node.text = None if text is None else xml_safe(text)
    return node


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
