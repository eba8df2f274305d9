"""The whole service on real HTTP, in a thread of its own: a store, an aggregator, pages, on the loopback address."""

import asyncio
import http.client
import json
import threading
from concurrent.futures import Future

import pytest
from argon2 import PasswordHasher

from tests import PATIENCE_S
from tests.cli.blogs import Blogs
from tests.web.people import Person
from tidings import service
from tidings.config import read
from tidings.people import passwords

#: As passwords are hashed, but a hundred times cheaper: these tests log in all the time.
passwords._hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


class Serving:
    """``serving.get("/")`` gives the response and its text."""

    def __init__(self, folder, **flags):
        self.store_path = folder / "tidings.db"
        self._listening = service.listen("127.0.0.1", 0)
        self.port = self._listening.getsockname()[1]
        flags = {name: value.replace("{port}", str(self.port)) for name, value in flags.items()}
        self.settings = read(folder, {}, {"fetch.allow_private": "true", **flags})
        self.address = service.address(self._listening)
        self._began, self._failed = Future(), Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self):
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        try:
            await service.attend(self.settings, self.store_path, self._listening, stop, self._say)
        except Exception as error:  # raised again in the test's own thread
            self._failed.set_result(error)
            if not self._began.done():
                self._began.set_exception(error)

    def _say(self, line):
        if not self._began.done():
            self._began.set_result(line)

    def ended(self):
        """The error that ends the service by itself."""
        return self._failed.result(timeout=PATIENCE_S)

    def __enter__(self):
        self._thread.start()
        self._began.result(timeout=PATIENCE_S)
        return self

    def __exit__(self, *_):
        if not self._failed.done():
            self._stop()
        self._thread.join(timeout=PATIENCE_S)
        assert not self._thread.is_alive()
        self._listening.close()

    def get(self, target, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response, text

    def json(self, target):
        response, text = self.get(target)
        assert response.headers["Content-Type"] == "application/json"
        return json.loads(text)

    def person(self, name=""):
        return Person(self.port, name)


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """A service that nobody has set up yet."""
    with Serving(tmp_path_factory.mktemp("data")) as serving:
        yield serving


@pytest.fixture(scope="module")
def blogs():
    with Blogs(4) as blogs:
        yield blogs


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A service with an administrator, ada, and a reader, bob."""
    with Serving(tmp_path_factory.mktemp("house")) as serving:
        serving.ada = serving.person("ada").begin()
        serving.bob = serving.ada.invite("bob")
        yield serving


@pytest.fixture
def ada(house):
    return house.ada


@pytest.fixture
def bob(house):
    return house.bob
