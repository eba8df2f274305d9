"""Whole articles, fetched from their sites. A row without content says that there was none to be had, and when."""

from tidings.store.connection import Connection


def list_missing(db: Connection, since: float, before: float, limit: int) -> list[tuple[int, str]]:
    """Entries, with their addresses, that came since then and whose subscribers want the whole of them.

    Those that could not be had ``before`` are tried again. SQLite keeps to the order of a cross join: few feeds are such.
    """
    rows = db.execute(
        "SELECT e.id, e.url FROM (SELECT DISTINCT feed_id FROM subscriptions WHERE full_text = 1) AS s "
        "CROSS JOIN entries AS e WHERE e.feed_id = s.feed_id AND e.first_seen_at > ? AND e.url <> '' AND NOT EXISTS "
        "(SELECT 1 FROM full_texts AS f WHERE f.entry_id = e.id AND (f.content <> '' OR f.at > ?)) "
        "ORDER BY e.id DESC LIMIT ?",
        (since, before, limit),
    )
    return [(entry_id, url) for entry_id, url in rows]


def stored_content(db: Connection, entry_id: int) -> str:
    row = db.execute("SELECT content FROM full_texts WHERE entry_id = ?", (entry_id,)).fetchone()
    return row[0] if row else ""


def save(db: Connection, entry_id: int, content: str, now: float) -> None:
    db.execute(
        "INSERT INTO full_texts (entry_id, at, content) VALUES (?, ?, ?) "
        "ON CONFLICT (entry_id) DO UPDATE SET at = excluded.at, content = excluded.content",
        (entry_id, now, content),
    )
