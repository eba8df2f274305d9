"""Statistics of delays and requests by day, rate-limited hosts and feeds with problems."""

import math
from collections.abc import Iterator

import numpy as np
from msgspec import Struct, field

from tidings.model import Floats
from tidings.redaction import redact_password
from tidings.store.connection import Connection
from tidings.store.evidence import MEDIAN_POSTS, Evidence, polled_days
from tidings.store.schema import NOT_IMPORTED

DAY_S = 86400.0
#: Number of days that the statistics cover. The poll log is complete for eight days.
DAYS = 7
#: Maximum number of feeds listed per kind of problem.
MAX_PER_KIND = 8
#: Number of consecutive failures, or time in seconds since the first of them, after which a feed is
#: broken. A single failure may be a rate limit, but feeds that are rarely polled take days to fail
#: three times.
BROKEN_FAILURES, BROKEN_S = 3, DAY_S
#: Ratio of a feed's mean delay to the mean delay of all feeds above which the feed is late.
LATE = 3.0
#: Time in seconds, and multiple of the usual time between two entries, after which a feed without
#: new entries is silent. Both must have passed.
SILENT_S, SILENT_GAPS = 30 * DAY_S, 10.0
#: Maximum time in seconds by which a date may be in the future because of clock skew.
MAX_CLOCK_SKEW_S = 300.0
#: HTTP status codes that mean a rate limit.
RATE_LIMIT_STATUSES = (429, 503)


class Day(Struct, frozen=True):
    """Statistics of a period of 24 hours."""

    at: float  #: start of the period
    requests: int = field(name="asked")  #: number of requests to feeds
    polls_with_new_entries: int = field(name="found")  #: number of polls that found new entries
    unchanged: int  #: number of polls that were answered with 304
    failed: int
    pushed: int  #: number of entries from hubs or peers
    bytes: int
    new_entries: int = field(name="came")
    p50_s: float | None  #: median delay, or None if there are too few posts (`store.evidence`)
    p90_s: float | None
    missed: float = field(name="lost")
    recovered: int

    @property
    def has_data(self) -> bool:
        """Whether any feed was polled or any entry was received on this day."""
        return bool(self.requests or self.new_entries)


class Week(Struct, frozen=True):
    """Statistics of the last seven days."""

    days: tuple[Day, ...]
    delays_s: Floats  #: known delays of all entries
    p50_s: float | None  #: median delay, or None if there is too little history (`store.evidence`)
    p90_s: float | None
    evidence: Evidence

    def total(self, attribute: str) -> float:
        """Return the sum of an attribute over all days."""
        return float(sum(getattr(day, attribute) for day in self.days))


class RateLimitedHost(Struct, frozen=True):
    """Host that has answered with a rate limit (429 or 503)."""

    host: str
    refusals: int = field(name="refused")  #: number of refused requests in the last week
    last_at: float


class FeedProblem(Struct, frozen=True):
    """Feed that needs attention.

    ``kind`` is broken, late, silent or `lying` (entries dated in the future).
    """

    kind: str
    feed_id: int
    title: str
    since: float | None  #: time of the first failure, or of the newest entry
    number: float  #: number of failures, mean delay, usual gap, or number of future-dated entries
    detail: str = field(default="", name="words")


def week(db: Connection, now: float) -> Week:
    """Return the statistics of the last seven days.

    Delays for which there is not enough history are None.
    """
    starts = [now - DAY_S * back for back in range(DAYS, 0, -1)]
    delays = [_delays(db, start, start + DAY_S) for start in starts]
    all_delays = np.concatenate(delays)
    evidence = Evidence(polled_days(db, now), len(all_delays))
    days = [
        _day(db, start, start + DAY_S, day_delays, evidence)
        for start, day_delays in zip(starts, delays, strict=True)
    ]
    p50_s, p90_s = (
        _quantile(all_delays, share) if evidence.has_delays else None for share in (0.5, 0.9)
    )
    return Week(tuple(days), all_delays, p50_s, p90_s, evidence)


def _delays(db: Connection, start: float, end: float) -> Floats:
    rows = db.execute(
        "SELECT delay_s FROM entries "
        "WHERE first_seen_at >= ? AND first_seen_at < ? AND delay_s IS NOT NULL",
        (start, end),
    )
    return np.fromiter((row[0] for row in rows), dtype=np.float64)


def _day(db: Connection, start: float, end: float, delays: Floats, evidence: Evidence) -> Day:
    requests, polls_with_new_entries, unchanged, failed, size = db.execute(
        "SELECT count(*) FILTER (WHERE source = 'poll'), "
        "count(*) FILTER (WHERE source = 'poll' AND new > 0), "
        "count(*) FILTER (WHERE status = 304), count(*) FILTER (WHERE error_kind <> ''), "
        "coalesce(sum(bytes), 0) FROM polls WHERE at >= ? AND at < ?",
        (start, end),
    ).fetchone()
    new_entries, pushed = db.execute(
        "SELECT count(*), count(*) FILTER (WHERE source IN ('push', 'neighbour', 'confirmed')) "
        f"FROM entries WHERE first_seen_at >= ? AND first_seen_at < ? AND id {NOT_IMPORTED}",
        (start, end),
    ).fetchone()
    missed, recovered = db.execute(
        "SELECT coalesce(sum(missed), 0.0), coalesce(sum(recovered), 0) FROM gaps "
        "WHERE found_at >= ? AND found_at < ?",
        (start, end),
    ).fetchone()
    quantiles = (
        _quantile(delays, 0.5) if evidence.has_median(len(delays)) else None,
        _quantile(delays, 0.9) if evidence.has_p90(len(delays)) else None,
    )
    return Day(
        start,
        requests,
        polls_with_new_entries,
        unchanged,
        failed,
        pushed,
        int(size),
        new_entries,
        *quantiles,
        float(missed),
        int(recovered),
    )


