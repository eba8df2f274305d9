"""Nodes on real sockets: each has a loopback address of its own, as nodes on the network have.

``async with peer(2, feeds) as two`` is a node at 127.0.0.2; ``two.arrived`` is what came to it.
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
    """The port at which ``app`` is served."""
    with listen(address, 0) as listening:
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        config.load()
        config.ssl = tls
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext
        task = asyncio.create_task(server.serve(sockets=[listening]))
        await until(lambda: server.started)
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await task


class Peer:
    """A node, and what its owner has."""

    def __init__(self, address, feeds, settings, signer=None, client_tls=None):
        self.address, self.received_titles, self.effects, self.stored = address, [], [], []
        keyed = (
            {}
            if signer is None
            else {"sign": signer.sign, "key": signer.key, "verify": is_valid_signature}
        )
        self.node = Node(dict.fromkeys(feeds, 1.0), settings, **keyed)
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
            mine = await self.archive(effect.query, 1000)
            held = [Holding("", len(mine), mine[-1].published, mine[0].published)] if mine else []
            self.node.on_answer(effect.query.id, "", held, time.time())
            self.exchange.apply_effects()

    async def archive(self, query, limit):
        mine = [e for e in self.stored if query.since <= e.published < query.until]
        return sorted(mine, key=lambda e: -e.published)[:limit]

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
    here = Peer(f"127.0.0.{number}", feeds, settings, signer, client_tls)
    app = Starlette()
    async with serving(app, here.address, tls) as port:
        await here.start(port)
        app.router.routes.extend(here.exchange.routes())
        async with here.exchange:
            yield here


async def until(condition, seconds=TEST_TIMEOUT_S):
    """Until it is so; fails if it is not within a bounded time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def async_test(test):
    """A test that may await, for 20 seconds at most."""

    @functools.wraps(test)
    def run(*args, **options):
        asyncio.run(asyncio.wait_for(test(*args, **options), TEST_TIMEOUT_S))

    return run
