"""Connection to PostgreSQL cut without notice: the server releases locks and leadership."""

import asyncio
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from tests.live.worker_cluster import DatabaseProxy
from tests.postgres import sql, start_server
from tests.trace_helpers import MONDAY
from tidings.store import Store, StoreError, postgres, pubsub
from tidings.store.feed_models import NewSubscription


@pytest.fixture
def direct_and_proxied(monkeypatch):
    """URLs of one database, direct and through a proxy; and the proxy. Timeouts are short."""
    monkeypatch.setattr(postgres, "IDLE_IN_TRANSACTION_TIMEOUT_S", 1.0)
    monkeypatch.setattr(postgres, "STATEMENT_TIMEOUT_S", 2.0)
    monkeypatch.setattr(postgres, "RECONNECT_TIMEOUT_S", 3.0)
    monkeypatch.setattr(pubsub, "HEARTBEAT_INTERVAL_S", 0.2)
    monkeypatch.setattr(pubsub, "SESSION_TIMEOUT_S", 1.0)
    folder = Path(tempfile.mkdtemp(prefix="tidings-cut-"))  # socket paths must be short
    server = start_server(folder / "data")
    proxy = DatabaseProxy(folder, str(next((folder / "data").glob(".s.PGSQL.*[0-9]"))))
    yield server.get_uri(), proxy.url.format("postgres"), proxy
    proxy.close()
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_idle_transaction_of_lost_client_releases_its_locks(direct_and_proxied):
    direct_url, proxied_url, proxy = direct_and_proxied
    update = "UPDATE feeds SET reason = ?"
    locked, go_on = threading.Event(), threading.Event()

    def begin(db):
        db.execute(update, ("disconnected",))
        locked.set()
        assert go_on.wait(30)
        db.execute(update, ("disconnected, second",))

    async def scenario():
        async with (
            Store.open(direct_url, clock=lambda: MONDAY) as direct,
            Store.open(proxied_url, clock=lambda: MONDAY) as proxied,
        ):
            await direct.add_subscriptions([NewSubscription("https://a.example/feed", MONDAY)])
            stuck = asyncio.create_task(proxied._db.write(begin))
            assert await asyncio.to_thread(locked.wait, 30)
            proxy.cut(silent=True)
            await direct._db.write(lambda db: db.execute(update, ("connected",)))
            go_on.set()
            with pytest.raises(
                StoreError, match="check that PostgreSQL is running and can be reached"
            ):
                await stuck

    run(scenario())
    assert sql(direct_url, "SELECT reason FROM feeds") == [("connected",)]


def test_leadership_moves_and_lost_listener_reconnects(direct_and_proxied):
    direct_url, proxied_url, proxy = direct_and_proxied
    received = asyncio.Queue()

    async def scenario():
        async with (
            Store.open(direct_url, clock=lambda: MONDAY) as direct,
            Store.open(proxied_url, clock=lambda: MONDAY) as proxied,
        ):
            await proxied._db.pubsub.listen("news", received.put_nowait)
            assert await proxied.acquire_leadership()
            assert not await direct.acquire_leadership()
            proxy.cut(silent=True)
            while not await direct.acquire_leadership():
                await asyncio.sleep(0.1)
            assert not await proxied.acquire_leadership()
            proxy.reconnect()
            assert await received.get() == ""  # messages may have been missed
            assert not await proxied.acquire_leadership()
            await direct._db.pubsub.notify("news", "something")
            while await received.get() != "something":
                pass

    run(scenario())


def test_concurrent_notify_and_leadership_calls(direct_and_proxied):
    direct_url, _, _ = direct_and_proxied
    received = []

    async def scenario():
        async with Store.open(direct_url, clock=lambda: MONDAY) as direct:
            await direct._db.pubsub.listen("news", received.append)
            messages = (direct._db.pubsub.notify("news", str(number)) for number in range(50))
            assert all(
                (
                    await asyncio.gather(
                        direct.acquire_leadership(), direct.acquire_leadership(), *messages
                    )
                )[:2]
            )
            while len(received) < 50:
                await asyncio.sleep(0.01)

    run(scenario())
