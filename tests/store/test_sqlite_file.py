"""Backup, restore and integrity check of the SQLite file."""

import asyncio
import sqlite3
import stat

import pytest

from tests.store.conftest import entry
from tidings.errors import UsageError
from tidings.store import StoreError, restore
from tidings.store.schema import MIGRATIONS


@pytest.fixture
def location(tmp_path):
    """Only SQLite."""
    return tmp_path / "store.db"


def test_backup_during_writes_is_a_snapshot(store, open_store, tmp_path):
    feed = store.subscribe()
    outcomes = []
    for number in range(60):
        outcomes.append(store.outcome(feed, new=[entry(number, text="many words " * 400)]))
        store.clock.forward(1)
    shown = []

    async def both():
        await store.store.record(outcomes[:20])
        backup = asyncio.create_task(
            store.store.backup(
                tmp_path / "copy.db", lambda done, total: shown.append((done, total))
            )
        )
        for outcome in outcomes[20:]:
            await store.store.record([outcome])
        await backup

    store.wait(both())
    assert shown[-1][0] == shown[-1][1] > 0
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    with open_store(tmp_path / "copy.db") as copy:
        assert copy.check() == []
        assert len(copy.entries(limit=100)) == len(copy.polls(feed, limit=100)) >= 20


def test_backup_replaces_older_backup_but_not_the_store(store, tmp_path):
    store.backup(tmp_path / "copy.db")
    store.backup(tmp_path / "copy.db")
    with pytest.raises(UsageError, match="the database in use"):
        store.backup(store.location)
    assert not list(tmp_path.glob("*.part"))


@pytest.fixture
def backup_file(open_store, tmp_path):
    """A store with entries 1 and 2, and a backup with entry 1."""
    with open_store() as store:
        feed = store.subscribe()
        store.record_poll(feed, new=[entry(1)])
        store.backup(tmp_path / "copy.db")
        store.record_poll(feed, new=[entry(2)])
    return tmp_path / "copy.db"


def test_restore_replaces_the_store(open_store, backup_file, tmp_path):
    restore(backup_file, tmp_path / "store.db")
    with open_store() as store:
        assert store.titles() == ["Post 1"]
        assert store.record_poll(1, new=[entry(3)]).new == (2,)
    restore(backup_file, tmp_path / "elsewhere.db")
    with open_store(tmp_path / "elsewhere.db") as store:
        assert store.titles() == ["Post 1"]


def test_restore_replaces_a_damaged_store(open_store, backup_file, tmp_path):
    (tmp_path / "store.db").write_bytes(b"no database at all" * 1000)
    restore(backup_file, tmp_path / "store.db")
    with open_store() as store:
        assert store.titles() == ["Post 1"]


@pytest.mark.parametrize("serving", [True, False])
def test_restore_is_refused_while_the_store_is_in_use(open_store, backup_file, tmp_path, serving):
    with open_store(serving=serving) as store:
        assert len(store.entries()) == 2
        with pytest.raises(StoreError, match="in use by another"):
            restore(backup_file, tmp_path / "store.db")
        assert len(store.entries()) == 2


def overwrite_pages(path):
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = bytes(4096 * 3)
    path.write_bytes(content)


def version(number):
    def change(path):
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA user_version = {number}")
        db.close()

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (overwrite_pages, "damaged|malformed"),
        (version(len(MIGRATIONS) + 1), "used by a newer version of tidings"),
        (version(0), "not a backup"),
        (lambda path: path.write_bytes(b"x" * 5000), "not a database"),
        (lambda path: path.write_bytes(b""), "not a backup"),
        (lambda path: path.unlink(), "does not exist"),
    ],
)
def test_invalid_backup_is_refused(open_store, backup_file, tmp_path, damage, message):
    damage(backup_file)
    with pytest.raises((StoreError, UsageError), match=message):
        restore(backup_file, tmp_path / "store.db")
    with open_store() as store:
        assert len(store.entries()) == 2


def test_check_reports_missing_rows(store):
    store.record_poll(store.subscribe(), new=[entry(1), entry(2)])
    assert store.check() == []
    db = sqlite3.connect(store.location)
    db.execute("INSERT INTO search (search, rowid, title, body) VALUES ('delete', 1, 'Post 1', '')")
    db.execute("DELETE FROM feeds")  # foreign keys are off here
    db.commit()
    db.close()
    problems = store.check()
    assert "1 entries cannot be found by search" in problems
    assert "a row of entries points to a missing row of feeds" in problems
