"""When two entries of different feeds tell the same story: the same link, or nearly the same words. Pure.

Two texts are near when their simhashes are (Charikar 2002): 64 bits to which every pair of neighbouring words gives its vote,
so that texts with most pairs in common differ in few bits. What to compare with is found by keys: the link, and of all runs of
four words those with the lowest hashes (Broder 1997). Texts that share most of their runs share at least one of those.
Many texts are read at once, in arrays of their bytes: one by one they would cost as much as all else about an entry.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, urlencode

import numpy as np
import numpy.typing as npt

#: Fewer words than this say too little: "Continue reading" is no story.
MIN_WORDS = 12
#: Words that are looked at: the beginning of a text tells it from others, and costs the same however long it is.
MAX_WORDS = 80
#: Bits in which two tellings of a story may differ: a few words in a hundred. Others differ in 32, give or take four.
MAX_HAMMING_DISTANCE = 10
#: Runs of words by which a story is found again.
SHINGLE_COUNT = 4

#: What is added to links to see who follows them.
_TRACKING = re.compile(
    r"utm_\w+|fbclid|gclid|mc_[ce]id|ref|ref_src|cmp|source|at_\w+", re.IGNORECASE
)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_Hashes: TypeAlias = "npt.NDArray[np.uint64]"
#: Bytes of words, in folded texts: letters and digits, and all that is not ASCII.
_IN_WORD = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])
#: Bytes that are looked at, and a factor for each place with its inverse (mod 2**64).
_WIDTH = 640
#: Texts that are read at once: so many fit into a processor's cache.
_BATCH_SIZE = 64
_BASE = 0xD1342543DE82EF95
_POWERS: _Hashes = np.cumprod(np.full(_WIDTH + 1, _BASE, np.uint64), dtype=np.uint64)
_INVERSES: _Hashes = np.cumprod(
    np.full(_WIDTH + 1, pow(_BASE, -1, 2**64), np.uint64), dtype=np.uint64
)
_NONE = np.uint64(2**64 - 1)


def canonicalize_url(url: str) -> str:
    """A link without what does not belong to the story's address; nothing where it is no story's, such as a home page."""
    scheme, _, rest = url.partition("#")[0].partition("://")
    address, _, query = rest.partition("?")
    host, _, path = address.partition("/")
    host = host.lower().removeprefix("www.").removeprefix("m.")
    if query:
        query = urlencode([pair for pair in parse_qsl(query) if not _TRACKING.fullmatch(pair[0])])
    path = path.rstrip("/")
    return f"{host}/{path}?{query}" if scheme and host and (path or query) else ""


def link_key(url: str) -> int | None:
    """By which another telling with the same link is found."""
    link = canonicalize_url(url)
    return (
        int.from_bytes(
            blake2b(link.encode("utf-8", "replace"), digest_size=8).digest(), "big", signed=True
        )
        if link
        else None
    )


class TextSignature(NamedTuple):
    """What is kept of a text."""

    simhash: int  #: 64 bits as a signed number
    shingles: tuple[int, ...]  #: keys


def text_signatures(texts: Sequence[str]) -> list[TextSignature | None]:
    """Of each text, folded as it is for the search index; None where it has too few words."""
    return [
        words
        for i in range(0, len(texts), _BATCH_SIZE)
        for words in _signatures_of_batch(texts[i : i + _BATCH_SIZE])
    ]


def _signatures_of_batch(texts: Sequence[str]) -> list[TextSignature | None]:
    words, counts = _first_words(texts)
    found: list[TextSignature | None] = [None] * len(texts)
    long_enough = np.flatnonzero(counts >= MIN_WORDS)
    if not len(long_enough):
        return found
    words, counts = words[long_enough], counts[long_enough]
    pairs = _mix_hash(words[:, :-1] * np.uint64(31) + words[:, 1:])
    there = np.arange(1, MAX_WORDS) < counts[:, None]
    bits = np.unpackbits(pairs[there].view(np.uint8).reshape(-1, 8), axis=1)
    votes = np.add.reduceat(bits, np.cumsum(counts - 1) - (counts - 1), axis=0, dtype=np.uint8)
    simhashes = (
        np.packbits(votes > (counts[:, None] - 1) // 2, axis=1).view(np.int64).ravel().tolist()
    )
    shingles = np.where(
        there[:, 2:], _mix_hash(pairs[:, :-2] * np.uint64(31) + pairs[:, 2:]), _NONE
    )
    lowest = (
        np.partition(shingles, SHINGLE_COUNT, axis=1)[:, :SHINGLE_COUNT].astype(np.int64).tolist()
    )
    for text, simhash, own in zip(long_enough.tolist(), simhashes, lowest, strict=True):
        found[text] = TextSignature(simhash, tuple(set(own)))
    return found


def _first_words(texts: Sequence[str]) -> tuple[_Hashes, npt.NDArray[np.int64]]:
    """A row for each text with the hashes of its words, and how many there are.

    The sum of a word's bytes, each times a power by its place in the row, is the difference of two running sums; divided by
    the power of the word's place it is the same wherever the word stands.
    """
    parts = [
        text[:_WIDTH].encode("utf-8", "replace")[:_WIDTH].ljust(_WIDTH + 1, b"\0") for text in texts
    ]
    data = np.frombuffer(b"".join(parts).lower(), np.uint8)
    in_word = np.zeros(len(data) + 1, bool)
    _IN_WORD.take(data, out=in_word[1:], mode="clip")
    changes = np.flatnonzero(in_word[1:] != in_word[:-1])
    begins, ends = changes[::2], changes[1::2]
    until = np.searchsorted(begins, np.arange(1, len(texts) + 1) * (_WIDTH + 1))
    counts = np.diff(until, prepend=0)
    rank = np.arange(len(begins)) - np.repeat(until - counts, counts)
    looked_at = rank < MAX_WORDS
    begins, ends, rank = begins[looked_at], ends[looked_at], rank[looked_at]
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(data.reshape(-1, _WIDTH + 1) * _POWERS, out=sums[1:])
    hashes = np.zeros((len(texts), MAX_WORDS), np.uint64)
    hashes[begins // (_WIDTH + 1), rank] = _mix_hash(
        (sums[ends] - sums[begins]) * _INVERSES[begins % (_WIDTH + 1)]
    )
    return hashes, np.minimum(counts, MAX_WORDS)


def _mix_hash(codes: _Hashes) -> _Hashes:
    """Every bit depends on all bits: multiplied, the upper ones depend on the lower, which are given theirs in turn."""
    codes = codes * _SPREAD
    return (codes ^ (codes >> np.uint64(29))) * _SPREAD


def is_near_duplicate(one: int, other: int) -> bool:
    return ((one ^ other) & (2**64 - 1)).bit_count() <= MAX_HAMMING_DISTANCE
