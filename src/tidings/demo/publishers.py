"""The publishers over real HTTP: documents as of the demo's clock, ETags, 304, 429, wrong dates, and a hub.

Each aggregator has its own address for the same world, so the publishers know who has seen what and when: the demo's figures
are theirs, not the word of those who are being judged.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from html import escape

import aiohttp
import numpy as np
from aiohttp import web

from tidings.demo.clock import Clock
from tidings.demo.world import AHEAD_S, HUB, LIAR, LIMIT_S, LIMITER, World
from tidings.lab.simulate import Polls

#: Hubs grant about ten days.
LEASE_S = 864_000
#: They send the newest posts.
SENT = 3


class Visitor:
    """One aggregator, as the publishers see it."""

    def __init__(self, name: str, feeds: int) -> None:
        self.name = name
        self.counts: Counter[int] = Counter()  #: answers by status; of 200, those that had something new
        self.asked_in_vain = 0  #: 200 without news
        self.pushed = 0  #: posts that a hub has sent
        self.looks: list[list[float]] = [[] for _ in range(feeds)]  #: when each feed's document was seen
        self.callbacks: dict[int, str] = {}  #: of feeds that are subscribed to at the hub

    @property
    def requests(self) -> int:
        return self.counts.total()

    def polls(self) -> Polls:
        """All looks, as the laboratory's judge has them."""
        feed = np.repeat(np.arange(len(self.looks)), [len(times) for times in self.looks])
        return Polls.build(feed, np.concatenate([np.array(times) for times in self.looks]), len(self.looks))


VISITOR = web.AppKey("visitor", Visitor)


