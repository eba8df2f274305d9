"""Friends with the same feeds: what it costs a publisher that they look, when they tell each other that they looked.

Each node runs `price` with its own budget and its own part of the network. A neighbour's notice is to the policy a look that
cost nothing, and a bundle one that found something; that is all it needs to know. Nodes that know the same would look at the
same moment, so each waits a random moment longer, and whoever is first tells the others.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidings.document import Entry
from tidings.exchange.values import Rules
from tidings.lab.exchange_world import Servers, World
from tidings.lab.generate import generate
from tidings.lab.score import judge
from tidings.lab.simulate import simulate
from tidings.lab.traces import Trace
from tidings.model import DAY_S, Documents, Floats
from tidings.policy import Feeds, Policy, make_policy
from tidings.policy.together import longer_s

LEARN_DAYS = 14.0
#: The network forms, and the price settles: nobody knows at first how much others will look.
SETTLE_DAYS = 2.0
#: Notices are sent so often.
FLUSH_S = 2.0


@dataclass(frozen=True, slots=True)
class Friends:
    """The setting."""

    nodes: int = 20
    feeds: int = 50
    per_feed_day: float = 12.0  #: polls that all nodes together may make of a feed in a day
    days: float = 7.0  #: in fewer, single feeds have too few looks to be compared
    settle_days: float = SETTLE_DAYS
    call_s: float = 0.5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of it."""

    polls: float  #: per feed and day, of all nodes together
    lag_s: Floats  #: mean lag of each node
    coverage: Floats
    own_lag_s: float  #: mean lag of a node alone with its own budget
    alone_polls: float  #: per feed and day, of one node alone that has the friends' mean lag
    feed_ratio: Floats  #: polls of each feed, against those by that one node

    @property
    def ratio(self) -> float:
        return self.polls / self.alone_polls


class _Reader:
    """A node's policy, living on the world's clock."""

    def __init__(self, world: World, place: int, policy: Policy, trace: Trace, start: float, budget: float, seed: int) -> None:
        self._world, self._place, self._policy = world, place, policy
        policy.start(Feeds.of(trace.window, trace.weight, seed), trace.history(start), trace.start, start, budget)
        everyone = np.arange(trace.n_feeds)
        self._due: list[float] = policy.decide(everyone, np.full(trace.n_feeds, start), first=True).times.tolist()
        self._last = [start] * trace.n_feeds
        self._random = random.Random(seed)
        self.polls: list[tuple[int, float]] = []
        for feed, due in enumerate(self._due):
            world.at(due, self._come, feed, due)
        world.at(start + policy.tick_s, self._tick)

    def _tick(self) -> None:
        rows = self._policy.tick(self._world.now, len(self.polls))
        for feed in rows.tolist() if rows is not None else ():
            self._decide(feed)
        self._world.at(self._world.now + self._policy.tick_s, self._tick)

    def _come(self, feed: int, due: float) -> None:
        """It is time to look, unless a look of others or the price has moved the time."""
        now = self._world.now
        if self._due[feed] != due:
            return
        self.polls.append((feed, now))
        new = self._world.poll(self._place, feed)
        self._world.at(now + FLUSH_S, self._world.tick, self._place)
        self.looked(feed, now, [entry.published or now for entry in new])

    def hear(self) -> None:
        self._policy.others += 1

    def looked(self, feed: int, at: float, times: Sequence[float]) -> None:
        """Somebody has looked, perhaps we, and this was new."""
        if at < self._last[feed] and not times:
            return
        at = max(at, self._last[feed])
        zero = np.zeros(1, dtype=np.int64)
        seen = Documents(np.sort(np.array(times, dtype=np.float64)), zero, zero, zero + len(times), zero.astype(np.bool_))
        self._policy.observe(np.array([feed]), np.array([at]), seen)
        self._last[feed] = at
        self._decide(feed)

    def _decide(self, feed: int) -> None:
        now = self._world.now
        at = float(self._policy.decide(np.array([feed]), np.array([self._last[feed]])).times[0])
        due = max(at, now + 1.0) + longer_s(at - self._last[feed], self._policy.turns, self._random.random)
        self._due[feed] = due
        self._world.at(due, self._come, feed, due)


