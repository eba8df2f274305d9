"""Interface of connections and databases that SQLite and PostgreSQL implement.

Queries are written once, with ``?`` placeholders, in the SQL that both databases support: ``ON
CONFLICT``, ``RETURNING``, ``count(*) FILTER (WHERE ...)``, ``NULLS LAST`` where nulls matter, and
only functions that both have (``CASE`` instead of ``max(a, b)``). Types are strict: integer columns
get an int, text columns a str, binary columns bytes; infinity is passed as a parameter, never
written into the SQL. Two things have no common syntax: lists of values (`IN_MANY` with `Many`) and
bulk inserts (`Connection.insert`). Queries that must differ check ``db.postgres``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from tidings.errors import TidingsError
from tidings.store.pubsub import PubSub

P = ParamSpec("P")
T = TypeVar("T")

#: Callback that is called with the amount of finished work and the total amount.
Progress: TypeAlias = Callable[[int, int], object]

#: SQL condition for any number of values, which are numbers or text. Use ``f"feed_id {IN_MANY}"``
#: with the parameter ``Many(feed_ids)``.
IN_MANY = "IN (SELECT value FROM json_each(?))"

_json = msgspec.json.Encoder()


class StoreError(TidingsError):
    """Error raised when the store cannot be used.

    The message names the database and says what to do.
    """


class Many(list[Any]):
    """List that is passed as one SQL parameter.

    It is sent as JSON to SQLite and as an array to PostgreSQL.
    """

    def __conform__(self, protocol: object) -> str:
        return _json.encode(list(self)).decode()


class Rows(Protocol):
    """Result of a statement, with its rows and the number of rows that it changed."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Connection to a database within a transaction."""

    @property
    def postgres(self) -> bool: ...
    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows: ...
    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> object: ...
    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Insert many new rows in bulk (COPY in PostgreSQL). None of their keys may exist."""
        ...

    def allocate_entry_ids(self, count: int) -> list[int]:
        """Return ids for new entries, which are higher than all ids before and never used twice."""
        ...


class Database(Protocol):
    """Database that runs functions in threads, with one transaction per call."""

    @property
    def name(self) -> str:
        """Location of the database for messages, without the password."""
        ...

    @property
    def allows_multiple_processes(self) -> bool:
        """Whether several processes may serve the database."""
        ...

    @property
    def pubsub(self) -> PubSub: ...

    async def write(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run ``work`` in a transaction, which is rolled back if ``work`` raises an error."""
        ...

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run ``work``, which only reads. All its queries see the same snapshot."""
        ...

    async def backup(self, to: Path, progress: Progress | None) -> None:
        """Copy a snapshot of the database to a file."""
        ...

    async def check(self) -> list[str]:
        """Check the integrity of the database and return the problems as messages."""
        ...

    async def prune_old_partitions(
        self, before: float, min_entries: int, now: float
    ) -> tuple[int, int]:
        """Delete old entries partition by partition, if the database has partitions.

        Returns the number of deleted entries, and the first id that is not covered. Entries with
        this id or a higher id must be deleted row by row.
        """
        ...

    async def optimize(self) -> None:
        """Do the maintenance that the database needs after many deletions."""
        ...

    async def close(self) -> None:
        """Wait for running calls, then close all connections."""
        ...
