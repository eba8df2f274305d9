"""The three APIs that apps speak: Google Reader, Fever, and Miniflux's, which is our own REST API as well.

One core of operations (`tidings.users`), three dialects: they translate and do nothing else.
"""

from starlette.routing import BaseRoute

from tidings.web.api import fever, google_reader, icons, miniflux
from tidings.web.request_context import Site

__all__ = ["routes"]


def routes(site: Site) -> list[BaseRoute]:
    """All that the APIs answer to. Google Reader's come last: they match behind any prefix."""
    readers = google_reader.GoogleReader(site).routes()
    return [*miniflux.routes(site), *fever.Fever(site).routes(), *icons.routes(site), *readers]
