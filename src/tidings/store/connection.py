"""SQL dialect layer: the interface of connections and databases for SQLite and PostgreSQL.

Queries are written once, with ``?`` placeholders, in the SQL that both databases support:
``ON CONFLICT``, ``RETURNING``, ``count(*) FILTER (WHERE ...)``, ``NULLS LAST`` where nulls matter,
and only functions that both have (``CASE`` instead of ``max(a, b)``). Types are strict: integer
columns get an int, text a str, binary data bytes; infinity is passed as a parameter, never written
into the SQL. Two things have no common syntax: lists of values (`IN_MANY` with `Many`) and bulk
inserts (`Connection.insert`). Queries that must differ check ``db.postgres``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from tidings.errors import TidingsError
from tidings.store.pubsub import PubSub

P = ParamSpec("P")
T = TypeVar("T")

#: Progress callback: called with the amount done and the total.
Progress: TypeAlias = Callable[[int, int], object]

#: ``f"feed_id {IN_MANY}"`` with the parameter ``Many(feed_ids)``: one statement for any number of
#: values. Numbers or text.
IN_MANY = "IN (SELECT value FROM json_each(?))"

_json = msgspec.json.Encoder()


class StoreError(TidingsError):
    """The store cannot be used. The message names the database and what to do."""


class Many(list[Any]):
    """A list as one SQL parameter: JSON for SQLite, an array for PostgreSQL."""

    def __conform__(self, protocol: object) -> str:
        return _json.encode(list(self)).decode()


class Rows(Protocol):
    """Result of a statement: its rows as sequences, and the number of rows that it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection within a transaction."""

    @property
    def postgres(self) -> bool: ...
    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert many new rows in bulk (COPY in PostgreSQL). None of their keys may exist."""
        ...

    def allocate_entry_ids(self, count: int) -> list[int]:
        """Allocate ids for new entries: higher than all before, never used twice."""
        ...


class Database(Protocol):
    """A database: connections and threads that run functions, one transaction per call."""

    @property
    def name(self) -> str:
        """The location for messages, without the password."""
        ...

    @property
    def allows_multiple_processes(self) -> bool:
        """Whether several processes may serve it."""
        ...

    @property
    def pubsub(self) -> PubSub: ...

    async def write(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run ``work`` in a transaction, which is rolled back if it raises."""
        ...

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run ``work``, which only reads; all its queries see the same snapshot."""
        ...

    async def backup(self, to: Path, progress: Progress | None) -> None:
        """Copy a snapshot to a file."""
        ...

    async def check(self) -> list[str]:
        """Check the integrity; return the problems as messages."""
        ...

    async def prune_old_partitions(
        self, before: float, min_entries: int, now: float
    ) -> tuple[int, int]:
        """Delete old entries partition by partition, if the database has partitions.

        Returns the number of deleted entries, and the first id that is not covered: entries from
        there on must be deleted row by row.
        """
        ...

    async def optimize(self) -> None:
        """Do the maintenance that the database needs after many deletions."""
        ...

    async def close(self) -> None:
        """Wait for running calls, then close all connections."""
        ...
