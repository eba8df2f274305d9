"""The reference in docs/api.md, which is generated from the OpenAPI document.

``python -m tests.web.api.test_api_docs`` regenerates it.
"""

import re
from pathlib import Path

from tidings import reasons
from tidings.reasons import Reason, render
from tidings.web.api.miniflux import OPERATIONS
from tidings.web.api.openapi import document

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
MARK = "<!-- Generated from the OpenAPI document by: python -m tests.web.api.test_api_docs -->\n"


def kind(schema):
    """Describe the type of a schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#data-type-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value != "" else "empty" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}"
    if schema.get("type") == "object":
        return f"map of names to {kind(schema['additionalProperties'])}"
    return "time" if schema.get("format") == "date-time" else schema.get("type", "any")


def operation(method, path, spec):
    lines = [f"### {method.upper()} {path}", "", f"{spec['summary']}."]
    names = [p["name"] for p in spec["parameters"] if p["in"] == "query"]
    if names:
        lines += ["", "Query: " + ", ".join(f"`{name}`" for name in names) + "."]
    for heading, part in (
        ("Body", spec.get("requestBody")),
        ("Response", next(iter(spec["responses"].values()))),
    ):
        for media, content in (part or {}).get("content", {}).items():
            lines += [
                "",
                f"{heading}: {kind(content['schema']) if media == 'application/json' else media}.",
            ]
    return [*lines, "", "Statuses: " + ", ".join(spec["responses"]) + ".", ""]


def reference():
    spec = document(OPERATIONS)
    lines = [MARK, "## REST API operations", ""]
    for path, methods in spec["paths"].items():
        for method, operation_spec in methods.items():
            lines += operation(method, path, operation_spec)
    lines += ["## REST API data types", ""]
    for name, schema in spec["components"]["schemas"].items():
        description = schema.get("description", "")
        lines += [
            f"### Data type {name}",
            "",
            *([description, ""] if description else []),
            "| field | type |",
            "|---|---|",
        ]
        lines += [f"| `{field}` | {kind(inner)} |" for field, inner in schema["properties"].items()]
        lines.append("")
    return "\n".join(lines)


def test_reference_matches_openapi_document():
    assert PAGE.read_text().partition(MARK)[2] == reference().partition(MARK)[2], (
        "run: python -m tests.web.api.test_api_docs"
    )


def test_reason_codes_are_documented_with_parameters():
    table = PAGE.read_text().partition("| code | parameters | meaning |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    assert rows.keys() == reasons._TEXTS.keys()
    for code, names in rows.items():
        reason = Reason(code, dict.fromkeys(re.findall(r"`(\w+)`", names), 2))
        assert render(reason) != reasons._unknown(code, reason.params), code


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + reference())
