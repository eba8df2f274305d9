"""Entry state of a user, such as read, starred, rated, muted and tagged.

An entry is unread while it has a row in `unread`. A row in `entry_states` records when an entry was
read individually (not by "mark all as read"), starred or muted, its rating, and the user's own
title and content.
"""

from collections.abc import Sequence

from msgspec import Struct

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.entry_queries import selection, visible
from tidings.store.ingest import FAN_OUT
from tidings.store.user_models import Stream, Tag


class EntryStateChange(Struct, frozen=True):
    """Change of the state of entries. A field that is None or empty changes nothing."""

    unread: bool | None = None
    starred: bool | None = None
    rating: int | None = None
    add_tags: tuple[str, ...] = ()
    remove_tags: tuple[str, ...] = ()
    title: str | None = None
    content: str | None = None


def update_entry_state(
    db: Connection, user_id: int, entry_ids: Sequence[int], change: EntryStateChange, now: float
) -> list[int]:
    """Change the state of entries for a user, and return the ids of the changed entries.

    Entries that the user may not access are left out.
    """
    feeds = visible(db, user_id, entry_ids)
    ids = Many(feeds)
    if not ids:
        return []
    if change.unread is not None:
        _set(db, user_id, feeds, "read_at", None if change.unread else now, keep=not change.unread)
        if change.unread:
            db.execute(
                f"{FAN_OUT} AND s.user_id = ? ON CONFLICT (user_id, entry_id) DO NOTHING",
                (ids, user_id),
            )
        else:
            db.execute(
                f"DELETE FROM unread WHERE user_id = ? AND entry_id {IN_MANY}", (user_id, ids)
            )
    if change.starred is not None:
        _set(db, user_id, feeds, "starred_at", now if change.starred else None, keep=change.starred)
    for column in ("rating", "title", "content"):
        if (value := getattr(change, column)) is not None:
            _set(db, user_id, feeds, column, value)
    db.executemany(
        "INSERT INTO entry_tags (user_id, name, entry_id) VALUES (?, ?, ?) "
        "ON CONFLICT (user_id, name, entry_id) DO NOTHING",
        [(user_id, name, i) for name in change.add_tags for i in ids],
    )
    if change.remove_tags:
        db.execute(
            f"DELETE FROM entry_tags WHERE user_id = ? AND name {IN_MANY} AND entry_id {IN_MANY}",
            (user_id, Many(change.remove_tags), ids),
        )
    return list(ids)


def _set(
    db: Connection,
    user_id: int,
    feeds: dict[int, int],
    column: str,
    value: object,
    *,
    keep: bool = False,
) -> None:
    """Set a column of entry states.

    With ``keep``, an existing value stays: starring an entry twice does not change the time.
    """
    new = f"coalesce(entry_states.{column}, excluded.{column})" if keep else f"excluded.{column}"
    db.executemany(
        f"INSERT INTO entry_states (user_id, entry_id, feed_id, {column}) VALUES (?, ?, ?, ?) "
        f"ON CONFLICT (user_id, entry_id) DO UPDATE SET {column} = {new}",
        [(user_id, entry_id, feed_id, value) for entry_id, feed_id in feeds.items()],
    )


def mark_all_read(db: Connection, user_id: int, stream: Stream, until: float) -> list[int]:
    """Mark unread entries of a stream that were received until a time as read.

    Returns the ids of the entries.
    """
    query = selection(db, user_id, stream, unread_until=until)
    if query is None:
        return []
    rows = db.execute(
        "DELETE FROM unread WHERE user_id = ? "
        f"AND entry_id IN (SELECT {query.id} {query.sql}) RETURNING entry_id",
        (user_id, *query.values),
    )
    return [i for (i,) in rows.fetchall()]


def read_since(db: Connection, user_id: int, since: float) -> list[int]:
    """List the ids of entries that were marked as read individually since a time."""
    return [
        i
        for (i,) in db.execute(
            "SELECT entry_id FROM entry_states WHERE user_id = ? AND read_at >= ?", (user_id, since)
        )
    ]


def mute_read_entries(db: Connection, user_id: int, limit: int, now: float) -> int:
    """Mute at most ``limit`` read entries that are not starred, and return their number."""
    query = selection(db, user_id, Stream(unread=False, starred=False))
    if query is None:
        return 0
    inserted = db.execute(
        "INSERT INTO entry_states (user_id, entry_id, feed_id, muted_at) "
        "SELECT CAST(? AS INTEGER), e.id, e.feed_id, CAST(? AS DOUBLE PRECISION) "
        f"{query.sql} LIMIT ? "
        "ON CONFLICT (user_id, entry_id) DO UPDATE SET muted_at = excluded.muted_at",
        (user_id, now, *query.values, limit),
    )
    return inserted.rowcount


def tags(db: Connection, user_id: int) -> list[Tag]:
    """List a user's tags by name, with their numbers of entries and unread entries."""
    rows = db.execute(
        "SELECT l.name, count(*), count(u.entry_id) FROM entry_tags AS l "
        "LEFT JOIN unread AS u ON u.user_id = l.user_id AND u.entry_id = l.entry_id "
        "WHERE l.user_id = ? GROUP BY l.name ORDER BY l.name",
        (user_id,),
    )
    return [Tag(*row) for row in rows]


def rename_tag(db: Connection, user_id: int, name: str, new: str) -> bool:
    """Rename a tag, or merge it into an existing tag, and return whether the old tag existed."""
    inserted = db.execute(
        "INSERT INTO entry_tags (user_id, name, entry_id) "
        "SELECT user_id, CAST(? AS TEXT), entry_id FROM entry_tags WHERE user_id = ? AND name = ? "
        "ON CONFLICT (user_id, name, entry_id) DO NOTHING",
        (new, user_id, name),
    )
    return new == name or remove_tag(db, user_id, name) or inserted.rowcount > 0


def remove_tag(db: Connection, user_id: int, name: str) -> bool:
    """Remove a tag from all entries, and return whether the tag existed."""
    return (
        db.execute(
            "DELETE FROM entry_tags WHERE user_id = ? AND name = ?", (user_id, name)
        ).rowcount
        > 0
    )


def restore_tag(db: Connection, user_id: int, name: str, entry_ids: Sequence[int]) -> None:
    """Add a tag to entries again after it was removed (undo).

    This includes entries that the user can access only by this tag.
    """
    db.execute(
        "INSERT INTO entry_tags (user_id, name, entry_id) "
        "SELECT CAST(? AS BIGINT), CAST(? AS TEXT), id FROM entries "
        f"WHERE id {IN_MANY} ON CONFLICT (user_id, name, entry_id) DO NOTHING",
        (user_id, name, Many(entry_ids)),
    )
