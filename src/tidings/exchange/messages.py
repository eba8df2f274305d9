"""Encoding and validation of protocol messages as XML-RPC values.

The format is described in docs/exchange-protocol.md. Types and sizes of received values are checked
only here, so that the core gets well-formed values. An entry's digest is not sent but computed
again, so that the content hash of a bundle (its did) covers the entries that were really received.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidings.document import Enclosure, Entry
from tidings.exchange.protocol import (
    MAX_ENTRIES,
    MAX_FEEDS,
    MAX_PATH,
    MAX_TAGS,
    MAX_TEXT_CHARS,
    MAX_URL_CHARS,
    Bundle,
    Holding,
    Nid,
    Note,
    PeerNotice,
    Query,
    Subset,
)
from tidings.exchange.xmlrpc import InvalidXmlRpc
from tidings.parse.dates import ParsedDate
from tidings.parse.entry_identity import make_entry

#: Maximum length in characters of the title text in a query.
MAX_QUERY_CHARS = 1000
MAX_ENCLOSURES = 20
#: Characters that XML 1.0 does not allow.
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def nid_of(address: str, port: object) -> Nid:
    """Return the node id for a source address and the port that the caller declares."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise InvalidXmlRpc("the first parameter must be the port that you listen on")
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def read_nid(value: object) -> Nid:
    """Return the node id for a text such as ``203.0.113.5:8035`` or ``[2001:db8::5]:8035``.

    Raises `InvalidXmlRpc` for anything else, including host names.
    """
    address, _, port = str(value).rpartition(":")
    try:
        ip = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
        return nid_of(str(ip), int(port))
    except ValueError:
        raise InvalidXmlRpc(f"{str(value)[:60]} is not address:port") from None


def write_subset(subset: Subset) -> list[list[Any]]:
    """Encode a subscription set as an array of [feed, hop count]."""
    return [[feed, hops] for feed, hops in subset.items()]


def read_subset(value: object) -> dict[str, int]:
    """Decode a subscription set. A hop count of -1 means that the feed is removed."""
    subset = {}
    for item in _list(value, MAX_FEEDS):
        match item:
            case [str() as feed, int() as hops] if (
                0 < len(feed) <= MAX_URL_CHARS and -1 <= hops <= 100
            ):
                subset[feed] = hops
            case _:
                raise InvalidXmlRpc("a subscription set is an array of [feed, hop count]")
    return subset


def write_entry(entry: Entry) -> dict[str, Any]:
    """Encode an entry as an XML-RPC struct without empty fields."""
    encoded: dict[str, Any] = {
        "id": entry.identity,
        "url": entry.url,
        "title": entry.title,
        "author": entry.author,
        "content": entry.content,
        "summary": entry.summary,
        "base": entry.base_url,
        "tags": list(entry.tags[:MAX_TAGS]),
        "enclosures": [[file.url, file.type] for file in entry.enclosures[:MAX_ENCLOSURES]],
        "comments": entry.comments_url,
    }
    for name, at in (("published", entry.published), ("updated", entry.updated)):
        if at is not None:
            encoded[name] = float(int(at))
    return {name: value for name, value in encoded.items() if value or name == "id"}


def read_entry(value: object) -> Entry:
    """Decode an entry. Raises `InvalidXmlRpc` if a field is too long or has the wrong type."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not value["id"]:
        raise InvalidXmlRpc("an entry is a struct with an id")
    texts = {name: _text(value.get(name, ""), MAX_TEXT_CHARS) for name in ("content", "summary")}
    fields = {
        name: _text(value.get(name, ""), MAX_URL_CHARS)
        for name in ("id", "url", "title", "author", "base", "comments")
    }
    files = [
        f
        for f in _list(value.get("enclosures", []), MAX_ENCLOSURES)
        if isinstance(f, list) and len(f) == 2
    ]
    return make_entry(
        id=fields["id"],
        url=_http_url(fields["url"]),
        title=fields["title"],
        author=fields["author"],
        content=texts["content"],
        summary=texts["summary"],
        base_url=_http_url(fields["base"]),
        published=_date(value.get("published")),
        updated=_date(value.get("updated")),
        tags=[_text(tag, 100) for tag in _list(value.get("tags", []), MAX_TAGS)],
        enclosures=[
            Enclosure(_http_url(_text(url, MAX_URL_CHARS)), _text(kind, 100)) for url, kind in files
        ],
        comments_url=_http_url(fields["comments"]),
    )


def keep_sendable(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries as peers will decode them, without entries that cannot be sent.

    The content hash of a bundle is computed from this form. An entry cannot be sent if it is too
    long, for example.
    """
    sendable_entries = []
    for entry in entries:
        with suppress(InvalidXmlRpc):
            sendable_entries.append(read_entry(write_entry(entry)))
    return sendable_entries


