"""Old entries go, nothing that went comes back as new; a backup is one moment of the store; damage is found."""

import asyncio
import sqlite3
import stat

import pytest

from tests.store.conftest import entry
from tests.worlds import MONDAY
from tidings.errors import UsageError
from tidings.store import StoreError, restore
from tidings.store.rows import Known
from tidings.store.schema import MIGRATIONS


@pytest.fixture
def aged(store):
    """A feed with entries 1 to 6, a hundred days old, whose document now shows entries 2 and 6."""
    feed = store.subscribe()
    store.polled(feed, new=[entry(n, text=f"word{n}") for n in range(1, 7)])
    store.polled(feed, document=("id:2", "id:6"))
    store.clock.forward(days=100)
    return store


def test_old_entries_go_except_the_newest_and_what_the_document_shows(aged):
    assert aged.retain(days=90, least=2).entries == 3
    assert aged.titles() == ["Post 6", "Post 5", "Post 2"]
    assert aged.titles(search="word1") == []
    assert aged.titles(search="word2") == ["Post 2"]
    assert aged.check() == []
    assert aged.retain(days=90, least=2).entries == 0


def test_young_entries_stay(aged):
    assert aged.retain(days=101, least=0).entries == 0


def test_what_went_does_not_come_back_as_new(aged):
    aged.retain(days=90, least=0)
    assert aged.known(1, ["id:1", "id:2", "id:9"]) == {"id:1": Known(None, b""), "id:2": Known(2, b"1", MONDAY + 7200)}
    assert aged.polled(1, source="archive", new=[entry(1), entry(9)]).new == (7,)
    assert aged.titles() == ["Post 9", "Post 6", "Post 2"]


def test_the_log_is_thinned_to_what_tells_something_and_then_forgotten(store):
    feed = store.subscribe()
    store.polled(feed, new=[entry(1)])
    store.polled(feed)
    store.polled(feed, error_kind="timeout", error="no answer")
    store.clock.forward(days=7)
    assert store.retain(days=90, least=0).polls == 0
    store.clock.forward(days=2)
    assert store.retain(days=90, least=0).polls == 1
    assert [(p.new, p.error_kind) for p in store.polls(feed)] == [(0, "timeout"), (1, "")]
    store.clock.forward(days=90)
    assert store.retain(days=90, least=0).polls == 2
    assert store.polls(feed) == []


def test_a_backup_under_load_is_one_moment(store, opened, tmp_path):
    feed = store.subscribe()
    outcomes = []
    for number in range(60):
        outcomes.append(store.outcome(feed, new=[entry(number, text="many words " * 400)]))
        store.clock.forward(1)
    shown = []

    async def both():
        await store.store.record(outcomes[:20])
        backup = asyncio.create_task(store.store.backup(tmp_path / "copy.db", lambda done, total: shown.append((done, total))))
        for outcome in outcomes[20:]:
            await store.store.record([outcome])
        await backup

    store.wait(both())
    assert shown[-1][0] == shown[-1][1] > 0
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    with opened(tmp_path / "copy.db") as copy:
        assert copy.check() == []
        assert len(copy.entries(limit=100)) == len(copy.polls(feed, limit=100)) >= 20


def test_a_backup_replaces_an_older_one_but_never_the_store(store, tmp_path):
    store.backup(tmp_path / "copy.db")
    store.backup(tmp_path / "copy.db")
    with pytest.raises(UsageError, match="the store itself"):
        store.backup(store.path)
    assert not list(tmp_path.glob("*.part"))


@pytest.fixture
def saved(opened, tmp_path):
    """A store with a backup that knows entry 1, and an entry 2 that came after."""
    with opened() as store:
        feed = store.subscribe()
        store.polled(feed, new=[entry(1)])
        store.backup(tmp_path / "copy.db")
        store.polled(feed, new=[entry(2)])
    return tmp_path / "copy.db"


def test_restore_brings_the_backups_moment_back(opened, saved, tmp_path):
    restore(saved, tmp_path / "store.db")
    with opened() as store:
        assert store.titles() == ["Post 1"]
        assert store.polled(1, new=[entry(3)]).new == (2,)
    restore(saved, tmp_path / "elsewhere.db")
    with opened(tmp_path / "elsewhere.db") as store:
        assert store.titles() == ["Post 1"]


def test_restore_mends_a_damaged_store(opened, saved, tmp_path):
    (tmp_path / "store.db").write_bytes(b"no database at all" * 1000)
    restore(saved, tmp_path / "store.db")
    with opened() as store:
        assert store.titles() == ["Post 1"]


@pytest.mark.parametrize("serving", [True, False])
def test_restore_is_refused_while_the_store_is_in_use(opened, saved, tmp_path, serving):
    with opened(serving=serving) as store:
        assert len(store.entries()) == 2
        with pytest.raises(StoreError, match="in use by another"):
            restore(saved, tmp_path / "store.db")
        assert len(store.entries()) == 2


def damage(path):
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
    ("spoil", "complaint"),
    [
        (damage, "damaged|malformed"),
        (version(len(MIGRATIONS) + 1), "install the newer tidings"),
        (version(0), "no backup"),
        (lambda path: path.write_bytes(b"x" * 5000), "not a database"),
        (lambda path: path.write_bytes(b""), "no backup"),
        (lambda path: path.unlink(), "does not exist"),
    ],
)
def test_a_bad_backup_is_refused_and_the_store_stays(opened, saved, tmp_path, spoil, complaint):
    spoil(saved)
    with pytest.raises((StoreError, UsageError), match=complaint):
        restore(saved, tmp_path / "store.db")
    with opened() as store:
        assert len(store.entries()) == 2


def test_check_finds_what_is_missing(store):
    store.polled(store.subscribe(), new=[entry(1), entry(2)])
    assert store.check() == []
    db = sqlite3.connect(store.path)
    db.execute("DELETE FROM search WHERE rowid = 1")
    db.execute("DELETE FROM feeds")  # foreign keys are off here
    db.commit()
    db.close()
    problems = store.check()
    assert "1 entries cannot be found by search" in problems
    assert "a row of entries points to a missing row of feeds" in problems
