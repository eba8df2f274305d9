"""Delay forecast for other budgets and hourly polling, simulated on our own history.

All figures are simulated, including those of today's budget: the same posts, period and poll
constraints, only the budget or the policy differs. Measured figures are in `store.poll_statistics`.
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
from tidings.web.request_context import AppServices

if TYPE_CHECKING:
    from tidings.lab.simulate import Conditions
    from tidings.lab.traces import Trace
    from tidings.lab.whatif import Point as Simulated

#: Range of the budget slider and of the simulated budgets, in requests per feed and day.
MIN_REQUESTS_PER_FEED, MAX_REQUESTS_PER_FEED = 1.0, 96.0
#: Simulated budgets as multiples of today's.
BUDGET_FACTORS = (0.5, 1.0, 2.0)
#: The ends of the range are skipped if another simulated budget is closer than this factor.
MIN_BUDGET_RATIO = 1.5
#: Baseline policy: hourly polling, as most feed readers do.
HOURLY, HOURLY_PER_FEED = "fixed:interval_h=1", 24.0
#: Length of the replayed history. At most its second half is scored, so that the policy can learn
#: from the first, and at most a week.
REPLAY_PERIOD_S = 42 * DAY_S
JUDGED_SHARE, JUDGED_DAYS = 0.5, 7.0
#: Maximum number of simulated feeds; larger installations are sampled (about a minute of one core).
MAX_SIMULATED_FEEDS = 400


class Point(Struct, frozen=True):
    """Simulated figures at one budget."""

    per_day: float  #: the budget, over all feeds
    polls_per_day: float  #: requests used of the budget
    mean_s: float
    median_s: float
    missed_share: float


class Forecast(Struct, frozen=True):
    """Curve of delay against budget, with the parameters of the simulation."""

    at: float
    policy: str
    feeds: int
    posts: int  #: number of scored posts
    days: float  #: length of the scored period
    polled_days: float  #: since the first poll
    budget: float  #: requests a day when the forecast was made
    points: tuple[Point, ...]
    own: Point  #: today's budget, which is one of the points
    hourly: Point | None  #: hourly polling of the same feeds; None before a week of polling

    def mean_s(self, per_day: float) -> float:
        """Interpolate the mean delay for a budget (log-log, that is along a power law)."""
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
    """This installation's history as a trace, with the poll constraints of its feeds."""

    trace: "Trace"
    conditions: "Conditions"
    polled_days: float  #: since the first poll
    first_poll_at: float

    @property
    def judged_days(self) -> float:
        """Days at the end of the trace that are scored.

        Starts no earlier than the first poll: of the time before, only posts that the first poll
        still found are known, so missed posts would be underestimated.
        """
        polled_days = max(self.trace.end - self.first_poll_at, 0.0) / DAY_S
        return min(JUDGED_SHARE * self.trace.days, JUDGED_DAYS, polled_days)

    @property
    def train_days(self) -> float:
        """Days at the start of the trace that policies learn from."""
        return self.trace.days - self.judged_days

    def check(self, posts: int | None = None) -> None:
        """Raise `UsageError` if there is too little history; ``posts``: scored posts, if known."""
        if posts is None:
            posts = int((self.trace.times >= self.trace.end - self.judged_days * DAY_S).sum())
        if missing := curve_needs(self.trace.days, self.polled_days, posts):
            raise UsageError(missing)


async def own_forecast(services: AppServices) -> Forecast:
    """Return the forecast for today's budget, simulated in a subprocess and cached for hours."""
    scheduler, now = services.aggregator.scheduler, services.clock()
    policy, budget = scheduler.policy.name, scheduler.budget_per_day

    async def job() -> tuple[Any, ...]:
        return (
            forecast,
            await own_trace(services.store, now, scheduler.limits, judged=True),
            policy,
            budget,
            now,
        )

    found: Forecast = await services.simulations.get((policy, budget), job)
    return found


async def own_trace(store: Store, now: float, limits: Limits, *, judged: bool = False) -> OwnTrace:
    """Load this installation's history as a trace with the poll constraints of its feeds.

    ``judged``: raise `UsageError` if there is too little history to score.
    """
    # Imported here because the simulation loads Numba, which most processes do not need.
    from tidings.lab.simulate import Conditions
    from tidings.lab.traces import Trace

    days = await store.read(polled_days, now)
    if judged and days < DELAY_DAYS:  # checked first: needs no posts
        raise UsageError(curve_needs(None, days, None))
    past = await load_feed_history(store, now)
    recent = past.times >= now - REPLAY_PERIOD_S
    if not recent.any():
        raise UsageError(_("no posts in the last weeks to simulate"))
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
        known_since=np.maximum(past.since, now - REPLAY_PERIOD_S),
    )
    own = OwnTrace(trace, conditions, days, now - days * DAY_S)
    if judged:
        own.check()
    return own


def budgets_to_simulate(per_feed: float) -> list[float]:
    """Return budgets per feed and day: today's, half, twice, and the ends of the slider."""
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
    """Simulate budgets around ``budget`` (requests a day over all feeds), and hourly polling."""
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
    """Simulate hourly polling of the same feeds, period and constraints."""
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
