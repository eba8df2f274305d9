"""Streams: from what a user asks for to the entries, a page at a time.

A page begins after the last key of the one before, and the key is what the stream is ordered by (the id, which is the order of
arrival, or publication and id): whatever arrives or is marked in between, no entry is skipped or shown twice.

A stream is walked from the table that holds the fewest rows of it: `unread`, the user's marks, their labels, or all entries.
Where few feeds are asked for, their rows are gathered and sorted; where many, the whole order is walked until there are enough.
Words that many entries have are looked for in SQLite's index stretch by stretch, as the order is walked.
A ``+ 0`` in a query is how both databases are told which of the two.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tidings.errors import UsageError
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.entries import ENTRY, decode_entry
from tidings.store.search import SearchTerms, parse_query
from tidings.store.user_models import IdPage, Item, Page, Stream

#: Of so many feeds all entries are gathered and sorted; of more, the newest are found sooner by walking the order.
FEW_FEEDS = 300
#: What one in so many of the newest entries has is common, as far as so many of those that have it tell.
COMMON, SAMPLE = 50, 300
#: To ask SQLite's search index for one entry takes as long as to read so many on in it.
SPARSE = 500
#: So long a page is, roughly.
PAGE = 100
#: Entries do not arrive exactly in the order of their ids: polls that were under way together are recorded as they finish.
#: Among so many around a time of arrival is the lowest (or highest) id that can have come after (or before) it.
DISORDER = 5000


class Selection(Struct, frozen=True):
    """Entries as SQL: ``FROM ... WHERE ...`` with its values, and what id and publication are called in it."""

    sql: str
    values: tuple[Any, ...]
    id: str
    published: str
    gathered: bool
    match: str = (
        ""  #: what SQLite's search index has to be asked yet, for each stretch that is walked
    )


class _Conditions:
    """Conditions and their values, side by side."""

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
    """The rows of a stream; None if there can be none. With ``unread_until``, only the unread that came by then.

    ``ordered`` says that it will be walked in its order, and not to the end.
    """
    unread = True if unread_until is not None else stream.unread
    where = _Conditions()
    tags = list(stream.tags)
    if unread:
        source, entry, feed, table = "unread AS u", "u.entry_id", "u.feed_id", "u"
        where.add("u.user_id = ?", user_id)
    elif stream.starred:
        source, entry, feed, table = (
            "marks AS m JOIN entries AS e ON e.id = m.entry_id",
            "m.entry_id",
            "m.feed_id",
            "e",
        )
        where.add("m.user_id = ? AND m.starred_at > 0", user_id)
    elif tags:
        source, entry, feed, table = (
            "labels AS l JOIN entries AS e ON e.id = l.entry_id",
            "l.entry_id",
            "e.feed_id",
            "e",
        )
        where.add("l.user_id = ? AND l.name = ?", user_id, tags.pop())
    else:
        source, entry, feed, table = "entries AS e", "e.id", "e.feed_id", "e"
    published, seen = f"{table}.published_at", f"{table}.first_seen_at"

    gathered, single = (
        source.startswith(("marks", "labels")),
        False,
    )  # what people mark by hand is never so much
    if stream.feeds or stream.folders or stream.not_feeds or stream.not_folders:
        feeds = _source_feeds(db, user_id, stream)
        if not feeds:
            return None
        few, single = 1 < len(feeds) <= FEW_FEEDS, len(feeds) == 1
        gathered = gathered or few
        if unread and not db.postgres and (few or single):
            source += " INDEXED BY unread_feed"  # SQLite would rather walk the user's whole order
        if single:
            where.add(f"{feed} = ?", feeds[0])
        else:
            where.add(f"{feed} {IN_MANY}" if few else f"{feed} + 0 {IN_MANY}", Many(feeds))
    elif source == "entries AS e":
        gathered = ordered and _has_few_entries(db, user_id)
        walked = " + 0" if ordered and not gathered else ""
        where.add(
            f"e.feed_id{walked} IN (SELECT s.feed_id FROM subscriptions AS s WHERE s.user_id = ?)",
            user_id,
        )

    match = ""
    if stream.search:
        query_terms = parse_query(stream.search, postgres=db.postgres)
        if query_terms.is_empty:
            return None
        match = (
            _match(query_terms)
            if ordered and not gathered and not db.postgres and query_terms.included
            else ""
        )
        if not match or not _is_common(db, match):
            match = _search(db, where, entry, query_terms)

    if unread is False:
        where.add(
            f"NOT EXISTS (SELECT 1 FROM unread AS n WHERE n.user_id = ? AND n.entry_id = {entry})",
            user_id,
        )
        where.add(
            f"NOT EXISTS (SELECT 1 FROM marks AS x WHERE x.user_id = ? AND x.entry_id = {entry} AND x.muted_at IS NOT NULL)",
            user_id,
        )
    elif source == "entries AS e" and _has_muted(db, user_id):
        where.add(
            "NOT EXISTS (SELECT 1 FROM marks AS x WHERE x.user_id = ? AND x.entry_id = e.id AND x.muted_at IS NOT NULL)",
            user_id,
        )
    if stream.starred is not None and not source.startswith("marks"):
        where.add(
            f"{'' if stream.starred else 'NOT '}EXISTS (SELECT 1 FROM marks AS y "
            f"WHERE y.user_id = ? AND y.entry_id = {entry} AND y.starred_at IS NOT NULL)",
            user_id,
        )
    for included, names in ("", tags), ("NOT ", stream.not_tags):
        for name in names:
            where.add(
                f"{included}EXISTS (SELECT 1 FROM labels AS t WHERE t.user_id = ? AND t.name = ? AND t.entry_id = {entry})",
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
        f"FROM {source} WHERE {conditions}", tuple(where.values), entry, published, gathered, match
    )


def _has_muted(db: Connection, user_id: int) -> bool:
    row = db.execute(
        "SELECT 1 FROM marks WHERE user_id = ? AND muted_at > 0 LIMIT 1", (user_id,)
    ).fetchone()
    return row is not None


def _has_few_entries(db: Connection, user_id: int) -> bool:
    """Whether to gather a user's entries costs less than to walk past those of others until a page is full.

    How many entries and feeds there are is told, near enough, by the highest ids.
    """
    own, feeds, entries = db.execute(
        "SELECT (SELECT count(*) FROM subscriptions WHERE user_id = ?), "
        "(SELECT max(id) FROM feeds), (SELECT max(id) FROM entries)",
        (user_id,),
    ).fetchone()
    share = own / (feeds or 1)
    return bool((entries or 0) * share < PAGE / max(share, 1e-9))


def _source_feeds(db: Connection, user_id: int, stream: Stream) -> list[int]:
    """The subscriptions that a stream names."""
    some, values = (
        (f" AND feed_id {IN_MANY}", (Many(stream.feeds),))
        if stream.feeds and not stream.folders
        else ("", ())
    )
    rows = db.execute(
        f"SELECT feed_id, coalesce(folder_id, 0) FROM subscriptions WHERE user_id = ?{some}",
        (user_id, *values),
    )
    feeds, folders, all_of_them = (
        set(stream.feeds),
        set(stream.folders),
        not (stream.feeds or stream.folders),
    )
    not_feeds, not_folders = set(stream.not_feeds), set(stream.not_folders)
    return [
        feed
        for feed, folder in rows
        if (all_of_them or feed in feeds or folder in folders)
        and feed not in not_feeds
        and folder not in not_folders
    ]


def _bound_ids(
    db: Connection, where: _Conditions, entry: str, since: float | None, until: float | None
) -> bool:
    """Times of arrival as bounds on ids, so that the walk by id ends where no more can come; False if nothing came then."""
    for time, sign, order, end in (since, ">=", "", "min"), (until, "<", " DESC", "max"):
        if time is not None:
            (edge,) = db.execute(
                f"SELECT {end}(id) FROM (SELECT id FROM entries WHERE first_seen_at {sign} ? "
                f"ORDER BY first_seen_at{order} LIMIT ?) AS around",
                (time, DISORDER),
            ).fetchone()
            if edge is None:
                return False
            where.add(f"{entry} {sign[0]}= ?", edge)
    return True


def _search(db: Connection, where: _Conditions, entry: str, query_terms: SearchTerms) -> str:
    """Narrow to what people typed; nothing is left to be asked then."""
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
    return ""


def _match(query_terms: SearchTerms) -> str:
    return (
        f"({query_terms.included}) NOT ({query_terms.excluded})"
        if query_terms.excluded
        else query_terms.included
    )


def _is_common(db: Connection, expression: str) -> bool:
    """Whether so many entries have it that a page is full sooner by walking past others than by gathering all."""
    newest = "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC LIMIT ?"
    found, first, last = db.execute(
        f"SELECT count(*), min(rowid), (SELECT max(id) FROM entries) FROM ({newest})",
        (expression, SAMPLE),
    ).fetchone()
    return bool(found) and last - first < found * COMMON


# --- pages -------------------------------------------------------------------------------------------------------------


def ids(db: Connection, user_id: int, stream: Stream, limit: int, after: str | None) -> IdPage:
    chosen = selection(db, user_id, stream, ordered=True)
    if chosen is None or limit < 1:
        return IdPage((), None)
    rows: list[Any] = []
    included = limit + 1
    while len(rows) <= limit:
        stretch = _next_rows(db, chosen, stream, included, after)
        rows += _matching(db, chosen.match, stretch) if chosen.match else stretch
        if len(stretch) < included:
            break
        included, after = 2 * included, _encode_cursor(stretch[-1], stream)
    return IdPage(
        tuple(row[0] for row in rows[:limit]),
        _encode_cursor(rows[limit - 1], stream) if len(rows) > limit else None,
    )


def _next_rows(
    db: Connection, chosen: Selection, stream: Stream, count: int, after: str | None
) -> list[Any]:
    """The next rows in the stream's order: ids, and what else they are ordered by."""
    direction, sign = ("ASC", ">") if stream.oldest_first else ("DESC", "<")
    sql, values = chosen.sql, list(chosen.values)
    unordered = " + 0" if chosen.gathered else ""
    if stream.by == "arrival":
        columns, order = chosen.id, f"{chosen.id}{unordered} {direction}"
        if after is not None:
            sql += f" AND {chosen.id} {sign} ?"
            values.append(_decode_cursor(after, 1)[0])
    else:
        columns = f"{chosen.id}, {chosen.published}"
        order = f"{chosen.published}{unordered} {direction}, {chosen.id} {direction}"
        if after is not None:
            at, last = _decode_cursor(after, 2)
            sql += f" AND ({chosen.published}, {chosen.id}) {sign} (?, ?)"
            values += [float(at), last]
    return db.execute(
        f"SELECT {columns} {sql} ORDER BY {order} LIMIT ?", (*values, count)
    ).fetchall()


