"""Protocol types of the exchange: bundles, queries, settings, effects, and size limits.

A node is identified by its address and the port it listens on (nid), ``203.0.113.5:8035``. The
address is taken from the connection and never from what the other node declares (FeedEx sect. 3.1).
A feed is identified by its URL, an entry by feed and identity.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import TypeAlias

from msgspec import Struct

from tidings.document import Entry

#: Node identifier: ``address:port``.
Nid: TypeAlias = str
#: Subscription set: feed -> hop count of interest, 0 for the node's own feeds.
Subset: TypeAlias = Mapping[str, int]

# Limits against denial of service: well above what honest nodes need.
#: Maximum number of feeds in a subscription set, which must fit into one call.
MAX_FEEDS = 10_000
#: Maximum number of entries in a bundle.
MAX_ENTRIES = 200
#: Maximum text length of one entry, and of a bundle with more than one entry.
MAX_TEXT_CHARS = 300_000
#: Maximum number of nodes on a bundle's path.
MAX_PATH = 32
#: Maximum length of URLs, titles and other short strings.
MAX_URL_CHARS = 2000
#: Maximum number of tags of an entry or a note.
MAX_TAGS = 10


class Note(Struct, frozen=True):
    """Annotation of an entry by users of forwarding nodes (FeedEx sect. 1.2)."""

    tags: tuple[str, ...] = ()
    rating: float = 0.0  #: from -1 to 1


class Bundle(Struct, frozen=True):
    """New entries of one feed that are forwarded through the network."""

    feed: str
    entries: tuple[Entry, ...]
    fetched_at: float  #: when a node fetched them from the feed's server
    did: bytes  #: content hash (SHA-1): no other bundle can use the same identifier
    path: tuple[Nid, ...] = ()  #: forwarders, oldest first; each is added by its receiver
    key: bytes = b""  #: Ed25519 public key of the node that fetched it, if that node signs
    #: By entry identity: they stay valid when other entries are removed.
    signatures: Mapping[str, bytes] = {}
    notes: Mapping[str, Note] = {}


def bundle_of(
    feed: str,
    entries: Sequence[Entry],
    fetched_at: float,
    path: tuple[Nid, ...] = (),
    key: bytes = b"",
    signatures: Mapping[str, bytes] | None = None,
    notes: Mapping[str, Note] | None = None,
) -> Bundle:
    """Make a bundle and compute its did.

    Two nodes that found the same entries get the same did, so the entries are forwarded only once.
    """
    did = did_of(feed, entries)
    return Bundle(feed, tuple(entries), fetched_at, did, path, key, signatures or {}, notes or {})


def split_into_bundles(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Split entries into parts within the limits of a bundle."""
    part: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(entry.content) + len(entry.summary)
        if part and (len(part) == MAX_ENTRIES or size > MAX_TEXT_CHARS):
            yield part
            part, size = [], len(entry.content) + len(entry.summary)
        part.append(entry)
    if part:
        yield part


def did_of(feed: str, entries: Iterable[Entry]) -> bytes:
    """Return the content hash of a bundle: SHA-1 over the feed's URL and its entries."""
    digest = sha1(feed.encode(), usedforsecurity=False)
    for entry in entries:
        digest.update(b"\0")
        digest.update(canonical_bytes(entry))
    return digest.digest()


def canonical_bytes(entry: Entry) -> bytes:
    """Return the bytes of an entry for hashing and signing: identity, digest, date published."""
    return b"%s\0%s%d" % (
        entry.identity.encode(),
        entry.digest,
        -1 if entry.published is None else int(entry.published),
    )


class PeerNotice(Struct, frozen=True):
    """Notice that a node polled the feed at this time and has forwarded all new entries."""

    feed: str
    at: float


class Query(Struct, frozen=True):
    """Search for entries in the archives of other nodes."""

    id: str
    feed: str
    since: float = 0.0  #: earliest date published
    until: float = 4e9  #: latest date published
    title_text: str = ""  #: text that the title must contain
    hops: int = 3  #: maximum number of further hops


class Holding(Struct, frozen=True):
    """A node that holds entries which match a query."""

    nid: Nid  #: empty for the node that answers
    entries: int
    oldest: float
    newest: float
    altruist: bool = True  #: sends entries without getting any in return


class NodeSettings(Struct, frozen=True, kw_only=True):
    """Parameters of a node; the defaults are those of FeedEx (Table 2), where it has them."""

    min_peers: int = 8
    max_peers: int = 10
    max_subset_hops: int = 3
    advertise_interval_s: float = 300.0
    depreciation: float = 2.0  #: d of u(Q): divisor of the overlap per hop
    alpha: float = 2.0  #: divisor of a contribution per hop
    deficit: float = 100.0  #: D: maximum contribution to a peer beyond what it contributed
    max_seen_bundles: int = 1000  #: number of dids remembered for duplicate suppression
    max_per_address: int = 2  #: maximum number of peers at one address (Sybil attack)
    calls_per_min: float = 120.0  #: rate limit of one peer; `check_did` counts a tenth
    notices: bool = True  #: whether poll notices are sent and used
    altruist: bool = True
    friends: frozenset[bytes] = frozenset()  #: pinned keys: entries signed with them are trusted
    friends_only: bool = False  #: whether only nodes with a pinned key may become peers


# --- effects: actions that the node requests -----------------------------------------------------


class Offer(Struct, frozen=True):
    """Offer a bundle to peers: `check_did`, then `put_entries` if they have not seen it."""

    bundle: Bundle
    to: Sequence[Nid]


class Call(Struct, frozen=True):
    """Call a function of another node; the result goes to the matching `Node.on_...` method."""

    to: Nid
    function: str  #: connect, update_subset, query_feed, get_neighbors, put_looks, dispute
    argument: Subset | Query | Sequence[PeerNotice] | tuple[str, str, float] | None = None


class Search(Struct, frozen=True):
    """Search our own archive; the result goes to `Node.on_answer` with an empty nid."""

    query: Query


class Reply(Struct, frozen=True):
    """Return the collected answer of a query to the node that sent it."""

    query: Query
    to: Nid  #: empty for our own query
    holdings: tuple[Holding, ...]


class EntriesReceived(Struct, frozen=True):
    """New entries of one of our own feeds have arrived from a peer."""

    bundle: Bundle
    sender: Nid
    trusted_identities: frozenset[str]  #: entries signed with a pinned key


class EntriesConfirmed(Struct, frozen=True):
    """Entries from peers have been confirmed, by our own document or by an independent peer."""

    feed: str
    identities: tuple[str, ...]


class EntriesWithdrawn(Struct, frozen=True):
    """Entries must be deleted: they are forged, or only a banned peer has sent them."""

    feed: str
    identities: tuple[str, ...]


class PeerPolled(Struct, frozen=True):
    """A trusted peer polled one of our own feeds: our next poll can be later."""

    notice: PeerNotice
    sender: Nid


class Verify(Struct, frozen=True):
    """Fetch the feed now (`Node.record_document`): a peer disputes an entry that we forwarded."""

    feed: str


class PeerDropped(Struct, frozen=True):
    """A peer has been dropped."""

    nid: Nid
    reason: str  #: for display
    banned: bool = False  #: whether it is banned and its unconfirmed entries are withdrawn


Effect: TypeAlias = (
    Offer
    | Call
    | Search
    | Reply
    | EntriesReceived
    | EntriesConfirmed
    | EntriesWithdrawn
    | PeerPolled
    | Verify
    | PeerDropped
)
