"""Everything that is known about one feed and why it is polled when it is, as a value for the terminal and for pages.

It needs only the store: every decision is kept with its reason.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.budget import effective_budget
from tidings.aggregator.min_interval import MinInterval, min_interval
from tidings.aggregator.planner import Planner
from tidings.config import Budget
from tidings.fetch.error_policy import DEAD_AFTER_S, MOVE_SIGHTINGS
from tidings.formatting import count, duration, duration_short, figures, percent_short
from tidings.i18n import n_
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.policy import make_policy
from tidings.policy.base import HOURS_PER_WEEK
from tidings.policy.constraints import DEFAULT_LIMITS, PLANNED_SHARE, Limits, capacity_per_day
from tidings.reasons import Reason, to_json
from tidings.redaction import redact_password, strip_credentials
from tidings.store import Store
from tidings.store.evidence import Evidence
from tidings.store.feed_models import Feed, Gap, Period, Poll, PushSubscription, Status

#: Posts of so many days tell a feed's habits.
HISTORY_DAYS = 60
#: Fewer posts give no rate: the 95 % interval of five already reaches from an eighth to twice of it.
RATE_POSTS = 5
#: Hours of the day, in a row, in which most posts come; reported where they hold this share of at least so
#: many posts. Posts at random hours reach it in 2 of 100 feeds.
SPAN_H, SPAN_SHARE, SPAN_POSTS = 8, 0.7, 20
#: Half the width of a 95 % interval, in standard deviations.
Z_95 = 1.96


class FeedExplanation(Struct, frozen=True):
    """One feed."""

    feed: Feed
    next_poll_at: float | None
    reason: Reason  #: why then
    habits: tuple[str, ...]  #: what is known of its posts
    poll_constraints: tuple[str, ...]  #: what its publisher asks for
    problems: tuple[str, ...]  #: errors, moves, gaps
    polls: tuple[Poll, ...]  #: the last ones, newest first
    gaps: tuple[Gap, ...]
    min_interval: MinInterval


class Overview(Struct, frozen=True):
    """The whole service in figures."""

    status: Status  #: with the delays that there is enough history for
    budget_per_day: float
    spent_share: float  #: of the last day's budget
    usable_per_day: float  #: requests of the budget that minimum intervals allow
    feeds_at_min_interval: (
        int  #: feeds that their minimum interval keeps below their share of the budget
    )
    capacity_per_day: (
        float | None
    )  #: requests that minimum intervals allow at any budget; None: no limit
    evidence: Evidence  #: for the delays of the week


async def explain(
    store: Store, feed: Feed, now: float, *, polls: int = 10, limits: Limits = Limits()
) -> FeedExplanation:  # noqa: B008
    """All about one feed."""
    posts = await store.posting_times(now - HISTORY_DAYS * DAY_S, [feed.id])
    gaps = tuple(await store.gaps(feed_id=feed.id, limit=5))
    last = tuple(await store.polls(feed.id, max(polls, 10)))
    return FeedExplanation(
        feed=feed,
        next_poll_at=feed.state.next_poll_at,
        reason=feed.state.reason,
        habits=(*_habits(feed, posts["at"][posts["at"] <= now], now), *_overlap(last)),
        poll_constraints=_poll_constraints(feed, await store.push(feed.id), now),
        problems=_problems(feed, gaps, now),
        polls=last[:polls],
        gaps=gaps,
        min_interval=min_interval(feed, limits),
    )


def as_json(explanation: FeedExplanation) -> dict[str, Any]:
    """The explanation for JSON output: reasons with code, parameters and text; no password in the address."""
    feed = replace(explanation.feed, url=redact_password(explanation.feed.url))
    found: dict[str, Any] = msgspec.to_builtins(replace(explanation, feed=feed))
    found["reason"] = found["feed"]["state"]["reason"] = to_json(explanation.reason)
    found["min_interval"]["reason"] = to_json(explanation.min_interval.reason)
    for row, poll in zip(found["polls"], explanation.polls, strict=True):
        row["reason"] = to_json(poll.reason)
    return found


async def overview(store: Store, budget: Budget, limits: Limits = DEFAULT_LIMITS) -> Overview:
    """The budget that holds, ``budget`` being what the configuration says, and spending, beside what the store counts.

    How much of the budget can be used comes from the store alone, so that it is the same in every process.
    """
    status = await store.status()
    basis = Evidence(status.polled_days, status.week.delays)
    per_day = effective_budget(await store.load_values(), budget).per_day(status.active_feeds)
    capacity, held_back = await _capacity(store, per_day, limits)
    return Overview(
        replace(
            status,
            **{name: _with_basis(getattr(status, name), basis) for name in ("hour", "day", "week")},
        ),
        per_day,
        status.day.polls / per_day,
        usable_per_day=min(per_day, capacity),
        feeds_at_min_interval=held_back,
        capacity_per_day=capacity if np.isfinite(capacity) else None,
        evidence=basis,
    )


def _with_basis(period: Period, basis: Evidence) -> Period:
    """Without the delays that there is too little history for."""
    return replace(
        period,
        delay_p50_s=period.delay_p50_s if basis.has_median(period.delays) else None,
        delay_p90_s=period.delay_p90_s if basis.has_p90(period.delays) else None,
    )


async def _capacity(store: Store, budget_per_day: float, limits: Limits) -> tuple[float, int]:
    """Requests a day that minimum intervals allow, and how many feeds they keep below an even share of the budget.

    A feed without a document so far has no minimum interval yet: it counts with its share.
    """
    timings = await store.timings()
    if not len(timings):
        return budget_per_day, 0
    known = timings["window"] > 0
    share = budget_per_day / len(timings)
    # Only its table of constraints is needed, which is the same for every policy.
    planner = Planner(make_policy("uniform"), limits, seed=0)
    table = planner.table(timings[known], await store.forbidden_hours(), 0.0)
    capacity = capacity_per_day(table)
    return float(capacity.sum()) + share * int((~known).sum()), int((capacity < share).sum())


def budget_note(service_overview: Overview) -> str:
    """How much of the budget can be used, where minimum intervals allow less than policies plan for; else nothing."""
    if service_overview.usable_per_day >= PLANNED_SHARE * service_overview.budget_per_day:
        return ""
    return n_(
        "%(usable)s of %(budget)s requests a day can be used: %(num)s feed is at its minimum interval.",
        "%(usable)s of %(budget)s requests a day can be used: %(num)s feeds are at their minimum interval.",
        service_overview.feeds_at_min_interval,
        usable=f"{int(service_overview.usable_per_day):,}",
        budget=f"{int(service_overview.budget_per_day):,}",
    )


def format_utc(at: float) -> str:
    """``2026-11-16 08:00 UTC``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _habits(feed: Feed, posts: Floats, now: float) -> tuple[str, ...]:
    window = feed.state.window
    lines = [
        f"its document holds {count(window, 'entry').replace('entrys', 'entries')}"
        if window
        else "no document so far"
    ]
    if len(posts) < RATE_POSTS:
        return (
            *lines,
            f"{count(len(posts), 'post')} in the last {HISTORY_DAYS} days, too few for a rate",
        )
    observed_s = now - max(min(feed.added_at, float(posts[0])), now - HISTORY_DAYS * DAY_S)
    per_day = len(posts) / max(observed_s / DAY_S, 1e-3)
    low, high = (figures(max(bound, 0.0), 2) for bound in _interval(posts, now - observed_s, now))
    lines.append(
        f"{figures(per_day, 2)} posts a day over {duration_short(observed_s)} (95 %: {low} to {high})"
    )
    lines.append(f"its last post came {duration_short(now - posts[-1])} ago")
    if window:
        lines.append(f"at that pace it shows a post for {duration_short(window / per_day * DAY_S)}")
    hours = np.bincount((posts // HOUR_S).astype(np.int64) % 24, minlength=24)
    spans = np.array([np.roll(hours, -h)[:SPAN_H].sum() for h in range(24)])
    begin = int(spans.argmax())
    if len(posts) >= SPAN_POSTS and spans[begin] >= SPAN_SHARE * len(posts):
        most = "all" if spans[begin] == len(posts) else percent_short(spans[begin] / len(posts))
        lines.append(f"{most} come from {begin:02d} to {(begin + SPAN_H) % 24:02d} h UTC")
    return tuple(lines)


def _interval(posts: Floats, begin: float, end: float) -> tuple[float, float]:
    """Where the rate lies at 95 %, in posts a day: counts of a day scatter about it, those of bursts more than by chance."""
    days = max((end - begin) / DAY_S, 1e-3)
    counts = np.histogram(posts, bins=max(int(days), 1), range=(begin, end))[0]
    scatter = max(float(counts.var() / max(counts.mean(), 1e-9)), 1.0)
    half = Z_95 * np.sqrt(len(posts) * scatter)
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


def _poll_constraints(feed: Feed, push: PushSubscription | None, now: float) -> tuple[str, ...]:
    state, hints, lines = feed.state, feed.state.hints, []
    if hints.ttl_s is not None:
        lines.append(f"ttl: {duration(hints.ttl_s)} between polls")
    if hints.period_s is not None:
        lines.append(f"sy:updatePeriod: an update every {duration(hints.period_s)}")
    if state.forbidden:
        closed = int(np.unpackbits(np.frombuffer(state.forbidden, dtype=np.uint8)).sum())
        lines.append(
            f"skipHours, skipDays: {closed} of {HOURS_PER_WEEK} hours of the week are closed"
        )
    elif hints.skip_hours or hints.skip_days:
        lines.append("skipHours, skipDays: ignored, since they would close all hours")
    if state.earliest_at is not None and state.earliest_at > now:
        lines.append(f"its server asks not to be asked before {format_utc(state.earliest_at)}")
    if state.hubs:
        lines.append(
            f"its hub is {state.hubs[0]}" + (f" (WebSub, {push.state})" if push is not None else "")
        )
    return tuple(lines)


def _problems(feed: Feed, gaps: tuple[Gap, ...], now: float) -> tuple[str, ...]:
    state, lines = feed.state, []
    if feed.retired_at is not None:
        lines.append(f"retired on {format_utc(feed.retired_at)}: {feed.retired_reason}")
    if state.errors:
        since = now if state.failing_since is None else state.failing_since
        lines.append(
            f"{count(state.errors, 'failure')} in a row for {duration_short(now - since)}: {state.last_error}"
        )
        if now - since >= DEAD_AFTER_S:
            lines.append("it is taken for dead and tried once a month")
    if state.moved_to:
        place = redact_password(state.moved_to)
        lines.append(
            f"it answers that it has moved to {place} ({state.moved_sightings} of {MOVE_SIGHTINGS} sightings)"
        )
    elif state.validators_url and state.validators_url != strip_credentials(feed.url):
        lines.append(f"it is redirected to {state.validators_url} for the time being")
    lines += [
        f"about {figures(gap.missed, 2)} posts were lost until {format_utc(gap.until_at)}: {gap.state}"
        for gap in gaps
    ]
    return tuple(lines)
