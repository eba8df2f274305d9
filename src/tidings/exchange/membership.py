"""Management of a node's peers, which are chosen, admitted, replaced and banned.

See FeedEx sect. 3.1 and 3.2. Long-lived peers are best, because they know each other's interests
and contributions. A peer is dropped when it cannot be reached, when it has sent forged entries, or
when it is a free rider (receives entries but sends none) and a more useful node wants its place.
Candidates then replace it.
"""

import random
from collections.abc import Callable, Iterable, Mapping

from tidings.exchange.peers import Interests, Peer, address_of
from tidings.exchange.protocol import Call, Effect, Nid, NodeSettings, PeerDropped, Subset
from tidings.i18n import _

#: Duration in seconds of a ban after forged entries.
BAN_S = 7 * 86400.0
#: Delay in seconds before the next connection attempt to a node that was unreachable or declined.
RETRY_S = 900.0
#: Minimum ratio of usefulness between a new node and the least useful peer for the new node to
#: replace that peer.
MIN_REPLACEMENT_RATIO = 1.2
#: Divisor of the deficit limit for peers that have contributed nothing yet. Without this divisor, a
#: free rider could use up the full limit at one node after another.
NEW_PEER_DIVISOR = 5
#: Maximum number of connection attempts at once.
MAX_CONNECTING = 4
#: Maximum number of remembered candidates, and maximum number of remembered past peers.
MAX_CANDIDATES = 200
#: Minimum interval in seconds between two searches for new peers.
MIN_REPLENISH_INTERVAL_S = 5.0


