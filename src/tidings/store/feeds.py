"""Queries for feeds, their poll schedule, policy estimates, and WebSub subscriptions."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tidings.document import Hints
from tidings.reasons import decode, encode, reason
from tidings.redaction import redact_password
from tidings.store.connection import IN_MANY, Connection, Many
from tidings.store.feed_models import (
    Estimate,
    Feed,
    FeedState,
    FeedSummary,
    NewSubscription,
    Pause,
    PushSubscription,
    Schedule,
    SubscribeResult,
)
from tidings.store.ingest import add_unread_for_subscriber, move_subscribers, update_feed_weights
from tidings.store.schema import NOT_IMPORTED

_COUNTS = ("window", "dropped", "by_age", "errors", "shown", "stated_by")
_NUMBERS = (
    "weight",
    "added_at",
    "min_interval_s",
    "stated_s",
    "not_modified",
    "document_bytes",
    "poll_bytes",
)
#: Columns that may be NULL, with the number that stands for NULL in arrays.
_OPTIONAL = {
    "last_poll_at": -math.inf,
    "next_poll_at": math.inf,
    "earliest_at": -math.inf,
    "usual_gap_s": math.nan,
}
#: Data type of one row in the array from which policies build their feed table and poll
#: constraints.
TIMING = np.dtype(
    [
        ("feed_id", "i8"),
        *((name, "i8") for name in _COUNTS),
        *((name, "f8") for name in (*_NUMBERS, *_OPTIONAL)),
    ]
)
_TIMING = ", ".join(["id", *(f'"{name}"' for name in (*_COUNTS, *_NUMBERS, *_OPTIONAL))])

STATE_COLUMNS = FeedState.__struct_fields__
REASON = STATE_COLUMNS.index("reason")
_BEFORE_STATE = Feed.__struct_fields__.index("state")
FEED = ", ".join(
    f'feeds."{name}"' for name in (*Feed.__struct_fields__[:_BEFORE_STATE], *STATE_COLUMNS)
)
WIDTH = _BEFORE_STATE + len(STATE_COLUMNS)
_QUOTED = [f'"{name}"' for name in STATE_COLUMNS]  # "window" is a keyword of SQL
_INSERT = (
    f"INSERT INTO feeds (url, host, added_at, {', '.join(_QUOTED)}) "
    f"VALUES (?, ?, ?{', ?' * len(_QUOTED)}) RETURNING id"
)
_UPDATE = (
    f"UPDATE feeds SET {', '.join(f'{name} = ?' for name in _QUOTED)} "
    "WHERE id = ? AND retired_at IS NULL"
)
_RESCHEDULE = (
    "UPDATE feeds SET next_poll_at = ?, reason = ? WHERE id = ? AND retired_at IS NULL "
    "AND coalesce(?, next_poll_at, 0) = coalesce(next_poll_at, 0)"
)

_hubs = msgspec.json.Decoder(tuple[str, ...])
_hints = msgspec.json.Decoder(Hints)
_json = msgspec.json.Encoder()


def state_row(state: FeedState) -> tuple[Any, ...]:
    """Return a state as a row with the columns of `STATE_COLUMNS`."""
    *plain, hubs, hints = msgspec.structs.astuple(state)
    plain[REASON] = encode(state.reason)
    return (*plain, _json.encode(hubs).decode(), _json.encode(hints).decode())


def decode_feed(row: Sequence[Any]) -> Feed:
    """Return a feed from a row with the columns of `FEED`."""
    *plain, hubs, hints = row[_BEFORE_STATE:WIDTH]
    plain[REASON] = decode(plain[REASON])
    state = FeedState(*(*plain, _hubs.decode(hubs), _hints.decode(hints)))
    return Feed(*(*row[:_BEFORE_STATE], state))


def write_states(db: Connection, states: Sequence[tuple[int, FeedState]]) -> None:
    """Store the states of feeds, except of feeds that are retired."""
    db.executemany(_UPDATE, [(*state_row(state), feed_id) for feed_id, state in states])


def host_of(url: str) -> str:
    """Return scheme, host name and port of a URL, which is the unit of host leases."""
    scheme, _, rest = url.strip().lower().partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


def find_feed_id(db: Connection, url: str) -> int | None:
    """Return the id of the feed with this present or former URL, or None.

    Former URLs take precedence: a feed that was merged into another feed is found as the other
    feed.
    """
    row = db.execute("SELECT feed_id FROM aliases WHERE url = ?", (url,)).fetchone()
    row = row or db.execute("SELECT id FROM feeds WHERE url = ?", (url,)).fetchone()
    return int(row[0]) if row else None


def find(db: Connection, feed: int | str) -> Feed | None:
    """Return a feed by its id, or by its present or a former URL, or None."""
    feed_id = find_feed_id(db, feed) if isinstance(feed, str) else feed
    row = db.execute(f"SELECT {FEED} FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    return decode_feed(row) if row else None


def add_subscriptions(
    db: Connection, new_subscriptions: Sequence[NewSubscription], user_id: int, now: float
) -> list[SubscribeResult]:
    """Subscribe a user to feeds. A retired feed becomes active again."""
    results = []
    for new in new_subscriptions:
        feed_id = find_feed_id(db, new.url)
        feed_new = feed_id is None
        if feed_id is None:
            state = FeedState(
                site_url=new.site_url, next_poll_at=new.first_poll_at, reason=new.reason
            )
            feed_id = int(
                db.execute(_INSERT, (new.url, host_of(new.url), now, *state_row(state))).fetchone()[
                    0
                ]
            )
        else:
            db.execute(
                "UPDATE feeds SET retired_at = NULL, retired_reason = '', next_poll_at = ?, "
                "reason = ? WHERE id = ? AND retired_at IS NOT NULL",
                (new.first_poll_at, encode(reason("added_again")), feed_id),
            )
        inserted = db.execute(
            "INSERT INTO subscriptions (user_id, feed_id, folder_id, title, added_at) "
            "VALUES (?, ?, ?, ?, ?) ON CONFLICT (user_id, feed_id) DO NOTHING",
            (user_id, feed_id, folder_id(db, user_id, new.folder), new.title, now),
        )
        result = SubscribeResult(new.url, feed_id, feed_new, inserted.rowcount == 1)
        results.append(result)
        if result.subscription_new and not feed_new:
            add_unread_for_subscriber(db, user_id, feed_id)
            update_feed_weights(db, [feed_id], now)
    return results


def folder_id(db: Connection, user_id: int, name: str) -> int | None:
    """Return the id of a user's folder, which is created if necessary, or None without a name."""
    if not name:
        return None
    db.execute(
        "INSERT INTO folders (user_id, name) VALUES (?, ?) ON CONFLICT (user_id, name) DO NOTHING",
        (user_id, name),
    )
    return int(
        db.execute(
            "SELECT id FROM folders WHERE user_id = ? AND name = ?", (user_id, name)
        ).fetchone()[0]
    )


