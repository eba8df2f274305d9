"""The service in this process with a controllable clock, for tests with peers."""

import asyncio
import functools
import time
from contextlib import asynccontextmanager

from tests import TEST_TIMEOUT_S
from tests.peers.peer_network import Publisher
from tidings import service
from tidings.config import read
from tidings.store.feed_models import NewSubscription


class InProcessServer:
    """A running service: `poll` polls its feed, `titles` returns stored titles and sources."""

    def __init__(self, publisher, aggregator, nid, clock):
        self.publisher, self.aggregator, self.nid, self.clock = publisher, aggregator, nid, clock
        self.store, self.peer_exchange = aggregator.store, aggregator.polls.peer_exchange
        self.feed = publisher.url

    async def poll(self):
        return await self.aggregator.poll()

    async def titles(self):
        return {e.title: e.source for e in await self.store.entries(limit=1000)}

    async def wait_for_sources(self, **sources):
        """Wait until the store has posts with these sources; None means that the post is absent."""
        expected = {name.replace("_", " "): source for name, source in sources.items()}
        await until(lambda: self._has_sources(expected))

    async def _has_sources(self, expected):
        titles = await self.titles()
        return all(titles.get(name) == source for name, source in expected.items())


class Clock:
    def __init__(self):
        self.offset_s = 0.0
        self._frozen_at = None

    def __call__(self):
        return (self._frozen_at or time.time()) + self.offset_s

    def freeze(self):
        self._frozen_at = time.time()


async def until(condition):
    async with asyncio.timeout(TEST_TIMEOUT_S):
        while not await condition():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def server(folder, publisher, address="127.0.0.2", clock=None, **options):
    clock = clock or Clock()
    options = {name.replace("_", ".", 1): value for name, value in options.items()}
    settings_text = {
        "fetch.allow_private": "true",
        "fetch.contact_url": "http://n2.example/",
        "exchange.enabled": "true",
    }
    settings_text |= {"serve.host": address, **options}
    settings, stop = read(folder, {}, settings_text), asyncio.Event()
    with service.listen(address, 0) as server_socket:
        async with service.open_polling(
            settings, folder / "tidings.db", serving=True, clock=clock
        ) as aggregator:
            await aggregator.store.add_subscriptions(
                [NewSubscription(publisher.url, clock() + 1e6)]
            )
            service_task = asyncio.create_task(
                service.serve_aggregator(
                    aggregator, settings, server_socket, stop, polling=False, clock=clock
                )
            )
            async with asyncio.timeout(TEST_TIMEOUT_S):
                while aggregator.polls.peer_exchange is None and not service_task.done():
                    await asyncio.sleep(0.01)
            port = settings["exchange.port"].value or server_socket.getsockname()[1]
            try:
                yield InProcessServer(publisher, aggregator, f"{address}:{port}", clock)
            finally:
                stop.set()
                await service_task


def with_in_process_server(**options):
    """Run a coroutine test with a server that has polled a feed with five posts, some days old."""

    def wrap(test):
        @functools.wraps(test)
        def run(tmp_path):
            async def scenario(publisher):
                for day in range(5):
                    publisher.posts.append((day + 1, time.time() - 86400 * (10 - day)))
                async with server(tmp_path, publisher, **options) as running:
                    await running.poll()
                    await asyncio.wait_for(test(running), TEST_TIMEOUT_S)

            with Publisher() as publisher:
                asyncio.run(scenario(publisher))

        del run.__wrapped__
        return run

    return wrap
