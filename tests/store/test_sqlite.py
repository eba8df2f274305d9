"""SQLite file: concurrent access, file modes, refused files, migrations."""

import asyncio
import os
import sqlite3
import stat
import threading

import pytest

from tests.store.conftest import LEASE_S, entry
from tidings.store import Store, StoreError
from tidings.store.schema import MIGRATIONS


@pytest.fixture
def location(tmp_path):
    """Only SQLite."""
    return tmp_path / "store.db"


def test_reopened_store_keeps_entries(open_store):
    with open_store() as store:
        store.record_poll(store.subscribe(), new=[entry(1)])
    with open_store() as store:
        assert store.titles() == ["Post 1"]


def test_files_are_readable_only_for_owner(open_store, tmp_path):
    before = os.umask(0)
    try:
        with open_store(serving=True) as store:
            store.subscribe()
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert set(modes) == {"store.db", "store.db-wal", "store.db-shm", "store.db.serving"}
    assert set(modes.values()) == {0o600}


def test_second_serving_process_is_refused(open_store):
    with (
        open_store(serving=True),
        pytest.raises(StoreError, match="another `tidings serve`"),
        open_store(serving=True),
    ):
        pass
    with open_store(serving=True) as store:
        assert store.feeds() == []


def test_commands_work_while_serving(open_store):
    with open_store(serving=True) as service, open_store() as command:
        feed = command.subscribe()
        assert [f.id for f in service.lease_feeds(9, lease_s=LEASE_S)] == [feed]
        service.record_poll(feed, new=[entry(1)])
        assert command.titles() == ["Post 1"]


@pytest.mark.parametrize("threads", [True, False])
def test_store_without_threads(open_store, threads):
    with open_store(threads=threads) as store:
        feed = store.subscribe()
        store.record_poll(feed, new=[entry(1)])
        assert store.titles() == ["Post 1"]
        at_work = {
            store.write(lambda db: threading.get_ident()),
            store.read(lambda db: threading.get_ident()),
        }
        assert (at_work == {threading.get_ident()}) is not threads
        with pytest.raises(ZeroDivisionError):
            store.write(lambda db: db.execute("DELETE FROM feeds") and 1 / 0)
        assert [f.feed.id for f in store.feeds()] == [feed]


def test_readers_see_complete_transactions(open_store):
    """Every transaction adds two entries; no reader may see only one of them."""
    with open_store() as sync_store:
        feed = sync_store.subscribe()
        outcomes = []
        for pair in range(40):
            outcomes.append(sync_store.outcome(feed, new=[entry(2 * pair), entry(2 * pair + 1)]))
            sync_store.clock.forward(1)

        async def write():
            for outcome in outcomes:
                await sync_store.store.record([outcome])

        async def read(writing):
            counts = []
            while not writing.done():
                counts.append(len(await sync_store.store.entries(limit=1000)))
            return counts

        async def both():
            writing = asyncio.create_task(write())
            seen = await asyncio.gather(*(read(writing) for _ in range(4)))
            await writing
            return [count for counts in seen for count in counts]

        seen = sync_store.wait(both())
        assert len(seen) > 4
        assert all(count % 2 == 0 for count in seen)
        assert len(sync_store.entries(limit=1000)) == 80


def test_newer_schema_is_refused(open_store, tmp_path):
    with open_store():
        pass
    db = sqlite3.connect(tmp_path / "store.db")
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreError, match="used by a newer version of tidings"), open_store():
        pass


def test_database_of_another_program_is_refused(open_store, tmp_path):
    db = sqlite3.connect(tmp_path / "store.db")
    db.execute("CREATE TABLE bookmarks (url)")
    db.close()
    with pytest.raises(StoreError, match="another program"), open_store():
        pass


def test_file_that_is_no_database_is_refused(open_store, tmp_path):
    (tmp_path / "store.db").write_text("Dear diary, " * 100)
    message = r"not a database.*choose the database of tidings"
    with pytest.raises(StoreError, match=message), open_store():
        pass


def test_missing_directory_is_reported(tmp_path, clock):
    with pytest.raises(StoreError, match=r"missing.*check that its directory exists"):
        Store.open(tmp_path / "missing" / "store.db", clock=clock)


def test_failed_migration_is_rolled_back(open_store, tmp_path, monkeypatch):
    with open_store() as store:
        store.subscribe()
    broken = (
        *MIGRATIONS,
        "ALTER TABLE feeds ADD COLUMN colour TEXT;\nALTER TABLE nowhere ADD COLUMN x TEXT;\n",
    )
    with monkeypatch.context() as patch:
        patch.setattr("tidings.store.sqlite_file.MIGRATIONS", broken)
        with pytest.raises(StoreError, match="nowhere"), open_store():
            pass
    with open_store() as store:
        assert len(store.feeds()) == 1


def test_migration_is_applied_once(open_store, monkeypatch):
    with open_store() as store:
        store.subscribe()
    monkeypatch.setattr(
        "tidings.store.sqlite_file.MIGRATIONS",
        (*MIGRATIONS, "ALTER TABLE feeds ADD COLUMN colour TEXT;\n"),
    )
    for _ in range(2):
        with open_store() as store:
            assert len(store.feeds()) == 1


def test_due_feeds_query_uses_index(store):
    plan = store.wait(
        store.store._db.read(
            lambda db: db.execute(
                "EXPLAIN QUERY PLAN SELECT id FROM feeds WHERE next_poll_at <= 5 "
                "ORDER BY next_poll_at LIMIT 9"
            ).fetchall()
        )
    )
    assert [row[3] for row in plan] == [
        "SEARCH feeds USING COVERING INDEX feeds_due (next_poll_at<?)"
    ]
