"""Reading statistics of a user, and feed recommendations."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from tidings.i18n import n_
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.evidence import MEDIAN_POSTS, Evidence, polled_days
from tidings.store.schema import NOT_IMPORTED
from tidings.store.user_models import DailyReading, FeedUsage, Statistics, Suggestion

DAY_S = 86400.0
#: Maximum number of feeds in statistics, and maximum number of starred entries searched for links.
MAX_FEEDS, MAX_STARRED = 50, 200
#: Minimum number of subscribers of a recommended feed. A feed with one subscriber may be private.
MIN_READERS = 2
#: Minimum number of starred entries that link to a recommended site.
MIN_LINKS = 2
_LINK = re.compile(r'href="(https?://[^"]+)"')


def statistics(db: Connection, user_id: int, since: float, now: float) -> Statistics:
    """Return statistics of the entries that were received or read since a time.

    Delays are None if there is not enough history for them.
    """
    delays_by_feed: dict[int, list[float]] = {}
    counts: Counter[int] = Counter()
    for feed_id, delay_s in db.execute(
        "SELECT e.feed_id, e.delay_s FROM entries AS e "
        "JOIN subscriptions AS s ON s.feed_id = e.feed_id AND s.user_id = ? "
        f"WHERE e.first_seen_at >= ? AND e.id {NOT_IMPORTED}",
        (user_id, since),
    ):
        counts[feed_id] += 1
        if delay_s is not None:
            delays_by_feed.setdefault(feed_id, []).append(delay_s)
    read: Counter[int] = Counter()
    starred: Counter[int] = Counter()
    days: dict[float, list[int]] = {}
    times_to_read = []
    for feed_id, read_at, starred_at, seen_at in db.execute(
        "SELECT m.feed_id, m.read_at, m.starred_at, e.first_seen_at "
        "FROM entry_states AS m LEFT JOIN entries AS e ON e.id = m.entry_id "
        "WHERE m.user_id = ? AND (m.read_at >= ? OR m.starred_at >= ?)",
        (user_id, since, since),
    ):
        for at, counter, column in (read_at, read, 0), (starred_at, starred, 1):
            if at is not None and at >= since:
                counter[feed_id] += 1
                days.setdefault(at // DAY_S * DAY_S, [0, 0])[column] += 1
        if read_at is not None and seen_at is not None:
            times_to_read.append(read_at - seen_at)
    delays = [d for feed_delays in delays_by_feed.values() for d in feed_delays]
    evidence = Evidence(polled_days(db, now), len(delays))
    order = sorted(counts | read, key=lambda feed: (-read[feed], -counts[feed], feed))[:MAX_FEEDS]
    return Statistics(
        since=since,
        new_entries=counts.total(),
        read=read.total(),
        starred=starred.total(),
        delay_p50_s=_quantile(delays, 0.5) if evidence.has_delays else None,
        delay_p90_s=_quantile(delays, 0.9) if evidence.has_delays else None,
        time_to_read_p50_s=(
            _quantile(times_to_read, 0.5) if len(times_to_read) >= MEDIAN_POSTS else None
        ),
        days=tuple(DailyReading(day, *numbers) for day, numbers in sorted(days.items())),
        feeds=tuple(
            FeedUsage(
                f, counts[f], read[f], starred[f], _median(delays_by_feed.get(f, []), evidence)
            )
            for f in order
        ),
        evidence=evidence,
    )


def _median(delays: Sequence[float], evidence: Evidence) -> float | None:
    """Return the median of one feed's delays, or None if there are too few posts."""
    return _quantile(delays, 0.5) if evidence.has_median(len(delays)) else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least the fraction ``share`` of values does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1] if values else None


