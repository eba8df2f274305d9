"""PostgreSQL database with a connection pool, transaction retries and migrations.

Any number of processes on any number of machines may use it. A few threads have one connection
each. A connection has its own event loop, which runs only while a statement does, so that
synchronous functions of the store can wait for the result. Each call is one transaction. A
transaction that fails before its commit (server restart, network failure, serialization conflict,
deadlock) has changed nothing and is retried; only a commit without an answer is an error, because
its outcome is unknown.
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
from tidings.i18n import _
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

#: Maximum number of connections per process. They are opened on demand.
MAX_CONNECTIONS = 6
#: Time in seconds for which a call retries while the server is not reachable. A restart of the
#: server takes seconds.
RECONNECT_TIMEOUT_S = 30.0
#: Statement timeout in seconds on the client, after which the network is considered down. It is
#: longer than any statement except a few for which `disable_timeout` is called.
STATEMENT_TIMEOUT_S = 60.0
#: Timeout in seconds after which the server ends an idle transaction and releases its locks. Such a
#: transaction belongs to a client that was disconnected.
IDLE_IN_TRANSACTION_TIMEOUT_S = 30.0
#: Maximum number of retries after serialization conflicts and deadlocks.
MAX_CONFLICT_RETRIES = 10
#: Maximum number of prepared statements that are cached per connection.
STATEMENT_CACHE_SIZE = 256
#: Id of the advisory lock of the process that migrates, which equals the SQLite application id.
MIGRATION_LOCK_ID = 0x74696473

#: Errors of a connection that is lost or cannot be opened now. The transaction was not committed.
CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.IdleInTransactionSessionTimeoutError,  # the client was idle, not the server
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InternalClientError,  # raised by asyncpg if a statement is cut off in the middle
)
#: Errors of transactions that conflict with another transaction.
CONFLICT_ERRORS = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
#: Advice on what to do about an error, by the type of the error. The first match is used.
ADVICE: tuple[tuple[Any, Callable[[], str]], ...] = (
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        lambda: _("check the user name and password in the database URL"),
    ),
    (
        asyncpg.InvalidCatalogNameError,
        lambda: _("create the database with `createdb`, or choose another database"),
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        lambda: _("make this user the owner of the database"),
    ),
    (
        asyncpg.TooManyConnectionsError,
        lambda: _("increase max_connections, or run fewer workers"),
    ),
    (
        asyncpg.InsufficientResourcesError,
        lambda: _("free disk space or memory on the server"),
    ),
    (
        (*CONNECTION_ERRORS, asyncpg.InterfaceError),
        lambda: _("check that PostgreSQL is running and can be reached"),
    ),
    (asyncpg.PostgresError, lambda: _("see the log of the PostgreSQL server")),
)


@lru_cache(4096)
def translate_placeholders(sql: str) -> str:
    """Translate ``?`` and `IN_MANY` to the placeholders of PostgreSQL (``$1``, ``= ANY($1)``)."""
    numbers = iter(range(1, 100_000))
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql.replace(IN_MANY, "= ANY(?)"))


class PostgresRows:
    """Result of a statement (see `tidings.store.connection.Rows`)."""

    def __init__(self, rows: list[Any], status: str) -> None:
        self._rows, self._status = iter(rows), status

    @property
    def rowcount(self) -> int:
        """Number of changed rows, which is the last number in a status such as ``INSERT 0 3``."""
        return int(self._status.rpartition(" ")[2])

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._rows


class PostgresConnection:
    """Connection to PostgreSQL (see `tidings.store.connection.Connection`)."""

    postgres = True

    def __init__(self, url: str) -> None:
        self._loop = event_loop.new()
        self._statements = OrderedDict[str, Any]()
        self._timeout_s: float | None = STATEMENT_TIMEOUT_S
        #: Entry ids below this number have a partition, as far as this connection knows.
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
        """Execute a statement without parameters and results, which is not prepared."""
        self._wait(self._db.execute(sql, timeout=self._timeout_s))

    def begin(self, statement: str) -> None:
        """Start a transaction with the default statement timeout."""
        self._timeout_s = STATEMENT_TIMEOUT_S
        self.command(statement)

    def disable_timeout(self) -> None:
        """Disable the statement timeout for the rest of this transaction."""
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


def _parse_number(text: str) -> float:
    return float(text) if "." in text else int(text)


async def connect(url: str, timeout_s: float | None = None) -> Any:
    """Open a connection with the settings of the store.

    ``timeout_s`` is the default timeout of its commands in seconds. JIT compilation is off, because
    it saves time only for long queries.
    """
    settings = {"application_name": f"tidings {socket.gethostname()[:40]}:{os.getpid()}"}
    options = {
        "statement_cache_size": STATEMENT_CACHE_SIZE,
        "server_settings": settings,
        "command_timeout": timeout_s,
    }
    db = await asyncpg.connect(url, timeout=RECONNECT_TIMEOUT_S / 3, **options)
    # These are set with statements, because poolers reject them as startup parameters. The
    # keepalive lets the server end sessions of clients that are gone.
    await db.execute(
        "SET jit = off; SET idle_in_transaction_session_timeout = "
        f"'{IDLE_IN_TRANSACTION_TIMEOUT_S:.0f}s';"
        f"SET tcp_keepalives_idle = {RECONNECT_TIMEOUT_S:.0f}"
    )
    # Values of type tsvector are encoded by `search.encode_tsvector`. Values of type numeric, which
    # sums of integers have, are decoded to int or float instead of Decimal.
    await db.set_type_codec(
        "tsvector", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
    )
    await db.set_type_codec(
        "numeric", schema="pg_catalog", encoder=str, decoder=_parse_number, format="text"
    )
    return db


class PostgresDatabase:
    """Connections of this process to one database, with the threads that use them."""

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
        """Run ``work`` in a transaction, which is rolled back if ``work`` raises an error."""
        return await self._in_thread("BEGIN", lambda db: work(db, *args, **options))

    async def read(
        self,
        work: Callable[Concatenate[PostgresConnection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run ``work``, which only reads. All its queries see the same snapshot."""
        return await self._in_thread(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", lambda db: work(db, *args, **options)
        )

    async def backup(self, to: Path, progress: Progress | None) -> None:
        raise UsageError(
            _(
                "PostgreSQL databases are backed up with pg_dump; "
                "run: pg_dump -Fc -f %(file)s %(url)s",
                file=to,
                url=self.name,
            )
        )

    async def check(self) -> list[str]:
        return await self.read(partitions.check)

    async def prune_old_partitions(
        self, before: float, min_entries: int, now: float
    ) -> tuple[int, int]:
        deleted = 0
        for partition in await self.read(partitions.prunable_partitions, before, now):
            if count := await self.write(
                partitions.copy_retained_entries, partition, min_entries, now
            ):
                await self.write(partitions.swap_partition, partition)
                await self.write(partitions.delete_dependent_rows, partition)
                deleted += count
        return deleted, await self.read(partitions.first_id_in_use)

    async def optimize(self) -> None:
        """Do nothing, because autovacuum does the maintenance."""

    async def close(self) -> None:
        """Wait for running calls, then close the connections."""
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
        """Run ``work`` in a transaction, and retry conflicts and connection errors with backoff."""
        conflicts, delay_s, committing, deadline = 0, 0.05, False, math.inf
        while True:
            db = None
            try:
                db = self._connection()
                try:
                    db.begin(begin)
                    result = work(db)
                    committing = True
                    db.command("COMMIT")
                except CONNECTION_ERRORS:
                    raise  # a rollback on a lost connection would never return
                except BaseException:
                    db.roll_back()
                    raise
                return result
            except CONFLICT_ERRORS as error:
                conflicts += 1
                if conflicts > MAX_CONFLICT_RETRIES:
                    raise self._to_store_error(error) from error
                committing = False
            except (*CONNECTION_ERRORS, asyncpg.InterfaceError) as error:
                if isinstance(error, asyncpg.InterfaceError) and not (db and db.is_closed):
                    raise  # a bug in tidings
                self._drop()
                if committing:
                    raise StoreError(
                        _(
                            "%(database)s: the connection was lost during a commit; "
                            "check whether the change was saved",
                            database=self.name,
                        )
                    ) from error
                deadline = min(
                    deadline,
                    time.monotonic() + (RECONNECT_TIMEOUT_S if timeout_s is None else timeout_s),
                )
                if time.monotonic() + delay_s > deadline:
                    raise self._to_store_error(error) from error
            except asyncpg.PostgresError as error:
                if isinstance(
                    error, asyncpg.IntegrityConstraintViolationError | asyncpg.DataError
                ) or _is_our_error(error):
                    raise  # a bug in tidings
                raise self._to_store_error(error) from error
            time.sleep(delay_s)  # runs in a thread of the pool
            delay_s = min(2 * delay_s, 1.0)

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
        advice = next(advice() for kind, advice in ADVICE if isinstance(error, kind))
        return StoreError(f"{self.name}: {error or type(error).__name__}; {advice}")