def write_bundle(bundle: Bundle) -> dict[str, Any]:
    """Encode a bundle of entries as an XML-RPC struct."""
    entries = []
    for entry in bundle.entries:
        encoded = write_entry(entry)
        if (signature := bundle.signatures.get(entry.identity)) is not None:
            encoded["signature"] = signature
        if (note := bundle.notes.get(entry.identity)) is not None:
            encoded["note"] = {"tags": list(note.tags), "rating": float(note.rating)}
        entries.append(encoded)
    struct = {
        "feed": bundle.feed,
        "fetched": bundle.fetched_at,
        "did": bundle.did,
        "path": list(bundle.path),
        "entries": entries,
    }
    return struct | ({"key": bundle.key} if bundle.key else {})


def read_bundle(value: Any) -> Bundle:
    """Decode a bundle of entries. Its content hash is verified in `Node.put_entries`."""
    match value:
        case {"feed": str() as feed, "did": bytes() as did, "entries": list() as encoded} if (
            0 < len(feed) <= MAX_URL_CHARS
        ):
            pass
        case _:
            raise InvalidXmlRpc("a bundle is a struct with feed, did and entries")
    if len(did) != 20 or len(encoded) > MAX_ENTRIES:
        raise InvalidXmlRpc(f"a did must have 20 bytes, and a bundle at most {MAX_ENTRIES} entries")
    signatures, notes = {}, {}
    for item in encoded:
        entry_id = item.get("id") if isinstance(item, dict) else None
        if isinstance(entry_id, str) and isinstance(item.get("signature"), bytes):
            signatures[entry_id] = item["signature"]
        if isinstance(entry_id, str) and isinstance(item.get("note"), dict):
            notes[entry_id] = _note(item["note"])
    key = value.get("key", b"")
    return Bundle(
        feed,
        tuple(read_entry(item) for item in encoded),
        _number(value.get("fetched"), 0.0),
        did,
        tuple(read_nid(nid) for nid in _list(value.get("path", []), MAX_PATH + 1)),
        key if isinstance(key, bytes) else b"",
        signatures,
        notes,
    )


def _note(value: Mapping[str, object]) -> Note:
    tags = tuple(_text(tag, 100) for tag in _list(value.get("tags", []), MAX_TAGS))
    return Note(tags, min(max(_number(value.get("rating"), 0.0), -1.0), 1.0))


def write_notices(notices: Sequence[PeerNotice]) -> list[list[Any]]:
    """Encode poll notices as an array of [feed, time]."""
    return [[notice.feed, notice.at] for notice in notices]


def read_notices(value: object) -> list[PeerNotice]:
    """Decode poll notices from an array of [feed, time]."""
    notices = []
    for item in _list(value, MAX_FEEDS):
        match item:
            case [str() as feed, int() | float() as at]:
                notices.append(PeerNotice(feed[:MAX_URL_CHARS], float(at)))
            case _:
                raise InvalidXmlRpc("notices are an array of [feed, time]")
    return notices


def write_query(query: Query) -> dict[str, Any]:
    """Encode an archive query as an XML-RPC struct."""
    return {
        "id": query.id,
        "feed": query.feed,
        "since": query.since,
        "until": query.until,
        "words": query.title_text,
        "hops": query.hops,
    }


def read_query(value: Any) -> Query:
    """Decode an archive query. Raises `InvalidXmlRpc` if the id or the feed is missing."""
    match value:
        case {"id": str() as query_id, "feed": str() as feed} if (
            0 < len(query_id) <= 64 and 0 < len(feed) <= MAX_URL_CHARS
        ):
            hops = value.get("hops", 0)
            since, until = _number(value.get("since"), 0.0), _number(value.get("until"), 4e9)
            title_text = _text(value.get("words", ""), MAX_QUERY_CHARS)
            if not isinstance(hops, int):
                hops = 0
            return Query(query_id, feed, since, until, title_text, hops)
    raise InvalidXmlRpc("a query is a struct with id and feed")


def write_holdings(holdings: Sequence[Holding]) -> list[dict[str, Any]]:
    """Encode the answer to an archive query as an array of structs."""
    return [
        {
            "nid": h.nid,
            "entries": h.entries,
            "oldest": h.oldest,
            "newest": h.newest,
            "altruist": h.altruist,
        }
        for h in holdings
    ]


def read_holdings(value: object) -> list[Holding]:
    """Decode the answer to an archive query. Nodes without entries are ignored."""
    holdings = []
    for item in _list(value, 1000):
        match item:
            case {"entries": int() as entries} if entries > 0:
                nid = read_nid(item["nid"]) if item.get("nid") else ""
                oldest, newest = _number(item.get("oldest"), 0.0), _number(item.get("newest"), 0.0)
                holdings.append(
                    Holding(nid, entries, oldest, newest, item.get("altruist") is not False)
                )
    return holdings


def _list(value: object, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise InvalidXmlRpc(f"expected an array of at most {limit:,} items")
    return value


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidXmlRpc(f"expected a string of at most {limit:,} characters")
    if NOT_IN_XML.search(value):
        raise InvalidXmlRpc("a string has characters that XML does not allow")
    return value


def _http_url(url: str) -> str:
    """Return the URL if it is http or https, otherwise an empty string."""
    return url if url.lower().startswith(("http://", "https://")) else ""


def _number(value: object, default: float) -> float:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
    )


def _date(value: object) -> ParsedDate | None:
    number = _number(value, -1.0)
    return ParsedDate(number) if 0 <= number <= 4e9 else None
