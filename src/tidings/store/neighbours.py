"""What is kept of the exchange: neighbours of now and before, who told which entry, and which feeds nobody is told of.

An entry that came from a neighbour has the source ``neighbour`` until it is confirmed, and a row in `tellings` that says who
told it: so a restart does not make a liar's word true, and what only a liar has told can be withdrawn as if it had never been.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.entries import ENTRY, entry_of
from tidings.store.identities import mark
from tidings.store.rows import Entry
from tidings.store.upkeep import remove

#: Former neighbours that are remembered.
MOST_PAST = 200
#: What workers saw is news for no longer than this.
SIGHT_S = 3600.0


class Peer(Struct, frozen=True):
    """A node that is our neighbour, was, or may not be."""

    nid: str
    at: float = 0.0  #: when this was written
    present: bool = False
    usefulness: float = 0.0
    banned_until: float | None = None
    why: str = ""  #: it is a neighbour no more
    key: bytes = b""
    figures: Mapping[str, float] = {}  #: brought, given, entries, confirmed, false, earlier_s, looks_kept, looks_broken


class Telling(Struct, frozen=True):
    """An entry that only a neighbour vouches for."""

    feed: str  #: its URL
    identity: str
    digest: bytes
    published: float | None
    told_at: float
    sender: str
    path: tuple[str, ...]


class Shareable(Struct, frozen=True):
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
_TELL = (
    "INSERT INTO tellings (entry_id, sender, path, told_at, recovered) VALUES (?, ?, ?, ?, ?) ON CONFLICT (entry_id) DO NOTHING"
)
#: Entries of a feed that nobody but a neighbour has shown us.
_TOLD = (
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
        (p.nid, p.at, int(p.present), p.usefulness, p.banned_until, p.why, p.key, msgspec.json.encode(p.figures).decode())
        for p in peers
    ]
    db.executemany(_SAVE, rows)
    db.execute(
        "DELETE FROM neighbours WHERE present = 0 AND banned_until IS NULL AND nid NOT IN "
        "(SELECT nid FROM neighbours ORDER BY present DESC, at DESC LIMIT ?)",
        (MOST_PAST,),
    )


def peers(db: Connection) -> list[Peer]:
    """Present ones first, the most useful of these first; then the others, the latest first."""
    rows = db.execute(f"SELECT {', '.join(_COLUMNS)} FROM neighbours ORDER BY present DESC, usefulness DESC, at DESC, nid")
    return [
        Peer(nid, at, bool(present), useful, banned, why, key, msgspec.json.decode(figures, type=dict[str, float]))
        for nid, at, present, useful, banned, why, key, figures in rows
    ]


def tell(
    db: Connection, feed_id: int, identities: Sequence[str], path: Sequence[str], now: float, *, recovered: bool = False
) -> None:
    """Note by which way these entries came; the last on it is who told us."""
    rows = db.execute(_TOLD, (feed_id, Many(map(mark, identities)))).fetchall()
    way = msgspec.json.encode(path).decode()
    db.executemany(_TELL, [(entry_id, path[-1], way, now, int(recovered)) for (entry_id,) in rows])


def tellings(db: Connection) -> list[Telling]:
    """News that are not confirmed; what was recovered from archives never will be by a document."""
    rows = db.execute(
        "SELECT f.url, e.identity, e.digest, e.published_told, t.told_at, t.sender, t.path FROM tellings AS t "
        "JOIN entries AS e ON e.id = t.entry_id JOIN feeds AS f ON f.id = e.feed_id "
        "WHERE t.recovered = 0 AND e.source = 'neighbour' ORDER BY t.told_at"
    )
    return [Telling(*(*row[:-1], tuple(msgspec.json.decode(row[-1])))) for row in rows]


def confirm(db: Connection, feed_id: int, identities: Sequence[str]) -> int:
    """They are true; returns how many were in doubt."""
    ids = Many(i for (i,) in db.execute(_TOLD, (feed_id, Many(map(mark, identities)))))
    db.execute(f"UPDATE entries SET source = 'confirmed' WHERE id {IN_MANY}", (ids,))
    db.execute(f"DELETE FROM tellings WHERE entry_id {IN_MANY}", (ids,))
    return len(ids)


def withdraw(db: Connection, feed_id: int, identities: Sequence[str]) -> int:
    """They were forged; returns how many there were."""
    return _withdraw(db, [i for (i,) in db.execute(_TOLD, (feed_id, Many(map(mark, identities))))])


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
    remove(db, ids)
    return len(ids)


def shareable(db: Connection) -> list[Shareable]:
    """Feeds that are followed and not marked as private, the weightiest first."""
    rows = db.execute(
        "SELECT id, url, weight, last_ok_at, oldest_at FROM feeds "
        "WHERE retired_at IS NULL AND id NOT IN (SELECT feed_id FROM private_feeds) ORDER BY weight DESC, id"
    )
    return [Shareable(*row) for row in rows]


def hide(db: Connection, feed_id: int, hidden: bool) -> None:
    """Mark a feed as private, or not."""
    db.execute("DELETE FROM private_feeds WHERE feed_id = ?", (feed_id,))
    if hidden:
        db.execute("INSERT INTO private_feeds (feed_id) VALUES (?)", (feed_id,))


def put_sight(db: Connection, at: float, feed: str, sight: bytes) -> None:
    """What a worker has seen of a feed, for the service that has neighbours; where there is none, it does not pile up."""
    db.execute("DELETE FROM sights WHERE at < ?", (at - SIGHT_S,))
    db.execute("INSERT INTO sights (at, feed, sight) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (at, feed, sight))


def take_sights(db: Connection) -> list[bytes]:
    """What workers have seen, in that order; each is told once."""
    return [sight for _, sight in sorted(db.execute("DELETE FROM sights RETURNING at, sight").fetchall())]


def archive(db: Connection, feed_id: int, since: float, until: float, words: str, limit: int) -> list[Entry]:
    """Newest first."""
    rows = db.execute(
        f"SELECT {ENTRY} {_ARCHIVE} ORDER BY published_at DESC, id DESC LIMIT ?",
        (*_sought(feed_id, since, until, words), limit),
    )
    return [entry_of(row) for row in rows]


def holding(db: Connection, feed_id: int, since: float, until: float, words: str) -> tuple[int, float, float] | None:
    """How many entries there are, and the times of the oldest and the newest."""
    row = db.execute(f"SELECT count(*), min(published_at), max(published_at) {_ARCHIVE}", _sought(feed_id, since, until, words))
    count, oldest, newest = row.fetchone()
    return (count, oldest, newest) if count else None


def _sought(feed_id: int, since: float, until: float, words: str) -> tuple[Any, ...]:
    escaped = words.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return feed_id, since, until, f"%{escaped}%"
