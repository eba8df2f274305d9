"""Forecast of other budgets, and of hourly polling: the installation's own history replayed under its constraints.

Everything here is simulated, also the figures of today's budget: the same posts, the same period, the same
constraints, and only the budget or the policy differs. What was measured stands in `store.timing`.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tidings.aggregator.feed_history import load_feed_history
from tidings.errors import UsageError
from tidings.i18n import _
from tidings.model import DAY_S
from tidings.policy.constraints import CONDITIONAL_SHARE, Limits
from tidings.store import Store
from tidings.store.evidence import COMPARISON_DAYS, DELAY_DAYS, curve_needs, polled_days
from tidings.web.request_context import Site

if TYPE_CHECKING:
    from tidings.lab.simulate import Conditions
    from tidings.lab.traces import Trace
    from tidings.lab.whatif import Point as Simulated

#: Requests per feed and day: the range of the page's slider, and the budgets that are simulated beside today's.
MIN_REQUESTS_PER_FEED, MAX_REQUESTS_PER_FEED = 1.0, 96.0
#: Budgets that are simulated beside today's, as multiples of it: the changes that somebody is likely to make.
BUDGET_FACTORS = (0.5, 1.0, 2.0)
#: The ends of the range are left out where they are closer to one of these than this factor.
MIN_BUDGET_RATIO = 1.5
#: Hourly polling, with which readers that do not learn are compared.
HOURLY, HOURLY_PER_FEED = "fixed:interval_h=1", 24.0
#: This much of the past is replayed. No more than its second half is judged, so that the policy has as much
#: to learn from, and no more than a week.
REPLAY_PERIOD_S = 42 * DAY_S
JUDGED_SHARE, JUDGED_DAYS = 0.5, 7.0
#: Of more feeds than this a sample is replayed: it bounds the running time to about a minute of one core.
MAX_SIMULATED_FEEDS = 400


class Point(Struct, frozen=True):
    """Simulated figures at one budget."""

    per_day: float  #: the budget, over all feeds
    polls_per_day: float  #: requests that were made of it
    mean_s: float
    median_s: float
    missed_share: float


class Forecast(Struct, frozen=True):
    """The curve of delay against budget, and how it was made."""

    at: float
    policy: str
    feeds: int
    posts: int  #: judged
    days: float  #: judged
    polled_days: float  #: since the first poll
    budget: float  #: requests a day, as it was set then
    points: tuple[Point, ...]
    own: Point  #: today's budget, which is one of the points
    hourly: Point | None  #: hourly polling of the same feeds; None before a week of polling

    def mean_s(self, per_day: float) -> float:
        """The mean delay that is forecast for a budget: between the points along a power law."""
        return float(
            np.exp(
                np.interp(
                    np.log(per_day),
                    np.log([p.per_day for p in self.points]),
                    np.log([p.mean_s for p in self.points]),
                )
            )
        )


@dataclass(frozen=True, slots=True)
class OwnTrace:
    """The installation's own history as a trace, and what its feeds are polled under."""

    trace: "Trace"
    conditions: "Conditions"
    polled_days: float  #: since the first poll
    first_poll_at: float

    @property
    def judged_days(self) -> float:
        """Days at the end of the trace that may be judged.

        Not before the first poll: of that time only the posts are known that first documents still held, so
        that hardly any would be missed.
        """
        polled_days = max(self.trace.end - self.first_poll_at, 0.0) / DAY_S
        return min(JUDGED_SHARE * self.trace.days, JUDGED_DAYS, polled_days)

    @property
    def train_days(self) -> float:
        """Days at its beginning that policies learn from."""
        return self.trace.days - self.judged_days

    def check(self, posts: int | None = None) -> None:
        """Raise `UsageError` where there is too little history to judge; ``posts`` were judged, if that is known."""
        if posts is None:
            posts = int((self.trace.times >= self.trace.end - self.judged_days * DAY_S).sum())
        if missing := curve_needs(self.trace.days, self.polled_days, posts):
            raise UsageError(missing)


async def own_forecast(site: Site) -> Forecast:
    """The forecast for today's budget, simulated in a process of its own and kept for hours."""
    scheduler, now = site.aggregator.scheduler, site.clock()
    policy, budget = scheduler.policy.name, scheduler.budget_per_day

    async def job() -> tuple[Any, ...]:
        return (
            forecast,
            await own_trace(site.store, now, scheduler.limits, judged=True),
            policy,
            budget,
            now,
        )

    found: Forecast = await site.simulations.get((policy, budget), job)
    return found


