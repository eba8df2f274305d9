"""Models of users, their settings and subscriptions, and queries for entries (`Stream`)."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from tidings.store.evidence import Evidence
from tidings.store.feed_models import Entry, Feed

Priority: TypeAlias = Literal["early", "normal", "late"]
#: Weight that one subscription adds to a feed's weight in the policy, by the priority of the
#: subscription (high, normal, low).
PRIORITY_WEIGHT: dict[Priority, float] = {"early": 4.0, "normal": 1.0, "late": 0.25}


class User(Struct, frozen=True):
    """User account."""

    id: int
    name: str
    admin: bool
    created_at: float | None  #: time of creation, or None for the initial user of the store
    seen_at: float | None  #: time of the last login


class Settings(Struct, frozen=True, omit_defaults=True):
    """Settings of a user, stored as one JSON value so that a new field needs no migration."""

    theme: Literal["auto", "light", "dark"] = "auto"
    order: Literal["arrival", "publication"] = "publication"
    oldest_first: bool = False
    page_size: int = 50
    mark_on_scroll: bool = False
    #: whether an entry is marked as read if another feed had a duplicate before
    deduplicate: bool = field(default=True, name="fold_duplicates")
    image_proxy: bool = False
    renewals: int = 0  #: number of times that the URLs of the output feeds were reset
    timezone: str = "UTC"
    alert_urls: tuple[str, ...] = ()  #: Apprise URLs such as ntfy://... and mailto://...
    webhook_url: str = ""  #: URL that receives new and saved entries
    webhook_secret: str = ""
    #: start and end of the quiet hours in the user's time zone; equal hours mean none
    quiet_from: int = 0
    quiet_until: int = 0
    #: Options that clients of the Miniflux API set and tidings does not use. They are stored to be
    #: returned, by kind ("user", "feeds", "categories", "enclosures"), then by name or id.
    miniflux_options: dict[str, dict[str, Any]] = field(default_factory=dict, name="kept")


class Token(Struct, frozen=True):
    """App token, used instead of a password. Only its hash is stored."""

    id: int
    label: str
    created_at: float
    used_at: float | None
    expires_at: float | None


class Totals(Struct, frozen=True):
    """Total numbers over a user's subscriptions."""

    feeds: int
    unread: int
    failing: int
    refreshed_at: float  #: time of the last successful poll of any feed, or 0
    starred: int


class Folder(Struct, frozen=True):
    """Folder of subscriptions. The name may be a path such as "News/Science"."""

    id: int
    name: str
    feeds: int
    unread: int


class Subscription(Struct, frozen=True, gc=False):
    """Subscription of a user to a feed. The results of polls are in ``feed.state``."""

    feed: Feed
    title: str  #: title that the subscriber has set, or else the feed's title or URL
    folder_id: int | None
    folder: str  #: name of the folder, or empty for none
    priority: Priority
    full_text: bool  #: whether full texts are fetched from the site
    added_at: float
    unread: int
    newest_unread_at: float | None  #: time of arrival of the newest unread entry
    has_icon: bool
    min_interval_s: float = 0.0  #: minimum time between polls that the user has set, or 0


class Icon(Struct, frozen=True):
    """Favicon of a feed."""

    type: str  #: media type
    data: bytes


class Stream(Struct, frozen=True, kw_only=True):
    """Query for entries with filters and order, for pages and APIs.

    ``feeds`` and ``folders`` together select the sources (an entry of any of them; if both are
    empty, all subscriptions), without ``not_feeds`` and ``not_folders``. All other conditions must
    be true at once. Times are in seconds; ``_from`` is inclusive, ``_until`` exclusive. Starred and
    tagged entries of feeds that the user unsubscribed from are included if no source is selected.
    """

    feeds: tuple[int, ...] = ()
    folders: tuple[int, ...] = ()  #: ids of folders, where 0 selects feeds without a folder
    not_feeds: tuple[int, ...] = ()
    not_folders: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()  #: all of these must be set
    not_tags: tuple[str, ...] = ()  #: none of these may be set
    unread: bool | None = None
    starred: bool | None = None
    search: str = ""  #: search query such as words, "a phrase", -word, pre*
    seen_from: float | None = None  #: earliest time of arrival
    seen_until: float | None = None
    published_from: float | None = None
    published_until: float | None = None
    above_id: int | None = None  #: lower bound of the entry's id, exclusive
    below_id: int | None = None
    by: Literal["arrival", "publication"] = "arrival"
    oldest_first: bool = False


