"""Pages that are open hear what changes, and only what concerns them."""

import http.client
import json
import threading
from queue import Queue

import pytest

from tests import TEST_TIMEOUT_S


class EventStreamClient:
    """An open page: ``listener.next()`` is the next event and what it says."""

    def __init__(self, client):
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", client.port, timeout=TEST_TIMEOUT_S
        )
        self._connection.request("GET", "/events", headers={"Cookie": f"tidings={client.cookie}"})
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        self._events = Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.next() == ("hello", {})

    def _read(self):
        kind = ""
        while line := self._response.fp.readline().decode().strip("\r\n") or self._more():
            if line.startswith("event: "):
                kind = line[7:]
            elif line.startswith("data: "):
                self._events.put((kind, json.loads(line[6:])))

    def _more(self):
        return " "  # an empty line ends an event, not the stream

    def next(self):
        return self._events.get(timeout=TEST_TIMEOUT_S)


@pytest.fixture
def subscribed_feed(reader_server, blogs):
    reader_server.feed = reader_server.ada.subscribe(blogs.url(1))
    return reader_server.feed


def test_new_entries_are_told_to_those_who_follow_the_feed(
    reader_server, ada, bob, blogs, subscribed_feed
):
    subscribed_stream, other_stream = EventStreamClient(ada), EventStreamClient(bob)
    blogs.move_on(2 * 3600)
    ada.post(f"/feed/{subscribed_feed}/look")
    kind, event_data = subscribed_stream.next()
    assert (kind, event_data["feed"]) == ("arrived", subscribed_feed)
    assert set(event_data["ids"]) <= set(ada.get(f"/feed/{subscribed_feed}").entries)
    bob.post("/feeds/add", url=blogs.url(2))
    assert other_stream.next()[0] == "subscriptions"  # and nothing of what came before


def test_marks_made_elsewhere_are_told(ada, subscribed_feed):
    subscribed_stream = EventStreamClient(ada)
    entry = ada.get(f"/feed/{subscribed_feed}?show=all").entries[0]
    ada.post(f"/entry/{entry}", star="1")
    assert subscribed_stream.next() == ("marked", {"feed": None, "ids": [entry]})
