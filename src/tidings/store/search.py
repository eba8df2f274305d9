"""Full-text search with a query parser and a tokenizer for FTS5 and tsvector.

All words of a query must occur, in any order; ``"a phrase"`` must occur literally; ``-word`` and
``-"a phrase"`` must not occur; ``pre*`` matches the beginning of a word. Case and accents are
ignored. Everything else is treated as words: every word is quoted for FTS5, so no input is a syntax
error.

Both databases use the tokenizer of this module, because their own ones treat accents differently
and do not find words in scripts without spaces. Texts are normalized before they are indexed, and
queries in the same way. After that, all ASCII characters except letters and digits separate words,
and nothing else does: the rule of FTS5's tokenizer ``ascii``, which is its fastest.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

#: Maximum number of terms in a query. FTS5 rejects deeply nested expressions.
MAX_TERMS = 32
#: Limits of PostgreSQL's tsvector, which are the highest position, the number of positions per
#: word, and the number of characters per word.
MAX_POSITION, MAX_POSITIONS, MAX_WORD_LENGTH = 16383, 255, 200
#: Distance between the positions of title and body, so that no phrase matches across both (as in
#: FTS5).
TITLE_BODY_DISTANCE = 100

_TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_WORD = re.compile("[0-9a-z\x80-\U0010ffff]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
#: Code points of scripts without spaces (Thai, Lao, Burmese, Khmer, kana, ideographs). Each
#: character is indexed as a word, and words are searched as phrases. The same applies to characters
#: outside the Basic Multilingual Plane, which are surrogate pairs in UTF-16.
_UNSPACED = (
    *((0x0E01, 0x0E5B), (0x0E81, 0x0EDF), (0x1000, 0x109F), (0x1780, 0x17DD)),
    *((0x2E80, 0x312F), (0x3190, 0x9FFF), (0xF900, 0xFAFF)),
)
#: Code points that are removed: combining accents, combining marks for symbols, and emoji variation
#: selectors.
_REMOVED_RANGES = ((0x0300, 0x036F), (0x20D0, 0x20FF), (0xFE00, 0xFE0F))
_HIGH_SURROGATES, _LOW_SURROGATES = (0xD800, 0xDBFF), (0xDC00, 0xDFFF)
_FIRST_UNSPACED = 0x0E01
#: Number of characters that are normalized in one batch, which fits into the processor's cache.
_BATCH_SIZE = 50_000
_SPACE = ord(" ")
_KEPT, _REMOVED = 0, 1
#: Positions as big-endian 16-bit integers. The entry beyond the last position is empty.
_TWO_BYTES = [number.to_bytes(2, "big") for number in range(MAX_POSITION + 1)] + [b""]

_Codes: TypeAlias = "npt.NDArray[np.uint16]"


class SearchTerms(Struct, frozen=True):
    """Parsed query as two expressions in the syntax of a database.

    ``included`` must match and ``excluded`` must not match. Either may be empty.
    """

    included: str
    excluded: str

    @property
    def is_empty(self) -> bool:
        return not self.included and not self.excluded


def parse_query(query: str, *, postgres: bool = False) -> SearchTerms:
    """Parse a query for FTS5 or PostgreSQL (tsquery).

    The result is empty if the query has no letters and digits.
    """
    # Command-line arguments may contain lone surrogates, which cannot be encoded. Null characters
    # are replaced because FTS5 ends a string at a null character.
    query = query.encode("utf-8", "replace").decode().replace("\0", " ")
    included: list[str] = []
    excluded: list[str] = []
    for minus, phrase, word in _TERM.findall(query)[:MAX_TERMS]:
        text = normalize_texts([(phrase or word).replace('"', " ")])[0]
        if tokens := tokenize(text):
            prefix = "*" if word.endswith("*") else ""
            (excluded if minus else included).append(
                _tsquery(tokens, prefix) if postgres else f'"{text}"{prefix}'
            )
    both, either = (" & ", " | ") if postgres else (" AND ", " OR ")
    return SearchTerms(both.join(included), either.join(excluded))


def _tsquery(tokens: Sequence[str], prefix: str) -> str:
    return "(" + " <-> ".join(tokens) + (":" + prefix if prefix else "") + ")"


def normalize_texts(texts: Sequence[str]) -> list[str]:
    """Return texts normalized for the search index.

    Non-ASCII letters are in lower case and without accents. Punctuation and symbols become spaces.
    ASCII characters stay as they are. Texts are processed in batches, as arrays of UTF-16 code
    units.
    """
    normalized: list[str] = []
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > _BATCH_SIZE:
            normalized += _normalize_batch(batch)
            batch, size = [], 0
    normalized += _normalize_batch(batch) if batch else ()
    return normalized


def _normalize_batch(texts: Sequence[str]) -> Sequence[str]:
    joined = "\0".join(texts)
    if joined.isascii():
        return texts
    if joined.count("\0") >= len(texts):  # texts from JSON feeds may contain null characters
        joined = "\0".join(text.replace("\0", " ") for text in texts)
    table, unspaced = _tables()
    codes: _Codes = np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), np.uint16)
    normalized = table.take(codes)
    if unspaced.take(codes[codes >= _FIRST_UNSPACED]).any():
        spaces = unspaced.take(codes)
        normalized = np.insert(
            normalized,
            np.concatenate([np.flatnonzero(spaces & 1), np.flatnonzero(spaces & 2) + 1]),
            _SPACE,
        )
    if (normalized == _REMOVED).any():
        normalized = normalized[normalized != _REMOVED]
    return normalized.tobytes().decode("utf-16-le", "surrogatepass").split("\0")


class _CategoryCodes(dict[str, int]):
    """Cache of the replacement code of characters by their Unicode category."""

    def __missing__(self, category: str) -> int:
        # Letters, numbers, marks, private-use characters and surrogates stay as they are.
        is_kept = category[0] in "LNM" or category in ("Co", "Cs")
        self[category] = code = _REMOVED if category == "Cf" else _KEPT if is_kept else _SPACE
        return code


@cache
def _tables() -> tuple[_Codes, npt.NDArray[np.uint8]]:
    """Return two lookup tables by UTF-16 code unit, which are computed on first use.

    The first table has the replacement of each code unit. The second table says whether a space is
    inserted before the code unit (1), after it (2) or on both sides (3).
    """
    codes = range(0x10000)
    category_codes = _CategoryCodes()
    table = np.fromiter(
        (category_codes[unicodedata.category(chr(code))] for code in codes), np.uint16, len(codes)
    )
    for first, last in _REMOVED_RANGES:
        table[first : last + 1] = _REMOVED
    # ZERO WIDTH SPACE separates words, unlike other format characters such as SOFT HYPHEN.
    table[0x200B] = _SPACE
    table = np.where(table == _KEPT, np.arange(0x10000, dtype=np.uint16), table)
    for code in np.flatnonzero(table == codes).tolist():
        character = chr(code)
        if character.lower() != character or unicodedata.decomposition(character):
            plain = unicodedata.normalize(
                "NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", character))
            ).lower()
            if len(plain) == 1 and plain < "\U00010000":
                table[code] = ord(plain)
    table[ord("ς")] = ord("σ")
    table[:0x80] = np.arange(0x80)
    table[_REMOVED] = _SPACE
    unspaced = np.zeros(0x10000, np.uint8)
    for edges, first, last in ((3, *both) for both in _UNSPACED):
        unspaced[first : last + 1] = edges
    for edge, (first, last) in ((1, _HIGH_SURROGATES), (2, _LOW_SURROGATES)):
        unspaced[first : last + 1] = edge
    return table, unspaced


def tokenize(text: str) -> list[str]:
    """Split a normalized text into words."""
    return [word[:MAX_WORD_LENGTH] for word in _WORD.findall(text.lower())]


def encode_tsvector(title: str, body: str) -> bytes:
    """Return the tsvector of two normalized texts in PostgreSQL's binary format."""
    positions: dict[str, bytes] = {}
    start = 1
    for text in (title, body):
        position = start
        for position, word in enumerate(tokenize(text), start):
            positions[word] = positions.get(word, b"") + _TWO_BYTES[min(position, MAX_POSITION + 1)]
        start = position + TITLE_BODY_DISTANCE
    parts = [len(positions).to_bytes(4, "big")]
    for word, encoded in positions.items():
        encoded = encoded[: 2 * MAX_POSITIONS]
        parts += (word.encode(), b"\0", _TWO_BYTES[len(encoded) // 2], encoded)
    return b"".join(parts)
