"""A user's subscriptions, and the folders they are in."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from tidings.reasons import decode
from tidings.redaction import redact_password
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import Feed, FeedState
from tidings.store.feeds import FEED, REASON, decode_feed
from tidings.store.feeds import folder_id as folder_named
from tidings.store.ingest import update_feed_weights
from tidings.store.user_models import PRIORITY_WEIGHT, Folder, Icon, Subscription, Totals

#: What of a feed a list of feeds can show, up to its last error; the other columns double the time of reading thousands.
_SHOWN = 1 + FeedState.__struct_fields__.index("last_error")
_BEFORE = Feed.__struct_fields__.index("state")
_LISTED = ", ".join(
    f'feeds."{name}"'
    for name in (*Feed.__struct_fields__[:_BEFORE], *FeedState.__struct_fields__[:_SHOWN])
)


def subscription(db: Connection, user_id: int, feed_id: int) -> Subscription | None:
    """One of them, with all that is known of its feed."""
    found = subscriptions(db, user_id, [feed_id])
    row = (
        db.execute(f"SELECT {FEED} FROM feeds WHERE id = ?", (feed_id,)).fetchone()
        if found
        else None
    )
    return replace(found[0], feed=decode_feed(row)) if row else None


def subscriptions(
    db: Connection,
    user_id: int,
    feed_ids: Collection[int] | None,
    folder_ids: Collection[int] | None = None,
) -> list[Subscription]:
    """All of a user, or those to these feeds or in these folders (0: in none), by folder and title."""
    some = ""
    values: tuple[Any, ...] = (user_id,)
    for column, ids in ("s.feed_id", feed_ids), ("coalesce(s.folder_id, 0)", folder_ids):
        if ids is not None:
            some, values = f"{some} AND {column} {IN_MANY}", (*values, Many(ids))
    rows = db.execute(
        f"SELECT {_LISTED}, s.title, s.folder_id, coalesce(folders.name, ''), s.priority, s.full_text, s.added_at, s.unread, "
        "s.newest_unread_at, EXISTS (SELECT 1 FROM icons WHERE icons.feed_id = s.feed_id AND type <> ''), "
        "coalesce(s.min_interval_s, 0.0) "
        "FROM subscriptions AS s JOIN feeds ON feeds.id = s.feed_id LEFT JOIN folders ON folders.id = s.folder_id "
        f"WHERE s.user_id = ?{some}",
        values,
    )
    found = []
    for row in rows:
        columns = list(row[_BEFORE : _BEFORE + _SHOWN])
        columns[REASON] = decode(columns[REASON])
        state = FeedState(*columns)
        feed = Feed(*row[:_BEFORE], state)  # type: ignore[call-arg]  # a row has what its columns say
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
        own = Subscription(
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
        found.append((folder.casefold(), title.casefold(), feed.id, own))
    found.sort()
    return [row[-1] for row in found]


def totals(db: Connection, user_id: int) -> Totals:
    """Of all subscriptions together; thousands of them need not be listed for it."""
    row = db.execute(
        "SELECT count(*), coalesce(sum(s.unread), 0), count(CASE WHEN f.errors > 0 THEN 1 END), "
        "coalesce(max(f.last_ok_at), 0.0), (SELECT count(*) FROM marks WHERE user_id = ? AND starred_at IS NOT NULL) "
        "FROM subscriptions AS s JOIN feeds AS f ON f.id = s.feed_id WHERE s.user_id = ?",
        (user_id, user_id),
    ).fetchone()
    assert row is not None
    feeds, unread, failing, refreshed_at, starred = row
    return Totals(feeds, int(unread), failing, refreshed_at, starred)


def titles(db: Connection, user_id: int, feed_ids: Iterable[int]) -> dict[int, str]:
    """What the user calls these feeds; those that they are no longer subscribed to by the feeds' own titles."""
    rows = db.execute(
        "SELECT f.id, coalesce(nullif(s.title, ''), nullif(f.title, ''), f.url) FROM feeds AS f "
        f"LEFT JOIN subscriptions AS s ON s.feed_id = f.id AND s.user_id = ? WHERE f.id {IN_MANY}",
        (user_id, Many(feed_ids)),
    )
    return {feed_id: redact_password(title) for feed_id, title in rows}


