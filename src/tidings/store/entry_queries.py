"""Queries for the entries of a user (streams), with keyset pagination and cursors.

A page starts after the cursor of the previous page. The cursor is the sort key of the last entry of
that page (the id, which is the order of arrival, or publication time and id). No entry is skipped
or shown twice if others arrive or change in between.

A stream is read from the table with the fewest matching rows: `unread`, `entry_states`,
`entry_tags`, or `entries`. For few feeds, their rows are collected and sorted; for many feeds, the
index of the order is scanned until the page is full. Search terms that many entries contain are
matched in SQLite's index range by range during the scan. ``+ 0`` in a query prevents both databases
from using the index of a column.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import UsageError
from tidings.i18n import _
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.entries import ENTRY, decode_entry
from tidings.store.search import SearchTerms, parse_query
from tidings.store.user_models import IdPage, Item, Page, Stream

#: Maximum number of feeds whose entries are collected and sorted. For more feeds, scanning entries
#: in the order of the stream finds the newest faster.
FEW_FEEDS = 300
#: A search term is common if at least one in `COMMON` of the newest entries matches it. That is
#: estimated from the `SAMPLE` newest matches.
COMMON, SAMPLE = 50, 300
#: Number of entries in SQLite's search index that can be scanned in the time of one lookup.
SPARSE = 500
#: Typical number of entries per page, for cost estimates.
PAGE = 100
#: Number of entries next to a time of arrival among which the lowest id after that time, or the
#: highest id before it, is found. Ids are not exactly in the order of arrival, because concurrent
#: polls are recorded as they finish.
DISORDER = 5000
#: Condition that excludes the entries ``e`` imported by users other than its parameter.
_NOT_IMPORTED_BY_OTHERS = (
    "NOT EXISTS (SELECT 1 FROM imported_entries AS i WHERE i.entry_id = e.id AND i.user_id <> ?)"
)


class Selection(Struct, frozen=True):
    """SQL query that selects the entries of a stream.

    It consists of ``FROM ... WHERE ...``, the parameters, and the names of the key columns.
    """

    sql: str
    values: tuple[Any, ...]
    id: str
    published: str
    collected: bool  #: whether rows are collected and sorted instead of scanned in order
    match: str = ""  #: FTS5 expression to apply to each range of a scan


class _Conditions:
    """SQL conditions of a query with their parameters."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.values: list[Any] = []

    def add(self, condition: str, *values: Any) -> None:
        self.parts.append(condition)
        self.values += values

    def bound(self, column: str, sign: str, value: float | None) -> None:
        if value is not None:
            self.add(f"{column} {sign} ?", value)


