"""The store's vocabulary: a day of polls told in a few words, on a clock that stands until it is moved.

Every test that uses `store` or `opened` runs twice, on a real SQLite file and on a real PostgreSQL; a module that is about one
of them has a fixture `place` of its own.
"""

import asyncio
import sqlite3
from contextlib import contextmanager

import asyncpg
import pytest
from msgspec.structs import replace

from tests import postgres
from tests.trace_helpers import MONDAY
from tidings.parse.sanitize import search_text
from tidings.store import Store
from tidings.store.feed_models import EntryText, NewSubscription, PollOutcome

LEASE_S = 300.0
#: What either database says to a row that it cannot hold.
INTEGRITY_ERRORS = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)


class Clock:
    def __init__(self, now=MONDAY):
        self.now = now

    def __call__(self):
        return self.now

    def forward(self, seconds=0.0, *, days=0.0):
        self.now += seconds + days * 86400


def entry(number, *, text="", **fields):
    """Entry number so and so, an hour after the one before it."""
    fields = {
        "published_at": MONDAY + number * 3600,
        "title": f"Post {number}",
        "digest": b"1",
        **fields,
    }
    content, url = f"<p>{text}</p>", f"https://a.example/{number}"
    return EntryText(
        identity=f"id:{number}", text=search_text(content), content=content, url=url, **fields
    )


class SyncStore:
    """A store whose calls are plain: ``story.polled(feed, new=[entry(1)])``. Other names are the store's own."""

    def __init__(self, location, clock, **options):
        self.location, self.clock = location, clock
        self._loop = asyncio.new_event_loop()
        self.store = Store.open(location, clock=clock, **options)

    def __getattr__(self, name):
        method = getattr(self.store, name)
        return lambda *args, **options: self.wait(method(*args, **options))

    def wait(self, work):
        return self._loop.run_until_complete(work)

    def close(self):
        self.wait(self.store.close())
        self._loop.close()

    def subscribe(self, url="https://a.example/feed", **fields):
        """Add a feed that is due at once; returns its id."""
        return self.add(
            [NewSubscription(url, fields.pop("first_poll_at", self.clock()), **fields)]
        )[0].feed_id

    def outcome(self, feed_id, *, new=(), next_in_s=3600.0, state=None, **fields):
        """What a poll of now brings; the feed is due again later."""
        state = replace(
            self.feed(feed_id).state, next_poll_at=self.clock() + next_in_s, **(state or {})
        )
        fields = {"status": 200, "document": tuple(e.identity for e in new) or None, **fields}
        return PollOutcome(feed_id=feed_id, at=self.clock(), new=tuple(new), state=state, **fields)

    def record_poll(self, feed_id, **fields):
        """Record one poll, and let a second pass: no feed is asked twice at once."""
        (recorded,) = self.record([self.outcome(feed_id, **fields)])
        self.clock.forward(1)
        return recorded

    def titles(self, **filters):
        return [e.title for e in self.entries(**filters)]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def location(request, tmp_path):
    """Where the test's store is."""
    if request.param == "sqlite":
        yield tmp_path / "store.db"
    else:
        with postgres.database() as url:
            yield url


@pytest.fixture
def open_store(location, clock):
    """``with opened(...) as story``: a story on the test's store, as often as it is wanted."""

    @contextmanager
    def open_sync_store(at=location, **options):
        sync_store = SyncStore(at, clock, **options)
        try:
            yield sync_store
        finally:
            sync_store.close()

    return open_sync_store


@pytest.fixture
def store(open_store):
    with open_store() as sync_store:
        yield sync_store
