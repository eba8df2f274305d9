"""Measure how many polls peers with the same feeds save by sharing poll notices.

Each node runs `price` with its own budget. A peer's notice counts as a poll without cost, a bundle
as a poll that returned new entries. Nodes with the same knowledge would poll at the same moment, so
each adds a random delay, and the first one notifies the others.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tidings.document import Entry
from tidings.exchange.protocol import NodeSettings
from tidings.lab.exchange_network import OriginServers, PeerNetwork
from tidings.lab.generate import generate
from tidings.lab.score import score_polls
from tidings.lab.simulate import simulate
from tidings.lab.traces import Trace
from tidings.model import DAY_S, Documents, Floats
from tidings.policy import Feeds, Policy, make_policy
from tidings.policy.coordination import coordination_delay_s

LEARN_DAYS = 14.0
#: Days until the network has formed and the price has converged, which are not scored.
SETTLE_DAYS = 2.0
#: Seconds between batches of notices.
FLUSH_S = 2.0


@dataclass(frozen=True, slots=True)
class NoticesSetup:
    """Parameters of the poll notices experiment."""

    nodes: int = 20
    feeds: int = 50
    per_feed_day: float = 12.0  #: polls per feed and day that all nodes together may make
    days: float = 7.0  #: with fewer days, single feeds have too few polls to be compared
    settle_days: float = SETTLE_DAYS
    call_s: float = 0.5  #: median latency of a call
    seed: int = 0


@dataclass(frozen=True, slots=True)
class NoticesResult:
    """Polls and lag of the peers, compared with standalone nodes."""

    polls: float  #: polls per feed and day of all nodes together
    lag_s: Floats  #: mean lag of each node
    coverage: Floats  #: share of posts that each node received
    standalone_lag_s: float  #: mean lag of a standalone node with its own budget
    standalone_polls: (
        float  #: per feed and day, of one standalone node with the same mean lag as the peers
    )
    feed_ratio: Floats  #: polls of each feed by all peers, divided by those of that standalone node

    @property
    def ratio(self) -> float:
        return self.polls / self.standalone_polls


class _PollingNode:
    """Node that polls by its policy on the simulated clock."""

    def __init__(
        self,
        network: PeerNetwork,
        place: int,
        policy: Policy,
        trace: Trace,
        start: float,
        budget: float,
        seed: int,
    ) -> None:
        self._network, self._node_index, self._policy = network, place, policy
        policy.start(
            Feeds.of(trace.window, trace.weight, seed),
            trace.history(start),
            trace.start,
            start,
            budget,
        )
        everyone = np.arange(trace.n_feeds)
        self._due: list[float] = policy.decide(
            everyone, np.full(trace.n_feeds, start), first=True
        ).times.tolist()
        self._last = [start] * trace.n_feeds
        self._random = random.Random(seed)
        self.polls: list[tuple[int, float]] = []
        for feed, due in enumerate(self._due):
            network.schedule_at(due, self._poll_if_due, feed, due)
        network.schedule_at(start + policy.tick_s, self._tick)

    def _tick(self) -> None:
        rows = self._policy.tick(self._network.now, len(self.polls))
        for feed in rows.tolist() if rows is not None else ():
            self._decide(feed)
        self._network.schedule_at(self._network.now + self._policy.tick_s, self._tick)

    def _poll_if_due(self, feed: int, due: float) -> None:
        """Poll a feed now, unless a peer's poll or a new price has changed the due time."""
        now = self._network.now
        if self._due[feed] != due:
            return
        self.polls.append((feed, now))
        new = self._network.poll(self._node_index, feed)
        self._network.schedule_at(now + FLUSH_S, self._network.tick, self._node_index)
        self.observe_poll(feed, now, [entry.published or now for entry in new])

    def count_peer_poll(self) -> None:
        self._policy.peer_polls += 1

    def observe_poll(self, feed: int, at: float, times: Sequence[float]) -> None:
        """Pass the new entries of a poll by this node or a peer to the policy."""
        if at < self._last[feed] and not times:
            return
        at = max(at, self._last[feed])
        zero = np.zeros(1, dtype=np.int64)
        seen = Documents(
            np.sort(np.array(times, dtype=np.float64)),
            zero,
            zero,
            zero + len(times),
            zero.astype(np.bool_),
        )
        self._policy.observe(np.array([feed]), np.array([at]), seen)
        self._last[feed] = at
        self._decide(feed)

    def _decide(self, feed: int) -> None:
        now = self._network.now
        at = float(self._policy.decide(np.array([feed]), np.array([self._last[feed]])).times[0])
        due = max(at, now + 1.0) + coordination_delay_s(
            at - self._last[feed], self._policy.participation, self._random.random
        )
        self._due[feed] = due
        self._network.schedule_at(due, self._poll_if_due, feed, due)


