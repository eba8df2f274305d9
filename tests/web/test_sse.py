"""Server-sent events: each user gets only events of subscribed feeds and own entry state."""

import http.client
import json
import threading
from queue import Queue

import pytest

from tests import TEST_TIMEOUT_S


class EventStreamClient:
    """An open event stream; ``next()`` returns the kind and data of the next event."""

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
        assert self.next() == ("connected", {})

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


def test_new_entries_are_sent_to_subscribers_only(reader_server, ada, bob, blogs, subscribed_feed):
    subscribed_stream, other_stream = EventStreamClient(ada), EventStreamClient(bob)
    blogs.advance(2 * 3600)
    ada.post(f"/feed/{subscribed_feed}/poll")
    kind, event_data = subscribed_stream.next()
    assert (kind, event_data["feed"]) == ("entries_added", subscribed_feed)
    assert set(event_data["ids"]) <= set(ada.get(f"/feed/{subscribed_feed}").entries)
    bob.post("/feeds/add", url=blogs.url(2))
    assert other_stream.next()[0] == "subscriptions"  # and no event of the other feed


def test_entry_state_changes_are_sent(ada, subscribed_feed):
    subscribed_stream = EventStreamClient(ada)
    entry = ada.get(f"/feed/{subscribed_feed}?show=all").entries[0]
    ada.post(f"/entry/{entry}", star="1")
    assert subscribed_stream.next() == ("entry_state_changed", {"feed": None, "ids": [entry]})
