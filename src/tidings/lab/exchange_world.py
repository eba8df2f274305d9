"""Nodes of the exchange by the hundred, on a virtual clock and a virtual network: the very core that the service runs.

Every call takes its time on the way; a check that is answered "unseen" is followed by the bundle. Nothing else is modelled:
what the nodes do to each other follows from `tidings.exchange`.
"""

import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tidings.document import Entry
from tidings.exchange.node import Node, Refused
from tidings.exchange.values import Arrived, Bundle, Call, Looked, Nid, Offer, Rules, Verify, Withdrawn, bundle_of
from tidings.lab.traces import Trace

#: Latencies drawn beforehand, gone through again and again.
DRAWN = 100_003
#: Nodes are given some others to begin with, as by a list server.
LISTED = 24


@dataclass(slots=True)
class Counts:
    """What happened in the measured time."""

    checks: int = 0
    puts: int = 0
    entries: int = 0
    origin: int = 0
    others: int = 0


class Servers:
    """The feeds' servers: what their documents hold at any time."""

    def __init__(self, trace: Trace) -> None:
        self.names = [f"http://feed{i}.example/" for i in range(trace.n_feeds)]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.window = trace.window.tolist()
        self.times: list[Any] = []
        self.entries: list[list[Entry]] = []
        for i, name in enumerate(self.names):
            times = trace.times[trace.offsets[i] : trace.offsets[i + 1]]
            self.times.append(times)
            self.entries.append([Entry(f"{name}{k}", k.to_bytes(4), published=t) for k, t in enumerate(times.tolist())])

    def document(self, feed: int, now: float) -> list[Entry]:
        end = int(self.times[feed].searchsorted(now, side="right"))
        return self.entries[feed][max(end - self.window[feed], 0) : end]


