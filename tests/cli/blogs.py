"""The blogs of benchmarks/feedserver.py, in a thread: real HTTP on the loopback address, on a clock that can be moved on."""

import asyncio
import socket
import threading
import time

from aiohttp import web
from benchmarks.feedserver import Server, opml

from tests import TEST_TIMEOUT_S


class Blogs:
    """``with Blogs(3) as blogs``: ``blogs.url(1)`` is a feed, ``blogs.site(1)`` its page, ``blogs.asked`` what was asked."""

    def __init__(self, feeds, entries=20):
        self.asked = []
        self._ahead_s = 0.0
        self._server = Server(feeds, entries, seed=1, clock=lambda: time.time() + self._ahead_s)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def url(self, number):
        return f"{self.site(number)}/{self._server.blogs[number - 1].kind}.xml"

    def site(self, number):
        return f"{self.address}/blog/{number}"

    def move_on(self, seconds):
        """Time passes for the blogs."""
        self._ahead_s += seconds

    def until_news(self, number):
        """Time passes until a blog has posted for certain, and more than once: it does in every gap, at any moment of it."""
        self.move_on(6 * self._server.blogs[number - 1].gap_s)

    def list(self, file):
        """Written as OPML."""
        file.write_text(opml(self._server.blogs, self.address))
        return file

    def __enter__(self):
        @web.middleware
        async def note(request, handler):
            self.asked.append(request.path)
            return await handler(request)

        async def start():
            app = self._server.app()
            app.middlewares.append(note)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.SockSite(runner, self._listening).start()
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
