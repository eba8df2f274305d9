"""Users on a real store, with SQLite and PostgreSQL.

Example: ``env.ann.subscribe_to("blog")``, ``env.publish("blog", 1, 2)``.
"""

import importlib.util
import os

import pytest
from msgspec.structs import replace

from tests.postgres import database
from tests.store.conftest import Clock, SyncStore, entry
from tidings.store import users as table
from tidings.store.feed_models import NewSubscription
from tidings.store.user_models import Stream
from tidings.users import EventBus, ReaderService, UserService


class SyncReader:
    """A user with the methods of `ReaderService`, called synchronously."""

    def __init__(self, env, user):
        self.env, self.user = env, user
        self.reader_service = ReaderService(user, env.store, env.clock, env.events)

    def __getattr__(self, name):
        method = getattr(self.reader_service, name)
        return lambda *args, **options: self.env.wait(method(*args, **options))

    def subscribe_to(self, *names, **fields):
        for name in names:
            self.env.add_subscriptions(
                [NewSubscription(feed_url(name), self.env.clock(), **fields)], self.user.id
            )
        return self.env.feed_id(names[-1])

    def titles(self, **stream):
        """Return the titles of all entries of a stream, in its order."""
        return [item.entry.title for item in self.page(Stream(**stream), limit=1000).items]

    def unread(self, **stream):
        return self.titles(unread=True, **stream)


class UserEnv(SyncStore):
    """A store with users, which are created at first access (``env.ann``)."""

    def __init__(self, location, clock):
        super().__init__(location, clock)
        self.events = EventBus()
        self.user_service = UserService(self.store, clock)
        self._readers = {}

    def __getattr__(self, name):
        return self.user(name) if name in ("ann", "bob", "cid") else super().__getattr__(name)

    def user(self, name):
        if name not in self._readers:
            # Without a password, because hashing one is slow.
            user = self.wait(
                self.store.write(table.add_user, name, "", name == "ann", self.clock())
            )
            self._readers[name] = SyncReader(self, user)
        return self._readers[name]

    def feed_id(self, name):
        return self.feed(feed_url(name)).id

    def publish(self, name, *numbers, age_s=60.0, **fields):
        """Record a poll with new entries, published ``age_s`` seconds ago; return their ids."""
        url, fields = (
            fields.pop("url", f"https://{name}.example/"),
            {"published_at": self.clock() - age_s, **fields},
        )
        new = [replace(entry(number, **fields), url=f"{url}{number}") for number in numbers]
        state = {"window": len(numbers)}
        return self.record_poll(self.feed_id(name), new=new, state=state).new


def require_extra(module, extra):
    """Require an optional dependency: fail in CI, skip elsewhere."""
    if importlib.util.find_spec(module) is None:
        message = f"pip install 'tidings[{extra}]'"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)


def feed_url(name):
    return f"https://{name}.example/feed"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def env(request, tmp_path, clock):
    if request.param == "sqlite":
        env = UserEnv(tmp_path / "store.db", clock)
        yield env
        env.close()
    else:
        with database() as url:
            env = UserEnv(url, clock)
            yield env
            env.close()
