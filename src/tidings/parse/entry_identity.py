"""Who an entry is and when it has changed: rules that hold for every format."""

from collections.abc import Iterable
from hashlib import blake2b

from msgspec.structs import replace

from tidings.document import Document, Enclosure, Entry

from .dates import ParsedDate

#: Whole archives in one document have a few thousand entries; more is an attack, and what comes first is newest.
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
    """An entry with its identity and digest.

    The identity is the id or guid; without one it is made from title and link (FeedEx sect. 3.1), and from all that is said
    only where both are missing. The digest covers what a reader would see. Dates and counters are left out: many publishers
    set them anew in every document.
    """
    files: dict[str, Enclosure] = {}
    for enclosure in enclosures:
        if enclosure.url:
            files.setdefault(enclosure.url, enclosure)
    seen = [title, url, content, summary, *files]
    labels = tuple(dict.fromkeys(tag for tag in tags if tag))
    identity = (
        id or "tidings:" + _digest([title, url] if title or url else [*seen, author, *labels]).hex()
    )
    time = published or updated
    return Entry(
        identity=identity,
        digest=_digest(seen),
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
    """With the first of those entries that share an identity: the same guid twice would be an edit at every poll."""
    kept: dict[str, Entry] = {}
    for entry in document.entries:
        kept.setdefault(entry.identity, entry)
    return (
        document
        if len(kept) == len(document.entries)
        else replace(document, entries=tuple(kept.values()))
    )


def _digest(parts: list[str]) -> bytes:
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
