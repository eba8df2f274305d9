"""Derive routes, request validation and OpenAPI from a table of REST operations.

An operation declares its body, query and response as msgspec types. An invalid request is
rejected before the handler is called.
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
    http_status,
    json_response,
    parse_int,
    preflight,
    read_limited_body,
    retry_after_header,
)
from tidings.web.request_context import AppServices

#: Escaped NUL character in JSON, which PostgreSQL cannot store.
NUL_ESCAPE = re.compile(rb"\\u0000")


class Call(Struct):
    """Validated and authenticated request, which is passed to a handler."""

    request: Request
    site: AppServices
    user: User
    reader_service: ReaderService
    ids: dict[str, int]
    names: dict[str, str]
    body: Any = None
    query: Any = None


class Operation(Struct, frozen=True, kw_only=True):
    """Operation of the REST API, with method, path, handler and types of request and response."""

    method: str
    path: str  #: path; parameters that end in ``_id`` are integers, others strings
    handler: Callable[[Call], Awaitable[Any]]
    summary: str
    status: int = 200
    other_statuses: tuple[int, ...] = ()  #: other statuses of success, with the same response
    #: Type of the response; None for no body; a string is the media type of a `Response`.
    response: Any = None
    body: Any = None  #: type of the request body; a string is the media type of raw bytes
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
        """Descriptions of the error statuses that the operation can return, by status code."""
        descriptions = {
            401: "Missing or wrong credentials.",
            429: "Too many failed logins; retry later.",
        }
        if self.parameters or self.query or self.body:
            descriptions[400] = "The request is invalid."
        if self.admin or self.tag == "users":
            descriptions[403] = "Only an administrator can do this."
        if self.parameters or self.tag == "discover":
            descriptions[404] = "The object does not exist or belongs to another user."
        if self.body:
            descriptions[413] = "The request body is too large."
        return dict(sorted(descriptions.items()))


def operation(
    method: str, path: str, handler: Callable[[Call], Awaitable[Any]], summary: str, **more: Any
) -> Operation:
    """Return an operation whose response type is, by default, the return type of its handler."""
    fields = {"response": handler.__annotations__["return"], **more}
    return Operation(method=method, path=path, handler=handler, summary=summary, **fields)


class Resource:
    """ASGI endpoint for all operations on one path."""

    def __init__(self, site: AppServices, operations: Sequence[Operation]) -> None:
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
                raise not_found("path")
            operation = self._operations.get("GET" if request.method == "HEAD" else request.method)
            if operation is None:
                allow = ", ".join(sorted({*self._operations, "OPTIONS"}))
                return error_response(
                    f"{request.method} is not allowed for this path", 405, {"Allow": allow}
                )
            return await execute(operation, self._site, request, user)
        except WrongPassword:
            return error_response(
                "access unauthorized", 401, {"WWW-Authenticate": 'Basic realm="tidings"'}
            )
        except msgspec.DecodeError as error:  # includes ValidationError
            return error_response(str(error), 400)
        except TidingsError as error:
            return error_response(str(error), http_status(error), retry_after_header(error))


async def authenticate(site: AppServices, request: Request) -> User:
    """Return the user of ``X-Auth-Token``, or of HTTP Basic with a password or API token.

    Raises `WrongPassword`, or `TooManyAttempts` during the backoff after failed logins.
    """
    if token := request.headers.get("x-auth-token"):
        if (user := await site.user_service.user_by_token(token)) is None:
            raise WrongPassword("access unauthorized")
        return user
    failed = WrongPassword("access unauthorized")
    for name, password in basic_credentials(request.headers.get("authorization", "")):
        try:
            return await site.user_service.log_in(name, password, site.client_address(request))
        except WrongPassword as error:
            failed = error
    raise failed


async def execute(
    operation: Operation, site: AppServices, request: Request, user: User
) -> Response:
    """Check the permission, validate path, body and query, and call the operation's handler."""
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
        call.body = await read_limited_body(request)
    elif operation.body is not None:
        raw = await read_limited_body(request)
        if NUL_ESCAPE.search(raw):
            raise UsageError("strings must not contain a NUL character")
        call.body = msgspec.json.decode(raw, type=operation.body)
    if operation.query is not None:
        call.query = _query(request, operation.query)
    result = await operation.handler(call)
    if isinstance(result, Response):
        return result
    return (
        json_response(result, operation.status)
        if operation.response is not None
        else _empty(operation.status)
    )


def _query(request: Request, kind: type[Struct]) -> Any:
    params = RequestParams(request.query_params.multi_items())
    values: dict[str, Any] = {}
    for field in structs.fields(kind):
        if field.name in params:
            is_list = get_origin(field.type) is list
            values[field.name] = (
                params.all(field.name) if is_list else params.get(field.name).replace("\0", "")
            )
    return msgspec.convert(values, kind, strict=False)


def _empty(status: int) -> Response:
    return Response(status_code=status, headers=CORS)


def error_response(message: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return json_response({"error_message": message}, status, headers)


def routes(site: AppServices, operations: Sequence[Operation]) -> list[BaseRoute]:
    """Return one route for each path, in the order of the table."""
    by_path: dict[str, list[Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, []).append(operation)
    return [Route(path, Resource(site, same_path)) for path, same_path in by_path.items()]


def not_found(kind: str) -> NotFound:
    return NotFound(f"{kind} not found")
