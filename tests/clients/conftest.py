"""A service process with two blogs, and a new user for each test.

The REST API is used to check entry states.
"""

import os
import shutil
import time
from itertools import count

import pytest

from tests import TEST_TIMEOUT_S
from tests.clients.servers import BlogServer, ServiceProcess

_numbers = count(1)


@pytest.fixture(scope="session")
def blogs():
    with BlogServer(posts=4) as blogs:
        yield blogs


@pytest.fixture(scope="session")
def service(tmp_path_factory, blogs):
    with ServiceProcess(
        tmp_path_factory.mktemp("service"),
        {blogs.feed("alpha"): "Greek", blogs.feed("beta"): "Greek"},
    ) as service:
        yield service


@pytest.fixture
def app(service):
    return service.user(f"reader{next(_numbers)}")


def require_programs(*programs):
    """Require clients that pip cannot install: fail in CI, skip elsewhere."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            f"needs {missing}; on Debian: apt install {' '.join(programs)}"
        )


def entry_states(app):
    """Return the titles of read and of starred entries."""
    entries = app.rest("GET", "/v1/entries?limit=1000").json["entries"]
    return {e["title"] for e in entries if e["status"] == "read"}, {
        e["title"] for e in entries if e["starred"]
    }


def wait_until(condition, description, seconds=TEST_TIMEOUT_S, interval_s=0.05):
    """Wait until a condition is true and return its value."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {description}"
        time.sleep(interval_s)
    return found
