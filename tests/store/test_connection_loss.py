"""A line to the database that is cut in silence: the server lets go of what the one who was cut off has held."""

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
    """Addresses of one database, by itself and by a line; and the line. All are less patient than in earnest."""
    monkeypatch.setattr(postgres, "ABANDONED_S", 1.0)
    monkeypatch.setattr(postgres, "STATEMENT_S", 2.0)
    monkeypatch.setattr(postgres, "PATIENCE_S", 3.0)
    monkeypatch.setattr(pubsub, "BEAT_S", 0.2)
    monkeypatch.setattr(pubsub, "SILENT_S", 1.0)
    folder = Path(tempfile.mkdtemp(prefix="tidings-cut-"))  # a socket's path must be short
    server = start_server(folder / "data")
    line = DatabaseProxy(folder, str(next((folder / "data").glob(".s.PGSQL.*[0-9]"))))
    yield server.get_uri(), line.url.format("postgres"), line
    line.close()
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 60))


def test_what_a_transaction_has_locked_is_free_again(direct_and_proxied):
    near, far, line = direct_and_proxied
    rename = "UPDATE feeds SET reason = ?"
    locked, go_on = threading.Event(), threading.Event()

    def begin(db):
        db.execute(rename, ("the one who was cut off",))
        locked.set()
        assert go_on.wait(30)
        db.execute(rename, ("the one who was cut off, again",))

    async def scenario():
        async with (
            Store.open(near, clock=lambda: MONDAY) as here,
            Store.open(far, clock=lambda: MONDAY) as there,
        ):
            await here.add([NewSubscription("https://a.example/feed", MONDAY)])
            stuck = asyncio.create_task(there._db.write(begin))
            assert await asyncio.to_thread(locked.wait, 30)
            line.cut(silent=True)
            await here._db.write(lambda db: db.execute(rename, ("another",)))
            go_on.set()
            with pytest.raises(
                StoreError, match="check that PostgreSQL runs there and can be reached"
            ):
                await stuck

    run(scenario())
    assert sql(near, "SELECT reason FROM feeds") == [("another",)]


def test_another_leads_and_who_was_cut_off_comes_back(direct_and_proxied):
    near, far, line = direct_and_proxied
    heard = asyncio.Queue()

    async def scenario():
        async with (
            Store.open(near, clock=lambda: MONDAY) as here,
            Store.open(far, clock=lambda: MONDAY) as there,
        ):
            await there._db.pubsub.listen("news", heard.put_nowait)
            assert await there.acquire_leadership()
            assert not await here.acquire_leadership()
            line.cut(silent=True)
            while not await here.acquire_leadership():
                await asyncio.sleep(0.1)
            assert not await there.acquire_leadership()
            line.reconnect()
            assert await heard.get() == ""  # what was said meanwhile is lost
            assert not await there.acquire_leadership()
            await here._db.pubsub.notify("news", "something")
            while await heard.get() != "something":
                pass

    run(scenario())


def test_all_may_talk_at_once(direct_and_proxied):
    near, _, _ = direct_and_proxied
    heard = []

    async def scenario():
        async with Store.open(near, clock=lambda: MONDAY) as here:
            await here._db.pubsub.listen("news", heard.append)
            talk = (here._db.pubsub.notify("news", str(number)) for number in range(50))
            assert all(
                (await asyncio.gather(here.acquire_leadership(), here.acquire_leadership(), *talk))[
                    :2
                ]
            )
            while len(heard) < 50:
                await asyncio.sleep(0.01)

    run(scenario())
