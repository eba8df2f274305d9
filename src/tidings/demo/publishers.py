"""The publishers over real HTTP: documents as of the demo's clock, ETags, 304, 429, wrong dates, and a hub.

Each aggregator has its own address for the same world, so the publishers know who has seen what and when: the demo's figures
are theirs, not the word of those who are being judged.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from email.utils import formatdate
from functools import partial
from html import escape
from http import HTTPStatus
from urllib.parse import parse_qsl, urlencode

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tidings.demo.clock import Clock
from tidings.demo.world import AHEAD_S, HUB, LIAR, LIMIT_S, LIMITER, World
from tidings.fetch import Fetcher, FetchSettings
from tidings.fetch.models import FetchRequest
from tidings.lab.simulate import Polls
from tidings.service import address, listen
from tidings.web.server import serving

#: Hubs grant about ten days.
LEASE_S = 864_000
#: They send the newest posts.
SENT = 3


class Visitor:
    """One aggregator, as the publishers see it."""

    def __init__(self, name: str, feeds: int) -> None:
        self.name = name
        self.counts: Counter[int] = (
            Counter()
        )  #: answers by status; of 200, those that had something new
        self.asked_in_vain = 0  #: 200 without news
        self.pushed = 0  #: posts that a hub has sent
        self.looks: list[list[float]] = [
            [] for _ in range(feeds)
        ]  #: when each feed's document was seen
        self.callbacks: dict[int, set[str]] = {}  #: of feeds that are subscribed to at the hub

    @property
    def requests(self) -> int:
        return self.counts.total()

    def polls(self) -> Polls:
        """All looks, as the laboratory's judge has them."""
        feed = np.repeat(np.arange(len(self.looks)), [len(times) for times in self.looks])
        return Polls.build(
            feed, np.concatenate([np.array(times) for times in self.looks]), len(self.looks)
        )


