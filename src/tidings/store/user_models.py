"""Models of users: settings, subscriptions, queries (`Stream`) and their results (`Item`)."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from tidings.store.evidence import Evidence
from tidings.store.feed_models import Entry, Feed

Priority: TypeAlias = Literal["early", "normal", "late"]
#: What one subscription adds to a feed's weight in the policy, by its priority (high, normal, low).
PRIORITY_WEIGHT: dict[Priority, float] = {"early": 4.0, "normal": 1.0, "late": 0.25}


class User(Struct, frozen=True):
    """A user account."""

    id: int
    name: str
    admin: bool
    created_at: float | None  #: None: created with the store
    seen_at: float | None  #: last login


class Settings(Struct, frozen=True, omit_defaults=True):
    """Settings of a user; stored as one JSON value, so that a new field needs no migration."""

    theme: Literal["auto", "light", "dark"] = "auto"
    order: Literal["arrival", "publication"] = "publication"
    oldest_first: bool = False
    page_size: int = 50
    mark_on_scroll: bool = False
    #: mark an entry as read when another feed had a duplicate of it before
    deduplicate: bool = field(default=True, name="fold_duplicates")
    image_proxy: bool = False
    renewals: int = 0  #: how often the URLs of the output feeds were reset
    timezone: str = "UTC"
    alert_urls: tuple[str, ...] = ()  #: Apprise URLs: ntfy://..., mailto://...
    webhook_url: str = ""  #: receives new and saved entries
    webhook_secret: str = ""
    #: quiet hours, in the user's time zone; equal hours mean none
    quiet_from: int = 0
    quiet_until: int = 0
    #: Options that clients of the Miniflux API set and tidings does not use, stored to be returned:
    #: by kind ("user", "feeds", "categories", "enclosures"), then by name or id.
    miniflux_options: dict[str, dict[str, Any]] = field(default_factory=dict, name="kept")


class Token(Struct, frozen=True):
    """An app token, used instead of a password. Only its hash is stored."""

    id: int
    label: str
    created_at: float
    used_at: float | None
    expires_at: float | None


class Totals(Struct, frozen=True):
    """Totals of a user's subscriptions."""

    feeds: int
    unread: int
    failing: int
    refreshed_at: float  #: last successful poll of any feed; 0: none
    starred: int


class Folder(Struct, frozen=True):
    """A folder of subscriptions; the name may be a path such as "News/Science"."""

    id: int
    name: str
    feeds: int
    unread: int


class Subscription(Struct, frozen=True, gc=False):
    """A user's subscription to a feed; the results of polls are in ``feed.state``."""

    feed: Feed
    title: str  #: set by the subscriber, else the feed's, else its URL
    folder_id: int | None
    folder: str  #: its name; empty for none
    priority: Priority
    full_text: bool  #: whether full texts are fetched from the site
    added_at: float
    unread: int
    newest_unread_at: float | None  #: arrival of the newest unread entry
    has_icon: bool
    min_interval_s: float = 0.0  #: minimum time between polls, set by the user; 0: automatic


class Icon(Struct, frozen=True):
    """The favicon of a feed."""

    type: str  #: media type
    data: bytes


class Stream(Struct, frozen=True, kw_only=True):
    """A query for entries: filters and order, for pages and APIs.

    ``feeds`` and ``folders`` together select the sources (an entry of any of them; if both are
    empty, all subscriptions), without ``not_feeds`` and ``not_folders``. All other conditions must
    hold at once. Times are in seconds; ``_from`` is inclusive, ``_until`` exclusive. Starred and
    tagged entries of feeds that the user unsubscribed from are included if no source is selected.
    """

    feeds: tuple[int, ...] = ()
    folders: tuple[int, ...] = ()  #: ids; 0 selects feeds without a folder
    not_feeds: tuple[int, ...] = ()
    not_folders: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()  #: all of these must be set
    not_tags: tuple[str, ...] = ()  #: none of these may be set
    unread: bool | None = None
    starred: bool | None = None
    search: str = ""  #: search query: words, "a phrase", -word, pre*
    seen_from: float | None = None  #: time of arrival
    seen_until: float | None = None
    published_from: float | None = None
    published_until: float | None = None
    above_id: int | None = None  #: exclusive bounds on the entry's id
    below_id: int | None = None
    by: Literal["arrival", "publication"] = "arrival"
    oldest_first: bool = False


class Item(Struct, frozen=True, gc=False):
    """An entry with its state for one user."""

    entry: Entry  #: ``content`` is the full text if the user wants it and it was fetched
    unread: bool
    starred_at: float | None
    read_at: float | None  #: when it was marked as read individually, not with all others
    rating: int  #: 1 to 5; 0: none
    tags: tuple[str, ...]
    duplicates: tuple[int, ...]  #: ids of duplicates in other subscribed feeds

    @property
    def starred(self) -> bool:
        return self.starred_at is not None


class Page(Struct, frozen=True):
    """A page of a stream. ``next`` is the cursor of the next page, None on the last one."""

    items: tuple[Item, ...]
    next: str | None


class IdPage(Struct, frozen=True):
    """As `Page`, but only the ids of the entries."""

    ids: tuple[int, ...]
    next: str | None


class Tag(Struct, frozen=True):
    """A tag that a user added, as opposed to the tags of publishers."""

    name: str
    entries: int
    unread: int


class SavedSearch(Struct, frozen=True):
    """A stream with a name."""

    id: int
    name: str
    stream: Stream


Action: TypeAlias = Literal["mute", "read", "star", "tag", "alert"]


class Rule(Struct, frozen=True, kw_only=True):
    """A rule for new entries. All its conditions must hold; without conditions it matches all."""

    id: int = 0
    name: str = ""
    action: Action
    tag: str = ""  #: for the action "tag"
    words: str = ""  #: any of these words or "phrases" is in title or text, ignoring case
    author: str = ""  #: part of the author's name
    feed_id: int | None = None
    regex: str = ""  #: matches in the title or the beginning of the text


class DailyReading(Struct, frozen=True):
    """Entries read and starred on one day (UTC)."""

    day: float  #: its start
    read: int
    starred: int


class FeedUsage(Struct, frozen=True):
    """Reading statistics of one subscription."""

    feed_id: int
    new_entries: int
    read: int
    starred: int
    delay_p50_s: float | None  #: from publication to arrival


class Statistics(Struct, frozen=True):
    """Reading statistics of a user, with the delays of new entries."""

    since: float
    new_entries: int
    read: int
    starred: int
    #: from publication to arrival; None if there is not enough history
    delay_p50_s: float | None
    delay_p90_s: float | None
    time_to_read_p50_s: float | None  #: from arrival until read
    days: tuple[DailyReading, ...]
    feeds: tuple[FeedUsage, ...]  #: most read first
    evidence: Evidence


class Suggestion(Struct, frozen=True):
    """A recommended feed or site, with the reason as text."""

    url: str
    title: str
    feed_id: int | None
    reason: str


#: An alert by a rule, or the webhook events of Miniflux.
NotificationKind: TypeAlias = Literal["alert", "new_entries", "save_entry"]


class Delivery(Struct, frozen=True):
    """A message to one address of a user, until it is accepted."""

    id: int
    user_id: int
    kind: NotificationKind
    target: str
    made_at: float
    tries: int  #: attempts, including the current one
    body: str
    next_at: float  #: next attempt; infinity: abandoned
    problem: str  #: error of the last attempt
