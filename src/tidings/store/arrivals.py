"""What happens when entries arrive: they become unread for every subscriber, stories that came before are folded, rules act.

All of it within the transaction that stores the entries: nobody ever sees an entry that a rule was to mute.
"""

from collections.abc import Mapping, Sequence

import msgspec

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.people_rows import PRIORITY_WEIGHT, Rule, Settings
from tidings.store.rows import EntryText, PollOutcome
from tidings.store.stories import keys, near, simhash
from tidings.store.wishes import matches

#: A story is told again within so long; entries that were published earlier are none, such as those of a feed's first document.
STORY_S = 3 * 86400.0

_FAN_OUT = f"""
    INSERT INTO unread (user_id, entry_id, feed_id, published_at, first_seen_at)
    SELECT s.user_id, e.id, e.feed_id, e.published_at, e.first_seen_at
    FROM subscriptions AS s JOIN entries AS e ON e.feed_id = s.feed_id
    WHERE s.feed_id = ? AND e.id {IN_MANY}"""
_WEIGHT = " ".join(f"WHEN '{name}' THEN {weight}" for name, weight in PRIORITY_WEIGHT.items())

_rule = msgspec.json.Decoder(Rule)
_settings = msgspec.json.Decoder(Settings)


def arrive(db: Connection, outcome: PollOutcome, new: Mapping[int, EntryText]) -> None:
    """These entries have just been stored."""
    if not new:
        return
    db.execute(_FAN_OUT, (outcome.feed_id, Many(new)))
    _fold(db, outcome, {i: e for i, e in new.items() if e.published_at > outcome.at - STORY_S})
    rows = db.execute(
        "SELECT r.user_id, r.id, r.rule FROM rules AS r JOIN subscriptions AS s ON s.user_id = r.user_id "
        "WHERE s.feed_id = ? ORDER BY r.id",
        (outcome.feed_id,),
    )
    for user_id, rule_id, text in rows.fetchall():
        rule = msgspec.structs.replace(_rule.decode(text), id=rule_id)
        found = [i for i, e in new.items() if matches(rule, outcome.feed_id, e)]
        if found:
            _act(db, user_id, outcome, rule, found)


def welcome(db: Connection, user_id: int, feed_id: int) -> None:
    """A new subscriber finds the entries of the feed's present document unread."""
    row = db.execute('SELECT "window" FROM feeds WHERE id = ?', (feed_id,)).fetchone()
    ids = db.execute(
        "SELECT id FROM entries WHERE feed_id = ? ORDER BY published_at DESC, id DESC LIMIT ?", (feed_id, row[0])
    ).fetchall()
    db.execute(
        f"{_FAN_OUT} AND s.user_id = ? ON CONFLICT (user_id, entry_id) DO NOTHING", (feed_id, Many(i for (i,) in ids), user_id)
    )


def inherit(db: Connection, old: int, new: int, now: float) -> None:
    """The subscribers of one feed become those of another; what was unread in the first is gone with it."""
    rows = db.execute(
        "INSERT INTO subscriptions (user_id, feed_id, folder_id, title, added_at, priority, full_text) "
        "SELECT user_id, ?, folder_id, title, added_at, priority, full_text FROM subscriptions WHERE feed_id = ? "
        "ON CONFLICT (user_id, feed_id) DO NOTHING RETURNING user_id",
        (new, old),
    )
    for (user_id,) in rows.fetchall():
        welcome(db, user_id, new)
    db.execute(
        "DELETE FROM unread WHERE feed_id = ? AND user_id IN (SELECT user_id FROM subscriptions WHERE feed_id = ?)", (old, old)
    )
    db.execute("DELETE FROM subscriptions WHERE feed_id = ?", (old,))
    weigh(db, [new], now)


