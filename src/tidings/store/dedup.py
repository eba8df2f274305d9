"""Detection of near-duplicate entries (dedup) by link, SimHash and shingles.

Two texts are near-duplicates if their SimHashes differ in few bits (Charikar 2002). A SimHash has
64 bits, for which every pair of adjacent words votes, so that texts with most pairs in common
differ in few bits. Candidates are found by keys: the link, and the lowest hashes of the shingles
(sequences of four words; min-wise sampling, Broder 1997). Texts that share most of their shingles
share at least one of these. Texts are processed in batches, as arrays of bytes: one by one they
would cost as much as all other work for an entry. The functions have no side effects.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode

import numpy as np
import numpy.typing as npt

#: Minimum number of words of a text that is compared. Short texts such as "Continue reading" are
#: not comparable.
MIN_WORDS = 12
#: Maximum number of words of a text that are compared. The beginning identifies a text, and the
#: cost does not depend on its length.
MAX_WORDS = 80
#: Maximum Hamming distance between the SimHashes of two duplicates, which differ in a few words of
#: a hundred. Unrelated texts differ in about 32 bits, with a standard deviation of 4.
MAX_HAMMING_DISTANCE = 10
#: Number of shingles that are stored as keys of an entry.
SHINGLE_COUNT = 4

#: Pattern for the names of tracking parameters in links.
_TRACKING = re.compile(
    r"utm_\w+|fbclid|gclid|mc_[ce]id|ref|ref_src|cmp|source|at_\w+", re.IGNORECASE
)
#: Multiplier of the hash function (2**64 / golden ratio).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_Hashes: TypeAlias = "npt.NDArray[np.uint64]"
#: Whether a byte of a normalized text belongs to a word: letters, digits and non-ASCII bytes.
_IN_WORD = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])
#: Maximum number of bytes of a text that are read.
_WIDTH = 640
#: Number of texts per batch, which fit into the processor's cache.
_BATCH_SIZE = 64
#: Base of the rolling hash, the powers of the base by position, and their inverses (mod 2**64).
_BASE = 0xD1342543DE82EF95
_POWERS: _Hashes = np.cumprod(np.full(_WIDTH + 1, _BASE, np.uint64), dtype=np.uint64)
_INVERSES: _Hashes = np.cumprod(
    np.full(_WIDTH + 1, pow(_BASE, -1, 2**64), np.uint64), dtype=np.uint64
)
#: Hash that stands for a shingle beyond the end of a text.
_NONE = np.uint64(2**64 - 1)


def canonicalize_url(url: str) -> str:
    """Return a URL without scheme, fragment, ``www.`` and tracking parameters.

    Returns an empty string for a home page.
    """
    scheme, _, rest = url.partition("#")[0].partition("://")
    address, _, query = rest.partition("?")
    host, _, path = address.partition("/")
    host = host.lower().removeprefix("www.").removeprefix("m.")
    if query:
        query = urlencode([pair for pair in parse_qsl(query) if not _TRACKING.fullmatch(pair[0])])
    path = path.rstrip("/")
    return f"{host}/{path}?{query}" if scheme and host and (path or query) else ""


def link_key(url: str) -> int | None:
    """Return the dedup key of a link, or None for a link that identifies no entry."""
    link = canonicalize_url(url)
    return (
        int.from_bytes(
            blake2b(link.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True
        )
        if link
        else None
    )


class TextSignature(NamedTuple):
    """SimHash and shingles of a text, for comparison with other texts."""

    simhash: int  #: SimHash of 64 bits as a signed number
    shingles: tuple[int, ...]  #: hashes of shingles, which are dedup keys


def text_signatures(texts: Sequence[str]) -> list[TextSignature | None]:
    """Return the signatures of normalized texts, with None for texts below `MIN_WORDS` words."""
    return [
        signature
        for i in range(0, len(texts), _BATCH_SIZE)
        for signature in _signatures_of_batch(texts[i : i + _BATCH_SIZE])
    ]


def _signatures_of_batch(texts: Sequence[str]) -> list[TextSignature | None]:
    words, counts = _first_words(texts)
    signatures: list[TextSignature | None] = [None] * len(texts)
    long_enough = np.flatnonzero(counts >= MIN_WORDS)
    if not len(long_enough):
        return signatures
    words, counts = words[long_enough], counts[long_enough]
    pairs = _mix_hash(words[:, :-1] * np.uint64(31) + words[:, 1:])
    exists = np.arange(1, MAX_WORDS) < counts[:, None]
    bits = np.unpackbits(pairs[exists].view(np.uint8).reshape(-1, 8), axis=1)
    votes = np.add.reduceat(bits, np.cumsum(counts - 1) - (counts - 1), axis=0, dtype=np.uint8)
    simhashes = (
        np.packbits(votes > (counts[:, None] - 1) // 2, axis=1).view(np.int64).ravel().tolist()
    )
    shingles = np.where(
        exists[:, 2:], _mix_hash(pairs[:, :-2] * np.uint64(31) + pairs[:, 2:]), _NONE
    )
    lowest = (
        np.partition(shingles, SHINGLE_COUNT, axis=1)[:, :SHINGLE_COUNT].astype(np.int64).tolist()
    )
    for index, simhash, keys in zip(long_enough.tolist(), simhashes, lowest, strict=True):
        signatures[index] = TextSignature(simhash, tuple(set(keys)))
    return signatures


def _first_words(texts: Sequence[str]) -> tuple[_Hashes, npt.NDArray[np.int64]]:
    """Return the hashes of each text's first words (one row per text), and the numbers of words.

    The rolling hash of a word is the sum of its bytes, each times a power of the base by its
    position in the row: the difference of two cumulative sums. Multiplied by the inverse power of
    the word's start, the hash does not depend on the position.
    """
    parts = [
        text[:_WIDTH].encode("utf-8", "replace")[:_WIDTH].ljust(_WIDTH + 1, b"\0") for text in texts
    ]
    data = np.frombuffer(b"".join(parts).lower(), np.uint8)
    in_word = np.zeros(len(data) + 1, bool)
    _IN_WORD.take(data, out=in_word[1:], mode="clip")
    changes = np.flatnonzero(in_word[1:] != in_word[:-1])
    starts, ends = changes[::2], changes[1::2]
    until = np.searchsorted(starts, np.arange(1, len(texts) + 1) * (_WIDTH + 1))
    counts = np.diff(until, prepend=0)
    rank = np.arange(len(starts)) - np.repeat(until - counts, counts)
    selected = rank < MAX_WORDS
    starts, ends, rank = starts[selected], ends[selected], rank[selected]
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(data.reshape(-1, _WIDTH + 1) * _POWERS, out=sums[1:])
    hashes = np.zeros((len(texts), MAX_WORDS), np.uint64)
    hashes[starts // (_WIDTH + 1), rank] = _mix_hash(
        (sums[ends] - sums[starts]) * _INVERSES[starts % (_WIDTH + 1)]
    )
    return hashes, np.minimum(counts, MAX_WORDS)


def _mix_hash(hashes: _Hashes) -> _Hashes:
    """Mix the bits of hashes so that each bit of the result depends on all bits (finalizer)."""
    hashes = hashes * _MULTIPLIER
    return (hashes ^ (hashes >> np.uint64(29))) * _MULTIPLIER


def is_near_duplicate(one: int, other: int) -> bool:
    """Return whether two SimHashes differ in at most `MAX_HAMMING_DISTANCE` bits."""
    return ((one ^ other) & (2**64 - 1)).bit_count() <= MAX_HAMMING_DISTANCE