class Membership:
    """Peers of a node, candidates that could become peers, and banned nodes."""

    def __init__(
        self,
        settings: NodeSettings,
        interests: Interests,
        is_us: Callable[[Nid], bool],
        rng: random.Random,
        effects: list[Effect],
    ) -> None:
        """Create an empty set of peers.

        ``is_us`` returns whether a node id is that of this node. Effects are appended to
        ``effects``.
        """
        self._settings, self._interests, self._is_us = settings, interests, is_us
        self._random, self._effects = rng, effects
        self._peers = interests.peers
        self.candidates: dict[Nid, float] = {}  #: earliest time of the next connection attempt
        self._connecting: set[Nid] = set()  # nodes that have not answered `connect` yet
        self._banned: dict[Nid, float] = {}  # end of the ban, by node id and by address
        self._past_stats: dict[Nid, Mapping[str, float]] = {}  # statistics of earlier peers
        self._list_servers: list[Nid] = []
        self._next_advert = self._next_replenish = self._last_replenish = float("-inf")
        self._advertised_version = -1  # version of the interests that was last sent to peers

    def add_candidates(
        self, nids: Iterable[Nid], now: float, past_stats: Mapping[Nid, Mapping[str, float]]
    ) -> None:
        """Add nodes that could become peers.

        ``past_stats`` are the stored statistics of earlier peers.
        """
        self._past_stats.update(past_stats)
        for nid in nids:
            if not self._is_us(nid) and nid not in self._peers and nid not in self.candidates:
                self.candidates[nid] = now
                self._next_replenish = min(
                    self._next_replenish, max(now, self._last_replenish + MIN_REPLENISH_INTERVAL_S)
                )
        while len(self.candidates) > MAX_CANDIDATES:
            del self.candidates[next(iter(self.candidates))]

    def set_list_servers(self, servers: Iterable[Nid]) -> None:
        """Set the list servers that are queried when there are too few candidates."""
        self._list_servers = list(servers)

    def peer_stats(self) -> dict[Nid, Mapping[str, float]]:
        """Return the statistics of current and earlier peers, to be stored for the next start."""
        return {**self._past_stats, **{nid: peer.stats() for nid, peer in self._peers.items()}}

    def ban(self, nid: Nid, until: float) -> None:
        """Ban a node, and all nodes at its address, until the given time."""
        self._banned[nid] = self._banned[address_of(nid)] = until

    def banned_until(self, nid: Nid, now: float) -> float | None:
        """Return the end of a node's ban, or None if the node is not banned."""
        until = max(self._banned.get(nid, 0.0), self._banned.get(address_of(nid), 0.0))
        return until if until > now else None

    # --- periodic work ---------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Advertise changed interests and search for new peers, each at its interval."""
        if now >= self._next_advert:
            self._next_advert = now + self._settings.advertise_interval_s
            self._advertise(now)
        if now >= self._next_replenish:
            self._next_replenish, self._last_replenish = (
                now + self._settings.advertise_interval_s,
                now,
            )
            self._replenish(now)

    def _advertise(self, now: float) -> None:
        """Send each peer the changes of this node's subscription set since the last time.

        A peer that has not called for long gets an empty update as a keep-alive.
        """
        quiet_before = now - 3 * self._settings.advertise_interval_s
        is_stale = self._advertised_version != self._interests.version
        self._advertised_version = self._interests.version
        for peer in self._peers.values():
            if not is_stale and peer.last_call_at > quiet_before:
                continue
            advertised_subset = self._interests.advertisement_for(peer.nid)
            changes = {
                feed: hops
                for feed, hops in advertised_subset.items()
                if peer.advertised_subset.get(feed) != hops
            }
            changes.update(
                (feed, -1) for feed in peer.advertised_subset if feed not in advertised_subset
            )
            if changes or peer.last_call_at <= quiet_before:
                peer.advertised_subset = advertised_subset
                self._effects.append(Call(peer.nid, "update_subset", changes))

    def _replenish(self, now: float) -> None:
        lacking = self._settings.min_peers - len(self._peers) - len(self._connecting)
        if lacking <= 0:
            return
        ready = [
            nid for nid, at in self.candidates.items() if at <= now and nid not in self._connecting
        ]
        self._random.shuffle(ready)
        ready.sort(key=lambda nid: nid not in self._past_stats)  # earlier peers first
        if len(ready) > MAX_CONNECTING:
            self._next_replenish = now + MIN_REPLENISH_INTERVAL_S  # some nodes will decline
        for nid in ready[: min(lacking + 1, MAX_CONNECTING)]:
            if self.may_join(nid, now):
                self._connecting.add(nid)
                self._effects.append(Call(nid, "connect", self._interests.advertisement_for(nid)))
        if len(ready) < lacking:
            self._effects.extend(Call(server, "get_neighbors") for server in self._list_servers)
            self._effects.extend(Call(nid, "get_neighbors") for nid in list(self._peers)[:1])

    # --- joining ---------------------------------------------------------------------------------

    def may_join(self, nid: Nid, now: float, key: bytes | None = None) -> bool:
        """Return whether a node may become a peer.

        This node itself and banned nodes may not, nor nodes without a pinned key if `friends_only`
        is set, nor more than `max_per_address` nodes of one address (Sybil attack).
        """
        if self._is_us(nid) or self.banned_until(nid, now) is not None:
            return False
        if self._settings.friends_only and key is not None and key not in self._settings.friends:
            return False
        address = address_of(nid)
        return (
            sum(n.nid != nid and n.address == address for n in self._peers.values())
            < self._settings.max_per_address
        )

    def on_connected(self, to: Nid, subset: Subset, now: float, key: bytes) -> None:
        """Handle the response to a `connect` call of this node.

        An empty ``subset`` means that the node ``to`` declined.
        """
        self._connecting.discard(to)
        self.candidates.pop(to, None)
        if not subset:
            self.candidates[to] = now + RETRY_S
        elif to not in self._peers and self._has_room() and self.may_join(to, now, key):
            self._accept(to, subset, now, key)

    def admit(self, nid: Nid, subset: Subset, now: float, key: bytes) -> bool:
        """Admit a caller as a peer, or update a known peer.

        Returns False if the maximum number of peers is reached.
        """
        peer = self._peers.get(nid)
        if peer is not None:
            peer.hops, peer.last_call_at = dict(subset), now
            self._interests.invalidate()
        elif self._has_room() or self._make_room(subset, now):
            self._accept(nid, subset, now, key)
        else:
            self.add_candidates([nid], now, {})
            return False
        return True

    def _accept(self, nid: Nid, subset: Subset, now: float, key: bytes) -> None:
        self.candidates.pop(nid, None)
        peer = self._peers[nid] = Peer(nid, subset, now, key)
        peer.restore_stats(self._past_stats.get(nid, {}))
        self._interests.invalidate()
        peer.advertised_subset = self._interests.advertisement_for(nid)

    def _has_room(self) -> bool:
        return len(self._peers) < self._settings.max_peers

    def _make_room(self, subset: Subset, now: float) -> bool:
        """Drop the least useful peer if the new node is better, and return whether one was dropped.

        Free riders are dropped first.
        """
        usefulness = self._interests.usefulness
        worst = min(
            self._peers.values(), key=lambda n: (not self._is_free_riding(n), usefulness(n.hops))
        )
        if self._is_free_riding(worst):
            self.drop(worst.nid, _("the peer receives posts but sends none (free rider)"), now)
        elif usefulness(subset) > MIN_REPLACEMENT_RATIO * usefulness(worst.hops):
            self.drop(worst.nid, _("replaced by a more useful peer"), now)
        else:
            return False
        return True

    def _is_free_riding(self, peer: Peer) -> bool:
        return (
            peer.contribution_sent > self._settings.deficit / NEW_PEER_DIVISOR
            and peer.contribution_received < peer.contribution_sent / NEW_PEER_DIVISOR
        )

    # --- leaving ---------------------------------------------------------------------------------

    def on_failed(self, to: Nid, now: float, started_at: float) -> bool:
        """Handle a call, started at ``started_at``, that did not reach the node ``to``.

        Returns False if the failure is ignored because the node has called this node since then.
        """
        self._connecting.discard(to)
        if self._has_called_since(to, started_at):
            return False
        if to not in self._list_servers:
            self.candidates[to] = now + RETRY_S
        if to in self._peers:
            self.drop(to, _("the peer is unreachable"), now)
        return True

    def on_refused(self, to: Nid, now: float, started_at: float) -> None:
        """Drop a peer that answered a call with "connect first", unless it has called since."""
        if to in self._peers and not self._has_called_since(to, started_at):
            self.drop(to, _("the peer ended the connection"), now)
            self.candidates[to] = now + RETRY_S

    def _has_called_since(self, nid: Nid, started_at: float) -> bool:
        return nid in self._peers and self._peers[nid].last_call_at > started_at

    def drop(self, nid: Nid, reason: str, now: float, *, ban: bool = False) -> None:
        """Remove a peer with a reason for display, and ban it if ``ban`` is set."""
        peer = self._peers.pop(nid)
        self._past_stats[nid] = peer.stats()
        while len(self._past_stats) > MAX_CANDIDATES:
            del self._past_stats[next(iter(self._past_stats))]
        self._interests.invalidate()
        self._next_advert = min(self._next_advert, now + 1.0)
        self._next_replenish = min(self._next_replenish, now + 1.0)
        self._effects.append(PeerDropped(nid, reason, ban))
        if ban:
            self.ban(nid, now + BAN_S)
