"""The reference in docs/api.md is made from the OpenAPI document. ``python -m tests.web.api.test_api_docs`` writes it anew."""

import re
from pathlib import Path

from tidings import reasons
from tidings.reasons import Reason, render
from tidings.web.api.miniflux import OPERATIONS
from tidings.web.api.openapi import document

PAGE = Path(__file__).parents[3] / "docs" / "api.md"
MARK = "<!-- What follows is made from the OpenAPI document by: python -m tests.web.api.test_api_docs -->\n"


def kind(schema):
    """A type in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value != "" else "nothing" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}"
    if schema.get("type") == "object":
        return f"names to {kind(schema['additionalProperties'])}"
    return "time" if schema.get("format") == "date-time" else schema.get("type", "anything")


def operation(method, path, spec):
    lines = [
        f"### {method.upper()} {path}",
        "",
        spec["summary"] + ("" if spec["summary"].endswith("?") else "."),
    ]
    places = [p["name"] for p in spec["parameters"] if p["in"] == "query"]
    if places:
        lines += ["", "Query: " + ", ".join(f"`{name}`" for name in places) + "."]
    for words, part in (
        ("Takes", spec.get("requestBody")),
        ("Answers", next(iter(spec["responses"].values()))),
    ):
        for media, content in (part or {}).get("content", {}).items():
            lines += [
                "",
                f"{words}: {kind(content['schema']) if media == 'application/json' else media}.",
            ]
    return [*lines, "", "Statuses: " + ", ".join(spec["responses"]) + ".", ""]


def reference():
    spec = document(OPERATIONS)
    lines = [MARK, "## Operations", ""]
    for path, methods in spec["paths"].items():
        for method, one in methods.items():
            lines += operation(method, path, one)
    lines += ["## Values", ""]
    for name, schema in spec["components"]["schemas"].items():
        words = schema.get("description", "")
        lines += [
            f"### {name}",
            "",
            *([words, ""] if words else []),
            "| field | type |",
            "|---|---|",
        ]
        lines += [
            f"| `{field}` | {kind(inside)} |" for field, inside in schema["properties"].items()
        ]
        lines.append("")
    return "\n".join(lines)


def test_the_reference_is_made_from_the_document():
    assert PAGE.read_text().partition(MARK)[2] == reference().partition(MARK)[2], (
        "run: python -m tests.web.api.test_api_docs"
    )


def test_every_reason_code_is_documented_with_the_parameters_that_its_text_needs():
    table = PAGE.read_text().partition("| code | parameters | meaning |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.MULTILINE))
    assert rows.keys() == reasons._TEXTS.keys()
    for code, names in rows.items():
        given = Reason(code, dict.fromkeys(re.findall(r"`(\w+)`", names), 2))
        assert render(given) != reasons._unknown(code, given.params), code


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text().partition(MARK)[0] + reference())
