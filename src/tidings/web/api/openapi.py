"""Generate the OpenAPI 3.1 document and an HTML reference page from the operations."""

from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import structs
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from tidings import __version__
from tidings.web.api.common import json_response
from tidings.web.api.miniflux_models import ApiError
from tidings.web.api.rest import Operation

REFERENCE = "#/components/schemas/{name}"
INTRODUCTION = (
    "The API of Miniflux, so that its clients work unchanged, with extensions: priority, rating, "
    "own tags and poll timing. Authenticate by HTTP Basic, or send an API token as X-Auth-Token. "
    "Times are in UTC."
)


def document(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of these operations as JSON-compatible values."""
    types = [
        t
        for o in operations
        for t in (o.response, o.body, o.query)
        if t is not None and not isinstance(t, str)
    ]
    schemas, components = msgspec.json.schema_components([ApiError, *types], ref_template=REFERENCE)
    for schema in components.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
    schema_of = dict(zip(map(_name, [ApiError, *types]), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(
            operation, schema_of, components
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidings", "version": __version__, "description": INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
                "basic": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{"token": []}, {"basic": []}],
    }


def _name(kind: Any) -> str:
    return str(kind)


def _operation(
    operation: Operation, schema_of: dict[str, Any], components: dict[str, Any]
) -> dict[str, Any]:
    def content(kind: Any) -> dict[str, Any]:
        if isinstance(kind, str):
            return {kind: {"schema": {"type": "string"}}}
        return {"application/json": {"schema": schema_of[_name(kind)]}}

    responses: dict[str, Any] = {}
    for status in (operation.status, *operation.other_statuses):
        responses[str(status)] = {"description": HTTPStatus(status).phrase}
        if operation.response is not None:
            responses[str(status)]["content"] = content(operation.response)
    for status, description in operation.errors.items():
        responses[str(status)] = {"description": description, "content": content(ApiError)}
    spec: dict[str, Any] = {
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": responses,
    }
    if operation.body is not None:
        spec["requestBody"] = {"required": True, "content": content(operation.body)}
    spec["parameters"] = [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in operation.parameters
    ]
    if operation.query is not None:
        properties = components[operation.query.__name__]["properties"]
        spec["parameters"] += [
            {"name": field.encode_name, "in": "query", "schema": properties[field.encode_name]}
            for field in structs.fields(operation.query)
        ]
    return spec


def _path_schema(name: str) -> dict[str, Any]:
    return (
        {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
        if name.endswith("_id")
        else {"type": "string"}
    )


def page(spec: dict[str, Any]) -> str:
    """Return the reference page, an HTML table of all operations without JavaScript."""
    rows = []
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            statuses = ", ".join(operation["responses"])
            parameters = [p["name"] for p in operation["parameters"]] + (
                ["body"] if "requestBody" in operation else []
            )
            cells = (
                f"{method.upper()} {path}",
                operation["summary"],
                ", ".join(parameters),
                statuses,
            )
            code, *others = map(escape, cells)
            rows.append(
                f"<tr><td><code>{code}</code></td>"
                + "".join(f"<td>{cell}</td>" for cell in others)
                + "</tr>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tidings: API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head><body><main>'
        f'<h1>API</h1><p>{escape(INTRODUCTION)} <a href="openapi.json">OpenAPI document</a>.</p>'
        "<table><thead><tr><th>Request</th><th>Description</th><th>Parameters</th>"
        "<th>Statuses</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></main></body></html>"
    )


def routes(operations: Sequence[Operation]) -> list[BaseRoute]:
    spec = document(operations)

    async def openapi(request: Request) -> Response:
        return json_response(spec)

    async def docs(request: Request) -> Response:
        return HTMLResponse(page(spec))

    return [Route("/v1/openapi.json", openapi), Route("/v1/docs", docs)]
