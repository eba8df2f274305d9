"""What people type into a search box, and the words that it is looked for among.

Words must all occur, in any order; ``"a phrase"`` as it stands; ``-word`` and ``-"a phrase"`` must not occur; ``pre*`` is
the beginning of a word. Case and accents do not matter. Everything else is taken as words: every word goes to FTS5 in
quotation marks, so whatever is typed, none of it is syntax.

What is a word is said here, for both databases: neither folds accents alike, and neither finds a word in a script that puts
no spaces between them. So texts are folded before they are indexed, and so is what is typed. After that, whatever is ASCII and
no letter or digit parts words, and nothing else does: the rule of FTS5's tokenizer ``ascii``, its quickest.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

#: More words than this say nothing more, and deep expressions are refused by FTS5.
MAX_TERMS = 32
#: What PostgreSQL's tsvector can hold: places of words, places of one word, bytes of one word.
MAX_POSITION, MAX_POSITIONS, MAX_WORD_LENGTH = 16383, 255, 200
#: Words of the title and of the body are so far apart that no phrase reaches from one into the other, as in FTS5.
TITLE_BODY_DISTANCE = 100

_TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_WORD = re.compile("[0-9a-z\x80-\U0010ffff]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
#: Thai, Lao, Burmese, Khmer, kana, ideographs: each character is a word, and words are phrases. So is each character beyond the
#: first 65,536, which UTF-16 writes as two: a first and a second half.
_UNSPACED = (
    *((0x0E01, 0x0E5B), (0x0E81, 0x0EDF), (0x1000, 0x109F), (0x1780, 0x17DD)),
    *((0x2E80, 0x312F), (0x3190, 0x9FFF), (0xF900, 0xFAFF)),
)
#: Accents as signs of their own, circles and keys around signs, and how an emoji is to be drawn.
_REMOVED_RANGES = ((0x0300, 0x036F), (0x20D0, 0x20FF), (0xFE00, 0xFE0F))
_FIRST_HALVES, _SECOND_HALVES = (0xD800, 0xDBFF), (0xDC00, 0xDFFF)
_FIRST_UNSPACED = 0x0E01
#: Texts of about so many characters are folded at once: they fit into a processor's cache.
_BATCH_SIZE = 50_000
_SPACE = ord(" ")
_KEPT, _REMOVED = 0, 1
#: Numbers in network order; beyond the last place there are none.
_TWO_BYTES = [number.to_bytes(2, "big") for number in range(MAX_POSITION + 1)] + [b""]

_Codes: TypeAlias = "npt.NDArray[np.uint16]"


class SearchTerms(Struct, frozen=True):
    """Two expressions of one database's kind; either may be empty."""

    included: str
    excluded: str

    @property
    def is_empty(self) -> bool:
        return not self.included and not self.excluded


def parse_query(query: str, *, postgres: bool = False) -> SearchTerms:
    """Read a query. A query without a single letter or digit gives no terms."""
    # From a command line may come halves of characters, which cannot be stored, and a zero ends a string for FTS5.
    query = query.encode("utf-8", "replace").decode().replace("\0", " ")
    included: list[str] = []
    excluded: list[str] = []
    for minus, phrase, word in _TERM.findall(query)[:MAX_TERMS]:
        text = normalize_texts([(phrase or word).replace('"', " ")])[0]
        if found := tokenize(text):
            prefix = "*" if word.endswith("*") else ""
            (excluded if minus else included).append(
                _tsquery(found, prefix) if postgres else f'"{text}"{prefix}'
            )
    both, either = (" & ", " | ") if postgres else (" AND ", " OR ")
    return SearchTerms(both.join(included), either.join(excluded))


def _tsquery(found: Sequence[str], prefix: str) -> str:
    return "(" + " <-> ".join(found) + (":" + prefix if prefix else "") + ")"


