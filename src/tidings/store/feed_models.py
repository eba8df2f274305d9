"""Models of feeds, entries and polls that the store reads and writes.

A field has the name of its column; a different name in JSON output is given by `msgspec.field`. The
results of polls that belong to a feed are one value, `FeedState`: the aggregator takes it from the
leased feed, replaces what has changed, and returns it within a `PollOutcome`. `NewSubscription`,
`EntryText` and `PollOutcome` with its parts are inputs; the others are rows of the database. Texts
must be valid Unicode: the `parse` package removes lone surrogates and null characters. Models of
which there are thousands are not tracked by the garbage collector (``gc=False``), which took a
quarter of the time to build a list.
"""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from tidings.document import NO_HINTS, Enclosure, Hints
from tidings.reasons import NO_REASON, Reason
from tidings.reasons import reason as reason_value

#: Way in which an entry was received: by a poll, by a push of a WebSub hub, from an archive (RFC
#: 5005), from a peer, or by an import of a user. "confirmed" is an entry from a peer that a poll by
#: this service or independent peers have confirmed. The stored value for peers is FeedEx's term.
Source: TypeAlias = Literal["poll", "push", "archive", "neighbour", "confirmed", "import"]

#: Id of the user that every new store contains.
DEFAULT_USER_ID = 1


class FeedState(Struct, frozen=True, gc=False):
    """Properties of a feed that polls have found. All fields are written with every poll."""

    title: str = ""
    site_url: str = ""
    format: str = ""
    window: int = 0  #: largest number of entries in any document
    shown: int = 0  #: number of entries in the last document
    oldest_at: float | None = None  #: publication time of the oldest entry in the last document
    #: 1 if a full document dropped entries, so that `window` is the publisher's limit
    dropped: int = 0
    by_age: int = 0  #: number of consecutive documents that dropped entries without being full
    usual_gap_s: float | None = None  #: mean time between two entries of the last document
    next_poll_at: float | None = None  #: time of the next poll, or None for no automatic polls
    reason: Reason = NO_REASON  #: reason of `next_poll_at`
    last_poll_at: float | None = None
    last_ok_at: float | None = None
    errors: int = 0  #: number of consecutive failures
    failing_since: float | None = None
    error_kind: str = ""  #: category for statistics, such as "timeout" or "http 404"
    last_error: str = ""
    etag: str = ""
    last_modified: str = ""
    validators_since: float | None = None
    #: URL to which the validators (ETag, Last-Modified) belong, which may be a redirect target
    validators_url: str = ""
    body_digest: bytes = b""
    #: earliest time of the next poll, including manual polls (Retry-After)
    earliest_at: float | None = None
    #: last interval that the publisher has stated, or 0 for none (see `policy.constraints`)
    stated_s: float = 0.0
    stated_by: int = 0  #: source of `stated_s`
    not_modified: float = 0.0  #: fraction of polls without news that were answered with 304
    document_bytes: float = 0.0  #: bytes transferred for the last full document
    poll_bytes: float = 0.0  #: mean number of bytes transferred by a poll
    #: hours of the week without polls as 168 bits in 21 bytes, Monday first; empty for none
    forbidden: bytes = b""
    moved_to: str = ""  #: target of a permanent redirect that is not accepted yet
    moved_sightings: int = 0
    moved_since: float | None = None
    self_url: str = ""
    hubs: tuple[str, ...] = ()
    hints: Hints = NO_HINTS


class Feed(Struct, frozen=True, gc=False):
    """Feed with its URL, its state and the settings of its subscribers."""

    id: int
    url: str
    added_at: float
    weight: float
    retired_at: float | None
    retired_reason: str = field(name="retired_why")
    min_interval_s: float  #: minimum interval that subscribers have set, or 0
    state: FeedState
    subscribers: int = 1  #: number of subscribers, which is counted only for leased feeds


class FeedSummary(Struct, frozen=True):
    """Feed with the title and folder that a subscriber has given it."""

    feed: Feed
    title: str  #: title that the subscriber has set, or else the feed's title or URL
    folder: str
    entries: int
    newest_at: float | None  #: publication time of the newest entry


class NewSubscription(Struct, frozen=True):
    """Subscription that is to be added."""

    url: str
    first_poll_at: float
    title: str = ""
    folder: str = ""  #: path such as "News/Science", or empty for none
    site_url: str = ""
    reason: Reason = reason_value("added")


class SubscribeResult(Struct, frozen=True):
    """Result of adding a `NewSubscription`."""

    url: str
    feed_id: int
    feed_new: bool
    subscription_new: bool


