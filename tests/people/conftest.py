"""A town of readers on a real store, on either database: ``town.ann.follows("blog")``, ``town.posted("blog", 1, 2)``."""

import importlib.util
import os

import pytest
from msgspec.structs import replace

from tests.postgres import database
from tests.store.conftest import Clock, Story, entry
from tidings.people import Events, People, Reading
from tidings.store import people as table
from tidings.store.people_rows import Stream
from tidings.store.rows import Wanted


class Person:
    """A reader; other names are those of `Reading`, whose calls are plain here."""

    def __init__(self, town, user):
        self.town, self.user = town, user
        self.reading = Reading(user, town.store, town.clock, town.events)

    def __getattr__(self, name):
        method = getattr(self.reading, name)
        return lambda *args, **options: self.town.wait(method(*args, **options))

    def follows(self, *names, **fields):
        for name in names:
            self.town.add([Wanted(address(name), self.town.clock(), **fields)], self.user.id)
        return self.town.feed_id(names[-1])

    def titles(self, **stream):
        """The titles of a whole stream, in its order."""
        return [item.entry.title for item in self.page(Stream(**stream), limit=1000).items]

    def unread(self, **stream):
        return self.titles(unread=True, **stream)


class Town(Story):
    """A store with people in it, who are made when they are first named."""

    def __init__(self, where, clock):
        super().__init__(where, clock)
        self.events = Events()
        self.people = People(self.store, clock)
        self._persons = {}

    def __getattr__(self, name):
        return self.person(name) if name in ("ann", "bob", "cid") else super().__getattr__(name)

    def person(self, name):
        if name not in self._persons:
            # Without a password, which would take its time.
            user = self.wait(self.store.write(table.add_user, name, "", name == "ann", self.clock()))
            self._persons[name] = Person(self, user)
        return self._persons[name]

    def feed_id(self, name):
        return self.feed(address(name)).id

    def posted(self, name, *numbers, age_s=60.0, **fields):
        """The feed shows these entries, all new, published a minute ago unless told otherwise; returns their ids."""
        url, fields = fields.pop("url", f"https://{name}.example/"), {"published_at": self.clock() - age_s, **fields}
        new = [replace(entry(number, **fields), url=f"{url}{number}") for number in numbers]
        state = {"window": len(numbers)}
        return self.polled(self.feed_id(name), new=new, state=state).new


def need(module, extra):
    """What an extra brings must be there: in CI a failure, elsewhere a skip."""
    if importlib.util.find_spec(module) is None:
        words = f"pip install 'tidings[{extra}]'"
        pytest.fail(words) if os.environ.get("CI") else pytest.skip(words)


def address(name):
    return f"https://{name}.example/feed"


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def town(request, tmp_path, clock):
    if request.param == "sqlite":
        town = Town(tmp_path / "store.db", clock)
        yield town
        town.close()
    else:
        with database() as url:
            town = Town(url, clock)
            yield town
            town.close()
