"""The seam between the store's queries and the two databases that can run them.

A query is written once, with ``?`` for its values, in the SQL that SQLite and PostgreSQL share: ``ON CONFLICT``,
``RETURNING``, ``count(*) FILTER (WHERE ...)``, ``NULLS LAST`` where nulls matter, and no other functions than both have
(``CASE`` in place of ``max(a, b)``). Types are strict: an integer column is given an int, text a str, bytes bytes; an infinity
is a value, not a word of SQL. Two things that have no common words have one of ours: `IN_MANY` with `Many`, and
`Connection.insert`. Where a query has to differ, it asks ``db.postgres``.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from tidings.errors import TidingsError
from tidings.store.pubsub import PubSub

P = ParamSpec("P")
T = TypeVar("T")

#: Called with how much is done, and of how much.
Progress: TypeAlias = Callable[[int, int], object]

#: ``f"feed_id {IN_MANY}"`` with the value ``Many(feed_ids)``: one statement however many there are. Numbers or text.
IN_MANY = "IN (SELECT value FROM json_each(?))"

_json = msgspec.json.Encoder()


class StoreError(TidingsError):
    """The store cannot be used; names the database and what to do."""


class Many(list[Any]):
    """A list as one value: JSON for SQLite, an array for PostgreSQL."""

    def __conform__(self, protocol: object) -> str:
        return _json.encode(list(self)).decode()


class Rows(Protocol):
    """What a statement gives: rows, which are sequences, and how many it has changed."""

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
        """Many new rows in the cheapest way there is; none of them may be there already."""
        ...

    def allocate_entry_ids(self, count: int) -> list[int]:
        """Ids for new entries: higher than all before, and never given twice."""
        ...


class Database(Protocol):
    """Where work is done with connections: each call one transaction."""

    @property
    def name(self) -> str:
        """For messages: without a password."""
        ...

    @property
    def allows_multiple_processes(self) -> bool:
        """Whether any number of processes may serve it."""
        ...

    @property
    def pubsub(self) -> PubSub: ...

    async def write(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run ``work`` within a transaction of its own: all of it, or nothing if it raises."""
        ...

    async def read(
        self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        """Run ``work``, which only reads; all its queries see the same moment."""
        ...

    async def backup(self, to: Path, progress: Progress | None) -> None:
        """Copy one moment to a file."""
        ...

    async def check(self) -> list[str]:
        """All that is wrong, in words."""
        ...

    async def prune_old_partitions(
        self, before: float, min_entries: int, now: float
    ) -> tuple[int, int]:
        """Forget old entries by the stretch, where that can be done: how many, and from which id on it is to be done singly."""
        ...

    async def optimize(self) -> None:
        """What the database wants to have done now and then, after much was deleted."""
        ...

    async def close(self) -> None:
        """Wait for what is under way, then let go."""
        ...
