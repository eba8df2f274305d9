"""Hashes of the identities of all entries that a feed has ever had, even if deleted.

Each identity, which may have any length, is stored permanently as a 64-bit hash. Integers are
stored and compared cheaply by both databases. Hashes are compared only within one feed, where
collisions of 64 bits are negligible.
"""

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import KnownEntry

_SELECT_KNOWN = (
    "SELECT i.feed_id, i.identity_hash, e.id, e.digest, e.published_at "
    "FROM {source} LEFT JOIN entries AS e ON e.id = i.entry_id {where}"
)
_SELECT_OF_ONE_FEED = _SELECT_KNOWN.format(
    source="identities AS i", where=f"WHERE i.feed_id = ? AND i.identity_hash {IN_MANY}"
)
_SELECT_OF_MANY_FEEDS = _SELECT_KNOWN.format(
    source="unnest(?::bigint[], ?::bigint[]) AS w (feed_id, identity_hash) "
    "JOIN identities AS i USING (feed_id, identity_hash)",
    where="",
)


def identity_hash(identity: str) -> int:
    """Return the 64-bit hash of an identity as a signed integer."""
    return int.from_bytes(
        blake2b(identity.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True
    )


class IdentityHashes(dict[str, int]):
    """Cache of hashes by identity.

    It saves time because the document of a poll lists its new entries again.
    """

    def __missing__(self, identity: str) -> int:
        self[identity] = value = identity_hash(identity)
        return value


def pack_hashes(identity_hashes: Sequence[int]) -> bytes:
    """Return hashes as bytes, each as a big-endian 64-bit integer."""
    return struct.pack(f">{len(identity_hashes)}q", *identity_hashes)


def unpack_hashes(identity_hashes: bytes) -> tuple[int, ...]:
    """Return the hashes in bytes that `pack_hashes` has returned."""
    return struct.unpack(f">{len(identity_hashes) // 8}q", identity_hashes)


def known_entries(db: Connection, feed_id: int, identities: Sequence[str]) -> dict[str, KnownEntry]:
    """Return the entries, by identity, that the feed has had before, even if deleted since."""
    identity_hashes = {identity_hash(identity): identity for identity in identities}
    return {
        identity_hashes[value]: entry
        for (_, value), entry in find_known(
            db, [(feed_id, value) for value in identity_hashes]
        ).items()
    }


def find_known(
    db: Connection, keys: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], KnownEntry]:
    """Return the known entries with the given keys, each of which is (feed id, identity hash)."""
    feeds: dict[int, list[int]] = {}
    for feed_id, value in keys:
        feeds.setdefault(feed_id, []).append(value)
    if db.postgres and len(feeds) > 1:  # a single query for all feeds saves round trips
        pairs = [
            (feed_id, value)
            for feed_id, identity_hashes in feeds.items()
            for value in identity_hashes
        ]
        columns = tuple(map(list, zip(*pairs, strict=True)))
        rows = db.execute(_SELECT_OF_MANY_FEEDS, columns).fetchall()
    else:
        rows = [
            row
            for feed_id, identity_hashes in feeds.items()
            for row in db.execute(_SELECT_OF_ONE_FEED, (feed_id, Many(identity_hashes)))
        ]
    return {
        (feed_id, value): KnownEntry(entry_id, digest or b"", at)
        for feed_id, value, entry_id, digest, at in rows
    }
