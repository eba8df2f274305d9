"""Conformance of the API to its OpenAPI document."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidings.web.api.miniflux import OPERATIONS

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,unsupported_method"
)


@pytest.fixture
def spec(server):
    return server.call("GET", "/v1/openapi.json").json


def test_document_has_all_operations(spec):
    assert spec["openapi"].startswith("3.1")
    documented = {
        (method.upper(), path) for path, methods in spec["paths"].items() for method in methods
    }
    assert documented == {(operation.method, operation.path) for operation in OPERATIONS}
    assert len(documented) == len(OPERATIONS)


def test_schema_references_are_resolved(spec):
    names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(spec)))
    assert names
    assert names <= set(spec["components"]["schemas"])


def test_reference_page_has_no_script(server):
    page = server.call("GET", "/v1/docs").text
    assert all(operation.path in page for operation in OPERATIONS)
    assert not re.search(r"<script|<style|https?://", page)


def run(server, ann, *options):
    """Run Schemathesis, which generates requests from the document.

    Its token is the last of many, because the requests revoke tokens with small ids.
    """
    program = shutil.which("schemathesis", path=str(Path(sys.executable).parent))
    assert program, "pip install schemathesis (or: make tools)"
    names = (f"{' '.join(options)} {number}" for number in range(300))
    *_, token = (
        server.wait(server.user_service.add_token(ann.user, name)).secret for name in names
    )
    command = [
        program,
        "run",
        f"{server.address}/v1/openapi.json",
        "-H",
        f"X-Auth-Token: {token}",
        "--seed",
        "1",
    ]
    command += ["--checks", CHECKS, "--no-color", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
    assert server.call("GET", "/v1/me", None, {"X-Auth-Token": token}).status == 200
    return done.stdout


def test_generated_requests_get_documented_responses(server, ann):
    output = run(server, ann, "--phases", "fuzzing", "--max-examples", "2")
    assert f"{len(OPERATIONS)} passed" in output


@pytest.mark.slow
def test_many_generated_requests_get_documented_responses(server, ann):
    output = run(server, ann, "--phases", "coverage,fuzzing", "--max-examples", "20")
    assert output.count(f"{len(OPERATIONS)} passed") == 2
