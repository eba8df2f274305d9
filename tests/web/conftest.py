"""Fixtures: the complete service on a loopback HTTP port, in a thread of the test process."""

import asyncio
import http.client
import json
import threading
from concurrent.futures import Future

import pytest
from argon2 import PasswordHasher

from tests import TEST_TIMEOUT_S
from tests.cli.blogs import Blogs
from tests.web.client import UserClient
from tidings import service
from tidings.config import read
from tidings.users import passwords

#: Password hashing with minimal cost parameters: these tests log in often.
passwords._hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)


class ReaderServer:
    """The service in a thread: ``server.get("/")`` returns the response and its text."""

    def __init__(self, folder, **flags):
        self.store_path = folder / "tidings.db"
        self._listening = service.listen("127.0.0.1", 0)
        self.port = self._listening.getsockname()[1]
        flags = {name: value.replace("{port}", str(self.port)) for name, value in flags.items()}
        self.settings = read(folder, {}, {"fetch.allow_private": "true", **flags})
        self.address = service.address(self._listening)
        self._started, self._error = Future(), Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self):
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        try:
            await service.run_service(
                self.settings, self.store_path, self._listening, stop, self._on_output
            )
        except Exception as error:  # raised again in the test's thread
            self._error.set_result(error)
            if not self._started.done():
                self._started.set_exception(error)

    def _on_output(self, line):
        if not self._started.done():
            self._started.set_result(line)

    def wait_for_error(self):
        """Return the error that stopped the service."""
        return self._error.result(timeout=TEST_TIMEOUT_S)

    def __enter__(self):
        self._thread.start()
        self._started.result(timeout=TEST_TIMEOUT_S)
        return self

    def __exit__(self, *_):
        if not self._error.done():
            self._stop()
        self._thread.join(timeout=TEST_TIMEOUT_S)
        assert not self._thread.is_alive()
        self._listening.close()

    def get(self, target, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TEST_TIMEOUT_S)
        connection.request(method, target, body, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response, text

    def json(self, target):
        response, text = self.get(target)
        assert response.headers["Content-Type"] == "application/json"
        return json.loads(text)

    def client(self, name=""):
        return UserClient(self.port, name)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A service before setup."""
    with ReaderServer(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def blogs():
    with Blogs(4) as blogs:
        yield blogs


@pytest.fixture(scope="module")
def reader_server(tmp_path_factory):
    """A service with the administrator ada and the user bob."""
    with ReaderServer(tmp_path_factory.mktemp("data")) as server:
        server.ada = server.client("ada").create_admin()
        server.bob = server.ada.add_user("bob")
        yield server


@pytest.fixture
def ada(reader_server):
    return reader_server.ada


@pytest.fixture
def bob(reader_server):
    return reader_server.bob
