"""Icons for clients that load pictures by address, without any header: the address itself is the secret."""

import hmac

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings.store import icons as table
from tidings.web.api.common import text
from tidings.web.request_context import Site

#: A picture that hardly ever changes.
CACHE = "private, max-age=604800"


def icon_url(key: bytes, feed_id: int) -> str:
    return f"/api/icons/{feed_id}/{hmac.digest(key, str(feed_id).encode(), 'sha256').hex()[:32]}"


def routes(site: Site) -> list[BaseRoute]:
    async def icon(request: Request) -> Response:
        feed_id, key = request.path_params["feed_id"], await site.user_service.key("icons")
        good = hmac.compare_digest(request.url.path.encode(), icon_url(key, feed_id).encode())
        found = await site.store.read(table.icon_of_feed, feed_id) if good else None
        if found is None:
            return text("Not found\n", 404)
        return Response(found.data, headers={"Cache-Control": CACHE}, media_type=found.type)

    return [Route("/api/icons/{feed_id:int}/{proof}", icon, methods=["GET"])]
