"""What happens when entries arrive: they become unread for every subscriber, stories that came before are folded, rules act.

All of it within the transaction that stores the entries: nobody ever sees an entry that a rule was to mute.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from tidings.reasons import encode, reason
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.dedup import TextSignature, is_near_duplicate, link_key, text_signatures
from tidings.store.feed_models import EntryText, PollOutcome
from tidings.store.rules import decode_rule, matches
from tidings.store.user_models import PRIORITY_WEIGHT, NotificationKind, Rule, Settings

#: A story is told again within so long; entries that were published earlier are none, such as those of a feed's first document.
DEDUP_WINDOW_S = 3 * 86400.0
#: Entries that are known by one key: some runs of words stand in every second post, and what was told so often is found.
MAX_ENTRIES_PER_KEY = 8
#: Why a feed without subscriptions is retired.
NO_SUBSCRIPTIONS = "no subscriptions"

#: SQLite keeps to the order of a cross join: it must not look through all entries of all feeds for these.
FAN_OUT = f"""
    INSERT INTO unread (user_id, entry_id, feed_id, published_at, first_seen_at)
    SELECT s.user_id, e.id, e.feed_id, e.published_at, e.first_seen_at
    FROM entries AS e CROSS JOIN subscriptions AS s WHERE e.id {IN_MANY} AND s.feed_id = e.feed_id"""
_WEIGHT = " ".join(f"WHEN '{name}' THEN {weight}" for name, weight in PRIORITY_WEIGHT.items())

_settings = msgspec.json.Decoder(Settings)


#: New entries of a feed, by id.
NewEntries: TypeAlias = Mapping[int, EntryText]


def ingest_entries(
    db: Connection,
    outcomes: Sequence[PollOutcome],
    new: Mapping[int, NewEntries],
    search_texts: Mapping[int, str],
) -> None:
    """These entries, by feed, have just been stored with these polls; ``said`` are their words, folded, by id."""
    if not new:
        return
    db.execute(
        f"{FAN_OUT} ORDER BY s.user_id, e.id", (Many(i for some in new.values() for i in some),)
    )
    with_new = [outcome for outcome in outcomes if outcome.feed_id in new]
    _deduplicate(db, with_new, new, search_texts)
    by_feed = {outcome.feed_id: outcome for outcome in with_new}
    # What a feed's first document shows is no news.
    known = db.execute(
        f'SELECT id FROM feeds WHERE id {IN_MANY} AND "window" > 0', (Many(by_feed),)
    )
    news = {i for (feed_id,) in known for i in new[feed_id]}
    rows = db.execute(
        "SELECT s.feed_id, r.user_id, r.id, r.rule FROM rules AS r JOIN subscriptions AS s ON s.user_id = r.user_id "
        f"WHERE s.feed_id {IN_MANY} ORDER BY r.id",
        (Many(by_feed),),
    )
    for feed_id, user_id, rule_id, text in rows.fetchall():
        rule = decode_rule(rule_id, text)
        found = [i for i, e in new[feed_id].items() if matches(rule, feed_id, e)]
        if found:
            _apply_rule(db, user_id, by_feed[feed_id], rule, found)
            if rule.action == "alert":
                add_notifications(
                    db,
                    user_id,
                    "alert",
                    [i for i in found if i in news],
                    rule.name,
                    by_feed[feed_id].at,
                )
    _add_webhook_notifications(db, sorted(news), max(outcome.at for outcome in with_new))


def add_unread_for_subscriber(db: Connection, user_id: int, feed_id: int) -> None:
    """A new subscriber finds the entries of the feed's present document unread."""
    row = db.execute('SELECT "window" FROM feeds WHERE id = ?', (feed_id,)).fetchone()
    ids = db.execute(
        "SELECT id FROM entries WHERE feed_id = ? ORDER BY published_at DESC, id DESC LIMIT ?",
        (feed_id, row[0]),
    ).fetchall()
    db.execute(
        f"{FAN_OUT} AND s.user_id = ? ON CONFLICT (user_id, entry_id) DO NOTHING",
        (Many(i for (i,) in ids), user_id),
    )


