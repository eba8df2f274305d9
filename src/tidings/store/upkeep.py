"""What keeps a store in good health over the years: forgetting."""

from collections.abc import Sequence

from tidings.store.connection import Connection
from tidings.store.identities import MARK, mark

#: So long every poll stands in the log; then only those that found something, failed, or saw a gap.
FULL_LOG_S = 8 * 86400.0
#: Feeds cleared and polls deleted in one transaction: recording must never wait long.
FEEDS_AT_ONCE, POLLS_AT_ONCE = 20, 2000


def feeds_with_old_entries(db: Connection, before: float) -> list[int]:
    return sorted(
        feed_id for (feed_id,) in db.execute("SELECT DISTINCT feed_id FROM entries WHERE first_seen_at < ?", (before,))
    )


def forget_entries(db: Connection, feed_ids: Sequence[int], before: float, least: int) -> int:
    """Delete entries of these feeds that came before, except each feed's newest and those that its document still shows.

    Of each a mark stays, so that it is not new when an archive or a neighbour brings it again.
    """
    return sum(_forget(db, feed_id, before, least) for feed_id in feed_ids)


def _forget(db: Connection, feed_id: int, before: float, least: int) -> int:
    row = db.execute("SELECT marks FROM documents WHERE feed_id = ?", (feed_id,)).fetchone()
    marks = row[0] if row else b""
    shown = {marks[i : i + MARK] for i in range(0, len(marks), MARK)}
    rows = db.execute(
        "SELECT id, identity FROM entries WHERE feed_id = ? AND first_seen_at < ? AND id NOT IN "
        "(SELECT id FROM entries WHERE feed_id = ? ORDER BY id DESC LIMIT ?)",
        (feed_id, before, feed_id, least),
    )
    old = [(entry_id, m) for entry_id, identity in rows if (m := mark(identity)) not in shown]
    db.executemany(
        "INSERT INTO departed (feed_id, mark) VALUES (?, ?) ON CONFLICT (feed_id, mark) DO NOTHING",
        [(feed_id, m) for _, m in old],
    )
    db.executemany("DELETE FROM search WHERE rowid = ?", [(entry_id,) for entry_id, _ in old])
    db.executemany("DELETE FROM entries WHERE id = ?", [(entry_id,) for entry_id, _ in old])
    return len(old)


def thin_polls(db: Connection, now: float, before: float) -> int:
    """Delete some lines of the log that nobody needs any more; returns how many, 0 when there are none left."""
    done = db.execute(
        "DELETE FROM polls WHERE id IN (SELECT id FROM polls WHERE at < ? AND "
        "(at < ? OR (new = 0 AND changed = 0 AND error_kind = '' AND lost IS NULL)) LIMIT ?)",
        (now - FULL_LOG_S, min(before, now - FULL_LOG_S), POLLS_AT_ONCE),
    )
    return done.rowcount
