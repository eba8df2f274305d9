"""Feeds: who wants them, which are due, and what is known of them before they are asked again."""

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
#: Columns that may be NULL, and what stands for that.
_OPTIONAL = {
    "last_poll_at": -math.inf,
    "next_poll_at": math.inf,
    "earliest_at": -math.inf,
    "usual_gap_s": math.nan,
}
#: What a policy's table of feeds, and its constraints, are made from.
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
_QUOTED = [f'"{name}"' for name in STATE_COLUMNS]  # "window" is a word of SQL
_INSERT = f"INSERT INTO feeds (url, host, added_at, {', '.join(_QUOTED)}) VALUES (?, ?, ?{', ?' * len(_QUOTED)}) RETURNING id"
_UPDATE = f"UPDATE feeds SET {', '.join(f'{name} = ?' for name in _QUOTED)} WHERE id = ? AND retired_at IS NULL"
_RESCHEDULE = (
    "UPDATE feeds SET next_poll_at = ?, reason = ? WHERE id = ? AND retired_at IS NULL AND coalesce(?, next_poll_at, 0) = "
    "coalesce(next_poll_at, 0)"
)

_hubs = msgspec.json.Decoder(tuple[str, ...])
_hints = msgspec.json.Decoder(Hints)
_json = msgspec.json.Encoder()


def state_row(state: FeedState) -> tuple[Any, ...]:
    """The columns of `STATE_COLUMNS`."""
    *plain, hubs, hints = msgspec.structs.astuple(state)
    plain[REASON] = encode(state.reason)
    return (*plain, _json.encode(hubs).decode(), _json.encode(hints).decode())


def decode_feed(row: Sequence[Any]) -> Feed:
    """A feed from the columns of `FEED`."""
    *plain, hubs, hints = row[_BEFORE_STATE:WIDTH]
    plain[REASON] = decode(plain[REASON])
    state = FeedState(*(*plain, _hubs.decode(hubs), _hints.decode(hints)))
    return Feed(*(*row[:_BEFORE_STATE], state))


def write_states(db: Connection, states: Sequence[tuple[int, FeedState]]) -> None:
    """All that polls have taught; a feed that was retired meanwhile stays as it is."""
    db.executemany(_UPDATE, [(*state_row(state), feed_id) for feed_id, state in states])


def host_of(url: str) -> str:
    """Scheme, name and port: what is asked by one worker at a time."""
    scheme, _, rest = url.strip().lower().partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


def find_feed_id(db: Connection, url: str) -> int | None:
    """A feed by its address. Former addresses come first: a feed that was merged into another is found as that other."""
    row = db.execute("SELECT feed_id FROM aliases WHERE url = ?", (url,)).fetchone()
    row = row or db.execute("SELECT id FROM feeds WHERE url = ?", (url,)).fetchone()
    return int(row[0]) if row else None


def find(db: Connection, feed: int | str) -> Feed | None:
    feed_id = find_feed_id(db, feed) if isinstance(feed, str) else feed
    row = db.execute(f"SELECT {FEED} FROM feeds WHERE id = ?", (feed_id,)).fetchone()
    return decode_feed(row) if row else None


def add(
    db: Connection, wanted: Sequence[NewSubscription], user_id: int, now: float
) -> list[SubscribeResult]:
    """Subscribe to all of them. A retired feed that somebody wants again is asked again."""
    added = []
    for want in wanted:
        feed_id = find_feed_id(db, want.url)
        feed_new = feed_id is None
        if feed_id is None:
            state = FeedState(
                site_url=want.site_url, next_poll_at=want.first_poll_at, reason=want.reason
            )
            feed_id = int(
                db.execute(
                    _INSERT, (want.url, host_of(want.url), now, *state_row(state))
                ).fetchone()[0]
            )
        else:
            db.execute(
                "UPDATE feeds SET retired_at = NULL, retired_why = '', next_poll_at = ?, reason = ? "
                "WHERE id = ? AND retired_at IS NOT NULL",
                (want.first_poll_at, encode(reason("added_again")), feed_id),
            )
        subscribed = db.execute(
            "INSERT INTO subscriptions (user_id, feed_id, folder_id, title, added_at) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (user_id, feed_id) DO NOTHING",
            (user_id, feed_id, folder_id(db, user_id, want.folder), want.title, now),
        )
        added.append(SubscribeResult(want.url, feed_id, feed_new, subscribed.rowcount == 1))
        if added[-1].subscription_new and not feed_new:
            add_unread_for_subscriber(db, user_id, feed_id)
            update_feed_weights(db, [feed_id], now)
    return added


