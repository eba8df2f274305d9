"""Entries in PostgreSQL are partitioned by id; ids grow with arrival, so a partition is a stretch of time.

Each partition has small indexes of its own: writing the hundred millionth entry costs what writing the first did. The next
partition is made by who draws an id from the last half of the last one. When all of a partition is old and most of it goes,
what must stay is copied into a new table, and the two are swapped: dropping a table costs nothing, however many rows it has.
"""

from typing import NamedTuple, Protocol

from tidings.store.connection import Connection
from tidings.store.schema import ENTRY_TABLES, KEPT_ENTRY_QUERIES

#: Ids in the first partitions. One that was filled within a week is followed by one of twice its size.
MIN_SPAN = 1_000_000
WEEK_S = 7 * 86400.0
#: What has been thinned is thinned again after this time.
MIN_PRUNE_INTERVAL_S = 30 * 86400.0
#: Held by who makes partitions or drops them.
PARTITION_LOCK_ID = 0x74696474


class PartitionedConnection(Connection, Protocol):
    """A connection to PostgreSQL."""

    partitioned_until_id: int

    def command(self, sql: str) -> None: ...
    def disable_timeout(self) -> None: ...


class Partition(NamedTuple):
    """Entries with ids from ``low`` to below ``high``."""

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
    """By id. Their names tell their bounds, their comments when they were thinned."""
    rows = db.execute(
        "SELECT relname, obj_description(pg_class.oid) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'entries'::regclass"
    )
    named = ((name.split("_"), comment) for name, comment in rows)
    return sorted(
        Partition(int(low), int(high), float(comment or 0)) for (_, low, high), comment in named
    )


def allocate_ids(db: PartitionedConnection, count: int) -> list[int]:
    """Ids for new entries, with a partition to put them in."""
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
    """Make partitions until there is one for this id and half a partition more."""
    made = partitions(db)
    if not _has_room(made, last_id):
        db.execute("SELECT pg_advisory_xact_lock(?)", (PARTITION_LOCK_ID,))
        made = partitions(db)  # asked again: another process may have been faster
    while not _has_room(made, last_id):
        low = made[-1].high if made else 1
        made.append(Partition(low, low + (_span(db, made[-1]) if made else MIN_SPAN), 0.0))
        _make(db, made[-1].table)
        _attach(db, made[-1])
    db.partitioned_until_id = (made[-1].low + made[-1].high) // 2


def _has_room(made: list[Partition], last_id: int) -> bool:
    return bool(made) and last_id < (made[-1].low + made[-1].high) // 2


def _span(db: Connection, last: Partition) -> int:
    first, latest = (
        db.execute(
            f"SELECT (SELECT first_seen_at FROM {last.table} ORDER BY id {way} LIMIT 1)"
        ).fetchone()[0]
        for way in ("", "DESC")
    )
    quick = first is not None and latest - first < WEEK_S / 2  # it is but half full
    return (last.high - last.low) * (2 if quick else 1)


def _make(db: PartitionedConnection, table: str) -> None:
    db.command(f"CREATE TABLE {table} (LIKE entries INCLUDING ALL)")


def _attach(db: PartitionedConnection, partition: Partition) -> None:
    """With a constraint that says what is in it, PostgreSQL need not look; made apart and attached, it locks nobody out."""
    (low, high), table = partition[:2], partition.table
    db.command(f"ALTER TABLE {table} ADD CONSTRAINT bounds CHECK (id >= {low} AND id < {high})")
    db.command(f"ALTER TABLE entries ATTACH PARTITION {table} FOR VALUES FROM ({low}) TO ({high})")
    db.command(f"ALTER TABLE {table} DROP CONSTRAINT bounds")


def old(db: Connection, before: float, now: float) -> list[Partition]:
    """Those in which every entry came before, and which were not looked at lately. The last one is still in use."""
    return [
        partition
        for partition in partitions(db)[:-1]
        if partition.pruned_at < now - MIN_PRUNE_INTERVAL_S
        and db.execute(
            f"SELECT max(first_seen_at) < ? FROM {partition.table}", (before,)
        ).fetchone()[0]
    ]