def _matching(db: Connection, match: str, rows: list[Any]) -> list[Any]:
    """Those that have the words. From the lowest of their ids to the highest the index is read at once; but where these are
    far apart, such as those of one feed, it is asked for each."""
    ids = Many(row[0] for row in rows)
    first, last = min(ids, default=0), max(ids, default=0)
    if last - first < SPARSE * len(ids):
        found = db.execute(
            "SELECT rowid FROM search WHERE search MATCH ? AND rowid BETWEEN ? AND ?",
            (match, first, last),
        )
    else:
        each = "SELECT 1 FROM search WHERE search MATCH ? AND rowid = value"
        found = db.execute(f"SELECT value FROM json_each(?) WHERE EXISTS ({each})", (ids, match))
    having = {i for (i,) in found}
    return [row for row in rows if row[0] in having]


def _encode_cursor(row: Any, stream: Stream) -> str:
    """The key of a row as text."""
    return str(row[0]) if stream.by == "arrival" else f"{row[1]!r},{row[0]}"


def _decode_cursor(after: str, parts: int) -> list[Any]:
    """A key from the text that a page ended with: the id, or publication and id."""
    try:
        *at, last = after.split(",")
        key = [*map(float, at), int(last)]
    except ValueError:
        key = []
    if len(key) != parts or not 0 <= key[-1] < 2**31:
        raise UsageError(f"{after!r} is not where a page of this stream ended")
    return key


