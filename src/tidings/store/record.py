"""A poll's effects, as one transaction.

Whatever a poll brings is stored together or not at all: its line in the log, new and changed entries with their words in
the search index, the feed's state with its next poll, the policy's estimate, the host's pause, the gap. A process that
dies before the commit leaves a feed whose lease runs out, and the same document is fetched again; one that dies after
it has lost nothing. Every row has a natural key, so the same outcome stored twice is stored once.
"""

from collections.abc import Collection, Sequence

import msgspec

from tidings.store.connection import Connection
from tidings.store.feeds import adopt, retire, save_estimates, write_state
from tidings.store.identities import known, mark
from tidings.store.rows import EntryText, PollOutcome, Recorded

#: Old versions kept of an entry that is changed again and again.
VERSIONS = 10

_INSERT_ENTRY = """
    INSERT INTO entries (id, feed_id, source, first_seen_at, published_at, delay_s, identity,
      digest, published_told, updated_at, url, title, author, comments_url, content, summary, tags, enclosures)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
#: The time that we go by stays as first judged: feeds whose dates move with every edit must not move their entries.
_UPDATE_ENTRY = """
    UPDATE entries SET source = ?, changed_at = ?, digest = ?, published_told = ?, updated_at = ?, url = ?, title = ?,
      author = ?, comments_url = ?, content = ?, summary = ?, tags = ?, enclosures = ?
    WHERE id = ?"""
_KEEP_VERSION = """
    INSERT INTO entry_versions (entry_id, replaced_at, digest, updated_at, url, title, author, content, summary)
    SELECT id, ?, digest, updated_at, url, title, author, content, summary FROM entries WHERE id = ?
    ON CONFLICT (entry_id, replaced_at) DO NOTHING"""
_FORGET_VERSIONS = """
    DELETE FROM entry_versions WHERE entry_id = ? AND replaced_at NOT IN
      (SELECT replaced_at FROM entry_versions WHERE entry_id = ? ORDER BY replaced_at DESC LIMIT ?)"""
_INSERT_POLL = """
    INSERT INTO polls (feed_id, at, source, status, bytes, elapsed_s, entries, new, changed, delay_mean_s, delay_max_s, lost,
      reason, error_kind, error)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (feed_id, at) DO NOTHING"""
_HOST_ASKED = """
    INSERT INTO hosts (host, last_request_at, paused_until, why) VALUES (?, ?, ?, ?)
    ON CONFLICT (host) DO UPDATE SET last_request_at = max(hosts.last_request_at, excluded.last_request_at),
      paused_until = coalesce(excluded.paused_until, hosts.paused_until),
      why = CASE WHEN excluded.paused_until IS NULL THEN hosts.why ELSE excluded.why END"""

_json = msgspec.json.Encoder()


def record(db: Connection, outcomes: Sequence[PollOutcome]) -> list[Recorded]:
    """Store all outcomes, in one transaction; returns what each one brought."""
    return [_record(db, outcome) for outcome in outcomes]


def _record(db: Connection, outcome: PollOutcome) -> Recorded:
    new = _insert(db, outcome)
    changed = sum(_change(db, outcome, entry) for entry in outcome.changed)
    _log(db, outcome, new.values(), changed)
    if outcome.document is not None:
        db.execute(
            "INSERT INTO documents (feed_id, marks) VALUES (?, ?) ON CONFLICT (feed_id) DO UPDATE SET marks = excluded.marks",
            (outcome.feed_id, b"".join(map(mark, outcome.document))),
        )
    if outcome.state is not None:
        write_state(db, outcome.feed_id, outcome.state)
    if outcome.estimate is not None:
        save_estimates(db, {outcome.feed_id: outcome.estimate}, outcome.at)
    if outcome.host:
        pause = outcome.pause
        db.execute(_HOST_ASKED, (outcome.host, outcome.at, pause.until if pause else None, pause.why if pause else ""))
    if outcome.gap is not None:
        db.execute(
            "INSERT INTO gaps (feed_id, found_at, from_at, until_at, lost) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (feed_id, found_at) DO NOTHING",
            (outcome.feed_id, outcome.at, outcome.gap.from_at, outcome.gap.until_at, outcome.gap.lost),
        )
    if outcome.repair is not None:
        db.execute(
            "UPDATE gaps SET recovered = recovered + ?, state = ? WHERE id = ?",
            (len(new), outcome.repair.state, outcome.repair.gap_id),
        )
    if outcome.adopt_url:
        adopt(db, outcome.feed_id, outcome.adopt_url, outcome.at)
    if outcome.retire:
        retire(db, outcome.feed_id, outcome.retire, outcome.at)
    return Recorded(tuple(new), changed)


def _insert(db: Connection, outcome: PollOutcome) -> dict[int, EntryText]:
    """Ids are given here and not by SQLite: one statement for a whole document takes half the time of one for each entry."""
    offered = {e.identity: e for e in outcome.new}
    seen = known(db, outcome.feed_id, list(offered)) if offered else {}
    fresh = [e for identity, e in offered.items() if identity not in seen]
    if not fresh:
        return {}
    last = db.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entries'").fetchone()[0]
    new = dict(enumerate(fresh, last + 1))
    came = outcome.feed_id, outcome.source, outcome.at
    db.executemany(_INSERT_ENTRY, [(i, *came, e.published_at, e.delay_s, e.identity, *_changeable(e)) for i, e in new.items()])
    db.executemany("INSERT INTO search (rowid, title, body) VALUES (?, ?, ?)", [(i, e.title, e.text) for i, e in new.items()])
    return new


def _change(db: Connection, outcome: PollOutcome, e: EntryText) -> bool:
    found = db.execute(
        "SELECT id, digest FROM entries WHERE feed_id = ? AND identity = ?", (outcome.feed_id, e.identity)
    ).fetchone()
    if found is None or found[1] == e.digest:
        return False
    entry_id = found[0]
    db.execute(_KEEP_VERSION, (outcome.at, entry_id))
    db.execute(_FORGET_VERSIONS, (entry_id, entry_id, VERSIONS))
    db.execute(_UPDATE_ENTRY, (outcome.source, outcome.at, *_changeable(e), entry_id))
    db.execute("UPDATE search SET title = ?, body = ? WHERE rowid = ?", (e.title, e.text, entry_id))
    return True


def _changeable(e: EntryText) -> tuple[object, ...]:
    """The columns from digest to enclosures."""
    lists = _json.encode(e.tags).decode(), _json.encode(e.enclosures).decode()
    return (
        *(e.digest, e.published_told, e.updated_at, e.url, e.title, e.author, e.comments_url, e.content, e.summary),
        *lists,
    )


def _log(db: Connection, o: PollOutcome, new: Collection[EntryText], changed: int) -> None:
    delays = [e.delay_s for e in new if e.delay_s is not None]
    mean, most = (sum(delays) / len(delays), max(delays)) if delays else (None, None)
    lost = o.gap.lost if o.gap else None
    db.execute(
        _INSERT_POLL,
        (
            *(o.feed_id, o.at, o.source, o.status, o.bytes, o.elapsed_s, o.entries, len(new), changed),
            *(mean, most, lost, o.reason, o.error_kind, o.error),
        ),
    )
