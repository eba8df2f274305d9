"""What the store can tell a reader about their reading: statistics, and feeds they may like."""

import math
from collections import Counter
from collections.abc import Sequence
from re import compile as pattern
from typing import Any
from urllib.parse import urlsplit

from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.evidence import MEDIAN_POSTS, Evidence, polled_days
from tidings.store.user_models import DailyReading, FeedUsage, Statistics, Suggestion

DAY_S = 86400.0
#: Feeds that statistics name; starred entries that are looked through for links.
MAX_FEEDS, MAX_STARRED = 50, 200
#: A feed is suggested to others only when so many read it: one person's feed may be that person's secret.
MIN_READERS = 2
#: A site is suggested when so many starred entries link to it.
MIN_LINKS = 2
_LINK = pattern(r'href="(https?://[^"]+)"')


def statistics(db: Connection, user_id: int, since: float, now: float) -> Statistics:
    """Of the entries that came, or were read, since then; medians where there is enough history for them."""
    new_entries: dict[int, list[float]] = {}
    counts: Counter[int] = Counter()
    for feed_id, delay_s in db.execute(
        "SELECT e.feed_id, e.delay_s FROM entries AS e JOIN subscriptions AS s ON s.feed_id = e.feed_id AND s.user_id = ? "
        "WHERE e.first_seen_at >= ?",
        (user_id, since),
    ):
        counts[feed_id] += 1
        if delay_s is not None:
            new_entries.setdefault(feed_id, []).append(delay_s)
    read: Counter[int] = Counter()
    starred: Counter[int] = Counter()
    days: dict[float, list[int]] = {}
    waited = []
    for feed_id, read_at, starred_at, seen_at in db.execute(
        "SELECT m.feed_id, m.read_at, m.starred_at, e.first_seen_at "
        "FROM marks AS m LEFT JOIN entries AS e ON e.id = m.entry_id "
        "WHERE m.user_id = ? AND (m.read_at >= ? OR m.starred_at >= ?)",
        (user_id, since, since),
    ):
        for at, counter, place in (read_at, read, 0), (starred_at, starred, 1):
            if at is not None and at >= since:
                counter[feed_id] += 1
                days.setdefault(at // DAY_S * DAY_S, [0, 0])[place] += 1
        if read_at is not None and seen_at is not None:
            waited.append(read_at - seen_at)
    delays = [d for some in new_entries.values() for d in some]
    evidence = Evidence(polled_days(db, now), len(delays))
    order = sorted(counts | read, key=lambda feed: (-read[feed], -counts[feed], feed))[:MAX_FEEDS]
    return Statistics(
        since=since,
        new_entries=counts.total(),
        read=read.total(),
        starred=starred.total(),
        delay_p50_s=_quantile(delays, 0.5) if evidence.has_delays else None,
        delay_p90_s=_quantile(delays, 0.9) if evidence.has_delays else None,
        time_to_read_p50_s=_quantile(waited, 0.5) if len(waited) >= MEDIAN_POSTS else None,
        days=tuple(DailyReading(day, *both) for day, both in sorted(days.items())),
        feeds=tuple(
            FeedUsage(f, counts[f], read[f], starred[f], _median(new_entries.get(f, []), evidence))
            for f in order
        ),
        evidence=evidence,
    )


def _median(delays: Sequence[float], evidence: Evidence) -> float | None:
    """Of one feed's posts; None where they are too few."""
    return _quantile(delays, 0.5) if evidence.has_median(len(delays)) else None


def _quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share does not exceed."""
    return sorted(values)[math.ceil(len(values) * share) - 1] if values else None


def suggestions(db: Connection, user_id: int, limit: int) -> list[Suggestion]:
    """The best reasons first: read by people like you, linked from what you starred, read by many.

    Other users' feeds are only named when several read them, and never when the address may hold one reader's secret.
    """
    found: dict[str, Suggestion] = {}
    for rows, reason in (
        (_similar(db, user_id), "read by {} people whose subscriptions are like yours"),
        (_linked(db, user_id), "linked from {} entries that you starred"),
        (_others(db, user_id, None), "read by {} people here"),
    ):
        for feed_id, url, title, number in rows:
            if "?" not in url and "@" not in url:
                found.setdefault(url, Suggestion(url, title or url, feed_id, reason.format(number)))
    return list(found.values())[:limit]


def _similar(db: Connection, user_id: int) -> list[Any]:
    """Feeds of those who share the most subscriptions with this user, by how much they share (Jaccard)."""
    rows = db.execute(
        "SELECT t.user_id, count(*), (SELECT count(*) FROM subscriptions AS a WHERE a.user_id = t.user_id) "
        "FROM subscriptions AS s JOIN subscriptions AS t ON t.feed_id = s.feed_id AND t.user_id <> s.user_id "
        "WHERE s.user_id = ? GROUP BY t.user_id",
        (user_id,),
    ).fetchall()
    own = db.execute("SELECT count(*) FROM subscriptions WHERE user_id = ?", (user_id,)).fetchone()[
        0
    ]
    like = sorted(rows, key=lambda row: row[1] / (own + row[2] - row[1]), reverse=True)[:20]
    return _others(db, user_id, [row[0] for row in like])


def _others(db: Connection, user_id: int, readers: Sequence[int] | None) -> list[Any]:
    """Feeds that the most of these, or of all, read, and this user does not."""
    only = "" if readers is None else f"s.user_id {IN_MANY} AND "
    return db.execute(
        "SELECT f.id, f.url, f.title, count(*) FROM subscriptions AS s JOIN feeds AS f ON f.id = s.feed_id "
        f"WHERE {only}f.retired_at IS NULL AND NOT EXISTS "
        "(SELECT 1 FROM subscriptions AS o WHERE o.user_id = ? AND o.feed_id = f.id) "
        "GROUP BY f.id, f.url, f.title HAVING count(*) >= ? ORDER BY count(*) DESC, f.id LIMIT ?",
        (*([] if readers is None else [Many(readers)]), user_id, MIN_READERS, MAX_FEEDS),
    ).fetchall()


def _linked(db: Connection, user_id: int) -> list[Any]:
    """The sites that the user's newest starred entries link to, with their feeds where those are known."""
    rows = db.execute(
        "SELECT e.url, e.content FROM marks AS m JOIN entries AS e ON e.id = m.entry_id "
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
        "SELECT f.id, f.url, f.title, f.site_url, count(*) FILTER (WHERE s.user_id = ?), count(*) FROM feeds AS f "
        "JOIN subscriptions AS s ON s.feed_id = f.id WHERE f.retired_at IS NULL GROUP BY f.id, f.url, f.title, f.site_url",
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
