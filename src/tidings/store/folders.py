"""Queries for the subscriptions of a user and the folders that contain them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from tidings.reasons import decode
from tidings.redaction import redact_password
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import Feed, FeedState
from tidings.store.feeds import FEED, REASON, decode_feed
from tidings.store.feeds import folder_id as find_or_create_folder
from tidings.store.ingest import update_feed_weights
from tidings.store.user_models import PRIORITY_WEIGHT, Folder, Icon, Subscription, Totals

#: Number of state columns that lists of feeds read, up to the last error. Reading all columns takes
#: twice as long.
_SHOWN = 1 + FeedState.__struct_fields__.index("last_error")
_BEFORE = Feed.__struct_fields__.index("state")
_LIST_COLUMNS = ", ".join(
    f'feeds."{name}"'
    for name in (*Feed.__struct_fields__[:_BEFORE], *FeedState.__struct_fields__[:_SHOWN])
)


def subscription(db: Connection, user_id: int, feed_id: int) -> Subscription | None:
    """Return one subscription with all columns of its feed, or None if there is none."""
    matches = subscriptions(db, user_id, [feed_id])
    row = (
        db.execute(f"SELECT {FEED} FROM feeds WHERE id = ?", (feed_id,)).fetchone()
        if matches
        else None
    )
    return replace(matches[0], feed=decode_feed(row)) if row else None


def subscriptions(
    db: Connection,
    user_id: int,
    feed_ids: Collection[int] | None,
    folder_ids: Collection[int] | None = None,
) -> list[Subscription]:
    """List a user's subscriptions by folder and title.

    ``feed_ids`` and ``folder_ids`` restrict the list. The folder id 0 means no folder.
    """
    conditions = ""
    values: tuple[Any, ...] = (user_id,)
    for column, ids in ("s.feed_id", feed_ids), ("coalesce(s.folder_id, 0)", folder_ids):
        if ids is not None:
            conditions, values = f"{conditions} AND {column} {IN_MANY}", (*values, Many(ids))
    rows = db.execute(
        f"SELECT {_LIST_COLUMNS}, s.title, s.folder_id, coalesce(folders.name, ''), s.priority, "
        "s.full_text, s.added_at, s.unread, "
        "s.newest_unread_at, "
        "EXISTS (SELECT 1 FROM icons WHERE icons.feed_id = s.feed_id AND type <> ''), "
        "coalesce(s.min_interval_s, 0.0) "
        "FROM subscriptions AS s JOIN feeds ON feeds.id = s.feed_id "
        "LEFT JOIN folders ON folders.id = s.folder_id "
        f"WHERE s.user_id = ?{conditions}",
        values,
    )
    sortable_rows = []
    for row in rows:
        columns = list(row[_BEFORE : _BEFORE + _SHOWN])
        columns[REASON] = decode(columns[REASON])
        state = FeedState(*columns)
        # the columns before the state are the fields of `Feed` in order
        feed = Feed(*row[:_BEFORE], state)  # type: ignore[call-arg]
        (
            title,
            folder_id,
            folder,
            priority,
            full_text,
            added_at,
            unread,
            newest,
            has_icon,
            min_interval_s,
        ) = row[_BEFORE + _SHOWN :]
        title = title or state.title or redact_password(feed.url)
        subscription = Subscription(
            feed,
            title,
            folder_id,
            folder,
            priority,
            bool(full_text),
            added_at,
            unread,
            newest,
            bool(has_icon),
            min_interval_s,
        )
        sortable_rows.append((folder.casefold(), title.casefold(), feed.id, subscription))
    sortable_rows.sort()
    return [row[-1] for row in sortable_rows]


def totals(db: Connection, user_id: int) -> Totals:
    """Return the totals of a user's subscriptions without listing them."""
    row = db.execute(
        "SELECT count(*), coalesce(sum(s.unread), 0), count(CASE WHEN f.errors > 0 THEN 1 END), "
        "coalesce(max(f.last_ok_at), 0.0), "
        "(SELECT count(*) FROM entry_states WHERE user_id = ? AND starred_at IS NOT NULL) "
        "FROM subscriptions AS s JOIN feeds AS f ON f.id = s.feed_id WHERE s.user_id = ?",
        (user_id, user_id),
    ).fetchone()
    assert row is not None
    feeds, unread, failing, refreshed_at, starred = row
    return Totals(feeds, int(unread), failing, refreshed_at, starred)


def titles(db: Connection, user_id: int, feed_ids: Iterable[int]) -> dict[int, str]:
    """Return the titles of feeds for a user, by feed id.

    A feed to which the user is not subscribed has its own title.
    """
    rows = db.execute(
        "SELECT f.id, coalesce(nullif(s.title, ''), nullif(f.title, ''), f.url) FROM feeds AS f "
        f"LEFT JOIN subscriptions AS s ON s.feed_id = f.id AND s.user_id = ? WHERE f.id {IN_MANY}",
        (user_id, Many(feed_ids)),
    )
    return {feed_id: redact_password(title) for feed_id, title in rows}