def list_page(db: Connection, user_id: int, after: int, limit: int) -> list[FeedSummary]:
    """List a page of a user's feeds by id. ``after`` is the last id of the page before."""
    rows = db.execute(
        f"SELECT {FEED}, coalesce(nullif(s.title, ''), nullif(feeds.title, ''), feeds.url), "
        "coalesce(folders.name, ''), "
        f"(SELECT count(*) FROM entries WHERE feed_id = feeds.id AND id {NOT_IMPORTED}), "
        f"(SELECT max(published_at) FROM entries WHERE feed_id = feeds.id AND id {NOT_IMPORTED}) "
        "FROM subscriptions AS s JOIN feeds ON feeds.id = s.feed_id "
        "LEFT JOIN folders ON folders.id = s.folder_id "
        "WHERE s.user_id = ? AND s.feed_id > ? ORDER BY s.feed_id LIMIT ?",
        (user_id, after, limit),
    )
    return [
        FeedSummary(decode_feed(row), redact_password(row[WIDTH]), *row[WIDTH + 1 :])
        for row in rows
    ]


def next_due(db: Connection) -> float | None:
    """Return the earliest poll time of all feeds, or None if no feed has one."""
    at: float | None = db.execute("SELECT min(next_poll_at) FROM feeds").fetchone()[0]
    return at


