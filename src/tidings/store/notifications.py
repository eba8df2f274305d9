"""Outbox of notifications and webhook deliveries (transactional outbox pattern).

A notification names an entry and is written in the transaction that stores the entry. It waits
until its user may be notified (batches, quiet hours). Then `create_deliveries` converts all waiting
notifications into one message per address, in one transaction. A message is leased before it is
sent and deleted after it was accepted, so another process retries it if the sender dies.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from tidings.store import entry_queries, folders
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.user_models import Delivery, Item, NotificationKind, Settings, Subscription

#: Maximum number of deliveries that are leased or listed in one call.
BATCH_SIZE = 50

_DELIVERY_COLUMNS = ", ".join(Delivery.__struct_fields__)
_settings_decoder = msgspec.json.Decoder(Settings)

#: Matching entries of one subscription, each with the name of the rule that matched.
FeedMatches = tuple[Subscription, Sequence[tuple[Item, str]]]


def pending_notifications(db: Connection) -> list[tuple[int, NotificationKind, Settings]]:
    """List (user id, kind, settings) of the users that have waiting notifications."""
    rows = db.execute(
        "SELECT DISTINCT n.user_id, n.kind, u.settings "
        "FROM notifications AS n JOIN users AS u ON u.id = n.user_id ORDER BY n.user_id"
    )
    return [(user_id, kind, _settings_decoder.decode(text)) for user_id, kind, text in rows]


def create_deliveries(
    db: Connection,
    user_id: int,
    kind: NotificationKind,
    make: Callable[[Sequence[FeedMatches]], Sequence[tuple[str, str]]],
    now: float,
) -> int:
    """Convert a user's waiting notifications into deliveries, and return the number of entries.

    ``make`` renders the matches as messages (address, body). Alerts are sent only for entries that
    are still unread, which excludes entries that were muted, marked as duplicate or read since.
    """
    rows = db.execute(
        "DELETE FROM notifications WHERE user_id = ? AND kind = ? RETURNING entry_id, rule_name",
        (user_id, kind),
    )
    rule_names = dict(rows.fetchall())
    items = [
        i
        for i in entry_queries.items(db, user_id, sorted(rule_names))
        if i.unread or kind != "alert"
    ]
    muted = db.execute(
        "SELECT entry_id FROM entry_states "
        f"WHERE user_id = ? AND muted_at IS NOT NULL AND entry_id {IN_MANY}",
        (user_id, Many(rule_names)),
    )
    excluded = {i for (i,) in muted} if kind == "new_entries" else set()
    by_feed: dict[int, list[tuple[Item, str]]] = {}
    for item in items:
        if item.entry.id not in excluded:
            by_feed.setdefault(item.entry.feed_id, []).append((item, rule_names[item.entry.id]))
    feeds = folders.subscriptions(db, user_id, by_feed)
    matches = [(subscription, by_feed[subscription.feed.id]) for subscription in feeds]
    add_deliveries(db, user_id, kind, make(matches), now)
    return sum(len(entries) for _, entries in matches)


def add_deliveries(
    db: Connection,
    user_id: int,
    kind: NotificationKind,
    messages: Sequence[tuple[str, str]],
    now: float,
) -> None:
    """Queue messages (address, body) that are due now."""
    db.executemany(
        "INSERT INTO deliveries (user_id, kind, target, made_at, next_at, body) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [(user_id, kind, target, now, now, body) for target, body in messages],
    )


def lease_deliveries(db: Connection, now: float, until: float) -> list[tuple[Delivery, Settings]]:
    """Lease due deliveries until a time, and return them with the settings of their users."""
    rows = db.execute(
        "UPDATE deliveries SET tries = tries + 1, next_at = ? WHERE next_at <= ? AND id IN "
        "(SELECT id FROM deliveries WHERE next_at <= ? ORDER BY next_at, id LIMIT ?) "
        f"RETURNING {_DELIVERY_COLUMNS}",
        (until, now, now, BATCH_SIZE),
    ).fetchall()
    user_ids = Many({row[1] for row in rows})
    settings = dict(
        db.execute(f"SELECT id, settings FROM users WHERE id {IN_MANY}", (user_ids,)).fetchall()
    )
    return [(Delivery(*row), _settings_decoder.decode(settings[row[1]])) for row in sorted(rows)]


def postpone_delivery(db: Connection, delivery_id: int, until: float, problem: str) -> None:
    """Set the time of the next attempt of a failed delivery."""
    db.execute(
        "UPDATE deliveries SET next_at = ?, problem = ? WHERE id = ?", (until, problem, delivery_id)
    )


def abandon_delivery(db: Connection, delivery_id: int, problem: str, before: float) -> None:
    """End the attempts of a delivery, which stays in the list of failed deliveries.

    Abandoned deliveries that were created before the time ``before`` are deleted.
    """
    db.execute(
        "UPDATE deliveries SET next_at = ?, problem = ?, body = '' WHERE id = ?",
        (math.inf, problem, delivery_id),
    )
    db.execute("DELETE FROM deliveries WHERE next_at = ? AND made_at < ?", (math.inf, before))


def failed_deliveries(db: Connection, user_id: int) -> list[Delivery]:
    """List a user's failed deliveries, newest first."""
    rows = db.execute(
        f"SELECT {_DELIVERY_COLUMNS} FROM deliveries WHERE user_id = ? AND problem <> '' "
        "ORDER BY made_at DESC, id DESC LIMIT ?",
        (user_id, BATCH_SIZE),
    )
    return [Delivery(*row) for row in rows]


def delete_delivery(db: Connection, delivery_id: int) -> None:
    """Delete a delivery that was accepted or is not needed any more."""
    db.execute("DELETE FROM deliveries WHERE id = ?", (delivery_id,))