class Publishers:
    """The world's servers: one address for each visitor."""

    def __init__(self, world: World, clock: Clock, visitors: list[Visitor]) -> None:
        self.world, self.clock, self.visitors = world, clock, visitors
        self.addresses: dict[str, str] = {}  #: by visitor's name
        self._feed = {slug: i for i, slug in enumerate(world.slugs)}
        self._asking: set[asyncio.Task[None]] = set()

    def url(self, visitor: str, feed: int) -> str:
        return f"{self.addresses[visitor]}/{self.world.slugs[feed]}/feed.xml"

    def site(self, feed: int) -> str:
        """For people; the same for everybody."""
        return f"{next(iter(self.addresses.values()))}/{self.world.slugs[feed]}/"

    def document(self, feed: int, first: int, end: int) -> bytes:
        """RSS with the posts ``first`` to ``end``, newest first. The same for everybody."""
        world, site = self.world, self.site(feed)
        ahead_s = AHEAD_S if world.kinds[feed] is LIAR else 0.0
        times = world.times(feed)
        items = "".join(
            f'<item><guid isPermaLink="false">{world.slugs[feed]}/{n}</guid><link>{site}{n}</link>'
            f"<title>{escape(world.post(feed, n).title)}</title><pubDate>{formatdate(times[n] + ahead_s)}</pubDate>"
            f"<description>{escape(_html(world.post(feed, n).paragraphs))}</description></item>"
            for n in range(end - 1, first - 1, -1)
        )
        head = (
            f"<title>{escape(world.names[feed])}</title><link>{site}</link><description>{world.kinds[feed].name}</description>"
        )
        return f'<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel>{head}{items}</channel></rss>'.encode()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Publishers"]:
        """Listening, each visitor on a port of its own."""
        runners = []
        try:
            for visitor in self.visitors:
                app = web.Application()
                app[VISITOR] = visitor
                app.add_routes(
                    [
                        web.get("/{slug}/feed.xml", self._answer_feed),
                        web.get("/{slug}/", self._answer_site),
                        web.get("/{slug}/{number:[0-9]+}", self._answer_post),
                        web.post("/hub", self._answer_hub),
                    ]
                )
                runner = web.AppRunner(app, access_log=None)
                runners.append(runner)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.addresses[visitor.name] = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            for runner in runners:
                await runner.cleanup()

    async def _answer_feed(self, request: web.Request) -> web.Response:
        visitor, now, world = request.app[VISITOR], self.clock(), self.world
        feed = self._known(request)
        kind, looks = world.kinds[feed], visitor.looks[feed]
        if kind is LIMITER and looks and now < looks[-1] + LIMIT_S:
            visitor.counts[429] += 1
            return web.Response(status=429, headers={"Retry-After": str(int(np.ceil(looks[-1] + LIMIT_S - now)))})
        end = world.published(feed, now)
        seen = world.published(feed, looks[-1] if looks else world.start)
        looks.append(now)
        headers = {"ETag": f'"{end}"'}
        if kind is HUB:
            here = self.addresses[visitor.name]
            headers["Link"] = f'<{here}/hub>; rel="hub", <{here}{request.path}>; rel="self"'
        if request.headers.get("If-None-Match") == headers["ETag"]:
            visitor.counts[304] += 1
            return web.Response(status=304, headers=headers)
        visitor.counts[200] += 1
        visitor.asked_in_vain += end == seen
        body = self.document(feed, max(end - kind.window, 0), end)
        return web.Response(body=body, content_type="application/rss+xml", headers=headers)

    async def _answer_site(self, request: web.Request) -> web.Response:
        """The newest posts, for people."""
        feed = self._known(request)
        end = self.world.published(feed, self.clock())
        posts = range(end - 1, max(end - self.world.kinds[feed].window, 0) - 1, -1)
        items = "".join(f'<li><a href="{n}">{escape(self.world.post(feed, n).title)}</a></li>' for n in posts)
        return _page(self.world.names[feed], f'<ul>{items}</ul><p><a href="feed.xml">Feed</a></p>')

    async def _answer_post(self, request: web.Request) -> web.Response:
        """The post's own page, for those who follow its link."""
        feed, number = self._known(request), int(request.match_info["number"])
        if number >= self.world.published(feed, self.clock()):
            raise web.HTTPNotFound
        post = self.world.post(feed, number)
        return _page(post.title, f'{_html(post.paragraphs)}<p><a href="./">{escape(self.world.names[feed])}</a></p>')

    def _known(self, request: web.Request) -> int:
        if (feed := self._feed.get(request.match_info["slug"])) is None:
            raise web.HTTPNotFound
        return feed

    # The hub

    async def _answer_hub(self, request: web.Request) -> web.Response:
        """WebSub sect. 5: take the wish, ask back whether it was meant."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        feed = self._feed.get(form.get("hub.topic", "").rpartition("/feed.xml")[0].rpartition("/")[2])
        callback = form.get("hub.callback", "")
        if feed is None or self.world.kinds[feed] is not HUB or not callback.startswith("http://127.0.0.1:"):
            return web.Response(status=400)
        mode = form.get("hub.mode", "")
        question = {"hub.mode": mode, "hub.topic": form["hub.topic"], "hub.challenge": "yes", "hub.lease_seconds": str(LEASE_S)}
        asking = asyncio.create_task(self._verify(request.app[VISITOR], feed, callback, question))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return web.Response(status=202)

    async def _verify(self, visitor: Visitor, feed: int, callback: str, question: dict[str, str]) -> None:
        with self.clock.hold():
            async with aiohttp.ClientSession() as session, session.get(callback, params=question) as answer:
                meant = answer.status == 200 and await answer.text() == question["hub.challenge"]
        if meant and question["hub.mode"] == "subscribe":
            visitor.callbacks[feed] = callback
        elif meant:
            visitor.callbacks.pop(feed, None)

    async def push(self) -> None:
        """Send every post of those who have a hub to all who have subscribed, when its time has come."""
        world = self.world
        posts = sorted((at, feed) for feed in np.flatnonzero(world.pushed).tolist() for at in world.times(feed).tolist())
        async with aiohttp.ClientSession() as session:
            for at, feed in posts:
                if at <= self.clock():
                    continue
                await self.clock.sleep(at - self.clock())
                end = world.published(feed, at)
                for visitor in self.visitors:
                    if feed in visitor.callbacks:
                        with self.clock.hold():
                            body = self.document(feed, max(end - SENT, 0), end)
                            headers = {"Content-Type": "application/rss+xml"}
                            async with session.post(visitor.callbacks[feed], data=body, headers=headers) as answer:
                                visitor.pushed += answer.status == 202


def _html(paragraphs: tuple[str, ...]) -> str:
    return "".join(f"<p>{escape(words)}</p>" for words in paragraphs)


def _page(title: str, body: str) -> web.Response:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    return web.Response(text=f"{head}<h1>{escape(title)}</h1>{body}", content_type="text/html")
