"""What people type into a search box, as FTS5 and PostgreSQL understand it.

Words must all occur, in any order; ``"a phrase"`` as it stands; ``-word`` and ``-"a phrase"`` must not occur; ``pre*`` is
the beginning of a word. Case and accents do not matter. Everything else is taken as words: every word goes to FTS5 in
quotation marks, so whatever is typed, none of it is syntax.

PostgreSQL has no way to fold accents without an extension that few servers have, and cuts words otherwise than FTS5. So for
PostgreSQL the words are cut and folded here, by FTS5's rules (its tokenizer unicode61), and so is what is typed.
"""

import re
import unicodedata

from msgspec import Struct

#: More words than this say nothing more, and deep expressions are refused by FTS5.
MOST_WORDS = 32
#: What PostgreSQL's tsvector can hold: places of words, places of one word, bytes of one word.
LAST_PLACE, MOST_PLACES, LONGEST = 16383, 255, 200
#: Words of the title and of the body are so far apart that no phrase reaches from one into the other, as in FTS5.
BETWEEN = 100

_TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
#: Numbers in network order; beyond the last place there are none.
_TWO_BYTES = [number.to_bytes(2, "big") for number in range(LAST_PLACE + 1)] + [b""]


class Terms(Struct, frozen=True):
    """Two expressions of one database's kind; either may be empty."""

    wanted: str
    unwanted: str

    @property
    def nothing(self) -> bool:
        return not self.wanted and not self.unwanted


def terms(query: str, *, postgres: bool = False) -> Terms:
    """Read a query. A query without a single letter or digit gives no terms."""
    # From a command line may come halves of characters, which cannot be stored, and a zero ends a string for FTS5.
    query = query.encode("utf-8", "replace").decode().replace("\0", " ")
    wanted: list[str] = []
    unwanted: list[str] = []
    for minus, phrase, word in _TERM.findall(query)[:MOST_WORDS]:
        text = (phrase or word).replace('"', " ")
        if any(c.isalnum() for c in text):
            prefix = "*" if word.endswith("*") else ""
            (unwanted if minus else wanted).append(_tsquery(text, prefix) if postgres else f'"{text}"{prefix}')
    both, either = (" & ", " | ") if postgres else (" AND ", " OR ")
    return Terms(both.join(wanted), either.join(unwanted))


def _tsquery(text: str, prefix: str) -> str:
    return "(" + " <-> ".join(words(text)) + (":" + prefix if prefix else "") + ")"


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case and without accents."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))
    return [word[:LONGEST] for word in _WORD.findall(text.lower())]


def vector(title: str, body: str) -> bytes:
    """A tsvector as PostgreSQL takes it in binary form: each word with its places."""
    places: dict[str, bytes] = {}
    start = 1
    for text in (title, body):
        place = start
        for place, word in enumerate(words(text), start):
            places[word] = places.get(word, b"") + _TWO_BYTES[min(place, LAST_PLACE + 1)]
        start = place + BETWEEN
    parts = [len(places).to_bytes(4, "big")]
    for word, found in places.items():
        found = found[: 2 * MOST_PLACES]
        parts += (word.encode(), b"\0", _TWO_BYTES[len(found) // 2], found)
    return b"".join(parts)
