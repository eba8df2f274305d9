"""Peers of a node and the feeds in which they are interested.

A peer is another node with which this node exchanges entries; FeedEx (sect. 3.1, 3.2, 3.5) calls it
a `neighbor`. A subscription set maps a feed to a hop count, which is the distance to the nearest
node that reads the feed (0 for the node itself). The subscription set advertised to a peer is
computed without that peer's interests, because interests would otherwise be reflected between two
nodes indefinitely (split horizon).
"""

from collections.abc import Mapping
from typing import Any

from tidings.exchange.protocol import MAX_FEEDS, Nid, NodeSettings, Subset

#: Capacity of a peer's token bucket, as the number of minutes in which an empty bucket refills.
BURST_MINUTES = 2.0
#: Number of tokens that a `check_did` call costs. Other calls cost 1.
CHECK_DID_COST = 0.1
#: Weight of a refuted notice relative to a confirmed notice. A peer without notices is trusted.
REFUTED_NOTICE_WEIGHT = 3.0
#: Attributes of `Peer` by stored key. The keys are in databases and in the API, so they stay.
STORED = {
    "brought": "contribution_received",
    "given": "contribution_sent",
    "entries": "entries",
    "confirmed": "confirmed",
    "false": "refuted",
    "earlier_s": "lead_s",
    "looks_kept": "notices_confirmed",
    "looks_broken": "notices_refuted",
}


class Peer:
    """Interests, contributions, reputation and rate limit of a peer."""

    __slots__ = (
        "advertised_subset",
        "confirmed",
        "contribution_received",
        "contribution_sent",
        "entries",
        "hops",
        "key",
        "last_call_at",
        "lead_s",
        "muted_feeds",
        "nid",
        "notices_confirmed",
        "notices_refuted",
        "promise_broken_at",
        "refuted",
        "since",
        "tokens",
        "tokens_at",
    )

    def __init__(self, nid: Nid, hops: Subset, now: float, key: bytes = b"") -> None:
        """Create a peer. ``hops`` is the subscription set that the peer has advertised."""
        self.nid, self.key = nid, key
        self.hops: dict[str, int] = dict(hops)
        self.advertised_subset: dict[str, int] = {}  # subscription set advertised to this peer
        self.since = self.last_call_at = self.tokens_at = now
        # c_{j,i} and c_{i,j} of FeedEx sect. 3.5; their difference is the deficit d_{i,j}.
        self.contribution_received = self.contribution_sent = 0.0
        # Number of entries that this peer was the first to send, and how many of these entries
        # were confirmed and refuted by documents that this node fetched.
        self.entries = self.confirmed = self.refuted = 0
        self.lead_s = 0.0  # time from arrival to the fetch by this node, summed over entries
        # End and duration in seconds of the time in which entries are ignored, by feed.
        self.muted_feeds: dict[str, tuple[float, float]] = {}
        self.promise_broken_at = float(
            "-inf"
        )  # last time it announced a bundle but did not send it
        self.notices_confirmed = self.notices_refuted = 0
        self.tokens = float("inf")

    @property
    def address(self) -> str:
        """IP address of the peer."""
        return address_of(self.nid)

    def allow(self, now: float, per_min: float, cost: float = 1.0) -> bool:
        """Take ``cost`` tokens from the peer's token bucket, and return whether it may call.

        The bucket refills at ``per_min`` tokens per minute, up to `BURST_MINUTES` of that rate.
        """
        self.last_call_at = now
        tokens = self.tokens + (now - self.tokens_at) * per_min / 60
        limit = per_min * BURST_MINUTES
        self.tokens_at = now
        self.tokens = (tokens if tokens < limit else limit) - cost
        if self.tokens >= 0:
            return True
        self.tokens = 0.0
        return False

    def mute(self, feed: str, now: float, first_s: float) -> None:
        """Ignore the peer's entries of a feed for a time that doubles with each call.

        The first time is ``first_s`` seconds.
        """
        until, length_s = self.muted_feeds.get(feed, (0.0, first_s / 2))
        if until <= now:
            self.muted_feeds[feed] = (now + 2 * length_s, 2 * length_s)

    def is_muted(self, feed: str, now: float) -> bool:
        """Return whether the peer's entries of a feed are ignored now."""
        return feed in self.muted_feeds and self.muted_feeds[feed][0] > now

    @property
    def are_notices_trusted(self) -> bool:
        """Whether at least half of the peer's poll notices have proved true.

        Refuted notices have more weight, and the fraction is smoothed.
        """
        return (
            self.notices_confirmed + 1
            >= (self.notices_confirmed + REFUTED_NOTICE_WEIGHT * self.notices_refuted + 2) / 2
        )

    def stats(self) -> dict[str, Any]:
        """Return the statistics that are stored, by stored key.

        FeedEx sect. 3.1: nodes that meet again can use their past experience with each other.
        """
        return {key: getattr(self, name) for key, name in STORED.items()}

    def restore_stats(self, stats: Mapping[str, float]) -> None:
        """Set the statistics from stored values (see `stats`). Unknown keys are ignored."""
        for key, value in stats.items():
            if (name := STORED.get(key)) is not None:
                setattr(self, name, type(getattr(self, name))(value))


