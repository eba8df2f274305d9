"""The service as a process, with two blogs; each test is a reader of its own, whose marks are looked at by the REST API."""

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
    """Clients that pip cannot install. On a laptop their tests can be left out, where they are to prove something not."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            f"needs {missing}; on Debian: apt install {' '.join(programs)}"
        )


def entry_states(app):
    """What is read, and what is starred, by title."""
    entries = app.rest("GET", "/v1/entries?limit=1000").json["entries"]
    return {e["title"] for e in entries if e["status"] == "read"}, {
        e["title"] for e in entries if e["starred"]
    }


def wait_until(condition, what, seconds=TEST_TIMEOUT_S, every=0.05):
    """What it gives, as soon as that is something."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(every)
    return found
