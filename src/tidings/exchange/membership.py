"""Who is a neighbour, who could be, and who may not (FeedEx 3.1, 3.2).

Neighbours should stay: they know each other's interests and what each is worth. One leaves when it cannot be reached, has lied,
or takes and does not give where somebody better wants its place; then another is looked for among those we have heard of.
"""

import random
from collections.abc import Callable, Iterable, Mapping

from tidings.exchange.peers import Interests, Peer, address_of
from tidings.exchange.protocol import Call, Effect, Nid, NodeSettings, PeerDropped, Subset

#: A liar, or who cannot be reached, is not asked or let in again for so long.
BAN_S = 7 * 86400.0
RETRY_S = 900.0
#: A newcomer takes the place of a neighbour only if it is so much more useful.
MIN_REPLACEMENT_RATIO = 1.2
#: Who has given nothing yet gets this part of the deficit bound, or moving from node to node would be a way of life.
NEWCOMER_DIVISOR = 5
#: So many are asked at once, and so many addresses kept.
MAX_CONNECTING = 4
MAX_CANDIDATES = 200
#: Others are looked for no sooner than this after the last time, whoever is heard of.
MIN_REPLENISH_INTERVAL_S = 5.0


class Membership:
    """How neighbours come and go; what is to be done for that is added to ``out``."""

    def __init__(
        self,
        settings: NodeSettings,
        interests: Interests,
        is_us: Callable[[Nid], bool],
        rng: random.Random,
        effects: list[Effect],
    ) -> None:
        self._settings, self._interests, self._is_us, self._random, self._effects = (
            settings,
            interests,
            is_us,
            rng,
            effects,
        )
        self._peers = interests.peers
        self.candidates: dict[Nid, float] = {}  #: not to be asked before
        self._connecting: set[Nid] = set()  # who are being asked to be neighbours
        self._banned: dict[Nid, float] = {}  # nodes until when; addresses of liars too
        self._past_stats: dict[Nid, Mapping[str, float]] = {}  # what earlier neighbours were worth
        self._list_servers: list[Nid] = []
        self._next_advert = self._next_replenish = self._last_replenish = float("-inf")
        self._advertised_version = -1  # version of the interests that neighbours were told

    def add_candidates(
        self, nids: Iterable[Nid], now: float, past_stats: Mapping[Nid, Mapping[str, float]]
    ) -> None:
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
        """List servers that are asked when neighbours are lacking."""
        self._list_servers = list(servers)

    def peer_stats(self) -> dict[Nid, Mapping[str, float]]:
        """Neighbours of now and before, for the next start."""
        return {**self._past_stats, **{nid: peer.stats() for nid, peer in self._peers.items()}}

    def ban(self, nid: Nid, until: float) -> None:
        """Neither this node nor another at its address is let in until then."""
        self._banned[nid] = self._banned[address_of(nid)] = until

    def banned_until(self, nid: Nid, now: float) -> float | None:
        until = max(self._banned.get(nid, 0.0), self._banned.get(address_of(nid), 0.0))
        return until if until > now else None

    # --- by the clock --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
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
        """Tell every neighbour the difference to what it was told last; silence for long is broken by an empty one."""
        quiet = now - 3 * self._settings.advertise_interval_s
        stale = self._advertised_version != self._interests.version
        self._advertised_version = self._interests.version
        for peer in self._peers.values():
            if not stale and peer.last_call_at > quiet:
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
            if changes or peer.last_call_at <= quiet:
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
        ready.sort(
            key=lambda nid: nid not in self._past_stats
        )  # old neighbours first: they know us
        if len(ready) > MAX_CONNECTING:
            self._next_replenish = now + MIN_REPLENISH_INTERVAL_S  # some will decline
        for nid in ready[: min(lacking + 1, MAX_CONNECTING)]:
            if self.may_join(nid, now):
                self._connecting.add(nid)
                self._effects.append(Call(nid, "connect", self._interests.advertisement_for(nid)))
        if len(ready) < lacking:
            self._effects.extend(Call(server, "get_neighbors") for server in self._list_servers)
            self._effects.extend(Call(nid, "get_neighbors") for nid in list(self._peers)[:1])

    # --- who comes -----------------------------------------------------------------------------------------------------

    def may_join(self, nid: Nid, now: float, key: bytes | None = None) -> bool:
        """Not ourselves, no liar, a friend where only friends are wanted, and one of few at its address."""
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
        self._connecting.discard(to)
        self.candidates.pop(to, None)
        if not subset:
            self.candidates[to] = now + RETRY_S
        elif to not in self._peers and self._has_room() and self.may_join(to, now, key):
            self._accept(to, subset, now, key)  # else it will find out with its next call

    def admit(self, nid: Nid, subset: Subset, now: float, key: bytes) -> bool:
        """Let somebody in who calls, or know it better; False if there is no room."""
        known = self._peers.get(nid)
        if known is not None:
            known.hops, known.last_call_at = dict(subset), now
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
        for name, value in self._past_stats.get(nid, {}).items():
            setattr(peer, name, type(getattr(peer, name))(value))
        self._interests.invalidate()
        peer.advertised_subset = self._interests.advertisement_for(nid)

    def _has_room(self) -> bool:
        return len(self._peers) < self._settings.max_peers

    def _make_room(self, subset: Subset, now: float) -> bool:
        """Let the least useful neighbour go if the newcomer is better: first those who take and do not give."""
        usefulness = self._interests.usefulness
        worst = min(
            self._peers.values(), key=lambda n: (not self._is_free_riding(n), usefulness(n.hops))
        )
        if self._is_free_riding(worst):
            self.drop(worst.nid, "it takes and does not give", now)
        elif usefulness(subset) > MIN_REPLACEMENT_RATIO * usefulness(worst.hops):
            self.drop(worst.nid, "another is more useful", now)
        else:
            return False
        return True

    def _is_free_riding(self, peer: Peer) -> bool:
        """It has been given much and has hardly given."""
        return (
            peer.contribution_sent > self._settings.deficit / NEWCOMER_DIVISOR
            and peer.contribution_received < peer.contribution_sent / NEWCOMER_DIVISOR
        )

    # --- who goes ------------------------------------------------------------------------------------------------------

    def on_failed(self, to: Nid, now: float, started_at: float) -> bool:
        """A call did not reach it; False if that says nothing, since it has called us after ours began."""
        self._connecting.discard(to)
        if self._has_called_since(to, started_at):
            return False
        if to not in self._list_servers:
            self.candidates[to] = now + RETRY_S
        if to in self._peers:
            self.drop(to, "it cannot be reached", now)
        return True

    def on_refused(self, to: Nid, now: float, started_at: float) -> None:
        if to in self._peers and not self._has_called_since(to, started_at):
            self.drop(to, "it has dropped us", now)
            self.candidates[to] = now + RETRY_S

    def _has_called_since(self, nid: Nid, started_at: float) -> bool:
        return nid in self._peers and self._peers[nid].last_call_at > started_at

    def drop(self, nid: Nid, reason: str, now: float, *, ban: bool = False) -> None:
        peer = self._peers.pop(nid)
        self._past_stats[nid] = peer.stats()
        while len(self._past_stats) > MAX_CANDIDATES:
            del self._past_stats[next(iter(self._past_stats))]
        self._interests.invalidate()
        self._next_advert = min(self._next_advert, now + 1.0)
        self._next_replenish = min(self._next_replenish, now + 1.0)  # another is wanted
        self._effects.append(PeerDropped(nid, reason, ban))
        if ban:
            self.ban(nid, now + BAN_S)