class Publishers:
    """The world's servers: one address for each visitor."""

    def __init__(self, world: World, clock: Clock, visitors: list[Visitor]) -> None:
        self.world, self.clock, self.visitors = world, clock, visitors
        self.addresses: dict[str, str] = {}  #: by visitor's name
        self._feed = {slug: i for i, slug in enumerate(world.slugs)}
        self._asking: set[asyncio.Task[None]] = set()
        self._fetcher = Fetcher(FetchSettings(allow_private=True), clock)

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
        head = f"<title>{escape(world.names[feed])}</title><link>{site}</link><description>{world.kinds[feed].name}</description>"
        return f'<?xml version="1.0" encoding="utf-8"?><rss version="2.0"><channel>{head}{items}</channel></rss>'.encode()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Publishers"]:
        """Listening, each visitor on a port of its own."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._fetcher)
            for visitor in self.visitors:
                listening = stack.enter_context(listen("127.0.0.1", 0))
                await stack.enter_async_context(serving(self._app(visitor), listening))
                self.addresses[visitor.name] = address(listening).rstrip("/")
            yield self

    def _app(self, visitor: Visitor) -> Starlette:
        return Starlette(
            routes=[
                Route("/{slug}/feed.xml", partial(self._answer_feed, visitor)),
                Route("/{slug}/", self._answer_site),
                Route("/{slug}/{number:int}", self._answer_post),
                Route("/hub", partial(self._answer_hub, visitor), methods=["POST"]),
            ]
        )

    async def _answer_feed(self, visitor: Visitor, request: Request) -> Response:
        now, world = self.clock(), self.world
        feed = self._known(request)
        kind, looks = world.kinds[feed], visitor.looks[feed]
        if kind is LIMITER and looks and now < looks[-1] + LIMIT_S:
            visitor.counts[429] += 1
            return Response(
                status_code=429,
                headers={"retry-after": str(int(np.ceil(looks[-1] + LIMIT_S - now)))},
            )
        end = world.published(feed, now)
        seen = world.published(feed, looks[-1] if looks else world.start)
        looks.append(now)
        headers = {"etag": f'"{end}"'}
        if kind is HUB:
            here = self.addresses[visitor.name]
            headers["link"] = f'<{here}/hub>; rel="hub", <{here}{request.url.path}>; rel="self"'
        if request.headers.get("if-none-match") == headers["etag"]:
            visitor.counts[304] += 1
            return Response(status_code=304, headers=headers)
        visitor.counts[200] += 1
        visitor.asked_in_vain += end == seen
        body = self.document(feed, max(end - kind.window, 0), end)
        return Response(body, headers=headers, media_type="application/rss+xml")

    async def _answer_site(self, request: Request) -> Response:
        """The newest posts, for people."""
        feed = self._known(request)
        end = self.world.published(feed, self.clock())
        posts = range(end - 1, max(end - self.world.kinds[feed].window, 0) - 1, -1)
        items = "".join(
            f'<li><a href="{n}">{escape(self.world.post(feed, n).title)}</a></li>' for n in posts
        )
        return _page(self.world.names[feed], f'<ul>{items}</ul><p><a href="feed.xml">Feed</a></p>')

    async def _answer_post(self, request: Request) -> Response:
        """The post's own page, for those who follow its link."""
        feed, number = self._known(request), int(request.path_params["number"])
        if number >= self.world.published(feed, self.clock()):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        post = self.world.post(feed, number)
        return _page(
            post.title,
            f'{_html(post.paragraphs)}<p><a href="./">{escape(self.world.names[feed])}</a></p>',
        )

    def _known(self, request: Request) -> int:
        if (feed := self._feed.get(request.path_params["slug"])) is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return feed

    # The hub

    async def _answer_hub(self, visitor: Visitor, request: Request) -> Response:
        """WebSub sect. 5: take the wish, ask back whether it was meant."""
        form = dict(parse_qsl((await request.body()).decode()))
        feed = self._feed.get(
            form.get("hub.topic", "").rpartition("/feed.xml")[0].rpartition("/")[2]
        )
        callback = form.get("hub.callback", "")
        if (
            feed is None
            or self.world.kinds[feed] is not HUB
            or not callback.startswith("http://127.0.0.1:")
        ):
            return Response(status_code=400)
        mode = form.get("hub.mode", "")
        question = {
            "hub.mode": mode,
            "hub.topic": form["hub.topic"],
            "hub.challenge": "yes",
            "hub.lease_seconds": str(LEASE_S),
        }
        asking = asyncio.create_task(self._verify(visitor, feed, callback, question))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        return Response(status_code=202)

    async def _verify(
        self, visitor: Visitor, feed: int, callback: str, question: dict[str, str]
    ) -> None:
        with self.clock.hold():
            answer = await self._fetcher.fetch(FetchRequest(f"{callback}?{urlencode(question)}"))
        meant = answer.status == 200 and answer.body == question["hub.challenge"].encode()
        if meant and question["hub.mode"] == "subscribe":
            visitor.callbacks.setdefault(feed, set()).add(callback)
        elif meant:
            visitor.callbacks.get(feed, set()).discard(callback)

    async def push(self) -> None:
        """Send every post of those who have a hub to all who have subscribed, when its time has come."""
        world = self.world
        posts = sorted(
            (at, feed)
            for feed in np.flatnonzero(world.pushed).tolist()
            for at in world.times(feed).tolist()
        )
        for at, feed in posts:
            if at <= self.clock():
                continue
            await self.clock.sleep(at - self.clock())
            end = world.published(feed, at)
            body = self.document(feed, max(end - SENT, 0), end)
            for visitor in self.visitors:
                for callback in sorted(visitor.callbacks.get(feed, ())):
                    with self.clock.hold():
                        answer = await self._fetcher.post(
                            callback, body, {"Content-Type": "application/rss+xml"}
                        )
                        visitor.pushed += answer.status == 202


def _html(paragraphs: tuple[str, ...]) -> str:
    return "".join(f"<p>{escape(words)}</p>" for words in paragraphs)


def _page(title: str, body: str) -> Response:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    return HTMLResponse(f"{head}<h1>{escape(title)}</h1>{body}")
