"""The simulator: a trace replayed under a policy, which sees nothing but what its own polls return.

Feeds share nothing but what a policy changes in `tick`, so between two ticks all feeds are advanced together, each on its own
time: one vector operation serves thousands of polls, and the result is the same as event by event.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidings.lab.segments import offsets_of
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, WEEK_S, Documents, Floats, Ints, Rows
from tidings.policy import Feeds, Policy

#: Two polls of one feed are at least this far apart; polls happen at whole seconds.
LEAST_GAP_S = 1.0
#: Longer than any trace, in seconds; a power of two, so that feed x span + time is exact in 64 bits.
SPAN_S = 2**33
#: The least gap between polls is stretched by up to this share, by the feed's phase, as the living service does it.
STRETCH = 0.2


@dataclass(frozen=True, slots=True)
class Polls:
    """A poll list, sorted by feed and time; ``offsets[i]:offsets[i + 1]`` are those of feed i."""

    times: Floats
    offsets: Ints

    @classmethod
    def build(cls, feed: Ints, times: Floats, n_feeds: int) -> "Polls":
        order = np.lexsort((times, feed))
        return cls(times[order], offsets_of(feed[order], n_feeds))

    @property
    def feed(self) -> Ints:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def __len__(self) -> int:
        return len(self.times)


class Publisher:
    """Holds the posts; answers polls with the last S entries, and remembers what the aggregator has seen."""

    def __init__(self, trace: Trace, known: Ints) -> None:
        self._times, self._window, self._first = trace.times, trace.window, trace.offsets[:-1]
        self._known = known.copy()
        # All posts in one sorted array of whole numbers: a poll at a whole second sees a post of the second's fraction
        # before it, so rounding posts up changes nothing.
        self._start = np.floor(trace.start)
        self._keys = trace.feed_of_post * SPAN_S + np.ceil(trace.times - self._start).astype(np.int64)

    def poll(self, rows: Rows, now: Floats) -> Documents:
        """The documents of ``rows`` at ``now``; a post at exactly ``now`` is in its document."""
        known = self._known[rows]
        keys = rows * SPAN_S + (now - self._start).astype(np.int64)
        end = np.searchsorted(self._keys, keys, side="right").astype(np.int64)
        first = np.maximum(end - self._window[rows], self._first[rows])
        gap = (first >= known) & (known > self._first[rows]) & (end > known)
        self._known[rows] = end
        return Documents(self._times, first, np.maximum(known, first), end, gap)


@dataclass(frozen=True, slots=True)
class Manners:
    """What the living service keeps to whatever its policy wants, and what comes to it without asking."""

    least_gap_s: float = HOUR_S  #: between two polls of a feed, unless its document would be replaced meanwhile
    longest_s: float = WEEK_S
    pushed: Floats | None = None  #: share of each feed's posts that hubs send

    def begin(self, feeds: Feeds, now: float) -> None:
        """All feeds have just been polled."""
        feeds.longest_s[:] = self.longest_s
        feeds.earliest[:] = now + self.least_gap_s * (1 + STRETCH * feeds.phase)
        if self.pushed is not None:
            feeds.pushed[:] = self.pushed

    def after(self, feeds: Feeds, rows: Rows, now: Floats, seen: Documents) -> None:
        """These have been polled: not again before it is polite, or before half of a full document may have been replaced."""
        count = seen.count
        with np.errstate(divide="ignore", invalid="ignore"):
            replaced_s = (seen.newest() - seen.oldest()) / (count - 1) * count
        full = (count >= feeds.window[rows]) & (count > 1)
        gap_s = np.where(full, np.minimum(self.least_gap_s, replaced_s / 2), self.least_gap_s)
        feeds.earliest[rows] = now + gap_s * (1 + STRETCH * feeds.phase[rows])


def simulate(
    trace: Trace,
    policy: Policy,
    budget_per_feed_day: float,
    start: float,
    end: float | None = None,
    *,
    seed: int = 0,
    manners: Manners | None = None,
    progress: Callable[[float], None] | None = None,
) -> Polls:
    """Run ``policy`` from ``start`` to ``end`` (the trace's last post); posts before ``start`` are known to it.

    With ``manners``, as the living service would run it.
    """
    end = trace.end if end is None else end
    n = trace.n_feeds
    history = trace.history(start)
    publisher = Publisher(trace, history.end)
    feeds = Feeds.of(trace.window, trace.weight, seed)
    if manners is not None:
        manners.begin(feeds, start)
        budget_per_feed_day = min(budget_per_feed_day, DAY_S / max(manners.least_gap_s, LEAST_GAP_S))
    policy.start(feeds, history, trace.start, start, budget_per_feed_day * n)
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
            if policy.learns or manners is not None:
                seen = publisher.poll(rows, times)
                if manners is not None:
                    manners.after(feeds, rows, times, seen)
                if policy.learns:
                    policy.observe(rows, times, seen)
            due_at[rows] = np.ceil(np.maximum(policy.decide(rows, times).times, times + LEAST_GAP_S))
            rows = rows[due_at[rows] <= tick if final else due_at[rows] < tick]
        if not final:
            again = policy.tick(tick, spent)
            if again is not None and len(again):
                when = np.full(len(again), tick - LEAST_GAP_S)  # a poll may still be due at the tick itself
                due_at[again] = np.ceil(np.maximum(policy.decide(again, when).times, last[again] + LEAST_GAP_S))
        if progress is not None:
            progress((tick - start) / (end - start))
    if not polled:
        return Polls(np.empty(0), np.zeros(n + 1, dtype=np.int64))
    return Polls.build(np.concatenate(polled), np.concatenate(polled_at), n)


def budget_polls(trace: Trace, budget_per_feed_day: float, start: float) -> float:
    """Polls that a budget allows from ``start`` to the end of the trace."""
    return budget_per_feed_day * trace.n_feeds * (trace.end - start) / DAY_S
