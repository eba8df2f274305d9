"""Miniflux's API (v1), which is our own REST API too, with additions beside it: one table of all operations."""

import platform

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings import __version__
from tidings.web.api import additions, openapi, rest
from tidings.web.api import miniflux_entries as of_entries
from tidings.web.api import miniflux_feeds as of_feeds
from tidings.web.api import miniflux_users as of_users
from tidings.web.api import miniflux_values as values
from tidings.web.api.desk import text
from tidings.web.api.rest import Call, operation
from tidings.web.visit import Site


async def get_version(call: Call) -> values.Version:
    """The fields are Miniflux's; what is Go there is Python here."""
    python = f"python {platform.python_version()}"
    compiler, arch, system = platform.python_implementation(), platform.machine(), platform.system().lower()
    return values.Version(__version__, "tidings", "unknown", python, compiler, arch or "unknown", system or "unknown")


async def get_integrations(call: Call) -> values.Integrations:
    return values.Integrations(bool((await call.site.people.settings(call.user)).webhook_url))


OPERATIONS = [
    operation("GET", "/v1/me", of_users.get_me, "Who am I?"),
    operation("GET", "/v1/users", of_users.get_users, "All users", admin=True),
    operation("POST", "/v1/users", of_users.add_user, "Add a user", body=values.NewUser, status=201, admin=True),
    operation("PUT", "/v1/users/{user}", of_users.change_user, "Change a user", body=values.UserChange, status=201),
    operation(
        "DELETE", "/v1/users/{user}", of_users.remove_user, "Remove a user with all that is theirs", status=204, admin=True
    ),
    operation("PUT", "/v1/users/{user_id}/mark-all-as-read", of_users.read_all, "Mark everything read", status=204),
    operation("GET", "/v1/users/{user}", of_users.get_user, "A user, by number or name", admin=True),
    operation("GET", "/v1/api-keys", of_users.get_keys, "Tokens of apps, without their secrets"),
    operation("POST", "/v1/api-keys", of_users.add_key, "A new token", body=values.NewApiKey, status=201),
    operation("DELETE", "/v1/api-keys/{key_id}", of_users.remove_key, "Take a token back", status=204),
    operation("GET", "/v1/categories", of_feeds.get_categories, "All categories", query=values.CategoriesQuery),
    operation("POST", "/v1/categories", of_feeds.add_category, "Add a category", body=values.NewCategory, status=201),
    operation(
        "PUT",
        "/v1/categories/{category_id}",
        of_feeds.change_category,
        "Rename or hide a category",
        body=values.CategoryChange,
        status=201,
    ),
    operation(
        "DELETE", "/v1/categories/{category_id}", of_feeds.remove_category, "Remove a category; its feeds stay", status=204
    ),
    operation(
        "PUT", "/v1/categories/{category_id}/mark-all-as-read", of_feeds.read_category, "Mark a category read", status=204
    ),
    operation(
        "PUT", "/v1/categories/{category_id}/refresh", of_feeds.refresh_category, "Look at the feeds that are due", status=204
    ),
    operation("GET", "/v1/categories/{category_id}/feeds", of_feeds.get_category_feeds, "The feeds of a category"),
    operation(
        "GET",
        "/v1/categories/{category_id}/entries",
        of_entries.get_category_entries,
        "The entries of a category",
        query=values.EntriesQuery,
    ),
    operation("GET", "/v1/categories/{category_id}/entries/{entry_id}", of_entries.get_entry, "An entry of a category"),
    operation("POST", "/v1/discover", of_feeds.find_feeds, "The feeds of a site", body=values.Site),
    operation("GET", "/v1/feeds", of_feeds.get_feeds, "All subscriptions"),
    operation("POST", "/v1/feeds", of_feeds.add_feed, "Subscribe to a feed", body=values.NewFeed, status=201),
    operation("GET", "/v1/feeds/counters", of_feeds.get_counters, "Read and unread entries of each feed"),
    operation("PUT", "/v1/feeds/refresh", of_feeds.refresh_feeds, "Look at the feeds that are due", status=204),
    operation("GET", "/v1/feeds/{feed_id}", of_feeds.get_feed, "A subscription"),
    operation("PUT", "/v1/feeds/{feed_id}", of_feeds.change_feed, "Change a subscription", body=values.FeedChange, status=201),
    operation("DELETE", "/v1/feeds/{feed_id}", of_feeds.remove_feed, "Unsubscribe", status=204),
    operation("PUT", "/v1/feeds/{feed_id}/refresh", of_feeds.refresh_feed, "Look at a feed now", status=204),
    operation("PUT", "/v1/feeds/{feed_id}/mark-all-as-read", of_feeds.read_feed, "Mark a feed read", status=204),
    operation("GET", "/v1/feeds/{feed_id}/icon", of_feeds.get_icon, "The icon of a feed"),
    operation(
        "GET", "/v1/feeds/{feed_id}/entries", of_entries.get_feed_entries, "The entries of a feed", query=values.EntriesQuery
    ),
    operation("GET", "/v1/feeds/{feed_id}/entries/{entry_id}", of_entries.get_entry, "An entry of a feed"),
    operation("GET", "/v1/entries", of_entries.get_entries, "Entries", query=values.EntriesQuery),
    operation("PUT", "/v1/entries", of_entries.mark_entries, "Mark, star, rate or tag entries", body=values.Marks, status=204),
    operation("GET", "/v1/entries/ids", of_entries.get_entry_ids, "Ids of entries", query=values.IdsQuery),
    operation("GET", "/v1/entries/{entry_id}", of_entries.get_entry, "An entry"),
    operation(
        "PUT",
        "/v1/entries/{entry_id}",
        of_entries.change_entry,
        "Say an entry in other words, for yourself",
        body=values.EntryChange,
        status=201,
    ),
    operation("PUT", "/v1/entries/{entry_id}/bookmark", of_entries.toggle_star, "Star an entry, or no longer", status=204),
    operation("PUT", "/v1/entries/{entry_id}/star", of_entries.toggle_star, "Star an entry, or no longer", status=204),
    operation("POST", "/v1/entries/{entry_id}/save", of_entries.save_entry, "Hand an entry to another service", status=202),
    operation("GET", "/v1/entries/{entry_id}/fetch-content", of_entries.fetch_content, "The whole article"),
    operation("PUT", "/v1/flush-history", of_entries.put_away_read, "Put away what was read", status=202),
    operation("DELETE", "/v1/flush-history", of_entries.put_away_read, "Put away what was read", status=202),
    operation("GET", "/v1/icons/{icon_id}", of_feeds.get_icon_by_id, "An icon"),
    operation("GET", "/v1/enclosures/{enclosure_id}", of_entries.get_enclosure, "An enclosure"),
    operation(
        "PUT",
        "/v1/enclosures/{enclosure_id}",
        of_entries.set_progress,
        "How far it was heard",
        body=values.Progress,
        status=204,
    ),
    operation("GET", "/v1/export", of_feeds.export, "All subscriptions as OPML", answer="text/xml"),
    operation("POST", "/v1/import", of_feeds.import_opml, "Subscribe to an OPML list", body="text/xml", status=201),
    operation("GET", "/v1/integrations/status", get_integrations, "Whether entries go to other services"),
    operation("GET", "/v1/version", get_version, "What runs here"),
    *additions.OPERATIONS,
]


def routes(site: Site) -> list[BaseRoute]:
    async def healthy(request: Request) -> Response:
        return text("OK")

    async def version(request: Request) -> Response:
        return text(__version__)

    beside = [Route("/healthcheck", healthy), Route("/version", version), *openapi.routes(OPERATIONS)]
    return [*beside, *rest.routes(site, OPERATIONS), Route("/v1/{rest:path}", rest.Resource(site, []))]
