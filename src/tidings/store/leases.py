"""Who asks what, and when: due feeds are claimed, hosts leased, and the budget spent, by any number of workers at once.

A claim is a lease that is written as the feed's next poll: a feed that was handed out becomes due again when the lease runs
out, unless an outcome was recorded before. So the due query needs one index and nobody looks for dead workers. A worker that
has a name also leases the hosts of its feeds; feeds of a host that another worker holds are passed over, so a host is asked by
one worker at a time. The lease is longer than any pause between two requests: nobody need know whom a dead worker has asked.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import Feed
from tidings.store.feeds import FEED, WIDTH, decode_feed

#: Looked up feed by feed. As an anti-join PostgreSQL, which believes that hardly any host is held, may compare all with all.
_FREE = "coalesce((SELECT leased_until <= ? OR leased_by = ? FROM hosts WHERE hosts.host = feeds.host), TRUE)"
#: Token buckets: of requests, and of bytes where they have a budget too.
REQUESTS, BYTES = "requests", "bytes"
_LEASE_HOST = """
    INSERT INTO hosts (host, leased_until, leased_by) VALUES (?, ?, ?)
    ON CONFLICT (host) DO UPDATE SET leased_until = excluded.leased_until, leased_by = excluded.leased_by
    WHERE hosts.leased_until <= ? OR hosts.leased_by = excluded.leased_by"""


def lease_feeds(db: Connection, now: float, limit: int, lease_s: float, worker: str) -> list[Feed]:
    """Due feeds, longest due first. Without a name no host is leased: for a process that is alone with the store."""
    free = f"AND {_FREE}" if worker else ""
    rows = db.execute(
        f"SELECT {FEED}, feeds.host FROM feeds WHERE next_poll_at <= ? {free} ORDER BY next_poll_at LIMIT ?"
        + (" FOR UPDATE OF feeds SKIP LOCKED" if db.postgres else ""),
        (now, *((now, worker) if worker else ()), limit),
    )
    found = [(decode_feed(row), row[WIDTH]) for row in rows]
    if worker and found:
        hosts = sorted({host for _, host in found})
        db.executemany(_LEASE_HOST, [(host, now + lease_s, worker, now) for host in hosts])
        ours = {
            h
            for (h,) in db.execute(
                f"SELECT host FROM hosts WHERE leased_by = ? AND host {IN_MANY}",
                (worker, Many(hosts)),
            )
        }
        found = [(feed, host) for feed, host in found if host in ours]
    return _write_leases(db, [feed for feed, _ in found], now + lease_s)


def lease_feeds_by_id(
    db: Connection, now: float, lease_s: float, feed_ids: Sequence[int]
) -> list[Feed]:
    """These feeds, due or not, whoever holds their hosts: somebody wants them now."""
    rows = db.execute(
        f"SELECT {FEED} FROM feeds WHERE id {IN_MANY} AND retired_at IS NULL ORDER BY next_poll_at, id"
        + (" FOR UPDATE" if db.postgres else ""),
        (Many(feed_ids),),
    )
    return _write_leases(db, [decode_feed(row) for row in rows], now + lease_s)


def _write_leases(db: Connection, feeds: list[Feed], until: float) -> list[Feed]:
    """Publishers are told how many want a feed, by those who ask for it."""
    ids = Many(feed.id for feed in feeds)
    if not ids:
        return feeds
    db.execute(f"UPDATE feeds SET next_poll_at = ? WHERE id {IN_MANY}", (until, ids))
    wanted = dict(
        db.execute(
            f"SELECT feed_id, count(*) FROM subscriptions WHERE feed_id {IN_MANY} GROUP BY feed_id",
            (ids,),
        )
    )
    return [replace(feed, subscribers=wanted.get(feed.id, 1)) for feed in feeds]


def release(db: Connection, leased_feeds: Sequence[Feed], worker: str, until: float) -> None:
    """Feeds that were not begun are due as they were before they were claimed; the worker holds its hosts until then."""
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
    """The worker has nothing more to ask of these hosts; others may, each from its time on."""
    db.executemany(
        "UPDATE hosts SET leased_until = ? WHERE host = ? AND leased_by = ?",
        [(at, host, worker) for host, at in sorted(hosts)],
    )


def reserve(db: Connection, host: str, spacing_s: float, now: float) -> float:
    """The next time at which this host may be asked; whoever wants to ask after that comes ``spacing_s`` later."""
    row = db.execute(
        "INSERT INTO hosts (host, next_at) VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET "
        "next_at = ? + CASE WHEN hosts.next_at > ? THEN hosts.next_at ELSE ? END RETURNING next_at",
        (host, now + spacing_s, spacing_s, now, now),
    ).fetchone()
    return float(row[0]) - spacing_s


def take_tokens(db: Connection, wanted: int, per_day: float, now: float) -> int:
    """How many of these requests may be made now. They are spent with that; what is not made is given back by `spend`."""
    tokens = _refill(db, REQUESTS, per_day, now)
    granted = max(min(wanted, int(tokens + 1e-9)), 0)
    _set_tokens(db, REQUESTS, tokens - granted)
    return granted


def consume_budget(db: Connection, amount: float, bucket: str = REQUESTS) -> None:
    """Count what cannot be refused any more, or give some back; so the bucket may be in debt for a day."""
    db.execute("UPDATE buckets SET tokens = tokens - ? WHERE name = ?", (float(amount), bucket))


def token_deficit(db: Connection, per_day: float, now: float, bucket: str = REQUESTS) -> float:
    """How much must flow in until there is a token again; 0 if there is one now."""
    return max(1.0 - _refill(db, bucket, per_day, now), 0.0)


def _refill(db: Connection, bucket: str, per_day: float, now: float) -> float:
    """The bucket of all workers holds a day's budget, is full at first, and fills evenly. It is ours until the commit."""
    most = max(per_day, 1.0)
    row = db.execute(
        "INSERT INTO buckets (name, tokens, filled_at) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "tokens = buckets.tokens + CASE WHEN excluded.filled_at > buckets.filled_at "
        "THEN (excluded.filled_at - buckets.filled_at) * ? / 86400.0 ELSE 0 END, "
        "filled_at = CASE WHEN excluded.filled_at > buckets.filled_at THEN excluded.filled_at ELSE buckets.filled_at END "
        "RETURNING tokens",
        (bucket, most, now, per_day),
    ).fetchone()
    tokens = max(min(float(row[0]), most), -most)
    _set_tokens(db, bucket, tokens)
    return tokens


def _set_tokens(db: Connection, bucket: str, tokens: float) -> None:
    db.execute("UPDATE buckets SET tokens = ? WHERE name = ?", (tokens, bucket))
