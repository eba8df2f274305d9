"""API servers and a blog server for tests, all on 127.0.0.1.

`ApiServer`: the APIs over HTTP with a real store, in a thread, with access to `ReaderService`:
``with BlogServer() as blogs, ApiServer(folder) as server``: ``ann = server.user("ann")``;
``ann.subscribe_to(blogs.feed("alpha"))``. `ServiceProcess`: the complete service as a process.
"""

import asyncio
import base64
import http.client
import json
import re
import subprocess
import threading
import time
from concurrent.futures import Future
from urllib.parse import urlencode

from starlette.applications import Starlette

from tests import TEST_TIMEOUT_S
from tests.cli.conftest import TIDINGS
from tests.local_server import LocalServer, rss
from tidings import service
from tidings.config import read
from tidings.users import EventBus, UserService
from tidings.users.favicons import FaviconFetcher
from tidings.web import request_context
from tidings.web.api import routes
from tidings.web.server import EmbeddedServer
from tidings.web.status import StatusReporter

PASSWORD = "correct horse battery"
#: A GIF of one pixel.
GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
ITEM = """<item><title>{title}</title><link>{site}/{number}</link>
<guid isPermaLink="false">{name}-{number}</guid><pubDate>{date}</pubDate><author>Nan</author>
<category>news</category><description>&lt;p&gt;Text {number} of {name},
released.&lt;/p&gt;</description>
<enclosure url="{site}/{number}.mp3" type="audio/mpeg" length="1234"/></item>"""


class BlogServer(LocalServer):
    """Blogs of any name with ``posts`` entries each, a page that links the feed, and an icon."""

    def __init__(self, posts=6):
        super().__init__()
        self.posts = posts

    def site(self, name):
        return f"{self.address}/{name}/"

    def feed(self, name):
        return f"{self.address}/{name}/feed.xml"

    def page(self, path):
        _, name, *rest = path.split("/")
        if path == "/favicon.ico":
            return GIF, "image/vnd.microsoft.icon"
        if rest == ["feed.xml"]:
            return self._document(name), "application/rss+xml"
        if rest == [""]:
            title = f"{name.title()} Releases"
            link = (
                f'<link rel="alternate" type="application/rss+xml" title="{title}" href="feed.xml">'
            )
            return f"<html><head>{link}</head><body>{name}</body></html>".encode(), "text/html"
        return b"", "text/plain"

    def _document(self, name):
        newest, items = time.time() - 3600, []
        for number in range(self.posts, 0, -1):
            date = time.strftime(
                "%a, %d %b %Y %H:%M:%S GMT", time.gmtime(newest - 3600 * (self.posts - number))
            )
            title = f"{name.title()} 2.0.{number}"
            items.append(
                ITEM.format(
                    title=title, site=f"{self.address}/{name}", number=number, name=name, date=date
                )
            )
        return rss(name.title(), items, self.site(name))


class HttpResponse:
    """An HTTP response with its body."""

    def __init__(self, response):
        self.status, self.headers = response.status, response.headers
        self.body = response.read()

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


class RunningServer:
    """Base class of servers: sends requests."""

    port: int

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def call(self, method, target, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TEST_TIMEOUT_S)
        connection.request(method, target, body, headers or {})
        response = HttpResponse(connection.getresponse())
        connection.close()
        return response

    def post(self, target, fields, headers=None):
        body = fields if isinstance(fields, str | bytes) else urlencode(fields, doseq=True)
        return self.call(
            "POST",
            target,
            body,
            {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})},
        )


class App:
    """An app of a user, with its own API token."""

    def __init__(self, server, name, token):
        self.server, self.name, self.token = server, name, token

    def rest(self, method, path, body=None):
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        return self.server.call(
            method, path, data, {"X-Auth-Token": self.token, "Content-Type": "application/json"}
        )

    @property
    def auth(self):
        """Auth token of the Google Reader API."""
        if not hasattr(self, "_auth"):
            result = self.server.post(
                "/accounts/ClientLogin", {"Email": self.name, "Passwd": PASSWORD}
            ).text
            self._auth = result.splitlines()[2].removeprefix("Auth=")
        return self._auth

    def google(self, path, fields=None, prefix=""):
        """Send GET, or POST with fields (pairs or a mapping)."""
        headers = {"Authorization": f"GoogleLogin auth={self.auth}"}
        target = f"{prefix}/reader/api/0/{path}"
        return (
            self.server.call("GET", target, None, headers)
            if fields is None
            else self.server.post(target, fields, headers)
        )


