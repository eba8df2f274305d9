"""A node's state machine: what others call and what time brings goes in, what is to be done comes out (`take`).

No I/O, no clock, and no chance but a seed: the same node speaks XML-RPC on the network and runs by the thousand on a virtual
clock. Methods named as the functions of FeedEx's Table 1 are what neighbours call; `fetched` and `tick` are what the own side
does; `connected`, `refused`, `failed`, `delivered` and `answered` say how our own calls went.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidings.document import Entry
from tidings.errors import TidingsError
from tidings.exchange.archive import MAX_HOPS, ArchiveQueries, Trade
from tidings.exchange.membership import NEWCOMER_DIVISOR, Membership
from tidings.exchange.peer_notices import PeerNotices
from tidings.exchange.peers import CHECK_DID_COST, Interests, Peer
from tidings.exchange.protocol import (
    MAX_ENTRIES,
    MAX_FEEDS,
    MAX_PATH,
    Bundle,
    Call,
    Effect,
    EntriesConfirmed,
    EntriesReceived,
    EntriesWithdrawn,
    Holding,
    Nid,
    NodeSettings,
    Note,
    Offer,
    PeerNotice,
    Query,
    Reply,
    Search,
    Subset,
    Verify,
    bundle_of,
    canonical_bytes,
    did_of,
    split_into_bundles,
)
from tidings.exchange.seen_bundles import SeenBundles
from tidings.exchange.trust import Claim, ClaimLedger

#: Who told so many false entries, and so many of all that it told, is a liar; edits look like alterations, so some are allowed.
MAX_REFUTED, MAX_REFUTED_SHARE = 5, 0.2
#: Who passed on a forgery is not listened to about that feed for a while, the second time for twice as long, and so on.
MUTE_S = 3600.0
#: Who announces a bundle and does not send it is not waited for, for so long.
BROKEN_PROMISE_S = 3600.0
#: So many nodes are told to who needs some.
MAX_LISTED = 30
#: A feed is fetched to verify an accusation once in so long.
MIN_VERIFY_INTERVAL_S = 3600.0


class CallRefused(TidingsError):
    """What a caller gets instead of an answer."""


class Node:
    """One node of the network."""

    def __init__(
        self,
        feeds: Mapping[str, float],
        settings: NodeSettings | None = None,
        *,
        nid: Nid = "",
        seed: int = 0,
        sign: Callable[[bytes], bytes] | None = None,
        key: bytes = b"",
        verify: Callable[[bytes, bytes, bytes], bool] | None = None,
    ) -> None:
        """``feeds`` are those that may be told to others, with their weights. ``sign`` and ``verify`` come from `keys`."""
        self.settings = settings or NodeSettings()
        self.nid = nid  #: as others see us; may be learned later
        self.interests = Interests(self.settings, feeds)
        self.ledger = ClaimLedger()
        self.queries = ArchiveQueries()
        self.trade = Trade(self.settings.altruist)
        self.peers = self.interests.peers
        self.counts = {"duplicates": 0, "loops": 0, "stale": 0, "refused": 0}
        self._random = random.Random(seed)
        self._sign, self._key, self._verify = sign, key, verify
        self._effects: list[Effect] = []
        self.membership = Membership(
            self.settings, self.interests, lambda nid: nid == self.nid, self._random, self._effects
        )
        self._notices = PeerNotices(self.settings, self.interests, self.ledger, self._effects)
        self._seen_bundles = SeenBundles(self.settings.max_seen_bundles)
        self._last_verify_at: dict[str, float] = {}

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order; each is told once."""
        effects = self._effects[:]
        if effects:
            self._effects.clear()
        return effects

    # --- the own side --------------------------------------------------------------------------------------------------

    def record_document(
        self,
        feed: str,
        entries: Sequence[Entry],
        now: float,
        notes: Mapping[str, Note] | None = None,
    ) -> list[Entry]:
        """The feed's server has shown this document. Passes on what is new in it; returns that."""
        verdict = self.ledger.check_document(feed, entries, now)
        self._apply_verdict(feed, verdict.confirmed, verdict.altered, verdict.forged, now)
        self._notices.check_sender(feed, verdict.new, now)
        self._notices.record_poll(feed, now)
        self._disseminate(feed, verdict.new, now, notes)
        return verdict.new

    def record_push(self, feed: str, entries: Sequence[Entry], now: float) -> None:
        """The feed's hub has sent these: true, but what is not among them may be true as well."""
        known = self.ledger.known(feed)
        new = [entry for entry in entries if entry.identity not in known]
        self.ledger.remember(feed, [entry.identity for entry in new])
        self._disseminate(feed, new, now, None)

    def _disseminate(
        self, feed: str, new: Sequence[Entry], now: float, notes: Mapping[str, Note] | None
    ) -> None:
        for part in split_into_bundles(new):
            signatures = {}
            if self._sign is not None:
                signatures = {
                    entry.identity: self._sign(signed_message(feed, entry)) for entry in part
                }
            bundle = bundle_of(feed, part, now, (), self._key, signatures, notes)
            self._seen_bundles.add(bundle.did)
            self._forward(bundle, "")

    def record_unchanged(self, feed: str, now: float) -> None:
        """The feed's server said that there is nothing new."""
        self._notices.check_sender(feed, (), now)
        self._notices.record_poll(feed, now)

    def set_feeds(self, feeds: Mapping[str, float]) -> None:
        """The feeds that we follow and may tell have changed."""
        self.interests.feeds = dict(feeds)
        self.interests.invalidate()

    def add_candidates(
        self,
        nids: Iterable[Nid],
        now: float,
        past_stats: Mapping[Nid, Mapping[str, float]] | None = None,
    ) -> None:
        """Nodes that could become neighbours: from a list server, a feed's document, or the last time."""
        self.membership.add_candidates(nids, now, past_stats or {})

    def tick(self, now: float) -> None:
        """To be called every few seconds."""
        for query_state in self.queries.pop_expired(now):
            self._effects.append(
                Reply(query_state.query, query_state.requester, tuple(query_state.found.values()))
            )
        for who in self._seen_bundles.pop_broken_promises(now):
            if who in self.peers:
                self.peers[who].promise_broken_at = now
        self._notices.send_pending()
        self.membership.tick(now)

    # --- how our calls went --------------------------------------------------------------------------------------------

    def on_connected(self, to: Nid, subset: Subset, now: float, key: bytes = b"") -> None:
        """``to`` has accepted us, or not (an empty set)."""
        self.membership.on_connected(to, subset, now, key)

    def on_failed(self, to: Nid, now: float, started_at: float = float("inf")) -> None:
        """``to`` could not be reached, with a call that began then."""
        if self.membership.on_failed(to, now, started_at):
            for query_id in self.queries.waiting_for(to):
                self.on_answer(query_id, to, (), now)

    def on_refused(self, to: Nid, now: float, started_at: float = float("inf")) -> None:
        """``to`` does not know us any more, as it said to a call that began then."""
        self.membership.on_refused(to, now, started_at)

    def on_delivered(self, to: Nid, bundle: Bundle) -> None:
        """``to`` has taken the bundle."""
        peer = self.peers.get(to)
        if peer is not None:
            hops = peer.hops.get(bundle.feed, self.settings.max_subset_hops)
            peer.contribution_sent += len(bundle.entries) * self.settings.alpha**-hops

    # --- what neighbours call (Table 1) --------------------------------------------------------------------------------

    def get_neighbors(self, sender: Nid, now: float) -> list[Nid]:
        """Some nodes that we know, for somebody who needs neighbours; who asks is known from now on."""
        self.add_candidates([sender], now)
        known = [nid for nid in (*self.peers, *self.membership.candidates) if nid != sender]
        return self._random.sample(known, min(len(known), MAX_LISTED))

    def connect(self, sender: Nid, subset: Subset, now: float, key: bytes = b"") -> dict[str, int]:
        """Become neighbours: our subscription set, or nothing if we decline."""
        if not 0 < len(subset) <= MAX_FEEDS:
            return {}
        if not self.membership.may_join(sender, now, key):
            self.counts["refused"] += 1
            return {}
        if not self.membership.admit(sender, subset, now, key):
            return {}
        advertised_subset = self.peers[sender].advertised_subset = self.interests.advertisement_for(
            sender
        )
        return advertised_subset

    def update_subset(self, sender: Nid, changes: Subset, now: float) -> None:
        """The sender's subscription set has changed; a hop count below 0 takes a feed out."""
        peer = self._require_peer(sender, now)
        if len(changes) > MAX_FEEDS or len(peer.hops) + len(changes) > 2 * MAX_FEEDS:
            raise CallRefused("the subscription set is too large")
        for feed, hops in changes.items():
            if hops < 0:
                peer.hops.pop(feed, None)
            else:
                peer.hops[feed] = hops
        if changes:
            self.interests.invalidate()

    def check_did(self, sender: Nid, did: bytes, now: float) -> bool:
        """Whether we have seen the bundle, or are about to.

        Who is told "unseen" is expected to send it, and others need not. Who does not send it keeps us from it, so that
        its word counts for nothing for a while.
        """
        peer = self._require_peer(sender, now, CHECK_DID_COST)
        if did in self._seen_bundles.seen:
            return True
        return self._seen_bundles.is_promised(
            did, sender, now, accept_promise=now - peer.promise_broken_at > BROKEN_PROMISE_S
        )

    def put_entries(self, sender: Nid, bundle: Bundle, now: float) -> int:
        """A bundle from a neighbour; returns how many of its entries were new to us."""
        peer = self._require_peer(sender, now)
        if bundle.did in self._seen_bundles.seen:
            self.counts["duplicates"] += 1
            return 0
        self._seen_bundles.on_received(bundle.did)
        self._check(bundle, sender)
        if self.nid in bundle.path:
            self.counts["loops"] += 1
            return 0
        feed, known = bundle.feed, self.ledger.known(bundle.feed)
        hops = self.interests.hops(feed)
        if hops is None or peer.is_muted(feed, now):
            return 0
        self._seen_bundles.add(bundle.did)
        new_entries = [entry for entry in bundle.entries if entry.identity not in known]
        if len(new_entries) < len(bundle.entries):
            self._confirm(feed, self.ledger.pop_corroborated(bundle, sender))
        if hops == 0:
            news = [entry for entry in new_entries if self.ledger.is_recent(feed, entry)]
            self.counts["stale"] += len(new_entries) - len(news)
            new_entries = news
        if new_entries:
            self._accept_entries(peer, bundle, new_entries, hops, now)
        if hops == 0:  # afterwards, so that what the look brought is there when it is told
            self._notices.record_poll(feed, min(bundle.fetched_at, now), sender, now)
        return len(new_entries)

    def _accept_entries(
        self, peer: Peer, bundle: Bundle, new_entries: list[Entry], hops: int, now: float
    ) -> None:
        feed, sender = bundle.feed, peer.nid
        kept = self._for_forwarding(bundle, new_entries, sender)
        self.ledger.remember(feed, [entry.identity for entry in new_entries], kept.path)
        peer.contribution_received += (
            len(new_entries) * self.interests.feeds.get(feed, 1.0) * self.settings.alpha**-hops
        )
        peer.entries += len(new_entries)
        if feed in self.interests.feeds:
            trusted_identities = self._trusted_identities(kept)
            self.ledger.add_claims(
                bundle,
                [e for e in new_entries if e.identity not in trusted_identities],
                sender,
                now,
            )
            self._effects.append(EntriesReceived(kept, sender, trusted_identities))
        self._seen_bundles.add(kept.did)
        self._forward(kept, sender)

    def put_looks(self, sender: Nid, notices: Sequence[PeerNotice], now: float) -> None:
        """A neighbour, or somebody near it, has looked at these feeds and passed on what was new."""
        self._require_peer(sender, now)
        for notice in notices[:MAX_FEEDS]:
            self._notices.record_poll(notice.feed, min(notice.at, now), sender, now)

    def dispute(
        self, sender: Nid, feed: str, identity: str, published: float | None, now: float
    ) -> None:
        """A neighbour has found that an entry which we gave it is forged. Who gave it to us? An own look will tell."""
        self._require_peer(sender, now)
        path = self.ledger.known(feed).get(identity)
        if path and path[-1] != sender:
            self.ledger.add_disputed(feed, identity, published, path, now)
            if now - self._last_verify_at.get(feed, float("-inf")) >= MIN_VERIFY_INTERVAL_S:
                self._last_verify_at[feed] = now
                self._effects.append(Verify(feed))

    def query_feed(self, sender: Nid, query: Query, now: float) -> None:
        """Who has entries like these? The answer comes as a `Reply`. With no sender it is our own question."""
        if sender:
            self._require_peer(sender, now)
        known = () if self.queries.is_loop(query) else self.queries.cached_answer(query, now)
        if known is not None:
            others = known if sender else tuple(holding for holding in known if holding.nid)
            self._effects.append(Reply(query, sender, others))
            return
        if self.queries.is_full():
            raise CallRefused("too many queries are under way; ask again in a minute")
        hops = min(query.hops, MAX_HOPS) - 1
        further = [nid for nid in self.peers if nid != sender] if hops >= 0 else []
        own = [""] if sender else []
        if not own and not further:
            self._effects.append(Reply(query, sender, ()))
            return
        self.queries.start(query, sender, [*own, *further], now)
        if own:
            self._effects.append(Search(query))
        passed_on = Query(query.id, query.feed, query.since, query.until, query.title_text, hops)
        self._effects.extend(Call(nid, "query_feed", passed_on) for nid in further)

    def on_answer(self, query_id: str, who: Nid, holdings: Iterable[Holding], now: float) -> None:
        """``who`` has answered a query; with no nid it was our own archive."""
        query_state = self.queries.on_answer(query_id, who, holdings, now)
        if query_state is not None:
            self._effects.append(
                Reply(query_state.query, query_state.requester, tuple(query_state.found.values()))
            )

    def _require_peer(self, sender: Nid, now: float, cost: float = 1.0) -> Peer:
        peer = self.peers.get(sender)
        if peer is None:
            raise CallRefused("you are not a neighbour; connect first")
        if not peer.allow(now, self.settings.calls_per_min, cost):
            self.counts["refused"] += 1
            raise CallRefused("you call too often; wait a minute")
        return peer

    # --- passing on ----------------------------------------------------------------------------------------------------

    def _forward(self, bundle: Bundle, sender: Nid) -> None:
        limit, path = self.settings.deficit, bundle.path
        to = [
            n.nid
            for n in self.interests.interested_peers(bundle.feed)
            if n.nid not in path
            and n.nid != sender
            and n.contribution_sent - n.contribution_received
            <= min(limit, limit / NEWCOMER_DIVISOR + n.contribution_received)
        ]
        if to:
            self._effects.append(Offer(bundle, to))

    def _for_forwarding(self, bundle: Bundle, new_entries: list[Entry], sender: Nid) -> Bundle:
        """As we pass it on: without what was known, and with the sender on its path."""
        path = (*bundle.path, sender)
        if len(new_entries) == len(bundle.entries):
            return Bundle(
                bundle.feed,
                bundle.entries,
                bundle.fetched_at,
                bundle.did,
                path,
                bundle.key,
                bundle.signatures,
                bundle.notes,
            )
        return bundle_of(
            bundle.feed,
            new_entries,
            bundle.fetched_at,
            path,
            bundle.key,
            bundle.signatures,
            bundle.notes,
        )

    def _check(self, bundle: Bundle, sender: Nid) -> None:
        """Refuse what no honest node sends."""
        if not 0 < len(bundle.entries) <= MAX_ENTRIES:
            raise CallRefused(f"a bundle has 1 to {MAX_ENTRIES} entries")
        if (
            len(bundle.path) > MAX_PATH
            or len(set(bundle.path)) < len(bundle.path)
            or sender in bundle.path
        ):
            raise CallRefused("the path is longer than any, or goes in circles")
        if bundle.did != did_of(bundle.feed, bundle.entries):
            raise CallRefused("the did is not that of the entries")

    # --- trust ---------------------------------------------------------------------------------------------------------

    def _trusted_identities(self, bundle: Bundle) -> frozenset[str]:
        """Identities of entries that a friend has signed."""
        if self._verify is None or bundle.key not in self.settings.friends:
            return frozenset()
        return frozenset(
            entry.identity
            for entry in bundle.entries
            if self._verify(
                bundle.key,
                signed_message(bundle.feed, entry),
                bundle.signatures.get(entry.identity, b""),
            )
        )

    def _confirm(self, feed: str, claims: Sequence[Claim]) -> None:
        if claims:
            self._effects.append(EntriesConfirmed(feed, tuple(claim.identity for claim in claims)))

    def _apply_verdict(
        self,
        feed: str,
        confirmed: Sequence[Claim],
        altered: Sequence[Claim],
        forged: Sequence[Claim],
        now: float,
    ) -> None:
        """What an own document says about those who told us of its entries."""
        self._confirm(feed, confirmed)
        for claim in confirmed:
            if (peer := self.peers.get(claim.sender)) is not None:
                peer.confirmed += 1
                peer.lead_s += now - claim.at
        for claim in altered:
            self._count_refuted(claim, now)
        if forged:
            self._effects.append(EntriesWithdrawn(feed, tuple(claim.identity for claim in forged)))
        for claim in forged:
            self.ledger.known(feed).pop(claim.identity, None)
            if (peer := self.peers.get(claim.sender)) is None:
                continue
            if len(claim.path) == 1:
                self._ban(claim.sender, "it forged an entry", now)
            else:
                peer.mute(feed, now, MUTE_S)
                self._effects.append(
                    Call(claim.sender, "dispute", (feed, claim.identity, claim.published or 0.0))
                )
                self._count_refuted(claim, now)

    def _count_refuted(self, claim: Claim, now: float) -> None:
        """It has told something false, perhaps in good faith."""
        peer = self.peers.get(claim.sender)
        if peer is not None:
            peer.refuted += 1
            if peer.refuted >= MAX_REFUTED and peer.refuted > MAX_REFUTED_SHARE * (
                peer.refuted + peer.confirmed
            ):
                self._ban(peer.nid, "much of what it tells is false", now)

    def _ban(self, nid: Nid, reason: str, now: float) -> None:
        self.membership.drop(nid, reason, now, ban=True)
        for feed, identities in self.ledger.withdraw(nid).items():
            self._effects.append(EntriesWithdrawn(feed, tuple(identities)))

    # --- for others ----------------------------------------------------------------------------------------------------

    def choose_decoys(self, number: int) -> list[str]:
        """Choose feeds of neighbours to fetch and advertise as if we read them (sect. 1.2, Privacy); returns them."""
        theirs = {feed for n in self.peers.values() for feed, hops in n.hops.items() if hops == 0}
        free = sorted(theirs - self.interests.feeds.keys() - self.interests.decoys)
        lacking = max(number - len(self.interests.decoys), 0)
        self.interests.decoys |= set(self._random.sample(free, min(lacking, len(free))))
        self.interests.invalidate()
        return sorted(self.interests.decoys)


def signed_message(feed: str, entry: Entry) -> bytes:
    """What a signature is over."""
    return b"tidings entry\0" + feed.encode() + b"\0" + canonical_bytes(entry)
