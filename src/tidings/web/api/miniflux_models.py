"""JSON models of the Miniflux API, with the extensions of this project.

Names, fields and order are those of Miniflux; extensions are at the end. Options that have no
effect in tidings (stylesheet, scraper rules, ...) are stored per user and returned. docs/api.md
lists the fields that have an effect.

The names of models for creation begin with "New"; `miniflux_options.explicit_options` relies on
that.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, structs

from tidings.model import WEEK_S
from tidings.store.user_models import Priority
from tidings.web.api.common import MAX_SAFE_INTEGER

Id = Annotated[int, Meta(ge=1, le=MAX_SAFE_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
Text = Annotated[str, Meta(max_length=10_000)]
Html = Annotated[str, Meta(max_length=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Url = Annotated[str, Meta(min_length=1, max_length=2000)]
#: Minimum interval in seconds. `ReaderService` checks the operator's minimum.
Interval = Annotated[float, Meta(ge=0, le=WEEK_S)]
#: Last second of the year 9999, the largest time in the format of the API.
MAX_TIME = 253_402_300_799
Status = Literal["read", "unread"]
Order = Literal[
    "id",
    "status",
    "changed_at",
    "published_at",
    "created_at",
    "category_title",
    "category_id",
    "title",
    "author",
]
Theme = Literal[
    "dark_sans_serif",
    "dark_serif",
    "light_sans_serif",
    "light_serif",
    "system_sans_serif",
    "system_serif",
]


class ApiError(Struct):
    error_message: str


class Version(Struct):
    version: str
    commit: str
    build_date: str
    go_version: str
    compiler: str
    arch: str
    os: str


# --- users ----------------------------------------------------------------------------------------


class UserOptions(Struct, kw_only=True):
    """User settings of Miniflux."""

    theme: Theme = "light_serif"
    language: Text = "en_US"
    timezone: Text = "UTC"
    entry_sorting_direction: Literal["asc", "desc"] = "asc"
    entry_sorting_order: Literal["published_at", "created_at"] = "published_at"
    stylesheet: Text = ""
    custom_js: Text = ""
    external_font_hosts: Annotated[str, Meta(pattern=r"^[ \w.:/*-]*$", max_length=1000)] = ""
    entries_per_page: Annotated[int, Meta(ge=1, le=1000)] = 100
    keyboard_shortcuts: bool = True
    show_reading_time: bool = True
    entry_swipe: bool = True
    gesture_nav: Literal["none", "tap", "swipe"] = "tap"
    display_mode: Literal["fullscreen", "standalone", "minimal-ui", "browser"] = "standalone"
    default_reading_speed: Annotated[int, Meta(ge=1, le=10_000)] = 265
    cjk_reading_speed: Annotated[int, Meta(ge=1, le=10_000)] = 500
    default_home_page: Text = "unread"
    categories_sorting_order: Text = "unread_count"
    mark_read_on_view: bool = True
    mark_read_on_media_player_completion: bool = False
    media_playback_rate: Annotated[float, Meta(ge=0.25, le=4)] = 1.0
    block_filter_entry_rules: Text = ""
    keep_filter_entry_rules: Text = ""
    always_open_external_links: bool = False
    open_external_links_in_new_tab: bool = True


class User(UserOptions, kw_only=True):
    id: int
    username: str
    is_admin: bool
    google_id: str = ""
    openid_connect_id: str = ""
    last_login_at: datetime | None


class NewUser(Struct, kw_only=True):
    username: Name
    password: Annotated[str, Meta(min_length=1, max_length=256)]
    is_admin: bool = False
    google_id: Text = ""
    openid_connect_id: Text = ""


def _optional(name: str, options: type[Struct], own: list[tuple[str, Any, Any]]) -> type[Struct]:
    """Define a model for partial updates, in which null leaves a field unchanged."""
    fields = [(field.name, field.type | None, None) for field in structs.fields(options)]
    return defstruct(name, [*own, *fields], module=__name__, kw_only=True)


UserChange = _optional(
    "UserChange",
    UserOptions,
    [
        ("username", Name | None, None),
        ("password", Annotated[str, Meta(min_length=1, max_length=256)] | None, None),
        ("is_admin", bool | None, None),
    ],
)


class ApiKey(Struct, kw_only=True):
    """API token. `token` is the secret, filled only in the response that creates the token."""

    id: int
    user_id: int
    token: str
    description: str
    last_used_at: datetime | None
    created_at: datetime


class NewApiKey(Struct):
    description: Name


class Integrations(Struct):
    has_integrations: bool


# --- categories and feeds -------------------------------------------------------------------------


class Category(Struct, kw_only=True, gc=False):
    id: int
    title: str
    user_id: int
    hide_globally: bool
    feed_count: int | UnsetType = UNSET
    total_unread: int | UnsetType = UNSET


class NewCategory(Struct):
    title: Name
    hide_globally: bool = False


class CategoryChange(Struct):
    title: Name | None = None
    hide_globally: bool | None = None


class FeedIcon(Struct, gc=False):
    feed_id: int
    icon_id: int  #: id of the icon, 0 if there is none
    external_icon_id: str = ""


class Icon(Struct):
    id: int
    mime_type: str
    data: str


class FeedOptions(Struct, kw_only=True):
    """Feed settings of Miniflux."""

    scraper_rules: Text = ""
    rewrite_rules: Text = ""
    urlrewrite_rules: Text = ""
    blocklist_rules: Text = ""
    keeplist_rules: Text = ""
    block_filter_entry_rules: Text = ""
    keep_filter_entry_rules: Text = ""
    user_agent: Text = ""
    cookie: Text = ""
    username: Text = ""
    password: Text = ""
    disabled: bool = False
    no_media_player: bool = False
    ignore_http_cache: bool = False
    allow_self_signed_certificates: bool = False
    fetch_via_proxy: bool = False
    hide_globally: bool = False
    disable_http2: bool = False
    ignore_entry_updates: bool = False
    proxy_url: Text = ""


class Feed(FeedOptions, kw_only=True, gc=False):
    id: int
    user_id: int
    feed_url: str
    site_url: str
    title: str
    description: str = ""
    language: str = ""
    checked_at: datetime
    next_check_at: datetime
    etag_header: str
    last_modified_header: str
    parsing_error_message: str
    parsing_error_count: int
    crawler: bool
    pushover_enabled: bool = False
    pushover_priority: int = 0
    ntfy_enabled: bool = False
    ntfy_priority: int = 0
    ntfy_topic: str = ""
    apprise_service_urls: str = ""
    webhook_url: str = ""
    category: Category
    icon: FeedIcon
    priority: Priority  #: extension: "early" is high priority, "late" is low priority
    min_interval_s: float  #: extension: minimum poll interval set by the user; 0 is automatic


class NewFeed(FeedOptions, kw_only=True):
    feed_url: Url
    category_id: Count = 0
    crawler: bool = False
    priority: Priority = "normal"
    min_interval_s: Interval = 0


FeedChange = _optional(
    "FeedChange",
    FeedOptions,
    [
        ("feed_url", Url | None, None),
        ("site_url", Url | None, None),
        ("title", Name | None, None),
        ("description", Text | None, None),
        ("category_id", Id | None, None),
        ("crawler", bool | None, None),
        ("priority", Priority | None, None),
        ("min_interval_s", Interval | None, None),
    ],
)


class NewFeedId(Struct):
    feed_id: int


class Counters(Struct):
    reads: dict[str, int]
    unreads: dict[str, int]


class Site(Struct, kw_only=True):
    url: Url


class DiscoveredFeed(Struct):
    title: str
    url: str
    type: str


class ImportResult(Struct):
    message: str


# --- entries --------------------------------------------------------------------------------------


class Enclosure(Struct, kw_only=True):
    id: int
    user_id: int
    entry_id: int
    url: str
    mime_type: str
    size: int
    media_progression: int


class Progress(Struct):
    media_progression: Count


class Entry(Struct, kw_only=True, gc=False):
    id: int
    user_id: int
    feed_id: int
    status: Status
    hash: str
    title: str
    url: str
    comments_url: str
    language: str = ""
    published_at: datetime
    created_at: datetime
    changed_at: datetime
    content: str
    author: str
    share_code: str = ""
    starred: bool
    reading_time: int
    enclosures: list[Enclosure]
    feed: Feed | UnsetType = UNSET  #: feed of the entry, missing for unsubscribed feeds
    tags: list[str]
    rating: int  #: extension: 1 to 5, or 0 without a rating
    own_tags: list[str]  #: extension: tags of the user; `tags` are those of the publisher


class Entries(Struct):
    total: int
    entries: list[Entry]


class EntryIds(Struct):
    total: int
    entry_ids: list[int]


class EntriesUpdate(Struct, kw_only=True):
    """Change of the read, starred, rating or tag state of entries.

    Rating and tags are extensions.
    """

    entry_ids: Annotated[list[Id], Meta(min_length=1, max_length=10_000)]
    status: Literal["read", "unread", ""] = ""
    starred: bool | None = None
    rating: Annotated[int, Meta(ge=0, le=5)] | None = None
    add_tags: Annotated[list[Name], Meta(max_length=100)] = []
    remove_tags: Annotated[list[Name], Meta(max_length=100)] = []


class EntryChange(Struct, kw_only=True):
    """Replacement of title or content, visible only to the user who made it."""

    title: Text | None = None
    content: Html | None = None


class NewEntry(Struct, kw_only=True):
    """Entry to import into a feed, visible only to the user who imports it.

    An entry with the same ``external_id``, or without one the same ``url``, is imported once.
    ``published_at`` is in seconds; 0 is the time of the import.
    """

    url: Url
    title: Text = ""
    content: Html = ""
    author: Text = ""
    comments_url: Annotated[str, Meta(max_length=2000)] = ""
    published_at: Annotated[int, Meta(ge=0, le=MAX_TIME)] = 0
    status: Literal["read", "unread", ""] = ""
    starred: bool = False
    tags: Annotated[list[Name], Meta(max_length=100)] = []
    external_id: Annotated[str, Meta(max_length=2000)] = ""


class NewEntryId(Struct):
    id: int


class Content(Struct):
    content: str
    reading_time: int


class EntriesQuery(Struct, kw_only=True):
    """Filter, order and page of a list of entries."""

    status: list[Status] = []
    starred: str = ""
    order: Order = "published_at"
    direction: Literal["asc", "desc"] = "asc"
    limit: Count = 100
    offset: Count = 0
    before: Count = 0
    after: Count = 0
    published_before: Count = 0
    published_after: Count = 0
    changed_before: Count = 0
    changed_after: Count = 0
    before_entry_id: Count = 0
    after_entry_id: Count = 0
    category_id: Count = 0
    feed_id: Count = 0
    tags: list[str] = []
    search: Text = ""
    globally_visible: str = ""


class IdsQuery(Struct, kw_only=True):
    starred: Literal["true", "false"] | None = None
    status: Status | None = None
    limit: Count = 0
    offset: Count = 0


class CategoriesQuery(Struct):
    counts: str = ""