def folder_id(db: Connection, user_id: int, name: str) -> int | None:
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
    """A user's feeds by id, from the first above ``after``."""
    rows = db.execute(
        f"SELECT {FEED}, coalesce(nullif(s.title, ''), nullif(feeds.title, ''), feeds.url), coalesce(folders.name, ''), "
        "(SELECT count(*) FROM entries WHERE feed_id = feeds.id), "
        "(SELECT max(published_at) FROM entries WHERE feed_id = feeds.id) "
        "FROM subscriptions AS s JOIN feeds ON feeds.id = s.feed_id LEFT JOIN folders ON folders.id = s.folder_id "
        "WHERE s.user_id = ? AND s.feed_id > ? ORDER BY s.feed_id LIMIT ?",
        (user_id, after, limit),
    )
    return [
        FeedSummary(decode_feed(row), redact_password(row[WIDTH]), *row[WIDTH + 1 :])
        for row in rows
    ]


def next_due(db: Connection) -> float | None:
    at: float | None = db.execute("SELECT min(next_poll_at) FROM feeds").fetchone()[0]
    return at


def reschedule(db: Connection, schedules: Sequence[Schedule]) -> None:
    by_feed = sorted(schedules, key=lambda s: s.feed_id)
    db.executemany(
        _RESCHEDULE,
        [(s.next_poll_at, encode(s.reason), s.feed_id, s.expected_poll_at) for s in by_feed],
    )


def retire(db: Connection, feed_id: int, why: str, now: float) -> None:
    db.execute(
        "UPDATE feeds SET retired_at = ?, retired_why = ?, next_poll_at = NULL, reason = ? WHERE id = ? AND retired_at IS NULL",
        (now, why, encode(reason("retired", text=why)), feed_id),
    )


def change_feed_url(db: Connection, feed_id: int, url: str, now: float) -> None:
    """The feed lives at ``url`` from now on. If another feed is there already, it inherits the subscribers."""
    other = find_feed_id(db, url)
    old = db.execute("SELECT url FROM feeds WHERE id = ?", (feed_id,)).fetchone()[0]
    if old == url:
        return
    if other is not None and other != feed_id:
        move_subscribers(db, feed_id, other, now)
        db.execute("UPDATE aliases SET feed_id = ? WHERE feed_id = ?", (other, feed_id))
        retire(db, feed_id, f"it has moved to {redact_password(url)}, which is feed {other}", now)
        feed_id = other
    else:
        db.execute("DELETE FROM aliases WHERE url = ?", (url,))  # it has moved back
        db.execute("UPDATE feeds SET url = ?, host = ? WHERE id = ?", (url, host_of(url), feed_id))
    db.execute(
        "INSERT INTO aliases (url, feed_id, since) VALUES (?, ?, ?) ON CONFLICT (url) DO UPDATE SET feed_id = excluded.feed_id",
        (old, feed_id, now),
    )


def timings(db: Connection) -> npt.NDArray[np.void]:
    """Every feed that may be asked, by id, as one array of `TIMING`."""
    rows = db.execute(
        f"SELECT {_TIMING} FROM feeds WHERE retired_at IS NULL ORDER BY id"
    ).fetchall()
    found = np.empty(len(rows), dtype=TIMING)
    for name, column in zip(TIMING.names or (), zip(*rows, strict=True), strict=False):
        missing = _OPTIONAL.get(name)
        found[name] = (
            column if missing is None else [missing if value is None else value for value in column]
        )
    return found


