"""Operations that this project adds to the Miniflux API (poll times, budget, peers)."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from tidings.aggregator.explain import explain
from tidings.reasons import Reason, render
from tidings.store import peers
from tidings.store.feed_models import Poll as StoredPoll
from tidings.web.api.miniflux_entries import MAX_ID, to_datetime
from tidings.web.api.miniflux_models import Count
from tidings.web.api.rest import Call, operation


class Timing(Struct, kw_only=True):
    """Time of a feed's last and next poll, with the reason."""

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
    """Times of a feed's polls with an explanation of them in plain text."""

    habits: list[str]  #: posting rate and times of the feed
    poll_constraints: list[str] = field(name="wishes")  #: poll constraints of the publisher
    problems: list[str] = field(name="troubles")
    polls: list[Poll]  #: recent polls, newest first
    min_interval_s: float  #: effective minimum interval between two polls, in seconds
    min_interval_code: str  #: reason code of that interval; empty before the first document


class Budget(Struct, kw_only=True):
    """Request budget of the service, number of requests spent, and delay of posts.

    `usable_per_day` is the part of the budget that the feeds' minimum intervals allow to be used,
    `feeds_at_min_interval` the number of feeds that they keep below their share. Delays are in
    seconds. They are null before 3 days of polling and 50 posts with a known delay in the last
    week, and if the last day has fewer than 6 (p50) or 20 (p90) of them. `lost_last_week` is the
    estimated number of missed posts, null before 3 days of polling.
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
    polled_days: float  #: days since the first poll
    posts_with_delay: int  #: posts with a known delay in the last week


class Peer(Struct, kw_only=True):
    """Current or former peer of the exchange."""

    address: str
    present: bool
    usefulness: float
    banned_until: datetime | None
    why: str  #: reason why the peer was dropped
    figures: dict[str, float]


def _optional_datetime(at: float | None) -> datetime | None:
    return None if at is None else to_datetime(at)


def _reason(reason: Reason) -> dict[str, Any]:
    return {"reason": render(reason), "reason_code": reason.code, "reason_params": reason.params}


def _poll(poll: StoredPoll) -> Poll:
    same = {name: getattr(poll, name) for name in ("status", "new", "changed", "error")}
    return Poll(
        at=to_datetime(poll.at), reason=render(poll.reason), reason_code=poll.reason.code, **same
    )


async def get_timing(call: Call) -> list[Timing]:
    """Return the feeds in the order of their next polls.

    Feeds without a next poll (pushed only, or gone) are last.
    """
    states = [(s.feed.id, s.feed.state) for s in await call.reader_service.subscriptions()]
    states.sort(key=lambda row: (row[1].next_poll_at is None, row[1].next_poll_at, row[0]))
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
    feed = (await call.reader_service.subscription(min(call.ids["feed_id"], MAX_ID))).feed
    explanation = await explain(
        call.site.store, feed, call.site.clock(), limits=call.site.aggregator.scheduler.limits
    )
    return Explanation(
        feed_id=feed.id,
        checked_at=_optional_datetime(feed.state.last_poll_at),
        next_check_at=_optional_datetime(explanation.next_poll_at),
        **_reason(explanation.reason),
        habits=list(explanation.habits),
        poll_constraints=list(explanation.poll_constraints),
        problems=list(explanation.problems),
        polls=[_poll(poll) for poll in explanation.polls],
        min_interval_s=explanation.min_interval.interval_s,
        min_interval_code=explanation.min_interval.reason.code,
    )


async def get_budget(call: Call) -> Budget:
    snapshot = await call.site.status_reporter.status()
    status = snapshot.status
    return Budget(
        budget_per_day=snapshot.budget_per_day,
        usable_per_day=snapshot.usable_per_day,
        feeds_at_min_interval=snapshot.feeds_at_min_interval,
        spent_last_day=status.day.polls,
        feeds=status.active_feeds,
        failing=status.failing,
        due=status.due,
        delay_p50_s=status.day.delay_p50_s,
        delay_p90_s=status.day.delay_p90_s,
        lost_last_week=status.week.missed if snapshot.evidence.is_polled else None,
        recovered_last_week=status.week.recovered,
        polled_days=snapshot.evidence.polled_days,
        posts_with_delay=snapshot.evidence.posts,
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
        "Next check of each subscribed feed, with its reason",
        query=TimingQuery,
    ),
    operation(
        "GET",
        "/v1/feeds/{feed_id}/explain",
        get_explanation,
        "Explain the timing of a feed",
    ),
    operation("GET", "/v1/budget", get_budget, "Request budget, spending and delays", admin=True),
    operation("GET", "/v1/peers", get_peers, "Peers of the exchange", admin=True),
]