def _is_our_error(error: asyncpg.PostgresError) -> bool:
    """Return whether a statement is wrong, rather than not permitted."""
    return isinstance(error, asyncpg.SyntaxOrAccessError) and not isinstance(
        error, asyncpg.InsufficientPrivilegeError
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=user.partition(":")[0] + at + host).geturl()


def migrate(db: PostgresConnection, name: str) -> None:
    """Apply the missing migrations within the present transaction, in one process at a time."""
    version = _version(db, name)
    if version == len(MIGRATIONS):
        return
    if version:
        log.warning("migration_started", store=name, version=version, to=len(MIGRATIONS))
    db.disable_timeout()
    db.execute("SELECT pg_advisory_xact_lock(?)", (MIGRATION_LOCK_ID,))
    version = _version(db, name)  # another process may have migrated meanwhile
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
    """Return the number of migrations that were applied to the database.

    Raises `StoreError` for a database of another program and for a newer schema version.
    """
    tables = "FROM information_schema.tables WHERE table_schema = current_schema()"
    if not db.execute(f"SELECT count(*) {tables} AND table_name = 'tidings_version'").fetchone()[0]:
        if db.execute(f"SELECT count(*) {tables}").fetchone()[0]:
            raise StoreError(
                _(
                    "%(database)s is a database of another program; "
                    "create one for tidings with `createdb`",
                    database=name,
                )
            )
        return 0
    version = int(db.execute("SELECT version FROM tidings_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise StoreError(
            _(
                "%(database)s was used by a newer version of tidings (schema "
                "%(version)s instead of %(supported)s); upgrade tidings, or restore "
                "an older backup",
                database=name,
                version=version,
                supported=len(MIGRATIONS),
            )
        )
    return version


def reset_sequences(db: PostgresConnection, last_ids: Mapping[str, int]) -> None:
    """Set the id sequences to the highest id of each table, or to its value in ``last_ids``.

    This is necessary after rows were inserted with explicit ids.
    """
    sequences = db.execute(
        "SELECT table_name, pg_get_serial_sequence(table_name, 'id') "
        "FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND column_name = 'id' AND is_identity = 'YES'"
    ).fetchall()
    for table, sequence in (*sequences, ("entries", "entries_id_seq")):
        highest = f"greatest(max(id), {last_ids.get(table, 0)})"
        db.execute(f"SELECT setval('{sequence}', {highest} + 1, false) FROM {table}")
