"""Recording of poll results, which are entries, poll log, feed state, estimates and gaps.

All effects of a poll are stored in one transaction: the row in the poll log, new and changed
entries with their words in the search index, the feed's state with its next poll time, the
policy's estimate, the pause of the host, the gap. If a process dies before the commit, the feed's
lease expires and the document is fetched again; after the commit nothing is lost. Every row has a
natural key, so recording the same outcome twice has no further effect. Rows are written in the
order of feed ids, and tables in a fixed order, so that concurrent processes do not deadlock.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tidings.reasons import encode
from tidings.store import search_index
from tidings.store.connection import Connection
from tidings.store.feed_models import EntryText, KnownEntry, PollOutcome, RecordResult, Source
from tidings.store.feeds import change_feed_url, retire, save_estimates, write_states
from tidings.store.identities import IdentityHashes, find_known, identity_hash, pack_hashes
from tidings.store.ingest import ingest_entries
from tidings.store.peers import save_peer_claims
from tidings.store.search import encode_tsvector, normalize_texts

#: Maximum number of former versions that are stored per entry.
MAX_VERSIONS = 10

_CHANGEABLE = (
    *(
        "digest",
        "declared_published_at",
        "updated_at",
        "url",
        "title",
        "author",
        "comments_url",
        "content",
        "summary",
    ),
    *("tags", "enclosures"),
)
_COLUMNS = (
    "id",
    "feed_id",
    "source",
    "first_seen_at",
    "published_at",
    "delay_s",
    "identity",
    *_CHANGEABLE,
)
#: SQL statement that updates an entry. The publication time is not updated, because some feeds
#: change their dates with every edit.
_UPDATE_ENTRY = f"""
    UPDATE entries SET source = ?, changed_at = ?,
      {", ".join(f"{name} = ?" for name in _CHANGEABLE)}"""
_INSERT_VERSION = """
    INSERT INTO entry_versions
      (entry_id, replaced_at, digest, updated_at, url, title, author, content, summary)
    SELECT id, CAST(? AS DOUBLE PRECISION), digest, updated_at, url, title, author, content, summary
    FROM entries WHERE id = ?
    ON CONFLICT (entry_id, replaced_at) DO NOTHING"""
_DELETE_OLD_VERSIONS = """
    DELETE FROM entry_versions WHERE entry_id = ? AND replaced_at NOT IN
      (SELECT replaced_at FROM entry_versions WHERE entry_id = ?
       ORDER BY replaced_at DESC LIMIT ?)"""
_INSERT_POLL = """
    INSERT INTO polls (feed_id, at, source, status, bytes, elapsed_s, entries, new, changed,
      delay_mean_s, delay_max_s, missed, reason, error_kind, error)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (feed_id, at) DO NOTHING"""
_UPSERT_HOST = """
    INSERT INTO hosts (host, last_request_at, paused_until, pause_reason) VALUES (?, ?, ?, ?)
    ON CONFLICT (host) DO UPDATE SET
      last_request_at = CASE WHEN hosts.last_request_at > excluded.last_request_at
        THEN hosts.last_request_at ELSE excluded.last_request_at END,
      paused_until = coalesce(excluded.paused_until, hosts.paused_until),
      pause_reason = CASE WHEN excluded.paused_until IS NULL
        THEN hosts.pause_reason ELSE excluded.pause_reason END"""

_INSERT_IDENTITIES = """
    INSERT INTO identities (feed_id, identity_hash, entry_id)
    SELECT * FROM unnest(?::bigint[], ?::bigint[], ?::bigint[])
    ON CONFLICT (feed_id, identity_hash) DO NOTHING RETURNING entry_id"""

_json = msgspec.json.Encoder()


class _KeyedEntry(NamedTuple):
    """Entry with its outcome and its identity hash."""

    outcome: PollOutcome
    identity_hash: int
    entry: EntryText

    @property
    def key(self) -> tuple[int, int]:
        return self.outcome.feed_id, self.identity_hash


def record(db: Connection, outcomes: Sequence[PollOutcome]) -> list[RecordResult]:
    """Store all outcomes in one transaction, and return the result of each."""
    return [result for batch in _split_by_feed(outcomes) for result in _record(db, batch)]


def _split_by_feed(outcomes: Sequence[PollOutcome]) -> Iterator[list[PollOutcome]]:
    """Split outcomes into batches with at most one outcome per feed.

    A second poll of a feed depends on the entries that the first poll stored.
    """
    batch = dict[int, PollOutcome]()
    for outcome in outcomes:
        if outcome.feed_id in batch:
            yield list(batch.values())
            batch = {}
        batch[outcome.feed_id] = outcome
    yield list(batch.values())


def _record(db: Connection, outcomes: Sequence[PollOutcome]) -> list[RecordResult]:
    identity_hashes = IdentityHashes()
    candidate_entries = {
        t.key: t
        for o in outcomes
        for e in o.new
        for t in [_KeyedEntry(o, identity_hashes[e.identity], e)]
    }
    changed_entries = {
        t.key: t
        for o in outcomes
        for e in o.changed
        for t in [_KeyedEntry(o, identity_hashes[e.identity], e)]
    }
    known = find_known(db, {**candidate_entries, **changed_entries})
    new, search_texts = _insert(db, [t for key, t in candidate_entries.items() if key not in known])
    ingest_entries(db, outcomes, new, search_texts)
    for o in outcomes:
        if o.peer_path and o.feed_id in new:  # only entries from archives have no state
            identities = [e.identity for e in new[o.feed_id].values()]
            save_peer_claims(
                db, o.feed_id, identities, o.peer_path, o.at, recovered=o.state is None
            )
    changed = _change(db, [(known[key], t) for key, t in changed_entries.items() if key in known])
    by_feed = sorted(outcomes, key=lambda o: o.feed_id)
    polls = [o for o in by_feed if o.source != "neighbour"]  # the log has no polls by peers
    db.executemany(
        _INSERT_POLL,
        [_poll_row(o, new.get(o.feed_id, {}).values(), changed[o.feed_id]) for o in polls],
    )
    db.executemany(
        "INSERT INTO documents (feed_id, identity_hashes) VALUES (?, ?) "
        "ON CONFLICT (feed_id) DO UPDATE SET identity_hashes = excluded.identity_hashes",
        [
            (o.feed_id, pack_hashes([identity_hashes[i] for i in o.document]))
            for o in by_feed
            if o.document is not None
        ],
    )
    write_states(db, [(o.feed_id, o.state) for o in by_feed if o.state is not None])
    save_estimates(db, [(o.feed_id, o.estimate, o.at) for o in by_feed if o.estimate is not None])
    db.executemany(
        _UPSERT_HOST,
        [_host_row(o) for o in sorted(outcomes, key=lambda o: (o.host, o.at)) if o.host],
    )
    db.executemany(
        "INSERT INTO gaps (feed_id, found_at, from_at, until_at, missed) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (feed_id, found_at) DO NOTHING",
        [
            (o.feed_id, o.at, o.gap.from_at, o.gap.until_at, o.gap.missed)
            for o in by_feed
            if o.gap is not None
        ],
    )
    db.executemany(
        "UPDATE gaps SET recovered = recovered + ?, state = ? WHERE id = ?",
        [
            (len(new.get(o.feed_id, ())), o.repair.state, o.repair.gap_id)
            for o in by_feed
            if o.repair is not None
        ],
    )
    for o in by_feed:
        if o.new_url:
            change_feed_url(db, o.feed_id, o.new_url, o.at)
        if o.retire_reason:
            retire(db, o.feed_id, o.retire_reason, o.at)
    return [RecordResult(tuple(new.get(o.feed_id, ())), changed[o.feed_id]) for o in outcomes]


def insert_entry(
    db: Connection, feed_id: int, entry: EntryText, source: Source, now: float
) -> int | None:
    """Insert an entry without a poll; return its id, None if the feed has an entry like it.

    On SQLite, the caller must check that first.
    """
    outcome = PollOutcome(feed_id=feed_id, at=now, source=source)
    new, _search_texts = _insert(db, [_KeyedEntry(outcome, identity_hash(entry.identity), entry)])
    return next(iter(new.get(feed_id, ())), None)


def _insert(
    db: Connection, texts: Sequence[_KeyedEntry]
) -> tuple[dict[int, dict[int, EntryText]], dict[int, str]]:
    """Insert new entries, and return them with their normalized texts.

    The entries are by feed id and entry id, the texts by entry id.
    """
    new: dict[int, dict[int, EntryText]] = {}
    if not texts:
        return new, {}
    numbered = list(zip(db.allocate_entry_ids(len(texts)), texts, strict=True))
    if db.postgres:  # another process may have inserted some of the entries meanwhile
        inserted = {
            i
            for (i,) in db.execute(
                _INSERT_IDENTITIES,
                tuple(zip(*sorted((*t.key, i) for i, t in numbered), strict=True)),
            )
        }
        numbered = [(i, t) for i, t in numbered if i in inserted]
    else:
        db.insert(
            "identities",
            ("feed_id", "identity_hash", "entry_id"),
            [(*t.key, i) for i, t in numbered],
        )
    rows = [
        (i, o.feed_id, o.source, o.at, e.published_at, e.delay_s, e.identity, *_changeable(e))
        for i, (o, _, e) in numbered
    ]
    titles, bodies = _normalized_texts([t.entry for _, t in numbered])
    if db.postgres:
        words = map(encode_tsvector, titles, bodies)
        db.insert(
            "entries", (*_COLUMNS, "words"), [(*row, w) for row, w in zip(rows, words, strict=True)]
        )
    else:
        db.insert("entries", _COLUMNS, rows)
        search_index.add_entries(db, [i for i, _ in numbered], titles, bodies)
    for i, t in numbered:
        new.setdefault(t.outcome.feed_id, {})[i] = t.entry
    return new, {
        i: f"{title} {body}" for (i, _), title, body in zip(numbered, titles, bodies, strict=True)
    }


def _normalized_texts(entries: Sequence[EntryText]) -> tuple[list[str], list[str]]:
    """Return the normalized titles and the normalized texts of entries for the search index."""
    both = normalize_texts([text for e in entries for text in (e.title, e.text)])
    return both[::2], both[1::2]


def _change(db: Connection, texts: Sequence[tuple[KnownEntry, _KeyedEntry]]) -> Counter[int]:
    """Update entries whose digest differs, and return their number by feed id.

    The former versions are stored.
    """
    changed = [
        (k.entry_id, t) for k, t in texts if k.entry_id is not None and k.digest != t.entry.digest
    ]
    changes = sorted(changed, key=lambda change: change[0])
    db.executemany(_INSERT_VERSION, [(t.outcome.at, i) for i, t in changes])
    db.executemany(_DELETE_OLD_VERSIONS, [(i, i, MAX_VERSIONS) for i, _ in changes])
    ids, (titles, bodies) = (
        [i for i, _ in changes],
        _normalized_texts([t.entry for _, t in changes]),
    )
    rows = [(o.source, o.at, *_changeable(e)) for _, (o, _, e) in changes]
    if db.postgres:
        words = map(encode_tsvector, titles, bodies)
        db.executemany(
            f"{_UPDATE_ENTRY}, words = ? WHERE id = ?",
            [(*row, w, i) for row, w, i in zip(rows, words, ids, strict=True)],
        )
    else:
        search_index.delete_entries(db, ids)
        db.executemany(
            f"{_UPDATE_ENTRY} WHERE id = ?", [(*row, i) for row, i in zip(rows, ids, strict=True)]
        )
        search_index.add_entries(db, ids, titles, bodies)
    return Counter(t.outcome.feed_id for _, t in changes)


def _changeable(e: EntryText) -> tuple[object, ...]:
    """Return the values of an entry for the columns of `_CHANGEABLE`."""
    lists = (_json.encode(items).decode() if items else "[]" for items in (e.tags, e.enclosures))
    return (
        *(
            e.digest,
            e.declared_published_at,
            e.updated_at,
            e.url,
            e.title,
            e.author,
            e.comments_url,
            e.content,
            e.summary,
        ),
        *lists,
    )


def _host_row(o: PollOutcome) -> tuple[object, ...]:
    return o.host, o.at, o.pause.until if o.pause else None, o.pause.reason if o.pause else ""


def _poll_row(o: PollOutcome, new: Collection[EntryText], changed: int) -> tuple[object, ...]:
    delays = [e.delay_s for e in new if e.delay_s is not None]
    mean, maximum = (sum(delays) / len(delays), max(delays)) if delays else (None, None)
    missed = o.gap.missed if o.gap else None
    return (
        *(o.feed_id, o.at, o.source, o.status, o.bytes, o.elapsed_s, o.entries, len(new), changed),
        *(mean, maximum, missed, encode(o.reason), o.error_kind, o.error),
    )
