"""The store in PostgreSQL: any number of processes, on any number of machines, write and read at once.

A few threads hold a connection each. A connection has an event loop of its own, which runs only while a statement does, so
the store's plain functions can wait for an answer where they stand. Each call is one transaction. One that is cut off before
its commit (the server restarts, the network fails, two transactions stand in each other's way) has changed nothing and is done
again; only a commit whose answer is lost is an error, for nobody knows what became of it.
"""

import asyncio
import math
import os
import re
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import urlsplit

from tidings import event_loop
from tidings.errors import MissingExtra, UsageError
from tidings.logs import Log
from tidings.store import partitions
from tidings.store.connection import IN_MANY, Progress, StoreError
from tidings.store.pubsub import PostgresPubSub
from tidings.store.schema import MIGRATIONS, translate_to_postgres

try:
    import asyncpg  # type: ignore[import-untyped]  # it has no type information
except ImportError:
    raise MissingExtra("asyncpg", "postgres", "a store in PostgreSQL") from None

P = ParamSpec("P")
T = TypeVar("T")

log = Log("tidings.store")

#: Connections of one process, at most. They are made when they are needed.
MAX_CONNECTIONS = 6
#: How long a call waits for a server that is away. A restart takes seconds.
RECONNECT_TIMEOUT_S = 30.0
#: Longer than any statement of ours but a few that say so; then the network is cut, and nobody will ever answer.
STATEMENT_TIMEOUT_S = 60.0
#: A transaction that nobody goes on with: its process was cut off, and the server must not hold its locks.
IDLE_IN_TRANSACTION_TIMEOUT_S = 30.0
#: How often a call is done again after two stood in each other's way.
MAX_CONFLICT_RETRIES = 10
STATEMENT_CACHE_SIZE = 256
#: Held by who migrates; the same number that marks our SQLite files.
MIGRATION_LOCK_ID = 0x74696473

#: The connection is gone or cannot be had now; what was not committed is as if it had never been.
CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,  # we were away for so long, not the server
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InternalClientError,  # it was cut in the middle of a statement, and asyncpg has not understood that yet
)
CONFLICT_ERRORS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
ADVICE = (
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "check the user and the password in its address",
    ),
    (asyncpg.InvalidCatalogNameError, "make it with `createdb`, or name another in the address"),
    (asyncpg.InsufficientPrivilegeError, "make this user the owner of the database"),
    (asyncpg.TooManyConnectionsError, "raise max_connections, or run fewer workers"),
    (asyncpg.InsufficientResourcesError, "make room on the server"),
    (
        (*CONNECTION_ERRORS, asyncpg.InterfaceError),
        "check that PostgreSQL runs there and can be reached",
    ),
    (asyncpg.PostgresError, "look into the server's log"),
)


@lru_cache(4096)
def translate_placeholders(sql: str) -> str:
    """The placeholders of PostgreSQL."""
    numbers = iter(range(1, 100_000))
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql.replace(IN_MANY, "= ANY(?)"))


class PostgresRows:
    """A `tidings.store.connection.Rows`."""

    def __init__(self, rows: list[Any], status: str) -> None:
        self._rows, self._status = iter(rows), status

    @property
    def rowcount(self) -> int:
        """The last word of what PostgreSQL says, as in ``INSERT 0 3``."""
        return int(self._status.rpartition(" ")[2])

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class PostgresConnection:
    """A `tidings.store.connection.Connection`."""

    postgres = True

    def __init__(self, url: str) -> None:
        self._loop = event_loop.new()
        self._statements = OrderedDict[str, Any]()
        self._timeout_s: float | None = STATEMENT_TIMEOUT_S
        #: Ids of entries up to here have a partition, as far as this connection knows.
        self.partitioned_until_id = 0
        try:
            self._db = self._wait(connect(url))
        except BaseException:
            self._loop.close()
            raise

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> PostgresRows:
        statement = self._statements.get(sql)
        if statement is None:
            statement = self._statements[sql] = self._wait(
                self._db.prepare(translate_placeholders(sql))
            )
            if len(self._statements) > STATEMENT_CACHE_SIZE:
                self._statements.popitem(last=False)
        rows = self._wait(statement.fetch(*parameters, timeout=self._timeout_s))
        return PostgresRows(rows, statement.get_statusmsg())

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        if rows := list(rows):
            self._wait(
                self._db.executemany(translate_placeholders(sql), rows, timeout=self._timeout_s)
            )

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._wait(
            self._db.copy_records_to_table(
                table, columns=columns, records=rows, timeout=self._timeout_s
            )
        )

    def allocate_entry_ids(self, count: int) -> list[int]:
        return partitions.allocate_ids(self, count)

    def command(self, sql: str) -> None:
        """A statement that has no values, gives no rows and is not worth remembering."""
        self._wait(self._db.execute(sql, timeout=self._timeout_s))

    def begin(self, how: str) -> None:
        self._timeout_s = STATEMENT_TIMEOUT_S
        self.command(how)

    def disable_timeout(self) -> None:
        """What follows in this transaction may take as long as it takes."""
        self._timeout_s = None

    def roll_back(self) -> None:
        if not self._db.is_closed() and self._db.is_in_transaction():
            self.command("ROLLBACK")

    def close(self, *, abrupt: bool = False) -> None:
        if abrupt:
            self._db.terminate()
        else:
            self._wait(self._db.close(timeout=RECONNECT_TIMEOUT_S))
        self._loop.close()

    @property
    def is_closed(self) -> bool:
        return bool(self._db.is_closed())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


