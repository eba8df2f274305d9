"""What people type into a search box, as FTS5 understands it.

Words must all occur, in any order; ``"a phrase"`` as it stands; ``-word`` and ``-"a phrase"`` must not occur; ``pre*`` is
the beginning of a word. Case and accents do not matter. Everything else is taken as words: every word goes to FTS5 in
quotation marks, so whatever is typed, none of it is syntax.
"""

import re

from msgspec import Struct

#: More words than this say nothing more, and deep expressions are refused by FTS5.
MOST_WORDS = 32

_TERM = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


class Terms(Struct, frozen=True):
    """Two FTS5 expressions; either may be empty."""

    wanted: str
    unwanted: str

    @property
    def nothing(self) -> bool:
        return not self.wanted and not self.unwanted


def terms(query: str) -> Terms:
    """Read a query. A query without a single letter or digit gives no terms."""
    # From a command line may come halves of characters, which cannot be stored, and a zero ends a string for FTS5.
    query = query.encode("utf-8", "replace").decode().replace("\0", " ")
    wanted: list[str] = []
    unwanted: list[str] = []
    for minus, phrase, word in _TERM.findall(query)[:MOST_WORDS]:
        text = (phrase or word).replace('"', " ")
        if any(c.isalnum() for c in text):
            prefix = "*" if word.endswith("*") else ""
            (unwanted if minus else wanted).append(f'"{text}"{prefix}')
    return Terms(" AND ".join(wanted), " OR ".join(unwanted))
