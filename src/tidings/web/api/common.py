"""What the three dialects share: what was sent, and how it is answered.

A dialect translates its words into operations of `tidings.users` and back, and does nothing else.
"""

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
from tidings.web.forms import text as decoded

#: A body larger than this is nothing that a client means: 10,000 item ids take half a megabyte, a long OPML list two.
MAX_BODY_BYTES = 8_000_000
#: Fields of a form: RSS Guard asks for up to 9,999 items at once.
MAX_FIELDS = 20_000
#: The largest number that a database, and a client written in JavaScript, takes.
MAX_SAFE_INTEGER = 2**53 - 1
#: Browsers may ask too, with a header that no other site can make them send (as FreshRSS and Miniflux answer).
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Accept, X-Auth-Token",
    "Access-Control-Max-Age": "3600",
}


async def body(request: Request) -> bytes:
    """All of it, but not endlessly much."""
    read = await read_body(request, MAX_BODY_BYTES)
    if len(read) > MAX_BODY_BYTES:
        raise TooLarge(f"the request is larger than {MAX_BODY_BYTES:,} bytes")
    return read


class RequestParams:
    """What was sent by name, in the address and in the body alike: clients of all dialects put either in either."""

    def __init__(self, pairs: Sequence[tuple[str, str]], raw: bytes = b"") -> None:
        self.raw = raw  #: the body as it came
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
        """A whole number that is not negative, and that a database takes; None where there is none."""
        return parse_int(self.get(name))


async def fields(request: Request) -> RequestParams:
    """Address and form. Readrops sends its forms as multipart; newsboat sends JSON as a form, which nobody reads here."""
    found = pairs(request.url.query, MAX_FIELDS)
    raw = await body(request) if request.method in ("POST", "PUT") else b""
    kind = request.headers.get("content-type", "")
    if kind.lower().startswith("multipart/"):
        found += [
            (name, decoded(content))
            for name, _file, content in islice(parts(kind, raw), MAX_FIELDS)
        ]
    elif raw and "xml" not in kind and "json" not in kind:
        found += pairs(raw.decode("utf-8", "replace"), MAX_FIELDS)
    return RequestParams(found, raw)


def parse_int(text: str) -> int | None:
    """A whole number that is not negative, within what clients and databases take."""
    return (
        int(text) if re.fullmatch(r"[0-9]{1,16}", text) and int(text) <= MAX_SAFE_INTEGER else None
    )


def basic_credentials(header: str) -> list[tuple[str, str]]:
    """Name and password, in both readings that clients give them: newsboat sends UTF-8, `requests` latin-1."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return []
    readings = (
        {decoded.decode("utf-8", "replace"), decoded.decode("latin-1")}
        if not decoded.isascii()
        else {decoded.decode()}
    )
    return [
        (name, password)
        for name, colon, password in (text.partition(":") for text in sorted(readings))
        if colon
    ]


def json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        msgspec.json.encode(value), status, {**CORS, **(headers or {})}, "application/json"
    )


def text(value: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(value, status, {**CORS, **(headers or {})}, "text/plain")


def preflight() -> Response:
    return Response(status_code=204, headers=CORS)


def conditional_response(request: Request, response: Response) -> Response:
    """With an ETag; 304 where the client has the very same already."""
    tag = f'"{blake2b(bytes(response.body), digest_size=12).hexdigest()}"'
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers={**CORS, "ETag": tag})
    response.headers["ETag"] = tag
    return response


def http_status(error: TidingsError) -> int:
    """Which HTTP status says this."""
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
    """And whether it is new. Of several feeds the site's first: these clients have no way to choose. They look at the feed as
    soon as they have their answer, so it is polled before."""
    addition = await reader_service.subscribe(url, title=title, folder=folder)
    if addition.added is None:
        addition = await reader_service.subscribe(
            addition.choices[0].url, title=title, folder=folder
        )
    if addition.added is None:
        raise UsageError(f"{url} names several feeds; give the address of one of them")
    made = await reader_service.subscription(addition.added.feed_id)
    if made.feed.state.last_poll_at is None and reader_service.aggregator is not None:
        await reader_service.aggregator.poll([made.feed.id])
        made = await reader_service.subscription(made.feed.id)
    return made, addition.added.subscription_new
