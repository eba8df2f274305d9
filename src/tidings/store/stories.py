"""When two entries of different feeds tell the same story: the same link, or nearly the same words. Pure.

Two texts are near when their simhashes are (Charikar 2002): 64 bits to which every pair of neighbouring words gives its vote,
so that texts with most pairs in common differ in few bits. What to compare with is found by keys: the link, and of all runs of
four words those with the lowest hashes (Broder 1997). Texts that share most of their runs share at least one of those.
"""

import re
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit
from zlib import crc32

import numpy as np
import numpy.typing as npt

#: Fewer words than this say too little: "Continue reading" is no story.
LEAST_WORDS = 12
#: Words that are looked at: the beginning of a text tells it from others, and costs the same however long it is.
MOST_WORDS = 80
#: Bits in which two tellings of a story may differ: a few words in a hundred. Others differ in 32, give or take four.
NEAR = 10
#: Runs of words by which a story is found again.
RUNS = 4

_WORD = re.compile(r"\w+")
#: What is added to links to see who follows them.
_TRACKING = re.compile(r"utm_\w+|fbclid|gclid|mc_[ce]id|ref|ref_src|cmp|source|at_\w+", re.IGNORECASE)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def canonical(url: str) -> str:
    """A link without what does not belong to the story's address; nothing where it is no story's, such as a home page."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    path = parts.path.rstrip("/")
    query = urlencode([pair for pair in parse_qsl(parts.query) if not _TRACKING.fullmatch(pair[0])])
    host = (parts.hostname or "").removeprefix("www.").removeprefix("m.")
    return f"{host}{path}?{query}" if host and (path or query) else ""


class Words(NamedTuple):
    """What is kept of a text."""

    simhash: int  #: 64 bits as a signed number
    runs: tuple[int, ...]


def words_of(text: str) -> Words | None:
    """None where there are too few words."""
    words = _WORD.findall(text[: MOST_WORDS * 12].lower())[:MOST_WORDS]
    if len(words) < LEAST_WORDS:
        return None
    codes = np.fromiter((crc32(word.encode()) for word in words), np.uint64, len(words))
    pairs = _mixed(codes[:-1] * np.uint64(31) + codes[1:])
    votes = np.unpackbits(pairs.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=0, dtype=np.int32)
    bits = np.packbits(votes * 2 > len(pairs)).view(np.int64)
    runs = np.sort(_mixed(pairs[:-2] + pairs[2:] * np.uint64(31)))[:RUNS].astype(np.int64)
    return Words(int(bits[0]), tuple(set(runs.tolist())))


def _mixed(codes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Every bit depends on all bits: multiplied, the upper ones depend on the lower, which are given theirs in turn."""
    codes = codes * _SPREAD
    return (codes ^ (codes >> np.uint64(29))) * _SPREAD


def near(one: int, other: int) -> bool:
    return ((one ^ other) & (2**64 - 1)).bit_count() <= NEAR


def keys(url: str, words: Words | None) -> list[int]:
    """By which a story is found again."""
    link = canonical(url)
    found = [int.from_bytes(blake2b(link.encode(), digest_size=8).digest(), "big", signed=True)] if link else []
    return [*found, *(words.runs if words else ())]
