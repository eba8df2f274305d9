"""Parse requests and create responses for all three APIs (body limits, CORS, ETag)."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tidings.errors import TidingsError, UsageError
from tidings.store.user_models import Subscription
from tidings.users import Forbidden, NotFound, ReaderService, TooManyAttempts, WrongPassword
from tidings.web.forms import TooLarge, pairs, parts, read_body
from tidings.web.forms import text as decode_text

#: Maximum size of a request body in bytes. 10,000 item ids take 0.5 MB, a long OPML list 2 MB.
MAX_BODY_BYTES = 8_000_000
#: Maximum number of form fields. RSS Guard requests up to 9,999 items at once.
MAX_FIELDS = 20_000
#: Largest integer that JavaScript clients represent exactly (Number.MAX_SAFE_INTEGER).
MAX_SAFE_INTEGER = 2**53 - 1
#: CORS headers, the same as those of FreshRSS and Miniflux. Allowing all origins is safe, because
#: the APIs authenticate by a header that another site cannot make a browser send.
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept, X-Auth-Token",
    "Access-Control-Max-Age": "3600",
}


async def read_limited_body(request: Request) -> bytes:
    """Return the request body; raise `TooLarge` if it exceeds `MAX_BODY_BYTES`."""
    body = await read_body(request, MAX_BODY_BYTES)
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(f"the request is larger than {MAX_BODY_BYTES:,} bytes")
    return body


class RequestParams:
    """Request parameters by name, from both the query string and the form.

    Clients send the same parameters in either of them.
    """

    def __init__(self, pairs: Sequence[tuple[str, str]], raw: bytes = b"") -> None:
        self.raw = raw  #: the undecoded body
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def get(self, name: str, default: str = "") -> str:
        return self._values.get(name, [default])[0]

    def number(self, name: str) -> int | None:
        """Return the first value as a non-negative integer, or None if missing or invalid."""
        return parse_int(self.get(name))


async def read_params(request: Request) -> RequestParams:
    """Return the parameters of the query string and the form body.

    Readrops sends forms as multipart. newsboat declares JSON as a form; no operation uses these
    fields.
    """
    fields = pairs(request.url.query, MAX_FIELDS)
    raw = await read_limited_body(request) if request.method in ("POST", "PUT") else b""
    content_type = request.headers.get("content-type", "")
    if content_type.lower().startswith("multipart/"):
        fields += [
            (name, decode_text(content))
            for name, _file, content in islice(parts(content_type, raw), MAX_FIELDS)
        ]
    elif raw and "xml" not in content_type and "json" not in content_type:
        fields += pairs(raw.decode("utf-8", "replace"), MAX_FIELDS)
    return RequestParams(fields, raw)


def parse_int(text: str) -> int | None:
    """Return a non-negative integer up to `MAX_SAFE_INTEGER`, or None for any other text."""
    return (
        int(text) if re.fullmatch(r"[0-9]{1,16}", text) and int(text) <= MAX_SAFE_INTEGER else None
    )


def basic_credentials(header: str) -> list[tuple[str, str]]:
    """Return the possible (name, password) pairs of an HTTP Basic header.

    For non-ASCII text both encodings are tried: newsboat sends UTF-8, Python's `requests` Latin-1.
    """
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return []
    candidates = (
        {decoded.decode("utf-8", "replace"), decoded.decode("latin-1")}
        if not decoded.isascii()
        else {decoded.decode()}
    )
    return [
        (name, password)
        for name, colon, password in (text.partition(":") for text in sorted(candidates))
        if colon
    ]


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        msgspec.json.encode(value), status, {**CORS, **(headers or {})}, "application/json"
    )


def text_response(
    value: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(value, status, {**CORS, **(headers or {})}, "text/plain")


def preflight() -> Response:
    return Response(status_code=204, headers=CORS)


def conditional_response(request: Request, response: Response) -> Response:
    """Add an ETag to a response, or return 304 if the client already has this ETag.

    The client sends its ETag in If-None-Match.
    """
    tag = f'"{blake2b(bytes(response.body), digest_size=12).hexdigest()}"'
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers={**CORS, "ETag": tag})
    response.headers["ETag"] = tag
    return response


def http_status(error: TidingsError) -> int:
    """Return the HTTP status code for an error."""
    for kind, status in HTTP_STATUSES:
        if isinstance(error, kind):
            return status
    return 400


HTTP_STATUSES: tuple[tuple[type[TidingsError], int], ...] = (
    (WrongPassword, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (TooLarge, 413),
    (TooManyAttempts, 429),
)


def retry_after_header(error: TidingsError) -> dict[str, str]:
    return (
        {"Retry-After": str(int(error.retry_after_s) + 1)}
        if isinstance(error, TooManyAttempts)
        else {}
    )


async def subscribe(
    reader_service: ReaderService, url: str, title: str = "", folder: str = ""
) -> tuple[Subscription, bool]:
    """Subscribe to a feed and return the subscription and whether it is new.

    If the site has several feeds, the first is used, because API clients cannot choose. A feed
    that was never polled is polled first, because clients load its entries right after this.
    """
    addition = await reader_service.subscribe(url, title=title, folder=folder)
    if addition.added is None:
        addition = await reader_service.subscribe(
            addition.choices[0].url, title=title, folder=folder
        )
    if addition.added is None:
        raise UsageError(f"{url} has several feeds; enter the URL of one of them")
    subscription = await reader_service.subscription(addition.added.feed_id)
    if subscription.feed.state.last_poll_at is None and reader_service.aggregator is not None:
        await reader_service.aggregator.poll([subscription.feed.id])
        subscription = await reader_service.subscription(subscription.feed.id)
    return subscription, addition.added.subscription_new
