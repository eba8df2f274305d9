"""Command `serve` in a subprocess, with HTTP requests on loopback."""

import http.client
import re
import signal
import socket
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests import TEST_TIMEOUT_S
from tests.cli.conftest import TIDINGS


@contextmanager
def served(folder, *options):
    """Start the service, and return the process and the URL when it listens."""
    command = [
        TIDINGS,
        "--data-dir",
        folder,
        "--set",
        "fetch.allow_private=true",
        *options,
        "serve",
        "--port",
        "0",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, urlsplit(re.search(r"http://\S+", process.stdout.readline()).group())
        finally:
            process.kill()


def get(address, target):
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=TEST_TIMEOUT_S)
    connection.request("GET", target)
    response = connection.getresponse()
    return response.status, response.read().decode()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_stopped(tmp_path, ending):
    with served(tmp_path / "data") as (process, address):
        assert get(address, "/")[0] == 200
        process.send_signal(ending)
        out, err = process.communicate(timeout=TEST_TIMEOUT_S)
    assert (process.returncode, out) == (0, "tidings has stopped\n")
    events = [line.split(" ", 2)[1:] for line in err.splitlines()]
    assert [(level, event.split()[0]) for level, event in events] == [
        ("info", "service_started"),
        ("info", "service_stopping"),
    ]
    assert f"address=http://{address.netloc}/" in err


def test_imported_feeds_are_polled_and_a_second_service_is_rejected(
    tmp_path, local_tidings, blogs, installed
):
    with served(tmp_path / "data", "--set", "log.format=json") as (process, address):
        local_tidings("import", blogs.write_opml(tmp_path / "feeds.opml"))
        polled = (line for line in process.stderr if '"event": "poll_finished"' in line)
        assert all('"status": 200' in next(polled) for _ in range(4))
        assert "tidings_entries_new_total 80" in get(address, "/metrics")[1]
        second = installed("--data-dir", tmp_path / "data", "serve", "--port", "0")
        assert second.returncode == 1
        assert "is in use by another `tidings serve`" in second.stderr
        process.terminate()
        process.communicate(timeout=TEST_TIMEOUT_S)
    assert process.returncode == 0
    assert len(local_tidings.json("entries", "--limit", 0)) == 80


def test_service_loads_the_state_written_by_a_command(tmp_path, local_tidings, blogs):
    with served(tmp_path / "data") as (process, address):
        local_tidings.run("import", "-", input=f"{blogs.url(1)}\n{blogs.url(2)}\n")
        local_tidings("poll", "--all")
        assert any("scheduler_reloaded" in line for line in process.stderr)
        metrics = (
            dict(line.rsplit(" ", 1) for line in get(address, "/metrics")[1].splitlines())
            for _ in range(5000)
        )
        # Wait until the policy has started. While the scheduler looks up due feeds, no requests are
        # available for a moment.
        figures = next(
            one
            for one in metrics
            if "tidings_price" in one and one["tidings_requests_available"] != "0"
        )
        assert float(figures["tidings_price"]) > 0
        assert (
            16 <= float(figures["tidings_requests_available"]) <= 24
        )  # 12 per feed and day, minus the requests already made
        process.terminate()
        assert process.wait(timeout=TEST_TIMEOUT_S) == 0


def test_port_in_use_is_reported(installed, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = installed("--data-dir", tmp_path, "serve", "--port", port)
    assert result.returncode == 2
    assert result.stderr == (
        f"tidings: port {port} is already in use; stop the other program, or choose another port "
        "with --port (0 picks a free one)\n"
    )


def test_invalid_addresses_are_rejected(installed, tmp_path):
    here = ("--data-dir", tmp_path)
    assert (
        "is not an address of this machine"
        in installed(*here, "serve", "--host", "192.0.2.1", "--port", "0").stderr
    )
    assert installed(*here, "serve", "--port", "70000").returncode == 2
