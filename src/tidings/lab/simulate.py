"""Simulate a policy on a trace; the policy sees only what its own polls return.

Feeds interact only through what a policy changes in `tick`, so between two ticks all feeds advance
together, each at its own time: one vector operation handles thousands of polls, with the same
result as event by event.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from tidings.lab.segments import segment_offsets
from tidings.lab.traces import Trace
from tidings.model import DAY_S, Bools, Documents, Floats, Ints, Rows
from tidings.policy import Feeds, Policy
from tidings.policy.constraints import (
    ASSUMED_CONDITIONAL_SHARE,
    DEFAULT_LIMITS,
    Limits,
    apply_constraints,
    constrain,
    learn_transfer,
    no_facts,
    stated_interval,
    usable_budget,
)

#: Minimum seconds between two polls of one feed. Polls happen at whole seconds.
MIN_GAP_S = 1.0
#: Time span in seconds that is longer than any trace. It is a power of two, so that feed x span +
#: time is exact in 64 bits.
SPAN_S = 2**33


@dataclass(frozen=True, slots=True)
class Polls:
    """List of polls, sorted by feed and time.

    ``offsets[i]:offsets[i + 1]`` are the polls of feed i. Times are epoch seconds.
    """

    times: Floats
    offsets: Ints

    @classmethod
    def build(cls, feed: Ints, times: Floats, n_feeds: int) -> "Polls":
        order = np.lexsort((times, feed))
        return cls(times[order], segment_offsets(feed[order], n_feeds))

    @property
    def feed(self) -> Ints:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def __len__(self) -> int:
        return len(self.times)


class Publisher:
    """Simulated publishers, which return the latest entries of each feed.

    They also record which posts have been seen.
    """

    def __init__(self, trace: Trace, known: Ints) -> None:
        self._times, self._window, self._first = trace.times, trace.window, trace.offsets[:-1]
        self._known = known.copy()
        self._size_before = np.concatenate([[0.0], np.cumsum(trace.sizes)])
        # All posts in one sorted array of whole numbers. A poll at a whole second sees a post of
        # the second's fraction before it, so rounding posts up changes nothing.
        self._start = np.floor(trace.start)
        self._keys = trace.feed_of_post * SPAN_S + np.ceil(trace.times - self._start).astype(
            np.int64
        )

    def poll(self, rows: Rows, now: Floats) -> Documents:
        """Return the documents of ``rows`` at ``now``, which include posts at exactly ``now``."""
        known = self._known[rows]
        keys = rows * SPAN_S + (now - self._start).astype(np.int64)
        end = np.searchsorted(self._keys, keys, side="right").astype(np.int64)
        first = np.maximum(end - self._window[rows], self._first[rows])
        gap = (first >= known) & (known > self._first[rows]) & (end > known)
        self._known[rows] = end
        return Documents(self._times, first, np.maximum(known, first), end, gap)

    def document_bytes(self, seen: Documents) -> Floats:
        """Return the size in bytes of the documents that `poll` returned."""
        sizes: Floats = self._size_before[seen.end] - self._size_before[seen.first]
        return sizes


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a simulation "as served", with the limits of operator and publishers.

    Arrays have one element per feed of the trace; None means that the publishers state no interval,
    answer conditional requests with 304, and push nothing.
    """

    limits: Limits = DEFAULT_LIMITS
    ttl_s: Floats | None = None  #: ttl stated in the document, 0 for none
    max_age_s: Floats | None = None  #: max-age stated in every response, 0 for none
    skip: npt.NDArray[np.uint8] | None = (
        None  #: (n, 21) packed hours of the week, see `constraints.skip_hours`
    )
    conditional: Bools | None = None  #: whether an unchanged document is answered with 304
    document_bytes: Floats | None = None  #: size of a full document; None: sum of its entries
    override_s: Floats | None = None  #: minimum interval that subscribers have set, 0 for none
    pushed_share: Floats | None = None  #: share of each feed's posts that hubs push
    known_since: Floats | None = None  #: start of the known posts; None: the start of the trace

    def select(self, rows: Rows) -> "Conditions":
        """Return the conditions of the feeds with these row numbers."""
        arrays = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "limits"
        }
        chosen = {name: None if array is None else array[rows] for name, array in arrays.items()}
        return Conditions(self.limits, **chosen)


