"""Everything that is known about one feed and why it is polled when it is, as a value for the terminal and for pages.

It needs only the store: every decision is kept with its reason.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.budget import in_force
from tidings.config import Budget
from tidings.fetch.outcomes import DEAD_AFTER_S, MOVE_SIGHTINGS
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.policy.base import HOURS_OF_WEEK
from tidings.privacy import without_login, without_password
from tidings.reasons import Reason, to_json
from tidings.store import Store
from tidings.store.rows import Feed, Gap, Poll, Push, Status
from tidings.words import count, duration, figures, portion, roughly

#: Posts of so many days tell a feed's habits.
HABITS_D = 60
#: Hours of the day, in a row, in which most posts come; told where they hold this share.
SPAN_H, SPAN_SHARE = 8, 0.6
#: Half the width of a 95 % interval, in standard deviations.
SURE = 1.96


class Explained(Struct, frozen=True):
    """One feed."""

    feed: Feed
    next_poll_at: float | None
    reason: Reason  #: why then
    habits: tuple[str, ...]  #: what is known of its posts
    wishes: tuple[str, ...]  #: what its publisher asks for
    troubles: tuple[str, ...]  #: errors, moves, gaps
    polls: tuple[Poll, ...]  #: the last ones, newest first
    gaps: tuple[Gap, ...]


class Overview(Struct, frozen=True):
    """The whole service in figures."""

    status: Status
    budget_per_day: float
    spent_share: float  #: of the last day's budget


async def explain(store: Store, feed: Feed, now: float, *, polls: int = 10) -> Explained:
    """All about one feed."""
    posts = await store.posting_times(now - HABITS_D * DAY_S, [feed.id])
    gaps = tuple(await store.gaps(feed_id=feed.id, limit=5))
    last = tuple(await store.polls(feed.id, max(polls, 10)))
    return Explained(
        feed=feed,
        next_poll_at=feed.state.next_poll_at,
        reason=feed.state.reason,
        habits=(*_habits(feed, posts["at"][posts["at"] <= now], now), *_overlap(last)),
        wishes=_wishes(feed, await store.push(feed.id), now),
        troubles=_troubles(feed, gaps, now),
        polls=last[:polls],
        gaps=gaps,
    )


def as_json(explained: Explained) -> dict[str, Any]:
    """The explanation for JSON output: reasons with code, parameters and text; no password in the address."""
    feed = replace(explained.feed, url=without_password(explained.feed.url))
    found: dict[str, Any] = msgspec.to_builtins(replace(explained, feed=feed))
    found["reason"] = found["feed"]["state"]["reason"] = to_json(explained.reason)
    for row, poll in zip(found["polls"], explained.polls, strict=True):
        row["reason"] = to_json(poll.reason)
    return found


async def overview(store: Store, budget: Budget) -> Overview:
    """The budget that holds, ``budget`` being what the configuration says, and spending, beside what the store counts."""
    status = await store.status()
    budget = in_force(await store.shared(), budget)
    per_day = budget.per_day(status.followed)
    return Overview(status, per_day, status.day.polls / per_day)


def moment(at: float) -> str:
    """``2026-11-16 08:00 UTC``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _habits(feed: Feed, posts: Floats, now: float) -> tuple[str, ...]:
    window = feed.state.window
    said = [f"its document holds {count(window, 'entry').replace('entrys', 'entries')}" if window else "no document so far"]
    if len(posts) < 2:
        return (*said, f"{count(len(posts), 'post')} in the last {HABITS_D} days")
    watched_s = now - max(min(feed.added_at, float(posts[0])), now - HABITS_D * DAY_S)
    per_day = len(posts) / max(watched_s / DAY_S, 1e-3)
    low, high = (figures(max(bound, 0.0), 2) for bound in _interval(posts, now - watched_s, now))
    said.append(f"{figures(per_day, 2)} posts a day over {roughly(watched_s)} (95 %: {low} to {high})")
    said.append(f"its last post came {roughly(now - posts[-1])} ago")
    if window:
        said.append(f"at that pace it shows a post for {roughly(window / per_day * DAY_S)}")
    hours = np.bincount((posts // HOUR_S).astype(np.int64) % 24, minlength=24)
    spans = np.array([np.roll(hours, -h)[:SPAN_H].sum() for h in range(24)])
    begin = int(spans.argmax())
    if spans[begin] >= SPAN_SHARE * len(posts):
        most = "all" if spans[begin] == len(posts) else portion(spans[begin] / len(posts))
        said.append(f"{most} come from {begin:02d} to {(begin + SPAN_H) % 24:02d} h UTC")
    return tuple(said)


def _interval(posts: Floats, begin: float, end: float) -> tuple[float, float]:
    """Where the rate lies at 95 %, in posts a day: counts of a day scatter about it, those of bursts more than by chance."""
    days = max((end - begin) / DAY_S, 1e-3)
    counts = np.histogram(posts, bins=max(int(days), 1), range=(begin, end))[0]
    scatter = max(float(counts.var() / max(counts.mean(), 1e-9)), 1.0)
    half = SURE * np.sqrt(len(posts) * scatter)
    return (len(posts) - half) / days, (len(posts) + half) / days


def _overlap(polls: tuple[Poll, ...]) -> tuple[str, ...]:
    """Whether the last document that was read joined the one before."""
    documents = [poll for poll in polls if poll.entries and poll.source == "poll"]
    if len(documents) < 2:
        return ()
    read = documents[0]
    known = read.entries - read.new
    joined = "nothing in between was missed" if known else "what came in between may be lost"
    return (f"of the {read.entries} entries read last, {known} were known already: {joined}",)


def _wishes(feed: Feed, push: Push | None, now: float) -> tuple[str, ...]:
    state, hints, said = feed.state, feed.state.hints, []
    if hints.ttl_s is not None:
        said.append(f"ttl: {duration(hints.ttl_s)} between polls")
    if hints.period_s is not None:
        said.append(f"sy:updatePeriod: an update every {duration(hints.period_s)}")
    if state.forbidden:
        closed = int(np.unpackbits(np.frombuffer(state.forbidden, dtype=np.uint8)).sum())
        said.append(f"skipHours, skipDays: {closed} of {HOURS_OF_WEEK} hours of the week are closed")
    elif hints.skip_hours or hints.skip_days:
        said.append("skipHours, skipDays: ignored, since they would close all hours")
    if state.earliest_at is not None and state.earliest_at > now:
        said.append(f"its server asks not to be asked before {moment(state.earliest_at)}")
    if state.hubs:
        said.append(f"its hub is {state.hubs[0]}" + (f" (WebSub, {push.state})" if push is not None else ""))
    return tuple(said)


def _troubles(feed: Feed, gaps: tuple[Gap, ...], now: float) -> tuple[str, ...]:
    state, said = feed.state, []
    if feed.retired_at is not None:
        said.append(f"retired on {moment(feed.retired_at)}: {feed.retired_why}")
    if state.errors:
        since = now if state.failing_since is None else state.failing_since
        said.append(f"{count(state.errors, 'failure')} in a row for {roughly(now - since)}: {state.last_error}")
        if now - since >= DEAD_AFTER_S:
            said.append("it is taken for dead and tried once a month")
    if state.moved_to:
        place = without_password(state.moved_to)
        said.append(f"it answers that it has moved to {place} ({state.moved_sightings} of {MOVE_SIGHTINGS} sightings)")
    elif state.validators_url and state.validators_url != without_login(feed.url):
        said.append(f"it is redirected to {state.validators_url} for the time being")
    said += [f"about {figures(gap.lost, 2)} posts were lost until {moment(gap.until_at)}: {gap.state}" for gap in gaps]
    return tuple(said)
