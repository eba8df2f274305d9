"""One SQLite file: who may write, who may read, and how it is kept whole.

All writing is done by one thread, a whole transaction per call; a few other threads read. Readers never wait for the
writer (write-ahead log), and each call of either kind sees one moment of the file. Other processes may do the same at the
same time: a writer waits for them. Only one may *serve*, though.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tidings.errors import TidingsError
from tidings.store.schema import MIGRATIONS, statements

P = ParamSpec("P")
T = TypeVar("T")

READERS = 3
#: How long one process waits for another's transaction. Ours take milliseconds; a migration may take longer.
PATIENCE_S = 30.0
#: Stands in the file's header (the letters "tids"), so that no other program's database is taken for ours.
APPLICATION_ID = 0x74696473

ADVICE = {
    "locked": "another process has been writing for too long; try again, or stop it",
    "full": "free some space on its disk",
    "malformed": "run `tidings doctor`, and `tidings restore` with your last backup",
    "not a database": "name the store's own file, or restore a backup over it",
    "readonly": "make the file and its folder writable for this user",
    "unable to open": "check that its folder exists and is writable for this user",
}


class StoreError(TidingsError):
    """The store cannot be used; names the file and what to do."""


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode; transactions are always begun by hand."""
    db = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False, cached_statements=256)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last seconds, never the file
    db.execute("PRAGMA secure_delete = OFF")  # Debian overwrites what is deleted; feeds are no secret
    db.execute("PRAGMA temp_store = MEMORY")
    if read_only:
        db.execute("PRAGMA query_only = ON")
    else:
        db.execute("PRAGMA cache_size = -8000")  # KiB
        db.execute("PRAGMA wal_autocheckpoint = 2000")  # pages; the same pages change again and again while feeds come in
        db.execute("PRAGMA journal_size_limit = 67108864")
    return db


def version_of(db: sqlite3.Connection, path: Path) -> int:
    """How many migrations the file has had; refuses what is not ours or is newer than this program."""
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    application = db.execute("PRAGMA application_id").fetchone()[0]
    foreign = application != APPLICATION_ID and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
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
    version = version_of(db, path)
    db.execute("PRAGMA page_size = 8192")  # for a new file: an entry and its words fit into a page, and it is smaller for it
    db.execute("PRAGMA journal_mode = WAL")
    if version == len(MIGRATIONS):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for migration in MIGRATIONS[version_of(db, path) :]:  # asked again: another process may have been faster
            for statement in statements(migration):
                db.execute(statement)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def make_private(path: Path) -> None:
    """Create the file for its owner alone; SQLite gives the files beside it the same rights."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"{path} cannot be opened ({error.strerror}): {ADVICE['unable to open']}") from error


def lock_serving(path: Path) -> sqlite3.Connection:
    """Hold the right to serve this store until the connection is closed or the process dies, however it dies.

    The lock is an exclusive transaction on an empty database beside the file: SQLite knows how to lock on every system.
    """
    beside = path.with_name(path.name + ".serving")
    make_private(beside)
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


def complaint(path: Path, error: sqlite3.DatabaseError) -> StoreError:
    """SQLite's words and what to do about them."""
    text = str(error)
    advice = next((advice for sign, advice in ADVICE.items() if sign in text), "run `tidings doctor`")
    return StoreError(f"{path}: {text}; {advice}")


class Database:
    """The connections to one file, and the threads they belong to."""

    def __init__(self, path: Path, *, serving: bool = False) -> None:
        self.path = path
        make_private(path)
        self._lock = lock_serving(path) if serving else None
        self._connections: list[sqlite3.Connection] = []
        self._local = threading.local()
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._readers = ThreadPoolExecutor(READERS, "store-reader")
        try:
            db = connect(path)
            self._connections.append(db)
            migrate(db, path)
        except sqlite3.DatabaseError as error:
            self._close()
            raise complaint(path, error) from error
        except StoreError:
            self._close()
            raise
        self._db = db

    async def write(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Run ``work`` within a transaction of its own: all of it, or nothing if it raises."""
        return await self._in(
            self._writer, lambda: self._transact(self._db, "BEGIN IMMEDIATE", lambda db: work(db, *args, **options))
        )

    async def read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Run ``work``, which only reads; all its queries see the same moment."""
        return await self._in(
            self._readers, lambda: self._transact(self._reader(), "BEGIN", lambda db: work(db, *args, **options))
        )

    async def close(self) -> None:
        """Wait for what is under way, then let go of the file."""
        await asyncio.to_thread(self._close)

    async def _in(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, work)

    def _transact(self, db: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            db.execute(begin)
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite has rolled back by itself where the disk is full
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a fault of ours
        except sqlite3.DatabaseError as error:
            raise complaint(self.path, error) from error
        return result

    def _reader(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = connect(self.path, read_only=True)
            self._connections.append(db)
        return db

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        for db in reversed(self._connections):
            db.close()
        if self._lock is not None:
            self._lock.close()
