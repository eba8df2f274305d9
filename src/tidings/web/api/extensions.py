"""What our REST API tells beside Miniflux's: when feeds are looked at and why, what that costs, and who helps."""

from datetime import datetime
from typing import Any

from msgspec import Struct

from tidings.aggregator.explain import explain
from tidings.reasons import Reason, render
from tidings.store import peers
from tidings.store.feed_models import Poll as StoredPoll
from tidings.web.api.miniflux_entries import ROOT_CATEGORY_ID, to_datetime
from tidings.web.api.miniflux_models import Count
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
    poll_constraints: list[str]  #: of its publisher
    problems: list[str]
    polls: list[Poll]  #: the last ones, newest first
    min_interval_s: float  #: in force between two polls
    min_interval_code: str  #: what sets it; empty before the first document


class Budget(Struct, kw_only=True):
    """The budget of the whole service, what was spent of it, and the delay of posts.

    `usable_per_day` is how much of the budget the minimum intervals of feeds allow, `feeds_at_min_interval` how many feeds
    they keep below their share. Delays, in seconds, are null before 3 days of polling and 50 posts with a known delay in
    the last week, and where the last day has fewer than 6 (p50) or 20 (p90) of them; lost posts before 3 days of polling.
    """

    budget_per_day: float
    usable_per_day: float
    feeds_at_min_interval: int
    spent_last_day: int
    feeds: int
    failing: int
    due: int
    delay_p50_s: float | None
    delay_p90_s: float | None
    lost_last_week: float | None
    recovered_last_week: int
    polled_days: float  #: since the first poll
    posts_with_delay: int  #: of the last week


class Peer(Struct, kw_only=True):
    """A neighbour in the exchange, of now or before."""

    address: str
    present: bool
    usefulness: float
    banned_until: datetime | None
    why: str  #: it is a neighbour no more
    figures: dict[str, float]


def _optional_datetime(at: float | None) -> datetime | None:
    return None if at is None else to_datetime(at)


def _reason(reason: Reason) -> dict[str, Any]:
    return {"reason": render(reason), "reason_code": reason.code, "reason_params": reason.params}


def _poll(poll: StoredPoll) -> Poll:
    kept = {name: getattr(poll, name) for name in ("status", "new", "changed", "error")}
    return Poll(
        at=to_datetime(poll.at), reason=render(poll.reason), reason_code=poll.reason.code, **kept
    )


async def get_timing(call: Call) -> list[Timing]:
    """Those that are due first come first; those that are never asked (pushed alone, or gone) last."""
    states = [(s.feed.id, s.feed.state) for s in await call.reader_service.subscriptions()]
    states.sort(key=lambda one: (one[1].next_poll_at is None, one[1].next_poll_at, one[0]))
    return [
        Timing(
            feed_id=i,
            checked_at=_optional_datetime(s.last_poll_at),
            next_check_at=_optional_datetime(s.next_poll_at),
            **_reason(s.reason),
        )
        for i, s in states[call.query.offset : call.query.offset + call.query.limit]
    ]


async def get_explanation(call: Call) -> Explanation:
    feed = (await call.reader_service.subscription(min(call.ids["feed_id"], ROOT_CATEGORY_ID))).feed
    told = await explain(
        call.site.store, feed, call.site.clock(), limits=call.site.aggregator.scheduler.limits
    )
    return Explanation(
        feed_id=feed.id,
        checked_at=_optional_datetime(feed.state.last_poll_at),
        next_check_at=_optional_datetime(told.next_poll_at),
        **_reason(told.reason),
        habits=list(told.habits),
        poll_constraints=list(told.poll_constraints),
        problems=list(told.problems),
        polls=[_poll(poll) for poll in told.polls],
        min_interval_s=told.min_interval.interval_s,
        min_interval_code=told.min_interval.reason.code,
    )


async def get_budget(call: Call) -> Budget:
    told = await call.site.status_reporter.status()
    status = told.status
    return Budget(
        budget_per_day=told.budget_per_day,
        usable_per_day=told.usable_per_day,
        feeds_at_min_interval=told.feeds_at_min_interval,
        spent_last_day=status.day.polls,
        feeds=status.active_feeds,
        failing=status.failing,
        due=status.due,
        delay_p50_s=status.day.delay_p50_s,
        delay_p90_s=status.day.delay_p90_s,
        lost_last_week=status.week.missed if told.evidence.is_polled else None,
        recovered_last_week=status.week.recovered,
        polled_days=told.evidence.polled_days,
        posts_with_delay=told.evidence.posts,
    )


async def get_peers(call: Call) -> list[Peer]:
    return [
        Peer(
            address=p.nid,
            present=p.present,
            usefulness=p.usefulness,
            banned_until=_optional_datetime(p.banned_until),
            why=p.reason,
            figures=dict(p.figures),
        )
        for p in await call.site.store.read(peers.peers)
    ]


OPERATIONS = [
    operation(
        "GET",
        "/v1/timing",
        get_timing,
        "When one's feeds are looked at next, and why then",
        query=TimingQuery,
    ),
    operation(
        "GET",
        "/v1/feeds/{feed_id}/explain",
        get_explanation,
        "All that is known of a feed's timing, in words",
    ),
    operation("GET", "/v1/budget", get_budget, "What may be spent, and what it buys", admin=True),
    operation("GET", "/v1/peers", get_peers, "Neighbours in the exchange", admin=True),
]
