"""What users want to be told, and the messages that tell it, until they have arrived.

A notice names an entry, and is written when the entry arrives, in the same transaction. It waits until its user may be told
(batches, quiet hours); then one transaction makes of all that wait a message for each address (`pack`). A message is taken
for a while before it is sent, and deleted when it has arrived: whoever dies in between leaves it for the next.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from tidings.store import entry_queries, folders
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.user_models import Delivery, Item, NotificationKind, Settings, Subscription

#: Messages that are taken at once.
BATCH_SIZE = 50

_DELIVERY = ", ".join(Delivery.__struct_fields__)
_settings = msgspec.json.Decoder(Settings)

#: Entries of one feed with the rules that spoke for them.
FeedMatches = tuple[Subscription, Sequence[tuple[Item, str]]]


def pending_notifications(db: Connection) -> list[tuple[int, NotificationKind, Settings]]:
    """Whom there is something to tell, and what they have chosen."""
    rows = db.execute(
        "SELECT DISTINCT n.user_id, n.kind, u.settings FROM notices AS n JOIN users AS u ON u.id = n.user_id ORDER BY n.user_id"
    )
    return [(user_id, kind, _settings.decode(settings)) for user_id, kind, settings in rows]


def create_deliveries(
    db: Connection,
    user_id: int,
    kind: NotificationKind,
    make: Callable[[Sequence[FeedMatches]], Sequence[tuple[str, str]]],
    now: float,
) -> int:
    """Make messages, (address, body), of all that waits; of how many entries.

    Of alerts, only those that are still unread: what was muted, folded or read meanwhile is nothing to be told.
    """
    rows = db.execute(
        "DELETE FROM notices WHERE user_id = ? AND kind = ? RETURNING entry_id, why",
        (user_id, kind),
    )
    rule_names = dict(rows.fetchall())
    items = [
        i
        for i in entry_queries.items(db, user_id, sorted(rule_names))
        if i.unread or kind != "alert"
    ]
    muted = db.execute(
        f"SELECT entry_id FROM marks WHERE user_id = ? AND muted_at IS NOT NULL AND entry_id {IN_MANY}",
        (user_id, Many(rule_names)),
    )
    silent = {i for (i,) in muted} if kind == "new_entries" else set()
    by_feed: dict[int, list[tuple[Item, str]]] = {}
    for item in items:
        if item.entry.id not in silent:
            by_feed.setdefault(item.entry.feed_id, []).append((item, rule_names[item.entry.id]))
    feeds = folders.subscriptions(db, user_id, by_feed)
    matches = [(subscription, by_feed[subscription.feed.id]) for subscription in feeds]
    add(db, user_id, kind, make(matches), now)
    return sum(len(some) for _, some in matches)


def add(
    db: Connection,
    user_id: int,
    kind: NotificationKind,
    messages: Sequence[tuple[str, str]],
    now: float,
) -> None:
    """Messages, (address, body), to be sent now."""
    db.executemany(
        "INSERT INTO deliveries (user_id, kind, target, made_at, next_at, body) VALUES (?, ?, ?, ?, ?, ?)",
        [(user_id, kind, target, now, now, body) for target, body in messages],
    )


def lease_deliveries(db: Connection, now: float, until: float) -> list[tuple[Delivery, Settings]]:
    """Messages that are due, which nobody else takes before ``until``; with what their users have chosen."""
    rows = db.execute(
        "UPDATE deliveries SET tries = tries + 1, next_at = ? WHERE next_at <= ? AND id IN "
        f"(SELECT id FROM deliveries WHERE next_at <= ? ORDER BY next_at, id LIMIT ?) RETURNING {_DELIVERY}",
        (until, now, now, BATCH_SIZE),
    ).fetchall()
    users = Many({row[1] for row in rows})
    chosen = dict(
        db.execute(f"SELECT id, settings FROM users WHERE id {IN_MANY}", (users,)).fetchall()
    )
    return [(Delivery(*row), _settings.decode(chosen[row[1]])) for row in sorted(rows)]


def postpone_delivery(db: Connection, delivery_id: int, until: float, problem: str) -> None:
    db.execute(
        "UPDATE deliveries SET next_at = ?, problem = ? WHERE id = ?", (until, problem, delivery_id)
    )


def abandon_delivery(db: Connection, delivery_id: int, problem: str, before: float) -> None:
    """It is never tried again, and stays to be seen; those that were made before then have been seen long enough."""
    db.execute(
        "UPDATE deliveries SET next_at = ?, problem = ?, body = '' WHERE id = ?",
        (math.inf, problem, delivery_id),
    )
    db.execute("DELETE FROM deliveries WHERE next_at = ? AND made_at < ?", (math.inf, before))


def failed_deliveries(db: Connection, user_id: int) -> list[Delivery]:
    """A user's messages that nobody has taken so far, the newest first."""
    rows = db.execute(
        f"SELECT {_DELIVERY} FROM deliveries WHERE user_id = ? AND problem <> '' ORDER BY made_at DESC, id DESC LIMIT ?",
        (user_id, BATCH_SIZE),
    )
    return [Delivery(*row) for row in rows]


def delete_delivery(db: Connection, delivery_id: int) -> None:
    """It has arrived, or nobody waits for it any more."""
    db.execute("DELETE FROM deliveries WHERE id = ?", (delivery_id,))
