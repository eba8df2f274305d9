"""Simulate a network of hundreds of exchange nodes on a virtual clock.

Every call has a latency; a check that is answered "unseen" is followed by the bundle. Nothing else
is modeled: the nodes run the same protocol code as the service (`tidings.exchange`).
"""

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tidings.document import Entry
from tidings.exchange.node import CallRefused, Node
from tidings.exchange.protocol import (
    Bundle,
    Call,
    EntriesReceived,
    EntriesWithdrawn,
    Nid,
    NodeSettings,
    Offer,
    PeerPolled,
    Verify,
    bundle_of,
)
from tidings.lab.traces import Trace

#: Number of precomputed random latencies, which are used cyclically.
LATENCY_SAMPLES = 100_003
#: Number of initial candidates of a node, such as it gets from a list server.
LISTED = 24


@dataclass(slots=True)
class CallCounts:
    """Number of calls and bundles in the measured period."""

    checks: int = 0  #: calls of `check_did`
    puts: int = 0  #: calls of `put_entries`
    entries: int = 0  #: entries sent by `put_entries`
    origin: int = 0  #: requests to feed servers
    other_calls: int = 0


class OriginServers:
    """Simulated feed servers, which return the content of each document at any time."""

    def __init__(self, trace: Trace) -> None:
        self.names = [f"http://feed{i}.example/" for i in range(trace.n_feeds)]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.window = trace.window.tolist()
        self.times: list[Any] = []
        self.entries: list[list[Entry]] = []
        for i, name in enumerate(self.names):
            times = trace.times[trace.offsets[i] : trace.offsets[i + 1]]
            self.times.append(times)
            self.entries.append(
                [
                    Entry(f"{name}{k}", k.to_bytes(4), published=t)
                    for k, t in enumerate(times.tolist())
                ]
            )

    def document(self, feed: int, now: float) -> list[Entry]:
        end = int(self.times[feed].searchsorted(now, side="right"))
        return self.entries[feed][max(end - self.window[feed], 0) : end]


