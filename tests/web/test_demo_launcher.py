"""The button for the demo world: who may press it, where it leads, and that the world ends with whoever has made it."""

import http.client
import re
import time

from tests import TEST_TIMEOUT_S
from tests.web.conftest import ReaderServer
from tidings.web import demo_launcher


def until(condition, seconds=TEST_TIMEOUT_S):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


def answers(place):
    host = re.match("http://([^/]+)/", place)[1]
    connection = http.client.HTTPConnection(host, timeout=TEST_TIMEOUT_S)
    try:
        connection.request("GET", "/demo")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def test_others_may_not(reader_server, bob):
    assert bob.get("/demo").status == 403
    assert reader_server.client().get("/demo").status == 403
    assert reader_server.ada.get("/demo", X_Forwarded_For="203.0.113.9").status == 403


def test_a_world_is_made_and_ends_with_the_service(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(demo_launcher, "COMMAND", (*demo_launcher.COMMAND, "--publishers", "3"))
    with ReaderServer(tmp_path_factory.mktemp("fresh")) as server:
        nobody = server.client("ada")
        assert "Try the demo world" in nobody.get("/").text
        assert nobody.post("/demo", at="/").redirect_path == "/demo"
        assert "being made" in nobody.get("/demo").text
        page = until(lambda: (page := nobody.get("/demo")) and "Enter" in page.text and page)
        place = page.link(r"http://127\.0\.0\.1:\d+/demo")
        assert answers(place) == 200
    until(lambda: answers(place) is None)
