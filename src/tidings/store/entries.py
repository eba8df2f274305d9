"""Queries for entries, their versions and posting times, the poll log and gaps."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.document import Enclosure
from tidings.reasons import decode
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import Entry, Gap, Poll, Version
from tidings.store.schema import NOT_IMPORTED
from tidings.store.search import parse_query

#: Data type of one row in the array of publication times.
POSTING = np.dtype([("feed_id", "i8"), ("at", "f8")])

ENTRY = ", ".join(f"entries.{name}" for name in Entry.__struct_fields__)
_VERSION = ", ".join(Version.__struct_fields__)
_POLL = ", ".join(Poll.__struct_fields__)
_REASON = Poll.__struct_fields__.index("reason")
_GAP = ", ".join(Gap.__struct_fields__)
_tags = msgspec.json.Decoder(tuple[str, ...])
_enclosures = msgspec.json.Decoder(tuple[Enclosure, ...])


def decode_entry(row: Sequence[Any]) -> Entry:
    """Return an entry from a row with the columns of `ENTRY`."""
    return Entry(*(*row[:-2], _tags.decode(row[-2]), _enclosures.decode(row[-1])))


def list_page(
    db: Connection,
    *,
    feed_id: int | None,
    since: float | None,
    until: float | None,
    search: str,
    before: int | None,
    limit: int,
) -> list[Entry]:
    """List a page of entries of feeds, newest first by id, which is the order of arrival.

    Entries that users imported are not included. ``before`` is the last id of the page before
    (keyset pagination). ``since`` and ``until`` are times of arrival.
    """
    tables, conditions, values = "entries", [f"entries.id {NOT_IMPORTED}"], list[Any]()
    query_terms = parse_query(search, postgres=db.postgres)
    if search and query_terms.is_empty:
        return []
    if db.postgres:
        for expression, condition in (
            (query_terms.included, "words @@ ?::tsquery"),
            (query_terms.excluded, "NOT words @@ ?::tsquery"),
        ):
            conditions += [condition] if expression else []
            values += [expression] if expression else []
        query_terms = parse_query("")
    if query_terms.included:  # FTS5 returns rows by id, newest first, and stops at the limit
        tables = "search CROSS JOIN entries ON entries.id = search.rowid"
        conditions.append("search MATCH ?")
        values.append(query_terms.included)
    if query_terms.excluded:
        conditions.append("entries.id NOT IN (SELECT rowid FROM search WHERE search MATCH ?)")
        values.append(query_terms.excluded)
    key = "search.rowid" if query_terms.included else "entries.id"
    # The plus prevents SQLite from scanning all entries by id if a time range is given.
    order = "+entries.id" if not query_terms.included and (since, until) != (None, None) else key
    for condition, value in (
        ("entries.feed_id = ?", feed_id),
        ("entries.first_seen_at >= ?", since),
        ("entries.first_seen_at < ?", until),
        (f"{key} < ?", before),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    # The subquery selects only ids, because SQLite would otherwise sort complete rows.
    rows = db.execute(
        f"SELECT {ENTRY} FROM entries WHERE id IN (SELECT entries.id FROM {tables} "
        f"WHERE {' AND '.join(conditions)} ORDER BY {order} DESC LIMIT ?) ORDER BY id DESC",
        (*values, limit),
    )
    return [decode_entry(row) for row in rows]


def get(db: Connection, entry_id: int) -> Entry | None:
    row = db.execute(f"SELECT {ENTRY} FROM entries WHERE id = ?", (entry_id,)).fetchone()
    return decode_entry(row) if row else None


def versions(db: Connection, entry_id: int) -> list[Version]:
    """List the former versions of an entry, newest first."""
    rows = db.execute(
        f"SELECT {_VERSION} FROM entry_versions WHERE entry_id = ? ORDER BY replaced_at DESC",
        (entry_id,),
    )
    return [Version(*row) for row in rows]


def posting_times(
    db: Connection, feed_ids: Sequence[int] | None, since: float
) -> npt.NDArray[np.void]:
    """Return publication times from ``since`` on, as an array of `POSTING`.

    The array is sorted by feed and time. ``feed_ids`` restricts the feeds; None means all feeds.
    """
    query, values = (
        f"SELECT feed_id, published_at FROM entries WHERE published_at >= ? AND id {NOT_IMPORTED}",
        list[Any]([since]),
    )
    if feed_ids is not None:
        query += f" AND feed_id {IN_MANY}"
        values.append(Many(feed_ids))
    return np.fromiter(
        map(tuple, db.execute(f"{query} ORDER BY feed_id, published_at", values)), dtype=POSTING
    )


def polls(db: Connection, feed_id: int, limit: int) -> list[Poll]:
    """List the last polls of a feed, newest first."""
    rows = db.execute(
        f"SELECT {_POLL} FROM polls WHERE feed_id = ? ORDER BY at DESC LIMIT ?", (feed_id, limit)
    )
    return [decode_poll(row) for row in rows]


def decode_poll(row: Sequence[Any]) -> Poll:
    """Return a poll from a row with the columns of the poll log."""
    columns = list(row)
    columns[_REASON] = decode(columns[_REASON])
    return Poll(*columns)


def polls_since(db: Connection, since: float) -> int:
    """Return the number of polls since a time, without pushes."""
    return int(
        db.execute(
            "SELECT count(*) FROM polls WHERE at >= ? AND source <> 'push'", (since,)
        ).fetchone()[0]
    )


def gaps(db: Connection, feed_id: int | None, state: str | None, limit: int) -> list[Gap]:
    """List gaps, newest first. None as ``feed_id`` or ``state`` means all feeds or all states."""
    rows = db.execute(
        f"SELECT {_GAP} FROM gaps WHERE feed_id = coalesce(?, feed_id) "
        "AND state = coalesce(?, state) ORDER BY found_at DESC LIMIT ?",
        (feed_id, state, limit),
    )
    return [Gap(*row) for row in rows]
