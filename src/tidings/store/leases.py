"""Leases of due feeds and of hosts, with which several workers poll without conflicts.

A feed lease is written as the feed's next poll time: a leased feed becomes due again when the lease
expires, unless an outcome was recorded before. The query for due feeds therefore needs only one
index, and dead workers need no detection. A named worker also leases the hosts of its feeds; feeds
of hosts that another worker has leased are skipped, so only one worker at a time sends requests to
a host. The lease is longer than any delay between two requests to a host, so the last request time
of a dead worker does not matter.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import Feed
from tidings.store.feeds import FEED, WIDTH, decode_feed

#: SQL condition that no other worker has leased the feed's host. It is a subquery per feed, because
#: PostgreSQL estimates that hardly any host is leased, and would run an anti-join as a nested loop.
_HOST_IS_FREE = (
    "coalesce((SELECT leased_until <= ? OR leased_by = ? FROM hosts "
    "WHERE hosts.host = feeds.host), TRUE)"
)
_LEASE_HOST = """
    INSERT INTO hosts (host, leased_until, leased_by) VALUES (?, ?, ?)
    ON CONFLICT (host) DO UPDATE SET leased_until = excluded.leased_until,
      leased_by = excluded.leased_by
    WHERE hosts.leased_until <= ? OR hosts.leased_by = excluded.leased_by"""


def lease_feeds(db: Connection, now: float, limit: int, lease_s: float, worker: str) -> list[Feed]:
    """Lease due feeds and return them, with the feed that has been due longest first.

    Without a worker name no host is leased, which is right if no other process polls. ``lease_s``
    is in seconds.
    """
    host_is_free = f"AND {_HOST_IS_FREE}" if worker else ""
    rows = db.execute(
        f"SELECT {FEED}, feeds.host FROM feeds WHERE next_poll_at <= ? {host_is_free} "
        "ORDER BY next_poll_at LIMIT ?"
        + (" FOR UPDATE OF feeds SKIP LOCKED" if db.postgres else ""),
        (now, *((now, worker) if worker else ()), limit),
    )
    due_feeds = [(decode_feed(row), row[WIDTH]) for row in rows]
    if worker and due_feeds:
        hosts = sorted({host for _, host in due_feeds})
        db.executemany(_LEASE_HOST, [(host, now + lease_s, worker, now) for host in hosts])
        own_hosts = {
            host
            for (host,) in db.execute(
                f"SELECT host FROM hosts WHERE leased_by = ? AND host {IN_MANY}",
                (worker, Many(hosts)),
            )
        }
        due_feeds = [(feed, host) for feed, host in due_feeds if host in own_hosts]
    return _write_leases(db, [feed for feed, _ in due_feeds], now + lease_s)


def lease_feeds_by_id(
    db: Connection, now: float, lease_s: float, feed_ids: Sequence[int]
) -> list[Feed]:
    """Lease feeds for a manual poll and return them, whether they are due or not.

    Feeds of hosts that another worker has leased are included.
    """
    rows = db.execute(
        f"SELECT {FEED} FROM feeds WHERE id {IN_MANY} AND retired_at IS NULL "
        "ORDER BY next_poll_at, id" + (" FOR UPDATE" if db.postgres else ""),
        (Many(feed_ids),),
    )
    return _write_leases(db, [decode_feed(row) for row in rows], now + lease_s)


def _write_leases(db: Connection, feeds: list[Feed], until: float) -> list[Feed]:
    """Store the leases, and return the feeds with their subscriber counts (for the User-Agent)."""
    ids = Many(feed.id for feed in feeds)
    if not ids:
        return feeds
    db.execute(f"UPDATE feeds SET next_poll_at = ? WHERE id {IN_MANY}", (until, ids))
    subscribers = dict(
        db.execute(
            f"SELECT feed_id, count(*) FROM subscriptions WHERE feed_id {IN_MANY} GROUP BY feed_id",
            (ids,),
        )
    )
    return [replace(feed, subscribers=subscribers.get(feed.id, 1)) for feed in feeds]


def release(db: Connection, leased_feeds: Sequence[Feed], worker: str, until: float) -> None:
    """Restore the poll times of leased feeds that were not polled.

    The worker's host leases are shortened to ``until``.
    """
    rows = sorted((feed.id, feed.state.next_poll_at) for feed in leased_feeds)
    db.executemany(
        "UPDATE feeds SET next_poll_at = ? WHERE id = ? AND retired_at IS NULL",
        [(at, i) for i, at in rows],
    )
    if worker:
        db.execute(
            "UPDATE hosts SET leased_until = ? WHERE leased_by = ? AND leased_until > ?",
            (until, worker, until),
        )


def release_hosts(db: Connection, hosts: Sequence[tuple[str, float]], worker: str) -> None:
    """End the worker's leases of hosts, each at its own time."""
    db.executemany(
        "UPDATE hosts SET leased_until = ? WHERE host = ? AND leased_by = ?",
        [(at, host, worker) for host, at in sorted(hosts)],
    )


def reserve(db: Connection, host: str, spacing_s: float, now: float) -> float:
    """Reserve the next request slot of a host and return its time.

    Slots are ``spacing_s`` seconds apart.
    """
    row = db.execute(
        "INSERT INTO hosts (host, next_at) VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET "
        "next_at = ? + CASE WHEN hosts.next_at > ? THEN hosts.next_at ELSE ? END RETURNING next_at",
        (host, now + spacing_s, spacing_s, now, now),
    ).fetchone()
    return float(row[0]) - spacing_s
