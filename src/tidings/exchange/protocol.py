"""Types of the exchange protocol, such as bundles, queries and effects, and size limits.

A node is identified by its address and the port on which it listens (nid), ``203.0.113.5:8035``.
The address is that of the connection, never one that the other node declares (FeedEx sect. 3.1). A
feed is identified by its URL, an entry by feed and identity.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import TypeAlias

from msgspec import Struct

from tidings.document import Entry

#: Node identifier of the form ``address:port``.
Nid: TypeAlias = str
#: Subscription set of a node, which maps a feed URL to a hop count. The hop count is the distance
#: to the nearest node that reads the feed, 0 for the node itself.
Subset: TypeAlias = Mapping[str, int]

# The following limits prevent denial of service. They are well above the needs of honest nodes.
#: Maximum number of feeds in a subscription set, which must fit into one call.
MAX_FEEDS = 10_000
#: Maximum number of entries in a bundle.
MAX_ENTRIES = 200
#: Maximum text length in characters of one entry, and of a bundle with more than one entry.
MAX_TEXT_CHARS = 300_000
#: Maximum number of nodes on a bundle's path.
MAX_PATH = 32
#: Maximum length in characters of URLs, titles and other short strings.
MAX_URL_CHARS = 2000
#: Maximum number of tags of an entry or a note.
MAX_TAGS = 10


class Note(Struct, frozen=True):
    """Annotation of an entry by users of nodes that forwarded the entry (FeedEx sect. 1.2)."""

    tags: tuple[str, ...] = ()
    rating: float = 0.0  #: from -1 to 1


class Bundle(Struct, frozen=True):
    """New entries of one feed that nodes forward to each other in one message."""

    feed: str
    entries: tuple[Entry, ...]
    fetched_at: float  #: time at which a node fetched the entries from the feed's server
    did: bytes  #: SHA-1 hash of the contents, which identifies the bundle
    path: tuple[Nid, ...] = ()  #: forwarding nodes, oldest first; each is added by its receiver
    key: bytes = b""  #: Ed25519 public key of the node that fetched the entries and signed them
    #: Signatures by entry identity. They stay valid when other entries are removed.
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
    """Return a bundle with its content hash.

    Two nodes that found the same entries get the same hash, so the entries are forwarded only once.
    """
    did = did_of(feed, entries)
    return Bundle(feed, tuple(entries), fetched_at, did, path, key, signatures or {}, notes or {})


def split_into_bundles(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Split entries into parts within the size limits of a bundle."""
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
    """Return the content hash of a bundle, which is SHA-1 over the feed's URL and its entries."""
    digest = sha1(feed.encode(), usedforsecurity=False)
    for entry in entries:
        digest.update(b"\0")
        digest.update(canonical_bytes(entry))
    return digest.digest()


def canonical_bytes(entry: Entry) -> bytes:
    """Return the bytes of an entry for hashing and signing.

    They consist of the identity, the digest and the publication date.
    """
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
    since: float = 0.0  #: earliest publication time
    until: float = 4e9  #: latest publication time
    title_text: str = ""  #: text that the title must contain
    hops: int = 3  #: maximum number of times that nodes forward the query


class Holding(Struct, frozen=True):
    """Node that has entries which match a query, with their number and their dates."""

    nid: Nid  #: node id, or empty for the node that answers
    entries: int
    oldest: float
    newest: float
    altruist: bool = True  #: whether the node sends entries without getting any in return


class NodeSettings(Struct, frozen=True, kw_only=True):
    """Parameters of a node. The defaults are the values in Table 2 of FeedEx, if it has them."""

    min_peers: int = 8
    max_peers: int = 10
    max_subset_hops: int = 3
    advertise_interval_s: float = 300.0
    depreciation: float = 2.0  #: d in u(Q), the divisor of the overlap per hop
    alpha: float = 2.0  #: divisor of a contribution per hop
    deficit: float = 100.0  #: D, the maximum contribution to a peer beyond the peer's contribution
    max_seen_bundles: int = 1000  #: number of remembered bundles for duplicate suppression
    max_per_address: int = 2  #: maximum number of peers at one address (Sybil attack)
    calls_per_min: float = 120.0  #: rate limit of one peer, where `check_did` is a tenth of a call
    notices: bool = True  #: whether poll notices are sent and used
    altruist: bool = True  #: whether this node sends entries without getting any in return
    friends: frozenset[bytes] = frozenset()  #: pinned keys, whose signed entries are trusted
    friends_only: bool = False  #: whether only nodes with a pinned key may become peers


# --- effects, which are actions that the node requests -------------------------------------------


class Offer(Struct, frozen=True):
    """Request to offer a bundle to peers.

    `check_did` finds out which peers have not received the bundle yet; `put_entries` sends it to
    them.
    """

    bundle: Bundle
    to: Sequence[Nid]


class Call(Struct, frozen=True):
    """Request to call a function of another node.

    The result goes to the matching `Node.on_...` method.
    """

    to: Nid
    function: str  #: connect, update_subset, query_feed, get_neighbors, put_looks, dispute
    argument: Subset | Query | Sequence[PeerNotice] | tuple[str, str, float] | None = None


class Search(Struct, frozen=True):
    """Request to search the archive of this node.

    The result goes to `Node.on_answer` with an empty node id.
    """

    query: Query


class Reply(Struct, frozen=True):
    """Request to return the collected answer of a query to the node that sent the query."""

    query: Query
    to: Nid  #: node that sent the query, or empty for a query of this node
    holdings: tuple[Holding, ...]


class EntriesReceived(Struct, frozen=True):
    """Event that new entries of a feed that users here read have arrived from a peer."""

    bundle: Bundle
    sender: Nid
    trusted_identities: frozenset[str]  #: identities of entries that are signed with a pinned key


class EntriesConfirmed(Struct, frozen=True):
    """Event that a document or an independent peer has confirmed entries from peers."""

    feed: str
    identities: tuple[str, ...]


class EntriesWithdrawn(Struct, frozen=True):
    """Request to delete entries that are forged or that only a banned peer has sent."""

    feed: str
    identities: tuple[str, ...]


class PeerPolled(Struct, frozen=True):
    """Event that a trusted peer has polled a feed, so that the next poll here can be later."""

    notice: PeerNotice
    sender: Nid


class Verify(Struct, frozen=True):
    """Request to fetch a feed now, because a peer disputes an entry that this node forwarded.

    The document goes to `Node.record_document`.
    """

    feed: str


class PeerDropped(Struct, frozen=True):
    """Event that a peer has been dropped."""

    nid: Nid
    reason: str  #: text for display
    banned: bool = False  #: whether the peer is banned and its unconfirmed entries are withdrawn


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
