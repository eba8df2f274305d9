"""Parser for JSON Feed, versions 1.0 and 1.1.

Real feeds have numbers as ids and null for missing values, so the type of each field is checked.
"""

import html
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from tidings.document import Document, Enclosure, Entry, Links
from tidings.parse.dates import ParsedDate, parse_date
from tidings.parse.elements import absolute_url, text_to_html
from tidings.parse.entry_identity import MAX_ENTRIES, make_entry

#: Pattern for escapes of NUL, which PostgreSQL cannot store, and of lone surrogates, which occur in
#: titles that were cut within an emoji. Both become U+FFFD, as in browsers. Surrogate pairs stay.
_INVALID_ESCAPE = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2}))"
)

#: Maximum number of objects and arrays in a document. Each takes at least 60 bytes of memory: a
#: document of 10 MB with empty objects needed 260 MB.
_MAX_OBJECTS = 500_000


def parse_json_feed(data: dict[str, Any], url: str) -> Document:
    """Convert a decoded JSON Feed to a document. ``url`` resolves relative URLs."""
    home = _text(data, "home_page_url")
    hubs = (
        _text(hub, "url")
        for hub in _objects(data, "hubs")
        if _text(hub, "type").lower() in ("", "websub", "pubsubhubbub")
    )
    next_page = absolute_url(_text(data, "next_url"), url)
    return Document(
        format="json feed " + (_text(data, "version").rpartition("/")[2] or "1"),
        title=_text(data, "title"),
        description=_text(data, "description"),
        author=_authors(data),
        language=_text(data, "language"),
        icon_url=absolute_url(_text(data, "icon") or _text(data, "favicon"), url),
        entries=tuple(_entry(item, url) for item in _objects(data, "items")[:MAX_ENTRIES]),
        links=Links(
            site=absolute_url(home, url),
            self_url=absolute_url(_text(data, "feed_url"), url),
            hubs=tuple(dict.fromkeys(absolute_url(hub, url) for hub in hubs if hub)),
            next_page=next_page if next_page != url else "",
        ),
    )


def has_too_many_objects(body: bytes) -> bool:
    """Return whether a body has more objects and arrays than any real feed.

    Braces and brackets within strings are counted too, because no feed has that many.
    """
    return len(body) > _MAX_OBJECTS and body.count(b"{") + body.count(b"[") > _MAX_OBJECTS


def decode_json(body: bytes) -> dict[str, Any] | None:
    """Return a decoded JSON object, or None if the body is not a JSON object.

    The decoder rejects deep nesting.
    """
    try:
        cleaned = _INVALID_ESCAPE.sub(
            lambda match: match[0] if match[2] else match[1] + rb"\ufffd",
            body.removeprefix(b"\xef\xbb\xbf"),
        )
        data = msgspec.json.decode(cleaned)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _entry(item: dict[str, Any], url: str) -> Entry:
    id = _text(item, "id")
    # JSON Feed recommends the page's URL as id.
    web_id = id if id.startswith(("http://", "https://")) else ""
    page = absolute_url(_text(item, "url") or _text(item, "external_url") or web_id, url)
    plain = _text(item, "content_text")
    image = absolute_url(_text(item, "image"), url)
    return make_entry(
        id=id,
        url=page,
        title=" ".join(_text(item, "title").split()),
        author=_authors(item),
        content=_text(item, "content_html") or text_to_html(plain),
        summary=html.escape(_text(item, "summary"), quote=False),
        base_url=page if page.startswith(("http://", "https://")) else url,
        published=_date(item.get("date_published")),
        updated=_date(item.get("date_modified")),
        tags=[tag for tag in item.get("tags") or () if isinstance(tag, str)]
        if isinstance(item.get("tags"), list)
        else (),
        enclosures=[*_attachments(item, url), *([Enclosure(image, "image")] if image else [])],
    )


def _attachments(item: dict[str, Any], url: str) -> Iterator[Enclosure]:
    for attachment in _objects(item, "attachments"):
        size = attachment.get("size_in_bytes")
        length = int(size) if isinstance(size, int | float) and 0 < size < 1e15 else None
        yield Enclosure(
            absolute_url(_text(attachment, "url"), url), _text(attachment, "mime_type"), length
        )


def _authors(data: dict[str, Any]) -> str:
    """Return the names in `authors` (version 1.1) or `author` (version 1.0), joined by commas.

    Some feeds have an array or a plain name in `author`.
    """
    single = data.get("author")
    if isinstance(single, str):
        return single.strip()
    authors = (
        _objects(data, "authors")
        or _objects(data, "author")
        or ([single] if isinstance(single, dict) else [])
    )
    return ", ".join(dict.fromkeys(name for author in authors if (name := _text(author, "name"))))


def _date(value: object) -> ParsedDate | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return parse_date(str(value))


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()


def _objects(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = data.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
