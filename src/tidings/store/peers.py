"""Queries for peers, unconfirmed entries from peers, private feeds and poll notices.

An entry from a peer has the source of peers until it is confirmed, and a row in `peer_claims` with
its sender. So a restart does not turn a false claim into a confirmed one, and entries that only a
dishonest peer sent can be withdrawn completely.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.entries import ENTRY, decode_entry
from tidings.store.feed_models import Entry
from tidings.store.identities import identity_hash
from tidings.store.retention import delete_entries
from tidings.store.schema import NOT_IMPORTED

#: Maximum number of former peers that are stored.
MAX_FORMER_PEERS = 200
#: Age in seconds after which poll notices of workers are deleted.
POLL_NOTICE_RETENTION_S = 3600.0


class Peer(Struct, frozen=True):
    """Present, former or banned peer."""

    nid: str
    at: float = 0.0  #: time of the last change
    present: bool = False
    usefulness: float = 0.0
    banned_until: float | None = None
    reason: str = ""  #: reason why the connection ended
    key: bytes = b""
    #: statistics, with the keys of `tidings peers --json`
    figures: Mapping[str, float] = {}


class PeerClaim(Struct, frozen=True):
    """Unconfirmed entry that was received from a peer."""

    feed: str  #: URL of the feed
    identity: str
    digest: bytes
    published: float | None
    received_at: float
    sender: str
    path: tuple[str, ...]


class ShareableFeed(Struct, frozen=True):
    """Active feed that is not marked as private."""

    id: int
    url: str
    weight: float
    last_ok_at: float | None = None
    oldest_at: float | None = None  #: time of the oldest entry in the last document


#: Value of ``entries.source`` for unconfirmed entries from peers (FeedEx's term).
_FROM_PEER = "neighbour"

_COLUMNS = Peer.__struct_fields__
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
_UPSERT_PEER = (
    f"INSERT INTO peers ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (nid) DO UPDATE SET {_UPDATES}"
)
_INSERT_PEER_CLAIM = (
    "INSERT INTO peer_claims (entry_id, sender, path, received_at, recovered) "
    "VALUES (?, ?, ?, ?, ?) ON CONFLICT (entry_id) DO NOTHING"
)
#: SQL query for the ids of a feed's unconfirmed entries with given identities.
_SELECT_UNCONFIRMED = (
    "SELECT e.id FROM identities AS i JOIN entries AS e ON e.id = i.entry_id "
    f"WHERE i.feed_id = ? AND i.identity_hash {IN_MANY} AND e.source = ?"
)
#: SQL condition for entries that may be sent to peers, which excludes unconfirmed entries and those
#: that users imported.
_ARCHIVE = (
    f"FROM entries WHERE feed_id = ? AND source <> ? AND id {NOT_IMPORTED} "
    "AND published_at >= ? AND published_at < ? "
    "AND lower(title) LIKE ? ESCAPE '\\'"
)


def save_peers(db: Connection, peers: Sequence[Peer]) -> None:
    """Insert or update peers, and delete the oldest former peers that are not banned."""
    rows = [
        (
            p.nid,
            p.at,
            int(p.present),
            p.usefulness,
            p.banned_until,
            p.reason,
            p.key,
            msgspec.json.encode(p.figures).decode(),
        )
        for p in peers
    ]
    db.executemany(_UPSERT_PEER, rows)
    db.execute(
        "DELETE FROM peers WHERE present = 0 AND banned_until IS NULL AND nid NOT IN "
        "(SELECT nid FROM peers ORDER BY present DESC, at DESC LIMIT ?)",
        (MAX_FORMER_PEERS,),
    )


def peers(db: Connection) -> list[Peer]:
    """List present peers by usefulness, then the others with the most recent first."""
    rows = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM peers "
        "ORDER BY present DESC, usefulness DESC, at DESC, nid"
    )
    return [
        Peer(
            nid,
            at,
            bool(present),
            useful,
            banned,
            reason,
            key,
            msgspec.json.decode(figures, type=dict[str, float]),
        )
        for nid, at, present, useful, banned, reason, key, figures in rows
    ]


def save_peer_claims(
    db: Connection,
    feed_id: int,
    identities: Sequence[str],
    path: Sequence[str],
    now: float,
    *,
    recovered: bool = False,
) -> None:
    """Store the path of nodes by which entries came from peers.

    The last node of ``path`` is the sender. ``recovered`` marks entries from archives of peers.
    """
    entry_ids = _unconfirmed_ids(db, feed_id, identities)
    encoded_path = msgspec.json.encode(path).decode()
    db.executemany(
        _INSERT_PEER_CLAIM,
        [(entry_id, path[-1], encoded_path, now, int(recovered)) for entry_id in entry_ids],
    )


def unconfirmed_peer_claims(db: Connection) -> list[PeerClaim]:
    """List unconfirmed entries, except recovered ones, which no document will confirm."""
    rows = db.execute(
        "SELECT f.url, e.identity, e.digest, e.declared_published_at, c.received_at, c.sender, "
        "c.path FROM peer_claims AS c JOIN entries AS e ON e.id = c.entry_id "
        "JOIN feeds AS f ON f.id = e.feed_id "
        "WHERE c.recovered = 0 AND e.source = ? ORDER BY c.received_at",
        (_FROM_PEER,),
    )
    return [PeerClaim(*(*row[:-1], tuple(msgspec.json.decode(row[-1])))) for row in rows]


def confirm(db: Connection, feed_id: int, identities: Sequence[str]) -> int:
    """Mark entries as confirmed, and return how many were unconfirmed."""
    ids = Many(_unconfirmed_ids(db, feed_id, identities))
    db.execute(f"UPDATE entries SET source = 'confirmed' WHERE id {IN_MANY}", (ids,))
    db.execute(f"DELETE FROM peer_claims WHERE entry_id {IN_MANY}", (ids,))
    return len(ids)


def withdraw(db: Connection, feed_id: int, identities: Sequence[str]) -> int:
    """Delete unconfirmed entries that are forged, and return their number."""
    return _withdraw(db, _unconfirmed_ids(db, feed_id, identities))


def withdraw_all(db: Connection, sender: str) -> int:
    """Delete all unconfirmed entries of a sender, and return their number."""
    rows = db.execute(
        "SELECT e.id FROM peer_claims AS c JOIN entries AS e ON e.id = c.entry_id "
        "WHERE c.sender = ? AND e.source = ?",
        (sender, _FROM_PEER),
    )
    return _withdraw(db, [i for (i,) in rows])


def _unconfirmed_ids(db: Connection, feed_id: int, identities: Sequence[str]) -> list[int]:
    rows = db.execute(
        _SELECT_UNCONFIRMED, (feed_id, Many(map(identity_hash, identities)), _FROM_PEER)
    )
    return [i for (i,) in rows]


def _withdraw(db: Connection, ids: Sequence[int]) -> int:
    """Delete entries with their identities, and return their number.

    Identities are deleted because the feed may later publish an entry with the same identity.
    """
    for table in ("identities", "dedup_keys"):
        db.execute(f"DELETE FROM {table} WHERE entry_id {IN_MANY}", (Many(ids),))
    delete_entries(db, ids)
    return len(ids)


def shareable_feeds(db: Connection) -> list[ShareableFeed]:
    """List active feeds that are not marked as private, by descending weight."""
    rows = db.execute(
        "SELECT id, url, weight, last_ok_at, oldest_at FROM feeds "
        "WHERE retired_at IS NULL AND id NOT IN (SELECT feed_id FROM private_feeds) "
        "ORDER BY weight DESC, id"
    )
    return [ShareableFeed(*row) for row in rows]


def set_private(db: Connection, feed_id: int, private: bool) -> None:
    """Mark a feed as private or public."""
    db.execute("DELETE FROM private_feeds WHERE feed_id = ?", (feed_id,))
    if private:
        db.execute("INSERT INTO private_feeds (feed_id) VALUES (?)", (feed_id,))


def save_poll_notice(db: Connection, at: float, feed_url: str, notice: bytes) -> None:
    """Store the result of a worker's poll for the process with the exchange.

    Old notices are deleted.
    """
    db.execute("DELETE FROM poll_notices WHERE at < ?", (at - POLL_NOTICE_RETENTION_S,))
    db.execute(
        "INSERT INTO poll_notices (at, feed_url, notice) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (at, feed_url, notice),
    )


def take_poll_notices(db: Connection) -> list[bytes]:
    """Return and delete all poll notices, oldest first."""
    rows = db.execute("DELETE FROM poll_notices RETURNING at, notice").fetchall()
    return [notice for _, notice in sorted(rows)]


def archived_entries(
    db: Connection, feed_id: int, since: float, until: float, title_text: str, limit: int
) -> list[Entry]:
    """List entries for peers whose titles contain a text, newest first."""
    rows = db.execute(
        f"SELECT {ENTRY} {_ARCHIVE} ORDER BY published_at DESC, id DESC LIMIT ?",
        (*_archive_parameters(feed_id, since, until, title_text), limit),
    )
    return [decode_entry(row) for row in rows]


def archive_extent(
    db: Connection, feed_id: int, since: float, until: float, title_text: str
) -> tuple[int, float, float] | None:
    """Return the number of entries for peers and the times of the oldest and newest.

    Returns None if there are no such entries.
    """
    row = db.execute(
        f"SELECT count(*), min(published_at), max(published_at) {_ARCHIVE}",
        _archive_parameters(feed_id, since, until, title_text),
    )
    count, oldest, newest = row.fetchone()
    return (count, oldest, newest) if count else None


def _archive_parameters(
    feed_id: int, since: float, until: float, title_text: str
) -> tuple[Any, ...]:
    escaped = title_text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return feed_id, _FROM_PEER, since, until, f"%{escaped}%"
