"""Processing of new entries for users (unread rows, duplicates, rules, notifications).

Everything happens in the transaction that stores the entries, so an entry that a rule mutes is
never visible as unread.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from tidings.reasons import encode, reason
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.dedup import TextSignature, is_near_duplicate, link_key, text_signatures
from tidings.store.feed_models import EntryText, PollOutcome
from tidings.store.rules import decode_rule, matches
from tidings.store.schema import NOT_IMPORTED
from tidings.store.user_models import PRIORITY_WEIGHT, NotificationKind, Rule, Settings

#: Maximum age in seconds of entries that are checked for duplicates. Most entries of a feed's first
#: document are older.
DEDUP_WINDOW_S = 3 * 86400.0
#: Maximum number of entries that are stored per dedup key, because some phrases are in every other
#: post. Duplicates are found with fewer entries.
MAX_ENTRIES_PER_KEY = 8
#: Reason for retiring a feed that has no subscriptions.
NO_SUBSCRIPTIONS = "no subscriptions"

#: SQL statement that inserts unread rows for all subscribers of the given entries. The cross join
#: fixes SQLite's join order, which would otherwise scan the entries of all feeds.
FAN_OUT = f"""
    INSERT INTO unread (user_id, entry_id, feed_id, published_at, first_seen_at)
    SELECT s.user_id, e.id, e.feed_id, e.published_at, e.first_seen_at
    FROM entries AS e CROSS JOIN subscriptions AS s
    WHERE e.id {IN_MANY} AND s.feed_id = e.feed_id"""
_WEIGHT_CASES = " ".join(f"WHEN '{name}' THEN {weight}" for name, weight in PRIORITY_WEIGHT.items())

_settings_decoder = msgspec.json.Decoder(Settings)

#: New entries of a feed by id.
NewEntries: TypeAlias = Mapping[int, EntryText]


def ingest_entries(
    db: Connection,
    outcomes: Sequence[PollOutcome],
    new: Mapping[int, NewEntries],
    search_texts: Mapping[int, str],
) -> None:
    """Process entries that were just stored.

    ``new`` has the entries by feed id and entry id, ``search_texts`` their normalized texts by
    entry id.
    """
    if not new:
        return
    db.execute(
        f"{FAN_OUT} ORDER BY s.user_id, e.id",
        (Many(i for entries in new.values() for i in entries),),
    )
    with_new = [outcome for outcome in outcomes if outcome.feed_id in new]
    _deduplicate(db, with_new, new, search_texts)
    by_feed = {outcome.feed_id: outcome for outcome in with_new}
    # Users are not notified of the entries of a feed's first document.
    polled_before = db.execute(
        f'SELECT id FROM feeds WHERE id {IN_MANY} AND "window" > 0', (Many(by_feed),)
    )
    notifiable = {i for (feed_id,) in polled_before for i in new[feed_id]}
    rows = db.execute(
        "SELECT s.feed_id, r.user_id, r.id, r.rule "
        "FROM rules AS r JOIN subscriptions AS s ON s.user_id = r.user_id "
        f"WHERE s.feed_id {IN_MANY} ORDER BY r.id",
        (Many(by_feed),),
    )
    for feed_id, user_id, rule_id, text in rows.fetchall():
        rule = decode_rule(rule_id, text)
        matching = [i for i, e in new[feed_id].items() if matches(rule, feed_id, e)]
        if matching:
            _apply_rule(db, user_id, by_feed[feed_id], rule, matching)
            if rule.action == "alert":
                add_notifications(
                    db,
                    user_id,
                    "alert",
                    [i for i in matching if i in notifiable],
                    rule.name,
                    by_feed[feed_id].at,
                )
    _add_webhook_notifications(db, sorted(notifiable), max(outcome.at for outcome in with_new))


def add_unread_for_subscriber(db: Connection, user_id: int, feed_id: int) -> None:
    """Mark the entries of the feed's current document as unread for a new subscriber."""
    row = db.execute('SELECT "window" FROM feeds WHERE id = ?', (feed_id,)).fetchone()
    ids = db.execute(
        f"SELECT id FROM entries WHERE feed_id = ? AND id {NOT_IMPORTED} "
        "ORDER BY published_at DESC, id DESC LIMIT ?",
        (feed_id, row[0]),
    ).fetchall()
    db.execute(
        f"{FAN_OUT} AND s.user_id = ? ON CONFLICT (user_id, entry_id) DO NOTHING",
        (Many(i for (i,) in ids), user_id),
    )


