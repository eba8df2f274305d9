"""ASGI application with all routes, security headers, health checks and error pages.

Pages are in `reader`, `feeds`, `account`, `timing`, `lab` and `peers`. Endpoints for programs are
here (`/api/status`, `/metrics`, `/healthz`, `/readyz`, `/push/...`), in `output_feeds`, in `hub`
and in `tidings.web.api`. `tidings.service` creates the services that the application uses.
"""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings import __version__
from tidings.errors import TidingsError
from tidings.i18n import _
from tidings.web import (
    account,
    demo_launcher,
    feeds,
    image_proxy,
    lab,
    metrics,
    output_feeds,
    peers,
    reader,
    templating,
    timing,
)
from tidings.web.forms import read_body
from tidings.web.hub import Hub
from tidings.web.request_context import AppServices, json
from tidings.web.sse import EventStreams

#: Security headers of every response. The referrer policy "same-origin" hides the referrer from
#: other sites. With "no-referrer", browsers would send forms with ``Origin: null``, which the CSRF
#: check would reject.
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "server": f"tidings/{__version__}",
}
#: Maximum length of path and query in characters. The longest links are those of proxied images.
MAX_TARGET_LENGTH = 8000
#: Time limit in seconds for the database query of the readiness check.
READINESS_TIMEOUT_S = 5.0
#: Media types of static files by extension. Browsers cache the files permanently, as their URLs
#: contain a digest.
STATIC_MEDIA_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
}


class SecurityMiddleware:
    """Middleware that adds security headers and rejects long URLs and unknown Host headers."""

    def __init__(self, app: ASGIApp, host: str = "") -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _value in message["headers"]}
                headers = {
                    **SECURITY_HEADERS,
                    "content-security-policy": templating.content_security_policy(),
                }
                added = [
                    (name.encode(), value.encode())
                    for name, value in headers.items()
                    if name.encode() not in present
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        app = self._app
        if (
            scope["type"] == "http"
            and len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_LENGTH
        ):
            sentence = _("This address is too long.")
            app = _error_page(HTTPStatus.REQUEST_URI_TOO_LONG, _("Address too long"), sentence)
        elif scope["type"] == "http" and not is_allowed_host(
            dict(scope["headers"]).get(b"host", b"").decode("latin-1"), self._host
        ):
            sentence = _(
                "tidings isn't configured for this host name. To use it, set serve.public_url to"
                " the address of this site."
            )
            app = _error_page(HTTPStatus.MISDIRECTED_REQUEST, _("Wrong host name"), sentence)
        await app(scope, receive, send_with_headers)


def is_allowed_host(host: str, public: str) -> bool:
    """Return whether a Host header is accepted, as a protection against DNS rebinding.

    Accepted are the public host name ``public``, IP addresses and local names.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.strip("[]").lower()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return (
            name == public.lower()
            or "." not in name
            or name.endswith((".local", ".localhost", ".internal", ".home.arpa"))
        )
    return True


def make_app(
    services: AppServices, hub: Hub, streams: EventStreams, api_routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """Return the ASGI application with all routes and middleware."""
    status_reporter = services.status_reporter

    async def allowed(request: Request) -> bool:
        """Return whether the request may read the status and the metrics.

        It needs the session or an API token of an administrator. Before setup, every client may.
        """
        bearer = request.headers.get("authorization", "").partition(" ")[2].strip()
        user = (
            await services.user_service.user_by_token(bearer)
            if bearer
            else await services.authenticate(request)
        )
        return user.admin if user is not None else await services.user_service.needs_setup()

    async def status(request: Request) -> Response:
        if not await allowed(request):
            return json({"error": _("Only an administrator may see this.")}, HTTPStatus.FORBIDDEN)
        return json(await status_reporter.status())

    async def prometheus_metrics(request: Request) -> Response:
        if not await allowed(request):
            return PlainTextResponse(
                _(
                    "This address needs an administrator's token in the header "
                    "Authorization: Bearer <token>."
                )
                + "\n",
                HTTPStatus.FORBIDDEN,
            )
        return PlainTextResponse(
            metrics.exposition(await status_reporter.families()), media_type=metrics.MEDIA_TYPE
        )

    async def alive(request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(request: Request) -> Response:
        try:
            async with asyncio.timeout(READINESS_TIMEOUT_S):
                problem = await status_reporter.readiness_problem()
        except (TidingsError, TimeoutError) as error:
            problem = str(error) or "the database does not answer"
        return PlainTextResponse(
            f"{problem or 'ready'}\n", HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
        )

    async def push(request: Request) -> Response:
        token = request.path_params["token"]
        if request.method == "POST":
            body = await read_body(request, status_reporter.subscriber.max_bytes)
            answer = await status_reporter.subscriber.receive_delivery(token, request.headers, body)
        else:
            answer = await status_reporter.subscriber.verify_intent(token, request.query_params)
        return PlainTextResponse(answer.body, answer.status)

    routes = [
        *account.routes(services),
        *reader.routes(services),
        *feeds.routes(services),
        *timing.routes(services),
        *peers.routes(services),
        *lab.routes(services),
        *demo_launcher.routes(services),
        *image_proxy.routes(services),
        *streams.routes(),
        *output_feeds.routes(services),
        *hub.routes(),
        *api_routes,
        Route("/static/{version}/{name}", _static),
        _root_file_route("sw.js", "text/javascript"),
        _root_file_route("manifest.webmanifest", "application/manifest+json"),
        Route("/offline", _offline),
        Route("/api/status", status),
        Route("/metrics", prometheus_metrics),
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/push/{token}", push, methods=["GET", "POST"]),
    ]
    # Higher compression levels take three times as long on long lists.
    compression = Middleware(GZipMiddleware, minimum_size=1000, compresslevel=3)
    security = Middleware(SecurityMiddleware, host=_host_of(services.public_url))
    return Starlette(
        routes=routes,
        middleware=[security, compression],
        exception_handlers={HTTPException: _handle_http_error},
    )


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]


# --- static files ---------------------------------------------------------------------------------


async def _static(request: Request) -> Response:
    file = templating.STATIC / request.path_params["name"]
    kind = STATIC_MEDIA_TYPES.get(request.path_params["name"].rpartition(".")[2])
    if kind is None or not file.is_file():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    cache_control = (
        "public, max-age=31536000, immutable"
        if request.path_params["version"] == templating.version()
        else "no-cache"
    )
    return FileResponse(str(file), media_type=kind, headers={"cache-control": cache_control})


def _root_file_route(name: str, kind: str) -> Route:
    """Return the route of a static file at the root path, in which VERSION is replaced.

    The service worker and the manifest need such routes.
    """

    async def answer(request: Request) -> Response:
        text = (
            (templating.STATIC / name).read_text("utf-8").replace("VERSION", templating.version())
        )
        return Response(text, media_type=kind, headers={"cache-control": "no-cache"})

    return Route(f"/{name}", answer)


async def _offline(request: Request) -> Response:
    return _error_page(
        HTTPStatus.OK,
        _("You're offline"),
        _("You're offline. Reconnect to load articles."),
    )


# --- error pages ----------------------------------------------------------------------------------


def _error_page(
    status: int, title: str, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Render an error page without user data."""
    html = templating.render("standalone.html", {"title": title, "sentence": sentence})
    return HTMLResponse(html, status, headers)


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _error_page(error.status_code, _("Not found"), _("This page does not exist."))
    return _error_page(
        error.status_code,
        error.detail,
        _("This address does not support this kind of request."),
        error.headers,
    )
