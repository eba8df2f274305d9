"""The publishers over real HTTP: what is out at the clock's time, conditions, limits, lies, and a hub that asks back."""

import asyncio
import http.client
from urllib.parse import urlencode, urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests import TEST_TIMEOUT_S
from tidings.demo.clock import Clock
from tidings.demo.publishers import Publishers, Visitor
from tidings.demo.world import AHEAD_S, HUB, LIAR, LIMIT_S, LIMITER, NEWS, World
from tidings.parse import parse
from tidings.service import address, listen
from tidings.web.server import serving


class PublisherClient:
    """All publishers, two visitors, and a client."""

    def __init__(self, publishers):
        self.publishers, self.world = publishers, publishers.world
        self.clock, (self.one, self.other) = publishers.clock, publishers.visitors

    def feed_of_kind(self, kind):
        return self.world.kinds.index(kind)

    async def get(self, feed, visitor="one", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("GET", self.publishers.url(visitor, feed), None, named)

    async def request(self, method, url, body=None, headers=None):
        """From a thread: a client that is not ours."""

        def send():
            parts = urlsplit(url)
            connection = http.client.HTTPConnection(parts.netloc, timeout=TEST_TIMEOUT_S)
            connection.request(method, parts.path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer.status, answer.headers, content

        return await asyncio.to_thread(send)

    def advance(self, seconds):
        self.clock._now += seconds


def publisher_test(test):
    def run():
        async def run_test():
            world = World(40, 2, 1)
            visitors = [Visitor(name, 40) for name in ("one", "other")]
            async with Publishers(
                world, Clock(world.start, float("inf")), visitors
            ).open() as publishers:
                await asyncio.wait_for(test(PublisherClient(publishers)), TEST_TIMEOUT_S)

        asyncio.run(run_test())

    return run


@publisher_test
async def test_a_document_holds_what_is_out_and_no_more(client):
    feed = client.feed_of_kind(NEWS)
    status, headers, body = await client.get(feed)
    document = parse(body, content_type=headers["Content-Type"], url="http://127.0.0.1/")
    assert (status, len(document.entries), document.title) == (
        200,
        NEWS.window,
        client.world.names[feed],
    )
    assert (
        document.entries[0].published
        <= client.clock()
        < client.world.times(feed)[client.world.published(feed, client.clock())]
    )
    assert (await client.get(feed, If_None_Match=headers["ETag"]))[0] == 304
    client.advance(86400.0)
    status, newer, _ = await client.get(feed, If_None_Match=headers["ETag"])
    assert (status, newer["ETag"] != headers["ETag"]) == (200, True)
    assert (client.one.requests, client.one.asked_in_vain, client.other.requests) == (3, 1, 0)
    assert client.one.looks[feed] == [client.clock() - 86400.0] * 2 + [client.clock()]


@publisher_test
async def test_posts_have_pages_once_they_are_out(client):
    feed = client.feed_of_kind(NEWS)
    out = client.world.published(feed, client.clock())
    pages = client.publishers.url("one", feed).removesuffix("feed.xml")
    for number, status in ((out - 1, 200), (out, 404)):
        assert (await client.request("GET", f"{pages}{number}"))[0] == status
    assert (
        await client.request("GET", pages.replace(client.world.slugs[feed], "nobody") + "feed.xml")
    )[0] == 404


@publisher_test
async def test_a_limiter_refuses_whoever_comes_too_often(client):
    feed = client.feed_of_kind(LIMITER)
    assert (await client.get(feed))[0] == 200
    client.advance(600.0)
    status, headers, _ = await client.get(feed)
    assert (status, float(headers["Retry-After"])) == (429, LIMIT_S - 600)
    assert (await client.get(feed, "other"))[0] == 200
    client.advance(LIMIT_S - 600)
    assert (await client.get(feed))[0] == 200
    assert (len(client.one.looks[feed]), client.one.requests) == (
        2,
        3,
    )  # what was refused was no look


@publisher_test
async def test_a_liar_is_ahead_of_the_truth(client):
    feed = client.feed_of_kind(LIAR)
    _, headers, body = await client.get(feed)
    published_at = (
        parse(body, content_type=headers["Content-Type"], url="http://127.0.0.1/")
        .entries[0]
        .published
    )
    assert (
        published_at - client.world.times(feed)[client.world.published(feed, client.clock()) - 1]
        == AHEAD_S
    )


@pytest.mark.parametrize("meant", [True, False])
def test_a_hub_asks_back_and_then_sends_each_post_when_it_is_out(meant):
    @publisher_test
    async def run_test(client):
        feed, sent = client.feed_of_kind(HUB), asyncio.Queue()

        async def callback(scope, receive, send):
            request = Request(scope, receive)
            if request.method == "POST":
                sent.put_nowait((client.clock(), await request.body()))
                answer = Response(status_code=202)
            else:
                answer = Response(request.query_params["hub.challenge"] if meant else "no")
            await answer(scope, receive, send)

        with listen("127.0.0.1", 0) as server_socket:
            async with serving(callback, server_socket):
                _, headers, _ = await client.get(feed)
                hub, topic = (
                    headers["Link"].split("<")[1].split(">")[0],
                    client.publishers.url("one", feed),
                )
                form = {
                    "hub.mode": "subscribe",
                    "hub.topic": topic,
                    "hub.callback": address(server_socket),
                }
                assert (await client.request("POST", hub, urlencode(form)))[0] == 202
                await asyncio.gather(*client.publishers._asking)
                assert (feed in client.one.callbacks) is meant
                if meant:
                    running = [
                        asyncio.create_task(work)
                        for work in (client.clock.run(), client.publishers.push())
                    ]
                    at, body = await sent.get()
                    out = client.world.published(feed, client.world.start)
                    assert at == client.world.times(feed)[out]
                    newest = parse(
                        body, content_type="application/rss+xml", url="http://127.0.0.1/"
                    ).entries[0]
                    assert newest.title == client.world.post(feed, out).title
                    for task in running:
                        task.cancel()
                elsewhere = {**form, "hub.callback": "http://example.org/"}
                assert (await client.request("POST", hub, urlencode(elsewhere)))[
                    0
                ] == 400  # it stays on this machine

    run_test()
