"""Table of the operations of the Miniflux API v1, which is also the project's REST API."""

import platform

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings import __version__
from tidings.web.api import extensions, openapi, rest
from tidings.web.api import miniflux_entries as entry_handlers
from tidings.web.api import miniflux_feeds as feed_handlers
from tidings.web.api import miniflux_models as models
from tidings.web.api import miniflux_users as user_handlers
from tidings.web.api.common import text_response
from tidings.web.api.rest import Call, operation
from tidings.web.request_context import AppServices


async def get_version(call: Call) -> models.Version:
    """Return version information in Miniflux's fields, with Python's version in `go_version`."""
    python = f"python {platform.python_version()}"
    compiler, arch, system = (
        platform.python_implementation(),
        platform.machine(),
        platform.system().lower(),
    )
    return models.Version(
        __version__, "tidings", "unknown", python, compiler, arch or "unknown", system or "unknown"
    )


async def get_integrations(call: Call) -> models.Integrations:
    return models.Integrations(bool((await call.site.user_service.settings(call.user)).webhook_url))


OPERATIONS = [
    operation("GET", "/v1/me", user_handlers.get_me, "Current user"),
    operation("GET", "/v1/users", user_handlers.get_users, "List users", admin=True),
    operation(
        "POST",
        "/v1/users",
        user_handlers.add_user,
        "Add a user",
        body=models.NewUser,
        status=201,
        admin=True,
    ),
    operation(
        "PUT",
        "/v1/users/{user}",
        user_handlers.change_user,
        "Change a user",
        body=models.UserChange,
        status=201,
    ),
    operation(
        "DELETE",
        "/v1/users/{user}",
        user_handlers.remove_user,
        "Delete a user and their data",
        status=204,
        admin=True,
    ),
    operation(
        "PUT",
        "/v1/users/{user_id}/mark-all-as-read",
        user_handlers.mark_all_read,
        "Mark all entries as read",
        status=204,
    ),
    operation(
        "GET", "/v1/users/{user}", user_handlers.get_user, "Get a user by id or name", admin=True
    ),
    operation(
        "GET", "/v1/api-keys", user_handlers.get_keys, "List API tokens, without their secrets"
    ),
    operation(
        "POST",
        "/v1/api-keys",
        user_handlers.add_key,
        "Create an API token",
        body=models.NewApiKey,
        status=201,
    ),
    operation(
        "DELETE",
        "/v1/api-keys/{key_id}",
        user_handlers.remove_key,
        "Revoke an API token",
        status=204,
    ),
    operation(
        "GET",
        "/v1/categories",
        feed_handlers.get_categories,
        "List categories",
        query=models.CategoriesQuery,
    ),
    operation(
        "POST",
        "/v1/categories",
        feed_handlers.add_category,
        "Add a category",
        body=models.NewCategory,
        status=201,
    ),
    operation(
        "PUT",
        "/v1/categories/{category_id}",
        feed_handlers.change_category,
        "Rename or hide a category",
        body=models.CategoryChange,
        status=201,
    ),
    operation(
        "DELETE",
        "/v1/categories/{category_id}",
        feed_handlers.remove_category,
        "Delete a category; its feeds stay",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/categories/{category_id}/mark-all-as-read",
        feed_handlers.mark_category_read,
        "Mark all entries of a category as read",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/categories/{category_id}/refresh",
        feed_handlers.refresh_category,
        "Check the feeds that are due",
        status=204,
    ),
    operation(
        "GET",
        "/v1/categories/{category_id}/feeds",
        feed_handlers.get_category_feeds,
        "List the feeds of a category",
    ),
    operation(
        "GET",
        "/v1/categories/{category_id}/entries",
        entry_handlers.get_category_entries,
        "List the entries of a category",
        query=models.EntriesQuery,
    ),
    operation(
        "GET",
        "/v1/categories/{category_id}/entries/{entry_id}",
        entry_handlers.get_entry,
        "Get an entry of a category",
    ),
    operation(
        "POST",
        "/v1/discover",
        feed_handlers.discover_feeds,
        "Discover the feeds of a site",
        body=models.Site,
    ),
    operation("GET", "/v1/feeds", feed_handlers.get_feeds, "List subscriptions"),
    operation(
        "POST",
        "/v1/feeds",
        feed_handlers.add_feed,
        "Subscribe to a feed",
        body=models.NewFeed,
        status=201,
    ),
    operation(
        "GET",
        "/v1/feeds/counters",
        feed_handlers.get_counters,
        "Number of read and unread entries of each feed",
    ),
    operation(
        "PUT",
        "/v1/feeds/refresh",
        feed_handlers.refresh_feeds,
        "Check the feeds that are due",
        status=204,
    ),
    operation("GET", "/v1/feeds/{feed_id}", feed_handlers.get_feed, "Get a subscription"),
    operation(
        "PUT",
        "/v1/feeds/{feed_id}",
        feed_handlers.change_feed,
        "Change a subscription",
        body=models.FeedChange,
        status=201,
    ),
    operation(
        "DELETE", "/v1/feeds/{feed_id}", feed_handlers.remove_feed, "Unsubscribe", status=204
    ),
    operation(
        "PUT",
        "/v1/feeds/{feed_id}/refresh",
        feed_handlers.refresh_feed,
        "Check a feed now",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/feeds/{feed_id}/mark-all-as-read",
        feed_handlers.mark_feed_read,
        "Mark all entries of a feed as read",
        status=204,
    ),
    operation("GET", "/v1/feeds/{feed_id}/icon", feed_handlers.get_icon, "Get the icon of a feed"),
    operation(
        "GET",
        "/v1/feeds/{feed_id}/entries",
        entry_handlers.get_feed_entries,
        "List the entries of a feed",
        query=models.EntriesQuery,
    ),
    operation(
        "POST",
        "/v1/feeds/{feed_id}/entries/import",
        feed_handlers.import_entry,
        "Import an entry into a feed",
        body=models.NewEntry,
        response=models.NewEntryId,
        status=201,
        other_statuses=(200,),
    ),
    operation(
        "GET",
        "/v1/feeds/{feed_id}/entries/{entry_id}",
        entry_handlers.get_entry,
        "Get an entry of a feed",
    ),
    operation(
        "GET", "/v1/entries", entry_handlers.get_entries, "List entries", query=models.EntriesQuery
    ),
    operation(
        "PUT",
        "/v1/entries",
        entry_handlers.mark_entries,
        "Change the state of entries: read, starred, rating, tags",
        body=models.EntriesUpdate,
        status=204,
    ),
    operation(
        "GET",
        "/v1/entries/ids",
        entry_handlers.get_entry_ids,
        "List entry ids",
        query=models.IdsQuery,
    ),
    operation("GET", "/v1/entries/{entry_id}", entry_handlers.get_entry, "Get an entry"),
    operation(
        "PUT",
        "/v1/entries/{entry_id}",
        entry_handlers.change_entry,
        "Replace title or content of an entry for the current user",
        body=models.EntryChange,
        status=201,
    ),
    operation(
        "PUT",
        "/v1/entries/{entry_id}/bookmark",
        entry_handlers.toggle_star,
        "Toggle the star of an entry",
        status=204,
    ),
    operation(
        "PUT",
        "/v1/entries/{entry_id}/star",
        entry_handlers.toggle_star,
        "Toggle the star of an entry",
        status=204,
    ),
    operation(
        "POST",
        "/v1/entries/{entry_id}/save",
        entry_handlers.save_entry,
        "Send an entry to the webhook",
        status=202,
    ),
    operation(
        "GET",
        "/v1/entries/{entry_id}/fetch-content",
        entry_handlers.fetch_content,
        "Get the full text of an entry",
    ),
    operation(
        "PUT",
        "/v1/flush-history",
        entry_handlers.flush_history,
        "Remove read entries from the history",
        status=202,
    ),
    operation(
        "DELETE",
        "/v1/flush-history",
        entry_handlers.flush_history,
        "Remove read entries from the history",
        status=202,
    ),
    operation("GET", "/v1/icons/{icon_id}", feed_handlers.get_icon_by_id, "Get an icon"),
    operation(
        "GET", "/v1/enclosures/{enclosure_id}", entry_handlers.get_enclosure, "Get an enclosure"
    ),
    operation(
        "PUT",
        "/v1/enclosures/{enclosure_id}",
        entry_handlers.set_progress,
        "Save the playback position of an enclosure",
        body=models.Progress,
        status=204,
    ),
    operation(
        "GET",
        "/v1/export",
        feed_handlers.export,
        "Export all subscriptions as OPML",
        response="text/xml",
    ),
    operation(
        "POST",
        "/v1/import",
        feed_handlers.import_opml,
        "Import subscriptions from OPML",
        body="text/xml",
        status=201,
    ),
    operation(
        "GET", "/v1/integrations/status", get_integrations, "Whether a webhook is configured"
    ),
    operation("GET", "/v1/version", get_version, "Version of the server"),
    *extensions.OPERATIONS,
]


def routes(site: AppServices) -> list[BaseRoute]:
    async def healthcheck(request: Request) -> Response:
        return text_response("OK")

    async def version(request: Request) -> Response:
        return text_response(__version__)

    unauthenticated = [
        Route("/healthcheck", healthcheck),
        Route("/version", version),
        *openapi.routes(OPERATIONS),
    ]
    return [
        *unauthenticated,
        *rest.routes(site, OPERATIONS),
        Route("/v1/{rest:path}", rest.Resource(site, [])),
    ]
