"""Builders of minimal RSS and Atom documents for tests."""

from tidings.document import Document, Entry
from tidings.parse import parse

URL = "https://example.org/blog/feed.xml"
_NAMESPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "atom": "http://www.w3.org/2005/Atom",
        "content": "http://purl.org/rss/1.0/modules/content/",
        "dc": "http://purl.org/dc/elements/1.1/",
        "fh": "http://purl.org/syndication/history/1.0",
        "itunes": "http://www.itunes.com/dtds/podcast-1.0.dtd",
        "media": "http://search.yahoo.com/mrss/",
        "slash": "http://purl.org/rss/1.0/modules/slash/",
        "sy": "http://purl.org/rss/1.0/modules/syndication/",
        "wfw": "http://wellformedweb.org/CommentAPI/",
        "xhtml": "http://www.w3.org/1999/xhtml",
    }.items()
)


def rss(*parts: str) -> str:
    return f'<rss version="2.0" {_NAMESPACES}><channel>{"".join(parts)}</channel></rss>'


def atom(*parts: str, attributes: str = "") -> str:
    return (
        f'<feed xmlns="http://www.w3.org/2005/Atom" {_NAMESPACES} '
        f"{attributes}>{''.join(parts)}</feed>"
    )


def parse_document(text: str | bytes, content_type: str = "") -> Document:
    return parse(
        text if isinstance(text, bytes) else text.encode(), content_type=content_type, url=URL
    )


def only_entry(text: str | bytes) -> Entry:
    (entry,) = parse_document(text).entries
    return entry


def rss_item(*parts: str) -> Entry:
    return only_entry(rss(f"<item>{''.join(parts)}</item>"))


def atom_entry(*parts: str, attributes: str = "") -> Entry:
    return only_entry(atom(f"<entry>{''.join(parts)}</entry>", attributes=attributes))
