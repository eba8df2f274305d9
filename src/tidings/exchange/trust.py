"""Confirmation of entries from peers, and detection of forged entries.

An entry that a peer sends is a `Claim` until a document fetched by this node or an independent peer
confirms it. A document that should show an entry and does not proves a forgery: the entry arrived
before the document was fetched, and the document still shows entries of the one before, so no entry
can have been pushed out in between. Deletions and stale caches look the same, so claims are checked
only after a delay, and peers that only forwarded an entry are not banned at once.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct

from tidings.document import Entry
from tidings.exchange.peers import address_of
from tidings.exchange.protocol import Bundle, Nid

#: Minimum age in seconds of a claim that a document can refute. Caches serve old documents for a
#: while.
SETTLE_S = 900.0
#: Maximum number of entries remembered per feed, more than twice the size of the largest document.
MAX_KNOWN = 1000
#: Maximum number of unconfirmed entries remembered per feed.
MAX_CLAIMS = 500


class Claim(Struct):
    """Unconfirmed entry of a feed that users here read, which only peers have sent."""

    identity: str
    digest: bytes
    published: float | None
    at: float  #: time of arrival
    sender: Nid
    path: tuple[Nid, ...]  #: forwarding nodes, including the sender


class Verdict(Struct, frozen=True):
    """New entries of a fetched document, and the claims that the document confirms or refutes."""

    new: list[Entry]
    confirmed: list[Claim]
    altered: list[Claim]
    forged: list[Claim]


class _LastDocument(Struct, frozen=True):
    """Last document of a feed that this node has fetched itself."""

    at: float
    identities: frozenset[str]
    oldest: float | None


class ClaimLedger:
    """Known entries of each feed, and claims of peers that are not confirmed yet."""

    def __init__(self) -> None:
        # Path by which an entry first arrived, by feed and identity. It is empty for entries that
        # this node has fetched itself.
        self._known: dict[str, dict[str, tuple[Nid, ...]]] = {}
        self._claims: dict[str, dict[str, Claim]] = {}
        self._last_documents: dict[str, _LastDocument] = {}

    def known(self, feed: str) -> dict[str, tuple[Nid, ...]]:
        """Return the identities of the feed's known entries, with the path of first arrival."""
        known = self._known.get(feed)
        if known is None:
            known = self._known[feed] = {}
        return known

    def remember(self, feed: str, identities: Iterable[str], path: tuple[Nid, ...] = ()) -> None:
        """Add entries to the known entries of a feed, of which there are at most `MAX_KNOWN`."""
        known = self.known(feed)
        for identity in identities:
            known.setdefault(identity, path)
        while len(known) > MAX_KNOWN:
            del known[next(iter(known))]

    def last_document_at(self, feed: str) -> float | None:
        """Return when this node last fetched a document of the feed, or None if never."""
        last_document = self._last_documents.get(feed)
        return last_document.at if last_document is not None else None

    def is_recent(self, feed: str, entry: Entry) -> bool:
        """Return whether an entry is not older than the oldest entry of the last document.

        Older entries are not accepted, because a forgery with an old date could never be refuted.
        """
        last_document = self._last_documents.get(feed)
        return (
            last_document is None
            or last_document.oldest is None
            or entry.published is None
            or entry.published >= last_document.oldest
        )

    def add_claims(
        self, bundle: Bundle, new_entries: Sequence[Entry], sender: Nid, now: float
    ) -> None:
        """Record entries from a peer as unconfirmed."""
        claims = self._claims.setdefault(bundle.feed, {})
        path = (*bundle.path, sender)
        for entry in new_entries:
            claims[entry.identity] = Claim(
                entry.identity, entry.digest, entry.published, now, sender, path
            )
        while len(claims) > MAX_CLAIMS:
            del claims[next(iter(claims))]

    def restore_document(self, feed: str, at: float, oldest: float | None) -> None:
        """Restore the time and the oldest entry date of the last document after a restart."""
        self._last_documents.setdefault(feed, _LastDocument(at, frozenset(), oldest))

    def restore_claim(self, feed: str, claim: Claim) -> None:
        """Restore an unconfirmed claim after a restart."""
        self._claims.setdefault(feed, {})[claim.identity] = claim
        self.remember(feed, [claim.identity], claim.path)

    def add_disputed(
        self, feed: str, identity: str, published: float | None, path: tuple[Nid, ...], now: float
    ) -> None:
        """Record a forwarded entry that a peer disputes. The next document decides."""
        claims = self._claims.setdefault(feed, {})
        claims.setdefault(identity, Claim(identity, b"", published, now - SETTLE_S, path[-1], path))

    def pop_corroborated(self, bundle: Bundle, sender: Nid) -> list[Claim]:
        """Remove and return the claims that a bundle from another peer confirms.

        The bundle must have the same entry by a path that shares no address with the claim's path.
        """
        claims = self._claims.get(bundle.feed)
        if not claims:
            return []
        corroborated = []
        for entry in bundle.entries:
            claim = claims.get(entry.identity)
            if claim is None or claim.digest != entry.digest or claim.sender == sender:
                continue
            if not {address_of(n) for n in claim.path} & {
                address_of(n) for n in (*bundle.path, sender)
            }:
                corroborated.append(claims.pop(entry.identity))
        return corroborated

    def check_document(self, feed: str, entries: Sequence[Entry], now: float) -> Verdict:
        """Compare a document that this node has fetched with the claims of peers."""
        known, claims = self.known(feed), self._claims.get(feed)
        previous = self._last_documents.get(feed)
        new = [entry for entry in entries if entry.identity not in known]
        verdict = Verdict(new, [], [], [])
        identities = frozenset(entry.identity for entry in entries)
        dates = [entry.published for entry in entries if entry.published is not None]
        if claims:
            for entry in entries:
                claim = claims.pop(entry.identity, None)
                if claim is not None:
                    is_same = claim.digest in (b"", entry.digest)
                    (verdict.confirmed if is_same else verdict.altered).append(claim)
            overlap = previous is not None and not identities.isdisjoint(previous.identities)
            median_date = median(dates) if dates else None
            for claim in list(claims.values()):
                if claim.at > now - SETTLE_S or not entries:
                    continue
                by_order = overlap and previous is not None and claim.at > previous.at
                by_date = (
                    median_date is not None
                    and claim.published is not None
                    and claim.published > median_date
                )
                if by_order or by_date:
                    verdict.forged.append(claims.pop(claim.identity))
        self.remember(feed, identities)
        for identity in identities:
            known[identity] = ()
        self._last_documents[feed] = _LastDocument(now, identities, min(dates, default=None))
        return verdict

    def withdraw(self, nid: Nid) -> dict[str, list[str]]:
        """Remove the unconfirmed entries that a node has sent.

        Returns the identities of the removed entries by feed.
        """
        withdrawn: dict[str, list[str]] = {}
        for feed, claims in self._claims.items():
            identities = [identity for identity, claim in claims.items() if claim.sender == nid]
            for identity in identities:
                del claims[identity]
                self.known(feed).pop(identity, None)
            if identities:
                withdrawn[feed] = identities
        return withdrawn
