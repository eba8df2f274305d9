"""Explanation of a feed's schedule, and an overview of the service, for terminal and pages.

Only the store is needed, because every decision is stored with its reason.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tidings.aggregator.budget import effective_budget
from tidings.aggregator.min_interval import MinInterval, min_interval
from tidings.aggregator.planner import Planner
from tidings.config import Budget
from tidings.fetch.error_policy import DEAD_AFTER_S, MIN_MOVE_REDIRECTS
from tidings.formatting import duration, duration_short, figures, percent_short
from tidings.i18n import _, n_
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.policy import make_policy
from tidings.policy.base import HOURS_PER_WEEK
from tidings.policy.constraints import DEFAULT_LIMITS, PLANNED_SHARE, Limits, capacity_per_day
from tidings.reasons import Reason, to_json
from tidings.redaction import redact_password, strip_credentials
from tidings.store import Store
from tidings.store.evidence import Evidence
from tidings.store.feed_models import Feed, Gap, Period, Poll, PushSubscription, Status

#: Length in days of the period that the posting statistics cover.
HISTORY_DAYS = 60
#: Minimum number of posts for which a rate is shown. With five posts, the 95 % confidence interval
#: already spans a factor of 16.
RATE_POSTS = 5
#: Conditions for reporting a usual time of day: a feed has `SPAN_POSTS` posts, and the fraction
#: `SPAN_SHARE` of them lies within `SPAN_H` hours. Feeds that post at random hours meet both
#: conditions in 2 of 100 cases.
SPAN_H, SPAN_SHARE, SPAN_POSTS = 8, 0.7, 20
#: Half width of a 95 % confidence interval, in standard deviations.
Z_95 = 1.96


class FeedExplanation(Struct, frozen=True):
    """Statistics, poll constraints, problems and recent polls of one feed.

    Two JSON keys keep the names of earlier versions: `wishes` and `troubles`.
    """

    feed: Feed
    next_poll_at: float | None
    reason: Reason  #: reason for `next_poll_at`
    habits: tuple[str, ...]  #: posting statistics as sentences
    poll_constraints: tuple[str, ...] = field(name="wishes")  #: limits stated by the publisher
    problems: tuple[str, ...] = field(name="troubles")  #: errors, redirects, gaps
    polls: tuple[Poll, ...]  #: most recent polls, newest first
    gaps: tuple[Gap, ...]
    min_interval: MinInterval


class Overview(Struct, frozen=True):
    """Request budget, its use and delays of the whole service."""

    status: Status  #: in which a delay is None if there is too little history for it
    budget_per_day: float
    spent_share: float  #: fraction of the budget that the last day's polls used
    usable_per_day: float  #: requests per day of the budget that minimum intervals allow
    feeds_at_min_interval: int  #: number of feeds whose minimum interval limits their polls
    capacity_per_day: float | None  #: requests that minimum intervals allow, or None if unlimited
    evidence: Evidence  #: amount of history from which the delays of the week are computed


async def explain(
    store: Store, feed: Feed, now: float, *, polls: int = 10, limits: Limits = DEFAULT_LIMITS
) -> FeedExplanation:
    """Return statistics, poll constraints and problems of a feed, and its last ``polls`` polls."""
    posts = await store.posting_times(now - HISTORY_DAYS * DAY_S, [feed.id])
    gaps = tuple(await store.gaps(feed_id=feed.id, limit=5))
    last = tuple(await store.polls(feed.id, max(polls, 10)))
    return FeedExplanation(
        feed=feed,
        next_poll_at=feed.state.next_poll_at,
        reason=feed.state.reason,
        habits=(*_habits(feed, posts["at"][posts["at"] <= now], now), *_overlap(last)),
        poll_constraints=_poll_constraints(feed, await store.find_push_subscription(feed.id), now),
        problems=_problems(feed, gaps, now),
        polls=last[:polls],
        gaps=gaps,
        min_interval=min_interval(feed, limits),
    )


def as_json(explanation: FeedExplanation) -> dict[str, Any]:
    """Convert an explanation to JSON values, with passwords redacted.

    A reason becomes its code, parameters and text.
    """
    feed = replace(explanation.feed, url=redact_password(explanation.feed.url))
    values: dict[str, Any] = msgspec.to_builtins(replace(explanation, feed=feed))
    values["reason"] = values["feed"]["state"]["reason"] = to_json(explanation.reason)
    values["min_interval"]["reason"] = to_json(explanation.min_interval.reason)
    for row, poll in zip(values["polls"], explanation.polls, strict=True):
        row["reason"] = to_json(poll.reason)
    return values


async def overview(store: Store, budget: Budget, limits: Limits = DEFAULT_LIMITS) -> Overview:
    """Return budget, use of the budget and delays of the service.

    ``budget`` is the configured budget. The usable budget is computed from the store only, so that
    all processes report the same value.
    """
    status = await store.status()
    evidence = Evidence(status.polled_days, status.week.delays)
    per_day = effective_budget(await store.load_values(), budget).per_day(status.active_feeds)
    capacity, held_back = await _capacity(store, per_day, limits)
    return Overview(
        replace(
            status,
            **{
                name: _hide_weak_delays(getattr(status, name), evidence)
                for name in ("hour", "day", "week")
            },
        ),
        per_day,
        status.day.polls / per_day,
        usable_per_day=min(per_day, capacity),
        feeds_at_min_interval=held_back,
        capacity_per_day=capacity if np.isfinite(capacity) else None,
        evidence=evidence,
    )


def _hide_weak_delays(period: Period, evidence: Evidence) -> Period:
    """Return a period without the delay figures for which there is too little history."""
    return replace(
        period,
        delay_p50_s=period.delay_p50_s if evidence.has_median(period.delays) else None,
        delay_p90_s=period.delay_p90_s if evidence.has_p90(period.delays) else None,
    )


async def _capacity(store: Store, budget_per_day: float, limits: Limits) -> tuple[float, int]:
    """Return how many requests per day minimum intervals allow, and how many feeds they limit.

    A feed is limited if its minimum interval allows less than an even share of the budget. A feed
    that was never fetched has no minimum interval and counts with an even share.
    """
    timings = await store.timings()
    if not len(timings):
        return budget_per_day, 0
    known = timings["window"] > 0
    share = budget_per_day / len(timings)
    # Only the constraint table is needed, which is the same for every policy.
    planner = Planner(make_policy("uniform"), limits, seed=0)
    table = planner.table(timings[known], await store.forbidden_hours(), 0.0)
    capacity = capacity_per_day(table)
    return float(capacity.sum()) + share * int((~known).sum()), int((capacity < share).sum())


def budget_note(service_overview: Overview) -> str:
    """Return a sentence about the usable part of the budget if minimum intervals limit it.

    Returns an empty string if the whole budget can be used.
    """
    if service_overview.usable_per_day >= PLANNED_SHARE * service_overview.budget_per_day:
        return ""
    return n_(
        "Only %(usable)s of %(budget)s requests a day can be used. %(num)s feed is "
        "already checked as often as allowed.",
        "Only %(usable)s of %(budget)s requests a day can be used. %(num)s feeds are "
        "already checked as often as allowed.",
        service_overview.feeds_at_min_interval,
        usable=f"{int(service_overview.usable_per_day):,}",
        budget=f"{int(service_overview.budget_per_day):,}",
    )


def format_utc(at: float) -> str:
    """Format a time in UTC, such as ``2026-11-16 08:00 UTC``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _habits(feed: Feed, posts: Floats, now: float) -> tuple[str, ...]:
    window = feed.state.window
    if len(posts) < RATE_POSTS:
        return (
            _window_text(window, None),
            n_(
                "%(num)s post in the last %(days)s days, too few to estimate a posting rate",
                "%(num)s posts in the last %(days)s days, too few to estimate a posting rate",
                len(posts),
                days=HISTORY_DAYS,
            ),
        )
    observed_s = now - max(min(feed.added_at, float(posts[0])), now - HISTORY_DAYS * DAY_S)
    per_day = len(posts) / max(observed_s / DAY_S, 1e-3)
    low, high = (
        figures(max(bound, 0.0), 2) for bound in _rate_interval(posts, now - observed_s, now)
    )
    lines = [
        _window_text(window, window / per_day * DAY_S),
        _(
            "about %(rate)s posts a day in the last %(period)s (95 %% confidence: "
            "%(low)s to %(high)s)",
            rate=figures(per_day, 2),
            period=duration_short(observed_s),
            low=low,
            high=high,
        ),
        _("the last post is %(age)s old", age=duration_short(now - posts[-1])),
    ]
    hours = np.bincount((posts // HOUR_S).astype(np.int64) % 24, minlength=24)
    spans = np.array([np.roll(hours, -h)[:SPAN_H].sum() for h in range(24)])
    start = int(spans.argmax())
    if len(posts) >= SPAN_POSTS and spans[start] >= SPAN_SHARE * len(posts):
        span = f"{start:02d}–{(start + SPAN_H) % 24:02d} h UTC"
        if spans[start] == len(posts):
            lines.append(_("all posts are published at %(hours)s", hours=span))
        else:
            share = percent_short(spans[start] / len(posts))
            lines.append(
                _("%(share)s of the posts are published at %(hours)s", share=share, hours=span)
            )
    return tuple(lines)


def _window_text(window: int, shown_s: float | None) -> str:
    """Describe how many posts the feed document lists and for how long it lists a post.

    ``shown_s`` is that time in seconds, or None if it is unknown.
    """
    if not window:
        return _("the feed has not been fetched yet")
    if shown_s is None:
        return n_(
            "the feed lists only its latest post",
            "the feed lists its latest %(num)s posts",
            window,
        )
    return n_(
        "the feed lists only its latest post, for about %(period)s",
        "the feed lists its latest %(num)s posts, which cover about %(period)s",
        window,
        period=duration_short(shown_s),
    )


def _rate_interval(posts: Floats, start: float, end: float) -> tuple[float, float]:
    """Return the 95 % confidence interval of the posting rate in posts per day.

    Daily counts of bursty feeds vary more than those of a Poisson process, so the interval is
    widened by their index of dispersion.
    """
    days = max((end - start) / DAY_S, 1e-3)
    counts = np.histogram(posts, bins=max(int(days), 1), range=(start, end))[0]
    dispersion = max(float(counts.var() / max(counts.mean(), 1e-9)), 1.0)
    half = Z_95 * np.sqrt(len(posts) * dispersion)
    return (len(posts) - half) / days, (len(posts) + half) / days


def _overlap(polls: tuple[Poll, ...]) -> tuple[str, ...]:
    """Describe whether the latest document has entries that were already known.

    Returns an empty tuple if fewer than two of the polls returned a document.
    """
    documents = [poll for poll in polls if poll.entries and poll.source == "poll"]
    if len(documents) < 2:
        return ()
    last = documents[0]
    known = last.entries - last.new
    verdict = _("no posts were missed") if known else _("posts may have been missed")
    return (
        _(
            "at the last check, %(known)s of %(entries)s posts were already known: %(verdict)s",
            entries=last.entries,
            known=known,
            verdict=verdict,
        ),
    )


def _poll_constraints(feed: Feed, push: PushSubscription | None, now: float) -> tuple[str, ...]:
    state, hints, lines = feed.state, feed.state.hints, []
    if hints.ttl_s is not None:
        lines.append(
            _("the feed requests %(interval)s between checks (ttl)", interval=duration(hints.ttl_s))
        )
    if hints.period_s is not None:
        lines.append(
            _(
                "the feed says that it is updated every %(interval)s (sy:updatePeriod)",
                interval=duration(hints.period_s),
            )
        )
    if state.forbidden:
        skipped = int(np.unpackbits(np.frombuffer(state.forbidden, dtype=np.uint8)).sum())
        lines.append(
            _(
                "the publisher excludes %(skipped)s of %(hours)s hours of the week "
                "(skipHours, skipDays)",
                skipped=skipped,
                hours=HOURS_PER_WEEK,
            )
        )
    elif hints.skip_hours or hints.skip_days:
        lines.append(_("skipHours and skipDays are ignored, because they exclude all hours"))
    if state.earliest_at is not None and state.earliest_at > now:
        lines.append(
            _("the server asked us to wait until %(time)s", time=format_utc(state.earliest_at))
        )
    if state.hubs:
        hub = _("WebSub hub: %(url)s", url=state.hubs[0])
        lines.append(f"{hub} ({_push_state(push)})" if push is not None else hub)
    return tuple(lines)


def _push_state(push: PushSubscription) -> str:
    return {
        "asked": _("subscription requested"),
        "active": _("subscription active"),
        "refused": _("subscription denied"),
        "ended": _("subscription ended"),
    }.get(push.state, push.state)


def _gap_state(gap: Gap) -> str:
    return {
        "open": _("none recovered yet"),
        "lost": _("they could not be recovered"),
        "partly": _("some of them were recovered"),
        "repaired": _("all of them were recovered"),
    }.get(gap.state, gap.state)


def _problems(feed: Feed, gaps: tuple[Gap, ...], now: float) -> tuple[str, ...]:
    state, lines = feed.state, []
    if feed.retired_at is not None:
        lines.append(
            _(
                "checks stopped at %(time)s: %(reason)s",
                time=format_utc(feed.retired_at),
                reason=feed.retired_reason,
            )
        )
    if state.errors:
        since = now if state.failing_since is None else state.failing_since
        lines.append(
            n_(
                "the last check failed %(period)s ago: %(error)s",
                "the last %(num)s checks failed, the first of them %(period)s ago: %(error)s",
                state.errors,
                period=duration_short(now - since),
                error=state.last_error,
            )
        )
        if now - since >= DEAD_AFTER_S:
            lines.append(_("the feed has failed for a long time and is checked once a month"))
    if state.moved_to:
        lines.append(
            _(
                "the server redirects permanently to %(url)s (seen %(count)s times; "
                "the address changes after %(needed)s)",
                url=redact_password(state.moved_to),
                count=state.moved_sightings,
                needed=MIN_MOVE_REDIRECTS,
            )
        )
    elif state.validators_url and state.validators_url != strip_credentials(feed.url):
        lines.append(_("the server redirects temporarily to %(url)s", url=state.validators_url))
    lines += [
        _(
            "about %(missed)s posts were missed before %(time)s: %(state)s",
            missed=figures(gap.missed, 2),
            time=format_utc(gap.until_at),
            state=_gap_state(gap),
        )
        for gap in gaps
    ]
    return tuple(lines)
