"""HTTP server of simulated blogs, in a thread, with a settable clock."""

import asyncio
import socket
import threading
import time

from aiohttp import web
from benchmarks.feedserver import Server, opml

from tests import TEST_TIMEOUT_S


class Blogs:
    """Blog server on loopback: ``with Blogs(3) as blogs``.

    ``blogs.url(1)`` is a feed, ``blogs.site(1)`` its website, and ``blogs.requested_paths`` has the
    paths of all requests.
    """

    def __init__(self, feeds, entries=20):
        self.requested_paths = []
        self._ahead_s = 0.0
        self._server = Server(feeds, entries, seed=1, clock=lambda: time.time() + self._ahead_s)
        self._server_socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server_socket.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def url(self, number):
        return f"{self.site(number)}/{self._server.blogs[number - 1].kind}.xml"

    def site(self, number):
        return f"{self.address}/blog/{number}"

    def advance(self, seconds):
        """Advance the clock of the blogs."""
        self._ahead_s += seconds

    def advance_until_posts(self, number):
        """Advance the clock by six posting intervals, so that the blog has several new posts."""
        self.advance(6 * self._server.blogs[number - 1].gap_s)

    def write_opml(self, file):
        """Write the list of all blogs as OPML, and return the file."""
        file.write_text(opml(self._server.blogs, self.address))
        return file

    def __enter__(self):
        @web.middleware
        async def record_path(request, handler):
            self.requested_paths.append(request.path)
            return await handler(request)

        async def start():
            app = self._server.app()
            app.middlewares.append(record_path)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.SockSite(runner, self._server_socket).start()
            return runner

        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(start(), self._loop).result(
            timeout=TEST_TIMEOUT_S
        )
        return self

    def __exit__(self, *_):
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(
            timeout=TEST_TIMEOUT_S
        )
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=TEST_TIMEOUT_S)
        self._loop.close()