@dataclass(slots=True)
class World:
    """The network. Time goes on in `run`; what a node is told to do at some time is put there by `at`."""

    servers: Servers
    subscriptions: Sequence[Sequence[int]]
    rules: Rules
    call_s: float  #: median time of one call's way
    seed: int = 0
    cut_off: frozenset[int] = frozenset()  #: nodes that cannot reach any server
    free_riders: frozenset[int] = frozenset()  #: nodes that take and never give
    nodes: list[Node] = field(init=False)
    counts: Counts = field(default_factory=Counts)
    now: float = 0.0
    arrivals: list[dict[str, float]] = field(init=False)  #: by node: identity -> when it was there
    withdrawn: list[tuple[int, str, float]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    on_looked: Callable[[int, int, float], None] | None = None
    on_arrived: Callable[[int, int, Sequence[Entry]], None] | None = None
    _queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = field(default_factory=list)
    _place: dict[Nid, int] = field(default_factory=dict)
    _number: int = 0
    _ways: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.subscriptions)
        rng = np.random.default_rng([self.seed, 7])
        self._ways = (self.call_s * np.exp(rng.normal(0.0, 0.75, DRAWN))).tolist()
        nids = [f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}:8035" for i in range(count)]
        self._place = {nid: i for i, nid in enumerate(nids)}
        self.arrivals = [{} for _ in range(count)]
        self.nodes = [
            Node({self.servers.names[f]: 1.0 for f in feeds}, self.rules, nid=nids[i], seed=self.seed * 100_000 + i)
            for i, feeds in enumerate(self.subscriptions)
        ]
        draw = random.Random(self.seed)
        for node in self.nodes:
            node.meet(draw.sample(nids, min(LISTED, count)), 0.0)

    # --- time ----------------------------------------------------------------------------------------------------------

    def at(self, time: float, what: Callable[..., object], *arguments: Any) -> None:
        self._number += 1
        heappush(self._queue, (time, self._number, what, arguments))

    def run(self, until: float) -> None:
        queue = self._queue
        collecting = gc.isenabled()
        gc.disable()  # nothing here goes in circles, and looking for circles among millions takes longer than all the rest
        try:
            while queue and queue[0][0] <= until:
                self.now, _, what, arguments = heappop(queue)
                what(*arguments)
        finally:
            if collecting:
                gc.enable()
        self.now = until

    def every(self, interval_s: float, first: float, what: Callable[[int], None], node: int) -> None:
        def again() -> None:
            if node not in self.gone:
                what(node)
                self.at(self.now + interval_s, again)

        self.at(first, again)

    def _way_s(self) -> float:
        self._number += 1
        return self._ways[self._number % DRAWN]

    # --- what nodes do -------------------------------------------------------------------------------------------------

    def tick(self, i: int) -> None:
        self.nodes[i].tick(self.now)
        self.follow(i)

    def poll(self, i: int, feed: int) -> list[Entry]:
        """Ask the server; returns what was new."""
        if i in self.gone:
            return []
        self.counts.origin += 1
        if i in self.cut_off:
            return []
        node = self.nodes[i]
        new = node.fetched(self.servers.names[feed], self.servers.document(feed, self.now), self.now)
        arrivals = self.arrivals[i]
        for entry in new:
            arrivals[entry.identity] = self.now
        self.follow(i)
        return new

    def leave(self, i: int) -> None:
        self.gone.add(i)

    def forge(self, i: int, feed: int) -> None:
        """Tell all neighbours an entry that no server has shown."""
        if i in self.gone:
            return
        name, node = self.servers.names[feed], self.nodes[i]
        lie = Entry(f"{name}forged/{i}/{self.now:.0f}", b"lie!", published=self.now - 60)
        self._offer(i, bundle_of(name, [lie], self.now), list(node.neighbours))

    def follow(self, i: int) -> None:
        """Do what the node wants done."""
        for effect in self.nodes[i].take():
            if type(effect) is Offer:
                if i not in self.free_riders:
                    self._offer(i, effect.bundle, effect.to)
            elif type(effect) is Arrived:
                arrivals = self.arrivals[i]
                for entry in effect.bundle.entries:
                    arrivals[entry.identity] = self.now
                if self.on_arrived is not None:
                    self.on_arrived(i, self.servers.index[effect.bundle.feed], effect.bundle.entries)
            elif type(effect) is Looked and self.on_looked is not None:
                self.on_looked(i, self.servers.index[effect.look.feed], effect.look.at)
            elif type(effect) is Call:
                self.at(self.now + self._way_s(), self._call, i, effect)
            elif type(effect) is Withdrawn:
                for identity in effect.identities:
                    self.arrivals[i].pop(identity, None)
                    self.withdrawn.append((i, identity, self.now))
            elif type(effect) is Verify:
                self.at(self.now + self._way_s(), self.poll, i, self.servers.index[effect.feed])

    def _offer(self, i: int, bundle: Bundle, to: Sequence[Nid]) -> None:
        now, queue, ways, check, place = self.now, self._queue, self._ways, self._check, self._place
        number = self._number
        for nid in to:
            number += 1
            heappush(queue, (now + ways[number % DRAWN], number, check, (i, place[nid], bundle)))
        self._number = number

    def _check(self, i: int, j: int, bundle: Bundle) -> None:
        sender, receiver = self.nodes[i], self.nodes[j]
        if j in self.gone:
            sender.failed(receiver.nid, self.now)
            self.follow(i)
            return
        self.counts.checks += 1
        try:
            if not receiver.check_did(sender.nid, bundle.did, self.now):  # the answer's way back, and the bundle's
                self.at(self.now + self._way_s() + self._way_s(), self._put, i, j, bundle)
        except Refused:
            sender.refused(receiver.nid, self.now)
            self.follow(i)

    def _put(self, i: int, j: int, bundle: Bundle) -> None:
        sender, receiver = self.nodes[i], self.nodes[j]
        if j in self.gone:
            return
        self.counts.puts += 1
        self.counts.entries += len(bundle.entries)
        try:
            receiver.put_entries(sender.nid, bundle, self.now)
        except Refused:
            return
        sender.delivered(receiver.nid, bundle)
        self.follow(j)

    def _call(self, i: int, call: Call) -> None:
        caller, j = self.nodes[i], self._place[call.to]
        callee: Any = self.nodes[j]
        self.counts.others += 1
        if j in self.gone or i in self.gone:
            caller.failed(call.to, self.now)
            return
        try:
            if call.function == "connect":
                caller.connected(call.to, callee.connect(caller.nid, call.argument, self.now), self.now)
            elif call.function == "get_neighbors":
                caller.meet(callee.get_neighbors(caller.nid, self.now), self.now)
            elif call.function == "dispute":
                callee.dispute(caller.nid, *call.argument, self.now)  # type: ignore[misc]  # three, as `Call` says
            else:
                getattr(callee, call.function)(caller.nid, call.argument, self.now)
        except Refused:
            caller.refused(call.to, self.now)
        self.follow(j)
        self.follow(i)