def address_of(nid: Nid) -> str:
    """Return the IP address of a node id such as ``203.0.113.5:8035``."""
    return nid.rpartition(":")[0]


class Interests:
    """Subscription sets of this node and of its peers (see the module)."""

    def __init__(self, settings: NodeSettings, feeds: Mapping[str, float]) -> None:
        """Create the interests of a node without peers.

        ``feeds`` has the weights of the feeds that users of this node read.
        """
        self._settings = settings
        self.feeds: dict[str, float] = dict(feeds)  #: weights of the feeds that users here read
        self.decoys: set[str] = set()  #: feeds advertised and fetched as if users here read them
        self.peers: dict[Nid, Peer] = {}
        self.version = 0  #: incremented with every change that advertisements depend on
        self._interested_cache: dict[str, list[Peer]] = {}
        self._nearest_cache: dict[str, tuple[int, Nid, int]] | None = None

    def invalidate(self) -> None:
        """Clear the caches after a change of feeds, decoys, peers or their subscription sets."""
        self.version += 1
        self._nearest_cache = None
        self._interested_cache.clear()

    def is_direct(self, feed: str) -> bool:
        """Return whether users of this node read the feed or it is a decoy (hop count 0)."""
        return feed in self.feeds or feed in self.decoys

    def interested_peers(self, feed: str) -> list[Peer]:
        """Return the peers to which entries of the feed are forwarded."""
        interested_peers = self._interested_cache.get(feed)
        if interested_peers is None:
            limit = self._settings.max_subset_hops
            interested_peers = self._interested_cache[feed] = [
                n for n in self.peers.values() if n.hops.get(feed, limit + 1) <= limit
            ]
        return interested_peers

    def hops(self, feed: str) -> int | None:
        """Return the hop count of a feed, or None if no node near enough reads the feed.

        The hop count is the distance to the nearest node that reads the feed, 0 for this node.
        """
        if feed in self.feeds or feed in self.decoys:
            return 0
        counts = [n.hops[feed] for n in self.interested_peers(feed)]
        hops = min(counts) + 1 if counts else self._settings.max_subset_hops + 1
        return hops if hops <= self._settings.max_subset_hops else None

    def advertisement_for(self, to: Nid) -> dict[str, int]:
        """Return this node's subscription set for the peer ``to``.

        Interests that were learned from that peer are left out.
        """
        if self._nearest_cache is None:
            self._nearest_cache = self._find_nearest()
        limit = self._settings.max_subset_hops
        subset = dict.fromkeys((*self.feeds, *self.decoys), 0)
        for feed, (first, nearest_nid, second) in self._nearest_cache.items():
            hops = 1 + (second if nearest_nid == to else first)
            if hops <= limit and feed not in subset:
                subset[feed] = hops
        if len(subset) <= MAX_FEEDS:
            return subset
        return dict(sorted(subset.items(), key=lambda item: item[1])[:MAX_FEEDS])

    def _find_nearest(self) -> dict[str, tuple[int, Nid, int]]:
        """Return the lowest hop count of each feed, the peer that has it, and the second lowest."""
        far = self._settings.max_subset_hops + 1
        nearest: dict[str, tuple[int, Nid, int]] = {}
        for nid, peer in self.peers.items():
            for feed, hops in peer.hops.items():
                first, nearest_nid, second = nearest.get(feed, (far, "", far))
                if hops < first:
                    nearest[feed] = (hops, nid, first)
                elif hops < second:
                    nearest[feed] = (first, nearest_nid, hops)
        return nearest

    def usefulness(self, hops: Subset) -> float:
        """Return the weighted overlap of a subscription set with this node's feeds.

        This is u(Q) of FeedEx sect. 3.2. The weight of each feed is reduced with its hop count.
        """
        d = self._settings.depreciation
        return sum(weight * d ** -hops[feed] for feed, weight in self.feeds.items() if feed in hops)

    def suggestions(self, limit: int = 20) -> list[tuple[str, float]]:
        """Return feeds that peers read and users here do not, with a score for each.

        The score is the sum of the Jaccard similarities between the feeds of this node and those of
        the peers that read the feed (collaborative filtering).
        """
        scores: dict[str, float] = {}
        own_feeds = self.feeds.keys()
        for peer in self.peers.values():
            peer_feeds = {feed for feed, hops in peer.hops.items() if hops == 0}
            similarity = len(peer_feeds & own_feeds) / max(len(peer_feeds | own_feeds), 1)
            for feed in peer_feeds - own_feeds:
                scores[feed] = scores.get(feed, 0.0) + similarity
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [item for item in ranked if item[1] > 0][:limit]
