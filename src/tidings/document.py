"""Format-independent values that `tidings.parse` returns for a parsed feed document.

Times are seconds since the epoch (UTC) as declared by the document; `aggregator.entry_dates`
decides whether they are plausible. Text is plain text except `content` and `summary`, which are
HTML as published. **That HTML is unsafe to display** until `tidings.parse.sanitize` has cleaned
it, which is done only for new entries.
"""

from msgspec import Struct


class Enclosure(Struct, frozen=True, gc=False):
    """A file attached to an entry, such as a podcast episode or an image."""

    url: str
    type: str = ""
    length: int | None = None


class Entry(Struct, frozen=True, gc=False):
    """One entry of a feed document (an RSS item or an Atom entry)."""

    #: Key that stays the same when the entry is edited: its id or guid if it has one, otherwise
    #: derived from title and link (FeedEx sect. 3.1).
    identity: str
    digest: bytes  #: hash of the displayed content, to detect changes
    url: str = ""
    title: str = ""
    author: str = ""
    content: str = ""
    summary: str = ""
    base_url: str = ""  #: base of relative URLs in content and summary
    published: float | None = None
    updated: float | None = None
    date_only: bool = False  #: the declared date has no time of day
    tags: tuple[str, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    comments_url: str = ""


class Hints(Struct, frozen=True):
    """Polling hints declared by the publisher (ttl, updatePeriod, skipHours, skipDays)."""

    ttl_s: float | None = None  #: interval in seconds from the RSS element ttl
    period_s: float | None = None  #: sy:updatePeriod divided by sy:updateFrequency, in seconds
    skip_hours: frozenset[int] = frozenset()  #: hours of the day, 0 to 23, in GMT
    skip_days: frozenset[int] = frozenset()  #: days of the week, where 0 is Monday

    @property
    def any(self) -> bool:
        return self != NO_HINTS


NO_HINTS = Hints()


class Links(Struct, frozen=True):
    """Links of a feed document as absolute URLs.

    An empty string means that the document has no such link.
    """

    site: str = ""
    self_url: str = ""
    hubs: tuple[str, ...] = ()  #: URLs of WebSub hubs
    next_page: str = ""  #: next page of a paged feed (RFC 5005, or next_url of JSON Feed)
    prev_archive: str = ""  #: previous document of an archived feed (RFC 5005)
    likely_page: str = ""  #: guessed next page of a WordPress feed, which declares none
    peers: tuple[str, ...] = ()  #: exchange nodes that poll the feed (docs/exchange-protocol.md)


class Document(Struct, frozen=True):
    """Contents of a parsed feed document."""

    format: str  #: such as "rss 2.0", "atom 1.0", "rdf 1.0", "json feed 1.1"
    title: str = ""
    description: str = ""
    author: str = ""
    language: str = ""
    icon_url: str = ""
    entries: tuple[Entry, ...] = ()  #: in the order of the document
    hints: Hints = NO_HINTS
    links: Links = Links()
    archive: bool = False  #: fh:archive (RFC 5005): the document never changes
    complete: bool = False  #: fh:complete (RFC 5005): entries missing from it were deleted
    repaired: bool = False  #: the XML was not well-formed and was repaired
