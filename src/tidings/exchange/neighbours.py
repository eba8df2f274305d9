"""Neighbours and what they are interested in: subscription sets, hop counts, usefulness, contribution (FeedEx 3.1, 3.2, 3.5).

What a node advertises to a neighbour is computed without that neighbour's own part, or interests would echo for ever.
"""

from collections.abc import Mapping
from typing import Any

from tidings.exchange.values import MOST_FEEDS, Nid, Rules, Subset

#: A neighbour may call so many times at once before its rate counts.
BURST_MIN = 2.0
CHECK_COSTS = 0.1
#: A contradicted notice weighs as much as so many good ones; who has told none is believed.
BROKEN_WEIGHS = 3.0


class Neighbour:
    """Another node that we exchange entries with, and how it has behaved."""

    __slots__ = (
        "broke_at", "brought", "confirmed", "earlier_s", "entries", "false", "given", "heard_at", "hops", "key", "looks_broken",
        "looks_kept", "muted", "nid", "since", "tokens", "tokens_at", "told",
    )  # fmt: skip

    def __init__(self, nid: Nid, hops: Subset, now: float, key: bytes = b"") -> None:
        self.nid, self.key = nid, key
        self.hops: dict[str, int] = dict(hops)  # what it has advertised
        self.told: dict[str, int] = {}  # what we have advertised to it
        self.since = self.heard_at = self.tokens_at = now
        self.brought = self.given = 0.0  # c_{j,i} and c_{i,j}; the deficit d_{i,j} is what we gave more
        self.entries = self.confirmed = self.false = 0  # brought as the first; of these, as in our own documents, or not
        self.earlier_s = 0.0  # before our own fetch, summed over those confirmed
        self.muted: dict[str, tuple[float, float]] = {}  # feeds: until when, and for how long the last time
        self.broke_at = float("-inf")  # announced a bundle and did not send it
        self.looks_kept = self.looks_broken = 0
        self.tokens = float("inf")

    @property
    def address(self) -> str:
        return address_of(self.nid)

    def allow(self, now: float, per_min: float, cost: float = 1.0) -> bool:
        """Whether it may call once more; it has so many calls a minute."""
        self.heard_at = now
        tokens = self.tokens + (now - self.tokens_at) * per_min / 60
        most = per_min * BURST_MIN
        self.tokens_at = now
        self.tokens = (tokens if tokens < most else most) - cost
        if self.tokens >= 0:
            return True
        self.tokens = 0.0
        return False

    def mute(self, feed: str, now: float, first_s: float) -> None:
        """Do not listen to it about this feed, every time for twice as long."""
        until, length_s = self.muted.get(feed, (0.0, first_s / 2))
        if until <= now:
            self.muted[feed] = (now + 2 * length_s, 2 * length_s)

    def is_muted(self, feed: str, now: float) -> bool:
        return feed in self.muted and self.muted[feed][0] > now

    @property
    def notices_believed(self) -> bool:
        return self.looks_kept + 1 >= (self.looks_kept + BROKEN_WEIGHS * self.looks_broken + 2) / 2

    def saved(self) -> dict[str, Any]:
        """What is remembered until next time (FeedEx 3.1: old neighbours can trust each other from past experience)."""
        names = ("brought", "given", "entries", "confirmed", "false", "earlier_s", "looks_kept", "looks_broken")
        return {name: getattr(self, name) for name in names}


def address_of(nid: Nid) -> str:
    return nid.rpartition(":")[0]


class Interests:
    """The own subscription set and the neighbours', and what follows from both."""

    def __init__(self, rules: Rules, feeds: Mapping[str, float]) -> None:
        self._rules = rules
        self.feeds: dict[str, float] = dict(feeds)  #: the direct set, with weights of preference
        self.decoys: set[str] = set()  #: advertised and fetched as if they were ours
        self.neighbours: dict[Nid, Neighbour] = {}
        self.version = 0  #: changes with everything that advertisements depend on
        self._interested: dict[str, list[Neighbour]] = {}
        self._nearest: dict[str, tuple[int, Nid, int]] | None = None

    def changed(self) -> None:
        self.version += 1
        self._nearest = None
        self._interested.clear()

    def is_direct(self, feed: str) -> bool:
        return feed in self.feeds or feed in self.decoys

    def interested(self, feed: str) -> list[Neighbour]:
        """Neighbours that want the feed's entries."""
        found = self._interested.get(feed)
        if found is None:
            most = self._rules.max_subset_hops
            found = self._interested[feed] = [n for n in self.neighbours.values() if n.hops.get(feed, most + 1) <= most]
        return found

    def hops(self, feed: str) -> int | None:
        """Our own hop count of interest; None: neither we nor anybody near wants it."""
        if feed in self.feeds or feed in self.decoys:
            return 0
        counts = [n.hops[feed] for n in self.interested(feed)]
        hops = min(counts) + 1 if counts else self._rules.max_subset_hops + 1
        return hops if hops <= self._rules.max_subset_hops else None

    def advertised(self, to: Nid) -> dict[str, int]:
        """The subscription set, without what only ``to`` is interested in."""
        if self._nearest is None:
            self._nearest = self._find_nearest()
        most = self._rules.max_subset_hops
        told = dict.fromkeys((*self.feeds, *self.decoys), 0)
        for feed, (first, who, second) in self._nearest.items():
            hops = 1 + (second if who == to else first)
            if hops <= most and feed not in told:
                told[feed] = hops
        return told if len(told) <= MOST_FEEDS else dict(sorted(told.items(), key=lambda item: item[1])[:MOST_FEEDS])

    def _find_nearest(self) -> dict[str, tuple[int, Nid, int]]:
        """For each feed the least hop count of any neighbour, whose that is, and the least of the others."""
        far = self._rules.max_subset_hops + 1
        nearest: dict[str, tuple[int, Nid, int]] = {}
        for nid, neighbour in self.neighbours.items():
            for feed, hops in neighbour.hops.items():
                first, who, second = nearest.get(feed, (far, "", far))
                if hops < first:
                    nearest[feed] = (hops, nid, first)
                elif hops < second:
                    nearest[feed] = (first, who, hops)
        return nearest

    def usefulness(self, hops: Subset) -> float:
        """u(Q) of FeedEx 3.2: the overlap with our direct set, by weight, depreciated by hop count."""
        d = self._rules.depreciation
        return sum(weight * d ** -hops[feed] for feed, weight in self.feeds.items() if feed in hops)

    def suggestions(self, most: int = 20) -> list[tuple[str, float]]:
        """Feeds that neighbours read and we do not, by how alike those neighbours are to us (Jaccard), summed."""
        scores: dict[str, float] = {}
        ours = self.feeds.keys()
        for neighbour in self.neighbours.values():
            theirs = {feed for feed, hops in neighbour.hops.items() if hops == 0}
            alike = len(theirs & ours) / max(len(theirs | ours), 1)
            for feed in theirs - ours:
                scores[feed] = scores.get(feed, 0.0) + alike
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [item for item in ranked if item[1] > 0][:most]