def timing_of(feed: Feed) -> npt.NDArray[np.void]:
    """One feed as `timings` has it."""
    found = np.empty(1, dtype=TIMING)
    found["feed_id"] = feed.id
    for name in (TIMING.names or ())[1:]:
        value = getattr(feed.state, name) if name in STATE_COLUMNS else getattr(feed, name)
        found[name] = _OPTIONAL[name] if value is None else value
    return found


def forbidden_hours(db: Connection) -> dict[int, bytes]:
    return dict(
        db.execute(
            "SELECT id, forbidden FROM feeds WHERE forbidden <> ? AND retired_at IS NULL", (b"",)
        ).fetchall()
    )


def estimates(db: Connection, policy: str, feed_ids: Sequence[int] | None) -> dict[int, bytes]:
    query, values = "SELECT feed_id, state FROM estimates WHERE policy = ?", list[Any]([policy])
    if feed_ids is not None:
        query += f" AND feed_id {IN_MANY}"
        values.append(Many(feed_ids))
    return dict(db.execute(query, values).fetchall())


def count_estimates(db: Connection, policy: str) -> int:
    return int(
        db.execute("SELECT count(*) FROM estimates WHERE policy = ?", (policy,)).fetchone()[0]
    )


def save_estimates(
    db: Connection, saved: Sequence[tuple[int, Estimate, float]], unless_since: float = math.inf
) -> None:
    """Those that somebody has saved after ``unless_since`` stay as they are."""
    db.executemany(
        "INSERT INTO estimates (feed_id, policy, state, updated_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (feed_id, policy) DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at"
        " WHERE estimates.updated_at <= ?",
        [
            (feed_id, estimate.policy, estimate.state, at, unless_since)
            for feed_id, estimate, at in saved
        ],
    )


def load_values(db: Connection) -> dict[str, bytes]:
    return dict(db.execute("SELECT key, value FROM shared").fetchall())


def save_values(db: Connection, values: dict[str, bytes], now: float) -> None:
    db.executemany(
        "INSERT INTO shared (key, value, updated_at) VALUES (?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
        [(key, value, now) for key, value in values.items()],
    )


def paused_hosts(db: Connection, now: float) -> tuple[Pause, ...]:
    rows = db.execute(
        "SELECT host, paused_until, why FROM hosts WHERE paused_until > ? ORDER BY paused_until",
        (now,),
    )
    return tuple(Pause(*row) for row in rows)


def last_request_times(db: Connection, since: float) -> dict[str, float]:
    return dict(
        db.execute(
            "SELECT host, last_request_at FROM hosts WHERE last_request_at >= ?", (since,)
        ).fetchall()
    )


_PUSH_COLUMNS = ", ".join(PushSubscription.__struct_fields__)


def save_push_subscription(db: Connection, push: PushSubscription) -> None:
    fields = PushSubscription.__struct_fields__
    db.execute(
        f"INSERT INTO pushes ({_PUSH_COLUMNS}) VALUES (?{', ?' * (len(fields) - 1)}) "
        f"ON CONFLICT (feed_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in fields[1:])}",
        msgspec.structs.astuple(push),
    )


def find_push_subscription(db: Connection, feed_id: int) -> PushSubscription | None:
    row = db.execute(f"SELECT {_PUSH_COLUMNS} FROM pushes WHERE feed_id = ?", (feed_id,)).fetchone()
    return PushSubscription(*row) if row else None


def find_push_subscription_by_token(db: Connection, token: str) -> PushSubscription | None:
    row = db.execute(f"SELECT {_PUSH_COLUMNS} FROM pushes WHERE token = ?", (token,)).fetchone()
    return PushSubscription(*row) if row else None


def expiring_push_subscriptions(db: Connection, before: float) -> list[PushSubscription]:
    rows = db.execute(
        f"SELECT {_PUSH_COLUMNS} FROM pushes WHERE lease_until < ? ORDER BY lease_until", (before,)
    )
    return [PushSubscription(*row) for row in rows]
