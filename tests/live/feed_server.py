"""Feed server on loopback with a simulated clock, and the aggregator on a real store.

``feed_server.write("/a", 3)`` publishes three posts, ``await feed_server.poll()`` polls manually,
``await feed_server.run_for(hours=5)`` runs the polling loop on the simulated clock. Tests then
check ``feed_server.requests_for("/a")`` and the store.
"""

import asyncio
import functools
from contextlib import asynccontextmanager
from email.utils import formatdate

from aiohttp import web

from tests import TEST_TIMEOUT_S
from tests.trace_helpers import MONDAY
from tidings.aggregator import Aggregator, Scheduler
from tidings.config import Budget
from tidings.fetch import Fetcher, FetchSettings
from tidings.model import HOUR_S
from tidings.policy import make_policy
from tidings.store import Store
from tidings.store.feed_models import NewSubscription

HOURLY = Budget(24.0, True)


class Clock:
    """Simulated clock: a sleep advances it up to ``end``, but not while polls are running."""

    def __init__(self, now=MONDAY):
        self.now = now
        self.end = now
        self.busy = lambda: False

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        if self.busy() or self.now >= self.end:
            await asyncio.Event().wait()  # the loop is woken by a finished poll, or stopped
        self.now = min(self.now + seconds, self.end)

    async def wait_for_host(self, seconds):
        """Advance the clock for the host limiter, whose sleeps are part of running polls."""
        self.now += seconds
        await asyncio.sleep(0)


class PublishedFeed:
    """A published feed, whose behavior tests can change between polls."""

    def __init__(self, window):
        self.window = window
        self.posts = []  # (number, time or None, text), oldest first
        self.headers = {}
        self.status = 200
        self.extra = ""
        self.conditional = True
        self.etag = ""  # constant ETag of a broken server
        self.id_prefix = ""  # prefix of all ids, for feeds that change them
        self.archives = {}  # path -> (posts, extra)
        self.answer_page = None  # function for requests with ?paged=N: returns a document or None

    def document(self, posts=None, extra=None):
        items = "".join(
            f"<item><guid>{self.id_prefix}{number}</guid><title>Post {number}</title>"
            f"<link>http://blog.example/{number}</link>"
            + (f"<pubDate>{formatdate(at)}</pubDate>" if at is not None else "")
            + f"<description>{text}</description></item>"
            for number, at, text in reversed(self.posts[-self.window :] if posts is None else posts)
        )
        return (
            '<?xml version="1.0"?><rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom">'
            "<channel><title>A blog</title>"
            f"{self.extra if extra is None else extra}{items}</channel></rss>"
        )


class FeedServer:
    def __init__(self, clock, path):
        self.clock, self.path = clock, path
        self.feeds, self.requests = {}, []
        self.pages = {}

    # --- publishers -----------------------------------------------------------------------------

    def feed(self, path, *, posts=0, window=10):
        feed = self.feeds[path] = PublishedFeed(window)
        self.write(path, posts)
        return feed

    def write(self, path, posts=1, *, at="now", every_s=0.0, text="words"):
        """Publish posts ``every_s`` apart, the last one at ``at`` (None: undated)."""
        feed = self.feeds[path]
        last = self.clock() if at == "now" else at
        for i in range(posts):
            when = None if last is None else last - (posts - 1 - i) * every_s
            feed.posts.append((len(feed.posts), when, text))

    async def answer(self, request):
        self.requests.append((self.clock(), request))
        for feed in self.feeds.values():
            if request.path in feed.archives:
                posts, extra = feed.archives[request.path]
                return web.Response(
                    text=feed.document(posts, extra), content_type="application/rss+xml"
                )
        if request.path in self.pages:
            return web.Response(text=self.pages[request.path], content_type="text/html")
        feed = self.feeds.get(request.path)
        body = (
            feed.answer_page(request)
            if feed is not None and feed.answer_page and "paged" in request.query
            else ""
        )
        if feed is None or body is None:
            return web.Response(status=404, text="nothing here")
        if body:
            return web.Response(text=body, content_type="application/rss+xml")
        if feed.status != 200:
            return web.Response(status=feed.status, headers=feed.headers, text="no")
        body = feed.document()
        etag = feed.etag or f'"{hash(body)}"'
        if feed.conditional and request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers={"ETag": etag, **feed.headers})
        headers = {"ETag": etag, **feed.headers} if feed.conditional else feed.headers
        return web.Response(body=body.encode(), content_type="application/rss+xml", headers=headers)

    def requests_for(self, path):
        return [request for _, request in self.requests if request.path == path]

    def request_times(self, path):
        return [at for at, request in self.requests if request.path == path]

    # --- aggregator -----------------------------------------------------------------------------

    def url(self, path):
        return f"http://127.0.0.1:{self.port}{path}"

    async def subscribe(self, *paths):
        added = await self.store.add_subscriptions(
            [NewSubscription(self.url(path), self.clock()) for path in paths]
        )
        return [a.feed_id for a in added]

    async def poll(self, *feed_ids, **options):
        return await self.aggregator.poll(list(feed_ids) or None, **options)

    async def run_for(self, *, hours=0.0, seconds=0.0):
        """Run the polling loop for this time of the simulated clock."""
        self.clock.end = self.clock.now + hours * HOUR_S + seconds
        stop = asyncio.Event()
        running = asyncio.create_task(self.aggregator.run(stop))
        while not running.done() and (
            self.clock.now < self.clock.end or not self.aggregator.is_idle
        ):
            await asyncio.sleep(0.001)
        stop.set()
        await running

    async def stored_feed(self, path):
        return await self.store.feed(self.url(path))

    @asynccontextmanager
    async def run_aggregator(
        self, *, budget=HOURLY, policy="price", serving=False, fetch=None, **scheduler
    ):
        """Open and close the aggregator; tests may do so several times on the same store."""
        settings = FetchSettings(allow_private=True, host_spacing_s=0.1, **(fetch or {}))
        self.scheduler = Scheduler(make_policy(policy, live=True), budget, **scheduler)
        async with (
            Store.open(self.path, clock=self.clock, serving=serving) as self.store,
            Fetcher(settings, self.clock, sleep=self.clock.wait_for_host) as self.fetcher,
            Aggregator(
                self.store, self.fetcher, self.scheduler, self.clock, sleep=self.clock.sleep
            ) as self.aggregator,
        ):
            self.clock.busy = lambda: self.aggregator.polls_in_flight > 0
            yield self


@asynccontextmanager
async def feed_server(path, **options):
    """Start a feed server and, unless ``stopped``, an aggregator."""
    clock = Clock()
    server = FeedServer(clock, path / "store.db")
    runner = web.ServerRunner(web.Server(server.answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        if options.pop("stopped", False):
            yield server
        else:
            async with server.run_aggregator(**options):
                yield server
    finally:
        await runner.cleanup()


def feed_server_test(limit_s=TEST_TIMEOUT_S, **options):
    """Decorate an async test that gets a running `FeedServer`."""

    def wrap(test):
        @functools.wraps(test)
        def run(tmp_path):
            async def run_test():
                async with feed_server(tmp_path, **options) as server:
                    await asyncio.wait_for(test(server), limit_s)

            asyncio.run(run_test())

        del run.__wrapped__
        return run

    return wrap
