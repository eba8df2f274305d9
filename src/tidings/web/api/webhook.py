"""Encode webhook messages in Miniflux's format."""

from collections.abc import Sequence

import msgspec

from tidings.redaction import redact_password
from tidings.store.user_models import Item, NotificationKind, Settings, Subscription
from tidings.web.api import miniflux_entries as miniflux

#: Fields of a feed in a webhook message. Other fields may contain the user's secrets.
FEED_FIELDS = ("id", "user_id", "feed_url", "site_url", "title", "checked_at")


def encode_event(
    kind: NotificationKind,
    user_id: int,
    settings: Settings,
    subscription: Subscription,
    items: Sequence[Item],
) -> bytes:
    """Return a ``new_entries`` or ``save_entry`` event of one feed as JSON."""
    feed = miniflux.feed(user_id, subscription, settings.miniflux_options)
    category = {"id": feed.category.id, "title": feed.category.title}
    feed_payload = {"category_id": feed.category.id, "category": category} | {
        name: getattr(feed, name) for name in FEED_FIELDS
    }
    feed_payload["feed_url"] = redact_password(feed.feed_url)
    entries = [miniflux.entry(item, user_id, {}, settings.miniflux_options) for item in items]
    if kind == "save_entry":
        return msgspec.json.encode(
            {"event_type": kind, "entry": {**msgspec.to_builtins(entries[0]), "feed": feed_payload}}
        )
    return msgspec.json.encode({"event_type": kind, "feed": feed_payload, "entries": entries})
