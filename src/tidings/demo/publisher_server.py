"""HTTP server of the simulated publishers, with conditional requests and a WebSub hub.

Each tidings service has its own port for the same publishers, so the server can record which posts
each service has seen. The demo's figures come from these records, not from the services.
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
from tidings.demo.simulated_publishers import (
    DATE_OFFSET_S,
    HUB,
    RATE_LIMIT_S,
    RATE_LIMITED,
    WRONG_DATES,
    SimulatedPublishers,
)
from tidings.fetch import Fetcher, FetchSettings
from tidings.fetch.models import FetchRequest
from tidings.lab.simulate import Polls
from tidings.service import address, listen
from tidings.web.server import serve_app

#: Duration of a WebSub subscription in seconds (10 days).
LEASE_S = 864_000
#: Number of newest posts that the hub pushes in one message.
PUSHED_POSTS = 3


class ClientRecord:
    """Record of the requests that one client sent to the publisher server."""

    def __init__(self, name: str, feeds: int) -> None:
        self.name = name
        self.counts: Counter[int] = Counter()  #: responses by status code
        self.unchanged_responses = 0  #: responses with status 200, but without new posts
        self.pushed = 0  #: posts pushed by the hub
        #: Times at which each feed document was sent.
        self.poll_times: list[list[float]] = [[] for _ in range(feeds)]
        self.callbacks: dict[int, set[str]] = {}  #: WebSub callback URLs by feed

    @property
    def requests(self) -> int:
        return self.counts.total()

    def polls(self) -> Polls:
        """Return all polls in the format of the lab."""
        feed = np.repeat(np.arange(len(self.poll_times)), [len(times) for times in self.poll_times])
        return Polls.build(
            feed,
            np.concatenate([np.array(times) for times in self.poll_times]),
            len(self.poll_times),
        )


class PublisherServer:
    """HTTP server of all simulated publishers, with one port per client."""

    def __init__(
        self, publishers: SimulatedPublishers, clock: Clock, clients: list[ClientRecord]
    ) -> None:
        self.publishers, self.clock, self.clients = publishers, clock, clients
        self.addresses: dict[str, str] = {}  #: base URLs by client name
        self._feed = {slug: i for i, slug in enumerate(publishers.slugs)}
        self._verifications: set[asyncio.Task[None]] = set()
        self._fetcher = Fetcher(FetchSettings(allow_private=True), clock)

    def url(self, client_name: str, feed: int) -> str:
        """Return the URL of a feed for one client."""
        return f"{self.addresses[client_name]}/{self.publishers.slugs[feed]}/feed.xml"

    def site(self, feed: int) -> str:
        """Return the URL of a publisher's website, which is the same for all clients."""
        return f"{next(iter(self.addresses.values()))}/{self.publishers.slugs[feed]}/"

    def document(self, feed: int, first: int, end: int) -> bytes:
        """Return an RSS document with the posts ``first`` to ``end`` (exclusive), newest first."""
        publishers, site = self.publishers, self.site(feed)
        offset_s = DATE_OFFSET_S if publishers.kinds[feed] is WRONG_DATES else 0.0
        times = publishers.times(feed)
        items = "".join(
            f'<item><guid isPermaLink="false">{publishers.slugs[feed]}/{n}</guid>'
            f"<link>{site}{n}</link>"
            f"<title>{escape(publishers.post(feed, n).title)}</title>"
            f"<pubDate>{formatdate(times[n] + offset_s)}</pubDate>"
            f"<description>{escape(_html(publishers.post(feed, n).paragraphs))}</description>"
            "</item>"
            for n in range(end - 1, first - 1, -1)
        )
        head = (
            f"<title>{escape(publishers.names[feed])}</title><link>{site}</link>"
            f"<description>{publishers.kinds[feed].name}</description>"
        )
        return (
            '<?xml version="1.0" encoding="utf-8"?>'
            f'<rss version="2.0"><channel>{head}{items}</channel></rss>'
        ).encode()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["PublisherServer"]:
        """Listen on one port per client inside the ``async with`` block."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._fetcher)
            for client in self.clients:
                server_socket = stack.enter_context(listen("127.0.0.1", 0))
                await stack.enter_async_context(serve_app(self._app(client), server_socket))
                self.addresses[client.name] = address(server_socket).rstrip("/")
            yield self

    def _app(self, client: ClientRecord) -> Starlette:
        return Starlette(
            routes=[
                Route("/{slug}/feed.xml", partial(self._serve_feed, client)),
                Route("/{slug}/", self._serve_site),
                Route("/{slug}/{number:int}", self._serve_post),
                Route("/hub", partial(self._serve_hub, client), methods=["POST"]),
            ]
        )

    async def _serve_feed(self, client: ClientRecord, request: Request) -> Response:
        now, publishers = self.clock(), self.publishers
        feed = self._find_feed(request)
        kind, poll_times = publishers.kinds[feed], client.poll_times[feed]
        if kind is RATE_LIMITED and poll_times and now < poll_times[-1] + RATE_LIMIT_S:
            client.counts[429] += 1
            return Response(
                status_code=429,
                headers={"retry-after": str(int(np.ceil(poll_times[-1] + RATE_LIMIT_S - now)))},
            )
        end = publishers.published(feed, now)
        seen = publishers.published(feed, poll_times[-1] if poll_times else publishers.start)
        poll_times.append(now)
        headers = {"etag": f'"{end}"'}
        if kind is HUB:
            base_url = self.addresses[client.name]
            headers["link"] = (
                f'<{base_url}/hub>; rel="hub", <{base_url}{request.url.path}>; rel="self"'
            )
        if request.headers.get("if-none-match") == headers["etag"]:
            client.counts[304] += 1
            return Response(status_code=304, headers=headers)
        client.counts[200] += 1
        client.unchanged_responses += end == seen
        body = self.document(feed, max(end - kind.window, 0), end)
        return Response(body, headers=headers, media_type="application/rss+xml")

    async def _serve_site(self, request: Request) -> Response:
        """Return the website of a publisher, a list of the newest posts."""
        feed = self._find_feed(request)
        end = self.publishers.published(feed, self.clock())
        posts = range(end - 1, max(end - self.publishers.kinds[feed].window, 0) - 1, -1)
        items = "".join(
            f'<li><a href="{n}">{escape(self.publishers.post(feed, n).title)}</a></li>'
            for n in posts
        )
        return _page(
            self.publishers.names[feed], f'<ul>{items}</ul><p><a href="feed.xml">Feed</a></p>'
        )

    async def _serve_post(self, request: Request) -> Response:
        """Return the web page of a post."""
        feed, number = self._find_feed(request), int(request.path_params["number"])
        if number >= self.publishers.published(feed, self.clock()):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        post = self.publishers.post(feed, number)
        link = f'<p><a href="./">{escape(self.publishers.names[feed])}</a></p>'
        return _page(post.title, f"{_html(post.paragraphs)}{link}")

    def _find_feed(self, request: Request) -> int:
        if (feed := self._feed.get(request.path_params["slug"])) is None:
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return feed

    # WebSub hub

    async def _serve_hub(self, client: ClientRecord, request: Request) -> Response:
        """Accept a subscription request and start its verification (WebSub, section 5)."""
        form = dict(parse_qsl((await request.body()).decode()))
        feed = self._feed.get(
            form.get("hub.topic", "").rpartition("/feed.xml")[0].rpartition("/")[2]
        )
        callback = form.get("hub.callback", "")
        if (
            feed is None
            or self.publishers.kinds[feed] is not HUB
            or not callback.startswith("http://127.0.0.1:")
        ):
            return Response(status_code=400)
        mode = form.get("hub.mode", "")
        verification = {
            "hub.mode": mode,
            "hub.topic": form["hub.topic"],
            "hub.challenge": "yes",
            "hub.lease_seconds": str(LEASE_S),
        }
        task = asyncio.create_task(self._verify(client, feed, callback, verification))
        self._verifications.add(task)
        task.add_done_callback(self._verifications.discard)
        return Response(status_code=202)

    async def _verify(
        self, client: ClientRecord, feed: int, callback: str, verification: dict[str, str]
    ) -> None:
        with self.clock.pause():
            response = await self._fetcher.fetch(
                FetchRequest(f"{callback}?{urlencode(verification)}")
            )
        challenge = verification["hub.challenge"].encode()
        confirmed = response.status == 200 and response.body == challenge
        if confirmed and verification["hub.mode"] == "subscribe":
            client.callbacks.setdefault(feed, set()).add(callback)
        elif confirmed:
            client.callbacks.get(feed, set()).discard(callback)

    async def push(self) -> None:
        """Push each post of a feed with a hub to the subscribers at the time of publication."""
        publishers = self.publishers
        posts = sorted(
            (at, feed)
            for feed in np.flatnonzero(publishers.pushed).tolist()
            for at in publishers.times(feed).tolist()
        )
        for at, feed in posts:
            if at <= self.clock():
                continue
            await self.clock.sleep(at - self.clock())
            end = publishers.published(feed, at)
            body = self.document(feed, max(end - PUSHED_POSTS, 0), end)
            for client in self.clients:
                for callback in sorted(client.callbacks.get(feed, ())):
                    with self.clock.pause():
                        response = await self._fetcher.post(
                            callback, body, {"Content-Type": "application/rss+xml"}
                        )
                        client.pushed += response.status == 202


def _html(paragraphs: tuple[str, ...]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in paragraphs)


def _page(title: str, body: str) -> Response:
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
    return HTMLResponse(f"{head}<h1>{escape(title)}</h1>{body}")
