"""Fixtures of the store's tests: a store with synchronous calls, on a clock that tests move.

Every test that uses `store` or `open_store` runs twice, on a SQLite file and on PostgreSQL. A test
module for only one of them overrides the fixture `location`.
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
#: Errors of either database for a row that violates a constraint.
INTEGRITY_ERRORS = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now=MONDAY):
        self.now = now

    def __call__(self):
        return self.now

    def forward(self, seconds=0.0, *, days=0.0):
        self.now += seconds + days * 86400


def entry(number, *, text="", **fields):
    """Entry with this number, published an hour after the one before."""
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
    """A `Store` with synchronous methods, and helpers such as `record_poll`."""

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
        """Subscribe to a feed that is due now; return its id."""
        return self.add_subscriptions(
            [NewSubscription(url, fields.pop("first_poll_at", self.clock()), **fields)]
        )[0].feed_id

    def outcome(self, feed_id, *, new=(), next_in_s=3600.0, state=None, **fields):
        """Outcome of a poll at the present time."""
        state = replace(
            self.feed(feed_id).state, next_poll_at=self.clock() + next_in_s, **(state or {})
        )
        fields = {"status": 200, "document": tuple(e.identity for e in new) or None, **fields}
        return PollOutcome(feed_id=feed_id, at=self.clock(), new=tuple(new), state=state, **fields)

    def record_poll(self, feed_id, **fields):
        """Record a poll and move the clock by a second: the poll log has one row per time."""
        (result,) = self.record([self.outcome(feed_id, **fields)])
        self.clock.forward(1)
        return result

    def titles(self, **filters):
        return [e.title for e in self.entries(**filters)]


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def location(request, tmp_path):
    """Location of the test's store."""
    if request.param == "sqlite":
        yield tmp_path / "store.db"
    else:
        with postgres.database() as url:
            yield url


@pytest.fixture
def open_store(location, clock):
    """``with open_store(...) as store``: opens the test's store; may be used repeatedly."""

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
