"""Who is a neighbour, who could be, and who may not (FeedEx 3.1, 3.2).

Neighbours should stay: they know each other's interests and what each is worth. One leaves when it cannot be reached, has lied,
or takes and does not give where somebody better wants its place; then another is looked for among those we have heard of.
"""

import random
from collections.abc import Callable, Iterable, Mapping

from tidings.exchange.neighbours import Interests, Neighbour, address_of
from tidings.exchange.values import Call, Dropped, Effect, Nid, Rules, Subset

#: A liar, or who cannot be reached, is not asked or let in again for so long.
BANNED_S = 7 * 86400.0
AWAY_S = 900.0
#: A newcomer takes the place of a neighbour only if it is so much more useful.
BETTER = 1.2
#: Who has given nothing yet gets this part of the deficit bound, or moving from node to node would be a way of life.
STRANGERS = 5
#: So many are asked at once, and so many addresses kept.
CONNECTS = 4
CANDIDATES = 200
#: Others are looked for no sooner than this after the last time, whoever is heard of.
SOON_S = 5.0


class Membership:
    """How neighbours come and go; what is to be done for that is added to ``out``."""

    def __init__(
        self, rules: Rules, interests: Interests, is_us: Callable[[Nid], bool], draw: random.Random, out: list[Effect]
    ) -> None:
        self._rules, self._interests, self._is_us, self._random, self._out = rules, interests, is_us, draw, out
        self._neighbours = interests.neighbours
        self.candidates: dict[Nid, float] = {}  #: not to be asked before
        self._asked: set[Nid] = set()  # who are being asked to be neighbours
        self._banned: dict[Nid, float] = {}  # nodes until when; addresses of liars too
        self._past: dict[Nid, Mapping[str, float]] = {}  # what earlier neighbours were worth
        self._list_servers: list[Nid] = []
        self._next_advert = self._next_replenish = self._replenished = float("-inf")
        self._advertised = -1  # version of the interests that neighbours were told

    def meet(self, nids: Iterable[Nid], now: float, past: Mapping[Nid, Mapping[str, float]]) -> None:
        self._past.update(past)
        for nid in nids:
            if not self._is_us(nid) and nid not in self._neighbours and nid not in self.candidates:
                self.candidates[nid] = now
                self._next_replenish = min(self._next_replenish, max(now, self._replenished + SOON_S))
        while len(self.candidates) > CANDIDATES:
            del self.candidates[next(iter(self.candidates))]

    def ask_lists(self, servers: Iterable[Nid]) -> None:
        """List servers that are asked when neighbours are lacking."""
        self._list_servers = list(servers)

    def remembered(self) -> dict[Nid, Mapping[str, float]]:
        """Neighbours of now and before, for the next start."""
        return {**self._past, **{nid: neighbour.saved() for nid, neighbour in self._neighbours.items()}}

    def ban(self, nid: Nid, until: float) -> None:
        """Neither this node nor another at its address is let in until then."""
        self._banned[nid] = self._banned[address_of(nid)] = until

    def banned_until(self, nid: Nid, now: float) -> float | None:
        until = max(self._banned.get(nid, 0.0), self._banned.get(address_of(nid), 0.0))
        return until if until > now else None

    # --- by the clock --------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if now >= self._next_advert:
            self._next_advert = now + self._rules.advertise_s
            self._advertise(now)
        if now >= self._next_replenish:
            self._next_replenish, self._replenished = now + self._rules.advertise_s, now
            self._replenish(now)

    def _advertise(self, now: float) -> None:
        """Tell every neighbour the difference to what it was told last; silence for long is broken by an empty one."""
        quiet = now - 3 * self._rules.advertise_s
        stale = self._advertised != self._interests.version
        self._advertised = self._interests.version
        for neighbour in self._neighbours.values():
            if not stale and neighbour.heard_at > quiet:
                continue
            told = self._interests.advertised(neighbour.nid)
            changes = {feed: hops for feed, hops in told.items() if neighbour.told.get(feed) != hops}
            changes.update((feed, -1) for feed in neighbour.told if feed not in told)
            if changes or neighbour.heard_at <= quiet:
                neighbour.told = told
                self._out.append(Call(neighbour.nid, "update_subset", changes))

    def _replenish(self, now: float) -> None:
        lacking = self._rules.min_neighbours - len(self._neighbours) - len(self._asked)
        if lacking <= 0:
            return
        ready = [nid for nid, at in self.candidates.items() if at <= now and nid not in self._asked]
        self._random.shuffle(ready)
        ready.sort(key=lambda nid: nid not in self._past)  # old neighbours first: they know us
        if len(ready) > CONNECTS:
            self._next_replenish = now + SOON_S  # some will decline
        for nid in ready[: min(lacking + 1, CONNECTS)]:
            if self.is_welcome(nid, now):
                self._asked.add(nid)
                self._out.append(Call(nid, "connect", self._interests.advertised(nid)))
        if len(ready) < lacking:
            self._out.extend(Call(server, "get_neighbors") for server in self._list_servers)
            self._out.extend(Call(nid, "get_neighbors") for nid in list(self._neighbours)[:1])

    # --- who comes -----------------------------------------------------------------------------------------------------

    def is_welcome(self, nid: Nid, now: float, key: bytes | None = None) -> bool:
        """Not ourselves, no liar, a friend where only friends are wanted, and one of few at its address."""
        if self._is_us(nid) or self.banned_until(nid, now) is not None:
            return False
        if self._rules.friends_only and key is not None and key not in self._rules.friends:
            return False
        address = address_of(nid)
        return sum(n.nid != nid and n.address == address for n in self._neighbours.values()) < self._rules.per_address

    def connected(self, to: Nid, subset: Subset, now: float, key: bytes) -> None:
        self._asked.discard(to)
        self.candidates.pop(to, None)
        if not subset:
            self.candidates[to] = now + AWAY_S
        elif to not in self._neighbours and self._has_room() and self.is_welcome(to, now, key):
            self._accept(to, subset, now, key)  # else it will find out with its next call

    def admit(self, nid: Nid, subset: Subset, now: float, key: bytes) -> bool:
        """Let somebody in who calls, or know it better; False if there is no room."""
        known = self._neighbours.get(nid)
        if known is not None:
            known.hops, known.heard_at = dict(subset), now
            self._interests.changed()
        elif self._has_room() or self._make_room(subset, now):
            self._accept(nid, subset, now, key)
        else:
            self.meet([nid], now, {})
            return False
        return True

    def _accept(self, nid: Nid, subset: Subset, now: float, key: bytes) -> None:
        self.candidates.pop(nid, None)
        neighbour = self._neighbours[nid] = Neighbour(nid, subset, now, key)
        for name, value in self._past.get(nid, {}).items():
            setattr(neighbour, name, type(getattr(neighbour, name))(value))
        self._interests.changed()
        neighbour.told = self._interests.advertised(nid)

    def _has_room(self) -> bool:
        return len(self._neighbours) < self._rules.max_neighbours

    def _make_room(self, subset: Subset, now: float) -> bool:
        """Let the least useful neighbour go if the newcomer is better: first those who take and do not give."""
        usefulness = self._interests.usefulness
        worst = min(self._neighbours.values(), key=lambda n: (not self._is_owing(n), usefulness(n.hops)))
        if self._is_owing(worst):
            self.drop(worst.nid, "it takes and does not give", now)
        elif usefulness(subset) > BETTER * usefulness(worst.hops):
            self.drop(worst.nid, "another is more useful", now)
        else:
            return False
        return True

    def _is_owing(self, neighbour: Neighbour) -> bool:
        """It has been given much and has hardly given."""
        return neighbour.given > self._rules.deficit / STRANGERS and neighbour.brought < neighbour.given / STRANGERS

    # --- who goes ------------------------------------------------------------------------------------------------------

    def failed(self, to: Nid, now: float, began: float) -> bool:
        """A call did not reach it; False if that says nothing, since it has called us after ours began."""
        self._asked.discard(to)
        if self._is_back(to, began):
            return False
        if to not in self._list_servers:
            self.candidates[to] = now + AWAY_S
        if to in self._neighbours:
            self.drop(to, "it cannot be reached", now)
        return True

    def refused(self, to: Nid, now: float, began: float) -> None:
        if to in self._neighbours and not self._is_back(to, began):
            self.drop(to, "it has dropped us", now)
            self.candidates[to] = now + AWAY_S

    def _is_back(self, nid: Nid, began: float) -> bool:
        return nid in self._neighbours and self._neighbours[nid].heard_at > began

    def drop(self, nid: Nid, why: str, now: float, *, ban: bool = False) -> None:
        neighbour = self._neighbours.pop(nid)
        self._past[nid] = neighbour.saved()
        while len(self._past) > CANDIDATES:
            del self._past[next(iter(self._past))]
        self._interests.changed()
        self._next_advert = min(self._next_advert, now + 1.0)
        self._next_replenish = min(self._next_replenish, now + 1.0)  # another is wanted
        self._out.append(Dropped(nid, why, ban))
        if ban:
            self.ban(nid, now + BANNED_S)