def page(db: Connection, user_id: int, stream: Stream, limit: int, after: str | None) -> Page:
    found = ids(db, user_id, stream, limit, after)
    return Page(tuple(items(db, user_id, found.ids)), found.next)


def count(db: Connection, user_id: int, stream: Stream) -> int:
    chosen = selection(db, user_id, stream)
    return (
        0
        if chosen is None
        else int(db.execute(f"SELECT count(*) {chosen.sql}", chosen.values).fetchone()[0])
    )


# --- entries -----------------------------------------------------------------------------------------------------------


def visible(db: Connection, user_id: int, entry_ids: Iterable[int]) -> dict[int, int]:
    """Those of these entries that are the user's, with their feeds: subscribed to, starred or tagged."""
    rows = db.execute(
        f"SELECT e.id, e.feed_id FROM entries AS e WHERE e.id {IN_MANY} AND ("
        "EXISTS (SELECT 1 FROM subscriptions AS s WHERE s.user_id = ? AND s.feed_id = e.feed_id) OR "
        "EXISTS (SELECT 1 FROM marks AS m WHERE m.user_id = ? AND m.entry_id = e.id AND m.starred_at IS NOT NULL) OR "
        "EXISTS (SELECT 1 FROM labels AS l WHERE l.user_id = ? AND l.entry_id = e.id))",
        (Many(i for i in entry_ids if 0 < i < 2**31), user_id, user_id, user_id),
    )
    return dict(rows.fetchall())


