"""Identity and digest of entries, and removal of duplicate entries within a document."""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec.structs import replace

from tidings.document import Document, Enclosure, Entry
from tidings.parse.dates import ParsedDate

#: Maximum number of entries of a document. Complete archives have a few thousand entries. In a
#: longer document, only the first entries are used, which are the newest.
MAX_ENTRIES = 20_000


def make_entry(
    *,
    id: str,
    url: str,
    title: str,
    author: str = "",
    content: str = "",
    summary: str = "",
    base_url: str = "",
    published: ParsedDate | None = None,
    updated: ParsedDate | None = None,
    tags: Iterable[str] = (),
    enclosures: Iterable[Enclosure] = (),
    comments_url: str = "",
) -> Entry:
    """Create an entry with its identity and digest.

    The identity is the id or guid; without one, a hash of title and link (FeedEx sect. 3.1), or of
    all fields if both are missing. The digest covers the visible content, for change detection.
    Dates and counters are not part of it, because many publishers change them in every document.
    """
    files: dict[str, Enclosure] = {}
    for enclosure in enclosures:
        if enclosure.url:
            files.setdefault(enclosure.url, enclosure)
    visible = [title, url, content, summary, *files]
    labels = tuple(dict.fromkeys(tag for tag in tags if tag))
    identity = (
        id
        or "tidings:" + _digest([title, url] if title or url else [*visible, author, *labels]).hex()
    )
    time = published or updated
    return Entry(
        identity=identity,
        digest=_digest(visible),
        url=url,
        title=title,
        author=author,
        content=content,
        summary=summary,
        base_url=base_url,
        published=published.time if published else None,
        updated=updated.time if updated else None,
        date_only=time is not None and time.date_only,
        tags=labels,
        enclosures=tuple(files.values()),
        comments_url=comments_url,
    )


def unique_entries(document: Document) -> Document:
    """Return the document with only the first of all entries that have the same identity.

    Otherwise, two entries with the same guid would count as an edit at every poll.
    """
    entry_by_identity: dict[str, Entry] = {}
    for entry in document.entries:
        entry_by_identity.setdefault(entry.identity, entry)
    return (
        document
        if len(entry_by_identity) == len(document.entries)
        else replace(document, entries=tuple(entry_by_identity.values()))
    )


def _digest(parts: list[str]) -> bytes:
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