def reschedule(db: Connection, schedules: Sequence[Schedule]) -> None:
    """Store new poll times, in the order of feed ids to avoid deadlocks."""
    by_feed = sorted(schedules, key=lambda s: s.feed_id)
    db.executemany(
        _RESCHEDULE,
        [(s.next_poll_at, encode(s.reason), s.feed_id, s.expected_poll_at) for s in by_feed],
    )


def retire(db: Connection, feed_id: int, text: str, now: float) -> None:
    """Stop polling a feed. ``text`` is the reason for display."""
    db.execute(
        "UPDATE feeds SET retired_at = ?, retired_reason = ?, next_poll_at = NULL, reason = ? "
        "WHERE id = ? AND retired_at IS NULL",
        (now, text, encode(reason("retired", text=text)), feed_id),
    )


def change_feed_url(db: Connection, feed_id: int, url: str, now: float) -> None:
    """Change the URL of a feed.

    If another feed has that URL already, the other feed gets the subscribers.
    """
    other = find_feed_id(db, url)
    old_url = db.execute("SELECT url FROM feeds WHERE id = ?", (feed_id,)).fetchone()[0]
    if old_url == url:
        return
    if other is not None and other != feed_id:
        move_subscribers(db, feed_id, other, now)
        db.execute("UPDATE aliases SET feed_id = ? WHERE feed_id = ?", (other, feed_id))
        retire(db, feed_id, f"moved to {redact_password(url)}, which is feed {other}", now)
        feed_id = other
    else:
        db.execute("DELETE FROM aliases WHERE url = ?", (url,))  # the URL may be a former one
        db.execute("UPDATE feeds SET url = ?, host = ? WHERE id = ?", (url, host_of(url), feed_id))
    db.execute(
        "INSERT INTO aliases (url, feed_id, since) VALUES (?, ?, ?) "
        "ON CONFLICT (url) DO UPDATE SET feed_id = excluded.feed_id",
        (old_url, feed_id, now),
    )


def timings(db: Connection) -> npt.NDArray[np.void]:
    """Return the poll data of all active feeds, by id, as one array of `TIMING`."""
    rows = db.execute(
        f"SELECT {_TIMING} FROM feeds WHERE retired_at IS NULL ORDER BY id"
    ).fetchall()
    array = np.empty(len(rows), dtype=TIMING)
    for name, column in zip(TIMING.names or (), zip(*rows, strict=True), strict=False):
        null = _OPTIONAL.get(name)
        array[name] = (
            column if null is None else [null if value is None else value for value in column]
        )
    return array


def timing_of(feed: Feed) -> npt.NDArray[np.void]:
    """Return the poll data of one feed as an array of `TIMING` with one row."""
    array = np.empty(1, dtype=TIMING)
    array["feed_id"] = feed.id
    for name in (TIMING.names or ())[1:]:
        value = getattr(feed.state, name) if name in STATE_COLUMNS else getattr(feed, name)
        array[name] = _OPTIONAL[name] if value is None else value
    return array


def forbidden_hours(db: Connection) -> dict[int, bytes]:
    """Return the hours of the week without polls (skipHours, skipDays) by feed id.

    Feeds without such hours are left out.
    """
    return dict(
        db.execute(
            "SELECT id, forbidden FROM feeds WHERE forbidden <> ? AND retired_at IS NULL", (b"",)
        ).fetchall()
    )