def move_subscribers(db: Connection, old: int, new: int, now: float) -> None:
    """Move all subscriptions from one feed to another, and delete the unread rows of the first."""
    rows = db.execute(
        "INSERT INTO subscriptions (user_id, feed_id, folder_id, title, added_at, priority, "
        "full_text, min_interval_s) "
        "SELECT user_id, CAST(? AS BIGINT), folder_id, title, added_at, priority, "
        "full_text, min_interval_s FROM subscriptions WHERE feed_id = ? "
        "ON CONFLICT (user_id, feed_id) DO NOTHING RETURNING user_id",
        (new, old),
    )
    for (user_id,) in rows.fetchall():
        add_unread_for_subscriber(db, user_id, new)
    db.execute(
        "DELETE FROM unread WHERE feed_id = ? "
        "AND user_id IN (SELECT user_id FROM subscriptions WHERE feed_id = ?)",
        (old, old),
    )
    db.execute("DELETE FROM subscriptions WHERE feed_id = ?", (old,))
    update_feed_weights(db, [new], now)


def update_feed_weights(db: Connection, feed_ids: Sequence[int], now: float) -> None:
    """Update the weights and minimum intervals of feeds from their subscriptions.

    The weight is the sum of the priorities, the minimum interval the shortest one that is set. A
    feed without subscriptions is retired.
    """
    db.execute(
        "UPDATE feeds SET "
        f"weight = (SELECT sum(CASE priority {_WEIGHT_CASES} END) FROM subscriptions "
        "WHERE feed_id = feeds.id), "
        "min_interval_s = (SELECT coalesce(min(min_interval_s), 0.0) FROM subscriptions "
        "WHERE feed_id = feeds.id) "
        f"WHERE id {IN_MANY} AND EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = feeds.id)",
        (Many(feed_ids),),
    )
    db.execute(
        "UPDATE feeds SET retired_at = ?, retired_reason = ?, next_poll_at = NULL, reason = ? "
        f"WHERE id {IN_MANY} AND retired_at IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = feeds.id)",
        (now, NO_SUBSCRIPTIONS, encode(reason("retired", text=NO_SUBSCRIPTIONS)), Many(feed_ids)),
    )


def delete_expired_dedup_keys(db: Connection, now: float) -> None:
    """Delete dedup keys that are older than twice `DEDUP_WINDOW_S`. Known duplicates stay.

    The table is scanned once a day, because an index by time would cost more for every entry.
    """
    db.execute("DELETE FROM dedup_keys WHERE at < ?", (now - 2 * DEDUP_WINDOW_S,))


def _deduplicate(
    db: Connection,
    outcomes: Sequence[PollOutcome],
    new: Mapping[int, NewEntries],
    search_texts: Mapping[int, str],
) -> None:
    """Find duplicates of new entries, and mark new duplicates as read.

    They are marked for users that are subscribed to both feeds.
    """
    recent = [
        (outcome, i, e)
        for outcome in outcomes
        for i, e in new[outcome.feed_id].items()
        if e.published_at > outcome.at - DEDUP_WINDOW_S
    ]
    signatures = text_signatures([search_texts[i] for _, i, _ in recent])
    links = [link_key(e.url) for _, _, e in recent]
    keys = Many(
        {
            key
            for link, signature in zip(links, signatures, strict=True)
            for key in _dedup_keys(link, signature)
        }
    )
    if not keys:
        return
    earlier: dict[int, list[tuple[int, int, int]]] = {}
    since = min(outcome.at for outcome in outcomes) - 2 * DEDUP_WINDOW_S
    for key, entry_id, feed_id, simhash in db.execute(
        f"SELECT key, entry_id, feed_id, simhash FROM dedup_keys WHERE key {IN_MANY} AND at > ?",
        (keys, since),
    ):
        earlier.setdefault(key, []).append((entry_id, feed_id, simhash))
    rows = []
    for (outcome, i, _), link, signature in zip(recent, links, signatures, strict=True):
        own_simhash = signature.simhash if signature else 0
        own_feed_id, duplicates = outcome.feed_id, set[tuple[int, int]]()
        for key in _dedup_keys(link, signature):
            others = earlier.setdefault(key, [])
            for entry_id, feed_id, simhash in others:
                if feed_id != own_feed_id and (
                    key == link or is_near_duplicate(simhash, own_simhash)
                ):
                    duplicates.add((entry_id, feed_id))
            if len(others) < MAX_ENTRIES_PER_KEY:
                others.append((i, own_feed_id, own_simhash))
                rows.append((key, i, own_feed_id, outcome.at, own_simhash))
        if duplicates:
            _mark_duplicate(db, i, own_feed_id, sorted(duplicates))
    db.insert("dedup_keys", ("key", "entry_id", "feed_id", "at", "simhash"), rows)


