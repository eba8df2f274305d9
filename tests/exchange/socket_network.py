"""Exchange nodes on real sockets, each with a separate loopback address.

``async with peer(2, feeds) as two`` runs a node at 127.0.0.2; ``two.received_titles`` are the
titles of the entries that arrived there.
"""

import asyncio
import functools
import time
from contextlib import asynccontextmanager, nullcontext

import uvicorn
from starlette.applications import Starlette

from tests import TEST_TIMEOUT_S
from tidings.exchange import messages
from tidings.exchange.client import Client
from tidings.exchange.keys import is_valid_signature
from tidings.exchange.node import Node
from tidings.exchange.protocol import EntriesReceived, Holding, NodeSettings, Search
from tidings.exchange.transport import Exchange
from tidings.service import listen

FEED = "http://blog.example/feed"
NO_REPLENISH = NodeSettings(min_peers=0, advertise_interval_s=1.0)


@asynccontextmanager
async def serving(app, address, tls=None):
    """Serve ``app`` at a free port and yield the port."""
    with listen(address, 0) as server_socket:
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        config.load()
        config.ssl = tls
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext
        task = asyncio.create_task(server.serve(sockets=[server_socket]))
        await until(lambda: server.started)
        try:
            yield server_socket.getsockname()[1]
        finally:
            server.should_exit = True
            await task


class Peer:
    """A running node with its archive and the effects it produced."""

    def __init__(self, address, feeds, settings, signer=None, client_tls=None):
        self.address, self.received_titles, self.effects, self.stored = address, [], [], []
        key_options = (
            {}
            if signer is None
            else {"sign": signer.sign, "key": signer.key, "verify": is_valid_signature}
        )
        self.node = Node(dict.fromkeys(feeds, 1.0), settings, **key_options)
        self._signer, self._tls = signer, client_tls

    async def start(self, port):
        self.nid = self.node.nid = f"{self.address}:{port}"
        client = Client(port, allow_private=True, local_address=self.address, tls=self._tls)
        self.exchange = Exchange(
            self.node,
            client,
            time.time,
            on_effect=self.on_effect,
            archive=self.archive,
            signer=self._signer,
        )
        self.client = client

    async def on_effect(self, effect):
        self.effects.append(effect)
        if isinstance(effect, EntriesReceived):
            self.received_titles += [entry.title for entry in effect.bundle.entries]
        elif isinstance(effect, Search):
            found = await self.archive(effect.query, 1000)
            holdings = []
            if found:
                holdings = [Holding("", len(found), found[-1].published, found[0].published)]
            self.node.on_answer(effect.query.id, "", holdings, time.time())
            self.exchange.apply_effects()

    async def archive(self, query, limit):
        found = [e for e in self.stored if query.since <= e.published < query.until]
        return sorted(found, key=lambda e: -e.published)[:limit]

    async def connect_to(self, *others):
        self.node.add_candidates([other.nid for other in others], time.time())
        for other in others:
            subset = self.node.interests.advertisement_for(other.nid)
            await self.exchange._connect(other.nid, subset)

    def record_document(self, *entries, feed=FEED):
        self.node.record_document(feed, messages.keep_sendable(entries), time.time())
        self.exchange.apply_effects()


@asynccontextmanager
async def peer(
    number, feeds=(FEED,), settings=NO_REPLENISH, signer=None, client_tls=None, tls=None
):
    node = Peer(f"127.0.0.{number}", feeds, settings, signer, client_tls)
    app = Starlette()
    async with serving(app, node.address, tls) as port:
        await node.start(port)
        app.router.routes.extend(node.exchange.routes())
        async with node.exchange:
            yield node


async def until(condition, seconds=TEST_TIMEOUT_S):
    """Wait until the condition holds; raise `TimeoutError` after ``seconds``."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def async_test(test):
    """Run a coroutine test with a timeout."""

    @functools.wraps(test)
    def run(*args, **options):
        asyncio.run(asyncio.wait_for(test(*args, **options), TEST_TIMEOUT_S))

    return run