def estimates(db: Connection, policy: str, feed_ids: Sequence[int] | None) -> dict[int, bytes]:
    """Return the saved states of a policy by feed id.

    ``feed_ids`` restricts the feeds; None means all feeds.
    """
    query, values = "SELECT feed_id, state FROM estimates WHERE policy = ?", list[Any]([policy])
    if feed_ids is not None:
        query += f" AND feed_id {IN_MANY}"
        values.append(Many(feed_ids))
    return dict(db.execute(query, values).fetchall())


def count_estimates(db: Connection, policy: str) -> int:
    """Return the number of feeds for which a policy has a saved state."""
    return int(
        db.execute("SELECT count(*) FROM estimates WHERE policy = ?", (policy,)).fetchone()[0]
    )


def save_estimates(
    db: Connection, saved: Sequence[tuple[int, Estimate, float]], unless_since: float = math.inf
) -> None:
    """Store policy states, given as (feed id, estimate, time).

    A state that was stored after ``unless_since`` is not replaced.
    """
    db.executemany(
        "INSERT INTO estimates (feed_id, policy, state, updated_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (feed_id, policy) DO UPDATE "
        "SET state = excluded.state, updated_at = excluded.updated_at "
        "WHERE estimates.updated_at <= ?",
        [
            (feed_id, estimate.policy, estimate.state, at, unless_since)
            for feed_id, estimate, at in saved
        ],
    )


def load_values(db: Connection) -> dict[str, bytes]:
    """Return all stored values by key."""
    return dict(db.execute("SELECT key, value FROM key_values").fetchall())


def save_values(db: Connection, values: dict[str, bytes], now: float) -> None:
    """Store values by key."""
    db.executemany(
        "INSERT INTO key_values (key, value, updated_at) VALUES (?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
        [(key, value, now) for key, value in values.items()],
    )


def paused_hosts(db: Connection, now: float) -> tuple[Pause, ...]:
    """List the paused hosts (Retry-After, rate limits) by the end of the pause."""
    rows = db.execute(
        "SELECT host, paused_until, pause_reason FROM hosts WHERE paused_until > ? "
        "ORDER BY paused_until",
        (now,),
    )
    return tuple(Pause(*row) for row in rows)


def last_request_times(db: Connection, since: float) -> dict[str, float]:
    """Return the last request time of each host, if it is not before ``since``."""
    return dict(
        db.execute(
            "SELECT host, last_request_at FROM hosts WHERE last_request_at >= ?", (since,)
        ).fetchall()
    )


_PUSH_COLUMNS = ", ".join(PushSubscription.__struct_fields__)


def save_push_subscription(db: Connection, push: PushSubscription) -> None:
    """Insert or update the WebSub subscription of a feed."""
    columns = PushSubscription.__struct_fields__
    updates = ", ".join(f"{name} = excluded.{name}" for name in columns[1:])
    db.execute(
        f"INSERT INTO push_subscriptions ({_PUSH_COLUMNS}) "
        f"VALUES (?{', ?' * (len(columns) - 1)}) ON CONFLICT (feed_id) DO UPDATE SET {updates}",
        msgspec.structs.astuple(push),
    )


def find_push_subscription(db: Connection, feed_id: int) -> PushSubscription | None:
    row = db.execute(
        f"SELECT {_PUSH_COLUMNS} FROM push_subscriptions WHERE feed_id = ?", (feed_id,)
    ).fetchone()
    return PushSubscription(*row) if row else None


def find_push_subscription_by_token(db: Connection, token: str) -> PushSubscription | None:
    row = db.execute(
        f"SELECT {_PUSH_COLUMNS} FROM push_subscriptions WHERE token = ?", (token,)
    ).fetchone()
    return PushSubscription(*row) if row else None


def expiring_push_subscriptions(db: Connection, before: float) -> list[PushSubscription]:
    """List WebSub subscriptions whose lease ends before a time, earliest first."""
    rows = db.execute(
        f"SELECT {_PUSH_COLUMNS} FROM push_subscriptions WHERE lease_until < ? "
        "ORDER BY lease_until",
        (before,),
    )
    return [PushSubscription(*row) for row in rows]
