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
from tidings.exchange.dids import Dids
from tidings.exchange.looks import Looks
from tidings.exchange.membership import STRANGERS, Membership
from tidings.exchange.neighbours import CHECK_COSTS, Interests, Neighbour
from tidings.exchange.trust import Claim, Ledger
from tidings.exchange.values import (
    MOST_ENTRIES,
    MOST_FEEDS,
    MOST_PATH,
    Arrived,
    Bundle,
    Call,
    Confirmed,
    Effect,
    Holding,
    Look,
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

#: Who told so many false entries, and so many of all that it told, is a liar; edits look like alterations, so some are allowed.
FALSE, FALSE_SHARE = 5, 0.2
#: Who passed on a forgery is not listened to about that feed for a while, the second time for twice as long, and so on.
MUTED_S = 3600.0
#: Who announces a bundle and does not send it is not waited for, for so long.
BROKEN_S = 3600.0
#: So many nodes are told to who needs some.
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
        self.members = Membership(self.rules, self.interests, lambda nid: nid == self.nid, self._random, self._out)
        self._looks = Looks(self.rules, self.interests, self.ledger, self._out)
        self._dids = Dids(self.rules.dids)
        self._verified: dict[str, float] = {}

    def take(self) -> list[Effect]:
        """What is to be done, in order; each is told once."""
        out = self._out[:]
        if out:
            self._out.clear()
        return out

    # --- the own side --------------------------------------------------------------------------------------------------

    def fetched(self, feed: str, entries: Sequence[Entry], now: float, notes: Mapping[str, Note] | None = None) -> list[Entry]:
        """The feed's server has shown this document. Passes on what is new in it; returns that."""
        verdict = self.ledger.show(feed, entries, now)
        self._judge(feed, verdict.confirmed, verdict.altered, verdict.forged, now)
        self._looks.judge(feed, verdict.new, now)
        self._looks.note(feed, now)
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
            signatures = {}
            if self._sign is not None:
                signatures = {entry.identity: self._sign(signed(feed, entry)) for entry in part}
            bundle = bundle_of(feed, part, now, (), self._key, signatures, notes)
            self._dids.see(bundle.did)
            self._forward(bundle, "")

    def unchanged(self, feed: str, now: float) -> None:
        """The feed's server said that there is nothing new."""
        self._looks.judge(feed, (), now)
        self._looks.note(feed, now)

    def read(self, feeds: Mapping[str, float]) -> None:
        """The feeds that we follow and may tell have changed."""
        self.interests.feeds = dict(feeds)
        self.interests.changed()

    def meet(self, nids: Iterable[Nid], now: float, past: Mapping[Nid, Mapping[str, float]] | None = None) -> None:
        """Nodes that could become neighbours: from a list server, a feed's document, or the last time."""
        self.members.meet(nids, now, past or {})

    def tick(self, now: float) -> None:
        """To be called every few seconds."""
        for ended in self.queries.expired(now):
            self._out.append(Reply(ended.query, ended.asker, tuple(ended.found.values())))
        for who in self._dids.broken(now):
            if who in self.neighbours:
                self.neighbours[who].broke_at = now
        self._looks.tell()
        self.members.tick(now)

    # --- how our calls went --------------------------------------------------------------------------------------------

    def connected(self, to: Nid, subset: Subset, now: float, key: bytes = b"") -> None:
        """``to`` has accepted us, or not (an empty set)."""
        self.members.connected(to, subset, now, key)

    def failed(self, to: Nid, now: float, began: float = float("inf")) -> None:
        """``to`` could not be reached, with a call that began then."""
        if self.members.failed(to, now, began):
            for query_id in self.queries.waiting_for(to):
                self.answered(query_id, to, (), now)

    def refused(self, to: Nid, now: float, began: float = float("inf")) -> None:
        """``to`` does not know us any more, as it said to a call that began then."""
        self.members.refused(to, now, began)

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
        known = [nid for nid in (*self.neighbours, *self.members.candidates) if nid != sender]
        return self._random.sample(known, min(len(known), LISTED))

    def connect(self, sender: Nid, subset: Subset, now: float, key: bytes = b"") -> dict[str, int]:
        """Become neighbours: our subscription set, or nothing if we decline."""
        if not 0 < len(subset) <= MOST_FEEDS:
            return {}
        if not self.members.is_welcome(sender, now, key):
            self.counts["refused"] += 1
            return {}
        if not self.members.admit(sender, subset, now, key):
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
        if did in self._dids.seen:
            return True
        return self._dids.is_expected(did, sender, now, believe=now - neighbour.broke_at > BROKEN_S)

    def put_entries(self, sender: Nid, bundle: Bundle, now: float) -> int:
        """A bundle from a neighbour; returns how many of its entries were new to us."""
        neighbour = self._neighbour(sender, now)
        if bundle.did in self._dids.seen:
            self.counts["duplicates"] += 1
            return 0
        self._dids.arrived(bundle.did)
        self._check(bundle, sender)
        if self.nid in bundle.path:
            self.counts["loops"] += 1
            return 0
        feed, known = bundle.feed, self.ledger.known(bundle.feed)
        hops = self.interests.hops(feed)
        if hops is None or neighbour.is_muted(feed, now):
            return 0
        self._dids.see(bundle.did)
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
            self._looks.note(feed, min(bundle.fetched_at, now), sender, now)
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
        self._dids.see(kept.did)
        self._forward(kept, sender)

    def put_looks(self, sender: Nid, looks: Sequence[Look], now: float) -> None:
        """A neighbour, or somebody near it, has looked at these feeds and passed on what was new."""
        self._neighbour(sender, now)
        for look in looks[:MOST_FEEDS]:
            self._looks.note(look.feed, min(look.at, now), sender, now)

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

    def _neighbour(self, sender: Nid, now: float, cost: float = 1.0) -> Neighbour:
        neighbour = self.neighbours.get(sender)
        if neighbour is None:
            raise Refused("you are not a neighbour; connect first")
        if not neighbour.allow(now, self.rules.calls_per_min, cost):
            self.counts["refused"] += 1
            raise Refused("you call too often; wait a minute")
        return neighbour

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
                self._expel(claim.sender, "it forged an entry", now)
            else:
                neighbour.mute(feed, now, MUTED_S)
                self._out.append(Call(claim.sender, "dispute", (feed, claim.identity, claim.published or 0.0)))
                self._lied(claim, now)

    def _lied(self, claim: Claim, now: float) -> None:
        """It has told something false, perhaps in good faith."""
        neighbour = self.neighbours.get(claim.sender)
        if neighbour is not None:
            neighbour.false += 1
            if neighbour.false >= FALSE and neighbour.false > FALSE_SHARE * (neighbour.false + neighbour.confirmed):
                self._expel(neighbour.nid, "much of what it tells is false", now)

    def _expel(self, nid: Nid, why: str, now: float) -> None:
        self.members.drop(nid, why, now, ban=True)
        for feed, identities in self.ledger.withdraw(nid).items():
            self._out.append(Withdrawn(feed, tuple(identities)))

    # --- for others ----------------------------------------------------------------------------------------------------

    def take_decoys(self, number: int) -> list[str]:
        """Choose feeds of neighbours to fetch and advertise as if we read them (sect. 1.2, Privacy); returns them."""
        theirs = {feed for n in self.neighbours.values() for feed, hops in n.hops.items() if hops == 0}
        free = sorted(theirs - self.interests.feeds.keys() - self.interests.decoys)
        lacking = max(number - len(self.interests.decoys), 0)
        self.interests.decoys |= set(self._random.sample(free, min(lacking, len(free))))
        self.interests.changed()
        return sorted(self.interests.decoys)


def signed(feed: str, entry: Entry) -> bytes:
    """What a signature is over."""
    return b"tidings entry\0" + feed.encode() + b"\0" + statement(entry)
