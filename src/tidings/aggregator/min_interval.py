"""The minimum interval of one feed, from what the store knows of it: for display, and for subscribers' changes."""

import math

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tidings.aggregator.poll_observation import stored_constraint_facts
from tidings.policy.constraints import OVERRIDE, Constraints, Limits, constrain, reason_of
from tidings.reasons import NO_REASON, Reason
from tidings.store.feed_models import Feed, Schedule
from tidings.store.feeds import timing_of


class MinInterval(Struct, frozen=True):
    """The minimum interval of a feed, before the stretch that spreads feeds (`constraints.STRETCH`)."""

    interval_s: float
    reason: Reason  #: what sets it; none before the first document
    automatic_s: float  #: without what subscribers have set


def min_interval(feed: Feed, limits: Limits) -> MinInterval:
    """The minimum interval in force for a feed, and what sets it."""
    facts, found = _constrain(feed, limits)
    without = facts.copy()
    without["override_s"] = 0.0
    automatic = constrain(without, np.zeros(1), limits)
    why = reason_of(found, facts, 0) if feed.state.window else NO_REASON
    return MinInterval(float(found.min_interval_s[0]), why, float(automatic.min_interval_s[0]))


def postpone_to_min_interval(feed: Feed, limits: Limits) -> Schedule | None:
    """The next poll of a feed that is planned before the minimum interval of its subscribers is over; else None."""
    facts, found = _constrain(feed, limits)
    planned, earliest = feed.state.next_poll_at, float(found.earliest[0])
    if planned is None or planned >= earliest or found.code[0] != OVERRIDE:
        return None
    return Schedule(feed.id, math.ceil(earliest), reason_of(found, facts, 0))


def _constrain(feed: Feed, limits: Limits) -> tuple[npt.NDArray[np.void], Constraints]:
    """The constraint rule for one feed, without waits after failures."""
    facts = stored_constraint_facts(timing_of(feed), {})
    facts["retry_at"] = facts["backoff_until"] = -np.inf
    return facts, constrain(facts, np.zeros(1), limits)
