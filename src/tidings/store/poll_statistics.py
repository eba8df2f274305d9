"""How late, how costly, and which feeds need a look: what the administrator's page about time is made from."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from tidings.model import Floats
from tidings.redaction import redact_password
from tidings.store.connection import Connection
from tidings.store.evidence import MEDIAN_POSTS, Evidence, polled_days

DAY_S = 86400.0
#: The log of polls is complete for eight days.
DAYS = 7
#: Feeds named for each kind of trouble.
MAX_PER_KIND = 8
#: A feed is broken that has failed so many times in a row, or for so long: once is a bad day, or a host that limits us, but
#: feeds that are rarely asked take days to fail three times.
BROKEN_FAILURES, BROKEN_S = 3, DAY_S
#: A feed is late if its posts are so many times as late as all.
LATE = 3.0
#: A feed is silent that has been so for longer than this, and for so many of its usual gaps.
SILENT_S, SILENT_GAPS = 30 * DAY_S, 10.0
#: Dates so far in the future are no mistake of a clock.
MAX_CLOCK_SKEW_S = 300.0
#: Answers that mean "less often".
RATE_LIMIT_STATUSES = (429, 503)


class Day(Struct, frozen=True):
    """Twenty-four hours."""

    at: float  #: when they began
    requests: int  #: requests to feeds
    found: int  #: of these, had something new
    unchanged: int  #: answered with 304
    failed: int
    pushed: int  #: entries that hubs or neighbours sent
    bytes: int
    new_entries: int  #: entries
    p50_s: float | None  #: None where there are too few posts: see `store.evidence`
    p90_s: float | None
    missed: float
    recovered: int

    @property
    def has_data(self) -> bool:
        """Whether anything was polled or received: a day before the first poll, or without power, is a gap."""
        return bool(self.requests or self.new_entries)


class Week(Struct, frozen=True):
    """The last seven days, and what they have in common."""

    days: tuple[Day, ...]
    delays_s: Floats  #: of all entries of which it can be told
    p50_s: float | None  #: None where there is too little history: see `store.evidence`
    p90_s: float | None
    evidence: Evidence

    def total(self, what: str) -> float:
        return float(sum(getattr(day, what) for day in self.days))


class RateLimitedHost(Struct, frozen=True):
    """A host that has asked for less."""

    host: str
    refusals: int  #: requests of the last week
    last_at: float


class FeedProblem(Struct, frozen=True):
    """A feed that somebody should look at. ``kind`` is broken, late, silent or lying."""

    kind: str
    feed_id: int
    title: str
    since: float | None  #: broken or silent
    number: float  #: failures, mean delay, usual gap, posts from the future
    detail: str = ""


def week(db: Connection, now: float) -> Week:
    """The last seven days, with the delays that there is enough history for."""
    begins = [now - DAY_S * back for back in range(DAYS, 0, -1)]
    delays = [_delays(db, begin, begin + DAY_S) for begin in begins]
    every = np.concatenate(delays)
    evidence = Evidence(polled_days(db, now), len(every))
    days = [
        _day(db, begin, begin + DAY_S, some, evidence)
        for begin, some in zip(begins, delays, strict=True)
    ]
    p50_s, p90_s = (
        _quantile(every, share) if evidence.has_delays else None for share in (0.5, 0.9)
    )
    return Week(tuple(days), every, p50_s, p90_s, evidence)


def _delays(db: Connection, begin: float, end: float) -> Floats:
    rows = db.execute(
        "SELECT delay_s FROM entries WHERE first_seen_at >= ? AND first_seen_at < ? AND delay_s IS NOT NULL",
        (begin, end),
    )
    return np.fromiter((row[0] for row in rows), dtype=np.float64)


def _day(db: Connection, begin: float, end: float, delays: Floats, evidence: Evidence) -> Day:
    requests, found, unchanged, failed, size = db.execute(
        "SELECT count(*) FILTER (WHERE source = 'poll'), count(*) FILTER (WHERE source = 'poll' AND new > 0), "
        "count(*) FILTER (WHERE status = 304), count(*) FILTER (WHERE error_kind <> ''), "
        "coalesce(sum(bytes), 0) FROM polls WHERE at >= ? AND at < ?",
        (begin, end),
    ).fetchone()
    new_entries, pushed = db.execute(
        "SELECT count(*), count(*) FILTER (WHERE source IN ('push', 'neighbour', 'confirmed')) FROM entries "
        "WHERE first_seen_at >= ? AND first_seen_at < ?",
        (begin, end),
    ).fetchone()
    missed, recovered = db.execute(
        "SELECT coalesce(sum(lost), 0.0), coalesce(sum(recovered), 0) FROM gaps WHERE found_at >= ? AND found_at < ?",
        (begin, end),
    ).fetchone()
    late = (
        _quantile(delays, 0.5) if evidence.has_median(len(delays)) else None,
        _quantile(delays, 0.9) if evidence.has_p90(len(delays)) else None,
    )
    return Day(
        begin,
        requests,
        found,
        unchanged,
        failed,
        pushed,
        int(size),
        new_entries,
        *late,
        float(missed),
        int(recovered),
    )


def _quantile(delays: Floats, share: float) -> float | None:
    """The smallest delay that at least this share does not exceed."""
    if not len(delays):
        return None
    rank = math.ceil(len(delays) * share) - 1
    return float(np.partition(delays, rank)[rank])


def peer_arrivals(db: Connection, feed_id: int, since: float) -> list[tuple[float, int]]:
    """When neighbours brought entries of a feed, and how many."""
    return db.execute(
        "SELECT first_seen_at, count(*) FROM entries WHERE feed_id = ? AND first_seen_at >= ? "
        "AND source IN ('neighbour', 'confirmed') GROUP BY first_seen_at ORDER BY first_seen_at",
        (feed_id, since),
    ).fetchall()


def rate_limited_hosts(db: Connection, now: float) -> list[RateLimitedHost]:
    """Hosts that limit us, the strictest first."""
    rows = db.execute(
        "SELECT f.host, count(*), max(p.at) FROM polls AS p JOIN feeds AS f ON f.id = p.feed_id "
        f"WHERE p.at >= ? AND p.status IN {RATE_LIMIT_STATUSES} GROUP BY f.host ORDER BY 2 DESC, 1 LIMIT ?",
        (now - DAYS * DAY_S, MAX_PER_KIND),
    )
    return [RateLimitedHost(*row) for row in rows]


def feed_problems(db: Connection, now: float) -> list[FeedProblem]:
    """Worst first within each kind."""
    return [*_broken(db, now), *_late(db, now), *_silent(db, now), *_future_dated(db, now)]


def _broken(db: Connection, now: float) -> Iterator[FeedProblem]:
    rows = db.execute(
        "SELECT id, title, url, failing_since, errors, last_error FROM feeds "
        "WHERE (errors >= ? OR errors > 0 AND failing_since <= ?) AND retired_at IS NULL ORDER BY failing_since LIMIT ?",
        (BROKEN_FAILURES, now - BROKEN_S, MAX_PER_KIND),
    )
    for feed_id, title, url, since, errors, detail in rows:
        yield FeedProblem("broken", feed_id, title or redact_password(url), since, errors, detail)


def _late(db: Connection, now: float) -> Iterator[FeedProblem]:
    since = now - DAYS * DAY_S
    usual, posts = db.execute(
        "SELECT avg(delay_s), count(delay_s) FROM entries WHERE first_seen_at >= ?", (since,)
    ).fetchone()
    if not Evidence(polled_days(db, now), posts).has_delays:
        return
    rows = db.execute(
        "SELECT f.id, f.title, f.url, late FROM (SELECT feed_id, avg(delay_s) AS late FROM entries WHERE first_seen_at >= ? "
        "GROUP BY feed_id HAVING avg(delay_s) > ? AND count(delay_s) >= ?) AS e "
        "JOIN feeds AS f ON f.id = e.feed_id ORDER BY late DESC LIMIT ?",
        (since, LATE * usual, MEDIAN_POSTS, MAX_PER_KIND),
    )
    for feed_id, title, url, late in rows:
        yield FeedProblem("late", feed_id, title or redact_password(url), None, late)


def _silent(db: Connection, now: float) -> Iterator[FeedProblem]:
    rows = db.execute(
        "SELECT id, title, url, newest, usual FROM (SELECT id, title, url, coalesce(usual_gap_s, 0.0) AS usual, "
        "(SELECT max(published_at) FROM entries WHERE feed_id = feeds.id) AS newest FROM feeds "
        "WHERE retired_at IS NULL AND errors = 0) AS f WHERE newest < ? AND newest < ? - ? * usual ORDER BY newest LIMIT ?",
        (now - SILENT_S, now, SILENT_GAPS, MAX_PER_KIND),
    )
    for feed_id, title, url, newest, usual in rows:
        yield FeedProblem("silent", feed_id, title or redact_password(url), newest, usual)


def _future_dated(db: Connection, now: float) -> Iterator[FeedProblem]:
    rows = db.execute(
        "SELECT f.id, f.title, f.url, posts FROM (SELECT feed_id, count(*) AS posts FROM entries "
        "WHERE first_seen_at >= ? AND published_told > first_seen_at + ? GROUP BY feed_id) AS e "
        "JOIN feeds AS f ON f.id = e.feed_id ORDER BY posts DESC LIMIT ?",
        (now - DAYS * DAY_S, MAX_CLOCK_SKEW_S, MAX_PER_KIND),
    )
    for feed_id, title, url, posts in rows:
        yield FeedProblem("lying", feed_id, title or redact_password(url), None, posts)
