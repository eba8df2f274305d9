"""What a bigger or smaller budget would buy this installation: its own history replayed at a ladder of budgets."""

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from tidings.aggregator.history import own_history
from tidings.errors import UsageError
from tidings.model import DAY_S
from tidings.policy.constraints import CONDITIONAL_SHARE, Limits
from tidings.store import Store
from tidings.texts import _
from tidings.web.visit import Site

if TYPE_CHECKING:
    from tidings.lab.simulate import Conditions
    from tidings.lab.traces import Trace

#: Around the budget of today; no feed is asked more often than every hour.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST_PER_FEED = 24.0
#: So much of the past is replayed. Judged is no more than the last quarter of it, since the policy of today has learned from
#: all the rest; and no more than two weeks.
PAST_S = 42 * DAY_S
JUDGED_SHARE, JUDGED_DAYS = 0.25, 14.0
#: Of more feeds than this a sample is replayed.
SAMPLE = 400
#: Less says nothing.
LEAST_POSTS = 50


class Point(Struct, frozen=True):
    """What so many requests a day would have bought."""

    per_day: float
    mean_s: float
    half_s: float
    missed_share: float


class Forecast(Struct, frozen=True):
    """The curve, and how it was made."""

    at: float
    policy: str
    feeds: int
    posts: int  #: judged
    budget: float  #: requests a day, as it was set then
    points: tuple[Point, ...]

    def mean_s(self, per_day: float) -> float:
        """The mean delay that is promised for a budget: between the points along a power law."""
        return float(
            np.exp(
                np.interp(np.log(per_day), np.log([p.per_day for p in self.points]), np.log([p.mean_s for p in self.points]))
            )
        )


async def own_forecast(site: Site) -> Forecast:
    """For the budget of today."""
    brain, now = site.aggregator.brain, site.clock()
    policy, budget = brain.policy.name, brain.budget_per_day

    async def question() -> tuple[Any, ...]:
        return (forecast, *await own_trace(site.store, now, brain.limits), policy, budget, now)

    told: Forecast = await site.replays.get((policy, budget), question)
    return told


async def own_trace(store: Store, now: float, limits: Limits) -> "tuple[Trace, Conditions]":
    """The installation's history as a trace, and the conditions under which its feeds are polled."""
    from tidings.lab.simulate import Conditions  # imports a compiler, which few who run the service need
    from tidings.lab.traces import Trace

    past = await own_history(store, now)
    recent = past.times >= now - PAST_S
    if recent.sum() < LEAST_POSTS:
        raise UsageError(_("there is too little history yet: %(posts)s posts; come back in some days", posts=int(recent.sum())))
    feed, times = past.feed[recent], past.times[recent]
    trace = Trace.build("own history", feed, times, past.window, weight=past.weight, feed_ids=past.feed_ids)
    facts = past.facts
    conditions = Conditions(
        limits,
        ttl_s=facts["stated_s"],
        skip=facts["skip"],
        conditional=facts["not_modified"] >= CONDITIONAL_SHARE,
        document_bytes=facts["document_bytes"].astype(np.float64),
        override_s=facts["override_s"],
        pushed=past.pushed,
    )
    return trace, conditions


def forecast(trace: "Trace", conditions: "Conditions", policy: str, budget: float, now: float) -> Forecast:
    """Replay the trace at budgets around one (requests a day over all feeds)."""
    from tidings.lab.whatif import whatif

    each = min(max(budget / trace.n_feeds, 0.05), MOST_PER_FEED)
    budgets = sorted({min(each * factor, MOST_PER_FEED) for factor in FACTORS})
    train_days = trace.days - min(trace.days * JUDGED_SHARE, JUDGED_DAYS)
    found = whatif(trace, budgets, policy, train_days, sample_feeds=SAMPLE, conditions=conditions)
    points = tuple(
        Point(
            point.budget * trace.n_feeds,
            max(point.mean_delay_s or 1.0, 1.0),
            point.median_delay_s or 1.0,
            point.missed_share or 0.0,
        )
        for point in found
    )
    return Forecast(now, policy, trace.n_feeds, found[0].posts, budget, points)
