"""Partitions of the table of entries by id in PostgreSQL, with retention by partition.

Ids grow with arrival, so a partition contains the entries of a period. Each partition has its own
small indexes: inserting the hundred millionth entry costs as much as inserting the first. The next
partition is created when an id from the second half of the last one is allocated. When all entries
of a partition are old and most can be deleted, the retained ones are copied to a new table, which
replaces the partition: dropping a table is cheap for any number of rows.
"""

from typing import NamedTuple, Protocol

from tidings.i18n import _
from tidings.store.connection import Connection
from tidings.store.schema import ENTRY_TABLES, KEPT_ENTRY_QUERIES

#: Number of ids in the first partition. A partition that fills within a week is followed by a
#: partition of twice the size.
MIN_SPAN = 1_000_000
WEEK_S = 7 * 86400.0
#: Minimum time in seconds between two prunings of a partition.
MIN_PRUNE_INTERVAL_S = 30 * 86400.0
#: Id of the advisory lock of the process that creates partitions.
PARTITION_LOCK_ID = 0x74696474


class PartitionedConnection(Connection, Protocol):
    """Connection to PostgreSQL with the functions that partitions need."""

    partitioned_until_id: int

    def command(self, sql: str) -> None: ...
    def disable_timeout(self) -> None: ...


class Partition(NamedTuple):
    """Partition of the entries with ids from ``low`` to below ``high``."""

    low: int
    high: int
    pruned_at: float

    @property
    def table(self) -> str:
        return f"entries_{self.low}_{self.high}"

    @property
    def new_table(self) -> str:
        return f"{self.table}_new"


def partitions(db: Connection) -> list[Partition]:
    """List partitions by id.

    The names of their tables contain the bounds, and the comments contain the pruning time.
    """
    rows = db.execute(
        "SELECT relname, obj_description(pg_class.oid) "
        "FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'entries'::regclass"
    )
    named = ((name.split("_"), comment) for name, comment in rows)
    return sorted(
        Partition(int(low), int(high), float(comment or 0)) for (_, low, high), comment in named
    )


def allocate_ids(db: PartitionedConnection, count: int) -> list[int]:
    """Return ids for new entries, and create the partition for them if necessary."""
    ids = [
        i
        for (i,) in db.execute(
            "SELECT nextval('entries_id_seq') FROM generate_series(1, ?)", (count,)
        )
    ]
    if ids[-1] >= db.partitioned_until_id:
        ensure_partition(db, ids[-1])
    return ids


def ensure_partition(db: PartitionedConnection, last_id: int) -> None:
    """Create partitions until ``last_id`` lies in the first half of the last one."""
    existing = partitions(db)
    if not _has_room(existing, last_id):
        db.execute("SELECT pg_advisory_xact_lock(?)", (PARTITION_LOCK_ID,))
        existing = partitions(db)  # another process may have created partitions meanwhile
    while not _has_room(existing, last_id):
        low = existing[-1].high if existing else 1
        span = _next_span(db, existing[-1]) if existing else MIN_SPAN
        existing.append(Partition(low, low + span, 0.0))
        _create(db, existing[-1].table)
        _attach(db, existing[-1])
    db.partitioned_until_id = (existing[-1].low + existing[-1].high) // 2


def _has_room(existing: list[Partition], last_id: int) -> bool:
    return bool(existing) and last_id < (existing[-1].low + existing[-1].high) // 2


def _next_span(db: Connection, last: Partition) -> int:
    """Return the number of ids in the next partition.

    The number doubles if the last partition fills within a week.
    """
    first_at, last_at = (
        db.execute(
            f"SELECT (SELECT first_seen_at FROM {last.table} ORDER BY id {direction} LIMIT 1)"
        ).fetchone()[0]
        for direction in ("", "DESC")
    )
    # The partition is half full at this time.
    fills_quickly = first_at is not None and last_at - first_at < WEEK_S / 2
    return (last.high - last.low) * (2 if fills_quickly else 1)


def _create(db: PartitionedConnection, table: str) -> None:
    db.command(f"CREATE TABLE {table} (LIKE entries INCLUDING ALL)")


def _attach(db: PartitionedConnection, partition: Partition) -> None:
    """Attach a table as a partition.

    The check constraint spares PostgreSQL a scan of the table. Attaching a separate table needs
    only a SHARE UPDATE EXCLUSIVE lock on `entries`, which blocks neither reads nor writes.
    """
    (low, high), table = partition[:2], partition.table
    db.command(f"ALTER TABLE {table} ADD CONSTRAINT bounds CHECK (id >= {low} AND id < {high})")
    db.command(f"ALTER TABLE entries ATTACH PARTITION {table} FOR VALUES FROM ({low}) TO ({high})")
    db.command(f"ALTER TABLE {table} DROP CONSTRAINT bounds")


def prunable_partitions(db: Connection, before: float, now: float) -> list[Partition]:
    """List partitions whose entries are all older than ``before``.

    Partitions that were pruned lately are left out, and so is the last partition, which is in use.
    """
    return [
        partition
        for partition in partitions(db)[:-1]
        if partition.pruned_at < now - MIN_PRUNE_INTERVAL_S
        and db.execute(
            f"SELECT max(first_seen_at) < ? FROM {partition.table}", (before,)
        ).fetchone()[0]
    ]


