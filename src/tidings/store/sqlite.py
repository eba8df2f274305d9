"""SQLite database with one writer thread, a few reader threads and a write-ahead log (WAL).

One thread does all writing, one transaction per call; a few other threads read. Readers never wait
for the writer (WAL), and each call sees one snapshot. Other processes may do the same at the same
time: a writer waits for them. Only one process may *serve* the file. A command that does nothing
else meanwhile needs no threads: switching the GIL between threads would cost a fifth of its time,
and results that wait for the writer would use memory.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from tidings.store import sqlite_file
from tidings.store.connection import Progress, StoreError
from tidings.store.pubsub import LocalPubSub
from tidings.store.sqlite_file import SqliteConnection

P = ParamSpec("P")
T = TypeVar("T")

#: Number of reader threads.
READERS = 3


class SqliteDatabase:
    """Connections to one SQLite file, with the threads that use them."""

    allows_multiple_processes = False

    def __init__(self, path: Path, *, serving: bool = False, threads: bool = True) -> None:
        self.path, self.name, self.pubsub, self._threads = path, str(path), LocalPubSub(), threads
        sqlite_file.create_private_file(path)
        self._lock = sqlite_file.lock_serving(path) if serving else None
        self._connections: list[SqliteConnection] = []
        self._local = threading.local()
        self._writer = ThreadPoolExecutor(1, "store-writer")
        self._readers = ThreadPoolExecutor(READERS, "store-reader")
        try:
            db = sqlite_file.connect(path)
            self._connections.append(db)
            sqlite_file.migrate(db, path)
        except sqlite3.DatabaseError as error:
            self._close()
            raise sqlite_file.to_store_error(path, error) from error
        except StoreError:
            self._close()
            raise
        self._db = db

    async def write(
        self,
        work: Callable[Concatenate[SqliteConnection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run ``work`` in a transaction, which is rolled back if ``work`` raises an error."""
        return await self._run(
            self._writer,
            lambda: self._transact(
                self._db, "BEGIN IMMEDIATE", lambda db: work(db, *args, **options)
            ),
        )

    async def read(
        self,
        work: Callable[Concatenate[SqliteConnection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run ``work``, which only reads. All its queries see the same snapshot."""
        return await self._run(
            self._readers,
            lambda: self._transact(self._reader(), "BEGIN", lambda db: work(db, *args, **options)),
        )

    async def backup(self, to: Path, progress: Progress | None) -> None:
        await self.read(sqlite_file.backup, self.path, to, progress)

    async def check(self) -> list[str]:
        return await self.read(sqlite_file.check)

    async def prune_old_partitions(
        self, before: float, min_entries: int, now: float
    ) -> tuple[int, int]:
        return 0, 0

    async def optimize(self) -> None:
        while await self.write(sqlite_file.merge_index):
            pass

    async def close(self) -> None:
        """Wait for running calls, then close the file."""
        await asyncio.to_thread(self._close)

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return (
            await asyncio.get_running_loop().run_in_executor(threads, work)
            if self._threads
            else work()
        )

    def _transact(
        self, db: SqliteConnection, begin: str, work: Callable[[SqliteConnection], T]
    ) -> T:
        try:
            db.execute(begin)
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:  # SQLite rolls back automatically if the disk is full
                    db.execute("ROLLBACK")
                raise
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a bug in tidings
        except sqlite3.DatabaseError as error:
            raise sqlite_file.to_store_error(self.path, error) from error
        return result

    def _reader(self) -> SqliteConnection:
        """Return the read-only connection of this thread."""
        db: SqliteConnection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = sqlite_file.connect(self.path, read_only=True)
            self._connections.append(db)
        return db

    def _close(self) -> None:
        self._readers.shutdown()
        self._writer.shutdown()
        for db in reversed(self._connections):
            db.close()
        if self._lock is not None:
            self._lock.close()
