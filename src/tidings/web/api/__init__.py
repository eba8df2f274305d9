"""HTTP APIs for apps, compatible with Miniflux, Google Reader and Fever.

The Miniflux API is also the project's own REST API. All three call the same operations
(`tidings.users`); these modules translate requests and responses.
"""

from starlette.routing import BaseRoute

from tidings.web.api import fever, google_reader, icons, miniflux
from tidings.web.request_context import AppServices

__all__ = ["routes"]


def routes(site: AppServices) -> list[BaseRoute]:
    """Return the routes of all APIs; Google Reader's are last because they match any prefix."""
    google_routes = google_reader.GoogleReader(site).routes()
    return [
        *miniflux.routes(site),
        *fever.Fever(site).routes(),
        *icons.routes(site),
        *google_routes,
    ]
