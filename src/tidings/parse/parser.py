"""Entry point of the feed parser, which detects the format (RSS, Atom, JSON Feed)."""

import re

from tidings.document import Document
from tidings.errors import TidingsError
from tidings.i18n import _
from tidings.parse.jsonfeed import decode_json, has_too_many_objects, parse_json_feed
from tidings.parse.xml_tree import parse_xml
from tidings.parse.xmlfeed import is_feed, parse_feed

#: Default maximum size of a document in bytes. The fetcher has its own limit.
MAX_BYTES = 20_000_000


class ParseError(TidingsError):
    """Error for a document that is not a feed. The message says what the document is instead."""


def parse(
    body: bytes, *, content_type: str = "", url: str = "", max_bytes: int = MAX_BYTES
) -> Document:
    """Parse a feed document.

    `content_type` is the HTTP header, and `url` is the URL after redirects, which resolves relative
    URLs. Raises `ParseError` if the body is not a feed or is larger than `max_bytes`.
    """
    if len(body) > max_bytes:
        raise ParseError(
            _(
                "this document has %(size)s bytes; the limit is %(limit)s",
                size=f"{len(body):,}",
                limit=f"{max_bytes:,}",
            )
        )
    start = body[:1000].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not start:
        raise ParseError(_("this document is empty, not a feed"))
    if start[:1] in (b"{", b"["):
        if has_too_many_objects(body):
            raise ParseError(_("this JSON document has too many objects to be a feed"))
        data = decode_json(body)
        if data is None:
            raise ParseError(_("this is not a valid JSON Feed"))
        if "jsonfeed.org" not in str(data.get("version")) and not isinstance(
            data.get("items"), list
        ):
            raise ParseError(
                _(
                    "this is JSON but not a JSON Feed: "
                    "it has neither a jsonfeed.org version nor items"
                )
            )
        return parse_json_feed(data, url)
    root, repaired = parse_xml(body, content_type)
    if root is None or not is_feed(root):
        raise ParseError(
            _describe_document(body, None if root is None else root.tag.rpartition("}")[2])
        )
    return parse_feed(root, url, repaired=repaired)


def _describe_document(body: bytes, root: str | None) -> str:
    """Return an error message that says what a document is, given its root element."""
    start = body[:5000].lower()
    if re.search(rb"<!doctype html|<html[\s>]|<head[\s>]|<body[\s>]", start) or root == "html":
        return _("this is an HTML page, not a feed; use the URL of its feed")
    if start.startswith((b"\x1f\x8b", b"%pdf", b"\x89png", b"gif8", b"\xff\xd8", b"pk\x03\x04")):
        return _("this is a binary file, not a feed")
    if root == "opml":
        return _("this is a list of feeds (OPML), not a feed; import it instead")
    if root is not None:
        return _("this is an XML file that starts with <%(root)s>, not a feed", root=root)
    return _("this is neither XML nor JSON, so it is not a feed")
