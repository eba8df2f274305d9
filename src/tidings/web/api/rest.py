"""One table of operations: from it come the routes, the reading of requests, and the OpenAPI document. None can drift.

An operation says what it takes (a Struct for the body, one for the query) and what it answers; a request that does not fit is
refused before its handler is called.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, get_origin

import msgspec
from msgspec import Struct, structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from tidings.errors import TidingsError, UsageError
from tidings.store.user_models import User
from tidings.users import Forbidden, NotFound, ReaderService, WrongPassword
from tidings.web.api.common import (
    CORS,
    RequestParams,
    basic_credentials,
    body,
    http_status,
    json,
    parse_int,
    preflight,
    retry_after_header,
)
from tidings.web.request_context import Site

#: A zero character in JSON, which no database can keep.
NUL_ESCAPE = re.compile(rb"\\u0000")


class Call(Struct):
    """A request as its handler sees it."""

    request: Request
    site: Site
    user: User
    reader_service: ReaderService
    ids: dict[str, int]
    names: dict[str, str]
    body: Any = None
    query: Any = None


class Operation(Struct, frozen=True, kw_only=True):
    """What can be done: a method and an address, and what goes in and comes out."""

    method: str
    path: str  #: ``{feed_id}`` is a number; a name that does not end so is a text
    handler: Callable[[Call], Awaitable[Any]]
    summary: str
    status: int = 200
    response: Any = (
        None  #: a type; None: no body; a text: its media type, and the handler makes the response
    )
    body: Any = None  #: a type; a text: the media type of raw bytes
    query: type[Struct] | None = None
    admin: bool = False

    @property
    def tag(self) -> str:
        return self.path.split("/")[2]

    @property
    def parameters(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def errors(self) -> dict[int, str]:
        """What can go wrong, beside what every request can be told: who are you, and not so fast."""
        found = {401: "Nobody is logged in.", 429: "Too many failed log-ins; wait."}
        if self.parameters or self.query or self.body:
            found[400] = "Something about the request is wrong."
        if self.admin or self.tag == "users":
            found[403] = "Only an administrator may do this."
        if self.parameters or self.tag == "discover":
            found[404] = "There is no such thing, or it is not yours."
        if self.body:
            found[413] = "Too large."
        return dict(sorted(found.items()))


def operation(
    method: str, path: str, handler: Callable[[Call], Awaitable[Any]], summary: str, **more: Any
) -> Operation:
    """One that answers what its handler says it returns, unless there is ``more`` to say."""
    told = {"answer": handler.__annotations__["return"], **more}
    return Operation(method=method, path=path, handler=handler, summary=summary, **told)


class Resource:
    """All operations on one address."""

    def __init__(self, site: Site, operations: Sequence[Operation]) -> None:
        self._site, self._operations = (
            site,
            {operation.method: operation for operation in operations},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return preflight()
        try:
            user = await authenticate(self._site, request)
            if not self._operations:
                raise not_found("address")
            operation = self._operations.get("GET" if request.method == "HEAD" else request.method)
            if operation is None:
                allow = ", ".join(sorted({*self._operations, "OPTIONS"}))
                return error_response(
                    f"{request.method} is not possible here", 405, {"Allow": allow}
                )
            return await execute(operation, self._site, request, user)
        except WrongPassword:
            return error_response(
                "access unauthorized", 401, {"WWW-Authenticate": 'Basic realm="tidings"'}
            )
        except msgspec.DecodeError as error:  # also what does not fit its type
            return error_response(str(error), 400)
        except TidingsError as error:
            return error_response(str(error), http_status(error), retry_after_header(error))


async def authenticate(site: Site, request: Request) -> User:
    """By ``X-Auth-Token``, or by HTTP Basic with the password or a token's secret."""
    if token := request.headers.get("x-auth-token"):
        if (user := await site.user_service.user_by_token(token)) is None:
            raise WrongPassword("access unauthorized")
        return user
    failed = WrongPassword("access unauthorized")
    for name, password in basic_credentials(request.headers.get("authorization", "")):
        try:
            return await site.user_service.log_in(name, password, site.address(request))
        except WrongPassword as error:
            failed = error
    raise failed


async def execute(operation: Operation, site: Site, request: Request, user: User) -> Response:
    if operation.admin and not user.admin:
        raise Forbidden("access forbidden")
    call = Call(request, site, user, site.reader_service(user), {}, {})
    for name in operation.parameters:
        value = request.path_params[name]
        if name.endswith("_id"):
            call.ids[name] = number = parse_int(value) or 0
            if not number:
                raise UsageError(f"invalid {name.removesuffix('_id').replace('_', ' ')} ID")
        else:
            call.names[name] = value
    if isinstance(operation.body, str):
        call.body = await body(request)
    elif operation.body is not None:
        raw = await body(request)
        if NUL_ESCAPE.search(raw):
            raise UsageError("a text must not hold a zero character")
        call.body = msgspec.json.decode(raw, type=operation.body)
    if operation.query is not None:
        call.query = _query(request, operation.query)
    told = await operation.handler(call)
    if isinstance(told, Response):
        return told
    return (
        json(told, operation.status) if operation.response is not None else _empty(operation.status)
    )


def _query(request: Request, kind: type[Struct]) -> Any:
    params = RequestParams(request.query_params.multi_items())
    given: dict[str, Any] = {}
    for field in structs.fields(kind):
        if field.name in params:
            several = get_origin(field.type) is list
            given[field.name] = (
                params.all(field.name) if several else params.get(field.name).replace("\0", "")
            )
    return msgspec.convert(given, kind, strict=False)


def _empty(status: int) -> Response:
    return Response(status_code=status, headers=CORS)


def error_response(words: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return json({"error_message": words}, status, headers)


def routes(site: Site, operations: Sequence[Operation]) -> list[BaseRoute]:
    """One for each address, in the order of the table; what is not in it is not found."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    found: list[BaseRoute] = [
        Route(path, Resource(site, several)) for path, several in by_path.items()
    ]
    return found


def not_found(thing: str) -> NotFound:
    return NotFound(f"there is no such {thing}")
