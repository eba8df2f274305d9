"""What a webhook is posted, in Miniflux's words."""

from collections.abc import Sequence

import msgspec

from tidings.redaction import redact_password
from tidings.store.user_models import Item, NotificationKind, Settings, Subscription
from tidings.web.api import miniflux_entries as miniflux

#: What the receiver of a webhook is told of a feed; other fields may hold what only its reader shall know.
FEED = ("id", "user_id", "feed_url", "site_url", "title", "checked_at")


def event(
    kind: NotificationKind,
    user_id: int,
    settings: Settings,
    subscription: Subscription,
    items: Sequence[Item],
) -> bytes:
    """New entries of a feed, or one that its user wants to have elsewhere."""
    feed = miniflux.feed(user_id, subscription, settings.miniflux_options)
    category = {"id": feed.category.id, "title": feed.category.title}
    about = {"category_id": feed.category.id, "category": category} | {
        name: getattr(feed, name) for name in FEED
    }
    about["feed_url"] = redact_password(feed.feed_url)
    entries = [miniflux.entry(item, user_id, {}, settings.miniflux_options) for item in items]
    if kind == "save_entry":
        return msgspec.json.encode(
            {"event_type": kind, "entry": {**msgspec.to_builtins(entries[0]), "feed": about}}
        )
    return msgspec.json.encode({"event_type": kind, "feed": about, "entries": entries})
