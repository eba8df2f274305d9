"""The values of those who read: users, their subscriptions, what they ask for (`Stream`), and what they get (`Item`)."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from tidings.store.evidence import Evidence
from tidings.store.feed_models import Entry, Feed

Priority: TypeAlias = Literal["early", "normal", "late"]
#: "Always early", "normal", "can wait": what one subscriber adds to a feed's weight in the policy.
PRIORITY_WEIGHT: dict[Priority, float] = {"early": 4.0, "normal": 1.0, "late": 0.25}


class User(Struct, frozen=True):
    """Somebody who reads here."""

    id: int
    name: str
    admin: bool
    created_at: float | None  #: None: since the store was made
    seen_at: float | None  #: when they last logged in


class Settings(Struct, frozen=True, omit_defaults=True):
    """What a user has chosen; stored as one JSON value, so that a new field needs no migration."""

    theme: Literal["auto", "light", "dark"] = "auto"
    order: Literal["arrival", "publication"] = "publication"
    oldest_first: bool = False
    page_size: int = 50
    mark_on_scroll: bool = False
    deduplicate: bool = True  #: a story that came by another feed before arrives as read
    image_proxy: bool = False
    renewals: int = 0  #: how often the addresses of all output feeds were made new
    timezone: str = "UTC"
    alert_urls: tuple[str, ...] = ()  #: as Apprise writes them: ntfy://..., mailto://...
    webhook_url: str = ""  #: all that is new is posted there, and what is saved
    webhook_secret: str = ""
    quiet_from: int = (
        0  #: hours of the user's day in which nobody is alerted; the same twice means none
    )
    quiet_until: int = 0
    #: What clients of the Miniflux API have set and we have no use for, to be given back: by kind ("user", "feeds",
    #: "categories", "enclosures"), then by name or id.
    miniflux_options: dict[str, dict[str, Any]] = {}


class Token(Struct, frozen=True):
    """A secret that an app has in place of a password. The secret itself is not kept."""

    id: int
    label: str
    created_at: float
    used_at: float | None
    expires_at: float | None


class Totals(Struct, frozen=True):
    """Of all that a user is subscribed to."""

    feeds: int
    unread: int
    failing: int
    refreshed_at: float  #: the last poll of any that went well; 0: none
    starred: int


class Folder(Struct, frozen=True):
    """A place for subscriptions; the name may be a path such as "News/Science"."""

    id: int
    name: str
    feeds: int
    unread: int


class Subscription(Struct, frozen=True, gc=False):
    """A feed as its subscriber sees it; what polls have taught (errors, site, next poll) is in ``feed.state``."""

    feed: Feed
    title: str  #: the subscriber's own, else the feed's, else its address
    folder_id: int | None
    folder: str  #: its name; nothing is the top
    priority: Priority
    full_text: bool  #: articles are fetched from the site
    added_at: float
    unread: int
    newest_unread_at: float | None  #: when the newest unread entry arrived
    has_icon: bool
    min_interval_s: float = 0.0  #: between two polls, as the subscriber has set it; 0: automatic


class Icon(Struct, frozen=True):
    """A feed's little picture."""

    type: str  #: such as image/png
    data: bytes


class Stream(Struct, frozen=True, kw_only=True):
    """Which entries, and in which order: everything that a page or an API can ask for.

    ``feeds`` and ``folders`` together name the sources (an entry of any of them; neither means all subscriptions), less
    ``not_feeds`` and ``not_folders``. All other conditions must hold at once. Times are in seconds; ``_from`` is inclusive,
    ``_until`` exclusive. Starred and tagged entries are also found when their feed is no longer subscribed to, as long as no
    source is named.
    """

    feeds: tuple[int, ...] = ()
    folders: tuple[int, ...] = ()  #: ids; 0 stands for the feeds that are in none
    not_feeds: tuple[int, ...] = ()
    not_folders: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()  #: all of these
    not_tags: tuple[str, ...] = ()  #: none of these
    unread: bool | None = None
    starred: bool | None = None
    search: str = ""  #: as typed: words, "a phrase", -word, pre*
    seen_from: float | None = None  #: of arrival
    seen_until: float | None = None
    published_from: float | None = None
    published_until: float | None = None
    above_id: int | None = None  #: exclusive bounds on the entry's id
    below_id: int | None = None
    by: Literal["arrival", "publication"] = "arrival"
    oldest_first: bool = False


class Item(Struct, frozen=True, gc=False):
    """An entry with one user's marks."""

    entry: Entry  #: ``content`` is the full text where that was wanted and could be had
    unread: bool
    starred_at: float | None
    read_at: float | None  #: when this entry was marked read by itself, not with all others
    rating: int  #: 1 to 5; 0 is none
    tags: tuple[str, ...]
    duplicates: tuple[int, ...]  #: entries of other subscribed feeds that tell the same story

    @property
    def starred(self) -> bool:
        return self.starred_at is not None


class Page(Struct, frozen=True):
    """A part of a stream. ``next`` is what the following part begins after; None: there is none."""

    items: tuple[Item, ...]
    next: str | None


class IdPage(Struct, frozen=True):
    """As `Page`, but the entries' ids alone."""

    ids: tuple[int, ...]
    next: str | None


class Tag(Struct, frozen=True):
    """A tag of a user's own, as opposed to those that publishers give."""

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
    """What happens to entries when they arrive. All conditions that are given must hold; none given means every entry."""

    id: int = 0
    name: str = ""
    action: Action
    tag: str = ""  #: for the action "tag"
    words: str = (
        ""  #: any of these words or "phrases" stands in title or text; case does not matter
    )
    author: str = ""  #: a part of the author's name
    feed_id: int | None = None
    regex: str = ""  #: found in the title or the beginning of the text


class DailyReading(Struct, frozen=True):
    """What was read on one day (UTC)."""

    day: float  #: its beginning
    read: int
    starred: int


class FeedUsage(Struct, frozen=True):
    """How one subscription is used."""

    feed_id: int
    new_entries: int
    read: int
    starred: int
    delay_p50_s: float | None  #: from publication to arrival


class Statistics(Struct, frozen=True):
    """What a user read, and how fast it reached them, in the last days."""

    since: float
    new_entries: int
    read: int
    starred: int
    delay_p50_s: (
        float | None
    )  #: from publication to arrival; None where there is too little history
    delay_p90_s: float | None
    time_to_read_p50_s: float | None  #: from arrival until it was read
    days: tuple[DailyReading, ...]
    feeds: tuple[FeedUsage, ...]  #: the most read first
    evidence: Evidence


class Suggestion(Struct, frozen=True):
    """A feed, or only a site, that this user may like, and why in words."""

    url: str
    title: str
    feed_id: int | None
    reason: str


#: An alert by a rule, or what Miniflux calls the events of its webhooks.
NotificationKind: TypeAlias = Literal["alert", "new_entries", "save_entry"]


class Delivery(Struct, frozen=True):
    """A message that is on its way to one address of a user."""

    id: int
    user_id: int
    kind: NotificationKind
    target: str
    made_at: float
    tries: int  #: with the one under way
    body: str
    next_at: float  #: when it is tried again; never: infinity
    problem: str  #: why the last try failed
