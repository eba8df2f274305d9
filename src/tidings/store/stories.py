"""When two entries of different feeds tell the same story: the same link, or nearly the same words. Pure.

Near-same words are found by a simhash (Charikar 2002): 64 bits to which every pair of neighbouring words gives its vote, so
that texts with most pairs in common differ in few bits. Two that differ in at most three share one of four bands of 16 bits
(Manku et al. 2007), and so a story is found again by looking up five keys: its link and its bands.
"""

import re
from hashlib import blake2b
from urllib.parse import parse_qsl, urlencode, urlsplit
from zlib import crc32

import numpy as np

#: Fewer words than this say too little: "Continue reading" is no story.
LEAST_WORDS = 12
#: Words that are looked at: the beginning of a text tells it from others, and costs the same however long it is.
MOST_WORDS = 80
#: Bits in which two tellings of a story may differ.
NEAR = 3
BANDS, BAND_BITS = 4, 16

_WORD = re.compile(r"\w+")
#: What is added to links to see who follows them.
_TRACKING = re.compile(r"utm_\w+|fbclid|gclid|mc_[ce]id|ref|ref_src|cmp|source|at_\w+", re.IGNORECASE)
_BITS = np.arange(64, dtype=np.uint64)
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


def simhash(text: str) -> int | None:
    """64 bits as a signed number; None where there are too few words."""
    words = _WORD.findall(text[: MOST_WORDS * 12].lower())[:MOST_WORDS]
    if len(words) < LEAST_WORDS:
        return None
    codes = np.fromiter((crc32(word.encode()) for word in words), np.uint64, len(words))
    pairs = codes[:-1] * np.uint64(31) + codes[1:]
    pairs *= _SPREAD  # the upper bits of the product depend on all bits of the pair
    pairs ^= pairs >> np.uint64(29)
    pairs *= _SPREAD
    votes = ((pairs[:, None] >> _BITS) & np.uint64(1)).sum(axis=0)
    bits = (votes * 2 > len(pairs)).astype(np.uint64) << _BITS
    return int(np.bitwise_or.reduce(bits).astype(np.int64))


def near(one: int, other: int) -> bool:
    return ((one ^ other) & (2**64 - 1)).bit_count() <= NEAR


def keys(url: str, bits: int | None) -> list[int]:
    """By which a story is found again."""
    found = []
    if link := canonical(url):
        found.append(int.from_bytes(blake2b(link.encode(), digest_size=8).digest(), "big", signed=True))
    if bits is not None:
        for band in range(BANDS):
            part = (bits >> (band * BAND_BITS)) & (2**BAND_BITS - 1)
            found.append(band << 32 | 1 << 40 | part)
    return found