def run(setup: NoticesSetup, progress: Callable[[float], None] | None = None) -> NoticesResult:
    """Simulate the peers with exchange, and each of them as a standalone node."""
    trace = generate(
        "sia-cho", setup.feeds, LEARN_DAYS + setup.settle_days + setup.days + 0.5, setup.seed
    )
    start = trace.start + LEARN_DAYS * DAY_S
    begin = start + setup.settle_days * DAY_S
    end = begin + setup.days * DAY_S
    few = NodeSettings(notices=True, calls_per_min=1e9, deficit=float("inf"))
    everything = [list(range(setup.feeds))] * setup.nodes
    network = PeerNetwork(OriginServers(trace), everything, few, setup.call_s, setup.seed)
    budget = setup.per_feed_day / setup.nodes
    for i in range(setup.nodes):
        network.schedule_every(few.advertise_interval_s, start - 3600 + 10.0 * i, network.tick, i)
        for feed, name in enumerate(network.servers.names):  # all nodes know the entries so far
            network.nodes[i].ledger.check_document(
                name, network.servers.document(feed, start), start
            )
    network.run(start - 1)
    readers = [
        _PollingNode(
            network,
            i,
            make_policy("price"),
            trace,
            start,
            budget * setup.feeds,
            setup.seed * 1000 + i,
        )
        for i in range(setup.nodes)
    ]

    def observe_entries(i: int, feed: int, entries: Sequence[Entry]) -> None:
        readers[i].observe_poll(
            feed, network.now, [entry.published or network.now for entry in entries]
        )

    def observe_poll(i: int, feed: int, at: float) -> None:
        network.schedule_at(network.now + FLUSH_S, network.tick, i)  # forward it to peers
        readers[i].count_peer_poll()
        readers[i].observe_poll(feed, at, ())

    network.on_entries, network.on_peer_poll = observe_entries, observe_poll
    for step in range(1, 51):
        network.run(start + (end - start) * step / 50)
        if progress is not None:
            progress(step / 50)
    polls = np.zeros(setup.feeds)
    for reader in readers:
        for feed, at in reader.polls:
            polls[feed] += at >= begin
    lags = [_lag(network, i, begin, end) for i in range(setup.nodes)]
    lag_s, coverage = (
        np.array([lag_and_coverage[0] for lag_and_coverage in lags]),
        np.array([lag_and_coverage[1] for lag_and_coverage in lags]),
    )
    per_day = polls / setup.days
    standalone_polls, feed_polls = _standalone_polls_for_lag(
        trace, float(lag_s.mean()), setup.per_feed_day, start, begin, end
    )
    standalone_lag_s = _score_standalone(trace, budget, start, begin, end)[0]
    return NoticesResult(
        float(per_day.mean()),
        lag_s,
        coverage,
        standalone_lag_s,
        standalone_polls,
        per_day / np.maximum(feed_polls, 1e-9),
    )


def _lag(network: PeerNetwork, i: int, begin: float, end: float) -> tuple[float, float]:
    """Return mean lag in seconds and coverage of node ``i``.

    Entries of the last six hours are left out, as they may arrive later.
    """
    lags, total = [], 0
    for entries in network.servers.entries:
        for entry in entries:
            if entry.published is not None and begin <= entry.published <= end - DAY_S / 4:
                total += 1
                at = network.receipt_times[i].get(entry.identity)
                if at is not None:
                    lags.append(at - entry.published)
    return float(np.mean(lags)), len(lags) / max(total, 1)


def _score_standalone(
    trace: Trace, budget: float, start: float, begin: float, end: float
) -> tuple[float, Floats]:
    """Return mean lag in seconds and polls per feed and day of one standalone node."""
    polls = simulate(trace, make_policy("price"), budget, start, end)
    scores = score_polls(trace, polls, begin, end)
    published = trace.times[(trace.times >= begin) & (trace.times <= end)]
    scored = ~scores.missed & (published <= end - DAY_S / 4)
    count = np.array([(t >= begin).sum() for t in np.split(polls.times, polls.offsets[1:-1])])
    return float(scores.delay_s[scored].mean()), count / ((end - begin) / DAY_S)


def _standalone_polls_for_lag(
    trace: Trace, lag_s: float, near: float, start: float, begin: float, end: float
) -> tuple[float, Floats]:
    """Return the polls per feed and day with which one standalone node has this mean lag.

    The search is a bisection of the logarithm.
    """
    low, high = near / 8, near * 8
    for _ in range(9):
        middle = float(np.sqrt(low * high))
        mean_lag_s, polls = _score_standalone(trace, middle, start, begin, end)
        low, high = (middle, high) if mean_lag_s > lag_s else (low, middle)
    return float(polls.mean()), polls