class SimulatedService:
    """Simulated service, which applies poll constraints to a feed after each poll."""

    def __init__(
        self, conditions: Conditions, feeds: Feeds, publisher: Publisher, now: float
    ) -> None:
        """Initialize the constraints as if all feeds had just been polled at ``now``."""
        n = len(feeds)
        self._conditions, self._feeds, self._publisher = conditions, feeds, publisher
        ttl_s, max_age_s = (
            np.zeros(n) if a is None else a for a in (conditions.ttl_s, conditions.max_age_s)
        )
        self._conditional = (
            np.ones(n, dtype=np.bool_) if conditions.conditional is None else conditions.conditional
        )
        self.facts = no_facts(n)
        self.facts["stated_s"], self.facts["stated_by"] = stated_interval(
            ttl_s, np.zeros(n), max_age_s
        )
        self.facts["window"] = feeds.window
        self.facts["not_modified"] = np.where(self._conditional, ASSUMED_CONDITIONAL_SHARE, 0.0)
        if conditions.override_s is not None:
            self.facts["override_s"] = conditions.override_s
        if conditions.skip is not None:
            self.facts["skip"] = conditions.skip
        if conditions.pushed_share is not None:
            feeds.pushed_share[:] = conditions.pushed_share
        everyone = np.arange(n)
        self.record_polls(
            everyone, np.full(n, now), publisher.poll(everyone, np.full(n, now)), first=True
        )

    def record_polls(
        self, rows: Rows, now: Floats, seen: Documents, *, first: bool = False
    ) -> None:
        """Learn from the responses of these polls, and update the constraints of the feeds."""
        facts = self.facts[rows]
        count = seen.count
        with np.errstate(divide="ignore", invalid="ignore"):
            facts["mean_gap_s"] = np.where(
                count > 1, (seen.newest() - seen.oldest()) / (count - 1), np.nan
            )
        facts["polled_at"], facts["entries"] = now, count
        unchanged = (seen.new == 0) & (not first)
        not_modified = unchanged & self._conditional[rows]
        chosen = self._conditions.document_bytes
        document = self._publisher.document_bytes(seen) if chosen is None else chosen[rows]
        facts = learn_transfer(
            facts, np.where(not_modified, 0.0, document), unchanged, not_modified
        )
        self.facts[rows] = facts
        apply_constraints(
            self._feeds, rows, constrain(facts, self._feeds.phase[rows], self._conditions.limits)
        )


def simulate(
    trace: Trace,
    policy: Policy,
    budget_per_feed_day: float,
    start: float,
    end: float | None = None,
    *,
    seed: int = 0,
    conditions: Conditions | None = None,
    progress: Callable[[float], None] | None = None,
) -> Polls:
    """Run ``policy`` on a trace from ``start`` to ``end`` and return its polls.

    The policy knows the posts before ``start``. ``budget_per_feed_day`` is in polls. With
    ``conditions`` the run is as served, that is under the poll constraints of the service and with
    the cost of polls. ``progress`` gets the finished share.
    """
    end = trace.end if end is None else end
    n = trace.n_feeds
    history = trace.history(start)
    publisher = Publisher(trace, history.end)
    feeds = Feeds.of(trace.window, trace.weight, seed)
    service = None if conditions is None else SimulatedService(conditions, feeds, publisher, start)
    budget = (
        budget_per_feed_day * n
        if service is None
        else usable_budget(feeds, budget_per_feed_day * n)[0]
    )
    since: float | Floats = trace.start
    if conditions is not None and conditions.known_since is not None:
        since = np.minimum(conditions.known_since, start)
    policy.start(feeds, history, since, start, budget)
    everyone = np.arange(n)
    now = np.full(n, start)
    due_at = np.ceil(policy.decide(everyone, now, first=True).times)
    last = np.full(n, -np.inf)
    polled: list[Ints] = []
    polled_at: list[Floats] = []
    spent = 0
    tick = start
    while tick < end:
        tick = min(tick + policy.tick_s, end)
        final = tick >= end
        rows = np.flatnonzero(due_at <= tick if final else due_at < tick)
        while len(rows):
            times = due_at[rows]
            polled.append(rows)
            polled_at.append(times)
            spent += len(rows)
            last[rows] = times
            if policy.learns or service is not None:
                seen = publisher.poll(rows, times)
                if service is not None:
                    service.record_polls(rows, times, seen)
                if policy.learns:
                    policy.observe(rows, times, seen)
            due_at[rows] = np.ceil(np.maximum(policy.decide(rows, times).times, times + MIN_GAP_S))
            rows = rows[due_at[rows] <= tick if final else due_at[rows] < tick]
        if not final:
            again = policy.tick(tick, spent)
            if again is not None and len(again):
                when = np.full(
                    len(again), tick - MIN_GAP_S
                )  # a poll may still be due at the tick itself
                due_at[again] = np.ceil(
                    np.maximum(policy.decide(again, when).times, last[again] + MIN_GAP_S)
                )
        if progress is not None:
            progress((tick - start) / (end - start))
    if not polled:
        return Polls(np.empty(0), np.zeros(n + 1, dtype=np.int64))
    return Polls.build(np.concatenate(polled), np.concatenate(polled_at), n)


def budget_polls(trace: Trace, budget_per_feed_day: float, start: float) -> float:
    """Return the number of polls that a budget allows from ``start`` to the end of the trace."""
    return budget_per_feed_day * trace.n_feeds * (trace.end - start) / DAY_S
