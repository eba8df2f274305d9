"""A store moves from its SQLite file into PostgreSQL: table after table, in batches, and nothing is taken on trust.

Tables and columns are those of the file itself, so whatever a migration adds comes along. With each batch the target remembers,
in the same transaction, how far it has come; whoever is interrupted begins where it stopped. At the end both are read again
and compared. While it lasts nobody may serve the file, and nothing is deleted from it.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tidings.errors import UsageError
from tidings.store import partitions, search_index, sqlite_file
from tidings.store.connection import Connection, StoreError
from tidings.store.postgres import PostgresConnection, PostgresDatabase, reset_sequences
from tidings.store.schema import MIGRATIONS
from tidings.store.search import encode_tsvector
from tidings.store.sqlite_file import SqliteConnection

#: Rows in a transaction; entries may be long.
BATCH = 1000

Row: TypeAlias = tuple[Any, ...]
_pack = msgspec.msgpack.Encoder().encode


class Table(NamedTuple):
    """A table of the file, with the columns that its rows are ordered by."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def quoted(self) -> str:
        return ", ".join(f'"{column}"' for column in self.columns)

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(column)] for column in self.key)


#: What is done now, how many steps of how many.
ProgressCallback: TypeAlias = Callable[[str, int, int], object]


async def move(source: Path, url: str, report: ProgressCallback) -> int:
    """Move everything, or go on with what was begun; tells how many rows there are now."""
    if not source.is_file():
        raise UsageError(f"{source} does not exist; name the file of the store that shall be moved")
    with (
        closing(sqlite_file.lock_serving(source)),
        closing(sqlite_file.connect(source, read_only=True)) as origin,
    ):
        if (version := sqlite_file.schema_version(origin, source)) != len(MIGRATIONS):
            raise StoreError(
                f"{source} has schema version {version}, not {len(MIGRATIONS)}; run any command on it first"
            )
        target = PostgresDatabase(url)
        try:
            return await _move(origin, target, report)
        finally:
            await target.close()


async def _move(
    origin: SqliteConnection, target: PostgresDatabase, report: ProgressCallback
) -> int:
    tables = _tables(origin)
    await target.write(_begin, tables, target.name)
    total, moved, compared = sum(_count(origin, table) for table in tables), 0, 0
    for table in tables:
        last, before = await target.read(_progress, table)
        moved += before
        while batch := _batch(origin, table, last):
            last = await target.write(_put, table, batch, origin)
            moved += len(batch)
            report(f"moving {table.name}", moved, 2 * total)
    for table in tables:
        here, there = _fingerprint(origin, table), await target.read(_fingerprint, table)
        if here != there:
            raise StoreError(
                f"{table.name} is not the same in both: {here[0]:,} rows in the file, {there[0]:,} in {target.name}. "
                "Somebody has written to one of them meanwhile; begin again with an empty database"
            )
        compared += here[0]
        report(f"comparing {table.name}", total + compared, 2 * total)
    await target.write(
        _end, dict(origin.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    )
    return total


def _tables(origin: SqliteConnection) -> list[Table]:
    """As they were made, so that a row's parents come before it. The search index is made anew from what it holds."""
    names = origin.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*' AND name <> 'search' "
        "AND name NOT GLOB 'search_*' ORDER BY rowid"
    )
    tables = []
    for (name,) in names.fetchall():
        info = origin.execute(f"PRAGMA table_info({name})").fetchall()
        key = sorted((place, column) for _, column, _, _, _, place in info if place)
        tables.append(
            Table(name, tuple(column for _, column, *_ in info), tuple(column for _, column in key))
        )
    return tables


def _begin(db: PostgresConnection, tables: Sequence[Table], name: str) -> None:
    """Note where each table stands, in a target that has nothing but what its migrations put there."""
    if db.execute("SELECT to_regclass('moving') IS NOT NULL").fetchone()[0]:
        return
    for table in tables:
        if _count(db, table) > (table.name == "users"):
            raise UsageError(
                f"{name} is not empty ({table.name} has rows); make a new database with `createdb`"
            )
    db.command("TRUNCATE users CASCADE")
    db.command(
        "ALTER TABLE unread DISABLE TRIGGER USER"
    )  # what they count comes with the subscriptions
    db.command("CREATE TABLE moving (name TEXT PRIMARY KEY, last BYTEA, rows BIGINT NOT NULL)")
    db.insert("moving", ("name", "rows"), [(table.name, 0) for table in tables])


def _end(db: PostgresConnection, highest: dict[str, int]) -> None:
    db.command("DROP TABLE moving")
    db.command("ALTER TABLE unread ENABLE TRIGGER USER")
    reset_sequences(db, highest)


def _progress(db: Connection, table: Table) -> tuple[Row | None, int]:
    last, rows = db.execute(
        "SELECT last, rows FROM moving WHERE name = ?", (table.name,)
    ).fetchone()
    return (None if last is None else msgspec.msgpack.decode(last, type=Row)), rows


def _batch(db: Connection, table: Table, last: Row | None) -> list[Row]:
    """The next rows, in the order of the key."""
    key = ", ".join(table.key)
    after = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if last is not None else ""
    query = f"SELECT {table.quoted} FROM {table.name} {after} ORDER BY {key} LIMIT {BATCH}"
    return db.execute(query, last or ()).fetchall()


def _put(
    db: PostgresConnection, table: Table, rows: Sequence[Row], origin: SqliteConnection
) -> Row:
    """Store a batch, and how far it goes."""
    last = table.key_of(rows[-1])
    columns = table.columns
    if table.name == "entries":
        partitions.ensure_partition(db, last[0])
        columns, rows = (*columns, "words"), _with_words(origin, rows)
    db.insert(table.name, columns, rows)
    db.execute(
        "UPDATE moving SET last = ?, rows = rows + ? WHERE name = ?",
        (_pack(last), len(rows), table.name),
    )
    return last


def _with_words(origin: SqliteConnection, entries: Sequence[Row]) -> list[Row]:
    ids = entries[0][0], entries[-1][0]
    texts = origin.execute(
        f"SELECT {search_index.SEARCH_COLUMNS} FROM entries WHERE id BETWEEN ? AND ? ORDER BY id",
        ids,
    )
    return [(*entry, encode_tsvector(*words)) for entry, words in zip(entries, texts, strict=True)]


def _count(db: Connection, table: Table) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])


def _fingerprint(db: Connection, table: Table) -> tuple[int, int]:
    """How many rows, and a sum over what they say, whatever their order."""
    count, total, last = 0, 0, None
    while rows := _batch(db, table, last):
        last = table.key_of(rows[-1])
        count += len(rows)
        total += sum(
            int.from_bytes(blake2b(_pack(tuple(row)), digest_size=8).digest()) for row in rows
        )
    return count, total % 2**64