def items(db: Connection, user_id: int, entry_ids: Sequence[int]) -> list[Item]:
    """These entries with the user's marks, in this order, those that are the user's."""
    own = visible(db, user_id, entry_ids)
    if not own:
        return []
    here = Many(own)
    entries = {
        row[0]: decode_entry(row)
        for row in db.execute(f"SELECT {ENTRY} FROM entries WHERE id {IN_MANY}", (here,))
    }
    full = db.execute(
        "SELECT f.entry_id, f.content FROM full_texts AS f JOIN entries AS e ON e.id = f.entry_id "
        f"JOIN subscriptions AS s ON s.feed_id = e.feed_id WHERE s.user_id = ? AND s.full_text = 1 AND f.entry_id {IN_MANY}",
        (user_id, here),
    )
    for entry_id, content in full:
        if content:
            entries[entry_id] = replace(entries[entry_id], content=content)
    rows = db.execute(
        f"SELECT entry_id FROM unread WHERE user_id = ? AND entry_id {IN_MANY}", (user_id, here)
    )
    unread = {i for (i,) in rows}
    marks = {}
    for i, *mark, title, content in db.execute(
        f"SELECT entry_id, starred_at, read_at, rating, title, content FROM marks WHERE user_id = ? AND entry_id {IN_MANY}",
        (user_id, here),
    ):
        marks[i] = mark
        if title or content:
            entries[i] = replace(
                entries[i], title=title or entries[i].title, content=content or entries[i].content
            )
    labels: dict[int, list[str]] = {}
    for i, name in db.execute(
        f"SELECT entry_id, name FROM labels WHERE user_id + 0 = ? AND entry_id {IN_MANY} ORDER BY name",
        (user_id, here),
    ):
        labels.setdefault(i, []).append(name)
    duplicates = _duplicates(db, user_id, here)
    return [
        Item(
            entries[i],
            i in unread,
            *(*marks.get(i, (None, None, 0)), tuple(labels.get(i, ())), duplicates.get(i, ())),
        )
        for i in dict.fromkeys(entry_ids)
        if i in entries
    ]


def _duplicates(db: Connection, user_id: int, here: Many) -> dict[int, tuple[int, ...]]:
    """The other entries of the same stories that this user gets."""
    story = {i: i for i in here} | dict(
        db.execute(
            f"SELECT entry_id, story_id FROM folds WHERE entry_id {IN_MANY}", (here,)
        ).fetchall()
    )
    told: dict[int, set[int]] = {}
    for i, first in db.execute(
        f"SELECT entry_id, story_id FROM folds WHERE story_id {IN_MANY}",
        (Many(set(story.values())),),
    ):
        told.setdefault(first, {first}).add(i)
    if not told:
        return {}
    ours = visible(db, user_id, {i for some in told.values() for i in some})
    return {
        i: tuple(sorted((told.get(first, set()) & ours.keys()) - {i})) for i, first in story.items()
    }