class EntryText(Struct, frozen=True, gc=False):
    """Entry that is to be stored, with validated dates and sanitized HTML."""

    identity: str
    digest: bytes
    published_at: float  #: declared date if it is plausible, otherwise the time of arrival
    url: str = ""
    title: str = ""
    author: str = ""
    content: str = ""
    summary: str = ""
    text: str = ""  #: `search_text` of the content, or of the summary if there is no content
    declared_published_at: float | None = None  #: date in the document
    updated_at: float | None = None
    comments_url: str = ""
    tags: tuple[str, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()
    #: seconds from publication to arrival; None if unknown (first document of a feed, no date)
    delay_s: float | None = None


class Entry(Struct, frozen=True, gc=False):
    """Entry in the store."""

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
    """Former version of an entry that was changed."""

    replaced_at: float
    digest: bytes
    updated_at: float | None
    url: str
    title: str
    author: str
    content: str
    summary: str


class KnownEntry(Struct, frozen=True):
    """Entry whose identity is known. ``entry_id`` is None if retention deleted the entry."""

    entry_id: int | None
    digest: bytes
    published_at: float | None = None


class Pause(Struct, frozen=True):
    """Host to which no requests are sent until a time, with the reason."""

    host: str
    until: float
    reason: str = field(name="why")


class SuspectedGap(Struct, frozen=True):
    """Period in which entries were probably missed."""

    from_at: float
    until_at: float
    missed: float  #: estimated number of missed entries


class Gap(Struct, frozen=True):
    """Stored period in which entries were missed.

    ``state`` is open, repaired, partly (some entries were recovered) or lost (none can be
    recovered).
    """

    id: int
    feed_id: int
    found_at: float
    from_at: float
    until_at: float
    missed: float = field(name="lost")
    recovered: int
    state: str


class GapRepair(Struct, frozen=True):
    """Gap for which an outcome has entries. The new entries of the outcome count as recovered."""

    gap_id: int
    state: str


class Estimate(Struct, frozen=True):
    """Saved state of a policy for one feed."""

    policy: str
    state: bytes


class PollOutcome(Struct, frozen=True, kw_only=True):
    """All changes by one poll, push or archive page, which are stored in one transaction."""

    feed_id: int
    at: float
    reason: Reason = NO_REASON  #: reason of the poll
    source: Source = "poll"
    host: str = ""  #: host to which the request was sent
    status: int = 0  #: HTTP status, or 0 without a response
    bytes: int = 0
    elapsed_s: float = 0.0
    error_kind: str = ""
    error: str = ""
    entries: int = 0  #: number of entries in the document
    new: tuple[EntryText, ...] = ()
    changed: tuple[EntryText, ...] = ()
    #: identities of all entries in the document, or None if it is unchanged or was not parsed
    document: tuple[str, ...] | None = None
    state: FeedState | None = None  #: new state of the feed, or None for no change
    estimate: Estimate | None = None
    pause: Pause | None = None
    gap: SuspectedGap | None = None
    repair: GapRepair | None = None
    new_url: str = ""  #: new URL of the feed, or empty for no change
    retire_reason: str = ""  #: reason for ending polls of the feed, or empty to continue
    #: ids of the nodes that forwarded new entries from a peer; the last one is the sender
    peer_path: tuple[str, ...] = ()


class RecordResult(Struct, frozen=True):
    """Ids of the new entries and number of the changed entries of a recorded outcome."""

    new: tuple[int, ...]
    changed: int


class Poll(Struct, frozen=True):
    """Row of the poll log."""

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
    missed: float | None = field(name="lost")  #: estimated missed entries, or None without a gap
    reason: Reason
    error_kind: str
    error: str


class Schedule(Struct, frozen=True):
    """New time of the next poll of a feed, with its reason."""

    feed_id: int
    next_poll_at: float | None
    reason: Reason
    #: The new time is written only if the stored poll time still has this value (compare-and-set),
    #: so that a feed that was leased or polled in between does not change.
    expected_poll_at: float | None = None


class PushSubscription(Struct, frozen=True):
    """WebSub subscription of a feed.

    ``state`` is `asked` (requested but not verified), active, refused or ended.
    """

    feed_id: int
    hub: str
    topic: str
    token: str  #: secret part of the callback URL
    secret: str  #: key of the signature (HMAC), or empty
    state: str
    lease_until: float | None = None
    last_push_at: float | None = None
    pushed_count: int = 0  #: number of entries that the hub has pushed
    unpushed_count: int = 0  #: number of entries that only a poll has found


class Period(Struct, frozen=True):
    """Statistics of polls and entries in a period that ends now."""

    polls: int
    bytes: int
    new: int
    delays: int  #: number of entries with a known delay
    delay_p50_s: float | None
    delay_p90_s: float | None
    missed: float = field(name="lost")
    recovered: int


class Status(Struct, frozen=True):
    """Numbers of feeds and entries, and statistics of the last hour, day and week."""

    feeds: int
    retired: int
    failing: int
    due: int
    next_due_at: float | None
    entries: int
    hour: Period
    day: Period
    week: Period
    errors: dict[str, int]  #: number of failing feeds by kind of error
    paused: tuple[Pause, ...]
    polled_days: float  #: days since the first poll

    @property
    def active_feeds(self) -> int:
        """Number of feeds that are not retired."""
        return self.feeds - self.retired


class RetentionResult(Struct, frozen=True):
    """Numbers of entries and polls that `Store.apply_retention` has deleted."""

    entries: int
    polls: int
