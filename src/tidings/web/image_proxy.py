"""Serve the images of articles (optional), so that publishers cannot track users.

Image URLs are signed (HMAC): the proxy fetches only images of articles that it has rendered.
Requests go through the fetcher with SSRF protection; responses must have an image type and are
sandboxed.
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
from tidings.web.request_context import AppServices, RequestContext, page

#: Content-Security-Policy of files from other sites, such as SVG images, which blocks scripts.
SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
SIGNATURE_LENGTH = 24
# A regular expression is enough for the sanitizer's output: every attribute is name="value", and no
# value contains a quote.
_SOURCE = re.compile(r'(<img\b[^>]*?\ssrc="|<video\b[^>]*?\sposter=")(https?://[^"]*)(")')


def proxy_images(item: Item, key: bytes) -> Markup:
    """Return the article's HTML, with proxy URLs of images if ``key`` is not empty.

    ``key`` is the signing key of the proxy.
    """
    body = templating.body(item)
    if not key:
        return body
    return Markup(
        _SOURCE.sub(
            lambda match: match[1] + proxy_path(html.unescape(match[2]), key) + match[3], body
        )
    )


def proxy_path(url: str, key: bytes) -> str:
    """Return the signed path under which the proxy serves an image URL."""
    encoded = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
    return f"/image/{_signature(url, key)}/{encoded}"


def _signature(url: str, key: bytes) -> str:
    return hmac.digest(key, url.encode(), "sha256").hex()[:SIGNATURE_LENGTH]


def routes(services: AppServices) -> list[BaseRoute]:
    return [page(services, "/image/{signature}/{url}", serve_image)]


async def serve_image(context: RequestContext) -> Response:
    """Fetch an image from its site and return it.

    The status is 404 for an invalid signature, and 502 if the response is not an image.
    """
    params = context.request.path_params
    try:
        url = base64.urlsafe_b64decode(params["url"] + "=" * (-len(params["url"]) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    if context.services.image_fetcher is None or not hmac.compare_digest(
        _signature(url, await context.services.key("images")), params["signature"]
    ):
        return Response(status_code=HTTPStatus.NOT_FOUND)
    image = await context.services.image_fetcher.fetch(FetchRequest(url, want_delta=False))
    kind = image.content_type.partition(";")[0].strip().lower()
    if image.body is None or not kind.startswith("image/"):
        return Response(status_code=HTTPStatus.BAD_GATEWAY)
    headers = {
        "cache-control": "private, max-age=604800, immutable",
        "content-security-policy": SANDBOX,
    }
    return Response(image.body, media_type=kind, headers=headers)