@dataclass(slots=True)
class PeerNetwork:
    """Discrete-event simulation of a network of exchange nodes.

    `schedule_at` adds events, `run` processes them.
    """

    servers: OriginServers
    subscriptions: Sequence[Sequence[int]]
    rules: NodeSettings
    call_s: float  #: median one-way latency of a call
    seed: int = 0
    cut_off: frozenset[int] = frozenset()  #: nodes that cannot reach any server
    free_riders: frozenset[int] = frozenset()  #: nodes that receive and never send
    nodes: list[Node] = field(init=False)
    counts: CallCounts = field(default_factory=CallCounts)
    now: float = 0.0
    receipt_times: list[dict[str, float]] = field(init=False)  #: arrival time by node and identity
    withdrawals: list[tuple[int, str, float]] = field(default_factory=list)
    departed_nodes: set[int] = field(default_factory=set)
    on_peer_poll: Callable[[int, int, float], None] | None = None
    on_entries: Callable[[int, int, Sequence[Entry]], None] | None = None
    _queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = field(
        default_factory=list
    )
    _node_index: dict[Nid, int] = field(default_factory=dict)
    _sequence: int = 0
    _latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.subscriptions)
        rng = np.random.default_rng([self.seed, 7])
        self._latencies = (self.call_s * np.exp(rng.normal(0.0, 0.75, LATENCY_SAMPLES))).tolist()
        nids = [f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:8035" for i in range(count)]
        self._node_index = {nid: i for i, nid in enumerate(nids)}
        self.receipt_times = [{} for _ in range(count)]
        self.nodes = [
            Node(
                {self.servers.names[f]: 1.0 for f in feeds},
                self.rules,
                nid=nids[i],
                seed=self.seed * 100_000 + i,
            )
            for i, feeds in enumerate(self.subscriptions)
        ]
        draw = random.Random(self.seed)
        for node in self.nodes:
            node.add_candidates(draw.sample(nids, min(LISTED, count)), 0.0)

    # --- time -------------------------------------------------------------------------------------

    def schedule_at(self, time: float, callback: Callable[..., object], *arguments: Any) -> None:
        self._sequence += 1
        heappush(self._queue, (time, self._sequence, callback, arguments))

    def run(self, until: float) -> None:
        queue = self._queue
        collecting = gc.isenabled()
        # There are no reference cycles here, and garbage collection over millions of objects would
        # dominate the time.
        gc.disable()
        try:
            while queue and queue[0][0] <= until:
                self.now, _, callback, arguments = heappop(queue)
                callback(*arguments)
        finally:
            if collecting:
                gc.enable()
        self.now = until

    def schedule_every(
        self, interval_s: float, first: float, callback: Callable[[int], None], node: int
    ) -> None:
        def again() -> None:
            if node not in self.departed_nodes:
                callback(node)
                self.schedule_at(self.now + interval_s, again)

        self.schedule_at(first, again)

    def _latency_s(self) -> float:
        self._sequence += 1
        return self._latencies[self._sequence % LATENCY_SAMPLES]

    # --- actions of nodes -------------------------------------------------------------------------

    def tick(self, i: int) -> None:
        self.nodes[i].tick(self.now)
        self.apply_effects(i)

    def poll(self, i: int, feed: int) -> list[Entry]:
        """Poll the server of a feed from node ``i`` and return the new entries."""
        if i in self.departed_nodes:
            return []
        self.counts.origin += 1
        if i in self.cut_off:
            return []
        node = self.nodes[i]
        new = node.record_document(
            self.servers.names[feed], self.servers.document(feed, self.now), self.now
        )
        receipt_times = self.receipt_times[i]
        for entry in new:
            receipt_times[entry.identity] = self.now
        self.apply_effects(i)
        return new

    def leave(self, i: int) -> None:
        self.departed_nodes.add(i)

    def forge(self, i: int, feed: int) -> None:
        """Send an entry that no server has published from node ``i`` to all its peers."""
        if i in self.departed_nodes:
            return
        name, node = self.servers.names[feed], self.nodes[i]
        lie = Entry(f"{name}forged/{i}/{self.now:.0f}", b"lie!", published=self.now - 60)
        self._offer(i, bundle_of(name, [lie], self.now), list(node.peers))

    def apply_effects(self, i: int) -> None:
        """Send the messages and record the receipts that node ``i`` returned as effects."""
        for effect in self.nodes[i].take_effects():
            if type(effect) is Offer:
                if i not in self.free_riders:
                    self._offer(i, effect.bundle, effect.to)
            elif type(effect) is EntriesReceived:
                receipt_times = self.receipt_times[i]
                for entry in effect.bundle.entries:
                    receipt_times[entry.identity] = self.now
                if self.on_entries is not None:
                    self.on_entries(
                        i, self.servers.index[effect.bundle.feed], effect.bundle.entries
                    )
            elif type(effect) is PeerPolled and self.on_peer_poll is not None:
                self.on_peer_poll(i, self.servers.index[effect.notice.feed], effect.notice.at)
            elif type(effect) is Call:
                self.schedule_at(self.now + self._latency_s(), self._call, i, effect)
            elif type(effect) is EntriesWithdrawn:
                for identity in effect.identities:
                    self.receipt_times[i].pop(identity, None)
                    self.withdrawals.append((i, identity, self.now))
            elif type(effect) is Verify:
                self.schedule_at(
                    self.now + self._latency_s(), self.poll, i, self.servers.index[effect.feed]
                )

    def _offer(self, i: int, bundle: Bundle, to: Sequence[Nid]) -> None:
        now, queue, ways, check, place = (
            self.now,
            self._queue,
            self._latencies,
            self._check,
            self._node_index,
        )
        number = self._sequence
        for nid in to:
            number += 1
            heappush(
                queue,
                (now + ways[number % LATENCY_SAMPLES], number, check, (i, place[nid], bundle)),
            )
        self._sequence = number

    def _check(self, i: int, j: int, bundle: Bundle) -> None:
        sender, receiver = self.nodes[i], self.nodes[j]
        if j in self.departed_nodes:
            sender.on_failed(receiver.nid, self.now)
            self.apply_effects(i)
            return
        self.counts.checks += 1
        try:
            if not receiver.check_did(
                sender.nid, bundle.did, self.now
            ):  # latency of the answer and of the bundle
                self.schedule_at(
                    self.now + self._latency_s() + self._latency_s(), self._put, i, j, bundle
                )
        except CallRefused:
            sender.on_refused(receiver.nid, self.now)
            self.apply_effects(i)

    def _put(self, i: int, j: int, bundle: Bundle) -> None:
        sender, receiver = self.nodes[i], self.nodes[j]
        if j in self.departed_nodes:
            return
        self.counts.puts += 1
        self.counts.entries += len(bundle.entries)
        try:
            receiver.put_entries(sender.nid, bundle, self.now)
        except CallRefused:
            return
        sender.on_delivered(receiver.nid, bundle)
        self.apply_effects(j)

    def _call(self, i: int, call: Call) -> None:
        caller, j = self.nodes[i], self._node_index[call.to]
        callee: Any = self.nodes[j]
        self.counts.other_calls += 1
        if j in self.departed_nodes or i in self.departed_nodes:
            caller.on_failed(call.to, self.now)
            return
        try:
            if call.function == "connect":
                caller.on_connected(
                    call.to, callee.connect(caller.nid, call.argument, self.now), self.now
                )
            elif call.function == "get_neighbors":
                caller.add_candidates(callee.get_neighbors(caller.nid, self.now), self.now)
            elif call.function == "dispute":
                # The argument of a `dispute` call is a tuple of three values.
                callee.dispute(caller.nid, *call.argument, self.now)  # type: ignore[misc]
            else:
                getattr(callee, call.function)(caller.nid, call.argument, self.now)
        except CallRefused:
            caller.on_refused(call.to, self.now)
        self.apply_effects(j)
        self.apply_effects(i)
