"""Demo launcher: access, link to the running demo, and stop together with the service."""

import http.client
import re

from tests import TEST_TIMEOUT_S
from tests.web.client import wait_until
from tests.web.conftest import ReaderServer
from tidings.web import demo_launcher


def demo_status(url):
    """Return the HTTP status of the demo page, or None if nothing listens there."""
    host = re.match("http://([^/]+)/", url)[1]
    connection = http.client.HTTPConnection(host, timeout=TEST_TIMEOUT_S)
    try:
        connection.request("GET", "/demo")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def test_only_local_administrator_can_open_demo(reader_server, bob):
    assert bob.get("/demo").status == 403
    assert reader_server.client().get("/demo").status == 403
    assert reader_server.ada.get("/demo", X_Forwarded_For="203.0.113.9").status == 403


def test_demo_starts_and_stops_with_the_service(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(demo_launcher, "COMMAND", (*demo_launcher.COMMAND, "--publishers", "3"))
    with ReaderServer(tmp_path_factory.mktemp("data")) as server:
        client = server.client("ada")
        assert "Start demo" in client.get("/").text
        assert client.post("/demo", at="/").redirect_path == "/demo"
        assert "Starting the demo" in client.get("/demo").text
        page = wait_until(
            lambda: (page := client.get("/demo")) and "Open demo" in page.text and page
        )
        url = page.link(r"http://127\.0\.0\.1:\d+/demo")
        assert demo_status(url) == 200
    wait_until(lambda: demo_status(url) is None)
