"""Which entries a feed has had, also those that are gone: a mark of eight bytes for each, for ever.

A mark stands for the identity, which may be of any length. It is an integer, which both databases keep and compare cheaply.
Marks are compared within one feed, where eight bytes make a mistake unthinkable.
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import KnownEntry

_SEEN = "SELECT i.feed_id, i.mark, e.id, e.digest, e.published_at FROM {wanted} LEFT JOIN entries AS e ON e.id = i.entry_id {where}"
_OF_ONE_FEED = _SEEN.format(
    wanted="identities AS i", where=f"WHERE i.feed_id = ? AND i.mark {IN_MANY}"
)
_OF_MANY_FEEDS = _SEEN.format(
    wanted="unnest(?::bigint[], ?::bigint[]) AS w (feed_id, mark) JOIN identities AS i USING (feed_id, mark)",
    where="",
)


def identity_hash(identity: str) -> int:
    return int.from_bytes(
        blake2b(identity.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True
    )


class IdentityHashes(dict[str, int]):
    """Marks by identity, each worked out once: new entries stand in their document too."""

    def __missing__(self, identity: str) -> int:
        self[identity] = made = identity_hash(identity)
        return made


def pack_hashes(identity_hashes: Sequence[int]) -> bytes:
    return struct.pack(f">{len(identity_hashes)}q", *identity_hashes)


def unpack_hashes(identity_hashes: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(identity_hashes) // 8}q", identity_hashes)


def known_entries(db: Connection, feed_id: int, identities: Sequence[str]) -> dict[str, KnownEntry]:
    """Which of these have been seen before, also long ago."""
    identity_hashes = {identity_hash(identity): identity for identity in identities}
    return {
        identity_hashes[m]: found
        for (_, m), found in find_known(db, [(feed_id, m) for m in identity_hashes]).items()
    }


def find_known(
    db: Connection, wanted: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], KnownEntry]:
    """Those of these pairs of feed and mark that have been seen."""
    feeds: dict[int, list[int]] = {}
    for feed_id, m in wanted:
        feeds.setdefault(feed_id, []).append(m)
    if db.postgres and len(feeds) > 1:  # it is the round trips that cost
        pairs = [
            (feed_id, m) for feed_id, identity_hashes in feeds.items() for m in identity_hashes
        ]
        rows = db.execute(_OF_MANY_FEEDS, tuple(map(list, zip(*pairs, strict=True)))).fetchall()
    else:
        rows = [
            row
            for feed_id, identity_hashes in feeds.items()
            for row in db.execute(_OF_ONE_FEED, (feed_id, Many(identity_hashes)))
        ]
    return {
        (feed_id, m): KnownEntry(entry_id, digest or b"", at)
        for feed_id, m, entry_id, digest, at in rows
    }
