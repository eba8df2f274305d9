"""What our REST API tells beside Miniflux's: when feeds are looked at and why, what that costs, and who helps."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from tidings.aggregator.explain import explain, overview
from tidings.reasons import Reason, render
from tidings.store import neighbours
from tidings.store.rows import Poll as StoredPoll
from tidings.web.api.miniflux_entries import TOP, moment
from tidings.web.api.miniflux_values import Count
from tidings.web.api.rest import Call, operation


class Timing(Struct, kw_only=True):
    """When a feed will be looked at next, and why then."""

    feed_id: int
    checked_at: datetime | None
    next_check_at: datetime | None
    reason: str
    reason_code: str  #: docs/api.md lists the codes
    reason_params: dict[str, str | float | int | bool]


class TimingQuery(Struct, kw_only=True):
    limit: Count = 100
    offset: Count = 0


class Poll(Struct, kw_only=True):
    at: datetime
    status: int
    new: int
    changed: int
    reason: str
    reason_code: str
    error: str


class Explanation(Timing, kw_only=True):
    """With all that is known of the feed, in words."""

    habits: list[str]
    wishes: list[str]  #: of its publisher
    troubles: list[str]
    polls: list[Poll]  #: the last ones, newest first


class Budget(Struct, kw_only=True):
    """What the whole service may spend and has spent, and how early posts arrive."""

    budget_per_day: float
    spent_last_day: int
    feeds: int
    failing: int
    due: int
    delay_p50_s: float | None
    delay_p90_s: float | None
    lost_last_week: float
    recovered_last_week: int


class Peer(Struct, kw_only=True):
    """A neighbour in the exchange, of now or before."""

    address: str
    present: bool
    usefulness: float
    banned_until: datetime | None
    why: str  #: it is a neighbour no more
    figures: dict[str, float]


def _moment(at: float | None) -> datetime | None:
    return None if at is None else moment(at)


def _reason(reason: Reason) -> dict[str, Any]:
    return {"reason": render(reason), "reason_code": reason.code, "reason_params": reason.params}


def _poll(poll: StoredPoll) -> Poll:
    kept = {name: getattr(poll, name) for name in ("status", "new", "changed", "error")}
    return Poll(at=moment(poll.at), reason=render(poll.reason), reason_code=poll.reason.code, **kept)


async def get_timing(call: Call) -> list[Timing]:
    """Those that are due first come first; those that are never asked (pushed alone, or gone) last."""
    states = [(s.feed.id, s.feed.state) for s in await call.reading.subscriptions()]
    states.sort(key=lambda one: (one[1].next_poll_at is None, one[1].next_poll_at, one[0]))
    return [
        Timing(feed_id=i, checked_at=_moment(s.last_poll_at), next_check_at=_moment(s.next_poll_at), **_reason(s.reason))
        for i, s in states[call.query.offset : call.query.offset + call.query.limit]
    ]


async def get_explanation(call: Call) -> Explanation:
    feed = (await call.reading.subscription(min(call.ids["feed_id"], TOP))).feed
    told = await explain(call.site.store, feed, call.site.clock())
    return Explanation(
        feed_id=feed.id,
        checked_at=_moment(feed.state.last_poll_at),
        next_check_at=_moment(told.next_poll_at),
        **_reason(told.reason),
        habits=list(told.habits),
        wishes=list(told.wishes),
        troubles=list(told.troubles),
        polls=[_poll(poll) for poll in told.polls],
    )


async def get_budget(call: Call) -> Budget:
    told = await overview(call.site.store, call.site.aggregator.brain.budget)
    status = told.status
    return Budget(
        budget_per_day=told.budget_per_day,
        spent_last_day=status.day.polls,
        feeds=status.followed,
        failing=status.failing,
        due=status.due,
        delay_p50_s=status.day.delay_p50_s,
        delay_p90_s=status.day.delay_p90_s,
        lost_last_week=status.week.lost,
        recovered_last_week=status.week.recovered,
    )


async def get_peers(call: Call) -> list[Peer]:
    return [
        Peer(
            address=p.nid,
            present=p.present,
            usefulness=p.usefulness,
            banned_until=_moment(p.banned_until),
            why=p.why,
            figures=dict(p.figures),
        )
        for p in await call.site.store.read(neighbours.peers)
    ]


OPERATIONS = [
    operation("GET", "/v1/timing", get_timing, "When one's feeds are looked at next, and why then", query=TimingQuery),
    operation("GET", "/v1/feeds/{feed_id}/explain", get_explanation, "All that is known of a feed's timing, in words"),
    operation("GET", "/v1/budget", get_budget, "What may be spent, and what it buys", admin=True),
    operation("GET", "/v1/peers", get_peers, "Neighbours in the exchange", admin=True),
]
