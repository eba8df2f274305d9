"""Serve feed icons at signed URLs (HMAC), for clients that load images without credentials."""

import hmac

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidings.store import icons as table
from tidings.web.api.common import text_response
from tidings.web.request_context import AppServices

#: Cache-Control header of icons. They are cached for a week, because they rarely change.
CACHE_CONTROL = "private, max-age=604800"


def icon_url(key: bytes, feed_id: int) -> str:
    """Return the signed path of a feed's icon."""
    return f"/api/icons/{feed_id}/{hmac.digest(key, str(feed_id).encode(), 'sha256').hex()[:32]}"


def routes(site: AppServices) -> list[BaseRoute]:
    async def icon(request: Request) -> Response:
        feed_id, key = request.path_params["feed_id"], await site.user_service.signing_key("icons")
        is_valid = hmac.compare_digest(request.url.path.encode(), icon_url(key, feed_id).encode())
        feed_icon = await site.store.read(table.icon_of_feed, feed_id) if is_valid else None
        if feed_icon is None:
            return text_response("Not found\n", 404)
        return Response(
            feed_icon.data, headers={"Cache-Control": CACHE_CONTROL}, media_type=feed_icon.type
        )

    return [Route("/api/icons/{feed_id:int}/{proof}", icon, methods=["GET"])]