def selection(
    db: Connection,
    user_id: int,
    stream: Stream,
    *,
    unread_until: float | None = None,
    ordered: bool = False,
) -> Selection | None:
    """Translate a stream to SQL, or return None if the stream has no entries.

    ``unread_until`` selects only unread entries received until that time. ``ordered`` says that the
    rows will be read in the stream's order, and not to the end.
    """
    unread = True if unread_until is not None else stream.unread
    where = _Conditions()
    tags = list(stream.tags)
    if unread:
        source, entry, feed, table = "unread AS u", "u.entry_id", "u.feed_id", "u"
        where.add("u.user_id = ?", user_id)
    elif stream.starred:
        source, entry, feed, table = (
            "entry_states AS m JOIN entries AS e ON e.id = m.entry_id",
            "m.entry_id",
            "m.feed_id",
            "e",
        )
        where.add("m.user_id = ? AND m.starred_at > 0", user_id)
    elif tags:
        source, entry, feed, table = (
            "entry_tags AS l JOIN entries AS e ON e.id = l.entry_id",
            "l.entry_id",
            "e.feed_id",
            "e",
        )
        where.add("l.user_id = ? AND l.name = ?", user_id, tags.pop())
    else:
        source, entry, feed, table = "entries AS e", "e.id", "e.feed_id", "e"
    published, seen = f"{table}.published_at", f"{table}.first_seen_at"

    # Users star and tag few entries, so their rows can be collected.
    collected, single = source.startswith(("entry_states", "entry_tags")), False
    if stream.feeds or stream.folders or stream.not_feeds or stream.not_folders:
        feeds = _source_feeds(db, user_id, stream)
        if not feeds:
            return None
        few, single = 1 < len(feeds) <= FEW_FEEDS, len(feeds) == 1
        collected = collected or few
        if unread and not db.postgres and (few or single):
            source += " INDEXED BY unread_feed"  # otherwise SQLite scans all entries of the user
        if single:
            where.add(f"{feed} = ?", feeds[0])
        else:
            where.add(f"{feed} {IN_MANY}" if few else f"{feed} + 0 {IN_MANY}", Many(feeds))
    elif source == "entries AS e":
        collected = ordered and _has_few_entries(db, user_id)
        no_index = " + 0" if ordered and not collected else ""
        where.add(
            f"e.feed_id{no_index} IN "
            "(SELECT s.feed_id FROM subscriptions AS s WHERE s.user_id = ?)",
            user_id,
        )

    match = ""
    if stream.search:
        query_terms = parse_query(stream.search, postgres=db.postgres)
        if query_terms.is_empty:
            return None
        match = (
            _match(query_terms)
            if ordered and not collected and not db.postgres and query_terms.included
            else ""
        )
        if not match or not _is_common(db, match):
            match = ""
            _add_search(db, where, entry, query_terms)

    if unread is False:
        where.add(
            f"NOT EXISTS (SELECT 1 FROM unread AS n WHERE n.user_id = ? AND n.entry_id = {entry})",
            user_id,
        )
        where.add(
            "NOT EXISTS (SELECT 1 FROM entry_states AS x "
            f"WHERE x.user_id = ? AND x.entry_id = {entry} AND x.muted_at IS NOT NULL)",
            user_id,
        )
    elif source == "entries AS e" and _has_muted(db, user_id):
        where.add(
            "NOT EXISTS (SELECT 1 FROM entry_states AS x "
            "WHERE x.user_id = ? AND x.entry_id = e.id AND x.muted_at IS NOT NULL)",
            user_id,
        )
    if source == "entries AS e" and _has_imported_by_others(db, user_id):
        where.add(_NOT_IMPORTED_BY_OTHERS, user_id)
    if stream.starred is not None and not source.startswith("entry_states"):
        where.add(
            f"{'' if stream.starred else 'NOT '}EXISTS (SELECT 1 FROM entry_states AS y "
            f"WHERE y.user_id = ? AND y.entry_id = {entry} AND y.starred_at IS NOT NULL)",
            user_id,
        )
    for negation, names in ("", tags), ("NOT ", stream.not_tags):
        for name in names:
            where.add(
                f"{negation}EXISTS (SELECT 1 FROM entry_tags AS t "
                f"WHERE t.user_id = ? AND t.name = ? AND t.entry_id = {entry})",
                user_id,
                name,
            )

    where.bound(seen, ">=", stream.seen_from)
    where.bound(seen, "<", stream.seen_until)
    where.bound(seen, "<=", unread_until)
    where.bound(published, ">=", stream.published_from)
    where.bound(published, "<", stream.published_until)
    where.bound(entry, ">", stream.above_id)
    where.bound(entry, "<", stream.below_id)
    if stream.by == "arrival" and not _bound_ids(
        db, where, entry, stream.seen_from, stream.seen_until
    ):
        return None
    conditions = " AND ".join(where.parts) or "1 = 1"
    return Selection(
        f"FROM {source} WHERE {conditions}", tuple(where.values), entry, published, collected, match
    )


def _has_muted(db: Connection, user_id: int) -> bool:
    row = db.execute(
        "SELECT 1 FROM entry_states WHERE user_id = ? AND muted_at > 0 LIMIT 1", (user_id,)
    ).fetchone()
    return row is not None


def _has_imported_by_others(db: Connection, user_id: int) -> bool:
    row = db.execute(
        "SELECT 1 FROM imported_entries WHERE user_id <> ? LIMIT 1", (user_id,)
    ).fetchone()
    return row is not None