class UserApp(App):
    """A user with an app and the methods of `ReaderService`, called synchronously."""

    def __init__(self, server, name, admin):
        self.user = server.wait(server.user_service.add_user(name, PASSWORD, admin=admin, by=None))
        super().__init__(
            server, name, server.wait(server.user_service.add_token(self.user, "app")).secret
        )
        self.reader_service = server.site.reader_service(self.user)

    def __getattr__(self, name):
        method = getattr(self.reader_service, name)
        return lambda *args, **options: self.server.wait(method(*args, **options))

    def subscribe_to(self, url, folder=""):
        return self.subscribe(url, folder=folder).added.feed_id


class ApiServer(RunningServer):
    """A server of the APIs in a separate thread."""

    def __init__(self, folder):
        self._settings = read(folder, {}, {"fetch.allow_private": "true"})
        self._store_path = folder / "tidings.db"
        self._listening = service.listen("127.0.0.1", 0)
        self.port = self._listening.getsockname()[1]
        self._started = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self):
        try:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            async with service.open_polling(
                self._settings, self._store_path, serving=True
            ) as aggregator:
                self.user_service = UserService(aggregator.store, time.time)
                live = StatusReporter(aggregator, None, aggregator.store.counts, time.time)
                self.site = request_context.AppServices(
                    live,
                    self.user_service,
                    EventBus(),
                    FaviconFetcher(aggregator, time.time),
                    time.time,
                )
                server = EmbeddedServer(Starlette(routes=routes(self.site)))
                task = asyncio.create_task(server.serve([self._listening]))
                while not server.started:
                    await asyncio.sleep(0.005)
                self._started.set_result(None)
                await self._stop.wait()
                server.should_exit = True
                await task
        except Exception as error:  # raised again in the thread of the test
            if self._started.done():
                raise
            self._started.set_exception(error)

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(
            timeout=TEST_TIMEOUT_S
        )

    def user(self, name, *, admin=False):
        return UserApp(self, name, admin)

    def __enter__(self):
        self._thread.start()
        self._started.result(timeout=TEST_TIMEOUT_S)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=TEST_TIMEOUT_S)
        assert not self._thread.is_alive()
        self._listening.close()


class ServiceProcess(RunningServer):
    """The service as a process; new users are subscribed to ``feeds`` (folders by URL)."""

    def __init__(self, folder, feeds=(), settings=()):
        self._folder, self._feeds, self._settings = (
            folder,
            dict(feeds),
            ("fetch.allow_private=true", *settings),
        )

    def __enter__(self):
        command = [
            TIDINGS,
            "--data-dir",
            self._folder,
            *(argument for setting in self._settings for argument in ("--set", setting)),
        ]
        subprocess.run(
            [*command, "user", "add", "admin", "--admin", "--password-stdin"],
            input=PASSWORD,
            text=True,
            check=True,
        )
        with open(self._folder / "log", "w") as log:
            self._process = subprocess.Popen(
                [*command, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.port = int(
            re.search(r"http://127.0.0.1:(\d+)", self._process.stdout.readline()).group(1)
        )
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.communicate(timeout=TEST_TIMEOUT_S)
        assert self._process.returncode == 0

    def _basic(self, name, method, path, body):
        credentials = base64.b64encode(f"{name}:{PASSWORD}".encode()).decode()
        response = self.call(
            method, path, json.dumps(body), {"Authorization": f"Basic {credentials}"}
        )
        assert response.status == 201, response.text
        return response.json

    def user(self, name):
        self._basic("admin", "POST", "/v1/users", {"username": name, "password": PASSWORD})
        app = App(
            self, name, self._basic(name, "POST", "/v1/api-keys", {"description": "app"})["token"]
        )
        names = set(self._feeds.values())
        folders = {
            folder: app.rest("POST", "/v1/categories", {"title": folder}).json["id"]
            for folder in names
        }
        for url, folder in self._feeds.items():
            assert (
                app.rest(
                    "POST", "/v1/feeds", {"feed_url": url, "category_id": folders[folder]}
                ).status
                == 201
            )
        return app
