"""A node's state machine: what others call and what time brings goes in, what is to be done comes out (`take`).

No I/O, no clock, and no chance but a seed: the same node speaks XML-RPC on the network and runs by the thousand on a virtual
clock. Methods named as the functions of FeedEx's Table 1 are what neighbours call; `fetched` and `tick` are what the own side
does; `connected`, `refused`, `failed`, `delivered` and `answered` say how our own calls went.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidings.document import Entry
from tidings.errors import TidingsError
from tidings.exchange.archive import MOST_HOPS, Queries, Trade
from tidings.exchange.neighbours import CHECK_COSTS, Interests, Neighbour, address_of, pick
from tidings.exchange.trust import Claim, Ledger
from tidings.exchange.values import (
    MOST_ENTRIES,
    MOST_FEEDS,
    MOST_PATH,
    Arrived,
    Bundle,
    Call,
    Confirmed,
    Dropped,
    Effect,
    Holding,
    Look,
    Looked,
    Nid,
    Note,
    Offer,
    Query,
    Reply,
    Rules,
    Search,
    Subset,
    Verify,
    Withdrawn,
    bundle_of,
    did_of,
    portions,
    statement,
)

#: A liar, or who cannot be reached, is not asked or let in again for so long.
BANNED_S = 7 * 86400.0
AWAY_S = 900.0
#: Who told so many false entries, and so many of all that it told, is a liar; edits look like alterations, so some are allowed.
FALSE, FALSE_SHARE = 5, 0.2
#: Who passed on a forgery is not listened to about that feed for a while, the second time for twice as long, and so on.
MUTED_S = 3600.0
#: A newcomer takes the place of a neighbour only if it is so much more useful: neighbours should stay.
BETTER = 1.2
#: A bundle that was announced is there after so long; who announces and does not send is not waited for, for so long.
PROMISE_S, BROKEN_S = 60.0, 3600.0
#: Who has given nothing yet gets this part of the deficit bound, or moving from node to node would be a way of life.
STRANGERS = 5
#: Notices go out so often, and only if they tell so much; an own look is due after so long, whatever others say.
LOOK_STEP_S = 30.0
OWN_LOOK_S = 14 * 86400.0
#: A post is on its way to us for no longer than this after who found it has told that it looked.
ON_ITS_WAY_S = 300.0
#: So many are asked at once, and so many addresses kept.
CONNECTS = 4
#: Others are looked for no sooner than this after the last time, whoever is heard of.
SOON_S = 5.0
CANDIDATES = 200
LISTED = 30
#: A feed is fetched to verify an accusation once in so long.
VERIFY_S = 3600.0


class Refused(TidingsError):
    """What a caller gets instead of an answer."""


class Node:
    """One node of the network."""

    def __init__(
        self,
        feeds: Mapping[str, float],
        rules: Rules | None = None,
        *,
        nid: Nid = "",
        seed: int = 0,
        sign: Callable[[bytes], bytes] | None = None,
        key: bytes = b"",
        verify: Callable[[bytes, bytes, bytes], bool] | None = None,
    ) -> None:
        """``feeds`` are those that may be told to others, with their weights. ``sign`` and ``verify`` come from `keys`."""
        self.rules = rules or Rules()
        self.nid = nid  #: as others see us; may be learned later
        self.interests = Interests(self.rules, feeds)
        self.ledger = Ledger()
        self.queries = Queries()
        self.trade = Trade(self.rules.altruist)
        self.neighbours = self.interests.neighbours
        self.counts = {"duplicates": 0, "loops": 0, "stale": 0, "refused": 0}
        self._random = random.Random(seed)
        self._sign, self._key, self._verify = sign, key, verify
        self._out: list[Effect] = []
        self._seen: dict[bytes, None] = {}
        self._promised: dict[bytes, tuple[float, Nid]] = {}  # until when somebody is to bring it, in that order
        self._candidates: dict[Nid, float] = {}  # not to be asked before
        self._asked: set[Nid] = set()  # who are being asked to be neighbours
        self._banned: dict[Nid, float] = {}  # nodes until when; addresses of liars too
        self._past: dict[Nid, Mapping[str, float]] = {}  # what earlier neighbours were worth
        self._list_servers: list[Nid] = []
        self._next_advert = self._next_replenish = self._replenished = float("-inf")
        self._advertised = -1  # version of the interests that neighbours were told
        self._looked: dict[str, float] = {}
        self._teller: dict[str, tuple[Nid, float]] = {}
        self._to_tell: dict[str, tuple[float, Nid]] = {}
        self._verified: dict[str, float] = {}

    def take(self) -> list[Effect]:
        """What is to be done, in order; each is told once."""
        out, self._out = self._out, []
        return out

    # --- the own side --------------------------------------------------------------------------------------------------

    def fetched(self, feed: str, entries: Sequence[Entry], now: float, notes: Mapping[str, Note] | None = None) -> list[Entry]:
        """The feed's server has shown this document. Passes on what is new in it; returns that."""
        verdict = self.ledger.show(feed, entries, now)
        self._judge(feed, verdict.confirmed, verdict.altered, verdict.forged, now)
        self._judge_looks(feed, verdict.new, now)
        self._note_look(Look(feed, now), "")
        self._pass_on(feed, verdict.new, now, notes)
        return verdict.new

    def pushed(self, feed: str, entries: Sequence[Entry], now: float) -> None:
        """The feed's hub has sent these: true, but what is not among them may be true as well."""
        known = self.ledger.known(feed)
        new = [entry for entry in entries if entry.identity not in known]
        self.ledger.remember(feed, [entry.identity for entry in new])
        self._pass_on(feed, new, now, None)

    def _pass_on(self, feed: str, new: Sequence[Entry], now: float, notes: Mapping[str, Note] | None) -> None:
        for part in portions(new):
            self._publish(feed, part, now, notes)

    def unchanged(self, feed: str, now: float) -> None:
        """The feed's server said that there is nothing new."""
        self._judge_looks(feed, (), now)
        self._note_look(Look(feed, now), "")

    def _publish(self, feed: str, new: Sequence[Entry], now: float, notes: Mapping[str, Note] | None) -> None:
        signatures = {}
        if self._sign is not None:
            signatures = {entry.identity: self._sign(signed(feed, entry)) for entry in new}
        bundle = bundle_of(feed, new, now, (), self._key, signatures, notes)
        self._remember(bundle.did)
        self._forward(bundle, "")

    def read(self, feeds: Mapping[str, float]) -> None:
        """The feeds that we follow and may tell have changed."""
        self.interests.feeds = dict(feeds)
        self.interests.changed()

    def meet(self, nids: Iterable[Nid], now: float, past: Mapping[Nid, Mapping[str, float]] | None = None) -> None:
        """Nodes that could become neighbours: from a list server, a feed's document, or the last time."""
        self._past.update(past or {})
        for nid in nids:
            if nid != self.nid and nid not in self.neighbours and nid not in self._candidates:
                self._candidates[nid] = now
                self._next_replenish = min(self._next_replenish, max(now, self._replenished + SOON_S))
        while len(self._candidates) > CANDIDATES:
            del self._candidates[next(iter(self._candidates))]

    def ask_lists(self, servers: Iterable[Nid]) -> None:
        """List servers that are asked when neighbours are lacking."""
        self._list_servers = list(servers)

    def tick(self, now: float) -> None:
        """To be called every few seconds."""
        for ended in self.queries.expired(now):
            self._out.append(Reply(ended.query, ended.asker, tuple(ended.found.values())))
        self._end_promises(now)
        self._tell_looks()
        if now >= self._next_advert:
            self._next_advert = now + self.rules.advertise_s
            self._advertise(now)
        if now >= self._next_replenish:
            self._next_replenish, self._replenished = now + self.rules.advertise_s, now
            self._replenish(now)

    def _advertise(self, now: float) -> None:
        """Tell every neighbour the difference to what it was told last; silence for long is broken by an empty one."""
        quiet = now - 3 * self.rules.advertise_s
        stale = self._advertised != self.interests.version
        self._advertised = self.interests.version
        for neighbour in self.neighbours.values():
            if not stale and neighbour.heard_at > quiet:
                continue
            told = self.interests.advertised(neighbour.nid)
            changes = {feed: hops for feed, hops in told.items() if neighbour.told.get(feed) != hops}
            changes.update((feed, -1) for feed in neighbour.told if feed not in told)
            if changes or neighbour.heard_at <= quiet:
                neighbour.told = told
                self._out.append(Call(neighbour.nid, "update_subset", changes))

    def _replenish(self, now: float) -> None:
        lacking = self.rules.min_neighbours - len(self.neighbours) - len(self._asked)
        if lacking <= 0:
            return
        ready = [nid for nid, at in self._candidates.items() if at <= now and nid not in self._asked]
        self._random.shuffle(ready)
        ready.sort(key=lambda nid: nid not in self._past)  # old neighbours first: they know us
        if len(ready) > CONNECTS:
            self._next_replenish = now + SOON_S  # some will decline
        for nid in ready[: min(lacking + 1, CONNECTS)]:
            if self._why_not(nid, now) is None:
                self._asked.add(nid)
                self._out.append(Call(nid, "connect", self.interests.advertised(nid)))
        if len(ready) < lacking:
            self._out.extend(Call(server, "get_neighbors") for server in self._list_servers)
            self._out.extend(Call(nid, "get_neighbors") for nid in list(self.neighbours)[:1])

    # --- how our calls went --------------------------------------------------------------------------------------------

    def connected(self, to: Nid, subset: Subset, now: float, key: bytes = b"") -> None:
        """``to`` has accepted us, or not (an empty set)."""
        self._asked.discard(to)
        self._candidates.pop(to, None)
        if not subset:
            self._candidates[to] = now + AWAY_S
        elif to not in self.neighbours and self._why_not(to, now, key) is None:
            if len(self.neighbours) >= self.rules.max_neighbours:
                return  # it will find out with its next call
            self._accept(to, subset, now, key)

    def failed(self, to: Nid, now: float, began: float = float("inf")) -> None:
        """``to`` could not be reached, with a call that began then."""
        self._asked.discard(to)
        if self._is_back(to, began):
            return
        if to not in self._list_servers:
            self._candidates[to] = now + AWAY_S
        if to in self.neighbours:
            self._drop(to, "it cannot be reached", now)
        for query_id in self.queries.waiting_for(to):
            self.answered(query_id, to, (), now)

    def _is_back(self, nid: Nid, began: float) -> bool:
        """It has called us since: how our call went says nothing any more."""
        return nid in self.neighbours and self.neighbours[nid].heard_at > began

    def refused(self, to: Nid, now: float, began: float = float("inf")) -> None:
        """``to`` does not know us any more, as it said to a call that began then."""
        if to in self.neighbours and not self._is_back(to, began):
            self._drop(to, "it has dropped us", now)
            self._candidates[to] = now + AWAY_S

    def delivered(self, to: Nid, bundle: Bundle) -> None:
        """``to`` has taken the bundle."""
        neighbour = self.neighbours.get(to)
        if neighbour is not None:
            hops = neighbour.hops.get(bundle.feed, self.rules.max_subset_hops)
            neighbour.given += len(bundle.entries) * self.rules.alpha**-hops

    # --- what neighbours call (Table 1) --------------------------------------------------------------------------------

    def get_neighbors(self, sender: Nid, now: float) -> list[Nid]:
        """Some nodes that we know, for somebody who needs neighbours; who asks is known from now on."""
        self.meet([sender], now)
        known = [nid for nid in (*self.neighbours, *self._candidates) if nid != sender]
        return self._random.sample(known, min(len(known), LISTED))

    def connect(self, sender: Nid, subset: Subset, now: float, key: bytes = b"") -> dict[str, int]:
        """Become neighbours: our subscription set, or nothing if we decline."""
        if len(subset) > MOST_FEEDS or not subset:
            return {}
        why_not = self._why_not(sender, now, key)
        if why_not is not None:
            self.counts["refused"] += 1
            return {}
        known = self.neighbours.get(sender)
        if known is not None:
            known.hops, known.heard_at = dict(subset), now
            self.interests.changed()
        elif len(self.neighbours) < self.rules.max_neighbours or self._make_room(subset, now):
            self._accept(sender, subset, now, key)
        else:
            self.meet([sender], now)
            return {}
        told = self.neighbours[sender].told = self.interests.advertised(sender)
        return told

    def update_subset(self, sender: Nid, changes: Subset, now: float) -> None:
        """The sender's subscription set has changed; a hop count below 0 takes a feed out."""
        neighbour = self._neighbour(sender, now)
        if len(changes) > MOST_FEEDS or len(neighbour.hops) + len(changes) > 2 * MOST_FEEDS:
            raise Refused("the subscription set is too large")
        for feed, hops in changes.items():
            if hops < 0:
                neighbour.hops.pop(feed, None)
            else:
                neighbour.hops[feed] = hops
        if changes:
            self.interests.changed()

    def check_did(self, sender: Nid, did: bytes, now: float) -> bool:
        """Whether we have seen the bundle, or are about to.

        Who is told "unseen" is expected to send it, and others need not. Who does not send it keeps us from it, so that
        its word counts for nothing for a while.
        """
        neighbour = self._neighbour(sender, now, CHECK_COSTS)
        if did in self._seen:
            return True
        promise = self._promised.get(did)
        if promise is not None and promise[0] > now and promise[1] != sender:
            return True
        if now - neighbour.broke_at > BROKEN_S:
            self._promised[did] = (now + PROMISE_S, sender)
        return False

    def _end_promises(self, now: float) -> None:
        while self._promised:
            did, (until, who) = next(iter(self._promised.items()))
            if until > now:
                return
            del self._promised[did]
            if who in self.neighbours:
                self.neighbours[who].broke_at = now

    def put_entries(self, sender: Nid, bundle: Bundle, now: float) -> int:
        """A bundle from a neighbour; returns how many of its entries were new to us."""
        neighbour = self._neighbour(sender, now)
        if bundle.did in self._seen:
            self.counts["duplicates"] += 1
            return 0
        self._promised.pop(bundle.did, None)
        self._check(bundle, sender)
        if self.nid in bundle.path:
            self.counts["loops"] += 1
            return 0
        feed, known = bundle.feed, self.ledger.known(bundle.feed)
        hops = self.interests.hops(feed)
        if hops is None or neighbour.is_muted(feed, now):
            return 0
        self._remember(bundle.did)
        fresh = [entry for entry in bundle.entries if entry.identity not in known]
        if len(fresh) < len(bundle.entries):
            self._confirm(feed, self.ledger.witnessed(bundle, sender))
        if hops == 0:
            news = [entry for entry in fresh if self.ledger.is_news(feed, entry)]
            self.counts["stale"] += len(fresh) - len(news)
            fresh = news
        if fresh:
            self._take_in(neighbour, bundle, fresh, hops, now)
        if hops == 0:  # afterwards, so that what the look brought is there when it is told
            self._note_look(Look(feed, min(bundle.fetched_at, now)), sender, now)
        return len(fresh)

    def _take_in(self, neighbour: Neighbour, bundle: Bundle, fresh: list[Entry], hops: int, now: float) -> None:
        feed, sender = bundle.feed, neighbour.nid
        kept = self._reduced(bundle, fresh, sender)
        self.ledger.remember(feed, [entry.identity for entry in fresh], kept.path)
        neighbour.brought += len(fresh) * self.interests.feeds.get(feed, 1.0) * self.rules.alpha**-hops
        neighbour.entries += len(fresh)
        if feed in self.interests.feeds:
            believed = self._believed(kept)
            self.ledger.claim(bundle, [e for e in fresh if e.identity not in believed], sender, now)
            self._out.append(Arrived(kept, sender, believed))
        self._remember(kept.did)
        self._forward(kept, sender)

    def put_looks(self, sender: Nid, looks: Sequence[Look], now: float) -> None:
        """A neighbour, or somebody near it, has looked at these feeds and passed on what was new."""
        self._neighbour(sender, now)
        for look in looks[:MOST_FEEDS]:
            self._note_look(Look(look.feed, min(look.at, now)), sender, now)

    def dispute(self, sender: Nid, feed: str, identity: str, published: float | None, now: float) -> None:
        """A neighbour has found that an entry which we gave it is forged. Who gave it to us? An own look will tell."""
        self._neighbour(sender, now)
        path = self.ledger.known(feed).get(identity)
        if path and path[-1] != sender:
            self.ledger.accuse(feed, identity, published, path, now)
            if now - self._verified.get(feed, float("-inf")) >= VERIFY_S:
                self._verified[feed] = now
                self._out.append(Verify(feed))

    def query_feed(self, sender: Nid, query: Query, now: float) -> None:
        """Who has entries like these? The answer comes as a `Reply`. With no sender it is our own question."""
        if sender:
            self._neighbour(sender, now)
        known = () if self.queries.is_loop(query) else self.queries.cached(query, now)
        if known is not None:
            others = known if sender else tuple(holding for holding in known if holding.nid)
            self._out.append(Reply(query, sender, others))
            return
        if self.queries.is_full():
            raise Refused("too many queries are under way; ask again in a minute")
        hops = min(query.hops, MOST_HOPS) - 1
        further = [nid for nid in self.neighbours if nid != sender] if hops >= 0 else []
        own = [""] if sender else []
        if not own and not further:
            self._out.append(Reply(query, sender, ()))
            return
        self.queries.begin(query, sender, [*own, *further], now)
        if own:
            self._out.append(Search(query))
        passed_on = Query(query.id, query.feed, query.since, query.until, query.words, hops)
        self._out.extend(Call(nid, "query_feed", passed_on) for nid in further)

    def answered(self, query_id: str, who: Nid, holdings: Iterable[Holding], now: float) -> None:
        """``who`` has answered a query; with no nid it was our own archive."""
        ended = self.queries.answered(query_id, who, holdings, now)
        if ended is not None:
            self._out.append(Reply(ended.query, ended.asker, tuple(ended.found.values())))

    # --- neighbours come and go ----------------------------------------------------------------------------------------

    def _neighbour(self, sender: Nid, now: float, cost: float = 1.0) -> Neighbour:
        neighbour = self.neighbours.get(sender)
        if neighbour is None:
            raise Refused("you are not a neighbour; connect first")
        if not neighbour.allow(now, self.rules.calls_per_min, cost):
            self.counts["refused"] += 1
            raise Refused("you call too often; wait a minute")
        return neighbour

    def _why_not(self, nid: Nid, now: float, key: bytes | None = None) -> str | None:
        """Why a node cannot be a neighbour, if so."""
        address = address_of(nid)
        if nid == self.nid:
            return "it is ourselves"
        if self.banned_until(nid, now) is not None:
            return "it was dropped for lying"
        if self.rules.friends_only and key is not None and key not in self.rules.friends:
            return "it is no friend"
        others = sum(1 for n in self.neighbours.values() if n.nid != nid and n.address == address)
        return "there are enough neighbours at its address" if others >= self.rules.per_address else None

    def _accept(self, nid: Nid, subset: Subset, now: float, key: bytes) -> None:
        self._candidates.pop(nid, None)
        neighbour = self.neighbours[nid] = Neighbour(nid, subset, now, key)
        for name, value in self._past.get(nid, {}).items():
            setattr(neighbour, name, type(getattr(neighbour, name))(value))
        self.interests.changed()
        neighbour.told = self.interests.advertised(nid)

    def _make_room(self, subset: Subset, now: float) -> bool:
        """Let the least useful neighbour go if the newcomer is better: first those who take and do not give."""
        worst = min(self.neighbours.values(), key=self._worth)
        if self._is_owing(worst):
            self._drop(worst.nid, "it takes and does not give", now)
            return True
        if self.interests.usefulness(subset) > BETTER * self.interests.usefulness(worst.hops):
            self._drop(worst.nid, "another is more useful", now)
            return True
        return False

    def _worth(self, neighbour: Neighbour) -> tuple[bool, float]:
        return not self._is_owing(neighbour), self.interests.usefulness(neighbour.hops)

    def _is_owing(self, neighbour: Neighbour) -> bool:
        """It has been given much and has hardly given."""
        return neighbour.given > self.rules.deficit / STRANGERS and neighbour.brought < neighbour.given / STRANGERS

    def _drop(self, nid: Nid, why: str, now: float, *, ban: bool = False) -> None:
        neighbour = self.neighbours.pop(nid)
        self._past[nid] = neighbour.saved()
        while len(self._past) > CANDIDATES:
            del self._past[next(iter(self._past))]
        self.interests.changed()
        self._next_advert = min(self._next_advert, now + 1.0)
        self._next_replenish = min(self._next_replenish, now + 1.0)  # another is wanted
        self._out.append(Dropped(nid, why, ban))
        if ban:
            self.ban(nid, now + BANNED_S)
            for feed, identities in self.ledger.withdraw(nid).items():
                self._out.append(Withdrawn(feed, tuple(identities)))

    # --- passing on ----------------------------------------------------------------------------------------------------

    def _forward(self, bundle: Bundle, sender: Nid) -> None:
        most, path = self.rules.deficit, bundle.path
        to = [
            n.nid
            for n in self.interests.interested(bundle.feed)
            if n.nid not in path and n.nid != sender and n.given - n.brought <= min(most, most / STRANGERS + n.brought)
        ]
        if to:
            self._out.append(Offer(bundle, to))

    def _reduced(self, bundle: Bundle, fresh: list[Entry], sender: Nid) -> Bundle:
        """As we pass it on: without what was known, and with the sender on its path."""
        path = (*bundle.path, sender)
        if len(fresh) == len(bundle.entries):
            return Bundle(
                bundle.feed, bundle.entries, bundle.fetched_at, bundle.did, path, bundle.key, bundle.signatures, bundle.notes
            )
        return bundle_of(bundle.feed, fresh, bundle.fetched_at, path, bundle.key, bundle.signatures, bundle.notes)

    def _check(self, bundle: Bundle, sender: Nid) -> None:
        """Refuse what no honest node sends."""
        if not 0 < len(bundle.entries) <= MOST_ENTRIES:
            raise Refused(f"a bundle has 1 to {MOST_ENTRIES} entries")
        if len(bundle.path) > MOST_PATH or len(set(bundle.path)) < len(bundle.path) or sender in bundle.path:
            raise Refused("the path is longer than any, or goes in circles")
        if bundle.did != did_of(bundle.feed, bundle.entries):
            raise Refused("the did is not that of the entries")

    def _remember(self, did: bytes) -> None:
        self._seen[did] = None
        if len(self._seen) > self.rules.dids:
            del self._seen[next(iter(self._seen))]

    # --- trust ---------------------------------------------------------------------------------------------------------

    def _believed(self, bundle: Bundle) -> frozenset[str]:
        """Identities of entries that a friend has signed."""
        if self._verify is None or bundle.key not in self.rules.friends:
            return frozenset()
        return frozenset(
            entry.identity
            for entry in bundle.entries
            if self._verify(bundle.key, signed(bundle.feed, entry), bundle.signatures.get(entry.identity, b""))
        )

    def _confirm(self, feed: str, claims: Sequence[Claim]) -> None:
        if claims:
            self._out.append(Confirmed(feed, tuple(claim.identity for claim in claims)))

    def _judge(
        self, feed: str, confirmed: Sequence[Claim], altered: Sequence[Claim], forged: Sequence[Claim], now: float
    ) -> None:
        """What an own document says about those who told us of its entries."""
        self._confirm(feed, confirmed)
        for claim in confirmed:
            if (neighbour := self.neighbours.get(claim.sender)) is not None:
                neighbour.confirmed += 1
                neighbour.earlier_s += now - claim.at
        for claim in altered:
            self._lied(claim, now)
        if forged:
            self._out.append(Withdrawn(feed, tuple(claim.identity for claim in forged)))
        for claim in forged:
            self.ledger.known(feed).pop(claim.identity, None)
            if (neighbour := self.neighbours.get(claim.sender)) is None:
                continue
            if len(claim.path) == 1:
                self._drop(claim.sender, "it forged an entry", now, ban=True)
                continue
            neighbour.mute(feed, now, MUTED_S)
            self._out.append(Call(claim.sender, "dispute", (feed, claim.identity, claim.published or 0.0)))
            self._lied(claim, now)

    def _lied(self, claim: Claim, now: float) -> None:
        """It has told something false, perhaps in good faith."""
        neighbour = self.neighbours.get(claim.sender)
        if neighbour is not None:
            neighbour.false += 1
            if neighbour.false >= FALSE and neighbour.false > FALSE_SHARE * (neighbour.false + neighbour.confirmed):
                self._drop(neighbour.nid, "much of what it tells is false", now, ban=True)

    # --- notices -------------------------------------------------------------------------------------------------------

    def _note_look(self, look: Look, sender: Nid, now: float = 0.0) -> None:
        """Somebody has looked; with no sender we did."""
        if not self.rules.notices or not self.interests.is_direct(look.feed):
            return
        if look.at < self._looked.get(look.feed, float("-inf")) + LOOK_STEP_S:
            return
        if sender:
            own = self.ledger.last_document_at(look.feed)
            if own is None or now - own > OWN_LOOK_S or not self.neighbours[sender].notices_believed:
                return
            self._teller[look.feed] = (sender, look.at)
            self._out.append(Looked(look, sender))
        self._looked[look.feed] = look.at
        self._to_tell[look.feed] = (look.at, sender)

    def _tell_looks(self) -> None:
        if not self._to_tell:
            return
        told, self._to_tell = self._to_tell, {}
        for neighbour in self.neighbours.values():
            looks = [Look(f, at) for f, (at, who) in told.items() if who != neighbour.nid and neighbour.hops.get(f) == 0]
            if looks:
                self._out.append(Call(neighbour.nid, "put_looks", looks))

    def _judge_looks(self, feed: str, new: Sequence[Entry], now: float) -> None:
        """A post that was there before somebody looked, and that we had to find ourselves, shows that nobody looked."""
        teller = self._teller.pop(feed, None)
        if teller is None or teller[0] not in self.neighbours or now - teller[1] < ON_ITS_WAY_S:
            return
        hidden = any(entry.published is not None and entry.published < teller[1] - ON_ITS_WAY_S for entry in new)
        if hidden:
            self.neighbours[teller[0]].looks_broken += 1
        else:
            self.neighbours[teller[0]].looks_kept += 1

    # --- for others ----------------------------------------------------------------------------------------------------

    def take_decoys(self, number: int) -> list[str]:
        """Choose feeds of neighbours to fetch and advertise as if we read them (sect. 1.2, Privacy); returns them."""
        theirs = {feed for n in self.neighbours.values() for feed in pick(n.hops, lambda f: f not in self.interests.feeds)}
        free = sorted(theirs - self.interests.decoys)
        lacking = max(number - len(self.interests.decoys), 0)
        self.interests.decoys |= set(self._random.sample(free, min(lacking, len(free))))
        self.interests.changed()
        return sorted(self.interests.decoys)

    def remembered(self) -> dict[Nid, Mapping[str, float]]:
        """Neighbours of now and before, for the next start."""
        return {**self._past, **{nid: neighbour.saved() for nid, neighbour in self.neighbours.items()}}

    def banned_until(self, nid: Nid, now: float) -> float | None:
        until = max(self._banned.get(nid, 0.0), self._banned.get(address_of(nid), 0.0))
        return until if until > now else None

    def ban(self, nid: Nid, until: float) -> None:
        """Neither this node nor another at its address is let in until then."""
        self._banned[nid] = self._banned[address_of(nid)] = until


def signed(feed: str, entry: Entry) -> bytes:
    """What a signature is over."""
    return b"tidings entry\0" + feed.encode() + b"\0" + statement(entry)
