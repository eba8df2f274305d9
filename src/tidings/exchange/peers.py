"""Neighbours and what they are interested in: subscription sets, hop counts, usefulness, contribution (FeedEx 3.1, 3.2, 3.5).

What a node advertises to a neighbour is computed without that neighbour's own part, or interests would echo for ever.
"""

from collections.abc import Mapping
from typing import Any

from tidings.exchange.protocol import MAX_FEEDS, Nid, NodeSettings, Subset

#: A neighbour may call so many times at once before its rate counts.
BURST_MINUTES = 2.0
CHECK_DID_COST = 0.1
#: A contradicted notice weighs as much as so many good ones; who has told none is believed.
REFUTED_NOTICE_WEIGHT = 3.0


class Peer:
    """Another node that we exchange entries with, and how it has behaved."""

    __slots__ = (
        "promise_broken_at", "contribution_received", "confirmed", "lead_s", "entries", "refuted", "contribution_sent", "last_call_at", "hops", "key", "notices_refuted",
        "notices_confirmed", "muted_feeds", "nid", "since", "tokens", "tokens_at", "advertised_subset",
    )  # fmt: skip

    def __init__(self, nid: Nid, hops: Subset, now: float, key: bytes = b"") -> None:
        self.nid, self.key = nid, key
        self.hops: dict[str, int] = dict(hops)  # what it has advertised
        self.advertised_subset: dict[str, int] = {}  # what we have advertised to it
        self.since = self.last_call_at = self.tokens_at = now
        self.contribution_received = self.contribution_sent = (
            0.0  # c_{j,i} and c_{i,j}; the deficit d_{i,j} is what we gave more
        )
        self.entries = self.confirmed = self.refuted = (
            0  # brought as the first; of these, as in our own documents, or not
        )
        self.lead_s = 0.0  # before our own fetch, summed over those confirmed
        self.muted_feeds: dict[
            str, tuple[float, float]
        ] = {}  # feeds: until when, and for how long the last time
        self.promise_broken_at = float("-inf")  # announced a bundle and did not send it
        self.notices_confirmed = self.notices_refuted = 0
        self.tokens = float("inf")

    @property
    def address(self) -> str:
        return address_of(self.nid)

    def allow(self, now: float, per_min: float, cost: float = 1.0) -> bool:
        """Whether it may call once more; it has so many calls a minute."""
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
        """Do not listen to it about this feed, every time for twice as long."""
        until, length_s = self.muted_feeds.get(feed, (0.0, first_s / 2))
        if until <= now:
            self.muted_feeds[feed] = (now + 2 * length_s, 2 * length_s)

    def is_muted(self, feed: str, now: float) -> bool:
        return feed in self.muted_feeds and self.muted_feeds[feed][0] > now

    @property
    def are_notices_trusted(self) -> bool:
        return (
            self.notices_confirmed + 1
            >= (self.notices_confirmed + REFUTED_NOTICE_WEIGHT * self.notices_refuted + 2) / 2
        )

    def stats(self) -> dict[str, Any]:
        """What is remembered until next time (FeedEx 3.1: old neighbours can trust each other from past experience)."""
        names = (
            "brought",
            "given",
            "entries",
            "confirmed",
            "false",
            "earlier_s",
            "looks_kept",
            "looks_broken",
        )
        return {name: getattr(self, name) for name in names}


def address_of(nid: Nid) -> str:
    return nid.rpartition(":")[0]


class Interests:
    """The own subscription set and the neighbours', and what follows from both."""

    def __init__(self, settings: NodeSettings, feeds: Mapping[str, float]) -> None:
        self._settings = settings
        self.feeds: dict[str, float] = dict(feeds)  #: the direct set, with weights of preference
        self.decoys: set[str] = set()  #: advertised and fetched as if they were ours
        self.peers: dict[Nid, Peer] = {}
        self.version = 0  #: changes with everything that advertisements depend on
        self._interested_cache: dict[str, list[Peer]] = {}
        self._nearest_cache: dict[str, tuple[int, Nid, int]] | None = None

    def invalidate(self) -> None:
        self.version += 1
        self._nearest_cache = None
        self._interested_cache.clear()

    def is_direct(self, feed: str) -> bool:
        return feed in self.feeds or feed in self.decoys

    def interested_peers(self, feed: str) -> list[Peer]:
        """Neighbours that want the feed's entries."""
        found = self._interested_cache.get(feed)
        if found is None:
            limit = self._settings.max_subset_hops
            found = self._interested_cache[feed] = [
                n for n in self.peers.values() if n.hops.get(feed, limit + 1) <= limit
            ]
        return found

    def hops(self, feed: str) -> int | None:
        """Our own hop count of interest; None: neither we nor anybody near wants it."""
        if feed in self.feeds or feed in self.decoys:
            return 0
        counts = [n.hops[feed] for n in self.interested_peers(feed)]
        hops = min(counts) + 1 if counts else self._settings.max_subset_hops + 1
        return hops if hops <= self._settings.max_subset_hops else None

    def advertisement_for(self, to: Nid) -> dict[str, int]:
        """The subscription set, without what only ``to`` is interested in."""
        if self._nearest_cache is None:
            self._nearest_cache = self._find_nearest()
        limit = self._settings.max_subset_hops
        advertised_subset = dict.fromkeys((*self.feeds, *self.decoys), 0)
        for feed, (first, who, second) in self._nearest_cache.items():
            hops = 1 + (second if who == to else first)
            if hops <= limit and feed not in advertised_subset:
                advertised_subset[feed] = hops
        return (
            advertised_subset
            if len(advertised_subset) <= MAX_FEEDS
            else dict(sorted(advertised_subset.items(), key=lambda item: item[1])[:MAX_FEEDS])
        )

    def _find_nearest(self) -> dict[str, tuple[int, Nid, int]]:
        """For each feed the least hop count of any neighbour, whose that is, and the least of the others."""
        far = self._settings.max_subset_hops + 1
        nearest: dict[str, tuple[int, Nid, int]] = {}
        for nid, peer in self.peers.items():
            for feed, hops in peer.hops.items():
                first, who, second = nearest.get(feed, (far, "", far))
                if hops < first:
                    nearest[feed] = (hops, nid, first)
                elif hops < second:
                    nearest[feed] = (first, who, hops)
        return nearest

    def usefulness(self, hops: Subset) -> float:
        """u(Q) of FeedEx 3.2: the overlap with our direct set, by weight, depreciated by hop count."""
        d = self._settings.depreciation
        return sum(weight * d ** -hops[feed] for feed, weight in self.feeds.items() if feed in hops)

    def suggestions(self, limit: int = 20) -> list[tuple[str, float]]:
        """Feeds that neighbours read and we do not, by how alike those neighbours are to us (Jaccard), summed."""
        scores: dict[str, float] = {}
        ours = self.feeds.keys()
        for peer in self.peers.values():
            theirs = {feed for feed, hops in peer.hops.items() if hops == 0}
            alike = len(theirs & ours) / max(len(theirs | ours), 1)
            for feed in theirs - ours:
                scores[feed] = scores.get(feed, 0.0) + alike
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [item for item in ranked if item[1] > 0][:limit]
