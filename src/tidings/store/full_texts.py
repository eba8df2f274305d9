"""Queries for full texts of articles, which are fetched from their web pages.

A row with empty content records when the extraction failed.
"""

from tidings.store.connection import Connection


def list_missing(db: Connection, since: float, before: float, limit: int) -> list[tuple[int, str]]:
    """List entries (id, URL) received after ``since`` whose full text is not stored yet.

    Only feeds with the option full text are included. Entries whose extraction failed are listed
    again if the last attempt was earlier than ``before``. The cross join fixes SQLite's join order,
    because only few feeds have the option.
    """
    rows = db.execute(
        "SELECT e.id, e.url "
        "FROM (SELECT DISTINCT feed_id FROM subscriptions WHERE full_text = 1) AS s "
        "CROSS JOIN entries AS e "
        "WHERE e.feed_id = s.feed_id AND e.first_seen_at > ? AND e.url <> '' AND NOT EXISTS "
        "(SELECT 1 FROM full_texts AS f "
        "WHERE f.entry_id = e.id AND (f.content <> '' OR f.at > ?)) "
        "ORDER BY e.id DESC LIMIT ?",
        (since, before, limit),
    )
    return [(entry_id, url) for entry_id, url in rows]


def stored_content(db: Connection, entry_id: int) -> str:
    """Return the stored full text of an entry, or an empty string if there is none."""
    row = db.execute("SELECT content FROM full_texts WHERE entry_id = ?", (entry_id,)).fetchone()
    return row[0] if row else ""


def save(db: Connection, entry_id: int, content: str, now: float) -> None:
    """Store the full text of an entry. Empty content records a failed attempt."""
    db.execute(
        "INSERT INTO full_texts (entry_id, at, content) VALUES (?, ?, ?) "
        "ON CONFLICT (entry_id) DO UPDATE SET at = excluded.at, content = excluded.content",
        (entry_id, now, content),
    )
