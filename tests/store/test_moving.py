"""A store moves into PostgreSQL whole, also when it is interrupted, and never over something else."""

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
from tidings.store.moving import move
from tidings.store.rows import Estimate, Known, Suspicion


@pytest.fixture
def place(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def target():
    with postgres.database() as url:
        yield url


@pytest.fixture
def full(opened, place):
    """A file with something in most tables, and an entry that is gone."""
    with opened() as store:
        feed = store.subscribe("https://a.example/feed", folder="News")
        new = [entry(n, text=f"Wörter of number {n}", delay_s=1.5, tags=("x",)) for n in range(1, 30)]
        store.polled(feed, new=new, gap=Suspicion(1.0, 2.0, 3.0), estimate=Estimate("price", b"\0\1"), host="https://a.example")
        store.polled(feed, changed=(entry(3, digest=b"2", text="corrected"),), document=("id:3",))
        store.share({"price": b"0.5"})
        store.clock.forward(days=400)
        store.retain(days=30, least=20)
    return place


def moved(source, url):
    told = []
    rows = asyncio.run(move(source, url, lambda *step: told.append(step)))
    return rows, told


def test_everything_arrives_and_life_goes_on(full, target, opened):
    rows, told = moved(full, target)
    assert rows > 50
    assert told[-1][1] == told[-1][2] == 2 * rows
    with opened(full) as old, opened(target) as new:
        for question in (lambda s: s.entries(limit=100), lambda s: s.feeds(), lambda s: s.polls(1), lambda s: s.gaps()):
            assert question(new) == question(old)
        assert new.versions(3) == old.versions(3)
        assert new.titles(search="worter 29") == ["Post 29"]
        assert new.titles(search="corrected") == ["Post 3"]
        assert new.known(1, ["id:1", "id:29"]) == {"id:1": Known(None, b""), "id:29": old.known(1, ["id:29"])["id:29"]}
        assert new.check() == []
        assert new.polled(1, new=[entry(1), entry(99)]).new == (30,)
        assert new.subscribe("https://b.example/") == 2
        assert len(new.claim(9, lease_s=LEASE_S)) == 1


OUR_TABLES = (
    "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace AND NOT relispartition"
)
#: A value for each type of column that there is.
SOME = {"INTEGER": 1, "BIGINT": 2**62, "DOUBLE PRECISION": 1.5, "TEXT": "é", "BLOB": b"\0"}


def test_every_table_moves(opened, place, target):
    """A row in each, whatever migrations there will be."""
    with opened():
        pass
    with closing(sqlite3.connect(place, isolation_level=None)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'")}
        names = {name for name in names if not name.startswith(("sqlite_", "search_"))}
        for (trigger,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {trigger}")
        for name in names - {"users"}:
            types = [row[2] for row in db.execute(f"PRAGMA table_info({name})")]
            db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(types))})", [SOME[kind] for kind in types])
        here = {name: db.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    moved(place, target)
    there = {name for (name,) in postgres.sql(target, OUR_TABLES)}
    assert there - {"tidings_version"} == names
    for name in names:
        rows = postgres.sql(target, f"SELECT * FROM {name}")
        assert [row[: len(here[name][0])] for row in rows] == here[name], name


def test_what_is_there_is_never_written_over(full, target):
    moved(full, target)
    with pytest.raises(UsageError, match="is not empty"):
        moved(full, target)


def test_a_file_that_is_served_does_not_move(full, target, opened):
    with opened(serving=True), pytest.raises(StoreError, match="in use by another"):
        moved(full, target)


def test_a_row_that_was_changed_on_the_way_is_found(full, target):
    """The target says that it has all of a table, but one row says something else."""
    asyncio.run(move_until(full, target, "comparing"))
    postgres.sql(target, "UPDATE entries SET title = 'forged' WHERE id = 29")
    with pytest.raises(StoreError, match="entries is not the same in both"):
        moved(full, target)


class Enough(Exception):
    pass


async def move_until(source, url, what):
    def tell(doing, _done, _of):
        if doing.startswith(what):
            raise Enough

    with pytest.raises(Enough):
        await move(source, url, tell)


MOVE_SLOWLY = """
import asyncio, pathlib, sys
from tidings.store import moving
moving.BATCH = 20
asyncio.run(moving.move(pathlib.Path(sys.argv[1]), sys.argv[2], lambda *_: print("b", end="", flush=True)))
"""


def test_a_move_that_is_killed_goes_on(opened, place, target):
    with opened() as store:
        for n in range(10):
            store.polled(store.subscribe(f"https://{n}.example/"), new=[entry(n, text="some words") for n in range(100)])
    rng = random.Random(3)
    arrived = []
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", MOVE_SLOWLY, place, target], stdout=subprocess.PIPE) as process:
            process.stdout.read(rng.randint(5, 20))
            process.kill()
        assert process.returncode == -9
        arrived += postgres.sql(target, "SELECT count(*) FROM entries")[0]
    assert 0 < arrived[0] < 1000
    assert arrived == sorted(arrived)
    moved(place, target)
    with opened(target) as store:
        assert len(store.entries(limit=10_000)) == 1000
        assert store.check() == []