async def connect(url: str, timeout_s: float | None = None) -> Any:
    """A connection as we want it: it says whose it is; JIT is for long queries, ours are short.

    Commands on it that say nothing else wait ``answer_s`` for an answer.
    """
    settings = {"application_name": f"tidings {socket.gethostname()[:40]}:{os.getpid()}"}
    options = {
        "statement_cache_size": STATEMENT_CACHE_SIZE,
        "server_settings": settings,
        "command_timeout": timeout_s,
    }
    db = await asyncpg.connect(url, timeout=RECONNECT_TIMEOUT_S / 3, **options)
    # By statements: a pooler would refuse to begin with them. The last ends a session that nobody will end otherwise.
    await db.execute(
        f"SET jit = off; SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_TIMEOUT_S:.0f}s';"
        f"SET tcp_keepalives_idle = {RECONNECT_TIMEOUT_S:.0f}"
    )
    # Made by `search.vector`; and sums of integers are numbers of another type here, which Python shall not see.
    await db.set_type_codec(
        "tsvector", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
    )
    await db.set_type_codec(
        "numeric", schema="pg_catalog", encoder=str, decoder=_number, format="text"
    )
    return db


class PostgresDatabase:
    """The connections of this process, and the threads they belong to."""

    allows_multiple_processes = True

    def __init__(self, url: str) -> None:
        self._url, self.name = url, _without_password(url)
        self._local = threading.local()
        self._connections: set[PostgresConnection] = set()
        self._threads = ThreadPoolExecutor(MAX_CONNECTIONS, "store")
        self.pubsub = PostgresPubSub(
            lambda: connect(url, RECONNECT_TIMEOUT_S / 3), CONNECTION_ERRORS
        )
        try:
            self._threads.submit(
                self._transact, "BEGIN", lambda db: migrate(db, self.name), timeout_s=0.0
            ).result()
        except BaseException:
            self._threads.submit(self._close_all).result()
            self._threads.shutdown()
            raise

    async def write(
        self,
        work: Callable[Concatenate[PostgresConnection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run ``work`` within a transaction of its own: all of it, or nothing if it raises."""
        return await self._in_thread("BEGIN", lambda db: work(db, *args, **options))

    async def read(
        self,
        work: Callable[Concatenate[PostgresConnection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run ``work``, which only reads; all its queries see the same moment."""
        return await self._in_thread(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", lambda db: work(db, *args, **options)
        )

    async def backup(self, to: Path, progress: Progress | None) -> None:
        raise UsageError(
            f"{self.name} is backed up by PostgreSQL's own means; use: pg_dump -Fc -f {to} {self.name}"
        )

    async def check(self) -> list[str]:
        return await self.read(partitions.check)

    async def prune_old_partitions(
        self, before: float, min_entries: int, now: float
    ) -> tuple[int, int]:
        gone = 0
        for old in await self.read(partitions.old, before, now):
            if left_out := await self.write(
                partitions.copy_retained_entries, old, min_entries, now
            ):
                await self.write(partitions.swap_partition, old)
                await self.write(partitions.delete_dependent_rows, old)
                gone += left_out
        return gone, await self.read(partitions.first_id_in_use)

    async def optimize(self) -> None:
        """Autovacuum does it."""

    async def close(self) -> None:
        """Wait for what is under way, then let go of the connections."""
        await self.pubsub.close()
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._close_all)

    async def _in_thread(self, begin: str, work: Callable[[PostgresConnection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._transact, begin, work
        )

    def _transact(
        self, begin: str, work: Callable[[PostgresConnection], T], timeout_s: float | None = None
    ) -> T:
        collisions, pause_s, committing, give_up_at = 0, 0.05, False, math.inf
        while True:
            db = None
            try:
                db = self._connection()
                try:
                    db.begin(begin)
                    result = work(db)
                    committing = True
                    db.command("COMMIT")
                except (
                    CONNECTION_ERRORS
                ):  # there is nobody whom to ask to roll back: that would be waited for without end
                    raise
                except BaseException:
                    db.roll_back()
                    raise
                return result
            except CONFLICT_ERRORS as error:
                collisions += 1
                if collisions > MAX_CONFLICT_RETRIES:
                    raise self._to_store_error(error) from error
                committing = False
            except (*CONNECTION_ERRORS, asyncpg.InterfaceError) as error:
                if isinstance(error, asyncpg.InterfaceError) and not (db and db.is_closed):
                    raise  # a fault of ours
                self._drop()
                if committing:
                    raise StoreError(
                        f"{self.name}: the connection broke during a commit; look whether it was made"
                    ) from error
                give_up_at = min(
                    give_up_at,
                    time.monotonic() + (RECONNECT_TIMEOUT_S if timeout_s is None else timeout_s),
                )
                if time.monotonic() + pause_s > give_up_at:
                    raise self._to_store_error(error) from error
            except asyncpg.PostgresError as error:
                if isinstance(
                    error, asyncpg.IntegrityConstraintViolationError | asyncpg.DataError
                ) or _is_our_error(error):
                    raise  # a fault of ours
                raise self._to_store_error(error) from error
            time.sleep(pause_s)  # in a thread of our own
            pause_s = min(2 * pause_s, 1.0)

    def _connection(self) -> PostgresConnection:
        db: PostgresConnection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = PostgresConnection(self._url)
            self._connections.add(db)
        return db

    def _drop(self) -> None:
        db: PostgresConnection | None = getattr(self._local, "db", None)
        if db is not None:
            self._local.db = None
            self._connections.discard(db)
            db.close(abrupt=True)

    def _close_all(self) -> None:
        for db in self._connections:
            try:
                db.close()
            except CONNECTION_ERRORS:
                db.close(abrupt=True)

    def _to_store_error(self, error: BaseException) -> StoreError:
        advice = next(advice for kind, advice in ADVICE if isinstance(error, kind))
        return StoreError(f"{self.name}: {error or type(error).__name__}; {advice}")


def _is_our_error(error: asyncpg.PostgresError) -> bool:
    """SQL that is wrong, but not for want of rights."""
    return isinstance(error, asyncpg.SyntaxOrAccessError) and not isinstance(
        error, asyncpg.InsufficientPrivilegeError
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=user.partition(":")[0] + at + place).geturl()


def migrate(db: PostgresConnection, name: str) -> None:
    """Bring the database to this program's version, whoever comes first; within one transaction."""
    known = _version(db, name)
    if known == len(MIGRATIONS):
        return
    if known:
        log.warning("bringing the store up to date", store=name, version=known, to=len(MIGRATIONS))
    db.disable_timeout()
    db.execute("SELECT pg_advisory_xact_lock(?)", (MIGRATION_LOCK_ID,))
    version = _version(db, name)  # asked again: another process may have been faster
    if version == 0:
        db.command("CREATE TABLE tidings_version (version BIGINT NOT NULL)")
        db.command("INSERT INTO tidings_version VALUES (0)")
    for migration in MIGRATIONS[version:]:
        for statement in translate_to_postgres(migration):
            db.command(statement)
    db.execute("UPDATE tidings_version SET version = ?", (len(MIGRATIONS),))
    reset_sequences(db, {})
    partitions.ensure_partition(db, 0)


def _version(db: PostgresConnection, name: str) -> int:
    """How many migrations the database has had; refuses what is not ours or is newer than this program."""
    tables = "FROM information_schema.tables WHERE table_schema = current_schema()"
    if not db.execute(f"SELECT count(*) {tables} AND table_name = 'tidings_version'").fetchone()[0]:
        if db.execute(f"SELECT count(*) {tables}").fetchone()[0]:
            raise StoreError(
                f"{name} is a database of another program; make one for tidings alone with `createdb`"
            )
        return 0
    version = int(db.execute("SELECT version FROM tidings_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{name} has schema version {version}, this tidings knows {len(MIGRATIONS)}: "
            "install the newer tidings again, or restore a backup that was made before"
        )
    return version


def reset_sequences(db: PostgresConnection, given: Mapping[str, int]) -> None:
    """Ids go on after the highest that there is or that was ``given`` once, also where rows came with ids of their own."""
    serials = db.execute(
        "SELECT table_name, pg_get_serial_sequence(table_name, 'id') FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND column_name = 'id' AND is_identity = 'YES'"
    ).fetchall()
    for table, sequence in (*serials, ("entries", "entries_id_seq")):
        highest = f"greatest(max(id), {given.get(table, 0)})"
        db.execute(f"SELECT setval('{sequence}', {highest} + 1, false) FROM {table}")
