"""Full-text search index of a SQLite file (contentless FTS5 table).

The index contains only words; texts are read from `entries`, because a copy of them would make up a
fifth of the file. Deleting from a contentless FTS5 table requires the indexed text, which is
computed from the entry again: remove an entry from the index before changing or deleting it. In
PostgreSQL the words are a tsvector column of the entry.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from tidings.parse.sanitize import search_text
from tidings.store.connection import Connection
from tidings.store.search import normalize_texts

#: SQL expressions that compute the two indexed columns, title and body, from a row of `entries`.
SEARCH_COLUMNS = "normalize_text(title), normalize_text(search_text(content, summary))"
_DELETE = (
    "INSERT INTO search (search, rowid, title, body) "
    f"SELECT 'delete', id, {SEARCH_COLUMNS} FROM entries WHERE id = ?"
)


def register_functions(db: sqlite3.Connection) -> None:
    """Register the SQL functions that the queries here and the migration of the index use."""

    def normalize(text: str) -> str:
        return normalize_texts([text])[0]

    def text_of(content: str, summary: str) -> str:
        return search_text(content or summary)

    for name in ("normalize_text", "folded"):  # migrations use the second name
        db.create_function(name, 1, normalize, deterministic=True)
    for name in ("search_text", "words_of"):
        db.create_function(name, 2, text_of, deterministic=True)


def add_entries(
    db: Connection, entry_ids: Iterable[int], titles: Sequence[str], bodies: Sequence[str]
) -> None:
    """Add entries with normalized texts to the index."""
    db.insert(
        "search", ("rowid", "title", "body"), list(zip(entry_ids, titles, bodies, strict=True))
    )


def delete_entries(db: Connection, entry_ids: Iterable[int]) -> None:
    """Remove entries from the index. Their rows must not have changed since they were added."""
    db.executemany(_DELETE, [(i,) for i in entry_ids])
