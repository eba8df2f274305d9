"""Forgetting: what is old goes, in many short transactions, so that polls are recorded in between."""

from collections.abc import Sequence

from tidings.store import search_index
from tidings.store.connection import Connection
from tidings.store.feeds import save_values
from tidings.store.identities import identity_hash, unpack_hashes
from tidings.store.schema import ENTRY_TABLES, KEPT_ENTRY_QUERIES

#: So long every poll stands in the log; then only those that found something, failed, or saw a gap.
FULL_POLL_LOG_S = 8 * 86400.0
#: Feeds cleared and polls looked at in one transaction: recording must never wait long.
FEEDS_PER_TRANSACTION, POLLS_PER_TRANSACTION = 20, 2000
#: Where the log's thinning has come to, among the shared values.
PRUNED_UNTIL_KEY = "log thinned until"


def feeds_with_old_entries(db: Connection, before: float, first: int) -> list[int]:
    """Feeds with entries that came before; only ids from ``first`` on are looked at."""
    rows = db.execute(
        "SELECT DISTINCT feed_id FROM entries WHERE first_seen_at < ? AND id >= ?", (before, first)
    )
    return sorted(feed_id for (feed_id,) in rows)


def delete_old_entries(
    db: Connection, feed_ids: Sequence[int], before: float, first: int, min_entries: int
) -> int:
    """Delete entries of these feeds that came before, except each feed's newest, those that its document still shows, and
    those that somebody keeps. Their identities stay, so they are not new when an archive or a neighbour brings them again.
    """
    gone = [
        entry_id
        for feed_id in feed_ids
        for entry_id in _old_entry_ids(db, feed_id, before, first, min_entries)
    ]
    delete_entries(db, gone)
    return len(gone)


def delete_entries(db: Connection, entry_ids: Sequence[int]) -> None:
    """Delete entries with all that hangs on them, but for their identities."""
    ids = [(i,) for i in entry_ids]
    for table in ENTRY_TABLES:
        db.executemany(f"DELETE FROM {table} WHERE entry_id = ?", ids)
    if not db.postgres:
        search_index.delete_entries(db, entry_ids)
    db.executemany("DELETE FROM entries WHERE id = ?", ids)


def _old_entry_ids(
    db: Connection, feed_id: int, before: float, first: int, min_entries: int
) -> list[int]:
    row = db.execute("SELECT marks FROM documents WHERE feed_id = ?", (feed_id,)).fetchone()
    shown = set(unpack_hashes(row[0])) if row else set()
    newest = "SELECT id FROM entries WHERE feed_id = ? ORDER BY id DESC LIMIT ?"
    rows = db.execute(
        "SELECT id, identity FROM entries WHERE feed_id = ? AND first_seen_at < ? AND id >= ? "
        + "".join(f"AND id NOT IN ({kept}) " for kept in (newest, *KEPT_ENTRY_QUERIES)),
        (feed_id, before, first, feed_id, min_entries),
    )
    return [entry_id for entry_id, identity in rows if identity_hash(identity) not in shown]


def prune_polls(db: Connection, now: float, before: float) -> int | None:
    """Look at the next lines of the log and delete those that nobody needs any more; how many, None when all is done.

    How far it has come is kept, so that no line which stays is looked at every day.
    """
    end = now - FULL_POLL_LOG_S
    forgotten = db.execute(
        "DELETE FROM polls WHERE (feed_id, at) IN (SELECT feed_id, at FROM polls WHERE at < ? LIMIT ?)",
        (min(before, end), POLLS_PER_TRANSACTION),
    ).rowcount
    if forgotten:
        return forgotten
    row = db.execute("SELECT value FROM shared WHERE key = ?", (PRUNED_UNTIL_KEY,)).fetchone()
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
        "DELETE FROM polls WHERE at > ? AND at <= ? AND new = 0 AND changed = 0 AND error_kind = '' AND lost IS NULL",
        (begin, until),
    ).rowcount
