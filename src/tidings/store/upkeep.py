"""What keeps a store in good health over the years: forgetting, backup, restore, examination."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from tidings.errors import UsageError
from tidings.store.identities import MARK, mark
from tidings.store.sqlite import StoreError, complaint, lock_serving, make_private, version_of

#: So long every poll stands in the log; then only those that found something, failed, or saw a gap.
FULL_LOG_S = 8 * 86400.0
#: Feeds cleared and polls deleted in one transaction: recording must never wait long.
FEEDS_AT_ONCE, POLLS_AT_ONCE = 20, 2000
#: Pages of the index merged in one transaction, and copied between two calls of ``progress``.
MERGE_PAGES, COPY_PAGES = 500, 1000

Progress = Callable[[int, int], object]


def feeds_with_old_entries(db: sqlite3.Connection, before: float) -> list[int]:
    return sorted(
        feed_id for (feed_id,) in db.execute("SELECT DISTINCT feed_id FROM entries WHERE first_seen_at < ?", (before,))
    )


def forget_entries(db: sqlite3.Connection, feed_ids: Sequence[int], before: float, least: int) -> int:
    """Delete entries of these feeds that came before, except each feed's newest and those that its document still shows.

    Of each a mark stays, so that it is not new when an archive or a neighbour brings it again.
    """
    return sum(_forget(db, feed_id, before, least) for feed_id in feed_ids)


def _forget(db: sqlite3.Connection, feed_id: int, before: float, least: int) -> int:
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


def thin_polls(db: sqlite3.Connection, now: float, before: float) -> int:
    """Delete some lines of the log that nobody needs any more; returns how many, 0 when there are none left."""
    done = db.execute(
        "DELETE FROM polls WHERE id IN (SELECT id FROM polls WHERE at < ? AND "
        "(at < ? OR (new = 0 AND changed = 0 AND error_kind = '' AND lost IS NULL)) LIMIT ?)",
        (now - FULL_LOG_S, min(before, now - FULL_LOG_S), POLLS_AT_ONCE),
    )
    return done.rowcount


def merge_index(db: sqlite3.Connection) -> bool:
    """Merge a little of the search index; returns whether there was something to merge."""
    before = db.total_changes
    db.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGE_PAGES,))
    return db.total_changes - before >= 2  # SQLite's own rule (FTS5, "the merge command")


def check(db: sqlite3.Connection) -> list[str]:
    """Everything that is wrong with the file; nothing if it is well."""
    problems = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [
        f"a row of {row[0]} points to a missing row of {row[2]}" for row in db.execute("PRAGMA foreign_key_check").fetchmany(20)
    ]
    for these, there, problem in (
        ("id FROM entries", "rowid FROM search", "entries cannot be found by search"),
        ("rowid FROM search", "id FROM entries", "entries are in the search index alone"),
    ):
        count = db.execute(f"SELECT count(*) FROM (SELECT {these} EXCEPT SELECT {there})").fetchone()[0]
        problems += [f"{count} {problem}"] if count else []
    return problems


def backup(db: sqlite3.Connection, path: Path, to: Path, progress: Progress | None) -> None:
    """Copy one moment of the file, while others write. The copy appears under its name when it is complete.

    ``db`` is within a transaction, which holds the moment still however long the copy takes.
    """
    if to.exists() and to.samefile(path):
        raise UsageError(f"{to} is the store itself; name another file for the backup")
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the moment is now, not when the first page is read
    os.replace(_copied(db, to, progress), to)


def restore(source: Path, path: Path, progress: Progress | None = None) -> None:
    """Put a backup in the store's place, after a look at whether it is whole and of a version that we know."""
    if not source.is_file():
        raise UsageError(f"{source} does not exist; name a file that `tidings backup` made")
    if path.exists() and source.samefile(path):
        raise UsageError(f"{source} is the store itself; name a file that `tidings backup` made")
    lock = lock_serving(path)
    try:
        db = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        try:
            if version_of(db, source) == 0:
                raise StoreError(f"{source} is no backup of a tidings store; name another file")
            if (found := db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise StoreError(f"{source} is damaged ({found}); use an older backup")
            part = _copied(db, path, progress)
        except sqlite3.DatabaseError as error:
            raise complaint(source, error) from error
        finally:
            db.close()
        _retire_log(path)
        os.replace(part, path)
    finally:
        lock.close()


def _retire_log(path: Path) -> None:
    """Write everything into the old file itself and remove its log, which must never meet the new file."""
    if path.exists():
        db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            raise StoreError(f"{path} is in use by another tidings command; let it end first") from error
        except sqlite3.DatabaseError:
            pass  # a damaged file is what backups are for
        finally:
            db.close()
    for log in ("-wal", "-shm"):
        path.with_name(path.name + log).unlink(missing_ok=True)


def _copied(db: sqlite3.Connection, to: Path, progress: Progress | None) -> Path:
    """A complete copy beside ``to``, safely on the disk."""
    part = to.with_name(to.name + ".part")
    part.unlink(missing_ok=True)
    make_private(part)
    copy = sqlite3.connect(part, isolation_level=None)
    try:
        report = (lambda _status, left, total: progress(total - left, total)) if progress else None
        db.backup(copy, pages=COPY_PAGES, progress=report)
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()
    with open(part, "rb+") as file:
        os.fsync(file.fileno())
    return part