def _has_few_entries(db: Connection, user_id: int) -> bool:
    """Return whether collecting a user's entries costs less than scanning all entries.

    The highest ids approximate the numbers of entries and feeds.
    """
    subscriptions, feeds, entries = db.execute(
        "SELECT (SELECT count(*) FROM subscriptions WHERE user_id = ?), "
        "(SELECT max(id) FROM feeds), (SELECT max(id) FROM entries)",
        (user_id,),
    ).fetchone()
    share = subscriptions / (feeds or 1)
    return bool((entries or 0) * share < PAGE / max(share, 1e-9))


def _source_feeds(db: Connection, user_id: int, stream: Stream) -> list[int]:
    """Return the ids of the subscribed feeds that a stream selects."""
    condition, values = (
        (f" AND feed_id {IN_MANY}", (Many(stream.feeds),))
        if stream.feeds and not stream.folders
        else ("", ())
    )
    rows = db.execute(
        f"SELECT feed_id, coalesce(folder_id, 0) FROM subscriptions WHERE user_id = ?{condition}",
        (user_id, *values),
    )
    feeds, folders = set(stream.feeds), set(stream.folders)
    selects_all = not (feeds or folders)
    not_feeds, not_folders = set(stream.not_feeds), set(stream.not_folders)
    return [
        feed
        for feed, folder in rows
        if (selects_all or feed in feeds or folder in folders)
        and feed not in not_feeds
        and folder not in not_folders
    ]


def _bound_ids(
    db: Connection, where: _Conditions, entry: str, since: float | None, until: float | None
) -> bool:
    """Add bounds on ids that follow from times of arrival, to end a scan by id early.

    Returns False if no entry arrived in that time.
    """
    for time, sign, order, aggregate in (since, ">=", "", "min"), (until, "<", " DESC", "max"):
        if time is not None:
            (bound,) = db.execute(
                f"SELECT {aggregate}(id) FROM (SELECT id FROM entries WHERE first_seen_at {sign} ? "
                f"ORDER BY first_seen_at{order} LIMIT ?) AS around",
                (time, DISORDER),
            ).fetchone()
            if bound is None:
                return False
            where.add(f"{entry} {sign[0]}= ?", bound)
    return True


def _add_search(db: Connection, where: _Conditions, entry: str, query_terms: SearchTerms) -> None:
    """Add the conditions of a full-text search."""
    if db.postgres:
        for expression, condition in (
            (query_terms.included, "w.words @@ ?::tsquery"),
            (query_terms.excluded, "NOT w.words @@ ?::tsquery"),
        ):
            if expression:
                where.add(
                    f"EXISTS (SELECT 1 FROM entries AS w WHERE w.id = {entry} AND {condition})",
                    expression,
                )
    elif query_terms.included:
        where.add(
            f"{entry} IN (SELECT rowid FROM search WHERE search MATCH ?)", _match(query_terms)
        )
    else:
        where.add(
            f"{entry} NOT IN (SELECT rowid FROM search WHERE search MATCH ?)", query_terms.excluded
        )


def _match(query_terms: SearchTerms) -> str:
    return (
        f"({query_terms.included}) NOT ({query_terms.excluded})"
        if query_terms.excluded
        else query_terms.included
    )


def _is_common(db: Connection, expression: str) -> bool:
    """Return whether a scan in order fills a page faster than collecting all matches."""
    newest = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?"
    match_count, first, last = db.execute(
        f"SELECT count(*), min(rowid), (SELECT max(id) FROM entries) FROM ({newest})",
        (expression, SAMPLE),
    ).fetchone()
    return bool(match_count) and last - first < match_count * COMMON


# --- pages ----------------------------------------------------------------------------------------