def normalize_texts(texts: Sequence[str]) -> list[str]:
    """Letters beyond ASCII in lower case and without accents, signs as spaces: many texts at once, in arrays of their codes."""
    done: list[str] = []
    some: list[str] = []
    size = 0
    for text in texts:
        some.append(text)
        size += len(text)
        if size > _BATCH_SIZE:
            done += _normalize_batch(some)
            some, size = [], 0
    done += _normalize_batch(some) if some else ()
    return done


def _normalize_batch(texts: Sequence[str]) -> Sequence[str]:
    joined = "\0".join(texts)
    if joined.isascii():
        return texts
    if joined.count("\0") >= len(texts):  # JSON may have them
        joined = "\0".join(text.replace("\0", " ") for text in texts)
    table, unspaced = _tables()
    codes: _Codes = np.frombuffer(joined.encode("utf-16-le", "surrogatepass"), np.uint16)
    normalized = table.take(codes)
    if unspaced.take(codes[codes >= _FIRST_UNSPACED]).any():
        alone = unspaced.take(codes)
        normalized = np.insert(
            normalized,
            np.concatenate([np.flatnonzero(alone & 1), np.flatnonzero(alone & 2) + 1]),
            _SPACE,
        )
    if (normalized == _REMOVED).any():
        normalized = normalized[normalized != _REMOVED]
    return normalized.tobytes().decode("utf-16-le", "surrogatepass").split("\0")


class _CategoryCodes(dict[str, int]):
    """What becomes of a sign, by its kind."""

    def __missing__(self, kind: str) -> int:
        normalized = kind[0] in "LNM" or kind in (
            "Co",
            "Cs",
        )  # letters, numbers and their marks, and what nobody has named
        self[kind] = fate = _REMOVED if kind == "Cf" else _KEPT if normalized else _SPACE
        return fate


@cache
def _tables() -> tuple[_Codes, npt.NDArray[np.uint8]]:
    """What becomes of each code, and whether a space is to be put before it (1) and after it (2). Made when first needed."""
    signs = range(0x10000)
    fates = _CategoryCodes()
    table = np.fromiter(
        (fates[unicodedata.category(chr(code))] for code in signs), np.uint16, len(signs)
    )
    for first, last in _REMOVED_RANGES:
        table[first : last + 1] = _REMOVED
    table[0x200B] = (
        _SPACE  # the one sign of format that parts; others are such as a hyphen that is shown where a line ends
    )
    table = np.where(table == _KEPT, np.arange(0x10000, dtype=np.uint16), table)
    for code in np.flatnonzero(table == signs).tolist():
        sign = chr(code)
        if sign.lower() != sign or unicodedata.decomposition(sign):
            plain = unicodedata.normalize(
                "NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", sign))
            ).lower()
            if len(plain) == 1 and plain < "\U00010000":
                table[code] = ord(plain)
    table[ord("ς")] = ord("σ")
    table[:0x80] = np.arange(0x80)
    table[_REMOVED] = _SPACE
    unspaced = np.zeros(0x10000, np.uint8)
    for edges, first, last in ((3, *both) for both in _UNSPACED):
        unspaced[first : last + 1] = edges
    for edge, (first, last) in ((1, _FIRST_HALVES), (2, _SECOND_HALVES)):
        unspaced[first : last + 1] = edge
    return table, unspaced


def tokenize(text: str) -> list[str]:
    """The words of a folded text."""
    return [word[:MAX_WORD_LENGTH] for word in _WORD.findall(text.lower())]


def encode_tsvector(title: str, body: str) -> bytes:
    """A tsvector of two folded texts as PostgreSQL takes it in binary form: each word with its places."""
    places: dict[str, bytes] = {}
    start = 1
    for text in (title, body):
        place = start
        for place, word in enumerate(tokenize(text), start):
            places[word] = places.get(word, b"") + _TWO_BYTES[min(place, MAX_POSITION + 1)]
        start = place + TITLE_BODY_DISTANCE
    parts = [len(places).to_bytes(4, "big")]
    for word, found in places.items():
        found = found[: 2 * MAX_POSITIONS]
        parts += (word.encode(), b"\0", _TWO_BYTES[len(found) // 2], found)
    return b"".join(parts)