def run(setup: Friends, progress: Callable[[float], None] | None = None) -> Shared:
    """The friends together, and the same alone."""
    trace = generate("sia-cho", setup.feeds, LEARN_DAYS + setup.settle_days + setup.days + 0.5, setup.seed)
    start = trace.start + LEARN_DAYS * DAY_S
    begin = start + setup.settle_days * DAY_S
    end = begin + setup.days * DAY_S
    few = Rules(notices=True, calls_per_min=1e9, deficit=float("inf"))
    everything = [list(range(setup.feeds))] * setup.nodes
    world = World(Servers(trace), everything, few, setup.call_s, setup.seed)
    budget = setup.per_feed_day / setup.nodes
    for i in range(setup.nodes):
        world.every(few.advertise_s, start - 3600 + 10.0 * i, world.tick, i)
        for feed, name in enumerate(world.servers.names):  # all have read until now
            world.nodes[i].ledger.show(name, world.servers.document(feed, start), start)
    world.run(start - 1)
    readers = [
        _Reader(world, i, make_policy("price"), trace, start, budget * setup.feeds, setup.seed * 1000 + i)
        for i in range(setup.nodes)
    ]

    def arrived(i: int, feed: int, entries: Sequence[Entry]) -> None:
        readers[i].looked(feed, world.now, [entry.published or world.now for entry in entries])

    def looked(i: int, feed: int, at: float) -> None:
        world.at(world.now + FLUSH_S, world.tick, i)  # it is passed on
        readers[i].hear()
        readers[i].looked(feed, at, ())

    world.on_arrived, world.on_looked = arrived, looked
    for step in range(1, 51):
        world.run(start + (end - start) * step / 50)
        if progress is not None:
            progress(step / 50)
    polls = np.zeros(setup.feeds)
    for reader in readers:
        for feed, at in reader.polls:
            polls[feed] += at >= begin
    lags = [_lag(world, i, begin, end) for i in range(setup.nodes)]
    lag_s, coverage = np.array([found[0] for found in lags]), np.array([found[1] for found in lags])
    per_day = polls / setup.days
    alone_polls, feed_polls = _alone_at(trace, float(lag_s.mean()), setup.per_feed_day, start, begin, end)
    own_lag_s = _alone(trace, budget, start, begin, end)[0]
    return Shared(float(per_day.mean()), lag_s, coverage, own_lag_s, alone_polls, per_day / np.maximum(feed_polls, 1e-9))


def _lag(world: World, i: int, begin: float, end: float) -> tuple[float, float]:
    """Mean lag and coverage of what was published long enough before the end to have been found."""
    lags, total = [], 0
    for entries in world.servers.entries:
        for entry in entries:
            if entry.published is not None and begin <= entry.published <= end - DAY_S / 4:
                total += 1
                at = world.arrivals[i].get(entry.identity)
                if at is not None:
                    lags.append(at - entry.published)
    return float(np.mean(lags)), len(lags) / max(total, 1)


def _alone(trace: Trace, budget: float, start: float, begin: float, end: float) -> tuple[float, Floats]:
    """One node alone: mean lag, and polls of each feed in a day."""
    polls = simulate(trace, make_policy("price"), budget, start, end)
    judged = judge(trace, polls, begin, end)
    published = trace.times[(trace.times >= begin) & (trace.times <= end)]
    kept = ~judged.missed & (published <= end - DAY_S / 4)
    count = np.array([(t >= begin).sum() for t in np.split(polls.times, polls.offsets[1:-1])])
    return float(judged.delay_s[kept].mean()), count / ((end - begin) / DAY_S)


def _alone_at(trace: Trace, lag_s: float, near: float, start: float, begin: float, end: float) -> tuple[float, Floats]:
    """Polls per feed and day that one node alone needs for this mean lag, found by bisection in the logarithm."""
    low, high = near / 8, near * 8
    for _ in range(9):
        middle = float(np.sqrt(low * high))
        found, polls = _alone(trace, middle, start, begin, end)
        low, high = (middle, high) if found > lag_s else (low, middle)
    return float(polls.mean()), polls
