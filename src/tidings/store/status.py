"""Status of the store with counts of feeds, entries, polls, delays and gaps."""

import math

from tidings.store.connection import Connection
from tidings.store.evidence import polled_days
from tidings.store.feed_models import Period, Status
from tidings.store.feeds import next_due, paused_hosts
from tidings.store.schema import NOT_IMPORTED

HOUR_S, DAY_S, WEEK_S = 3600.0, 86400.0, 604800.0
#: Maximum number of entries that are counted exactly. Above it, PostgreSQL's estimate is used.
MAX_EXACT_COUNT = 1_000_000


def status(db: Connection, now: float) -> Status:
    """Return the numbers of feeds and entries, and statistics of the last hour, day and week."""
    feeds, retired, failing, due = db.execute(
        "SELECT count(*), count(retired_at), "
        "count(*) FILTER (WHERE errors > 0 AND retired_at IS NULL), "
        "count(*) FILTER (WHERE next_poll_at <= ?) FROM feeds",
        (now,),
    ).fetchone()
    errors = db.execute(
        "SELECT error_kind, count(*) FROM feeds WHERE errors > 0 AND retired_at IS NULL "
        "GROUP BY error_kind ORDER BY 2 DESC, 1"
    )
    return Status(
        feeds=feeds,
        retired=retired,
        failing=failing,
        due=due,
        next_due_at=next_due(db),
        entries=_count_entries(db),
        hour=_period(db, now - HOUR_S),
        day=_period(db, now - DAY_S),
        week=_period(db, now - WEEK_S),
        errors=dict(errors.fetchall()),
        paused=paused_hosts(db, now),
        polled_days=polled_days(db, now),
    )


def _count_entries(db: Connection) -> int:
    """Return the number of entries.

    Above `MAX_EXACT_COUNT` it is an estimate by PostgreSQL, which needs no scan.
    """
    if db.postgres:
        estimate = db.execute(
            "SELECT coalesce(sum(reltuples), 0)::bigint "
            "FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
            "WHERE inhparent = 'entries'::regclass AND reltuples > 0"
        ).fetchone()[0]
        if estimate > MAX_EXACT_COUNT:
            return int(estimate)
    return int(db.execute("SELECT count(*) FROM entries").fetchone()[0])


def _period(db: Connection, since: float) -> Period:
    polls, size = db.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) FROM polls WHERE at >= ?", (since,)
    ).fetchone()
    new, delay_count = db.execute(
        "SELECT count(*), count(delay_s) FROM entries "
        f"WHERE first_seen_at >= ? AND id {NOT_IMPORTED}",
        (since,),
    ).fetchone()
    missed, recovered = db.execute(
        "SELECT coalesce(sum(missed), 0.0), coalesce(sum(recovered), 0) FROM gaps "
        "WHERE found_at >= ?",
        (since,),
    ).fetchone()
    return Period(
        polls=polls,
        bytes=size,
        new=new,
        delays=delay_count,
        delay_p50_s=_quantile(db, since, delay_count, 0.5),
        delay_p90_s=_quantile(db, since, delay_count, 0.9),
        missed=missed,
        recovered=recovered,
    )


def _quantile(db: Connection, since: float, count: int, share: float) -> float | None:
    """Return the smallest delay that at least the fraction ``share`` of delays does not exceed.

    ``count`` is the number of known delays since the time ``since``.
    """
    if not count:
        return None
    rank = math.ceil(count * share) - 1
    row = db.execute(
        "SELECT delay_s FROM entries WHERE first_seen_at >= ? AND delay_s IS NOT NULL "
        "ORDER BY delay_s LIMIT 1 OFFSET ?",
        (since, rank),
    ).fetchone()
    return float(row[0])
