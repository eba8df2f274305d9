"""Models of feeds, entries and polls: the values that the store reads and writes.

A field has the name of its column; a different name in JSON output is given by `msgspec.field`.
What polls learn about a feed is one value, `FeedState`: the aggregator takes it from the leased
feed, replaces what has changed, and returns it within a `PollOutcome`. `NewSubscription`,
`EntryText` and `PollOutcome` with its parts are inputs; the others are what the database holds.

Texts must be valid Unicode: the `parse` package removes lone surrogates and null characters. Models
of which there are thousands are not tracked by the garbage collector (``gc=False``), which took a
quarter of the time to build a list.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from tidings.document import NO_HINTS, Enclosure, Hints
from tidings.reasons import NO_REASON, Reason
from tidings.reasons import reason as reason_value

#: How an entry was received: by a poll, pushed by a WebSub hub, from an archive (RFC 5005), or from
#: a peer. "confirmed": from a peer, and confirmed since by our own poll or by independent peers.
#: The stored value for peers is FeedEx's term.
Source: TypeAlias = Literal["poll", "push", "archive", "neighbour", "confirmed"]

#: Id of the user that every store has from the start.
DEFAULT_USER_ID = 1


class FeedState(Struct, frozen=True, gc=False):
    """What polls have learned about a feed; all fields are written with every poll."""

    title: str = ""
    site_url: str = ""
    format: str = ""
    window: int = 0  #: maximum number of entries seen in a document
    shown: int = 0  #: number of entries in the last document
    oldest_at: float | None = None  #: publication time of the oldest of these
    #: 1 if a full document dropped entries, so that `window` is the publisher's limit
    dropped: int = 0
    by_age: int = 0  #: consecutive documents that dropped entries although they were not full
    usual_gap_s: float | None = None  #: between the entries of the last document
    next_poll_at: float | None = None  #: None: no automatic polls
    reason: Reason = NO_REASON  #: of `next_poll_at`
    last_poll_at: float | None = None
    last_ok_at: float | None = None
    errors: int = 0  #: consecutive failures
    failing_since: float | None = None
    error_kind: str = ""  #: category for statistics: "timeout", "http 404"
    last_error: str = ""
    etag: str = ""
    last_modified: str = ""
    validators_since: float | None = None
    #: URL that the validators (ETag, Last-Modified) belong to; may be the target of a redirect
    validators_url: str = ""
    body_digest: bytes = b""
    #: no poll before this time, not even a manual one (Retry-After)
    earliest_at: float | None = None
    #: the publisher's last stated interval, 0 for none: see `policy.constraints`
    stated_s: float = 0.0
    stated_by: int = 0  #: source of that interval
    not_modified: float = 0.0  #: share of unchanged polls that were answered with 304
    document_bytes: float = 0.0  #: transfer size of the last full document
    poll_bytes: float = 0.0  #: mean transfer of a poll
    #: hours of the week without polls, Monday first: 168 bits in 21 bytes, or empty
    forbidden: bytes = b""
    moved_to: str = ""  #: target of a permanent redirect, until it is accepted
    moved_sightings: int = 0
    moved_since: float | None = None
    self_url: str = ""
    hubs: tuple[str, ...] = ()
    hints: Hints = NO_HINTS


class Feed(Struct, frozen=True, gc=False):
    """A feed."""

    id: int
    url: str
    added_at: float
    weight: float
    retired_at: float | None
    retired_reason: str = field(name="retired_why")
    min_interval_s: float  #: set by its subscribers, 0 for none
    state: FeedState
    subscribers: int = 1  #: counted only for leased feeds


class FeedSummary(Struct, frozen=True):
    """A feed as its subscriber sees it."""

    feed: Feed
    title: str  #: set by the subscriber, else the feed's, else its URL
    folder: str
    entries: int
    newest_at: float | None  #: publication time of its newest entry


class NewSubscription(Struct, frozen=True):
    """A subscription to be added."""

    url: str
    first_poll_at: float
    title: str = ""
    folder: str = ""  #: a path such as "News/Science"; empty for none
    site_url: str = ""
    reason: Reason = reason_value("added")


class SubscribeResult(Struct, frozen=True):
    """Result of a `NewSubscription`."""

    url: str
    feed_id: int
    feed_new: bool
    subscription_new: bool


class EntryText(Struct, frozen=True, gc=False):
    """An entry to store, with validated dates and sanitized HTML."""

    identity: str
    digest: bytes
    published_at: float  #: declared date, or the time of arrival if that is not plausible
    url: str = ""
    title: str = ""
    author: str = ""
    content: str = ""
    summary: str = ""
    text: str = ""  #: `search_text` of the content, or of the summary if there is none
    declared_published_at: float | None = None  #: the date in the document
    updated_at: float | None = None
    comments_url: str = ""
    tags: tuple[str, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    #: arrival minus publication; None if unknown (first document of a feed, no date)
    delay_s: float | None = None


class Entry(Struct, frozen=True, gc=False):
    """A stored entry."""

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
    """A former version of a changed entry."""

    replaced_at: float
    digest: bytes
    updated_at: float | None
    url: str
    title: str
    author: str
    content: str
    summary: str


class KnownEntry(Struct, frozen=True):
    """A known identity; ``entry_id`` is None if retention deleted the entry."""

    entry_id: int | None
    digest: bytes
    published_at: float | None = None


class Pause(Struct, frozen=True):
    """A host that is paused."""

    host: str
    until: float
    reason: str = field(name="why")


class SuspectedGap(Struct, frozen=True):
    """A detected gap: entries between the two times were probably missed."""

    from_at: float
    until_at: float
    missed: float  #: estimated number of entries


class Gap(Struct, frozen=True):
    """A stored gap. ``state`` is open, repaired, partly (repaired) or lost (not recoverable)."""

    id: int
    feed_id: int
    found_at: float
    from_at: float
    until_at: float
    missed: float = field(name="lost")
    recovered: int
    state: str


class GapRepair(Struct, frozen=True):
    """The gap that an outcome repairs: its new entries count as recovered."""

    gap_id: int
    state: str


class Estimate(Struct, frozen=True):
    """Saved state of a policy for one feed."""

    policy: str
    state: bytes


class PollOutcome(Struct, frozen=True, kw_only=True):
    """Everything that one poll, push or archive page changes; stored atomically."""

    feed_id: int
    at: float
    reason: Reason = NO_REASON  #: of the poll
    source: Source = "poll"
    host: str = ""  #: that the request was sent to
    status: int = 0  #: HTTP status; 0 without a response
    bytes: int = 0
    elapsed_s: float = 0.0
    error_kind: str = ""
    error: str = ""
    entries: int = 0  #: number of entries in the document
    new: tuple[EntryText, ...] = ()
    changed: tuple[EntryText, ...] = ()
    #: identities of all entries in the document; None if it is unchanged or not parsed
    document: tuple[str, ...] | None = None
    state: FeedState | None = None  #: None: no change
    estimate: Estimate | None = None
    pause: Pause | None = None
    gap: SuspectedGap | None = None
    repair: GapRepair | None = None
    new_url: str = ""  #: the feed's new URL
    retire_reason: str = ""  #: non-empty: the feed is retired
    #: node ids on the path of new entries from a peer; the last one is the sender
    peer_path: tuple[str, ...] = ()


class RecordResult(Struct, frozen=True):
    """Result of `Store.record`: ids of new entries, and the number of changed ones."""

    new: tuple[int, ...]
    changed: int


class Poll(Struct, frozen=True):
    """A row of the poll log."""

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
    missed: float | None = field(name="lost")  #: estimate; None: no gap
    reason: Reason
    error_kind: str
    error: str


class Schedule(Struct, frozen=True):
    """A new poll time of a feed, with its reason."""

    feed_id: int
    next_poll_at: float | None
    reason: Reason
    #: compare-and-set: written only if this is still the poll time, not leased or polled meanwhile
    expected_poll_at: float | None = None


class PushSubscription(Struct, frozen=True):
    """A WebSub subscription. ``state`` is `asked` (requested), active, refused or ended."""

    feed_id: int
    hub: str
    topic: str
    token: str  #: secret part of the callback URL
    secret: str  #: for the signature (HMAC)
    state: str
    lease_until: float | None = None
    last_push_at: float | None = None
    pushed_count: int = 0  #: entries that were pushed
    unpushed_count: int = 0  #: entries that only a poll found


class Period(Struct, frozen=True):
    """Statistics of a period up to now."""

    polls: int
    bytes: int
    new: int
    delays: int  #: entries with a known delay
    delay_p50_s: float | None
    delay_p90_s: float | None
    missed: float = field(name="lost")
    recovered: int


class Status(Struct, frozen=True):
    """Status of the store."""

    feeds: int
    retired: int
    failing: int
    due: int
    next_due_at: float | None
    entries: int
    hour: Period
    day: Period
    week: Period
    errors: dict[str, int]  #: failing feeds by kind of error
    paused: tuple[Pause, ...]
    polled_days: float  #: days since the first poll

    @property
    def active_feeds(self) -> int:
        """Number of feeds that are not retired."""
        return self.feeds - self.retired


class RetentionResult(Struct, frozen=True):
    """Numbers of rows that `Store.apply_retention` deleted."""

    entries: int
    polls: int
