"""Queries for favicons of feeds.

A row with an empty type records when no icon was found.
"""

from tidings.store.connection import Connection
from tidings.store.user_models import Icon


def list_missing(db: Connection, before: float, limit: int) -> list[tuple[int, str]]:
    """List polled feeds (id, site URL) whose icon was not looked up since ``before``."""
    rows = db.execute(
        "SELECT feeds.id, CASE WHEN feeds.site_url = '' THEN feeds.url ELSE feeds.site_url END "
        "FROM feeds LEFT JOIN icons ON icons.feed_id = feeds.id "
        "WHERE feeds.last_ok_at IS NOT NULL AND feeds.retired_at IS NULL "
        "AND (icons.at IS NULL OR icons.at < ?) ORDER BY feeds.id LIMIT ?",
        (before, limit),
    )
    return [(feed_id, url) for feed_id, url in rows]


def is_looked_up(db: Connection, feed_id: int) -> bool:
    """Return whether the icon of a feed was looked up before, with or without success."""
    return db.execute("SELECT 1 FROM icons WHERE feed_id = ?", (feed_id,)).fetchone() is not None


def save(db: Connection, feed_id: int, icon: Icon | None, now: float) -> None:
    """Store the result of an icon lookup.

    None means that no icon was found; an icon that was found before then stays.
    """
    kind, data = (icon.type, icon.data) if icon else ("", b"")
    db.execute(
        "INSERT INTO icons (feed_id, at, type, data) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (feed_id) DO UPDATE SET at = excluded.at, "
        "type = CASE WHEN excluded.type = '' THEN icons.type ELSE excluded.type END, "
        "data = CASE WHEN excluded.type = '' THEN icons.data ELSE excluded.data END",
        (feed_id, now, kind, data),
    )


def icon_of_feed(db: Connection, feed_id: int) -> Icon | None:
    """Return the icon of a feed without an access check, or None.

    `folders.icon` is the function for subscribers.
    """
    row = db.execute(
        "SELECT type, data FROM icons WHERE feed_id = ? AND type <> ''", (feed_id,)
    ).fetchone()
    return Icon(row[0], bytes(row[1])) if row else None


def icons(db: Connection, user_id: int) -> list[tuple[int, Icon]]:
    """List (feed id, icon) of a user's subscriptions that have an icon."""
    rows = db.execute(
        "SELECT s.feed_id, icons.type, icons.data "
        "FROM subscriptions AS s JOIN icons ON icons.feed_id = s.feed_id "
        "WHERE s.user_id = ? AND icons.type <> '' ORDER BY s.feed_id",
        (user_id,),
    )
    return [(feed_id, Icon(kind, bytes(data))) for feed_id, kind, data in rows]