def counters(db: Connection, user_id: int) -> list[tuple[int, int, int]]:
    """Of each subscription: feed, entries that are unread, and all that there are."""
    rows = db.execute(
        "SELECT s.feed_id, s.unread, (SELECT count(*) FROM entries AS e WHERE e.feed_id = s.feed_id) FROM subscriptions AS s "
        "WHERE s.user_id = ?",
        (user_id,),
    )
    return [tuple(row) for row in rows]


def change(db: Connection, user_id: int, feed_id: int, changes: Mapping[str, Any]) -> bool:
    """Columns to values; ``folder`` is a name. Returns whether there is such a subscription."""
    columns: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "folder":
            columns["folder_id"] = folder_named(db, user_id, value)
        elif name == "full_text":
            columns["full_text"] = int(value)
        elif name == "min_interval_s":
            columns[name] = value or None
        elif name == "title" or value in PRIORITY_WEIGHT:
            columns[name] = value
    sets = ", ".join(f"{name} = ?" for name in columns) or "user_id = user_id"
    values = (*columns.values(), user_id, feed_id)
    done = db.execute(f"UPDATE subscriptions SET {sets} WHERE user_id = ? AND feed_id = ?", values)
    if done.rowcount and not columns.keys().isdisjoint(("priority", "min_interval_s")):
        update_feed_weights(db, [feed_id], 0.0)
    return done.rowcount == 1


def unsubscribe(db: Connection, user_id: int, feed_id: int, now: float) -> bool:
    done = db.execute(
        "DELETE FROM subscriptions WHERE user_id = ? AND feed_id = ?", (user_id, feed_id)
    )
    db.execute("DELETE FROM unread WHERE user_id = ? AND feed_id = ?", (user_id, feed_id))
    update_feed_weights(db, [feed_id], now)
    return done.rowcount == 1


def icon(db: Connection, user_id: int, feed_id: int) -> Icon | None:
    row = db.execute(
        "SELECT type, data FROM icons JOIN subscriptions AS s ON s.feed_id = icons.feed_id "
        "WHERE s.user_id = ? AND s.feed_id = ? AND type <> ''",
        (user_id, feed_id),
    ).fetchone()
    return Icon(row[0], bytes(row[1])) if row else None


def folders(db: Connection, user_id: int) -> list[Folder]:
    """By name, with what is in them."""
    rows = db.execute(
        "SELECT f.id, f.name, coalesce(s.feeds, 0), coalesce(s.unread, 0) FROM folders AS f LEFT JOIN "
        "(SELECT folder_id, count(*) AS feeds, sum(unread) AS unread FROM subscriptions WHERE user_id = ? GROUP BY folder_id) "
        "AS s ON s.folder_id = f.id WHERE f.user_id = ?",
        (user_id, user_id),
    )
    found = [Folder(i, name, feeds, int(unread)) for i, name, feeds, unread in rows]
    return sorted(found, key=lambda folder: (folder.name.casefold(), folder.id))


def add_folder(db: Connection, user_id: int, name: str) -> int | None:
    """None if there is one of this name."""
    row = db.execute(
        "INSERT INTO folders (user_id, name) VALUES (?, ?) ON CONFLICT (user_id, name) DO NOTHING RETURNING id",
        (user_id, name),
    ).fetchone()
    return row[0] if row else None


def rename_folder(db: Connection, user_id: int, folder: int, name: str) -> bool | None:
    """Whether there is such a folder; None if another has this name."""
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
    return (
        db.execute("DELETE FROM folders WHERE user_id = ? AND id = ?", (user_id, folder)).rowcount
        == 1
    )
