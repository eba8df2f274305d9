"""Pictures through our own address, as an option: publishers then learn nothing about who reads, and when.

Addresses are signed, so that nobody can use us to fetch what we do not show ourselves. The request goes through the guarded
fetcher; what comes back must say that it is a picture, and may run nothing.
"""

import base64
import binascii
import hmac
import html
import re
from http import HTTPStatus

from markupsafe import Markup
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.fetch import FetchRequest
from tidings.store.user_models import Item
from tidings.web import templating
from tidings.web.request_context import RequestContext, Site, page

#: On answers that hold what strangers made.
SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
SIGNATURE_LENGTH = 24
# Only ever applied to the sanitiser's own output, where every attribute is name="value" and no value holds a quote.
_SOURCE = re.compile(r'(<img\b[^>]*?\ssrc="|<video\b[^>]*?\sposter=")(https?://[^"]*)(")')


def proxy_images(item: Item, key: bytes) -> Markup:
    """The article; with a key, its pictures by way of us."""
    body = templating.body(item)
    if not key:
        return body
    return Markup(
        _SOURCE.sub(
            lambda found: found[1] + proxy_path(html.unescape(found[2]), key) + found[3], body
        )
    )


def proxy_path(url: str, key: bytes) -> str:
    return f"/image/{_signature(url, key)}/{base64.urlsafe_b64encode(url.encode()).decode().rstrip('=')}"


def _signature(url: str, key: bytes) -> str:
    return hmac.digest(key, url.encode(), "sha256").hex()[:SIGNATURE_LENGTH]


def routes(site: Site) -> list[BaseRoute]:
    return [page(site, "/image/{mark}/{url}", serve_image)]


async def serve_image(context: RequestContext) -> Response:
    params = context.request.path_params
    try:
        url = base64.urlsafe_b64decode(params["url"] + "=" * (-len(params["url"]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    if context.site.image_fetcher is None or not hmac.compare_digest(
        _signature(url, await context.site.key("images")), params["mark"]
    ):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    found = await context.site.image_fetcher.fetch(FetchRequest(url, want_delta=False))
    kind = found.content_type.partition(";")[0].strip().lower()
    if found.body is None or not kind.startswith("image/"):
        return Response(status_code=HTTPStatus.BAD_GATEWAY)
    headers = {
        "cache-control": "private, max-age=604800, immutable",
        "content-security-policy": SANDBOX,
    }
    return Response(found.body, media_type=kind, headers=headers)
