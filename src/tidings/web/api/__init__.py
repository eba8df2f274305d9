"""The three APIs that apps speak: Google Reader, Fever, and Miniflux's, which is our own REST API as well.

One core of operations (`tidings.people`), three dialects: they translate and do nothing else.
"""

from starlette.routing import BaseRoute

from tidings.web.api import fever, google_reader, icons, miniflux
from tidings.web.api.desk import Desk

__all__ = ["Desk", "routes"]


def routes(desk: Desk) -> list[BaseRoute]:
    """All that the APIs answer to. Google Reader's come last: they match behind any prefix."""
    readers = google_reader.GoogleReader(desk).routes()
    return [*miniflux.routes(desk), *fever.Fever(desk).routes(), *icons.routes(desk), *readers]