def ids(db: Connection, user_id: int, stream: Stream, limit: int, after: str | None) -> IdPage:
    """Return a page of entry ids.

    ``after`` is the cursor of the page before, or None at the start. Raises `UsageError` for an
    invalid cursor.
    """
    query = selection(db, user_id, stream, ordered=True)
    if query is None or limit < 1:
        return IdPage((), None)
    rows: list[Any] = []
    batch_size = limit + 1
    while len(rows) <= limit:
        batch = _next_rows(db, query, stream, batch_size, after)
        rows += _matching(db, query.match, batch) if query.match else batch
        if len(batch) < batch_size:
            break
        batch_size, after = 2 * batch_size, _encode_cursor(batch[-1], stream)
    return IdPage(
        tuple(row[0] for row in rows[:limit]),
        _encode_cursor(rows[limit - 1], stream) if len(rows) > limit else None,
    )


def _next_rows(
    db: Connection, query: Selection, stream: Stream, count: int, after: str | None
) -> list[Any]:
    """Return the next rows in the stream's order.

    A row has the entry id, and the publication time if the stream is ordered by it.
    """
    direction, sign = ("ASC", ">") if stream.oldest_first else ("DESC", "<")
    sql, values = query.sql, list(query.values)
    no_index = " + 0" if query.collected else ""
    if stream.by == "arrival":
        columns, order = query.id, f"{query.id}{no_index} {direction}"
        if after is not None:
            sql += f" AND {query.id} {sign} ?"
            values.append(_decode_cursor(after, 1)[0])
    else:
        columns = f"{query.id}, {query.published}"
        order = f"{query.published}{no_index} {direction}, {query.id} {direction}"
        if after is not None:
            at, last = _decode_cursor(after, 2)
            sql += f" AND ({query.published}, {query.id}) {sign} (?, ?)"
            values += [float(at), last]
    return db.execute(
        f"SELECT {columns} {sql} ORDER BY {order} LIMIT ?", (*values, count)
    ).fetchall()


def _matching(db: Connection, match: str, rows: list[Any]) -> list[Any]:
    """Return the rows whose entries match an FTS5 expression.

    The index is scanned from the lowest id to the highest. If these ids are far apart, such as
    those of one feed, each id is looked up.
    """
    ids = Many(row[0] for row in rows)
    first, last = min(ids, default=0), max(ids, default=0)
    if last - first < SPARSE * len(ids):
        matching_rows = db.execute(
            "SELECT rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ?",
            (match, first, last),
        )
    else:
        lookup = "SELECT 1 FROM search WHERE search MATCH ? AND rowid = value"
        matching_rows = db.execute(
            f"SELECT value FROM json_each(?) WHERE EXISTS ({lookup})", (ids, match)
        )
    matching = {i for (i,) in matching_rows}
    return [row for row in rows if row[0] in matching]


def _encode_cursor(row: Any, stream: Stream) -> str:
    """Return the sort key of a row as a cursor."""
    return str(row[0]) if stream.by == "arrival" else f"{row[1]!r},{row[0]}"


def _decode_cursor(after: str, parts: int) -> list[Any]:
    """Return the sort key in a cursor, which is the id, or publication time and id.

    Raises `UsageError` if the cursor does not have this number of parts.
    """
    try:
        *at, last = after.split(",")
        key = [*map(float, at), int(last)]
    except ValueError:
        key = []
    if len(key) != parts or not 0 <= key[-1] < 2**31:
        raise UsageError(_("the cursor %(cursor)r is not valid for this stream", cursor=after))
    return key


def page(db: Connection, user_id: int, stream: Stream, limit: int, after: str | None) -> Page:
    """Return a page of entries.

    ``after`` is the cursor of the page before, or None at the start.
    """
    id_page = ids(db, user_id, stream, limit, after)
    return Page(tuple(items(db, user_id, id_page.ids)), id_page.next)


def count(db: Connection, user_id: int, stream: Stream) -> int:
    """Return the number of entries of a stream."""
    query = selection(db, user_id, stream)
    return (
        0
        if query is None
        else int(db.execute(f"SELECT count(*) {query.sql}", query.values).fetchone()[0])
    )


# --- entries --------------------------------------------------------------------------------------