def move_subscribers(db: Connection, old: int, new: int, now: float) -> None:
    """The subscribers of one feed become those of another; what was unread in the first is gone with it."""
    rows = db.execute(
        "INSERT INTO subscriptions (user_id, feed_id, folder_id, title, added_at, priority, full_text, min_interval_s) "
        "SELECT user_id, CAST(? AS BIGINT), folder_id, title, added_at, priority, full_text, min_interval_s "
        "FROM subscriptions WHERE feed_id = ? "
        "ON CONFLICT (user_id, feed_id) DO NOTHING RETURNING user_id",
        (new, old),
    )
    for (user_id,) in rows.fetchall():
        add_unread_for_subscriber(db, user_id, new)
    db.execute(
        "DELETE FROM unread WHERE feed_id = ? AND user_id IN (SELECT user_id FROM subscriptions WHERE feed_id = ?)",
        (old, old),
    )
    db.execute("DELETE FROM subscriptions WHERE feed_id = ?", (old,))
    update_feed_weights(db, [new], now)


def update_feed_weights(db: Connection, feed_ids: Sequence[int], now: float) -> None:
    """Derive what a feed has from its subscriptions: its weight, and the shortest minimum interval that one of them sets.

    A feed without subscriptions is retired.
    """
    db.execute(
        f"UPDATE feeds SET weight = (SELECT sum(CASE priority {_WEIGHT} END) FROM subscriptions WHERE feed_id = feeds.id), "
        "min_interval_s = (SELECT coalesce(min(min_interval_s), 0.0) FROM subscriptions WHERE feed_id = feeds.id) "
        f"WHERE id {IN_MANY} AND EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = feeds.id)",
        (Many(feed_ids),),
    )
    db.execute(
        "UPDATE feeds SET retired_at = ?, retired_why = ?, next_poll_at = NULL, reason = ? "
        f"WHERE id {IN_MANY} AND retired_at IS NULL AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = feeds.id)",
        (now, NO_SUBSCRIPTIONS, encode(reason("retired", text=NO_SUBSCRIPTIONS)), Many(feed_ids)),
    )


def delete_expired_dedup_keys(db: Connection, now: float) -> None:
    """Keys are needed no longer than stories are told again; what was folded stays folded. It looks at all of them, once a day:
    an index by time would cost every entry more.
    """
    db.execute("DELETE FROM stories WHERE at < ?", (now - 2 * DEDUP_WINDOW_S,))


def _deduplicate(
    db: Connection,
    outcomes: Sequence[PollOutcome],
    new: Mapping[int, NewEntries],
    search_texts: Mapping[int, str],
) -> None:
    """An entry whose story came by another of a user's feeds before is not unread for that user."""
    recent = [
        (outcome, i, e)
        for outcome in outcomes
        for i, e in new[outcome.feed_id].items()
        if e.published_at > outcome.at - DEDUP_WINDOW_S
    ]
    signatures = text_signatures([search_texts[i] for _, i, _ in recent])
    links = [link_key(e.url) for _, _, e in recent]
    wanted = Many(
        {
            key
            for link, words in zip(links, signatures, strict=True)
            for key in _dedup_keys(link, words)
        }
    )
    if not wanted:
        return
    earlier: dict[int, list[tuple[int, int, int]]] = {}
    since = min(outcome.at for outcome in outcomes) - 2 * DEDUP_WINDOW_S
    for key, entry_id, feed_id, simhash in db.execute(
        f"SELECT key, entry_id, feed_id, simhash FROM stories WHERE key {IN_MANY} AND at > ?",
        (wanted, since),
    ):
        earlier.setdefault(key, []).append((entry_id, feed_id, simhash))
    rows = []
    for (outcome, i, _), link, words in zip(recent, links, signatures, strict=True):
        bits = words.simhash if words else 0
        own, duplicates = outcome.feed_id, set[tuple[int, int]]()
        for key in _dedup_keys(link, words):
            others = earlier.setdefault(key, [])
            for entry_id, feed_id, simhash in others:
                if feed_id != own and (key == link or is_near_duplicate(simhash, bits)):
                    duplicates.add((entry_id, feed_id))
            if len(others) < MAX_ENTRIES_PER_KEY:
                others.append((i, own, bits))
                rows.append((key, i, own, outcome.at, bits))
        if duplicates:
            _mark_duplicate(db, i, own, sorted(duplicates))
    db.insert("stories", ("key", "entry_id", "feed_id", "at", "simhash"), rows)


