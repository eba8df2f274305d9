"""Which entries a feed has had, also those that are gone."""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from tidings.store.connection import Connection
from tidings.store.rows import Known

#: Bytes of an identity's mark. Marks are compared within one feed, where eight make a mistake unthinkable.
MARK = 8

_json = msgspec.json.Encoder()


def mark(identity: str) -> bytes:
    """A short stand-in for an identity, which may be of any length."""
    return blake2b(identity.encode("utf-8", "replace"), digest_size=MARK).digest()


def known(db: Connection, feed_id: int, identities: Sequence[str]) -> dict[str, Known]:
    """Which of these have been seen before, also long ago."""
    wanted = _json.encode(identities).decode()
    rows = db.execute(
        "SELECT identity, id, digest, published_at FROM entries "
        "WHERE feed_id = ? AND identity IN (SELECT value FROM json_each(?))",
        (feed_id, wanted),
    )
    seen = {identity: Known(*rest) for identity, *rest in rows}
    marks = {mark(identity): identity for identity in identities if identity not in seen}
    if marks:
        places = ", ".join("?" * len(marks))
        gone = db.execute(f"SELECT mark FROM departed WHERE feed_id = ? AND mark IN ({places})", (feed_id, *marks))
        seen.update((marks[m], Known(None, b"")) for (m,) in gone)
    return seen
