"""Simulate the experiment of FeedEx sect. 4, with hundreds of nodes that exchange entries.

The setting is the paper's: 70 feeds with at least five entries a day, of which each node subscribes
to 20, polled at a fixed interval for 22 hours of a weekday, 8 to 10 peers. The figures of
standalone nodes are computed from the same polls, as in the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tidings.exchange.protocol import NodeSettings
from tidings.lab.exchange_network import CallCounts, OriginServers, PeerNetwork
from tidings.lab.generate import EPOCH, generate
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, Floats

#: Seconds for the network to form before the first poll.
WARM_UP_S = 2 * HOUR_S
#: Start on Tuesday, the second day of the trace, when documents are full.
START = EPOCH + DAY_S
PAPER_FEEDS = 245
#: Coverage (share of posts received) and mean lag in seconds of one node.
CoverageAndLag: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Setup:
    """Parameters of one simulated network."""

    nodes: int = 161
    interval_s: float = 16 * HOUR_S  #: time between polls of a feed by one node
    hours: float = 22.0
    feeds: int = 70
    subscriptions: int = 20  #: number of feeds of each node
    call_s: float = 8.0  #: median latency of a call; see docs/exchange.md
    cut_off: int = 0  #: number of nodes that cannot reach servers (27 in the paper)
    leave: int = 0  #: number of further nodes that leave at some time (28 in the paper)
    free_riders: int = 0  #: number of nodes that receive and never send
    forgers: int = 0  #: number of nodes that send forged entries
    seed: int = 0
    rules: NodeSettings = field(
        default_factory=lambda: NodeSettings(notices=False, calls_per_min=1e9, deficit=float("inf"))
    )


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """Coverage and lag of the nodes with and without exchange.

    Coverage is the share of posts that a node received, lag the mean delay in seconds.
    """

    standalone: Floats  #: (n, 2) coverage and lag of each node without exchange
    with_exchange: Floats  #: (n, 2) coverage and lag of each node with exchange
    counts: CallCounts
    forged_left: int  #: forged entries that some node has at the end
    forged_seen: int  #: forged entries that some node had at any time
    disconnected_share: (
        float  #: share of the forgers' and free riders' peer slots that are empty at the end
    )
    free_rider_coverage: float  #: mean coverage of free riders
    setup: Setup

    def rows(self) -> list[dict[str, object]]:
        """Return one row per mode, with the names that the command line prints."""
        minutes = (self.setup.nodes + self.setup.leave) * self.setup.hours * 60
        puts, checks, entries = self.counts.puts, self.counts.checks, self.counts.entries
        return [
            _row("stand-alone", self.standalone, 0.0, 0.0, 0.0, self.counts.origin),
            _row(
                "exchange",
                self.with_exchange,
                puts / minutes,
                checks / minutes,
                entries / max(puts, 1),
                self.counts.origin,
            ),
        ]


def _row(
    mode: str, scores: Floats, puts: float, checks: float, bundle: float, origin: int
) -> dict[str, object]:
    low, high = np.nanpercentile(scores[:, 1], [5, 95])
    return {
        "mode": mode,
        "coverage": float(np.nanmean(scores[:, 0])),
        "mean_lag_s": float(np.nanmean(scores[:, 1])),
        "p5_lag_s": float(low),
        "p95_lag_s": float(high),
        "put_entries_per_min": puts,
        "check_did_per_min": checks,
        "bundle_size": bundle,
        "origin_requests": origin,
    }


def feeds_for(setup: Setup) -> Trace:
    """Return the busiest feeds of a generated trace like the paper's."""
    share = max(setup.feeds / 70, 0.02)
    trace = generate("feedex", round(PAPER_FEEDS * share), 1 + setup.hours / 24, setup.seed)
    busiest = np.argsort(-np.diff(trace.offsets), kind="stable")[: setup.feeds]
    return trace.select(np.sort(busiest))


