"""What a feed's document says, whatever format it is written in: the values that travel from `parse` to all other rooms.

Times are seconds since the epoch (UTC), as told by the document: whether to believe them is the aggregator's business.
Text is plain text except `content` and `summary`, which are HTML as published. **That HTML is not safe to show** until
`tidings.parse.sanitize` has been over it, which is done for new entries alone.
"""

from msgspec import Struct


class Enclosure(Struct, frozen=True, gc=False):
    """A file that belongs to an entry: a podcast's sound, a picture."""

    url: str
    type: str = ""
    length: int | None = None


class Entry(Struct, frozen=True, gc=False):
    """One item of a document."""

    identity: (
        str  #: stable under edits: the id or guid, else made from title and link (FeedEx sect. 3.1)
    )
    digest: bytes  #: changes when what a reader would see changes
    url: str = ""
    title: str = ""
    author: str = ""
    content: str = ""
    summary: str = ""
    base_url: str = ""  #: what relative addresses within content and summary are relative to
    published: float | None = None
    updated: float | None = None
    date_only: bool = False  #: the date was told without a time of day
    tags: tuple[str, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    comments_url: str = ""


class Hints(Struct, frozen=True):
    """What the publisher asks of those who poll."""

    ttl_s: float | None = None  #: RSS ttl
    period_s: float | None = None  #: sy:updatePeriod over sy:updateFrequency
    skip_hours: frozenset[int] = frozenset()  #: 0 to 23, GMT
    skip_days: frozenset[int] = frozenset()  #: 0 is Monday

    @property
    def any(self) -> bool:
        return self != NO_HINTS


NO_HINTS = Hints()


class Links(Struct, frozen=True):
    """Where else a document points; all absolute."""

    site: str = ""
    self_url: str = ""
    hubs: tuple[str, ...] = ()  #: WebSub
    next_page: str = ""  #: RFC 5005 paged feeds, JSON Feed next_url
    prev_archive: str = ""  #: RFC 5005 archived feeds
    likely_page: str = ""  #: where WordPress has more, whose feeds do not say so
    peers: tuple[str, ...] = ()  #: nodes of the exchange that read it (docs/exchange-protocol.md)


class Document(Struct, frozen=True):
    """One feed's document, read."""

    format: str  #: such as "rss 2.0", "atom 1.0", "rdf 1.0", "json feed 1.1"
    title: str = ""
    description: str = ""
    author: str = ""
    language: str = ""
    icon_url: str = ""
    entries: tuple[Entry, ...] = ()  #: in the order of the document
    hints: Hints = NO_HINTS
    links: Links = Links()
    archive: bool = False  #: fh:archive, never changes
    complete: bool = False  #: fh:complete, entries absent from it are gone
    repaired: bool = False  #: the bytes were not well-formed and had to be mended