def counters(db: Connection, user_id: int) -> list[tuple[int, int, int]]:
    """List (feed id, unread entries, all entries) of each subscription."""
    rows = db.execute(
        "SELECT s.feed_id, s.unread, "
        "(SELECT count(*) FROM entries AS e WHERE e.feed_id = s.feed_id) - "
        "(SELECT count(*) FROM imported_entries AS i JOIN entries AS e ON e.id = i.entry_id "
        "WHERE e.feed_id = s.feed_id AND i.user_id <> s.user_id) "
        "FROM subscriptions AS s WHERE s.user_id = ?",
        (user_id,),
    )
    return [tuple(row) for row in rows]


def update_subscription(
    db: Connection, user_id: int, feed_id: int, changes: Mapping[str, Any]
) -> bool:
    """Change columns of a subscription, and return whether the subscription exists.

    The key ``folder`` is the name of a folder, which is created if necessary.
    """
    columns: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "folder":
            columns["folder_id"] = find_or_create_folder(db, user_id, value)
        elif name == "full_text":
            columns["full_text"] = int(value)
        elif name == "min_interval_s":
            columns[name] = value or None
        elif name == "title" or value in PRIORITY_WEIGHT:
            columns[name] = value
    sets = ", ".join(f"{name} = ?" for name in columns) or "user_id = user_id"
    values = (*columns.values(), user_id, feed_id)
    updated = db.execute(
        f"UPDATE subscriptions SET {sets} WHERE user_id = ? AND feed_id = ?", values
    )
    if updated.rowcount and not columns.keys().isdisjoint(("priority", "min_interval_s")):
        update_feed_weights(db, [feed_id], 0.0)
    return updated.rowcount == 1


def unsubscribe(db: Connection, user_id: int, feed_id: int, now: float) -> bool:
    """Delete a subscription, and return whether it existed."""
    deleted = db.execute(
        "DELETE FROM subscriptions WHERE user_id = ? AND feed_id = ?", (user_id, feed_id)
    )
    db.execute("DELETE FROM unread WHERE user_id = ? AND feed_id = ?", (user_id, feed_id))
    update_feed_weights(db, [feed_id], now)
    return deleted.rowcount == 1


def icon(db: Connection, user_id: int, feed_id: int) -> Icon | None:
    """Return the favicon of a feed if the user is subscribed to the feed, otherwise None."""
    row = db.execute(
        "SELECT type, data FROM icons JOIN subscriptions AS s ON s.feed_id = icons.feed_id "
        "WHERE s.user_id = ? AND s.feed_id = ? AND type <> ''",
        (user_id, feed_id),
    ).fetchone()
    return Icon(row[0], bytes(row[1])) if row else None


def folders(db: Connection, user_id: int) -> list[Folder]:
    """List a user's folders by name, with their numbers of feeds and unread entries."""
    rows = db.execute(
        "SELECT f.id, f.name, coalesce(s.feeds, 0), coalesce(s.unread, 0) "
        "FROM folders AS f LEFT JOIN "
        "(SELECT folder_id, count(*) AS feeds, sum(unread) AS unread FROM subscriptions "
        "WHERE user_id = ? GROUP BY folder_id) AS s ON s.folder_id = f.id WHERE f.user_id = ?",
        (user_id, user_id),
    )
    folder_list = [Folder(i, name, feeds, int(unread)) for i, name, feeds, unread in rows]
    return sorted(folder_list, key=lambda folder: (folder.name.casefold(), folder.id))


def add_folder(db: Connection, user_id: int, name: str) -> int | None:
    """Create a folder and return its id, or None if the name is in use."""
    row = db.execute(
        "INSERT INTO folders (user_id, name) VALUES (?, ?) "
        "ON CONFLICT (user_id, name) DO NOTHING RETURNING id",
        (user_id, name),
    ).fetchone()
    return row[0] if row else None


def rename_folder(db: Connection, user_id: int, folder: int, name: str) -> bool | None:
    """Rename a folder and return whether it exists, or None if another folder has the name."""
    if db.execute(
        "SELECT 1 FROM folders WHERE user_id = ? AND name = ? AND id <> ?", (user_id, name, folder)
    ).fetchone():
        return None
    return (
        db.execute(
            "UPDATE folders SET name = ? WHERE user_id = ? AND id = ?", (name, user_id, folder)
        ).rowcount
        == 1
    )


def remove_folder(db: Connection, user_id: int, folder: int) -> bool:
    """Delete a folder without its subscriptions, and return whether the folder existed."""
    return (
        db.execute("DELETE FROM folders WHERE user_id = ? AND id = ?", (user_id, folder)).rowcount
        == 1
    )