class Item(Struct, frozen=True, gc=False):
    """Entry with its state for one user."""

    entry: Entry  #: entry whose ``content`` is the full text if the user has chosen full texts
    unread: bool
    starred_at: float | None
    read_at: float | None  #: time at which the entry was marked as read individually
    rating: int  #: rating from 1 to 5, or 0 for none
    tags: tuple[str, ...]
    duplicates: tuple[int, ...]  #: ids of duplicates in other subscribed feeds

    @property
    def starred(self) -> bool:
        return self.starred_at is not None


class Page(Struct, frozen=True):
    """Page of a stream. ``next`` is the cursor of the next page, or None on the last page."""

    items: tuple[Item, ...]
    next: str | None


class IdPage(Struct, frozen=True):
    """Page of a stream with only the ids of the entries (see `Page`)."""

    ids: tuple[int, ...]
    next: str | None


class Tag(Struct, frozen=True):
    """Tag that a user has added, as opposed to the tags of publishers."""

    name: str
    entries: int
    unread: int


class SavedSearch(Struct, frozen=True):
    """Stream with a name."""

    id: int
    name: str
    stream: Stream


Action: TypeAlias = Literal["mute", "read", "star", "tag", "alert"]


class Rule(Struct, frozen=True, kw_only=True):
    """Rule for new entries, which matches an entry if all conditions of the rule are true.

    A rule without conditions matches every entry.
    """

    id: int = 0
    name: str = ""
    action: Action
    tag: str = ""  #: tag to add by the action "tag"
    words: str = ""  #: words or "phrases", one of which is in title or text, ignoring case
    author: str = ""  #: text that the author's name must contain
    feed_id: int | None = None
    regex: str = ""  #: regular expression that matches the title or the beginning of the text


class DailyReading(Struct, frozen=True):
    """Numbers of entries that a user read and starred on one day (UTC)."""

    day: float  #: start of the day
    read: int
    starred: int


class FeedUsage(Struct, frozen=True):
    """Reading statistics of one subscription."""

    feed_id: int
    new_entries: int
    read: int
    starred: int
    delay_p50_s: float | None  #: median time from publication to arrival


class Statistics(Struct, frozen=True):
    """Reading statistics of a user, with the delays of new entries."""

    since: float
    new_entries: int
    read: int
    starred: int
    #: median time from publication to arrival, or None if there is not enough history
    delay_p50_s: float | None
    delay_p90_s: float | None
    time_to_read_p50_s: float | None  #: median time from arrival to reading
    days: tuple[DailyReading, ...]
    feeds: tuple[FeedUsage, ...]  #: statistics by feed, with the most read feed first
    evidence: Evidence


class Suggestion(Struct, frozen=True):
    """Recommended feed or site, with the reason as text."""

    url: str
    title: str
    feed_id: int | None
    reason: str


#: Kind of a notification, which is an alert by a rule or a webhook event of Miniflux.
NotificationKind: TypeAlias = Literal["alert", "new_entries", "save_entry"]


class Delivery(Struct, frozen=True):
    """Message to one address of a user that was not accepted yet."""

    id: int
    user_id: int
    kind: NotificationKind
    target: str
    made_at: float
    tries: int  #: number of attempts, including the current one
    body: str
    next_at: float  #: time of the next attempt, or infinity for an abandoned delivery
    problem: str  #: error of the last attempt
