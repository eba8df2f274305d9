"""Queries for saved searches, which are named streams of a user."""

import msgspec

from tidings.store.connection import Connection
from tidings.store.user_models import SavedSearch, Stream

_stream_decoder = msgspec.json.Decoder(Stream)


def saved_searches(db: Connection, user_id: int) -> list[SavedSearch]:
    """List a user's saved searches by name."""
    rows = db.execute(
        "SELECT id, name, stream FROM saved_searches WHERE user_id = ? ORDER BY name", (user_id,)
    )
    return [SavedSearch(i, name, _stream_decoder.decode(stream)) for i, name, stream in rows]


def save_search(db: Connection, user_id: int, name: str, stream: Stream) -> SavedSearch:
    """Store a search under a name. An existing search with this name is replaced."""
    row = db.execute(
        "INSERT INTO saved_searches (user_id, name, stream) VALUES (?, ?, ?) "
        "ON CONFLICT (user_id, name) DO UPDATE SET stream = excluded.stream RETURNING id",
        (user_id, name, msgspec.json.encode(stream).decode()),
    ).fetchone()
    return SavedSearch(row[0], name, stream)


def remove_search(db: Connection, user_id: int, search_id: int) -> bool:
    """Delete a saved search, and return whether it existed."""
    return (
        db.execute(
            "DELETE FROM saved_searches WHERE user_id = ? AND id = ?", (user_id, search_id)
        ).rowcount
        == 1
    )
