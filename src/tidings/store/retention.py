"""Retention, which deletes old entries and polls in many short transactions.

Polls can be recorded between these transactions.
"""

from collections.abc import Sequence

from tidings.store import search_index
from tidings.store.connection import Connection
from tidings.store.feeds import save_values
from tidings.store.identities import identity_hash, unpack_hashes
from tidings.store.schema import ENTRY_TABLES, KEPT_ENTRY_QUERIES

#: Age in seconds up to which the poll log is complete. Older polls stay only if they found new or
#: changed entries, failed, or detected a gap.
FULL_POLL_LOG_S = 8 * 86400.0
#: Numbers of feeds and polls processed per transaction. They are small so that recording never
#: waits long.
FEEDS_PER_TRANSACTION, POLLS_PER_TRANSACTION = 20, 2000
#: Key in `key_values` of the time up to which the poll log is pruned.
PRUNED_UNTIL_KEY = "log thinned until"


def feeds_with_old_entries(db: Connection, before: float, first: int) -> list[int]:
    """List the ids of feeds that have entries received before a time.

    Only entries with ids of at least ``first`` are considered.
    """
    rows = db.execute(
        "SELECT DISTINCT feed_id FROM entries WHERE first_seen_at < ? AND id >= ?", (before, first)
    )
    return sorted(feed_id for (feed_id,) in rows)


def delete_old_entries(
    db: Connection, feed_ids: Sequence[int], before: float, first: int, min_entries: int
) -> int:
    """Delete entries of feeds that were received before a time, and return their number.

    Each feed's ``min_entries`` newest entries, entries that its document still lists, and entries
    that a user starred or tagged are not deleted. Identities stay, so that a deleted entry is not
    new when an archive or a peer sends it again.
    """
    deleted = [
        entry_id
        for feed_id in feed_ids
        for entry_id in _old_entry_ids(db, feed_id, before, first, min_entries)
    ]
    delete_entries(db, deleted)
    return len(deleted)


def delete_entries(db: Connection, entry_ids: Sequence[int]) -> None:
    """Delete entries with all dependent rows except their identities."""
    ids = [(i,) for i in entry_ids]
    for table in ENTRY_TABLES:
        db.executemany(f"DELETE FROM {table} WHERE entry_id = ?", ids)
    if not db.postgres:
        search_index.delete_entries(db, entry_ids)
    db.executemany("DELETE FROM entries WHERE id = ?", ids)


def _old_entry_ids(
    db: Connection, feed_id: int, before: float, first: int, min_entries: int
) -> list[int]:
    row = db.execute(
        "SELECT identity_hashes FROM documents WHERE feed_id = ?", (feed_id,)
    ).fetchone()
    shown = set(unpack_hashes(row[0])) if row else set()
    newest = "SELECT id FROM entries WHERE feed_id = ? ORDER BY id DESC LIMIT ?"
    rows = db.execute(
        "SELECT id, identity FROM entries WHERE feed_id = ? AND first_seen_at < ? AND id >= ? "
        + "".join(f"AND id NOT IN ({kept_query}) " for kept_query in (newest, *KEPT_ENTRY_QUERIES)),
        (feed_id, before, first, feed_id, min_entries),
    )
    return [entry_id for entry_id, identity in rows if identity_hash(identity) not in shown]


def prune_polls(db: Connection, now: float, before: float) -> int | None:
    """Delete polls of the next part of the poll log, and return how many were deleted.

    Returns None at the end of the log. Polls before ``before`` are deleted, later polls by the rule
    of `FULL_POLL_LOG_S`. The position is stored, so that rows which stay are not read again every
    day.
    """
    end = now - FULL_POLL_LOG_S
    deleted = db.execute(
        "DELETE FROM polls WHERE (feed_id, at) IN "
        "(SELECT feed_id, at FROM polls WHERE at < ? LIMIT ?)",
        (min(before, end), POLLS_PER_TRANSACTION),
    ).rowcount
    if deleted:
        return deleted
    row = db.execute("SELECT value FROM key_values WHERE key = ?", (PRUNED_UNTIL_KEY,)).fetchone()
    begin = float(row[0]) if row else 0.0
    if begin >= end:
        return None
    row = db.execute(
        "SELECT at FROM polls WHERE at > ? AND at < ? ORDER BY at LIMIT 1 OFFSET ?",
        (begin, end, POLLS_PER_TRANSACTION),
    ).fetchone()
    until = row[0] if row else end
    save_values(db, {PRUNED_UNTIL_KEY: repr(until).encode()}, now)
    return db.execute(
        "DELETE FROM polls WHERE at > ? AND at <= ? AND new = 0 AND changed = 0 "
        "AND error_kind = '' AND missed IS NULL",
        (begin, until),
    ).rowcount
