"""Pages that are open hear what changes, and only what concerns them."""

import http.client
import json
import threading
from queue import Queue

import pytest

from tests import PATIENCE_S


class Listener:
    """An open page: ``listener.next()`` is the next event and what it says."""

    def __init__(self, person):
        self._connection = http.client.HTTPConnection("127.0.0.1", person.port, timeout=PATIENCE_S)
        self._connection.request("GET", "/events", headers={"Cookie": f"tidings={person.cookie}"})
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
        return self._events.get(timeout=PATIENCE_S)


@pytest.fixture
def followed(house, blogs):
    house.feed = house.ada.follow(blogs.url(1))
    return house.feed


def test_new_entries_are_told_to_those_who_follow_the_feed(house, ada, bob, blogs, followed):
    hears, deaf = Listener(ada), Listener(bob)
    blogs.move_on(2 * 3600)
    ada.post(f"/feed/{followed}/look")
    kind, told = hears.next()
    assert (kind, told["feed"]) == ("arrived", followed)
    assert set(told["ids"]) <= set(ada.get(f"/feed/{followed}").entries)
    bob.post("/feeds/add", url=blogs.url(2))
    assert deaf.next()[0] == "subscriptions"  # and nothing of what came before


def test_marks_made_elsewhere_are_told(ada, followed):
    hears = Listener(ada)
    entry = ada.get(f"/feed/{followed}?show=all").entries[0]
    ada.post(f"/entry/{entry}", star="1")
    assert hears.next() == ("marked", {"feed": None, "ids": [entry]})
