"""What nodes say to each other, and the bounds that every node keeps.

A node is known by its address and the port it listens on, ``203.0.113.5:8035``, of which the address is taken from the
connection and never from what the other says (FeedEx sect. 3.1). A feed is known by its URL, an entry by feed and identity.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import TypeAlias

from msgspec import Struct

from tidings.document import Entry

#: A node: ``address:port``.
Nid: TypeAlias = str
#: What a node is interested in: feed -> hop count of interest, 0 where the interest is its own.
Subset: TypeAlias = Mapping[str, int]

#: What the rest of the network may ask of one node. More than honest nodes ever need, less than what would hurt.
MAX_FEEDS = 10_000  #: in a subscription set, which has to fit into one call; the nearest are told
MAX_ENTRIES = 200  #: in a bundle; whole documents are smaller
MAX_TEXT_CHARS = (
    300_000  #: characters of the text of one entry, and of a bundle that has more than one
)
MAX_PATH = 32
MAX_URL_CHARS = 2000
MAX_TAGS = 10


class Note(Struct, frozen=True):
    """What people on the way thought of an entry (FeedEx sect. 1.2): their tags, and a rating from -1 to 1."""

    tags: tuple[str, ...] = ()
    rating: float = 0.0


class Bundle(Struct, frozen=True):
    """Entries of one feed on their way through the network."""

    feed: str
    entries: tuple[Entry, ...]
    fetched_at: float  #: when somebody had them from the feed's server
    did: bytes  #: SHA-1 of what is in it, so nobody can take up a name for something else
    path: tuple[Nid, ...] = ()  #: forwarders, oldest first; each was put there by who received it
    key: bytes = b""  #: of the node that fetched it (Ed25519), where it signs
    signatures: Mapping[
        str, bytes
    ] = {}  #: by identity, so that they outlive the removal of other entries
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
    """A bundle with its did. Two nodes that found the same entries make the same did, and forward them once."""
    did = did_of(feed, entries)
    return Bundle(feed, tuple(entries), fetched_at, did, path, key, signatures or {}, notes or {})


def split_into_bundles(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Entries in parts that make a bundle each, neither too many nor too long."""
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
    digest = sha1(feed.encode(), usedforsecurity=False)
    for entry in entries:
        digest.update(b"\0")
        digest.update(canonical_bytes(entry))
    return digest.digest()


def canonical_bytes(entry: Entry) -> bytes:
    """What is said when an entry is passed on: who it is, what it says, and when it was published."""
    return b"%s\0%s%d" % (
        entry.identity.encode(),
        entry.digest,
        -1 if entry.published is None else int(entry.published),
    )


class PeerNotice(Struct, frozen=True):
    """A notice: somebody looked at the feed then, and whatever was new has been passed on."""

    feed: str
    at: float


class Query(Struct, frozen=True):
    """What somebody is looking for in the archives of others."""

    id: str
    feed: str
    since: float = 0.0  #: published
    until: float = 4e9
    title_text: str = ""  #: in the entry's title
    hops: int = 3  #: so much further it may be passed on


class Holding(Struct, frozen=True):
    """A node that has something of what is sought."""

    nid: Nid  #: empty: the node that says so
    entries: int
    oldest: float
    newest: float
    altruist: bool = True  #: gives without being given


class NodeSettings(Struct, frozen=True, kw_only=True):
    """How a node behaves; the defaults are FeedEx's (Table 2) where it names them."""

    min_peers: int = 8
    max_peers: int = 10
    max_subset_hops: int = 3
    advertise_interval_s: float = 300.0
    depreciation: float = 2.0  #: d of u(Q): what a hop takes off an overlap
    alpha: float = 2.0  #: what a hop takes off a contribution
    deficit: float = 100.0  #: D: so much more is given to a neighbour than comes back
    max_seen_bundles: int = 1000  #: seen lately
    max_per_address: int = 2  #: neighbours from one address (Sybil)
    calls_per_min: float = 120.0  #: of one neighbour; a check counts a tenth
    notices: bool = True
    altruist: bool = True
    friends: frozenset[bytes] = frozenset()  #: pinned keys: what they sign is believed
    friends_only: bool = False


# --- effects: what the node wants done ---------------------------------------------------------------------------------


class Offer(Struct, frozen=True):
    """Ask each whether it has seen the did (check_did), and give it the bundle if not (put_entries)."""

    bundle: Bundle
    to: Sequence[Nid]


class Call(Struct, frozen=True):
    """Call a function of another node; what it answers is told to the node by the method that is named with the function."""

    to: Nid
    function: str  #: connect, update_subset, query_feed, get_neighbors, put_looks, dispute
    argument: Subset | Query | Sequence[PeerNotice] | tuple[str, str, float] | None = None


class Search(Struct, frozen=True):
    """Look into the own archive; `Node.answered` is told what there is, with no nid."""

    query: Query


class Reply(Struct, frozen=True):
    """A query is answered as well as it can be."""

    query: Query
    to: Nid  #: empty: it was our own question
    holdings: tuple[Holding, ...]


class EntriesReceived(Struct, frozen=True):
    """New entries of a feed of ours; ``believed`` where a friend has signed them."""

    bundle: Bundle
    sender: Nid
    trusted_identities: frozenset[str]


class EntriesConfirmed(Struct, frozen=True):
    """Entries that came from neighbours and are true, as independent others say."""

    feed: str
    identities: tuple[str, ...]


class EntriesWithdrawn(Struct, frozen=True):
    """Entries that only a liar has told."""

    feed: str
    identities: tuple[str, ...]


class PeerPolled(Struct, frozen=True):
    """Somebody who can be believed has looked at a feed of ours: it need not be polled so soon."""

    notice: PeerNotice
    sender: Nid


class Verify(Struct, frozen=True):
    """A neighbour says that we passed on a forgery: fetch the feed once, and tell `Node.fetched`."""

    feed: str


class PeerDropped(Struct, frozen=True):
    """A neighbour is one no more."""

    nid: Nid
    reason: str
    banned: bool = False  #: for a while, and what it alone has told is withdrawn


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
