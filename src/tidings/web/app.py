"""The web application: which address answers with what, and what surrounds every answer.

Pages for people are in `reader`, `feeds`, `account`, `timing` and `lab`; what programs ask for is here, in `output`, in `hub`
and in `tidings.web.api`. Everything is wired in `tidings.service`.
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
from tidings.web.request_context import Site, json
from tidings.web.sse import EventStreams

#: Other sites never learn where somebody came from. "no-referrer" would hide it from ourselves too: browsers then send forms
#: with ``Origin: null``, as if they came from elsewhere.
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "server": f"tidings/{__version__}",
}
#: An address longer than this is no form of ours. The longest are those of pictures.
MAX_TARGET_LENGTH = 8000
#: A store that takes longer than this to say when the next feed is due is not ready.
READINESS_TIMEOUT_S = 5.0
#: Files that browsers keep for ever: their addresses change with them.
STATIC_MEDIA_TYPES = {
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "png": "image/png",
}


class SecurityMiddleware:
    """Around every answer: the headers that keep browsers safe. Addresses and hosts that nobody could mean are turned away."""

    def __init__(self, app: ASGIApp, host: str = "") -> None:
        self._app, self._host = app, host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _value in message["headers"]}
                more = {
                    **SECURITY_HEADERS,
                    "content-security-policy": templating.content_security_policy(),
                }
                added = [
                    (name.encode(), value.encode())
                    for name, value in more.items()
                    if name.encode() not in own
                ]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        app = self._app
        if (
            scope["type"] == "http"
            and len(scope["raw_path"]) + len(scope["query_string"]) > MAX_TARGET_LENGTH
        ):
            sentence = _("The address is longer than any form here makes it.")
            app = _error_page(HTTPStatus.REQUEST_URI_TOO_LONG, _("Too long"), sentence)
        elif scope["type"] == "http" and not is_allowed_host(
            dict(scope["headers"]).get(b"host", b"").decode("latin-1"), self._host
        ):
            sentence = _(
                "This service does not know itself by that name. If it should, set serve.public_url to its address."
            )
            app = _error_page(HTTPStatus.MISDIRECTED_REQUEST, _("Not here"), sentence)
        await app(scope, receive, send_framed)


def is_allowed_host(host: str, public: str) -> bool:
    """Whether a Host header may mean us. Names that anybody can register, and point at our address, may not (DNS rebinding)."""
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
    site: Site, hub: Hub, streams: EventStreams, api_routes: Sequence[BaseRoute] = ()
) -> Starlette:
    """The application over a living service."""
    status_reporter = site.status_reporter

    async def allowed(request: Request) -> bool:
        """Figures are for administrators, or an app with an administrator's token; for everybody as long as there is none."""
        bearer = request.headers.get("authorization", "").partition(" ")[2].strip()
        user = (
            await site.user_service.user_by_token(bearer)
            if bearer
            else await site.authenticate(request)
        )
        return user.admin if user is not None else await site.user_service.needs_setup()

    async def status(request: Request) -> Response:
        if not await allowed(request):
            return json({"error": _("Only an administrator may see this.")}, HTTPStatus.FORBIDDEN)
        return json(await status_reporter.status())

    async def measure(request: Request) -> Response:
        if not await allowed(request):
            return PlainTextResponse(
                "give an administrator's token: Authorization: Bearer ...\n", HTTPStatus.FORBIDDEN
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
            problem = str(error) or "the store does not answer"
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
        *account.routes(site),
        *reader.routes(site),
        *feeds.routes(site),
        *timing.routes(site),
        *peers.routes(site),
        *lab.routes(site),
        *demo_launcher.routes(site),
        *image_proxy.routes(site),
        *streams.routes(),
        *output_feeds.routes(site),
        *hub.routes(),
        *api_routes,
        Route("/static/{version}/{name}", _static),
        _root_file_route("sw.js", "text/javascript"),
        _root_file_route("manifest.webmanifest", "application/manifest+json"),
        Route("/offline", _offline),
        Route("/api/status", status),
        Route("/metrics", measure),
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/push/{token}", push, methods=["GET", "POST"]),
    ]
    # A higher level takes three times as long on long lists.
    packing = Middleware(GZipMiddleware, minimum_size=1000, compresslevel=3)
    framing = Middleware(SecurityMiddleware, host=_host_of(site.public_url))
    return Starlette(
        routes=routes,
        middleware=[framing, packing],
        exception_handlers={HTTPException: _handle_http_error},
    )


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0]


# --- files -------------------------------------------------------------------------------------------------------------


async def _static(request: Request) -> Response:
    file = templating.STATIC / request.path_params["name"]
    kind = STATIC_MEDIA_TYPES.get(request.path_params["name"].rpartition(".")[2])
    if kind is None or not file.is_file():
        raise HTTPException(HTTPStatus.NOT_FOUND)
    kept = (
        "public, max-age=31536000, immutable"
        if request.path_params["version"] == templating.version()
        else "no-cache"
    )
    return FileResponse(str(file), media_type=kind, headers={"cache-control": kept})


def _root_file_route(name: str, kind: str) -> Route:
    """Files that have their place at the root, because they speak for all pages, and name others by their version."""

    async def answer(request: Request) -> Response:
        text = (
            (templating.STATIC / name).read_text("utf-8").replace("VERSION", templating.version())
        )
        return Response(text, media_type=kind, headers={"cache-control": "no-cache"})

    return Route(f"/{name}", answer)


async def _offline(request: Request) -> Response:
    return _error_page(
        HTTPStatus.OK,
        _("No connection"),
        _("tidings cannot be reached. Articles are there again when it can."),
    )


# --- problems ----------------------------------------------------------------------------------------------------------


def _error_page(
    status: int, title: str, sentence: str, headers: Mapping[str, str] | None = None
) -> Response:
    """A page for whoever sees it: it knows nothing about them."""
    return HTMLResponse(
        templating.render("alone.html", {"title": title, "sentence": sentence}), status, headers
    )


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _error_page(error.status_code, _("Not found"), _("There is no such page here."))
    return _error_page(
        error.status_code,
        error.detail,
        _("This address answers differently; begin at the start."),
        error.headers,
    )
