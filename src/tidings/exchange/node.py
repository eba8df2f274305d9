"""State machine of one exchange node, which takes calls with times and returns effects.

It has no I/O and no clock, and its only randomness is a seeded generator: the same node runs over
XML-RPC on the network and a thousand times on a virtual clock. Methods named as the functions of
FeedEx's Table 1 are called by peers. `record_document` and `tick` are called by the service. The
`on_...` methods take the results of calls to peers. `take_effects` returns the actions to take.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from tidings.document import Entry
from tidings.errors import TidingsError
from tidings.exchange.archive import MAX_HOPS, ArchiveQueries, Trade
from tidings.exchange.membership import NEW_PEER_DIVISOR, Membership
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
from tidings.i18n import _

#: Minimum number and minimum fraction of refuted entries for a ban of the peer. Some are allowed,
#: because an edit by the publisher looks like an alteration by a peer.
MAX_REFUTED, MAX_REFUTED_SHARE = 5, 0.2
#: Duration in seconds for which the entries of a feed are ignored from a peer that forwarded a
#: forged entry. The duration doubles each time.
MUTE_S = 3600.0
#: Time in seconds for which announcements of a peer are ignored after the peer has announced a
#: bundle and did not send it.
BROKEN_PROMISE_S = 3600.0
#: Maximum number of nodes in a `get_neighbors` response.
MAX_LISTED = 30
#: Minimum interval in seconds between two fetches of a feed that verify a dispute.
MIN_VERIFY_INTERVAL_S = 3600.0


class CallRefused(TidingsError):
    """Error raised when the node refuses a call of a peer.

    The caller gets the message as an XML-RPC fault.
    """


class Node:
    """One node of the exchange network, without I/O."""

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
        """Create a node.

        ``feeds`` are the feeds that may be shared, with their weights. ``nid`` is the id of this
        node; if it is empty, the node learns it from the first `connect`. ``sign``, ``key`` and
        ``verify`` come from `keys`.
        """
        self.settings = settings or NodeSettings()
        self.nid = nid  #: address and port of this node as peers see it; empty until known
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
        """Remove and return the effects that are to be applied, in order."""
        effects = self._effects[:]
        if effects:
            self._effects.clear()
        return effects

    # --- polls by this node ----------------------------------------------------------------------

    def record_document(
        self,
        feed: str,
        entries: Sequence[Entry],
        now: float,
        notes: Mapping[str, Note] | None = None,
    ) -> list[Entry]:
        """Record a document from the feed's server, and forward its new entries to peers.

        Returns the new entries. ``notes`` are annotations by entry identity.
        """
        verdict = self.ledger.check_document(feed, entries, now)
        self._apply_verdict(feed, verdict.confirmed, verdict.altered, verdict.forged, now)
        self._notices.check_sender(feed, verdict.new, now)
        self._notices.record_poll(feed, now)
        self._disseminate(feed, verdict.new, now, notes)
        return verdict.new

    def record_push(self, feed: str, entries: Sequence[Entry], now: float) -> None:
        """Record entries that the feed's WebSub hub has pushed, and forward the new ones.

        Pushed entries are authentic but incomplete, so they refute no claims of peers.
        """
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
        """Record that the feed's server reported no change (304)."""
        self._notices.check_sender(feed, (), now)
        self._notices.record_poll(feed, now)

    def set_feeds(self, feeds: Mapping[str, float]) -> None:
        """Replace the feeds that may be shared, and their weights."""
        self.interests.feeds = dict(feeds)
        self.interests.invalidate()

    def add_candidates(
        self,
        nids: Iterable[Nid],
        now: float,
        past_stats: Mapping[Nid, Mapping[str, float]] | None = None,
    ) -> None:
        """Add nodes that could become peers, from a list server, a feed or the last run."""
        self.membership.add_candidates(nids, now, past_stats or {})

    def tick(self, now: float) -> None:
        """Do periodic work. Call this every few seconds."""
        for query_state in self.queries.pop_expired(now):
            self._effects.append(
                Reply(
                    query_state.query, query_state.requester, tuple(query_state.holdings.values())
                )
            )
        for nid in self._seen_bundles.pop_broken_promises(now):
            if nid in self.peers:
                self.peers[nid].promise_broken_at = now
        self._notices.send_pending()
        self.membership.tick(now)

    # --- results of calls to peers ---------------------------------------------------------------

    def on_connected(self, to: Nid, subset: Subset, now: float, key: bytes = b"") -> None:
        """Handle the response to `connect`. An empty ``subset`` means that ``to`` declined."""
        self.membership.on_connected(to, subset, now, key)

    def on_failed(self, to: Nid, now: float, started_at: float = float("inf")) -> None:
        """Handle a call, started at ``started_at``, that did not reach the node ``to``."""
        if self.membership.on_failed(to, now, started_at):
            for query_id in self.queries.waiting_for(to):
                self.on_answer(query_id, to, (), now)

    def on_refused(self, to: Nid, now: float, started_at: float = float("inf")) -> None:
        """Handle a call, started at ``started_at``, that ``to`` refused with "connect first"."""
        self.membership.on_refused(to, now, started_at)

    def on_delivered(self, to: Nid, bundle: Bundle) -> None:
        """Add a delivered bundle to this node's contribution to ``to`` (FeedEx sect. 3.5)."""
        peer = self.peers.get(to)
        if peer is not None:
            hops = peer.hops.get(bundle.feed, self.settings.max_subset_hops)
            peer.contribution_sent += len(bundle.entries) * self.settings.alpha**-hops

    # --- functions that peers call (FeedEx, Table 1) ---------------------------------------------

    def get_neighbors(self, sender: Nid, now: float) -> list[Nid]:
        """Return a random sample of known nodes, and add the sender to the candidates."""
        self.add_candidates([sender], now)
        known = [nid for nid in (*self.peers, *self.membership.candidates) if nid != sender]
        return self._random.sample(known, min(len(known), MAX_LISTED))

    def connect(self, sender: Nid, subset: Subset, now: float, key: bytes = b"") -> dict[str, int]:
        """Accept the sender as a peer and return this node's subscription set.

        Returns an empty set to decline.
        """
        if not 0 < len(subset) <= MAX_FEEDS:
            return {}
        if not self.membership.may_join(sender, now, key):
            self.counts["refused"] += 1
            return {}
        if not self.membership.admit(sender, subset, now, key):
            return {}
        advertisement = self.interests.advertisement_for(sender)
        self.peers[sender].advertised_subset = advertisement
        return advertisement

    def update_subset(self, sender: Nid, changes: Subset, now: float) -> None:
        """Apply changes to the sender's subscription set. A negative hop count removes a feed."""
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
        """Return whether the peer need not send the bundle with this content hash.

        That is so if this node has the bundle already or another peer is about to send it. False
        obliges the sender to send the bundle within `PROMISE_TIMEOUT_S`, and other peers are
        answered True until then. A sender that breaks this promise delays the bundle, so its
        announcements do not count for `BROKEN_PROMISE_S`.
        """
        peer = self._require_peer(sender, now, CHECK_DID_COST)
        if did in self._seen_bundles.seen:
            return True
        return self._seen_bundles.is_promised(
            did, sender, now, accept_promise=now - peer.promise_broken_at > BROKEN_PROMISE_S
        )

    def put_entries(self, sender: Nid, bundle: Bundle, now: float) -> int:
        """Accept a bundle from a peer, and return how many of its entries were new to this node.

        Raises `CallRefused` if the bundle violates the protocol.
        """
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
            recent_entries = [entry for entry in new_entries if self.ledger.is_recent(feed, entry)]
            self.counts["stale"] += len(new_entries) - len(recent_entries)
            new_entries = recent_entries
        if new_entries:
            self._accept_entries(peer, bundle, new_entries, hops, now)
        if hops == 0:  # this comes last, so that the entries are sent before the notice of the poll
            self._notices.record_poll(feed, min(bundle.fetched_at, now), sender, now)
        return len(new_entries)

    def _accept_entries(
        self, peer: Peer, bundle: Bundle, new_entries: list[Entry], hops: int, now: float
    ) -> None:
        feed, sender = bundle.feed, peer.nid
        forwarded = self._for_forwarding(bundle, new_entries, sender)
        self.ledger.remember(feed, [entry.identity for entry in new_entries], forwarded.path)
        peer.contribution_received += (
            len(new_entries) * self.interests.feeds.get(feed, 1.0) * self.settings.alpha**-hops
        )
        peer.entries += len(new_entries)
        if feed in self.interests.feeds:
            trusted_identities = self._trusted_identities(forwarded)
            self.ledger.add_claims(
                bundle,
                [e for e in new_entries if e.identity not in trusted_identities],
                sender,
                now,
            )
            self._effects.append(EntriesReceived(forwarded, sender, trusted_identities))
        self._seen_bundles.add(forwarded.did)
        self._forward(forwarded, sender)

    def put_looks(self, sender: Nid, notices: Sequence[PeerNotice], now: float) -> None:
        """Record notices that the sender, or a node that it trusts, has polled feeds."""
        self._require_peer(sender, now)
        for notice in notices[:MAX_FEEDS]:
            self._notices.record_poll(notice.feed, min(notice.at, now), sender, now)

    def dispute(
        self, sender: Nid, feed: str, identity: str, published: float | None, now: float
    ) -> None:
        """Handle a peer's report that an entry which this node forwarded is forged.

        A fetch of the feed by this node (`Verify`) decides whether the report is true. The peer
        that sent a forged entry is then blamed.
        """
        self._require_peer(sender, now)
        path = self.ledger.known(feed).get(identity)
        if path and path[-1] != sender:
            self.ledger.add_disputed(feed, identity, published, path, now)
            if now - self._last_verify_at.get(feed, float("-inf")) >= MIN_VERIFY_INTERVAL_S:
                self._last_verify_at[feed] = now
                self._effects.append(Verify(feed))

    def query_feed(self, sender: Nid, query: Query, now: float) -> None:
        """Search the archives of this node and its peers. The result is a `Reply` effect.

        An empty ``sender`` means that this node itself sends the query.
        """
        if sender:
            self._require_peer(sender, now)
        cached = () if self.queries.is_loop(query) else self.queries.cached_answer(query, now)
        if cached is not None:
            holdings = cached if sender else tuple(holding for holding in cached if holding.nid)
            self._effects.append(Reply(query, sender, holdings))
            return
        if self.queries.is_full():
            raise CallRefused("too many queries in progress; try again in a minute")
        hops = min(query.hops, MAX_HOPS) - 1
        next_peers = [nid for nid in self.peers if nid != sender] if hops >= 0 else []
        own_archive = [""] if sender else []
        if not own_archive and not next_peers:
            self._effects.append(Reply(query, sender, ()))
            return
        self.queries.start(query, sender, [*own_archive, *next_peers], now)
        if own_archive:
            self._effects.append(Search(query))
        forwarded = Query(query.id, query.feed, query.since, query.until, query.title_text, hops)
        self._effects.extend(Call(nid, "query_feed", forwarded) for nid in next_peers)

    def on_answer(
        self, query_id: str, responder: Nid, holdings: Iterable[Holding], now: float
    ) -> None:
        """Handle an answer to a query. An empty ``responder`` is the archive of this node."""
        query_state = self.queries.on_answer(query_id, responder, holdings, now)
        if query_state is not None:
            self._effects.append(
                Reply(
                    query_state.query, query_state.requester, tuple(query_state.holdings.values())
                )
            )

    def _require_peer(self, sender: Nid, now: float, cost: float = 1.0) -> Peer:
        peer = self.peers.get(sender)
        if peer is None:
            raise CallRefused("you are not a peer; connect first")
        if not peer.allow(now, self.settings.calls_per_min, cost):
            self.counts["refused"] += 1
            raise CallRefused("rate limit exceeded; wait a minute")
        return peer

    # --- forwarding ------------------------------------------------------------------------------

    def _forward(self, bundle: Bundle, sender: Nid) -> None:
        limit, path = self.settings.deficit, bundle.path
        to = [
            n.nid
            for n in self.interests.interested_peers(bundle.feed)
            if n.nid not in path
            and n.nid != sender
            and n.contribution_sent - n.contribution_received
            <= min(limit, limit / NEW_PEER_DIVISOR + n.contribution_received)
        ]
        if to:
            self._effects.append(Offer(bundle, to))

    def _for_forwarding(self, bundle: Bundle, new_entries: list[Entry], sender: Nid) -> Bundle:
        """Return the bundle without known entries and with the sender added to its path."""
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
        """Raise `CallRefused` if a bundle violates the protocol."""
        if not 0 < len(bundle.entries) <= MAX_ENTRIES:
            raise CallRefused(f"a bundle must have 1 to {MAX_ENTRIES} entries")
        if (
            len(bundle.path) > MAX_PATH
            or len(set(bundle.path)) < len(bundle.path)
            or sender in bundle.path
        ):
            raise CallRefused("the path is too long or has a loop")
        if bundle.did != did_of(bundle.feed, bundle.entries):
            raise CallRefused("the did does not match the entries")

    # --- trust -----------------------------------------------------------------------------------

    def _trusted_identities(self, bundle: Bundle) -> frozenset[str]:
        """Return the identities of the entries that are signed with a pinned key."""
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
        """Update the reputation of the peers whose claims a document has confirmed or refuted."""
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
                self._ban(claim.sender, _("the peer sent a forged post"), now)
            else:
                peer.mute(feed, now, MUTE_S)
                self._effects.append(
                    Call(claim.sender, "dispute", (feed, claim.identity, claim.published or 0.0))
                )
                self._count_refuted(claim, now)

    def _count_refuted(self, claim: Claim, now: float) -> None:
        """Count a false entry of a peer, which may have forwarded it in good faith."""
        peer = self.peers.get(claim.sender)
        if peer is not None:
            peer.refuted += 1
            if peer.refuted >= MAX_REFUTED and peer.refuted > MAX_REFUTED_SHARE * (
                peer.refuted + peer.confirmed
            ):
                self._ban(peer.nid, _("many posts from this peer were false"), now)

    def _ban(self, nid: Nid, reason: str, now: float) -> None:
        self.membership.drop(nid, reason, now, ban=True)
        for feed, identities in self.ledger.withdraw(nid).items():
            self._effects.append(EntriesWithdrawn(feed, tuple(identities)))

    # --- privacy ---------------------------------------------------------------------------------

    def choose_decoys(self, number: int) -> list[str]:
        """Choose decoys until there are ``number`` of them, and return all decoys.

        A decoy is a feed of a peer that this node fetches and advertises as if users here read it.
        Decoys hide the real subscriptions (FeedEx sect. 1.2, Privacy).
        """
        peer_feeds = {
            feed for peer in self.peers.values() for feed, hops in peer.hops.items() if hops == 0
        }
        choices = sorted(peer_feeds - self.interests.feeds.keys() - self.interests.decoys)
        missing = max(number - len(self.interests.decoys), 0)
        self.interests.decoys |= set(self._random.sample(choices, min(missing, len(choices))))
        self.interests.invalidate()
        return sorted(self.interests.decoys)


def signed_message(feed: str, entry: Entry) -> bytes:
    """Return the bytes that the signature of an entry covers."""
    return b"tidings entry\0" + feed.encode() + b"\0" + canonical_bytes(entry)
