"""The web application: which address answers with what. Pages are made in `page`, figures in `metrics`.

Everything is read from the store or handed in by `tidings.service`; nothing here changes anything but what hubs push.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request as WebRequest
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidings import __version__
from tidings.errors import TidingsError
from tidings.web import comparison, metrics, page
from tidings.web.comparison import Comparisons, Request
from tidings.web.now import Live
from tidings.web.style import ICON, STYLE

T = TypeVar("T")

#: Nothing from elsewhere, no scripts, nobody may frame the page.
SECURITY = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = [
    (b"content-security-policy", SECURITY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"server", f"tidings/{__version__}".encode()),
]
#: An address longer than this is no form of ours.
LONGEST_TARGET = 2000
#: A store that takes longer than this to say when the next feed is due is not ready.
PATIENCE_S = 5.0


class Frame:
    """Around every answer: the headers that keep browsers safe. Addresses that nobody could mean are turned away."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_framed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        app = self._app
        if scope["type"] == "http" and len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            app = _problem(HTTPStatus.REQUEST_URI_TOO_LONG, "Too long", "The address is longer than any form here makes it.")
        await app(scope, receive, send_framed)


def make_app(live: Live, comparisons: Comparisons) -> Starlette:
    """The application over a living service."""
    one_at_a_time = asyncio.Lock()

    async def compare(request: Request) -> dict[str, Any]:
        async with one_at_a_time:  # each takes a core for seconds, and polls must go on
            return await in_thread(lambda: comparisons.run(request))

    async def home(request: WebRequest) -> Response:
        try:
            query = _query(request)
            kinds = comparison.kinds()
            if not query:
                return HTMLResponse(page.home(Request(), kinds, await live.now()))
            asked = comparison.read_request(query, kinds)
            return HTMLResponse(page.home(asked, kinds, await live.now(), await compare(asked)))
        except TidingsError as error:
            return _problem(HTTPStatus.BAD_REQUEST, "That did not work", _sentence(str(error)))

    async def compare_json(request: WebRequest) -> Response:
        try:
            return _json(await compare(comparison.read_request(_query(request), comparison.kinds())))
        except TidingsError as error:
            return _json({"error": _sentence(str(error))}, HTTPStatus.BAD_REQUEST)

    async def status(request: WebRequest) -> Response:
        return _json(await live.status())

    async def explain(request: WebRequest) -> Response:
        found = await live.explain(request.path_params["feed"])
        return _json({"error": "There is no such feed."}, HTTPStatus.NOT_FOUND) if found is None else _json(found)

    async def measure(request: WebRequest) -> Response:
        return PlainTextResponse(metrics.exposition(await live.families()), media_type=metrics.MEDIA_TYPE)

    async def alive(request: WebRequest) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(request: WebRequest) -> Response:
        try:
            async with asyncio.timeout(PATIENCE_S):
                problem = await live.why_not_ready()
        except (TidingsError, TimeoutError) as error:
            problem = str(error) or "the store does not answer"
        return PlainTextResponse(f"{problem or 'ready'}\n", HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK)

    async def push(request: WebRequest) -> Response:
        token = request.path_params["token"]
        if request.method == "POST":
            body = await _body(request, live.subscriber.max_bytes)
            answer = await live.subscriber.deliver(token, request.headers, body)
        else:
            answer = await live.subscriber.verify(token, request.query_params)
        return PlainTextResponse(answer.body, answer.status)

    routes = [
        Route("/", home),
        Route("/compare.json", compare_json),
        Route("/style.css", _text(STYLE, "text/css")),
        Route("/icon.svg", _text(ICON, "image/svg+xml")),
        Route("/api/status", status),
        Route("/api/feeds/{feed:int}/explain", explain),
        Route("/metrics", measure),
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/push/{token}", push, methods=["GET", "POST"]),
    ]
    return Starlette(routes=routes, middleware=[Middleware(Frame)], exception_handlers={HTTPException: _http_problem})


async def in_thread(work: Callable[[], T]) -> T:
    """Run what takes seconds in a thread that does not keep the process from ending, unlike those of a pool."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[Any], None], value: Any) -> None:
        if not done.done():  # whoever waited may have gone
            how(value)

    def tell(how: Callable[[Any], None], value: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, how, value)

    def run() -> None:
        try:
            tell(done.set_result, work())
        except Exception as error:  # raised again where it is awaited
            tell(done.set_exception, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


def _query(request: WebRequest) -> dict[str, list[str]]:
    try:
        return parse_qs(request.url.query, keep_blank_values=True, max_num_fields=40)
    except ValueError:
        raise TidingsError("the address has too many parameters") from None


async def _body(request: WebRequest, most: int) -> bytes:
    """Up to one byte more than may be: enough for the subscriber to see that it is too much."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            break
    return bytes(body[: most + 1])


def _json(value: Any, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _text(text: str, media_type: str) -> Callable[[WebRequest], Awaitable[Response]]:
    async def answer(request: WebRequest) -> Response:
        return Response(text, media_type=media_type)

    return answer


def _problem(status: int, title: str, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(page.problem(title, sentence), status, headers)


async def _http_problem(request: WebRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _problem(error.status_code, "Not found", "There is no such page here.")
    return _problem(error.status_code, error.detail, "This address answers differently; begin at the start.", error.headers)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