def suggestions(db: Connection, user_id: int, limit: int) -> list[Suggestion]:
    """Return recommended feeds for a user.

    They are feeds of users with similar subscriptions, feeds of sites to which starred entries
    link, and feeds with many subscribers. Feeds of other users are recommended only if several
    users read them, and never if the URL may contain a secret (a query or credentials).
    """
    suggestion_by_url: dict[str, Suggestion] = {}
    sources: tuple[tuple[list[Any], Callable[[int], str]], ...] = (
        (
            _similar(db, user_id),
            lambda n: n_(
                "read by %(num)s user with similar subscriptions",
                "read by %(num)s users with similar subscriptions",
                n,
            ),
        ),
        (
            _linked(db, user_id),
            lambda n: n_(
                "linked from %(num)s of your starred posts",
                "linked from %(num)s of your starred posts",
                n,
            ),
        ),
        (
            _others(db, user_id, None),
            lambda n: n_("read by %(num)s user", "read by %(num)s users", n),
        ),
    )
    for rows, reason in sources:
        for feed_id, url, title, number in rows:
            if "?" not in url and "@" not in url:
                suggestion_by_url.setdefault(
                    url, Suggestion(url, title or url, feed_id, reason(number))
                )
    return list(suggestion_by_url.values())[:limit]


def _similar(db: Connection, user_id: int) -> list[Any]:
    """Return feeds of the users with the most similar subscriptions (Jaccard similarity)."""
    rows = db.execute(
        "SELECT t.user_id, count(*), "
        "(SELECT count(*) FROM subscriptions AS a WHERE a.user_id = t.user_id) "
        "FROM subscriptions AS s JOIN subscriptions AS t "
        "ON t.feed_id = s.feed_id AND t.user_id <> s.user_id "
        "WHERE s.user_id = ? GROUP BY t.user_id",
        (user_id,),
    ).fetchall()
    (own,) = db.execute(
        "SELECT count(*) FROM subscriptions WHERE user_id = ?", (user_id,)
    ).fetchone()
    similar = sorted(rows, key=lambda row: row[1] / (own + row[2] - row[1]), reverse=True)[:20]
    return _others(db, user_id, [row[0] for row in similar])


def _others(db: Connection, user_id: int, readers: Sequence[int] | None) -> list[Any]:
    """Return the most popular feeds of other users to which this user is not subscribed.

    ``readers`` are the ids of these users; None means all users.
    """
    only = "" if readers is None else f"s.user_id {IN_MANY} AND "
    return db.execute(
        "SELECT f.id, f.url, f.title, count(*) "
        "FROM subscriptions AS s JOIN feeds AS f ON f.id = s.feed_id "
        f"WHERE {only}f.retired_at IS NULL AND NOT EXISTS "
        "(SELECT 1 FROM subscriptions AS o WHERE o.user_id = ? AND o.feed_id = f.id) "
        "GROUP BY f.id, f.url, f.title HAVING count(*) >= ? ORDER BY count(*) DESC, f.id LIMIT ?",
        (*([] if readers is None else [Many(readers)]), user_id, MIN_READERS, MAX_FEEDS),
    ).fetchall()


def _linked(db: Connection, user_id: int) -> list[Any]:
    """Return the sites to which the user's newest starred entries link, with known feeds."""
    rows = db.execute(
        "SELECT e.url, e.content FROM entry_states AS m JOIN entries AS e ON e.id = m.entry_id "
        "WHERE m.user_id = ? AND m.starred_at IS NOT NULL ORDER BY m.entry_id DESC LIMIT ?",
        (user_id, MAX_STARRED),
    )
    hosts: Counter[str] = Counter()
    for url, content in rows:
        hosts.update({_host(link) for link in _LINK.findall(content)} - {_host(url), ""})
    if not hosts:
        return []
    known: dict[str, tuple[int, str, str]] = {}
    for feed_id, url, title, site, own, readers in db.execute(
        "SELECT f.id, f.url, f.title, f.site_url, count(*) FILTER (WHERE s.user_id = ?), count(*) "
        "FROM feeds AS f JOIN subscriptions AS s ON s.feed_id = f.id WHERE f.retired_at IS NULL "
        "GROUP BY f.id, f.url, f.title, f.site_url",
        (user_id,),
    ):
        if own:
            hosts[_host(site)] = hosts[_host(url)] = 0
        elif readers >= MIN_READERS:
            known[_host(site or url)] = (feed_id, url, title)
    often = [(host, number) for host, number in hosts.most_common(MAX_FEEDS) if number >= MIN_LINKS]
    return [(*known.get(host, (None, f"https://{host}/", host)), number) for host, number in often]


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").removeprefix("www.")
    except ValueError:
        return ""
