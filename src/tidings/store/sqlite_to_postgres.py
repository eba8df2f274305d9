"""Move of a store from SQLite to PostgreSQL, as a resumable copy in batches.

Tables and columns are read from the file, so columns that migrations add are copied too. The target
stores the progress in the transaction of each batch; an interrupted copy resumes there. At the end
both databases are read again and compared. During the copy no process may serve the file. Nothing
is deleted from it.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store import partitions, search_index, sqlite_file
from tidings.store.connection import Connection, StoreError
from tidings.store.postgres import PostgresConnection, PostgresDatabase, reset_sequences
from tidings.store.schema import MIGRATIONS
from tidings.store.search import encode_tsvector
from tidings.store.sqlite_file import SqliteConnection

#: Number of rows per transaction. It is limited because entries may be long.
BATCH = 1000

Row: TypeAlias = tuple[Any, ...]
_pack = msgspec.msgpack.Encoder().encode


class Table(NamedTuple):
    """Table of the file, with the columns of its primary key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def quoted_columns(self) -> str:
        return ", ".join(f'"{column}"' for column in self.columns)

    def key_of(self, row: Row) -> Row:
        return tuple(row[self.columns.index(column)] for column in self.key)


#: Callback that is called with the current step, the number of finished rows and the total number.
ProgressCallback: TypeAlias = Callable[[str, int, int], object]


async def move(source: Path, url: str, report: ProgressCallback) -> int:
    """Copy all rows, or resume an interrupted copy, and return the number of rows.

    Raises `UsageError` if the file does not exist or the target is not empty, and `StoreError` if
    the file is in use or the copy differs from it.
    """
    if not source.is_file():
        raise UsageError(
            _(
                "%(file)s does not exist; enter the path of the SQLite database to migrate",
                file=source,
            )
        )
    with (
        closing(sqlite_file.lock_serving(source)),
        closing(sqlite_file.connect(source, read_only=True)) as origin,
    ):
        if (version := sqlite_file.schema_version(origin, source)) != len(MIGRATIONS):
            raise StoreError(
                _(
                    "%(file)s has the old schema version %(version)s; run `tidings "
                    "status` on it first to upgrade it to %(current)s",
                    file=source,
                    version=version,
                    current=len(MIGRATIONS),
                )
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
    total, copied, compared = sum(_count(origin, table) for table in tables), 0, 0
    for table in tables:
        last, copied_before = await target.read(_progress, table)
        copied += copied_before
        while batch := _batch(origin, table, last):
            last = await target.write(_write_batch, table, batch, origin)
            copied += len(batch)
            report(_("copying %(table)s", table=table.name), copied, 2 * total)
    for table in tables:
        expected = _fingerprint(origin, table)
        actual = await target.read(_fingerprint, table)
        if expected != actual:
            raise StoreError(
                _(
                    "%(table)s changed during the copy (%(source_rows)s rows in the "
                    "file, %(target_rows)s in %(target)s); start again with an empty "
                    "database",
                    table=table.name,
                    source_rows=f"{expected[0]:,}",
                    target_rows=f"{actual[0]:,}",
                    target=target.name,
                )
            )
        compared += expected[0]
        report(_("comparing %(table)s", table=table.name), total + compared, 2 * total)
    await target.write(
        _end, dict(origin.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
    )
    return total


def _tables(origin: SqliteConnection) -> list[Table]:
    """List the tables in the order of their creation, so that parent rows are copied first.

    The search index is left out, because the words are computed again from the entries.
    """
    names = origin.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'sqlite_*' "
        "AND name <> 'search' AND name NOT GLOB 'search_*' ORDER BY rowid"
    )
    tables = []
    for (name,) in names.fetchall():
        info = origin.execute(f"PRAGMA table_info({name})").fetchall()
        columns = tuple(row[1] for row in info)
        key = sorted((position, column) for _i, column, *_other, position in info if position)
        tables.append(Table(name, columns, tuple(column for _position, column in key)))
    return tables


def _begin(db: PostgresConnection, tables: Sequence[Table], name: str) -> None:
    """Create the progress table in a target that has only the rows of its migrations.

    Raises `UsageError` if the target has other rows.
    """
    if db.execute("SELECT to_regclass('transfer_progress') IS NOT NULL").fetchone()[0]:
        return
    for table in tables:
        if _count(db, table) > (table.name == "users"):
            raise UsageError(
                _(
                    "%(database)s is not empty (%(table)s has rows); "
                    "create a new database with `createdb`",
                    database=name,
                    table=table.name,
                )
            )
    db.command("TRUNCATE users CASCADE")
    # The triggers count unread entries, but the counts are copied with the subscriptions.
    db.command("ALTER TABLE unread DISABLE TRIGGER USER")
    db.command(
        "CREATE TABLE transfer_progress (name TEXT PRIMARY KEY, last BYTEA, rows BIGINT NOT NULL)"
    )
    db.insert("transfer_progress", ("name", "rows"), [(table.name, 0) for table in tables])


def _end(db: PostgresConnection, last_ids: dict[str, int]) -> None:
    db.command("DROP TABLE transfer_progress")
    db.command("ALTER TABLE unread ENABLE TRIGGER USER")
    reset_sequences(db, last_ids)


def _progress(db: Connection, table: Table) -> tuple[Row | None, int]:
    """Return the key of the last copied row of a table, and the number of copied rows."""
    last, rows = db.execute(
        "SELECT last, rows FROM transfer_progress WHERE name = ?", (table.name,)
    ).fetchone()
    return (None if last is None else msgspec.msgpack.decode(last, type=Row)), rows


def _batch(db: Connection, table: Table, last: Row | None) -> list[Row]:
    """Return the next rows in the order of the primary key (keyset pagination)."""
    key = ", ".join(table.key)
    after = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if last is not None else ""
    query = f"SELECT {table.quoted_columns} FROM {table.name} {after} ORDER BY {key} LIMIT {BATCH}"
    return db.execute(query, last or ()).fetchall()


def _write_batch(
    db: PostgresConnection, table: Table, rows: Sequence[Row], origin: SqliteConnection
) -> Row:
    """Insert a batch of rows, update the progress, and return the key of the last row."""
    last = table.key_of(rows[-1])
    columns = table.columns
    if table.name == "entries":
        partitions.ensure_partition(db, last[0])
        columns, rows = (*columns, "words"), _add_words(origin, rows)
    db.insert(table.name, columns, rows)
    db.execute(
        "UPDATE transfer_progress SET last = ?, rows = rows + ? WHERE name = ?",
        (_pack(last), len(rows), table.name),
    )
    return last


def _add_words(origin: SqliteConnection, entries: Sequence[Row]) -> list[Row]:
    """Return entries with the tsvector of their texts appended."""
    ids = entries[0][0], entries[-1][0]
    texts = origin.execute(
        f"SELECT {search_index.SEARCH_COLUMNS} FROM entries WHERE id BETWEEN ? AND ? ORDER BY id",
        ids,
    )
    return [(*entry, encode_tsvector(*text)) for entry, text in zip(entries, texts, strict=True)]


def _count(db: Connection, table: Table) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0])


def _fingerprint(db: Connection, table: Table) -> tuple[int, int]:
    """Return the number of rows, and the sum of their hashes, which ignores their order."""
    count, total, last = 0, 0, None
    while rows := _batch(db, table, last):
        last = table.key_of(rows[-1])
        count += len(rows)
        total += sum(
            int.from_bytes(blake2b(_pack(tuple(row)), digest_size=8).digest()) for row in rows
        )
    return count, total % 2**64
