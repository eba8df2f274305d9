"""In-memory network of exchange nodes whose calls are delivered at once.

``network = MemoryNetwork("abc")`` makes the nodes a, b, c; ``network.link("ab", "bc")`` makes them
peers; ``network.fetch("a", 1, 2)`` lets a fetch a document with the posts 1 and 2. The posts that
node c got from peers are in ``network.received_posts("c")``, all calls in ``network.calls``.
"""

from hashlib import blake2b

from tidings.document import Entry
from tidings.exchange.node import CallRefused, Node
from tidings.exchange.protocol import (
    Call,
    EntriesConfirmed,
    EntriesReceived,
    EntriesWithdrawn,
    Holding,
    NodeSettings,
    Offer,
    PeerDropped,
    PeerPolled,
    Reply,
    Search,
    Verify,
    bundle_of,
)

FEED = "http://blog.example/feed"
NOON = 1_000_000_000.0


def post(number, text="", at=None):
    """Return a post, published ``number`` minutes after noon unless ``at`` is given."""
    published = NOON + 60.0 * number if at is None else at
    return Entry(
        f"post {number}",
        blake2b(text.encode(), digest_size=16).digest(),
        title=f"Post {number}",
        published=published,
    )


def bundle(*posts, feed=FEED, path=(), at=NOON, **options):
    return bundle_of(
        feed, [post(p) if isinstance(p, int) else p for p in posts], at, tuple(path), **options
    )


class MemoryNetwork:
    def __init__(self, names, feeds=(FEED,), settings=None, **options):
        self.now = NOON
        self.calls, self.log = [], []
        self.nodes, self.names = {}, {}
        for index, name in enumerate(names):
            node_feeds = feeds[name] if isinstance(feeds, dict) else feeds
            nid = f"10.0.0.{index + 1}:8035"
            self.nodes[name] = Node(
                dict.fromkeys(node_feeds, 1.0),
                settings or NodeSettings(min_peers=0),
                nid=nid,
                seed=index,
                **options,
            )
            self.names[nid] = name
        self.archives = dict.fromkeys(names, 0)
        self.unreachable = set()
        self.unresponsive = set()  # nodes whose effects are discarded

    def nid(self, name):
        return self.nodes[name].nid

    def link(self, *pairs):
        for one, other in pairs:
            subset = self.nodes[one].interests.advertisement_for(self.nid(other))
            accepted = self.nodes[other].connect(self.nid(one), subset, self.now)
            assert accepted, f"{other} declined {one}"
            self.nodes[one].on_connected(self.nid(other), accepted, self.now)
        for _ in range(4):
            self.advance(301)

    def advance(self, seconds):
        self.now += seconds
        for name in self.nodes:
            self.nodes[name].tick(self.now)
            self.apply_effects(name)

    def fetch(self, name, *posts, feed=FEED):
        document = [post(p) if isinstance(p, int) else p for p in posts]
        new = self.nodes[name].record_document(feed, document, self.now)
        self.apply_effects(name)
        return [entry.identity for entry in new]

    def put(self, sender, receiver, bundle):
        """Call put_entries as ``sender``; return the result, or the text of the refusal."""
        try:
            result = self.nodes[receiver].put_entries(self.nid(sender), bundle, self.now)
        except CallRefused as refusal:
            return str(refusal)
        self.apply_effects(receiver)
        return result

    def received_posts(self, name):
        """Return the numbers of posts that arrived from peers and were not withdrawn."""
        identities = set()
        for effect in self.effects_of(name, (EntriesReceived, EntriesWithdrawn)):
            if isinstance(effect, EntriesReceived):
                identities |= {entry.identity for entry in effect.bundle.entries}
            else:
                identities -= set(effect.identities)
        return sorted(int(identity.split()[1]) for identity in identities)

    def effects_of(self, name, kind):
        return [effect for node, effect in self.log if node == name and isinstance(effect, kind)]

    def peers(self, name):
        return "".join(sorted(self.names[nid] for nid in self.nodes[name].peers))

    def apply_effects(self, name):
        if name in self.unresponsive:
            self.nodes[name].take_effects()
            return
        for effect in self.nodes[name].take_effects():
            self.log.append((name, effect))
            if isinstance(effect, Offer):
                for to in effect.to:
                    self._offer(name, to, effect.bundle)
            elif isinstance(effect, Call):
                self._call(name, effect)
            elif isinstance(effect, Search):
                count = self.archives[name]
                own = [Holding("", count, NOON, NOON)] if count else []
                self.nodes[name].on_answer(effect.query.id, "", own, self.now)
                self.apply_effects(name)
            elif isinstance(effect, Reply) and effect.to:
                requester = self.names[effect.to]
                self.nodes[requester].on_answer(
                    effect.query.id, self.nid(name), effect.holdings, self.now
                )
                self.apply_effects(requester)

    def _offer(self, name, to, bundle):
        node, other = self.nodes[name], self.names[to]
        if other in self.unreachable:
            node.on_failed(to, self.now)
            return self.apply_effects(name)
        self.calls.append((name, other, "check_did"))
        try:
            if self.nodes[other].check_did(node.nid, bundle.did, self.now):
                return None
            self.calls.append((name, other, "put_entries"))
            self.nodes[other].put_entries(node.nid, bundle, self.now)
        except CallRefused:
            node.on_refused(to, self.now)
            return self.apply_effects(name)
        node.on_delivered(to, bundle)
        return self.apply_effects(other)

    def _call(self, name, call):
        node, other = self.nodes[name], self.names[call.to]
        self.calls.append((name, other, call.function))
        if other in self.unreachable:
            node.on_failed(call.to, self.now)
            return self.apply_effects(name)
        callee = self.nodes[other]
        try:
            if call.function == "connect":
                node.on_connected(
                    call.to, callee.connect(node.nid, call.argument, self.now), self.now
                )
            elif call.function == "get_neighbors":
                node.add_candidates(callee.get_neighbors(node.nid, self.now), self.now)
            elif call.function == "dispute":
                callee.dispute(node.nid, *call.argument, self.now)
            else:
                getattr(callee, call.function)(node.nid, call.argument, self.now)
        except CallRefused:
            node.on_refused(call.to, self.now)
        self.apply_effects(other)
        return self.apply_effects(name)


__all__ = [
    "FEED",
    "NOON",
    "EntriesConfirmed",
    "MemoryNetwork",
    "PeerDropped",
    "PeerPolled",
    "Verify",
    "bundle",
    "post",
]
