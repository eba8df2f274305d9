"""Miniflux for `benchmarks.reader_latency`, with the same data on the same server.

The tables are filled by COPY, and the search index as Miniflux itself does. Its scheduler is off,
so that it polls nothing, and it listens on loopback only.
"""

import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # it has no type information

DATABASE = "miniflux_beside_tidings"
#: Timeout of the start-up.
STARTUP_TIMEOUT_S = 60.0

FRESH = """
    CREATE TEMP TABLE fresh (id bigint, feed_id bigint, hash text, published_at float8,
      seen_at float8, url text, title text, content text)"""
PUT = """
    INSERT INTO entries (id, user_id, feed_id, hash, published_at, created_at, changed_at, url,
      title, author, content, status, starred, reading_time, document_vectors)
    SELECT id, 1, feed_id, hash, to_timestamp(published_at), to_timestamp(seen_at),
      to_timestamp(seen_at), url, title, '', content,
      (CASE WHEN id >= $1 THEN 'unread' ELSE 'read' END)::entry_status, id = ANY($2::bigint[]), 1,
      setweight(to_tsvector(title), 'A') || setweight(to_tsvector(content), 'B')
    FROM fresh"""
#: Newest first, 100 entries per page, and the Google Reader API with the user's password.
USER_SETTINGS = """
    UPDATE users SET entry_direction = 'desc', entries_per_page = 100;
    UPDATE integrations SET googlereader_enabled = true, googlereader_username = users.username,
      googlereader_password = users.password FROM users"""


class Miniflux:
    """A Miniflux binary, with its own database on the server of the URL ``postgres``."""

    def __init__(self, binary: Path, postgres: str, user: str, password: str) -> None:
        self._binary, self._beside = binary.resolve(), postgres
        self._database = urlsplit(postgres)._replace(path=f"/{DATABASE}").geturl()
        self._account = {"CREATE_ADMIN": "1", "ADMIN_USERNAME": user, "ADMIN_PASSWORD": password}

    @property
    def version(self) -> str:
        version_output = subprocess.run(
            [self._binary, "-version"], capture_output=True, text=True, check=True
        )
        return version_output.stdout.strip()

    async def make(
        self,
        feeds: Sequence[tuple[str, str]],
        batches: Iterable[Sequence[Sequence[Any]]],
        unread_from: int,
        starred: list[int],
    ) -> None:
        """Create the database again.

        ``feeds`` are (URL, folder) and get the ids from 1 on; ``batches`` are rows of `FRESH`.
        """
        await self.remove()
        await execute(self._beside, f"CREATE DATABASE {DATABASE}")
        with self.served():  # creates tables and user
            pass
        db = await asyncpg.connect(self._database)
        await db.execute(USER_SETTINGS)
        folders = {
            name: number for number, name in enumerate(sorted({name for _, name in feeds}), 100)
        }
        rows: list[tuple[Any, ...]] = [(number, 1, name) for name, number in folders.items()]
        await db.copy_records_to_table(
            "categories", columns=("id", "user_id", "title"), records=rows
        )
        rows = [(n, 1, folders[folder], url, url, "") for n, (url, folder) in enumerate(feeds, 1)]
        columns = ("id", "user_id", "category_id", "title", "feed_url", "site_url")
        await db.copy_records_to_table("feeds", columns=columns, records=rows)
        await db.execute(FRESH)
        for batch in batches:
            await db.copy_records_to_table("fresh", records=batch)
            await db.execute(PUT, unread_from, starred)
            await db.execute("TRUNCATE fresh")
        await db.execute("VACUUM ANALYZE")
        await db.close()

    async def remove(self) -> None:
        await execute(self._beside, f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")

    @contextmanager
    def served(self) -> Iterator[int]:
        """Run Miniflux; yields its port."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        settings = {
            "DATABASE_URL": self._database,
            "LISTEN_ADDR": f"127.0.0.1:{port}",
            "RUN_MIGRATIONS": "1",
            "DISABLE_SCHEDULER_SERVICE": "1",
            "LOG_LEVEL": "warning",
        }
        env = {"PATH": os.environ["PATH"], **self._account, **settings}
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen([self._binary], env=env, stdout=log, stderr=log) as process,
        ):
            try:
                end = time.monotonic() + STARTUP_TIMEOUT_S
                while not _answers(port):
                    if process.poll() is not None or time.monotonic() > end:
                        log.seek(0)
                        raise SystemExit(f"Miniflux does not respond: {log.read()[-2000:]}")
                    time.sleep(0.1)
                yield port
            finally:
                process.terminate()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


async def execute(database: str, statement: str) -> None:
    db = await asyncpg.connect(database)
    await db.execute(statement)
    await db.close()
