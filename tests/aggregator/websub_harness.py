"""WebSub test harness: a publisher, a hub and a subscriber on loopback.

``await w.poll("/feed")`` discovers the hub, ``await w.renew_due()`` sends the subscription request,
``await w.hub.confirm()`` verifies it, ``await w.hub.send(atom("a"))`` delivers. The clock moves
only when a test moves it.
"""

import asyncio
import functools
import hmac
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from msgspec.structs import replace

from tests import TEST_TIMEOUT_S
from tests.certificates import self_signed
from tests.fetch.origin_server import Clock
from tidings.aggregator.poller import Poller
from tidings.aggregator.websub import Subscriber
from tidings.fetch import Fetcher, FetchSettings
from tidings.model import DAY_S, HOUR_S
from tidings.store import Store
from tidings.store.feed_models import Feed, NewSubscription, PushSubscription

MAX_BYTES = 50_000


def atom(*ids: str, hub: str = "", self_url: str = "", at: float = 0.0) -> bytes:
    """Build an Atom document; entries are one minute apart, the newest at ``at`` (0: undated)."""
    links = "".join(
        f'<link rel="{rel}" href="{url}"/>'
        for rel, url in (("hub", hub), ("self", self_url))
        if url
    )
    entries = ""
    for i, name in enumerate(ids):
        date = (
            f"<published>{datetime.fromtimestamp(at - 60 * i, UTC).isoformat()}</published>"
            if at
            else ""
        )
        entries += f"<entry><id>urn:{name}</id><title>{name}</title>{date}</entry>"
    head = '<feed xmlns="http://www.w3.org/2005/Atom"><title>t</title>'
    return f"{head}{links}{entries}</feed>".encode()


