"""From bytes to a document, whatever format they are in; or an error that says what they are instead."""

import re

from tidings.document import Document
from tidings.errors import TidingsError

from .jsonfeed import decode, has_too_many_objects, parse_json_feed
from .xml_tree import parse_xml
from .xmlfeed import is_feed, parse_feed

#: The fetcher has a cap of its own; this one holds for whoever else calls.
MAX_BYTES = 20_000_000


class ParseError(TidingsError):
    """What came is not a feed; the message says what it is."""


def parse(
    body: bytes, *, content_type: str = "", url: str = "", max_bytes: int = MAX_BYTES
) -> Document:
    """Read a feed's document. `content_type` is HTTP's header, `url` the address that it came from in the end."""
    if len(body) > max_bytes:
        raise ParseError(
            f"this document has {len(body):,} bytes, more than the {max_bytes:,} that are read"
        )
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise ParseError("this document is empty, not a feed")
    if start[:1] in (b"{", b"["):
        if has_too_many_objects(body):
            raise ParseError("this JSON has more objects than any feed; it is not read")
        data = decode(body)
        if data is None:
            raise ParseError("this looks like JSON but cannot be read; a JSON Feed is one object")
        if "jsonfeed.org" not in str(data.get("version")) and not isinstance(
            data.get("items"), list
        ):
            raise ParseError(
                "this is JSON but not a JSON Feed: it has neither a version of jsonfeed.org nor items"
            )
        return parse_json_feed(data, url)
    root, repaired = parse_xml(body, content_type)
    if root is None or not is_feed(root):
        raise ParseError(
            _describe_document(body, None if root is None else root.tag.rpartition("}")[2])
        )
    return parse_feed(root, url, repaired=repaired)


def _describe_document(body: bytes, root: str | None) -> str:
    start = body[:5000].lower()
    if re.search(rb"<!doctype html|<html[\s>]|<head[\s>]|<body[\s>]", start) or root == "html":
        return "this is an HTML page, not a feed; try the address of its feed, or let discovery look for it"
    if start.startswith((b"\x1f\x8b", b"%pdf", b"\x89png", b"gif8", b"\xff\xd8", b"pk\x03\x04")):
        return "this is a binary file, not a feed"
    if root == "opml":
        return "this is a list of feeds (OPML), not a feed; import it instead"
    if root is not None:
        return f"this is XML with the root <{root}>, not a feed (rss, feed or rdf)"
    return "this is neither XML nor JSON, so it is not a feed"
