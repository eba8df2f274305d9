"""The publishers over real HTTP: what is out at the clock's time, conditions, limits, lies, and a hub that asks back."""

import asyncio
import http.client
from urllib.parse import urlencode, urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests import PATIENCE_S
from tidings.demo.clock import Clock
from tidings.demo.publishers import Publishers, Visitor
from tidings.demo.world import AHEAD_S, HUB, LIAR, LIMIT_S, LIMITER, NEWS, World
from tidings.parse import parse
from tidings.service import address, listen
from tidings.web.server import serving


class Street:
    """All publishers, two visitors, and a client."""

    def __init__(self, publishers):
        self.publishers, self.world = publishers, publishers.world
        self.clock, (self.one, self.other) = publishers.clock, publishers.visitors

    def a(self, kind):
        return self.world.kinds.index(kind)

    async def get(self, feed, visitor="one", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.ask("GET", self.publishers.url(visitor, feed), None, named)

    async def ask(self, method, url, body=None, headers=None):
        """From a thread: a client that is not ours."""

        def send():
            parts = urlsplit(url)
            connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_S)
            connection.request(method, parts.path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, answer.headers, content

        return await asyncio.to_thread(send)

    def let_pass(self, seconds):
        self.clock._now += seconds


def story(test):
    def run():
        async def tell():
            world = World(40, 2, 1)
            visitors = [Visitor(name, 40) for name in ("one", "other")]
            async with Publishers(world, Clock(world.start, float("inf")), visitors).open() as publishers:
                await asyncio.wait_for(test(Street(publishers)), PATIENCE_S)

        asyncio.run(tell())

    return run


@story
async def test_a_document_holds_what_is_out_and_no_more(street):
    feed = street.a(NEWS)
    status, headers, body = await street.get(feed)
    document = parse(body, content_type=headers["Content-Type"], url="http://127.0.0.1/")
    assert (status, len(document.entries), document.title) == (200, NEWS.window, street.world.names[feed])
    assert (
        document.entries[0].published <= street.clock() < street.world.times(feed)[street.world.published(feed, street.clock())]
    )
    assert (await street.get(feed, If_None_Match=headers["ETag"]))[0] == 304
    street.let_pass(86400.0)
    status, newer, _ = await street.get(feed, If_None_Match=headers["ETag"])
    assert (status, newer["ETag"] != headers["ETag"]) == (200, True)
    assert (street.one.requests, street.one.asked_in_vain, street.other.requests) == (3, 1, 0)
    assert street.one.looks[feed] == [street.clock() - 86400.0] * 2 + [street.clock()]


@story
async def test_posts_have_pages_once_they_are_out(street):
    feed = street.a(NEWS)
    out = street.world.published(feed, street.clock())
    pages = street.publishers.url("one", feed).removesuffix("feed.xml")
    for number, status in ((out - 1, 200), (out, 404)):
        assert (await street.ask("GET", f"{pages}{number}"))[0] == status
    assert (await street.ask("GET", pages.replace(street.world.slugs[feed], "nobody") + "feed.xml"))[0] == 404


@story
async def test_a_limiter_refuses_whoever_comes_too_often(street):
    feed = street.a(LIMITER)
    assert (await street.get(feed))[0] == 200
    street.let_pass(600.0)
    status, headers, _ = await street.get(feed)
    assert (status, float(headers["Retry-After"])) == (429, LIMIT_S - 600)
    assert (await street.get(feed, "other"))[0] == 200
    street.let_pass(LIMIT_S - 600)
    assert (await street.get(feed))[0] == 200
    assert (len(street.one.looks[feed]), street.one.requests) == (2, 3)  # what was refused was no look


@story
async def test_a_liar_is_ahead_of_the_truth(street):
    feed = street.a(LIAR)
    _, headers, body = await street.get(feed)
    told = parse(body, content_type=headers["Content-Type"], url="http://127.0.0.1/").entries[0].published
    assert told - street.world.times(feed)[street.world.published(feed, street.clock()) - 1] == AHEAD_S


@pytest.mark.parametrize("meant", [True, False])
def test_a_hub_asks_back_and_then_sends_each_post_when_it_is_out(meant):
    @story
    async def tell(street):
        feed, sent = street.a(HUB), asyncio.Queue()

        async def callback(scope, receive, send):
            request = Request(scope, receive)
            if request.method == "POST":
                sent.put_nowait((street.clock(), await request.body()))
                answer = Response(status_code=202)
            else:
                answer = Response(request.query_params["hub.challenge"] if meant else "no")
            await answer(scope, receive, send)

        with listen("127.0.0.1", 0) as listening:
            async with serving(callback, listening):
                _, headers, _ = await street.get(feed)
                hub, topic = headers["Link"].split("<")[1].split(">")[0], street.publishers.url("one", feed)
                form = {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": address(listening)}
                assert (await street.ask("POST", hub, urlencode(form)))[0] == 202
                await asyncio.gather(*street.publishers._asking)
                assert (feed in street.one.callbacks) is meant
                if meant:
                    running = [asyncio.create_task(work) for work in (street.clock.run(), street.publishers.push())]
                    at, body = await sent.get()
                    out = street.world.published(feed, street.world.start)
                    assert at == street.world.times(feed)[out]
                    newest = parse(body, content_type="application/rss+xml", url="http://127.0.0.1/").entries[0]
                    assert newest.title == street.world.post(feed, out).title
                    for task in running:
                        task.cancel()
                elsewhere = {**form, "hub.callback": "http://example.org/"}
                assert (await street.ask("POST", hub, urlencode(elsewhere)))[0] == 400  # it stays on this machine

    tell()