def _dedup_keys(link: int | None, signature: TextSignature | None) -> list[int]:
    """Return the keys by which duplicates of an entry are found."""
    return [*(() if link is None else (link,)), *(signature.shingles if signature else ())]


def _mark_duplicate(
    db: Connection, entry_id: int, feed_id: int, duplicates: Sequence[tuple[int, int]]
) -> None:
    """Add an entry to the group of its duplicates, and mark the entry as read.

    It is marked for users that are subscribed to both feeds, unless they have turned that off.
    """
    duplicate_id = duplicates[0][0]
    row = db.execute(
        "SELECT first_entry_id FROM duplicate_groups WHERE entry_id = ?", (duplicate_id,)
    ).fetchone()
    first_entry_id = row[0] if row else duplicate_id
    db.execute(
        "INSERT INTO duplicate_groups (entry_id, first_entry_id) VALUES (?, ?)",
        (entry_id, first_entry_id),
    )
    users_with_both = db.execute(
        "SELECT DISTINCT u.id, u.settings "
        "FROM users AS u JOIN subscriptions AS s ON s.user_id = u.id "
        "JOIN subscriptions AS t ON t.user_id = u.id "
        f"WHERE s.feed_id = ? AND t.feed_id {IN_MANY}",
        (feed_id, Many(sorted({feed for _, feed in duplicates}))),
    )
    user_ids = Many(
        user_id
        for user_id, settings in users_with_both.fetchall()
        if _settings_decoder.decode(settings).deduplicate
    )
    db.execute(f"DELETE FROM unread WHERE entry_id = ? AND user_id {IN_MANY}", (entry_id, user_ids))


def _apply_rule(
    db: Connection, user_id: int, outcome: PollOutcome, rule: Rule, entry_ids: Sequence[int]
) -> None:
    if rule.action in ("mute", "read"):
        db.execute(
            f"DELETE FROM unread WHERE user_id = ? AND entry_id {IN_MANY}",
            (user_id, Many(entry_ids)),
        )
    if rule.action in ("mute", "star"):
        column = "muted_at" if rule.action == "mute" else "starred_at"
        db.executemany(
            f"INSERT INTO entry_states (user_id, entry_id, feed_id, {column}) VALUES (?, ?, ?, ?) "
            f"ON CONFLICT (user_id, entry_id) DO UPDATE SET {column} = excluded.{column}",
            [(user_id, i, outcome.feed_id, outcome.at) for i in entry_ids],
        )
    elif rule.action == "tag":
        db.executemany(
            "INSERT INTO entry_tags (user_id, name, entry_id) VALUES (?, ?, ?) "
            "ON CONFLICT (user_id, name, entry_id) DO NOTHING",
            [(user_id, rule.tag, i) for i in entry_ids],
        )


def add_notifications(
    db: Connection,
    user_id: int,
    kind: NotificationKind,
    entry_ids: Sequence[int],
    rule_name: str,
    at: float,
) -> None:
    """Add one notification per entry, even if several rules match."""
    db.executemany(
        "INSERT INTO notifications (user_id, kind, entry_id, rule_name, at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (user_id, kind, entry_id) DO NOTHING",
        [(user_id, kind, i, rule_name, at) for i in entry_ids],
    )


def _add_webhook_notifications(db: Connection, entry_ids: Sequence[int], at: float) -> None:
    """Add notifications of new entries for users with a webhook.

    Settings are JSON without default values, so only users with a webhook have the key.
    """
    with_webhook = "SELECT id FROM users WHERE settings LIKE '%\"webhook_url\"%'"
    if db.execute(f"{with_webhook} LIMIT 1").fetchone() is None:
        return
    db.execute(
        "INSERT INTO notifications (user_id, kind, entry_id, rule_name, at) "
        "SELECT s.user_id, 'new_entries', e.id, '', CAST(? AS DOUBLE PRECISION) "
        "FROM entries AS e CROSS JOIN subscriptions AS s "
        f"WHERE e.id {IN_MANY} AND s.feed_id = e.feed_id AND s.user_id IN ({with_webhook}) "
        "ORDER BY e.id ON CONFLICT (user_id, kind, entry_id) DO NOTHING",
        (at, Many(entry_ids)),
    )