def run(setup: Setup, progress: Callable[[float], None] | None = None) -> ExperimentResult:
    """Simulate one network and return coverage and lag of its nodes.

    ``progress`` gets the finished share.
    """
    rng = np.random.default_rng([setup.seed, setup.nodes])
    trace, total = feeds_for(setup), setup.nodes + setup.leave
    follows = [
        np.sort(rng.choice(setup.feeds, setup.subscriptions, replace=False)).tolist()
        for _ in range(total)
    ]
    order = rng.permutation(total).tolist()
    leavers, cut_off = order[: setup.leave], order[setup.leave : setup.leave + setup.cut_off]
    bad = order[setup.leave + setup.cut_off :]
    riders, forgers = (
        bad[: setup.free_riders],
        bad[setup.free_riders : setup.free_riders + setup.forgers],
    )
    network = PeerNetwork(
        OriginServers(trace),
        follows,
        setup.rules,
        setup.call_s,
        setup.seed,
        frozenset(cut_off),
        frozenset(riders),
    )
    end = START + setup.hours * HOUR_S
    for i in range(total):
        network.schedule_every(
            setup.rules.advertise_interval_s,
            START - WARM_UP_S + rng.random() * setup.rules.advertise_interval_s,
            network.tick,
            i,
        )
    polls = [START + rng.random(setup.subscriptions) * setup.interval_s for _ in range(total)]
    for i in range(total):
        for feed, first in zip(follows[i], polls[i].tolist(), strict=True):
            for at in np.arange(first, end, setup.interval_s).tolist():
                network.schedule_at(at, network.poll, i, feed)
    for i in leavers:
        network.schedule_at(START + rng.random() * (end - START), network.leave, i)
    for i in forgers:
        for at in np.arange(START + HOUR_S, end, HOUR_S).tolist():
            network.schedule_at(
                at, network.forge, i, follows[i][int(rng.integers(setup.subscriptions))]
            )
    network.run(START)
    network.counts = CallCounts()
    for step in range(1, 101):
        network.run(START + (end - START) * step / 100)
        if progress is not None:
            progress(step / 100)
    measured = [
        i
        for i in range(total)
        if i not in network.departed_nodes and i not in riders and i not in forgers
    ]
    standalone = [
        _score_standalone(trace, follows[i], polls[i], setup.interval_s, end, i in cut_off)
        for i in measured
    ]
    with_exchange = [_score_with_exchange(trace, network, i, follows[i], end) for i in measured]
    taken = [_score_with_exchange(trace, network, i, follows[i], end)[0] for i in riders]
    return _experiment_result(
        setup,
        network,
        standalone,
        with_exchange,
        [*riders, *forgers],
        float(np.mean(taken)) if taken else np.nan,
    )


def _experiment_result(
    setup: Setup,
    network: PeerNetwork,
    standalone: list[CoverageAndLag],
    with_exchange: list[CoverageAndLag],
    bad: list[int],
    free_rider_coverage: float,
) -> ExperimentResult:
    nids = {network.nodes[i].nid for i in bad}
    linked = sum(
        nid in node.peers for i, node in enumerate(network.nodes) if i not in bad for nid in nids
    )
    had = {(i, identity) for i, identity, _ in network.withdrawals if "forged" in identity}
    has = {
        (i, identity)
        for i, arrived in enumerate(network.receipt_times)
        for identity in arrived
        if "forged" in identity
    }
    return ExperimentResult(
        standalone=np.array(standalone),
        with_exchange=np.array(with_exchange),
        counts=network.counts,
        forged_left=len(has),
        forged_seen=len(has | had),
        disconnected_share=max(1 - linked / max(len(nids) * setup.rules.min_peers, 1), 0.0),
        free_rider_coverage=free_rider_coverage,
        setup=setup,
    )


def _posts(trace: Trace, feed: int, end: float) -> tuple[int, int]:
    times = trace.times[trace.offsets[feed] : trace.offsets[feed + 1]]
    return int(times.searchsorted(START, side="left")), int(times.searchsorted(end, side="right"))


def _score_standalone(
    trace: Trace, feeds: list[int], first: Floats, interval_s: float, end: float, cut_off: bool
) -> CoverageAndLag:
    """Return coverage and mean lag of a node that uses only its own polls."""
    caught, total, lag_s = 0, 0, 0.0
    for feed, begin in zip(feeds, first.tolist(), strict=True):
        times = trace.times[trace.offsets[feed] : trace.offsets[feed + 1]]
        low, high = _posts(trace, feed, end)
        total += high - low
        if cut_off or high == low:
            continue
        polls = np.arange(begin, end, interval_s)
        poll_index = polls.searchsorted(times[low:high], side="left")
        seen = poll_index < len(polls)
        at = polls[np.minimum(poll_index, len(polls) - 1)] if len(polls) else np.zeros(high - low)
        newest = times.searchsorted(at, side="right")
        seen &= np.arange(low, high) >= newest - trace.window[feed]
        caught += int(seen.sum())
        lag_s += float((at - times[low:high])[seen].sum())
    return (caught / total if total else np.nan), (lag_s / caught if caught else np.nan)


def _score_with_exchange(
    trace: Trace, network: PeerNetwork, i: int, feeds: list[int], end: float
) -> CoverageAndLag:
    arrived, lags, total = network.receipt_times[i], [], 0
    for feed in feeds:
        low, high = _posts(trace, feed, end)
        total += high - low
        for entry in network.servers.entries[feed][low:high]:
            at = arrived.get(entry.identity)
            if at is not None and entry.published is not None:
                lags.append(at - entry.published)
    return (len(lags) / total if total else np.nan), (float(np.mean(lags)) if lags else np.nan)
