"""What is kept of the exchange: neighbours of now and before, who told which entry, and which feeds nobody is told of.

An entry that came from a neighbour has the source ``neighbour`` until it is confirmed, and a row in `tellings` that says who
told it: so a restart does not make a liar's word true, and what only a liar has told can be withdrawn as if it had never been.
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

#: Former neighbours that are remembered.
MAX_FORMER_PEERS = 200
#: What workers saw is news for no longer than this.
POLL_NOTICE_RETENTION_S = 3600.0


class Peer(Struct, frozen=True):
    """A node that is our neighbour, was, or may not be."""

    nid: str
    at: float = 0.0  #: when this was written
    present: bool = False
    usefulness: float = 0.0
    banned_until: float | None = None
    reason: str = ""  #: it is a neighbour no more
    key: bytes = b""
    figures: Mapping[
        str, float
    ] = {}  #: brought, given, entries, confirmed, false, earlier_s, looks_kept, looks_broken


class PeerClaim(Struct, frozen=True):
    """An entry that only a neighbour vouches for."""

    feed: str  #: its URL
    identity: str
    digest: bytes
    published: float | None
    received_at: float
    sender: str
    path: tuple[str, ...]


class ShareableFeed(Struct, frozen=True):
    """A feed that is followed and not marked as private."""

    id: int
    url: str
    weight: float
    last_ok_at: float | None = None
    oldest_at: float | None = None  #: in its last document


_COLUMNS = Peer.__struct_fields__
_SAVE = (
    f"INSERT INTO neighbours ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT (nid) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:])
)
_INSERT_PEER_CLAIM = "INSERT INTO tellings (entry_id, sender, path, told_at, recovered) VALUES (?, ?, ?, ?, ?) ON CONFLICT (entry_id) DO NOTHING"
#: Entries of a feed that nobody but a neighbour has shown us.
_SELECT_UNCONFIRMED = (
    "SELECT e.id FROM identities AS i JOIN entries AS e ON e.id = i.entry_id "
    f"WHERE i.feed_id = ? AND i.mark {IN_MANY} AND e.source = 'neighbour'"
)
#: What others may have from us: entries that we know to be true.
_ARCHIVE = (
    "FROM entries WHERE feed_id = ? AND source <> 'neighbour' AND published_at >= ? AND published_at < ? "
    "AND lower(title) LIKE ? ESCAPE '\\'"
)


def save(db: Connection, peers: Sequence[Peer]) -> None:
    """Instead of what was known of these; of former neighbours that are not banned, the oldest are forgotten."""
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
    db.executemany(_SAVE, rows)
    db.execute(
        "DELETE FROM neighbours WHERE present = 0 AND banned_until IS NULL AND nid NOT IN "
        "(SELECT nid FROM neighbours ORDER BY present DESC, at DESC LIMIT ?)",
        (MAX_FORMER_PEERS,),
    )


def peers(db: Connection) -> list[Peer]:
    """Present ones first, the most useful of these first; then the others, the latest first."""
    rows = db.execute(
        f"SELECT {', '.join(_COLUMNS)} FROM neighbours ORDER BY present DESC, usefulness DESC, at DESC, nid"
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
    """Note by which way these entries came; the last on it is who told us."""
    rows = db.execute(
        _SELECT_UNCONFIRMED, (feed_id, Many(map(identity_hash, identities)))
    ).fetchall()
    way = msgspec.json.encode(path).decode()
    db.executemany(
        _INSERT_PEER_CLAIM, [(entry_id, path[-1], way, now, int(recovered)) for (entry_id,) in rows]
    )


def unconfirmed_peer_claims(db: Connection) -> list[PeerClaim]:
    """News that are not confirmed; what was recovered from archives never will be by a document."""
    rows = db.execute(
        "SELECT f.url, e.identity, e.digest, e.published_told, t.told_at, t.sender, t.path FROM tellings AS t "
        "JOIN entries AS e ON e.id = t.entry_id JOIN feeds AS f ON f.id = e.feed_id "
        "WHERE t.recovered = 0 AND e.source = 'neighbour' ORDER BY t.told_at"
    )
    return [PeerClaim(*(*row[:-1], tuple(msgspec.json.decode(row[-1])))) for row in rows]


def confirm(db: Connection, feed_id: int, identities: Sequence[str]) -> int:
    """They are true; returns how many were in doubt."""
    ids = Many(
        i
        for (i,) in db.execute(_SELECT_UNCONFIRMED, (feed_id, Many(map(identity_hash, identities))))
    )
    db.execute(f"UPDATE entries SET source = 'confirmed' WHERE id {IN_MANY}", (ids,))
    db.execute(f"DELETE FROM tellings WHERE entry_id {IN_MANY}", (ids,))
    return len(ids)


def withdraw(db: Connection, feed_id: int, identities: Sequence[str]) -> int:
    """They were forged; returns how many there were."""
    return _withdraw(
        db,
        [
            i
            for (i,) in db.execute(
                _SELECT_UNCONFIRMED, (feed_id, Many(map(identity_hash, identities)))
            )
        ],
    )


def withdraw_all(db: Connection, sender: str) -> int:
    """All that only this neighbour has told; returns how many there were."""
    rows = db.execute(
        "SELECT e.id FROM tellings AS t JOIN entries AS e ON e.id = t.entry_id WHERE t.sender = ? AND e.source = 'neighbour'",
        (sender,),
    )
    return _withdraw(db, [i for (i,) in rows])


def _withdraw(db: Connection, ids: Sequence[int]) -> int:
    """Also the identity goes: the feed may yet bring an entry that bears it."""
    for table in ("identities", "stories"):
        db.execute(f"DELETE FROM {table} WHERE entry_id {IN_MANY}", (Many(ids),))
    delete_entries(db, ids)
    return len(ids)


def shareable_feeds(db: Connection) -> list[ShareableFeed]:
    """Feeds that are followed and not marked as private, the weightiest first."""
    rows = db.execute(
        "SELECT id, url, weight, last_ok_at, oldest_at FROM feeds "
        "WHERE retired_at IS NULL AND id NOT IN (SELECT feed_id FROM private_feeds) ORDER BY weight DESC, id"
    )
    return [ShareableFeed(*row) for row in rows]


def set_private(db: Connection, feed_id: int, private: bool) -> None:
    """Mark a feed as private, or not."""
    db.execute("DELETE FROM private_feeds WHERE feed_id = ?", (feed_id,))
    if private:
        db.execute("INSERT INTO private_feeds (feed_id) VALUES (?)", (feed_id,))


def save_poll_notice(db: Connection, at: float, feed: str, notice: bytes) -> None:
    """What a worker has seen of a feed, for the service that has neighbours; where there is none, it does not pile up."""
    db.execute("DELETE FROM sights WHERE at < ?", (at - POLL_NOTICE_RETENTION_S,))
    db.execute(
        "INSERT INTO sights (at, feed, sight) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (at, feed, notice),
    )


def take_poll_notices(db: Connection) -> list[bytes]:
    """What workers have seen, in that order; each is told once."""
    return [
        notice
        for _, notice in sorted(db.execute("DELETE FROM sights RETURNING at, sight").fetchall())
    ]


def archived_entries(
    db: Connection, feed_id: int, since: float, until: float, words: str, limit: int
) -> list[Entry]:
    """Newest first."""
    rows = db.execute(
        f"SELECT {ENTRY} {_ARCHIVE} ORDER BY published_at DESC, id DESC LIMIT ?",
        (*_archive_parameters(feed_id, since, until, words), limit),
    )
    return [decode_entry(row) for row in rows]


def archive_extent(
    db: Connection, feed_id: int, since: float, until: float, words: str
) -> tuple[int, float, float] | None:
    """How many entries there are, and the times of the oldest and the newest."""
    row = db.execute(
        f"SELECT count(*), min(published_at), max(published_at) {_ARCHIVE}",
        _archive_parameters(feed_id, since, until, words),
    )
    count, oldest, newest = row.fetchone()
    return (count, oldest, newest) if count else None


def _archive_parameters(feed_id: int, since: float, until: float, words: str) -> tuple[Any, ...]:
    escaped = words.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return feed_id, since, until, f"%{escaped}%"