def visible(db: Connection, user_id: int, entry_ids: Iterable[int]) -> dict[int, int]:
    """Return the entries that a user may access, as feed ids by entry id.

    A user may access entries of subscribed feeds, and entries that the user starred or tagged, but
    no entries that other users imported.
    """
    rows = db.execute(
        f"SELECT e.id, e.feed_id FROM entries AS e WHERE e.id {IN_MANY} AND ("
        "EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.user_id = ? AND s.feed_id = e.feed_id) "
        "OR EXISTS (SELECT 1 FROM entry_states AS m "
        "WHERE m.user_id = ? AND m.entry_id = e.id AND m.starred_at IS NOT NULL) "
        "OR EXISTS (SELECT 1 FROM entry_tags AS l WHERE l.user_id = ? AND l.entry_id = e.id)) "
        f"AND {_NOT_IMPORTED_BY_OTHERS}",
        (Many(i for i in entry_ids if 0 < i < 2**31), user_id, user_id, user_id, user_id),
    )
    return dict(rows.fetchall())


def items(db: Connection, user_id: int, entry_ids: Sequence[int]) -> list[Item]:
    """Return entries with their state for a user, in the order of ``entry_ids``.

    Entries that the user may not access are left out.
    """
    accessible = visible(db, user_id, entry_ids)
    if not accessible:
        return []
    ids = Many(accessible)
    entries = {
        row[0]: decode_entry(row)
        for row in db.execute(f"SELECT {ENTRY} FROM entries WHERE id {IN_MANY}", (ids,))
    }
    full_texts = db.execute(
        "SELECT f.entry_id, f.content FROM full_texts AS f JOIN entries AS e ON e.id = f.entry_id "
        "JOIN subscriptions AS s ON s.feed_id = e.feed_id "
        f"WHERE s.user_id = ? AND s.full_text = 1 AND f.entry_id {IN_MANY}",
        (user_id, ids),
    )
    for entry_id, content in full_texts:
        if content:
            entries[entry_id] = replace(entries[entry_id], content=content)
    rows = db.execute(
        f"SELECT entry_id FROM unread WHERE user_id = ? AND entry_id {IN_MANY}", (user_id, ids)
    )
    unread = {i for (i,) in rows}
    states = {}
    for i, *state, title, content in db.execute(
        "SELECT entry_id, starred_at, read_at, rating, title, content FROM entry_states "
        f"WHERE user_id = ? AND entry_id {IN_MANY}",
        (user_id, ids),
    ):
        states[i] = state
        if title or content:
            entries[i] = replace(
                entries[i], title=title or entries[i].title, content=content or entries[i].content
            )
    tags: dict[int, list[str]] = {}
    for i, name in db.execute(
        "SELECT entry_id, name FROM entry_tags "
        f"WHERE user_id + 0 = ? AND entry_id {IN_MANY} ORDER BY name",
        (user_id, ids),
    ):
        tags.setdefault(i, []).append(name)
    duplicates = _duplicates(db, user_id, ids)
    return [
        Item(
            entries[i],
            i in unread,
            *(*states.get(i, (None, None, 0)), tuple(tags.get(i, ())), duplicates.get(i, ())),
        )
        for i in dict.fromkeys(entry_ids)
        if i in entries
    ]


def _duplicates(db: Connection, user_id: int, ids: Many) -> dict[int, tuple[int, ...]]:
    """Return the ids of the accessible duplicates of each entry."""
    first_ids = {i: i for i in ids} | dict(
        db.execute(
            f"SELECT entry_id, first_entry_id FROM duplicate_groups WHERE entry_id {IN_MANY}",
            (ids,),
        ).fetchall()
    )
    groups: dict[int, set[int]] = {}
    for i, first in db.execute(
        f"SELECT entry_id, first_entry_id FROM duplicate_groups WHERE first_entry_id {IN_MANY}",
        (Many(set(first_ids.values())),),
    ):
        groups.setdefault(first, {first}).add(i)
    if not groups:
        return {}
    accessible = visible(db, user_id, {i for group in groups.values() for i in group})
    return {
        i: tuple(sorted((groups.get(first, set()) & accessible.keys()) - {i}))
        for i, first in first_ids.items()
    }
