"""Who said what, until it is known to be true.

What neighbours tell of our feeds is a `Claim` until an own document or an independent neighbour confirms it. A document that
should show an entry and does not proves a forgery: the entry came before the document was fetched, and the document still
shows what the one before it had shown, so nothing can have been pushed out in between. Deletions and stale caches look alike,
hence a waiting time, and strikes instead of a verdict for those who only passed it on.
"""

from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct

from tidings.document import Entry
from tidings.exchange.peers import address_of
from tidings.exchange.protocol import Bundle, Nid

#: Servers behind caches show old documents for a while: younger claims are not judged yet.
SETTLE_S = 900.0
#: Entries remembered of each feed; more than twice the largest window there is.
MAX_KNOWN = 1000
#: Unconfirmed entries remembered of each feed.
MAX_CLAIMS = 500


class Claim(Struct):
    """An entry of a feed of ours that we have from neighbours only."""

    identity: str
    digest: bytes
    published: float | None
    at: float  #: when we were told
    sender: Nid
    path: tuple[Nid, ...]  #: with the sender


class Verdict(Struct, frozen=True):
    """What an own document says about claims."""

    new: list[Entry]
    confirmed: list[Claim]
    altered: list[Claim]
    forged: list[Claim]


class _LastDocument(Struct, frozen=True):
    """Our last own document of a feed."""

    at: float
    identities: frozenset[str]
    oldest: float | None


class ClaimLedger:
    """What is known of each feed's entries, and from whom."""

    def __init__(self) -> None:
        self._known: dict[
            str, dict[str, tuple[Nid, ...]]
        ] = {}  # the way by which it came first; none from the server itself
        self._claims: dict[str, dict[str, Claim]] = {}
        self._last_documents: dict[str, _LastDocument] = {}

    def known(self, feed: str) -> dict[str, tuple[Nid, ...]]:
        found = self._known.get(feed)
        if found is None:
            found = self._known[feed] = {}
        return found

    def remember(self, feed: str, identities: Iterable[str], path: tuple[Nid, ...] = ()) -> None:
        known = self.known(feed)
        for identity in identities:
            known.setdefault(identity, path)
        while len(known) > MAX_KNOWN:
            del known[next(iter(known))]

    def last_document_at(self, feed: str) -> float | None:
        last_document = self._last_documents.get(feed)
        return last_document.at if last_document is not None else None

    def is_recent(self, feed: str, entry: Entry) -> bool:
        """Not what an own document would have shown long ago: forgeries with old dates could never be refuted."""
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
        claims = self._claims.setdefault(bundle.feed, {})
        path = (*bundle.path, sender)
        for entry in new_entries:
            claims[entry.identity] = Claim(
                entry.identity, entry.digest, entry.published, now, sender, path
            )
        while len(claims) > MAX_CLAIMS:
            del claims[next(iter(claims))]

    def restore_document(self, feed: str, at: float, oldest: float | None) -> None:
        """Before the last restart we saw a document ourselves."""
        self._last_documents.setdefault(feed, _LastDocument(at, frozenset(), oldest))

    def restore_claim(self, feed: str, claim: Claim) -> None:
        """What a neighbour told before the last restart."""
        self._claims.setdefault(feed, {})[claim.identity] = claim
        self.remember(feed, [claim.identity], claim.path)

    def add_disputed(
        self, feed: str, identity: str, published: float | None, path: tuple[Nid, ...], now: float
    ) -> None:
        """A neighbour says that this entry, which we passed on, is forged: the next document will tell."""
        claims = self._claims.setdefault(feed, {})
        claims.setdefault(identity, Claim(identity, b"", published, now - SETTLE_S, path[-1], path))

    def pop_corroborated(self, bundle: Bundle, sender: Nid) -> list[Claim]:
        """Claims that this bundle confirms: the same entry by a way that shares no node and no address with the first."""
        claims = self._claims.get(bundle.feed)
        if not claims:
            return []
        found = []
        for entry in bundle.entries:
            claim = claims.get(entry.identity)
            if claim is None or claim.digest != entry.digest or claim.sender == sender:
                continue
            if not {address_of(n) for n in claim.path} & {
                address_of(n) for n in (*bundle.path, sender)
            }:
                found.append(claims.pop(entry.identity))
        return found

    def check_document(self, feed: str, entries: Sequence[Entry], now: float) -> Verdict:
        """Take in an own document, of whatever it holds."""
        known, claims, before = (
            self.known(feed),
            self._claims.get(feed),
            self._last_documents.get(feed),
        )
        new = [entry for entry in entries if entry.identity not in known]
        verdict = Verdict(new, [], [], [])
        identities = frozenset(entry.identity for entry in entries)
        dates = [entry.published for entry in entries if entry.published is not None]
        if claims:
            for entry in entries:
                claim = claims.pop(entry.identity, None)
                if claim is not None:
                    (
                        verdict.confirmed
                        if claim.digest in (b"", entry.digest)
                        else verdict.altered
                    ).append(claim)
            overlap = before is not None and not identities.isdisjoint(before.identities)
            middle = median(dates) if dates else None
            for claim in list(claims.values()):
                if claim.at > now - SETTLE_S or not entries:
                    continue
                by_order = overlap and before is not None and claim.at > before.at
                by_date = (
                    middle is not None and claim.published is not None and claim.published > middle
                )
                if by_order or by_date:
                    verdict.forged.append(claims.pop(claim.identity))
        self.remember(feed, identities)
        for identity in identities:
            known[identity] = ()
        self._last_documents[feed] = _LastDocument(now, identities, min(dates, default=None))
        return verdict

    def withdraw(self, nid: Nid) -> dict[str, list[str]]:
        """Forget what only this node has told; returns it, by feed."""
        gone: dict[str, list[str]] = {}
        for feed, claims in self._claims.items():
            theirs = [identity for identity, claim in claims.items() if claim.sender == nid]
            for identity in theirs:
                del claims[identity]
                self.known(feed).pop(identity, None)
            if theirs:
                gone[feed] = theirs
        return gone