def first_id_in_use(db: Connection) -> int:
    """Return the lowest id of the last partition, in which rows are deleted one by one."""
    return partitions(db)[-1].low


def copy_retained_entries(
    db: PartitionedConnection, partition: Partition, min_entries: int, now: float
) -> int:
    """Copy the entries that retention does not delete to a new table.

    Returns the number of the other entries. Each feed's ``min_entries`` newest entries, entries
    that documents still list, and starred or tagged entries are copied. If less than half can be
    deleted, the partition stays as it is and 0 is returned.
    """
    db.disable_timeout()
    db.command(f"DROP TABLE IF EXISTS {partition.new_table}")
    _create(db, partition.new_table)
    beyond = (
        "(SELECT id FROM entries WHERE feed_id = here.feed_id ORDER BY id DESC LIMIT 1 OFFSET ?)"
    )
    retained = db.execute(
        f"WITH here AS MATERIALIZED (SELECT DISTINCT feed_id FROM {partition.table}), "
        f"newest AS MATERIALIZED (SELECT feed_id, {beyond} AS beyond FROM here), "
        "shown AS (SELECT entry_id FROM here JOIN documents USING (feed_id) "
        "CROSS JOIN generate_series(0, length(identity_hashes) / 8 - 1) AS n "
        "JOIN identities USING (feed_id) WHERE identity_hash = "
        "('x' || encode(substr(identity_hashes, n * 8 + 1, 8), 'hex'))::bit(64)::bigint) "
        f"INSERT INTO {partition.new_table} "
        f"SELECT e.* FROM {partition.table} AS e JOIN newest USING (feed_id) "
        "WHERE e.id > coalesce(beyond, 0) OR e.id IN (SELECT entry_id FROM shown) "
        f"OR {_is_kept()}",
        (min_entries,),
    ).rowcount
    total: int = db.execute(f"SELECT count(*) FROM {partition.table}").fetchone()[0]
    deletable = total - retained
    worthwhile = deletable >= retained
    db.command(
        f"COMMENT ON TABLE {partition.new_table if worthwhile else partition.table} IS '{now}'"
    )
    if not worthwhile:
        db.command(f"DROP TABLE {partition.new_table}")
    return deletable if worthwhile else 0


def swap_partition(db: PartitionedConnection, partition: Partition) -> None:
    """Replace a partition with its copy, after copying changes made since the copy was created."""
    table, new = partition.table, partition.new_table
    db.command("SET LOCAL lock_timeout = '5s'")  # readers queue behind a waiting exclusive lock
    db.command("LOCK TABLE entries IN ACCESS EXCLUSIVE MODE")
    db.execute(
        f"WITH stale AS (DELETE FROM {new} AS n USING {table} AS e WHERE e.id = n.id "
        "AND e.changed_at IS DISTINCT FROM n.changed_at RETURNING n.id) "
        f"INSERT INTO {new} SELECT * FROM {table} WHERE id IN (SELECT id FROM stale)"
    )
    db.execute(
        f"INSERT INTO {new} SELECT * FROM {table} AS e WHERE {_is_kept()} ON CONFLICT DO NOTHING"
    )
    db.command(f"ALTER TABLE entries DETACH PARTITION {table}")
    db.command(f"DROP TABLE {table}")
    db.command(f"ALTER TABLE {new} RENAME TO {table}")
    _attach(db, partition)


def delete_dependent_rows(db: PartitionedConnection, partition: Partition) -> None:
    """Delete the dependent rows of entries that were dropped with the old partition."""
    db.disable_timeout()
    for table in ENTRY_TABLES:
        db.execute(
            f"DELETE FROM {table} AS o WHERE entry_id >= ? AND entry_id < ? "
            f"AND NOT EXISTS (SELECT FROM {partition.table} WHERE id = o.entry_id)",
            (partition.low, partition.high),
        )


def _is_kept() -> str:
    """Return the SQL condition for entries ``e`` that retention never deletes."""
    return " OR ".join(f"e.id IN ({query})" for query in KEPT_ENTRY_QUERIES) or "false"


def check(db: Connection) -> list[str]:
    """Check indexes, id sequence and feeds of entries, which PostgreSQL does not enforce.

    Returns the problems as messages.
    """
    problems = [
        _("the index %(name)s is not complete; run: REINDEX INDEX %(name)s", name=name)
        for (name,) in db.execute(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
        )
    ]
    highest_id, last_value = db.execute(
        "SELECT (SELECT max(id) FROM entries), last_value FROM entries_id_seq"
    ).fetchone()
    if highest_id is not None and highest_id > last_value:
        problems.append(
            _(
                "new entries would get ids that are in use; "
                "run: SELECT setval('entries_id_seq', %(id)s)",
                id=highest_id,
            )
        )
    orphans = db.execute(
        "SELECT count(*) FROM identities AS i "
        "WHERE NOT EXISTS (SELECT FROM feeds WHERE id = i.feed_id)"
    )
    if count := orphans.fetchone()[0]:
        problems.append(_("%(count)s entries belong to feeds that are missing", count=count))
    return problems