def weigh(db: Connection, feed_ids: Sequence[int], now: float) -> None:
    """A feed's weight follows its subscribers and their priority; one that nobody wants any more is not asked any more."""
    db.execute(
        f"UPDATE feeds SET weight = (SELECT sum(CASE priority {_WEIGHT} END) FROM subscriptions WHERE feed_id = feeds.id) "
        f"WHERE id {IN_MANY} AND EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = feeds.id)",
        (Many(feed_ids),),
    )
    db.execute(
        "UPDATE feeds SET retired_at = ?, retired_why = ?, next_poll_at = NULL, reason = ? "
        f"WHERE id {IN_MANY} AND retired_at IS NULL AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = feeds.id)",
        (now, "nobody is subscribed to it", "retired: nobody is subscribed to it", Many(feed_ids)),
    )


def forget_stories(db: Connection, now: float) -> None:
    """Keys are needed no longer than stories are told again; what was folded stays folded."""
    db.execute("DELETE FROM stories WHERE at < ?", (now - 2 * STORY_S,))


def _fold(db: Connection, outcome: PollOutcome, recent: Mapping[int, EntryText]) -> None:
    """An entry whose story came by another of a user's feeds before is not unread for that user."""
    hashes = {i: simhash(f"{e.title} {e.text}") for i, e in recent.items()}
    own_keys = {i: keys(e.url, hashes[i]) for i, e in recent.items()}
    wanted = {key for some in own_keys.values() for key in some}
    if not wanted:
        return
    earlier: dict[int, list[tuple[int, int, int]]] = {}
    rows = db.execute(
        f"SELECT key, entry_id, feed_id, simhash FROM stories WHERE key {IN_MANY} AND at > ? AND feed_id <> ?",
        (Many(wanted), outcome.at - 2 * STORY_S, outcome.feed_id),
    )
    for key, entry_id, feed_id, bits in rows:
        earlier.setdefault(key, []).append((entry_id, feed_id, bits))
    for i, some in own_keys.items():
        link = keys(recent[i].url, None)
        twins = {
            (entry_id, feed_id)
            for key in some
            for entry_id, feed_id, bits in earlier.get(key, ())
            if key in link or near(bits, hashes[i] or 0)
        }
        if twins:
            _fold_one(db, i, outcome.feed_id, sorted(twins))
    db.insert(
        "stories",
        ("key", "entry_id", "feed_id", "at", "simhash"),
        [(key, i, outcome.feed_id, outcome.at, hashes[i] or 0) for i, some in own_keys.items() for key in some],
    )


def _fold_one(db: Connection, entry_id: int, feed_id: int, twins: Sequence[tuple[int, int]]) -> None:
    first = twins[0][0]
    row = db.execute("SELECT story_id FROM folds WHERE entry_id = ?", (first,)).fetchone()
    story = row[0] if row else first
    db.execute("INSERT INTO folds (entry_id, story_id) VALUES (?, ?)", (entry_id, story))
    both = db.execute(
        "SELECT DISTINCT u.id, u.settings FROM users AS u JOIN subscriptions AS s ON s.user_id = u.id "
        f"JOIN subscriptions AS t ON t.user_id = u.id WHERE s.feed_id = ? AND t.feed_id {IN_MANY}",
        (feed_id, Many(sorted({feed for _, feed in twins}))),
    )
    folding = [user for user, settings in both.fetchall() if _settings.decode(settings).fold_duplicates]
    db.execute(f"DELETE FROM unread WHERE entry_id = ? AND user_id {IN_MANY}", (entry_id, Many(folding)))


def _act(db: Connection, user_id: int, outcome: PollOutcome, rule: Rule, found: Sequence[int]) -> None:
    if rule.action in ("mute", "read"):
        db.execute(f"DELETE FROM unread WHERE user_id = ? AND entry_id {IN_MANY}", (user_id, Many(found)))
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
    elif rule.action == "alert":
        db.executemany(
            "INSERT INTO alerts (user_id, entry_id, rule, at) VALUES (?, ?, ?, ?) ON CONFLICT (user_id, entry_id) DO NOTHING",
            [(user_id, i, rule.name, outcome.at) for i in found],
        )
