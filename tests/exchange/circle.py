"""A few nodes that hear each other at once: what one wants done is done, call by call, until nobody wants anything.

``circle = Circle("abc")`` makes the nodes a, b, c; ``circle.link("ab", "bc")`` makes neighbours;
``circle.fetch("a", 1, 2)`` lets a see the document with the posts 1 and 2. What came is in ``circle.has("c")``, what was called
in ``circle.calls``.
"""

from hashlib import blake2b

from tidings.document import Entry
from tidings.exchange.node import Node, Refused
from tidings.exchange.values import (
    Arrived,
    Call,
    Confirmed,
    Dropped,
    Holding,
    Looked,
    Offer,
    Reply,
    Rules,
    Search,
    Verify,
    Withdrawn,
    bundle_of,
)

FEED = "http://blog.example/feed"
NOON = 1_000_000_000.0


def post(number, text="", at=None):
    """A post; its number is its place in time, a minute each."""
    published = NOON + 60.0 * number if at is None else at
    return Entry(f"post {number}", blake2b(text.encode(), digest_size=16).digest(), title=f"Post {number}", published=published)


def bundle(*posts, feed=FEED, path=(), at=NOON, **options):
    return bundle_of(feed, [post(p) if isinstance(p, int) else p for p in posts], at, tuple(path), **options)


class Circle:
    def __init__(self, names, feeds=(FEED,), rules=None, **options):
        self.now = NOON
        self.calls, self.log = [], []
        self.nodes, self.names = {}, {}
        for place, name in enumerate(names):
            follows = feeds[name] if isinstance(feeds, dict) else feeds
            nid = f"10.0.0.{place + 1}:8035"
            self.nodes[name] = Node(
                dict.fromkeys(follows, 1.0), rules or Rules(min_neighbours=0), nid=nid, seed=place, **options
            )
            self.names[nid] = name
        self.archives = dict.fromkeys(names, 0)
        self.unreachable = set()
        self.deaf = set()  # nodes that do nothing of what they should

    def nid(self, name):
        return self.nodes[name].nid

    def link(self, *pairs):
        for one, other in pairs:
            subset = self.nodes[one].interests.advertised(self.nid(other))
            told = self.nodes[other].connect(self.nid(one), subset, self.now)
            assert told, f"{other} declined {one}"
            self.nodes[one].connected(self.nid(other), told, self.now)
        for _ in range(4):
            self.wait(301)

    def wait(self, seconds):
        self.now += seconds
        for name in self.nodes:
            self.nodes[name].tick(self.now)
            self.follow(name)

    def fetch(self, name, *posts, feed=FEED):
        document = [post(p) if isinstance(p, int) else p for p in posts]
        new = self.nodes[name].fetched(feed, document, self.now)
        self.follow(name)
        return [entry.identity for entry in new]

    def put(self, sender, receiver, what):
        """Call put_entries, as if ``sender`` had; returns what is answered."""
        try:
            answer = self.nodes[receiver].put_entries(self.nid(sender), what, self.now)
        except Refused as refused:
            return str(refused)
        self.follow(receiver)
        return answer

    def has(self, name):
        """Numbers of posts that came from neighbours and were not withdrawn."""
        kept = set()
        for who, effect in self.log:
            if who == name and isinstance(effect, Arrived):
                kept |= {entry.identity for entry in effect.bundle.entries}
            elif who == name and isinstance(effect, Withdrawn):
                kept -= set(effect.identities)
        return sorted(int(identity.split()[1]) for identity in kept)

    def told(self, name, kind):
        return [effect for who, effect in self.log if who == name and isinstance(effect, kind)]

    def neighbours(self, name):
        return "".join(sorted(self.names[nid] for nid in self.nodes[name].neighbours))

    def follow(self, name):
        if name in self.deaf:
            self.nodes[name].take()
            return
        for effect in self.nodes[name].take():
            self.log.append((name, effect))
            if isinstance(effect, Offer):
                for to in effect.to:
                    self._offer(name, to, effect.bundle)
            elif isinstance(effect, Call):
                self._call(name, effect)
            elif isinstance(effect, Search):
                count = self.archives[name]
                own = [Holding("", count, NOON, NOON)] if count else []
                self.nodes[name].answered(effect.query.id, "", own, self.now)
                self.follow(name)
            elif isinstance(effect, Reply) and effect.to:
                asker = self.names[effect.to]
                self.nodes[asker].answered(effect.query.id, self.nid(name), effect.holdings, self.now)
                self.follow(asker)

    def _offer(self, name, to, bundle):
        node, other = self.nodes[name], self.names[to]
        if other in self.unreachable:
            node.failed(to, self.now)
            return self.follow(name)
        self.calls.append((name, other, "check_did"))
        try:
            if self.nodes[other].check_did(node.nid, bundle.did, self.now):
                return None
            self.calls.append((name, other, "put_entries"))
            self.nodes[other].put_entries(node.nid, bundle, self.now)
        except Refused:
            node.refused(to, self.now)
            return self.follow(name)
        node.delivered(to, bundle)
        return self.follow(other)

    def _call(self, name, call):
        node, other = self.nodes[name], self.names[call.to]
        self.calls.append((name, other, call.function))
        if other in self.unreachable:
            node.failed(call.to, self.now)
            return self.follow(name)
        callee = self.nodes[other]
        try:
            if call.function == "connect":
                node.connected(call.to, callee.connect(node.nid, call.argument, self.now), self.now)
            elif call.function == "get_neighbors":
                node.meet(callee.get_neighbors(node.nid, self.now), self.now)
            elif call.function == "dispute":
                callee.dispute(node.nid, *call.argument, self.now)
            else:
                getattr(callee, call.function)(node.nid, call.argument, self.now)
        except Refused:
            node.refused(call.to, self.now)
        self.follow(other)
        return self.follow(name)


__all__ = ["FEED", "NOON", "Circle", "Confirmed", "Dropped", "Looked", "Verify", "bundle", "post"]