class Hub:
    """A scripted hub that records the forms of subscription requests."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.status = 202
        self.verifies_immediately = False
        self.redirects: dict[str, tuple[int, str]] = {}
        self.session: aiohttp.ClientSession

    async def handle_request(self, request: web.Request) -> web.Response:
        if request.path in self.redirects:
            status, target = self.redirects[request.path]
            return web.Response(status=status, headers={"Location": target})
        self.forms.append({name: str(value) for name, value in (await request.post()).items()})
        if self.verifies_immediately:
            assert await self.confirm() == (200, "riddle")
        return web.Response(status=self.status)

    @property
    def callback(self) -> str:
        return self.forms[-1]["hub.callback"]

    async def confirm(self, callback: str = "", **changed: str) -> tuple[int, str]:
        """Verify the intent of the last request; returns (status, body)."""
        query = {
            "mode": "subscribe",
            "topic": self.forms[-1]["hub.topic"],
            "challenge": "riddle",
            "lease_seconds": "864000",
        }
        query = {f"hub.{name}": value for name, value in {**query, **changed}.items()}
        async with self.session.get(
            callback or self.callback, params=query, allow_redirects=False
        ) as response:
            return response.status, await response.text()

    async def send(
        self, body: bytes, *, callback: str = "", sign: str | None = None, **headers: str
    ) -> int:
        """Deliver a body; returns the status. Signed with the secret unless `sign` is given."""
        secret = self.forms[-1].get("hub.secret")
        if sign is None and secret:
            sign = "sha256=" + hmac.new(secret.encode(), body, "sha256").hexdigest()
        if sign:
            headers["X-Hub-Signature"] = sign
        headers.setdefault("Content-Type", "application/atom+xml")
        async with self.session.post(
            callback or self.callback, data=body, headers=headers, allow_redirects=False
        ) as response:
            return response.status


class WebSubHarness:
    """Publisher, hub and subscriber with one clock; uses the aggregator's `Poller`."""

    def __init__(
        self, store: Store, fetcher: Fetcher, clock: Clock, hub: Hub, **options: Any
    ) -> None:
        self.store, self.fetcher, self.clock, self.hub = store, fetcher, clock, hub
        self.poller = Poller(store, fetcher, clock)
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.pinged_feeds: list[int] = []
        self.delivery_gate = asyncio.Event()
        self.delivery_gate.set()
        self.options = options
        self.plain = self.secure = ""

    def subscriber(self) -> Subscriber:
        options = {
            "public_url": self.plain,
            "on_content": self._content,
            "on_ping": self._ping,
            **self.options,
        }
        return Subscriber(self.store, self.fetcher, self.clock, sleep=self.clock.sleep, **options)

    # --- publisher ------------------------------------------------------------------------------

    def publish(self, path: str, body: bytes, status: int = 200, **headers: str) -> None:
        self.pages[path] = (status, headers, body)

    def feed(
        self,
        *ids: str,
        path: str = "/feed",
        hub: str = "",
        self_url: str = "",
        ago_s: float = HOUR_S,
    ) -> None:
        """Publish a feed that declares a hub (default: over http); entries are an hour old."""
        self.publish(
            path,
            atom(*ids, hub=hub or f"{self.plain}/hub", self_url=self_url, at=self.clock() - ago_s),
        )

    async def page(self, request: web.Request) -> web.Response:
        status, headers, body = self.pages.get(request.path, (404, {}, b""))
        return web.Response(status=status, headers=headers, body=body)

    # --- aggregator -----------------------------------------------------------------------------

    async def poll(self, path: str = "/feed", base: str = "") -> Feed:
        """Subscribe to the feed, poll it once and record the result."""
        url = path if "://" in path else (base or self.plain) + path
        (added,) = await self.store.add_subscriptions([NewSubscription(url, self.clock())])
        feed = await self.store.feed(added.feed_id)
        assert feed is not None
        self.clock.now += 1
        outcome = (await self.poller.poll(feed, "a test")).outcome
        assert (outcome.error, outcome.state is None) == ("", False)
        await self.store.record([outcome])
        feed = replace(feed, state=outcome.state)
        await self.pushes.update_subscription(feed, [entry.published_at for entry in outcome.new])
        return feed

    async def _content(self, feed_id: int, body: bytes, content_type: str) -> int:
        await self.delivery_gate.wait()
        self.clock.now += 1
        feed = await self.store.feed(feed_id)
        assert feed is not None
        result = await self.poller.handle_push(
            feed, await self.poller.parse(body, content_type, feed.url)
        )
        (recorded,) = await self.store.record([result.outcome])
        return len(recorded.new)

    async def _ping(self, feed_id: int) -> None:
        self.pinged_feeds.append(feed_id)

    # --- subscriber -----------------------------------------------------------------------------

    async def renew_due(self, *, days: float = 0.0) -> int:
        """Run a renewal round after some days; returns the number of requests to the hub."""
        self.clock.now += days * DAY_S
        before = len(self.hub.forms)
        await self.pushes.renew_due()
        return len(self.hub.forms) - before

    async def subscribe_feed(self, *ids: str, **links: str) -> Feed:
        """Publish and poll a feed, and activate its subscription."""
        self.feed(*ids, **links)
        feed = await self.poll()
        assert await self.renew_due() == 1
        assert await self.hub.confirm() == (200, "riddle")
        return feed

    async def push(self, feed: Feed) -> PushSubscription:
        push = await self.store.find_push_subscription(feed.id)
        assert push is not None
        return push

    async def state(self, feed: Feed) -> str:
        return (await self.push(feed)).state

    async def ids(self, feed: Feed) -> list[tuple[str, str]]:
        """Return identities and sources of the stored entries."""
        entries = await self.store.entries(feed_id=feed.id)
        return sorted((entry.identity.rpartition(":")[2], entry.source) for entry in entries)

    async def callback(self, request: web.Request) -> web.Response:
        """Handle the callback URL as the web application does."""
        token = request.match_info["token"]
        if request.method == "GET":
            response = await self.pushes.verify_intent(token, request.query)
        else:
            response = await self.pushes.receive_delivery(
                token, request.headers, await request.read()
            )
        return web.Response(status=response.status, text=response.body)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["WebSubHarness"]:
        app = web.Application(client_max_size=10 * MAX_BYTES)
        app.router.add_route("*", "/push/{token}", self.callback)
        app.router.add_post("/{hub:hub.*}", self.hub.handle_request)
        app.router.add_get("/{path:.*}", self.page)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            plain, secure = (
                web.TCPSite(runner, "127.0.0.1", 0),
                web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self_signed()),
            )
            await plain.start()
            await secure.start()
            ports = [address[1] for address in runner.addresses]
            self.plain, self.secure = (
                f"http://127.0.0.1:{ports[0]}",
                f"https://127.0.0.1:{ports[1]}",
            )
            async with (
                aiohttp.ClientSession() as self.hub.session,
                self.subscriber() as self.pushes,
            ):
                yield self
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def restart(self) -> AsyncIterator[None]:
        """Use a new subscriber on the same store, as after a restart."""
        old, self.pushes = self.pushes, self.subscriber()
        async with self.pushes:
            yield
        self.pushes = old


def websub_test(
    allow_private: bool = True, **options: Any
) -> Callable[[Callable[[WebSubHarness], Coroutine[Any, Any, None]]], Any]:
    """Decorate an async test that gets a running `WebSubHarness`."""

    def wrap(test: Callable[[WebSubHarness], Coroutine[Any, Any, None]]) -> Any:
        async def run_test(folder: Path) -> None:
            clock = Clock()
            settings = FetchSettings(allow_private=allow_private, max_bytes=MAX_BYTES)
            async with AsyncExitStack() as stack:
                store = await stack.enter_async_context(
                    Store.open(folder / "store.db", clock=clock)
                )
                fetcher = await stack.enter_async_context(
                    Fetcher(settings, clock, sleep=clock.sleep)
                )
                # The test certificate is self-signed.
                fetcher.connection_pool.tls = ssl._create_unverified_context()
                w = await stack.enter_async_context(
                    WebSubHarness(store, fetcher, clock, Hub(), **options).running()
                )
                await asyncio.wait_for(test(w), TEST_TIMEOUT_S)

        @functools.wraps(test)
        def run(tmp_path: Path) -> None:
            asyncio.run(run_test(tmp_path))

        del run.__wrapped__  # type: ignore[attr-defined]  # pytest would take `w` for a fixture
        return run

    return wrap