def _quantile(delays: Floats, share: float) -> float | None:
    """Return the smallest delay that at least the fraction ``share`` of delays does not exceed."""
    if not len(delays):
        return None
    rank = math.ceil(len(delays) * share) - 1
    return float(np.partition(delays, rank)[rank])


def peer_arrivals(db: Connection, feed_id: int, since: float) -> list[tuple[float, int]]:
    """List the times at which peers sent entries of a feed, with the numbers of entries."""
    return db.execute(
        "SELECT first_seen_at, count(*) FROM entries WHERE feed_id = ? AND first_seen_at >= ? "
        "AND source IN ('neighbour', 'confirmed') GROUP BY first_seen_at ORDER BY first_seen_at",
        (feed_id, since),
    ).fetchall()


def rate_limited_hosts(db: Connection, now: float) -> list[RateLimitedHost]:
    """List hosts that limited the rate of requests in the last week, most refusals first."""
    rows = db.execute(
        "SELECT f.host, count(*), max(p.at) FROM polls AS p JOIN feeds AS f ON f.id = p.feed_id "
        f"WHERE p.at >= ? AND p.status IN {RATE_LIMIT_STATUSES} "
        "GROUP BY f.host ORDER BY 2 DESC, 1 LIMIT ?",
        (now - DAYS * DAY_S, MAX_PER_KIND),
    )
    return [RateLimitedHost(*row) for row in rows]


def feed_problems(db: Connection, now: float) -> list[FeedProblem]:
    """List feeds that need attention, worst first within each kind."""
    return [*_broken(db, now), *_late(db, now), *_silent(db, now), *_future_dated(db, now)]


def _broken(db: Connection, now: float) -> Iterator[FeedProblem]:
    rows = db.execute(
        "SELECT id, title, url, failing_since, errors, last_error FROM feeds "
        "WHERE (errors >= ? OR errors > 0 AND failing_since <= ?) AND retired_at IS NULL "
        "ORDER BY failing_since LIMIT ?",
        (BROKEN_FAILURES, now - BROKEN_S, MAX_PER_KIND),
    )
    for feed_id, title, url, since, errors, detail in rows:
        yield FeedProblem("broken", feed_id, title or redact_password(url), since, errors, detail)


def _late(db: Connection, now: float) -> Iterator[FeedProblem]:
    since = now - DAYS * DAY_S
    mean_delay_s, posts = db.execute(
        "SELECT avg(delay_s), count(delay_s) FROM entries WHERE first_seen_at >= ?", (since,)
    ).fetchone()
    if not Evidence(polled_days(db, now), posts).has_delays:
        return
    rows = db.execute(
        "SELECT f.id, f.title, f.url, late FROM "
        "(SELECT feed_id, avg(delay_s) AS late FROM entries WHERE first_seen_at >= ? "
        "GROUP BY feed_id HAVING avg(delay_s) > ? AND count(delay_s) >= ?) AS e "
        "JOIN feeds AS f ON f.id = e.feed_id ORDER BY late DESC LIMIT ?",
        (since, LATE * mean_delay_s, MEDIAN_POSTS, MAX_PER_KIND),
    )
    for feed_id, title, url, late in rows:
        yield FeedProblem("late", feed_id, title or redact_password(url), None, late)


def _silent(db: Connection, now: float) -> Iterator[FeedProblem]:
    rows = db.execute(
        "SELECT id, title, url, newest, usual FROM "
        "(SELECT id, title, url, coalesce(usual_gap_s, 0.0) AS usual, "
        "(SELECT max(published_at) FROM entries "
        f"WHERE feed_id = feeds.id AND id {NOT_IMPORTED}) AS newest FROM feeds "
        "WHERE retired_at IS NULL AND errors = 0) AS f "
        "WHERE newest < ? AND newest < ? - ? * usual ORDER BY newest LIMIT ?",
        (now - SILENT_S, now, SILENT_GAPS, MAX_PER_KIND),
    )
    for feed_id, title, url, newest, usual in rows:
        yield FeedProblem("silent", feed_id, title or redact_password(url), newest, usual)


def _future_dated(db: Connection, now: float) -> Iterator[FeedProblem]:
    rows = db.execute(
        "SELECT f.id, f.title, f.url, posts FROM (SELECT feed_id, count(*) AS posts FROM entries "
        "WHERE first_seen_at >= ? AND declared_published_at > first_seen_at + ? "
        "GROUP BY feed_id) AS e "
        "JOIN feeds AS f ON f.id = e.feed_id ORDER BY posts DESC LIMIT ?",
        (now - DAYS * DAY_S, MAX_CLOCK_SKEW_S, MAX_PER_KIND),
    )
    for feed_id, title, url, posts in rows:
        yield FeedProblem("lying", feed_id, title or redact_password(url), None, posts)