def _dedup_keys(link: int | None, words: TextSignature | None) -> list[int]:
    """By which a story is found again."""
    return [*(() if link is None else (link,)), *(words.shingles if words else ())]


def _mark_duplicate(
    db: Connection, entry_id: int, feed_id: int, duplicates: Sequence[tuple[int, int]]
) -> None:
    first = duplicates[0][0]
    row = db.execute("SELECT story_id FROM folds WHERE entry_id = ?", (first,)).fetchone()
    first_entry_id = row[0] if row else first
    db.execute("INSERT INTO folds (entry_id, story_id) VALUES (?, ?)", (entry_id, first_entry_id))
    both = db.execute(
        "SELECT DISTINCT u.id, u.settings FROM users AS u JOIN subscriptions AS s ON s.user_id = u.id "
        f"JOIN subscriptions AS t ON t.user_id = u.id WHERE s.feed_id = ? AND t.feed_id {IN_MANY}",
        (feed_id, Many(sorted({feed for _, feed in duplicates}))),
    )
    folding = [user for user, settings in both.fetchall() if _settings.decode(settings).deduplicate]
    db.execute(
        f"DELETE FROM unread WHERE entry_id = ? AND user_id {IN_MANY}", (entry_id, Many(folding))
    )


def _apply_rule(
    db: Connection, user_id: int, outcome: PollOutcome, rule: Rule, found: Sequence[int]
) -> None:
    if rule.action in ("mute", "read"):
        db.execute(
            f"DELETE FROM unread WHERE user_id = ? AND entry_id {IN_MANY}", (user_id, Many(found))
        )
    if rule.action in ("mute", "star"):
        column = "muted_at" if rule.action == "mute" else "starred_at"
        db.executemany(
            f"INSERT INTO marks (user_id, entry_id, feed_id, {column}) VALUES (?, ?, ?, ?) "
            f"ON CONFLICT (user_id, entry_id) DO UPDATE SET {column} = excluded.{column}",
            [(user_id, i, outcome.feed_id, outcome.at) for i in found],
        )
    elif rule.action == "tag":
        db.executemany(
            "INSERT INTO labels (user_id, name, entry_id) VALUES (?, ?, ?) ON CONFLICT (user_id, name, entry_id) DO NOTHING",
            [(user_id, rule.tag, i) for i in found],
        )


def add_notifications(
    db: Connection,
    user_id: int,
    kind: NotificationKind,
    entry_ids: Sequence[int],
    rule_name: str,
    at: float,
) -> None:
    """Once for each entry, however many rules speak for it."""
    db.executemany(
        "INSERT INTO notices (user_id, kind, entry_id, why, at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (user_id, kind, entry_id) DO NOTHING",
        [(user_id, kind, i, rule_name, at) for i in entry_ids],
    )


def _add_webhook_notifications(db: Connection, entry_ids: Sequence[int], at: float) -> None:
    """For those who want all that is new. Settings are JSON without what was not chosen."""
    with_webhook = "SELECT id FROM users WHERE settings LIKE '%\"webhook_url\"%'"
    if db.execute(f"{with_webhook} LIMIT 1").fetchone() is None:
        return
    db.execute(
        "INSERT INTO notices (user_id, kind, entry_id, why, at) "
        "SELECT s.user_id, 'new_entries', e.id, '', CAST(? AS DOUBLE PRECISION) "
        f"FROM entries AS e CROSS JOIN subscriptions AS s WHERE e.id {IN_MANY} AND s.feed_id = e.feed_id "
        f"AND s.user_id IN ({with_webhook}) ORDER BY e.id ON CONFLICT (user_id, kind, entry_id) DO NOTHING",
        (at, Many(entry_ids)),
    )
