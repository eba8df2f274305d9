"""The search index of a SQLite file: it holds words alone, and what they stand in is read from `entries`.

A copy of every text would be a fifth of the file. So FTS5 must be told what to take out, which is worked out again from the
entry: an entry leaves the index before it is changed or deleted. (In PostgreSQL the words are a column of the entry.)
"""

import sqlite3
from collections.abc import Iterable, Sequence

from tidings.parse.sanitize import search_text
from tidings.store.connection import Connection
from tidings.store.search import normalize_texts

#: An entry's words, as they are searched: of its title, and of its text.
SEARCH_COLUMNS = "folded(title), folded(words_of(content, summary))"
_REMOVE = f"INSERT INTO search (search, rowid, title, body) SELECT 'delete', id, {SEARCH_COLUMNS} FROM entries WHERE id = ?"


def register_functions(db: sqlite3.Connection) -> None:
    """The functions that queries of this module, and the migration that has filled the index, call."""
    db.create_function("folded", 1, lambda text: normalize_texts([text])[0], deterministic=True)
    db.create_function(
        "words_of", 2, lambda content, summary: search_text(content or summary), deterministic=True
    )


def add(
    db: Connection, entry_ids: Iterable[int], titles: Sequence[str], bodies: Sequence[str]
) -> None:
    """Entries whose texts are folded already."""
    db.insert(
        "search", ("rowid", "title", "body"), list(zip(entry_ids, titles, bodies, strict=True))
    )


def delete_entries(db: Connection, entry_ids: Iterable[int]) -> None:
    """Entries that are still stored as they were when they were added."""
    db.executemany(_REMOVE, [(i,) for i in entry_ids])
