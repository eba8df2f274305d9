"""Miniflux's API (v1), which is our own REST API too, with additions beside it: one table of all operations."""

import platform

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings import __version__
from tidings.web.api import extensions, openapi, rest
from tidings.web.api import miniflux_entries as entry_handlers
from tidings.web.api import miniflux_feeds as feed_handlers
from tidings.web.api import miniflux_models as values
from tidings.web.api import miniflux_users as user_handlers
from tidings.web.api.common import text
from tidings.web.api.rest import Call, operation
from tidings.web.request_context import Site


async def get_version(call: Call) -> values.Version:
    """The fields are Miniflux's; what is Go there is Python here."""
    python = f"python {platform.python_version()}"
    compiler, arch, system = (
        platform.python_implementation(),
        platform.machine(),
        platform.system().lower(),
    )
    return values.Version(
        __version__, "tidings", "unknown", python, compiler, arch or "unknown", system or "unknown"
    )


async def get_integrations(call: Call) -> values.Integrations:
    return values.Integrations(bool((await call.site.user_service.settings(call.user)).webhook_url))


OPERATIONS = [
    operation("GET", "/v1/me", user_handlers.get_me, "Who am I?"),
    operation("GET", "/v1/users", user_handlers.get_users, "All users", admin=True),
    operation(
        "POST",
        "/v1/users",
        user_handlers.add_user,
        "Add a user",
        body=values.NewUser,
        status=201,
        admin=True,
    ),
    operation(
        "PUT",
        "/v1/users/{user}",
        user_handlers.change_user,
        "Change a user",
        body=values.UserChange,
        status=201,
    ),
    operation(
        "DELETE",
        "/v1/users/{user}",
        user_handlers.remove_user,
        "Remove a user with all that is theirs",
        status=204,
        admin=True,
    ),
    operation(
        "PUT",
        "/v1/users/{user_id}/mark-all-as-read",
        user_handlers.mark_all_read,
        "Mark everything read",
        status=204,
    ),
    operation(
        "GET", "/v1/users/{user}", user_handlers.get_user, "A user, by number or name", admin=True
    ),
    operation(
        "GET", "/v1/api-keys", user_handlers.get_keys, "Tokens of apps, without their secrets"
    ),
    operation(
        "POST",
        "/v1/api-keys",
        user_handlers.add_key,
        "A new token",
        body=values.NewApiKey,
        status=201,
    ),
    operation(
        "DELETE", "/v1/api-keys/{key_id}", user_handlers.remove_key, "Take a token back", status=204
    ),
    operation(
        "GET",
        "/v1/categories",
        feed_handlers.get_categories,
        "All categories",
        query=values.CategoriesQuery,
    ),
    operation(
        "POST",
        "/v1/categories",
        feed_handlers.add_category,
        "Add a category",
        body=values.NewCategory,
        status=201,
    ),
    operation(
        "PUT",
        "/v1/categories/{category_id}",
        feed_handlers.change_category,
        "Rename or hide a category",
        body=values.CategoryChange,
        status=201,
    ),
    operation(
        "DELETE",
        "/v1/categories/{category_id}",
        feed_handlers.remove_category,
        "Remove a category; its feeds stay",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/categories/{category_id}/mark-all-as-read",
        feed_handlers.mark_category_read,
        "Mark a category read",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/categories/{category_id}/refresh",
        feed_handlers.refresh_category,
        "Look at the feeds that are due",
        status=204,
    ),
    operation(
        "GET",
        "/v1/categories/{category_id}/feeds",
        feed_handlers.get_category_feeds,
        "The feeds of a category",
    ),
    operation(
        "GET",
        "/v1/categories/{category_id}/entries",
        entry_handlers.get_category_entries,
        "The entries of a category",
        query=values.EntriesQuery,
    ),
    operation(
        "GET",
        "/v1/categories/{category_id}/entries/{entry_id}",
        entry_handlers.get_entry,
        "An entry of a category",
    ),
    operation(
        "POST",
        "/v1/discover",
        feed_handlers.discover_feeds,
        "The feeds of a site",
        body=values.Site,
    ),
    operation("GET", "/v1/feeds", feed_handlers.get_feeds, "All subscriptions"),
    operation(
        "POST",
        "/v1/feeds",
        feed_handlers.add_feed,
        "Subscribe to a feed",
        body=values.NewFeed,
        status=201,
    ),
    operation(
        "GET",
        "/v1/feeds/counters",
        feed_handlers.get_counters,
        "Read and unread entries of each feed",
    ),
    operation(
        "PUT",
        "/v1/feeds/refresh",
        feed_handlers.refresh_feeds,
        "Look at the feeds that are due",
        status=204,
    ),
    operation("GET", "/v1/feeds/{feed_id}", feed_handlers.get_feed, "A subscription"),
    operation(
        "PUT",
        "/v1/feeds/{feed_id}",
        feed_handlers.change_feed,
        "Change a subscription",
        body=values.FeedChange,
        status=201,
    ),
    operation(
        "DELETE", "/v1/feeds/{feed_id}", feed_handlers.remove_feed, "Unsubscribe", status=204
    ),
    operation(
        "PUT",
        "/v1/feeds/{feed_id}/refresh",
        feed_handlers.refresh_feed,
        "Look at a feed now",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/feeds/{feed_id}/mark-all-as-read",
        feed_handlers.mark_feed_read,
        "Mark a feed read",
        status=204,
    ),
    operation("GET", "/v1/feeds/{feed_id}/icon", feed_handlers.get_icon, "The icon of a feed"),
    operation(
        "GET",
        "/v1/feeds/{feed_id}/entries",
        entry_handlers.get_feed_entries,
        "The entries of a feed",
        query=values.EntriesQuery,
    ),
    operation(
        "GET",
        "/v1/feeds/{feed_id}/entries/{entry_id}",
        entry_handlers.get_entry,
        "An entry of a feed",
    ),
    operation(
        "GET", "/v1/entries", entry_handlers.get_entries, "Entries", query=values.EntriesQuery
    ),
    operation(
        "PUT",
        "/v1/entries",
        entry_handlers.mark_entries,
        "Mark, star, rate or tag entries",
        body=values.EntriesUpdate,
        status=204,
    ),
    operation(
        "GET",
        "/v1/entries/ids",
        entry_handlers.get_entry_ids,
        "Ids of entries",
        query=values.IdsQuery,
    ),
    operation("GET", "/v1/entries/{entry_id}", entry_handlers.get_entry, "An entry"),
    operation(
        "PUT",
        "/v1/entries/{entry_id}",
        entry_handlers.change_entry,
        "Say an entry in other words, for yourself",
        body=values.EntryChange,
        status=201,
    ),
    operation(
        "PUT",
        "/v1/entries/{entry_id}/bookmark",
        entry_handlers.toggle_star,
        "Star an entry, or no longer",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/entries/{entry_id}/star",
        entry_handlers.toggle_star,
        "Star an entry, or no longer",
        status=204,
    ),
    operation(
        "POST",
        "/v1/entries/{entry_id}/save",
        entry_handlers.save_entry,
        "Hand an entry to another service",
        status=202,
    ),
    operation(
        "GET",
        "/v1/entries/{entry_id}/fetch-content",
        entry_handlers.fetch_content,
        "The whole article",
    ),
    operation(
        "PUT",
        "/v1/flush-history",
        entry_handlers.flush_history,
        "Put away what was read",
        status=202,
    ),
    operation(
        "DELETE",
        "/v1/flush-history",
        entry_handlers.flush_history,
        "Put away what was read",
        status=202,
    ),
    operation("GET", "/v1/icons/{icon_id}", feed_handlers.get_icon_by_id, "An icon"),
    operation("GET", "/v1/enclosures/{enclosure_id}", entry_handlers.get_enclosure, "An enclosure"),
    operation(
        "PUT",
        "/v1/enclosures/{enclosure_id}",
        entry_handlers.set_progress,
        "How far it was heard",
        body=values.Progress,
        status=204,
    ),
    operation(
        "GET", "/v1/export", feed_handlers.export, "All subscriptions as OPML", response="text/xml"
    ),
    operation(
        "POST",
        "/v1/import",
        feed_handlers.import_opml,
        "Subscribe to an OPML list",
        body="text/xml",
        status=201,
    ),
    operation(
        "GET", "/v1/integrations/status", get_integrations, "Whether entries go to other services"
    ),
    operation("GET", "/v1/version", get_version, "What runs here"),
    *extensions.OPERATIONS,
]


def routes(site: Site) -> list[BaseRoute]:
    async def healthy(request: Request) -> Response:
        return text("OK")

    async def version(request: Request) -> Response:
        return text(__version__)

    beside = [
        Route("/healthcheck", healthy),
        Route("/version", version),
        *openapi.routes(OPERATIONS),
    ]
    return [
        *beside,
        *rest.routes(site, OPERATIONS),
        Route("/v1/{rest:path}", rest.Resource(site, [])),
    ]
