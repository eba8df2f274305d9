"""Moving a store from SQLite to PostgreSQL: complete, resumable, never over existing rows."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tests import postgres
from tests.store.conftest import LEASE_S, entry
from tidings.errors import UsageError
from tidings.store import StoreError
from tidings.store.feed_models import Estimate, KnownEntry, SuspectedGap
from tidings.store.sqlite_to_postgres import move


@pytest.fixture
def location(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def target():
    with postgres.database() as url:
        yield url


@pytest.fixture
def filled_file(open_store, location):
    """A file with rows in most tables, and a deleted entry."""
    with open_store() as store:
        feed = store.subscribe("https://a.example/feed", folder="News")
        new = [
            entry(n, text=f"Wörter of number {n}", delay_s=1.5, tags=("x",)) for n in range(1, 30)
        ]
        store.record_poll(
            feed,
            new=new,
            gap=SuspectedGap(1.0, 2.0, 3.0),
            estimate=Estimate("price", b"\0\1"),
            host="https://a.example",
        )
        store.record_poll(
            feed, changed=(entry(3, digest=b"2", text="corrected"),), document=("id:3",)
        )
        store.save_values({"price": b"0.5"})
        store.clock.forward(days=400)
        store.apply_retention(days=30, min_entries=20)
    return location


def move_store(source, url):
    steps = []
    rows = asyncio.run(move(source, url, lambda *step: steps.append(step)))
    return rows, steps


def test_move_copies_everything(filled_file, target, open_store):
    rows, steps = move_store(filled_file, target)
    assert rows > 50
    assert steps[-1][1] == steps[-1][2] == 2 * rows
    with open_store(filled_file) as old, open_store(target) as new:
        for question in (
            lambda s: s.entries(limit=100),
            lambda s: s.feeds(),
            lambda s: s.polls(1),
            lambda s: s.gaps(),
        ):
            assert question(new) == question(old)
        assert new.versions(3) == old.versions(3)
        assert new.titles(search="worter 29") == ["Post 29"]
        assert new.titles(search="corrected") == ["Post 3"]
        assert new.known_entries(1, ["id:1", "id:29"]) == {
            "id:1": KnownEntry(None, b""),
            "id:29": old.known_entries(1, ["id:29"])["id:29"],
        }
        assert new.check() == []
        assert new.record_poll(1, new=[entry(1), entry(99)]).new == (30,)
        assert new.subscribe("https://b.example/") == 2
        assert len(new.lease_feeds(9, lease_s=LEASE_S)) == 1


#: Tables of the target, without partitions.
SELECT_TABLES = (
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') "
    "AND relnamespace = 'public'::regnamespace AND NOT relispartition"
)
#: A value for each column type.
VALUES = {"INTEGER": 1, "BIGINT": 2**62, "DOUBLE PRECISION": 1.5, "TEXT": "é", "BLOB": b"\0"}


def test_move_copies_every_table(open_store, location, target):
    """One row in each table, including tables of future migrations."""
    with open_store():
        pass
    with closing(sqlite3.connect(location, isolation_level=None)) as db:
        names = {
            name
            for (name,) in db.execute(
                "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'"
            )
        }
        names = {name for name in names if not name.startswith(("sqlite_", "search_"))}
        for (trigger,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        for name in names - {"users"}:
            types = [row[2] for row in db.execute(f"PRAGMA table_info({name})")]
            db.execute(
                f"INSERT INTO {name} VALUES ({', '.join('?' * len(types))})",
                [VALUES[kind] for kind in types],
            )
        expected = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    move_store(location, target)
    copied = {name for (name,) in postgres.sql(target, SELECT_TABLES)}
    assert copied - {"tidings_version"} == names
    for name in names:
        rows = postgres.sql(target, f"SELECT * FROM {name}")
        assert [row[: len(expected[name][0])] for row in rows] == expected[name], name


def test_move_refuses_target_that_is_not_empty(filled_file, target):
    move_store(filled_file, target)
    with pytest.raises(UsageError, match="is not empty"):
        move_store(filled_file, target)


def test_move_refuses_served_file(filled_file, target, open_store):
    with open_store(serving=True), pytest.raises(StoreError, match="in use by another"):
        move_store(filled_file, target)


def test_move_detects_changed_rows(filled_file, target):
    """The target has all rows of a table, but one differs."""
    asyncio.run(move_until(filled_file, target, "comparing"))
    postgres.sql(target, "UPDATE entries SET title = 'forged' WHERE id = 29")
    with pytest.raises(StoreError, match="entries changed during the copy"):
        move_store(filled_file, target)


class StopMove(Exception):
    pass


async def move_until(source, url, what):
    def report(doing, _done, _of):
        if doing.startswith(what):
            raise StopMove

    with pytest.raises(StopMove):
        await move(source, url, report)


MOVE_SLOWLY = """
import asyncio, pathlib, sys
from tidings.store import sqlite_to_postgres
sqlite_to_postgres.BATCH = 20
def report(*_):
    print("b", end="", flush=True)
asyncio.run(sqlite_to_postgres.move(pathlib.Path(sys.argv[1]), sys.argv[2], report))
"""


def test_killed_move_resumes(open_store, location, target):
    with open_store() as store:
        for n in range(10):
            store.record_poll(
                store.subscribe(f"https://{n}.example/"),
                new=[entry(n, text="some words") for n in range(100)],
            )
    rng = random.Random(3)
    counts = []
    for _ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", MOVE_SLOWLY, location, target], stdout=subprocess.PIPE
        ) as process:
            process.stdout.read(rng.randint(5, 20))
            process.kill()
        assert process.returncode == -9
        counts += postgres.sql(target, "SELECT count(*) FROM entries")[0]
    assert 0 < counts[0] < 1000
    assert counts == sorted(counts)
    move_store(location, target)
    with open_store(target) as store:
        assert len(store.entries(limit=10_000)) == 1000
        assert store.check() == []
