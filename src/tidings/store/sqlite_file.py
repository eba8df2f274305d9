"""Functions for a SQLite file, such as migration, lock, backup, restore and check."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.logs import Log
from tidings.store import search_index
from tidings.store.connection import Progress, StoreError
from tidings.store.schema import MIGRATIONS, statements

#: Number of pages of the search index that are merged per transaction, and number of pages that are
#: copied between progress reports.
MERGE_PAGES, COPY_PAGES = 500, 1000
#: Time in seconds that a transaction waits for a transaction of another process (busy timeout).
#: Transactions take milliseconds, but a migration may take longer.
BUSY_TIMEOUT_S = 30.0
#: Application id in the file header (the letters "tids"), which identifies files of tidings.
APPLICATION_ID = 0x74696473

log = Log("tidings.store")

#: Advice on what to do about an error, by a part of SQLite's message.
ADVICE: dict[str, Callable[[], str]] = {
    "locked": lambda: _(
        "another process is writing to the database; try again, or stop that process"
    ),
    "full": lambda: _("free some disk space"),
    "malformed": lambda: _("run `tidings doctor`, then `tidings restore` with your last backup"),
    "not a database": lambda: _("choose the database of tidings, or restore a backup"),
    "readonly": lambda: _("make the file and its directory writable for this user"),
    "unable to open": lambda: _("check that its directory exists and is writable for this user"),
}


class SqliteConnection(sqlite3.Connection):
    """Connection to a SQLite file (see `tidings.store.connection.Connection`)."""

    postgres = False

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES (?{', ?' * (len(columns) - 1)})",
            rows,
        )

    def allocate_entry_ids(self, count: int) -> list[int]:
        last = self.execute(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'"
        ).fetchone()[0]
        return list(range(last + 1, last + 1 + count))


def connect(path: Path, *, read_only: bool = False) -> SqliteConnection:
    """Open a connection in autocommit mode, in which transactions are started explicitly."""
    db = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=SqliteConnection,
    )
    db.execute("PRAGMA foreign_keys = ON")
    # With NORMAL a power failure may lose the last seconds, but never corrupts the file.
    db.execute("PRAGMA synchronous = NORMAL")
    # SQLite of Debian overwrites deleted data by default, which feeds do not need.
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("PRAGMA temp_store = MEMORY")
    search_index.register_functions(db)
    if read_only:
        db.execute("PRAGMA query_only = ON")
    else:
        # The size is in KiB. A larger cache is not faster, because the operating system caches the
        # file too.
        db.execute("PRAGMA cache_size = -3000")
        # The number is in pages. It is large because the same pages change again and again while
        # feeds are polled.
        db.execute("PRAGMA wal_autocheckpoint = 2000")
        db.execute("PRAGMA journal_size_limit = 67108864")
    return db


def schema_version(db: sqlite3.Connection, path: Path) -> int:
    """Return the number of migrations that were applied to the file.

    Raises `StoreError` for a database of another program and for a newer schema version.
    """
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    application = db.execute("PRAGMA application_id").fetchone()[0]
    foreign = (
        application != APPLICATION_ID
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    )
    if foreign:
        raise StoreError(
            _("%(path)s is a database of another program; choose another file", path=path)
        )
    if version > len(MIGRATIONS):
        raise StoreError(
            _(
                "%(path)s was used by a newer version of tidings (schema %(version)s "
                "instead of %(supported)s); upgrade tidings, or restore an older "
                "backup",
                path=path,
                version=version,
                supported=len(MIGRATIONS),
            )
        )
    return version


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Apply the missing migrations to the file, in one transaction."""
    version = schema_version(db, path)
    # The page size takes effect for a new file. With 8 KiB an entry and its words fit into a page,
    # and the file is smaller.
    db.execute("PRAGMA page_size = 8192")
    db.execute("PRAGMA journal_mode = WAL")
    if version == len(MIGRATIONS):
        return
    if version:  # this is logged first, because indexing takes a minute per million entries
        log.warning("migration_started", store=str(path), version=version, to=len(MIGRATIONS))
    db.execute("BEGIN IMMEDIATE")
    try:
        # The version is read again, because another process may have migrated the file meanwhile.
        for migration in MIGRATIONS[schema_version(db, path) :]:
            for statement in statements(migration):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def create_private_file(path: Path) -> None:
    """Create a file that only its owner can read.

    SQLite creates the files -wal and -shm with the same mode.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(
            _(
                "%(path)s cannot be opened (%(error)s): %(advice)s",
                path=path,
                error=error.strerror,
                advice=ADVICE["unable to open"](),
            )
        ) from error


def lock_serving(path: Path) -> sqlite3.Connection:
    """Lock the right to serve this store until the connection is closed or the process ends.

    The lock is an exclusive transaction on an empty database beside the file, because SQLite
    implements file locks on every operating system. Raises `StoreError` if the store is already
    locked.
    """
    lock_path = path.with_name(path.name + ".serving")
    create_private_file(lock_path)
    lock = sqlite3.connect(lock_path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("PRAGMA journal_mode = OFF")  # the lock file is never written to
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        raise StoreError(
            _(
                "%(path)s is in use by another `tidings serve`; "
                "stop that first, or choose another --data-dir",
                path=path,
            )
        ) from error
    return lock


def to_store_error(path: Path, error: sqlite3.DatabaseError) -> StoreError:
    """Return a `StoreError` with advice for an error of SQLite."""
    text = str(error)
    advice = next(
        (advice() for part, advice in ADVICE.items() if part in text), _("run `tidings doctor`")
    )
    return StoreError(f"{path}: {text}; {advice}")


def merge_index(db: sqlite3.Connection) -> bool:
    """Merge some pages of the search index, and return whether there may be more to merge."""
    before = db.total_changes
    db.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGE_PAGES,))
    return db.total_changes - before >= 2  # see "the merge command" in the documentation of FTS5


def check(db: sqlite3.Connection) -> list[str]:
    """Check the integrity of the file and of the search index, and return the problems."""
    problems = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [
        _(
            "a row of %(table)s points to a missing row of %(parent)s",
            table=row[0],
            parent=row[2],
        )
        for row in db.execute("PRAGMA foreign_key_check").fetchmany(20)
    ]
    count = "SELECT count(*) FROM (SELECT {} EXCEPT SELECT {})"
    entries, indexed = "id FROM entries", "rowid FROM search"
    if number := db.execute(count.format(entries, indexed)).fetchone()[0]:
        problems.append(_("%(count)s entries cannot be found by search", count=number))
    if number := db.execute(count.format(indexed, entries)).fetchone()[0]:
        problems.append(_("%(count)s entries exist only in the search index", count=number))
    return problems


def backup(db: sqlite3.Connection, path: Path, to: Path, progress: Progress | None) -> None:
    """Copy a snapshot of the file while other processes write.

    The file ``to`` appears when the copy is complete. ``db`` is within a transaction, which keeps
    the snapshot until then.
    """
    if to.exists() and to.samefile(path):
        raise UsageError(_("%(file)s is the database in use; choose another file", file=to))
    # The first read determines the snapshot.
    db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    os.replace(_copy_database(db, to, progress), to)


def restore(source: Path, path: Path, progress: Progress | None = None) -> None:
    """Replace the store with a backup, after checks of its integrity and version.

    Raises `UsageError` or `StoreError` if the backup is not usable or the store is in use.
    """
    if not source.is_file():
        raise UsageError(
            _("%(file)s does not exist; choose a file created by `tidings backup`", file=source)
        )
    if path.exists() and source.samefile(path):
        raise UsageError(
            _(
                "%(file)s is the database in use; choose a file created by `tidings backup`",
                file=source,
            )
        )
    lock = lock_serving(path)
    try:
        db = sqlite3.connect(
            f"{source.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        try:
            if schema_version(db, source) == 0:
                raise StoreError(
                    _("%(file)s is not a backup of tidings; choose another file", file=source)
                )
            if (problem := db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise StoreError(
                    _(
                        "%(file)s is damaged (%(problem)s); use an older backup",
                        file=source,
                        problem=problem,
                    )
                )
            part = _copy_database(db, path, progress)
        except sqlite3.DatabaseError as error:
            raise to_store_error(source, error) from error
        finally:
            db.close()
        _remove_wal(path)
        os.replace(part, path)
    finally:
        lock.close()


def _remove_wal(path: Path) -> None:
    """Write the WAL of the old file to that file and remove the WAL.

    The WAL must never be applied to the new file.
    """
    if path.exists():
        db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            raise StoreError(
                _(
                    "%(path)s is in use by another tidings command; wait until it has finished",
                    path=path,
                )
            ) from error
        except sqlite3.DatabaseError:
            pass  # a damaged file is the reason for a restore
        finally:
            db.close()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _copy_database(db: sqlite3.Connection, to: Path, progress: Progress | None) -> Path:
    """Copy the database to a file beside ``to``, sync it to the disk, and return its path."""
    part = to.with_name(to.name + ".part")
    part.unlink(missing_ok=True)
    create_private_file(part)
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
