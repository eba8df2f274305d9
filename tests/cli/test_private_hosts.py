"""Installed command on loopback with fetch.treat_private_as_public: all host limits apply.

Uses subprocesses, an HTTP server and the system clock, as an external test kit does.
"""

import threading
import time
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests import TEST_TIMEOUT_S
from tests.cli.test_serve import served
from tests.local_server import LocalServer, rss

OPTIONS = ("--set", "fetch.allow_private=true", "--set", "fetch.treat_private_as_public=true")
#: Shorter than the default for a fast test, but longer than a request on a busy computer.
SPACING_S = 0.5


class RateLimitedHost(LocalServer):
    """Host that records the request times, and sends 429 for /limited while ``limiting``."""

    def __init__(self):
        super().__init__()
        self.times = []
        self.limiting, self.retry_after = False, ""

    def answer(self, request):
        self.times.append((time.monotonic(), request.path))
        if self.limiting and request.path == "/limited":
            return 429, "text/plain", b""
        items = [f"<item><guid>{request.path}</guid><title>Post</title></item>"]
        return 200, "application/rss+xml", rss("Feed", items)

    def headers(self):
        return {"Retry-After": self.retry_after} if self.limiting and self.retry_after else {}

    @property
    def paths(self):
        return [path for _, path in self.times]

    def wait_for(self, count):
        deadline = time.monotonic() + TEST_TIMEOUT_S
        while len(self.times) < count:
            assert time.monotonic() < deadline, self.times
            threading.Event().wait(0.02)


@pytest.fixture
def host():
    with RateLimitedHost() as host:
        yield host


@pytest.fixture
def command(installed, tmp_path):
    """Run the installed script in a subprocess, on one data directory."""

    def run(*arguments, **options):
        result = installed("--data-dir", tmp_path / "data", *OPTIONS, *arguments, **options)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def subscribe(command, host, *paths):
    command("import", "-", input="".join(f"{host.address}{path}\n" for path in paths))


def test_the_service_spaces_requests_to_one_loopback_host(command, host, tmp_path):
    subscribe(command, host, "/a", "/b", "/c", "/d")
    options = (
        "--set",
        "fetch.treat_private_as_public=true",
        "--set",
        f"fetch.host_spacing_s={SPACING_S}",
    )
    with ExitStack() as stack:
        stack.enter_context(served(tmp_path / "data", *options))
        host.wait_for(4)
    times = [at for at, _ in host.times]
    assert sorted(host.paths[:4]) == ["/a", "/b", "/c", "/d"]
    assert min(after - before for before, after in pairwise(times)) >= 0.95 * SPACING_S


@pytest.mark.parametrize("retry_after", ["3600", ""])
def test_a_429_pauses_the_loopback_host_and_the_next_process_obeys(command, host, retry_after):
    host.limiting, host.retry_after = True, retry_after
    subscribe(command, host, "/limited", "/a", "/b")
    first = command("poll", "--all")
    assert host.paths == ["/limited"], first
    for _ in range(2):
        command("poll", "--all")
    assert host.paths == ["/limited"]
