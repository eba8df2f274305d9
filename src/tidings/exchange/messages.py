"""The exchange's values as XML-RPC has them, both ways; docs/exchange-protocol.md tells them to others.

What is read is checked here for kind and size, and nowhere else: the core gets well-formed values. An entry's digest is not
sent but made anew, so that the did vouches for what is really there.
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

MAX_QUERY_CHARS = 1000
MAX_ENCLOSURES = 20
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def nid_of(address: str, port: object) -> Nid:
    """A node by the address that its connection comes from, and the port that it says it listens on."""
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
        raise InvalidXmlRpc("the first parameter is the port that you listen on")
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def read_nid(value: object) -> Nid:
    """``203.0.113.5:8035`` or ``[2001:db8::5]:8035``: names of hosts are not nodes."""
    address, _, port = str(value).rpartition(":")
    try:
        ip = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
        return nid_of(str(ip), int(port))
    except ValueError:
        raise InvalidXmlRpc(f"{str(value)[:60]} is not address:port") from None


def write_subset(subset: Subset) -> list[list[Any]]:
    return [[feed, hops] for feed, hops in subset.items()]


def read_subset(value: object) -> dict[str, int]:
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
    if not isinstance(value, dict) or not isinstance(value.get("id"), str) or not value["id"]:
        raise InvalidXmlRpc("an entry is a struct with an id")
    texts = {name: _text(value.get(name, ""), MAX_TEXT_CHARS) for name in ("content", "summary")}
    words = {
        name: _text(value.get(name, ""), MAX_URL_CHARS)
        for name in ("id", "url", "title", "author", "base", "comments")
    }
    files = [
        f
        for f in _list(value.get("enclosures", []), MAX_ENCLOSURES)
        if isinstance(f, list) and len(f) == 2
    ]
    return make_entry(
        id=words["id"],
        url=_address(words["url"]),
        title=words["title"],
        author=words["author"],
        content=texts["content"],
        summary=texts["summary"],
        base_url=_address(words["base"]),
        published=_when(value.get("published")),
        updated=_when(value.get("updated")),
        tags=[_text(tag, 100) for tag in _list(value.get("tags", []), MAX_TAGS)],
        enclosures=[
            Enclosure(_address(_text(url, MAX_URL_CHARS)), _text(kind, 100)) for url, kind in files
        ],
        comments_url=_address(words["comments"]),
    )


def keep_sendable(entries: Iterable[Entry]) -> list[Entry]:
    """Entries as others will read them: the did is over that. What cannot be sent (too long, say) is left out."""
    found = []
    for entry in entries:
        with suppress(InvalidXmlRpc):
            found.append(read_entry(write_entry(entry)))
    return found


def write_bundle(bundle: Bundle) -> dict[str, Any]:
    entries = []
    for entry in bundle.entries:
        encoded = write_entry(entry)
        if (signature := bundle.signatures.get(entry.identity)) is not None:
            encoded["signature"] = signature
        if (note := bundle.notes.get(entry.identity)) is not None:
            encoded["note"] = {"tags": list(note.tags), "rating": float(note.rating)}
        entries.append(encoded)
    found = {
        "feed": bundle.feed,
        "fetched": bundle.fetched_at,
        "did": bundle.did,
        "path": list(bundle.path),
        "entries": entries,
    }
    return found | ({"key": bundle.key} if bundle.key else {})


def read_bundle(value: Any) -> Bundle:
    match value:
        case {"feed": str() as feed, "did": bytes() as did, "entries": list() as encoded} if (
            0 < len(feed) <= MAX_URL_CHARS
        ):
            pass
        case _:
            raise InvalidXmlRpc("a bundle is a struct with feed, did and entries")
    if len(did) != 20 or len(encoded) > MAX_ENTRIES:
        raise InvalidXmlRpc(f"a did has 20 bytes, and a bundle at most {MAX_ENTRIES} entries")
    signatures, notes = {}, {}
    for one in encoded:
        entry_id = one.get("id") if isinstance(one, dict) else None
        if isinstance(entry_id, str) and isinstance(one.get("signature"), bytes):
            signatures[entry_id] = one["signature"]
        if isinstance(entry_id, str) and isinstance(one.get("note"), dict):
            notes[entry_id] = _note(one["note"])
    key = value.get("key", b"")
    return Bundle(
        feed,
        tuple(read_entry(one) for one in encoded),
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
    return [[notice.feed, notice.at] for notice in notices]


def read_notices(value: object) -> list[PeerNotice]:
    notices = []
    for item in _list(value, MAX_FEEDS):
        match item:
            case [str() as feed, int() | float() as at]:
                notices.append(PeerNotice(feed[:MAX_URL_CHARS], float(at)))
            case _:
                raise InvalidXmlRpc("notices are an array of [feed, time]")
    return notices


def write_query(query: Query) -> dict[str, Any]:
    return {
        "id": query.id, "feed": query.feed, "since": query.since, "until": query.until, "words": query.title_text, "hops": query.hops
    }  # fmt: skip


def read_query(value: Any) -> Query:
    match value:
        case {"id": str() as query_id, "feed": str() as feed} if (
            0 < len(query_id) <= 64 and 0 < len(feed) <= MAX_URL_CHARS
        ):
            hops = value.get("hops", 0)
            since, until = _number(value.get("since"), 0.0), _number(value.get("until"), 4e9)
            words = _text(value.get("words", ""), MAX_QUERY_CHARS)
            return Query(query_id, feed, since, until, words, hops if isinstance(hops, int) else 0)
    raise InvalidXmlRpc("a query is a struct with id and feed")


def write_holdings(holdings: Sequence[Holding]) -> list[dict[str, Any]]:
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
    found = []
    for item in _list(value, 1000):
        match item:
            case {"entries": int() as entries} if entries > 0:
                nid = read_nid(item["nid"]) if item.get("nid") else ""
                oldest, newest = _number(item.get("oldest"), 0.0), _number(item.get("newest"), 0.0)
                found.append(
                    Holding(nid, entries, oldest, newest, item.get("altruist") is not False)
                )
    return found


def _list(value: object, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise InvalidXmlRpc(f"an array of at most {limit:,} was expected")
    return value


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise InvalidXmlRpc(f"a text of at most {limit:,} characters was expected")
    if NOT_IN_XML.search(value):
        raise InvalidXmlRpc("there are characters that XML does not have")
    return value


def _address(url: str) -> str:
    """Links are http or https, whatever a neighbour says."""
    return url if url.lower().startswith(("http://", "https://")) else ""


def _number(value: object, default: float) -> float:
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default
    )


def _when(value: object) -> ParsedDate | None:
    number = _number(value, -1.0)
    return ParsedDate(number) if 0 <= number <= 4e9 else None