def first_id_in_use(db: Connection) -> int:
    """The least id of the last partition, in which rows are deleted one by one."""
    return partitions(db)[-1].low


def copy_retained_entries(
    db: PartitionedConnection, partition: Partition, min_entries: int, now: float
) -> int:
    """A table of each feed's ``least`` newest, what documents show, and what somebody keeps; tells how many are left out.

    Where they are less than half, the partition stays as it is, and 0 is told.
    """
    db.disable_timeout()
    db.command(f"DROP TABLE IF EXISTS {partition.new_table}")
    _make(db, partition.new_table)
    beyond = (
        "(SELECT id FROM entries WHERE feed_id = here.feed_id ORDER BY id DESC LIMIT 1 OFFSET ?)"
    )
    stayed = db.execute(
        f"WITH here AS MATERIALIZED (SELECT DISTINCT feed_id FROM {partition.table}), "
        f"newest AS MATERIALIZED (SELECT feed_id, {beyond} AS beyond FROM here), "
        "shown AS (SELECT entry_id FROM here JOIN documents USING (feed_id) "
        "CROSS JOIN generate_series(0, length(marks) / 8 - 1) AS n JOIN identities USING (feed_id) "
        "WHERE mark = ('x' || encode(substr(marks, n * 8 + 1, 8), 'hex'))::bit(64)::bigint) "
        f"INSERT INTO {partition.new_table} SELECT e.* FROM {partition.table} AS e JOIN newest USING (feed_id) "
        f"WHERE e.id > coalesce(beyond, 0) OR e.id IN (SELECT entry_id FROM shown) OR {_is_kept()}",
        (min_entries,),
    ).rowcount
    gone: int = db.execute(f"SELECT count(*) FROM {partition.table}").fetchone()[0] - stayed
    worthwhile = gone >= stayed
    db.command(
        f"COMMENT ON TABLE {partition.new_table if worthwhile else partition.table} IS '{now}'"
    )
    if not worthwhile:
        db.command(f"DROP TABLE {partition.new_table}")
    return gone if worthwhile else 0


def swap_partition(db: PartitionedConnection, partition: Partition) -> None:
    """Put the survivors in the partition's place, with what has happened to them since they were copied."""
    table, new = partition.table, partition.new_table
    db.command(
        "SET LOCAL lock_timeout = '5s'"
    )  # those who read must not stand in line behind us for long
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
    """What belonged to the entries that went."""
    db.disable_timeout()
    for table in ENTRY_TABLES:
        db.execute(
            f"DELETE FROM {table} AS o WHERE entry_id >= ? AND entry_id < ? "
            f"AND NOT EXISTS (SELECT FROM {partition.table} WHERE id = o.entry_id)",
            (partition.low, partition.high),
        )


def _is_kept() -> str:
    return " OR ".join(f"e.id IN ({query})" for query in KEPT_ENTRY_QUERIES) or "false"


def check(db: Connection) -> list[str]:
    """What PostgreSQL itself does not look after."""
    problems = [
        f"the index {name} is not complete; run: REINDEX INDEX {name}"
        for (name,) in db.execute(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"
        )
    ]
    highest, drawn = db.execute(
        "SELECT (SELECT max(id) FROM entries), last_value FROM entries_id_seq"
    ).fetchone()
    if highest is not None and highest > drawn:
        problems.append(
            f"new entries would get ids that are taken; run: SELECT setval('entries_id_seq', {highest})"
        )
    lost = db.execute(
        "SELECT count(*) FROM identities AS i WHERE NOT EXISTS (SELECT FROM feeds WHERE id = i.feed_id)"
    )
    if count := lost.fetchone()[0]:
        problems.append(f"{count} entries belong to feeds that are missing")
    return problems
