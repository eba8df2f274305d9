"""The values that go into the store and come out of it.

A field has the name of its column. What a poll learns about a feed is one value, `FeedState`: the aggregator takes it from
the feed that it was handed, replaces what has changed, and gives it back within a `PollOutcome`. `Wanted`, `EntryText` and
`PollOutcome` with its parts are what goes in; the others are what the database holds.

Text must be text: halves of characters (lone surrogates) and zero characters are for `parse` to remove. What comes by the
thousand is nothing that Python's collector need look at (``gc=False``), which took it a quarter of the time of a list.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from tidings.document import NO_HINTS, Enclosure, Hints
from tidings.reasons import NO_REASON, Reason
from tidings.reasons import reason as reason_value

#: How something came to us: asked for, sent by a hub, read from an archive (RFC 5005), told by a neighbour; in the end, told by
#: a neighbour and confirmed since, by our own fetch or by others who cannot have it from each other.
Source: TypeAlias = Literal["poll", "push", "archive", "neighbour", "confirmed"]

#: The one user there is until there are several.
DEFAULT_USER_ID = 1


class FeedState(Struct, frozen=True, gc=False):
    """What polls have taught about a feed; written whole with every poll."""

    title: str = ""
    site_url: str = ""
    format: str = ""
    window: int = 0  #: most entries seen in a document
    shown: int = 0  #: entries in the last document
    oldest_at: float | None = None  #: the oldest of these was published
    dropped: int = 0  #: 1 where a full document was seen to drop entries, so that it holds no more than `window`
    by_age: int = 0  #: documents in a row that dropped entries without being full
    usual_gap_s: float | None = None  #: between the posts of the last document
    next_poll_at: float | None = None  #: None: never by itself
    reason: Reason = NO_REASON  #: why then
    last_poll_at: float | None = None
    last_ok_at: float | None = None
    errors: int = 0  #: failures since the last success
    failing_since: float | None = None
    error_kind: str = ""  #: a word or two that failures can be counted by: "timeout", "http 404"
    last_error: str = ""
    etag: str = ""
    last_modified: str = ""
    validators_since: float | None = None
    validators_url: str = (
        ""  #: validators belong to the address that gave them, which may be a redirect's target
    )
    body_digest: bytes = b""
    earliest_at: float | None = (
        None  #: the publisher's request: no poll before, not even a manual one
    )
    stated_s: float = (
        0.0  #: the interval that the publisher stated last, 0 for none: see `policy.constraints`
    )
    stated_by: int = 0  #: which statement that was
    not_modified: float = 0.0  #: share of unchanged polls that were answered with 304
    document_bytes: float = 0.0  #: of the last full document, on the wire
    poll_bytes: float = 0.0  #: mean transfer of a poll
    forbidden: bytes = (
        b""  #: hours of the week not to ask in, Monday first: 168 bits in 21 bytes, or nothing
    )
    moved_to: str = ""  #: where a permanent redirect points, until it is believed
    moved_sightings: int = 0
    moved_since: float | None = None
    self_url: str = ""
    hubs: tuple[str, ...] = ()
    hints: Hints = NO_HINTS


class Feed(Struct, frozen=True, gc=False):
    """One feed."""

    id: int
    url: str
    added_at: float
    weight: float
    retired_at: float | None
    retired_reason: str
    min_interval_s: float  #: that its subscribers have set, 0 for none
    state: FeedState
    subscribers: int = 1  #: counted for those who are about to ask for it


class FeedSummary(Struct, frozen=True):
    """A feed as its subscriber sees it."""

    feed: Feed
    title: str  #: the subscriber's own, else the feed's, else its address
    folder: str
    entries: int
    newest_at: float | None  #: when its newest entry was published


class NewSubscription(Struct, frozen=True):
    """A subscription to be added."""

    url: str
    first_poll_at: float
    title: str = ""
    folder: str = ""  #: a path such as "News/Science"; nothing is the top
    site_url: str = ""
    reason: Reason = reason_value("added")


class SubscribeResult(Struct, frozen=True):
    """What became of a `Wanted`."""

    url: str
    feed_id: int
    feed_new: bool
    subscription_new: bool


class EntryText(Struct, frozen=True, gc=False):
    """An entry as it shall be kept: dates judged, HTML made safe."""

    identity: str
    digest: bytes
    published_at: float  #: the time we go by
    url: str = ""
    title: str = ""
    author: str = ""
    content: str = ""
    summary: str = ""
    text: str = ""  #: `search_text` of the content or else of the summary: the search index is told it again to forget it
    declared_published_at: float | None = None  #: as the document says
    updated_at: float | None = None
    comments_url: str = ""
    tags: tuple[str, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    delay_s: float | None = (
        None  #: arrival minus publication; None where it says nothing (a feed's first document, no date)
    )


class Entry(Struct, frozen=True, gc=False):
    """An entry of the store."""

    id: int
    feed_id: int
    identity: str
    digest: bytes
    published_at: float
    declared_published_at: float | None
    updated_at: float | None
    first_seen_at: float
    changed_at: float | None
    source: Source
    delay_s: float | None
    url: str
    title: str
    author: str
    comments_url: str
    content: str
    summary: str
    tags: tuple[str, ...]
    enclosures: tuple[Enclosure, ...]


class Version(Struct, frozen=True):
    """What an entry said before it was changed."""

    replaced_at: float
    digest: bytes
    updated_at: float | None
    url: str
    title: str
    author: str
    content: str
    summary: str


class KnownEntry(Struct, frozen=True):
    """An identity that has been seen; ``entry_id`` is None if the entry is gone by age."""

    entry_id: int | None
    digest: bytes
    published_at: float | None = None


class Pause(Struct, frozen=True):
    """A host that is left alone for a while."""

    host: str
    until: float
    reason: str


class SuspectedGap(Struct, frozen=True):
    """A gap as it is found: posts between the two times were probably pushed out unseen."""

    from_at: float
    until_at: float
    missed: float  #: an estimate


class Gap(Struct, frozen=True):
    """A gap of the store. ``state`` is open, repaired, partly (repaired) or lost."""

    id: int
    feed_id: int
    found_at: float
    from_at: float
    until_at: float
    missed: float
    recovered: int
    state: str


class GapRepair(Struct, frozen=True):
    """What the entries of an outcome were fetched for: they count as recovered."""

    gap_id: int
    state: str


class Estimate(Struct, frozen=True):
    """What a policy remembers of one feed."""

    policy: str
    state: bytes


class PollOutcome(Struct, frozen=True, kw_only=True):
    """All that one poll (or push, or page of an archive) changes. It is stored whole or not at all."""

    feed_id: int
    at: float
    reason: Reason = NO_REASON  #: why it was made
    source: Source = "poll"
    host: str = ""  #: that was asked
    status: int = 0  #: HTTP; 0 where there was no answer
    bytes: int = 0
    elapsed_s: float = 0.0
    error_kind: str = ""
    error: str = ""
    entries: int = 0  #: in the document
    new: tuple[EntryText, ...] = ()
    changed: tuple[EntryText, ...] = ()
    document: tuple[str, ...] | None = (
        None  #: identities of all entries in it; None where it is unchanged or unread
    )
    state: FeedState | None = None  #: None leaves the feed's state as it is
    estimate: Estimate | None = None
    pause: Pause | None = None
    gap: SuspectedGap | None = None
    repair: GapRepair | None = None
    new_url: str = ""  #: the feed lives here from now on
    retire: str = ""  #: why the feed is never asked again
    peer_path: tuple[
        str, ...
    ] = ()  #: the nodes by which new entries came, the last of which told us


class RecordResult(Struct, frozen=True):
    """What `record` did: ids of the entries that are new, and how many were changed."""

    new: tuple[int, ...]
    changed: int


class Poll(Struct, frozen=True):
    """A line of the poll log."""

    feed_id: int
    at: float
    source: Source
    status: int
    bytes: int
    elapsed_s: float
    entries: int
    new: int
    changed: int
    delay_mean_s: float | None
    delay_max_s: float | None
    missed: float | None  #: a gap, and how many posts it is thought to hold; None: no gap
    reason: Reason
    error_kind: str
    error: str


class Schedule(Struct, frozen=True):
    """A new time for a feed, and why."""

    feed_id: int
    next_poll_at: float | None
    reason: Reason
    expected_poll_at: float | None = (
        None  #: only if this is still its time: nobody has claimed or polled it meanwhile
    )


class PushSubscription(Struct, frozen=True):
    """A WebSub subscription. ``state`` is asked, active, refused or ended."""

    feed_id: int
    hub: str
    topic: str
    token: str  #: the secret part of the callback's address
    secret: str  #: for the signature
    state: str
    lease_until: float | None = None
    last_push_at: float | None = None
    pushed_count: int = 0  #: entries that came by push
    unpushed_count: int = 0  #: entries that a poll had to find


class Period(Struct, frozen=True):
    """What happened since some time."""

    polls: int
    bytes: int
    new: int
    delays: int  #: entries with a known delay
    delay_p50_s: float | None
    delay_p90_s: float | None
    missed: float
    recovered: int


class Status(Struct, frozen=True):
    """The whole store at a glance."""

    feeds: int
    retired: int
    failing: int
    due: int
    next_due_at: float | None
    entries: int
    hour: Period
    day: Period
    week: Period
    errors: dict[str, int]  #: feeds that fail now, by kind of error
    paused: tuple[Pause, ...]
    polled_days: float  #: since the first poll

    @property
    def active_feeds(self) -> int:
        return self.feeds - self.retired


class RetentionResult(Struct, frozen=True):
    """What `retain` has deleted."""

    entries: int
    polls: int