async def own_trace(store: Store, now: float, limits: Limits, *, judged: bool = False) -> OwnTrace:
    """The installation's history, and the conditions under which its feeds are polled.

    ``judged``: raise `UsageError` where there is too little of it for figures.
    """
    from tidings.lab.simulate import (
        Conditions,  # imports a compiler, which few who run the service need
    )
    from tidings.lab.traces import Trace

    days = await store.read(polled_days, now)
    if judged and days < DELAY_DAYS:  # which is known without reading all posts
        raise UsageError(curve_needs(None, days, None))
    past = await load_feed_history(store, now)
    recent = past.times >= now - REPLAY_PERIOD_S
    if not recent.any():
        raise UsageError(_("there are no posts of the last weeks to replay"))
    trace = Trace.build(
        "own history",
        past.feed[recent],
        past.times[recent],
        past.window,
        weight=past.weight,
        feed_ids=past.feed_ids,
    )
    facts = past.facts
    conditions = Conditions(
        limits,
        ttl_s=facts["stated_s"],
        skip=facts["skip"],
        conditional=facts["not_modified"] >= CONDITIONAL_SHARE,
        document_bytes=facts["document_bytes"].astype(np.float64),
        override_s=facts["override_s"],
        pushed_share=past.pushed,
    )
    own = OwnTrace(trace, conditions, days, now - days * DAY_S)
    if judged:
        own.check()
    return own


def budgets_to_simulate(per_feed: float) -> list[float]:
    """Budgets per feed and day to simulate: today's, a half and twice of it, and the ends of the slider."""
    today = min(max(per_feed, 0.05), MAX_REQUESTS_PER_FEED)
    around = [
        today * factor
        for factor in BUDGET_FACTORS
        if factor == 1 or MIN_REQUESTS_PER_FEED <= today * factor <= MAX_REQUESTS_PER_FEED
    ]
    ends = [
        end
        for end in (MIN_REQUESTS_PER_FEED, MAX_REQUESTS_PER_FEED)
        if all(abs(math.log(end / b)) > math.log(MIN_BUDGET_RATIO) for b in around)
    ]
    return sorted([*around, *ends])


def forecast(own: OwnTrace, policy: str, budget: float, now: float) -> Forecast:
    """Replay the trace at budgets around one (requests a day over all feeds), and under hourly polling."""
    from tidings.lab.whatif import whatif

    feeds = own.trace.n_feeds
    budgets = budgets_to_simulate(budget / feeds)
    found = whatif(
        own.trace,
        budgets,
        policy,
        own.train_days,
        sample_feeds=MAX_SIMULATED_FEEDS,
        conditions=own.conditions,
    )
    own.check(found[0].posts)
    points = tuple(_point(point, feeds) for point in found)
    today = min(points, key=lambda point: abs(math.log(point.per_day / budget)))
    hourly = _point(_hourly(own), feeds) if own.polled_days >= COMPARISON_DAYS else None
    return Forecast(
        at=now,
        policy=policy,
        feeds=feeds,
        posts=found[0].posts,
        days=own.judged_days,
        polled_days=own.polled_days,
        budget=budget,
        points=points,
        own=today,
        hourly=hourly,
    )


def _hourly(own: OwnTrace) -> "Simulated":
    """Hourly polling of the same feeds in the same period under the same conditions."""
    from tidings.lab.score import metrics, score_polls
    from tidings.lab.simulate import simulate
    from tidings.lab.whatif import Point as Simulated
    from tidings.lab.whatif import exclude_pushed_feeds, sample_trace
    from tidings.policy import make_policy

    start, end = own.trace.training_end(own.train_days), own.trace.end
    replayed, conditions = sample_trace(own.trace, own.conditions, MAX_SIMULATED_FEEDS, 0)
    polls = simulate(
        replayed, make_policy(HOURLY), HOURLY_PER_FEED, start, end, conditions=conditions
    )
    found: dict[str, Any] = metrics(
        exclude_pushed_feeds(score_polls(replayed, polls, start, end), conditions)
    )
    per_feed = found["polls_per_feed_day"] or 0.0
    return Simulated(
        budget=HOURLY_PER_FEED,
        polls_per_feed_day=per_feed,
        polls_per_day=per_feed * own.trace.n_feeds,
        **{name: found[name] for name in _FIGURES},
    )


_FIGURES = (
    "posts",
    "mean_delay_s",
    "median_delay_s",
    "p95_delay_s",
    "missed_share",
    "charged_delay_s",
)


def _point(found: "Simulated", feeds: int) -> Point:
    return Point(
        per_day=found.budget * feeds,
        polls_per_day=found.polls_per_day,
        mean_s=max(found.mean_delay_s or 1.0, 1.0),
        median_s=max(found.median_delay_s or 1.0, 1.0),
        missed_share=found.missed_share or 0.0,
    )
