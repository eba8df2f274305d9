"""Minimum poll interval of one feed, computed from its stored state."""

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
    """Shortest time between two polls of a feed, with the reason for it.

    The small extra time that spreads the polls of feeds (`constraints.PHASE_JITTER_SHARE`) is not
    included.
    """

    interval_s: float
    reason: Reason  #: which rule sets the interval; `NO_REASON` before the first document
    automatic_s: float  #: interval in seconds that would apply without the subscribers' setting


def min_interval(feed: Feed, limits: Limits) -> MinInterval:
    """Return the shortest time between two polls of a feed, and the rule that sets it."""
    facts, constraints = _constrain(feed, limits)
    without = facts.copy()
    without["override_s"] = 0.0
    automatic = constrain(without, np.zeros(1), limits)
    return MinInterval(
        interval_s=float(constraints.min_interval_s[0]),
        reason=reason_of(constraints, facts, 0) if feed.state.window else NO_REASON,
        automatic_s=float(automatic.min_interval_s[0]),
    )


def postpone_to_min_interval(feed: Feed, limits: Limits) -> Schedule | None:
    """Return a later schedule if the planned poll violates the subscribers' minimum interval.

    Returns None if the planned poll respects that interval.
    """
    facts, constraints = _constrain(feed, limits)
    planned, earliest = feed.state.next_poll_at, float(constraints.earliest[0])
    if planned is None or planned >= earliest or constraints.code[0] != OVERRIDE:
        return None
    return Schedule(feed.id, math.ceil(earliest), reason_of(constraints, facts, 0))


def _constrain(feed: Feed, limits: Limits) -> tuple[npt.NDArray[np.void], Constraints]:
    """Return the data and the poll constraints of one feed, without waits after failures."""
    facts = stored_constraint_facts(timing_of(feed), {})
    facts["retry_at"] = facts["backoff_until"] = -np.inf
    return facts, constrain(facts, np.zeros(1), limits)
