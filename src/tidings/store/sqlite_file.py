"""One SQLite file: made, migrated, locked, copied, put back, examined."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidings.errors import UsageError
from tidings.logs import Log
from tidings.store import search_index
from tidings.store.connection import Progress, StoreError
from tidings.store.schema import MIGRATIONS, statements

#: Pages of the search index merged in one transaction, and copied between two calls of ``progress``.
MERGE_PAGES, COPY_PAGES = 500, 1000
#: How long one process waits for another's transaction. Ours take milliseconds; a migration may take longer.
BUSY_TIMEOUT_S = 30.0
#: Stands in the file's header (the letters "tids"), so that no other program's database is taken for ours.
APPLICATION_ID = 0x74696473

log = Log("tidings.store")

ADVICE = {
    "locked": "another process has been writing for too long; try again, or stop it",
    "full": "free some space on its disk",
    "malformed": "run `tidings doctor`, and `tidings restore` with your last backup",
    "not a database": "name the store's own file, or restore a backup over it",
    "readonly": "make the file and its folder writable for this user",
    "unable to open": "check that its folder exists and is writable for this user",
}


class SqliteConnection(sqlite3.Connection):
    """A `tidings.store.connection.Connection`."""

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
    """A connection in autocommit mode; transactions are always begun by hand."""
    db = sqlite3.connect(
        path,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=SqliteConnection,
    )
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(
        "PRAGMA synchronous = NORMAL"
    )  # a power cut may cost the last seconds, never the file
    db.execute(
        "PRAGMA secure_delete = OFF"
    )  # Debian overwrites what is deleted; feeds are no secret
    db.execute("PRAGMA temp_store = MEMORY")
    search_index.register_functions(db)
    if read_only:
        db.execute("PRAGMA query_only = ON")
    else:
        db.execute(
            "PRAGMA cache_size = -3000"
        )  # KiB; with more, nothing is quicker: the system has the file in memory too
        db.execute(
            "PRAGMA wal_autocheckpoint = 2000"
        )  # pages; the same pages change again and again while feeds come in
        db.execute("PRAGMA journal_size_limit = 67108864")
    return db


def schema_version(db: sqlite3.Connection, path: Path) -> int:
    """How many migrations the file has had; refuses what is not ours or is newer than this program."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    application = db.execute("PRAGMA application_id").fetchone()[0]
    foreign = (
        application != APPLICATION_ID
        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
    )
    if foreign:
        raise StoreError(f"{path} is a database of another program; name another file")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path} has schema version {version}, this tidings knows {len(MIGRATIONS)}: "
            "install the newer tidings again, or restore a backup that was made before"
        )
    return version


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring the file to this program's version, in one transaction."""
    version = schema_version(db, path)
    db.execute(
        "PRAGMA page_size = 8192"
    )  # for a new file: an entry and its words fit into a page, and it is smaller for it
    db.execute("PRAGMA journal_mode = WAL")
    if version == len(MIGRATIONS):
        return
    if version:  # said beforehand: what is indexed anew takes a minute for a million entries
        log.warning(
            "bringing the store up to date", store=str(path), version=version, to=len(MIGRATIONS)
        )
    db.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[
            schema_version(db, path) :
        ]:  # asked again: another process may have been faster
            for statement in statements(migration):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def create_private_file(path: Path) -> None:
    """Create the file for its owner alone; SQLite gives the files beside it the same rights."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened ({error.strerror}): {ADVICE['unable to open']}"
        ) from error


def lock_serving(path: Path) -> sqlite3.Connection:
    """Hold the right to serve this store until the connection is closed or the process dies, however it dies.

    The lock is an exclusive transaction on an empty database beside the file: SQLite knows how to lock on every system.
    """
    beside = path.with_name(path.name + ".serving")
    create_private_file(beside)
    lock = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("PRAGMA journal_mode = OFF")  # nothing is ever written to it
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        raise StoreError(
            f"{path} is in use by another `tidings serve`; stop that first, or choose another --data-dir"
        ) from error
    return lock


def to_store_error(path: Path, error: sqlite3.DatabaseError) -> StoreError:
    """SQLite's words and what to do about them."""
    text = str(error)
    advice = next(
        (advice for sign, advice in ADVICE.items() if sign in text), "run `tidings doctor`"
    )
    return StoreError(f"{path}: {text}; {advice}")


def merge_index(db: sqlite3.Connection) -> bool:
    """Merge a little of the search index; returns whether there was something to merge."""
    before = db.total_changes
    db.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (MERGE_PAGES,))
    return db.total_changes - before >= 2  # SQLite's own rule (FTS5, "the merge command")


def check(db: sqlite3.Connection) -> list[str]:
    """Everything that is wrong with the file; nothing if it is well."""
    problems = [str(row[0]) for row in db.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    problems += [
        f"a row of {row[0]} points to a missing row of {row[2]}"
        for row in db.execute("PRAGMA foreign_key_check").fetchmany(20)
    ]
    for these, there, problem in (
        ("id FROM entries", "rowid FROM search", "entries cannot be found by search"),
        ("rowid FROM search", "id FROM entries", "entries are in the search index alone"),
    ):
        count = db.execute(
            f"SELECT count(*) FROM (SELECT {these} EXCEPT SELECT {there})"
        ).fetchone()[0]
        problems += [f"{count} {problem}"] if count else []
    return problems


def backup(db: sqlite3.Connection, path: Path, to: Path, progress: Progress | None) -> None:
    """Copy one moment of the file, while others write. The copy appears under its name when it is complete.

    ``db`` is within a transaction, which holds the moment still however long the copy takes.
    """
    if to.exists() and to.samefile(path):
        raise UsageError(f"{to} is the store itself; name another file for the backup")
    db.execute(
        "SELECT count(*) FROM sqlite_master"
    ).fetchone()  # the moment is now, not when the first page is read
    os.replace(_copy_database(db, to, progress), to)


def restore(source: Path, path: Path, progress: Progress | None = None) -> None:
    """Put a backup in the store's place, after a look at whether it is whole and of a version that we know."""
    if not source.is_file():
        raise UsageError(f"{source} does not exist; name a file that `tidings backup` made")
    if path.exists() and source.samefile(path):
        raise UsageError(f"{source} is the store itself; name a file that `tidings backup` made")
    lock = lock_serving(path)
    try:
        db = sqlite3.connect(
            f"{source.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        try:
            if schema_version(db, source) == 0:
                raise StoreError(f"{source} is no backup of a tidings store; name another file")
            if (found := db.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
                raise StoreError(f"{source} is damaged ({found}); use an older backup")
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
    """Write everything into the old file itself and remove its log, which must never meet the new file."""
    if path.exists():
        db = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            db.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"{path} is in use by another tidings command; let it end first"
            ) from error
        except sqlite3.DatabaseError:
            pass  # a damaged file is what backups are for
        finally:
            db.close()
    for log in ("-wal", "-shm"):
        path.with_name(path.name + log).unlink(missing_ok=True)


def _copy_database(db: sqlite3.Connection, to: Path, progress: Progress | None) -> Path:
    """A complete copy beside ``to``, safely on the disk."""
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
