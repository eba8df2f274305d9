"""Publisher server of the demo: conditional requests, rate limits, wrong dates, WebSub hub."""

import asyncio
import http.client
from urllib.parse import urlencode, urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import Response

from tests import TEST_TIMEOUT_S
from tidings.demo.clock import Clock
from tidings.demo.publisher_server import ClientRecord, PublisherServer
from tidings.demo.simulated_publishers import (
    DATE_OFFSET_S,
    HUB,
    NEWS,
    RATE_LIMIT_S,
    RATE_LIMITED,
    WRONG_DATES,
    SimulatedPublishers,
)
from tidings.parse import parse
from tidings.service import address, listen
from tidings.web.server import serve_app


class PublisherClient:
    """HTTP client of a publisher server that has two client records."""

    def __init__(self, server):
        self.server, self.publishers = server, server.publishers
        self.clock, (self.one, self.other) = server.clock, server.clients

    def feed_of_kind(self, kind):
        return self.publishers.kinds.index(kind)

    async def get(self, feed, client_name="one", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.request("GET", self.server.url(client_name, feed), None, named)

    async def request(self, method, url, body=None, headers=None):
        """Send a request with the standard library, in a thread."""

        def send():
            parts = urlsplit(url)
            connection = http.client.HTTPConnection(parts.netloc, timeout=TEST_TIMEOUT_S)
            connection.request(method, parts.path, body, headers or {})
            response = connection.getresponse()
            content = response.read()
            connection.close()
            return response.status, response.headers, content

        return await asyncio.to_thread(send)

    def advance(self, seconds):
        self.clock._now += seconds


def publisher_test(test):
    def run():
        async def run_test():
            publishers = SimulatedPublishers(40, 2, 1)
            clients = [ClientRecord(name, 40) for name in ("one", "other")]
            async with PublisherServer(
                publishers, Clock(publishers.start, float("inf")), clients
            ).open() as server:
                await asyncio.wait_for(test(PublisherClient(server)), TEST_TIMEOUT_S)

        asyncio.run(run_test())

    return run


@publisher_test
async def test_feed_has_the_published_posts_only(client):
    feed = client.feed_of_kind(NEWS)
    status, headers, body = await client.get(feed)
    document = parse(body, content_type=headers["Content-Type"], url="http://127.0.0.1/")
    assert (status, len(document.entries), document.title) == (
        200,
        NEWS.window,
        client.publishers.names[feed],
    )
    assert (
        document.entries[0].published
        <= client.clock()
        < client.publishers.times(feed)[client.publishers.published(feed, client.clock())]
    )
    assert (await client.get(feed, If_None_Match=headers["ETag"]))[0] == 304
    client.advance(86400.0)
    status, newer, _ = await client.get(feed, If_None_Match=headers["ETag"])
    assert (status, newer["ETag"] != headers["ETag"]) == (200, True)
    assert (client.one.requests, client.one.unchanged_responses, client.other.requests) == (3, 1, 0)
    assert client.one.poll_times[feed] == [client.clock() - 86400.0] * 2 + [client.clock()]


@publisher_test
async def test_post_page_exists_after_publication(client):
    feed = client.feed_of_kind(NEWS)
    out = client.publishers.published(feed, client.clock())
    pages = client.server.url("one", feed).removesuffix("feed.xml")
    for number, status in ((out - 1, 200), (out, 404)):
        assert (await client.request("GET", f"{pages}{number}"))[0] == status
    assert (
        await client.request(
            "GET", pages.replace(client.publishers.slugs[feed], "unknown") + "feed.xml"
        )
    )[0] == 404


@publisher_test
async def test_rate_limited_publisher_sends_429(client):
    feed = client.feed_of_kind(RATE_LIMITED)
    assert (await client.get(feed))[0] == 200
    client.advance(600.0)
    status, headers, _ = await client.get(feed)
    assert (status, float(headers["Retry-After"])) == (429, RATE_LIMIT_S - 600)
    assert (await client.get(feed, "other"))[0] == 200
    client.advance(RATE_LIMIT_S - 600)
    assert (await client.get(feed))[0] == 200
    assert (len(client.one.poll_times[feed]), client.one.requests) == (
        2,
        3,
    )  # rejected requests are no polls


@publisher_test
async def test_wrong_dates_are_in_the_future(client):
    feed = client.feed_of_kind(WRONG_DATES)
    _, headers, body = await client.get(feed)
    published_at = (
        parse(body, content_type=headers["Content-Type"], url="http://127.0.0.1/")
        .entries[0]
        .published
    )
    assert (
        published_at
        - client.publishers.times(feed)[client.publishers.published(feed, client.clock()) - 1]
        == DATE_OFFSET_S
    )


@pytest.mark.parametrize("confirmed", [True, False])
def test_hub_verifies_the_subscription_and_pushes_posts(confirmed):
    @publisher_test
    async def run_test(client):
        feed, sent = client.feed_of_kind(HUB), asyncio.Queue()

        async def callback(scope, receive, send):
            request = Request(scope, receive)
            if request.method == "POST":
                sent.put_nowait((client.clock(), await request.body()))
                response = Response(status_code=202)
            else:
                response = Response(request.query_params["hub.challenge"] if confirmed else "no")
            await response(scope, receive, send)

        with listen("127.0.0.1", 0) as server_socket:
            async with serve_app(callback, server_socket):
                _, headers, _ = await client.get(feed)
                hub, topic = (
                    headers["Link"].split("<")[1].split(">")[0],
                    client.server.url("one", feed),
                )
                form = {
                    "hub.mode": "subscribe",
                    "hub.topic": topic,
                    "hub.callback": address(server_socket),
                }
                assert (await client.request("POST", hub, urlencode(form)))[0] == 202
                await asyncio.gather(*client.server._verifications)
                assert (feed in client.one.callbacks) is confirmed
                if confirmed:
                    running = [
                        asyncio.create_task(work)
                        for work in (client.clock.run(), client.server.push())
                    ]
                    at, body = await sent.get()
                    out = client.publishers.published(feed, client.publishers.start)
                    assert at == client.publishers.times(feed)[out]
                    newest = parse(
                        body, content_type="application/rss+xml", url="http://127.0.0.1/"
                    ).entries[0]
                    assert newest.title == client.publishers.post(feed, out).title
                    for task in running:
                        task.cancel()
                elsewhere = {**form, "hub.callback": "http://example.org/"}
                assert (await client.request("POST", hub, urlencode(elsewhere)))[
                    0
                ] == 400  # only loopback callbacks are accepted

    run_test()
