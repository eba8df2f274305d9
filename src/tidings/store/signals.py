"""Word between processes: who leads, and what has just happened.

In PostgreSQL the leader holds an advisory lock on a connection of its own, which ends with the process or with the connection;
news go by LISTEN and NOTIFY. Where a line is cut and nobody says so, both ends find out by the beat of that connection: who
hears no answer makes another, and the server ends a session that is silent, so that another can lead. A SQLite file is served
by one process, which leads and talks to itself.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias

Callback: TypeAlias = Callable[[str], object]

#: Before a lost connection is made again.
PAUSE_S = 1.0
#: Between beats, and how long the server waits for one.
BEAT_S = 10.0
SILENT_S = 40.0


class Signals(Protocol):
    """What both kinds can do."""

    async def lead(self, office: int) -> bool:
        """Whether this process holds the office, which is taken if nobody does. Ask again and again: it can be lost."""
        ...

    async def listen(self, channel: str, callback: Callback) -> None:
        """Call back with every word that is sent on the channel from now on, by any process."""
        ...

    async def notify(self, channel: str, word: str) -> None:
        """Send a short word (less than 8,000 bytes) to all who listen. It may be lost with a connection."""
        ...

    async def close(self) -> None: ...


class OwnSignals:
    """Within one process."""

    def __init__(self) -> None:
        self._callbacks: defaultdict[str, list[Callback]] = defaultdict(list)

    async def lead(self, office: int) -> bool:
        return True

    async def listen(self, channel: str, callback: Callback) -> None:
        self._callbacks[channel].append(callback)

    async def notify(self, channel: str, word: str) -> None:
        for callback in self._callbacks[channel]:
            callback(word)

    async def close(self) -> None:
        self._callbacks.clear()


class PostgresSignals:
    """Between all processes that use a database."""

    def __init__(self, connect: Callable[[], Any], lost: tuple[type[BaseException], ...]) -> None:
        """``connect`` makes a connection whose commands fail with `TimeoutError` where no answer comes."""
        self._connect, self._lost = connect, lost
        self._callbacks: defaultdict[str, list[Callback]] = defaultdict(list)
        self._turn = asyncio.Lock()  # a connection does one thing at a time
        self._db: Any = None
        self._again: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    async def lead(self, office: int) -> bool:
        try:
            async with self._connection() as db:
                held = (
                    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND granted AND pid = pg_backend_pid()"
                )
                if await db.fetchval(held, office):
                    return True
                return bool(await db.fetchval("SELECT pg_try_advisory_lock($1)", office))
        except self._lost:
            return False

    async def listen(self, channel: str, callback: Callback) -> None:
        self._callbacks[channel].append(callback)
        async with self._connection() as db:
            if len(self._callbacks[channel]) == 1:
                await db.add_listener(channel, self._heard)

    async def notify(self, channel: str, word: str) -> None:
        with suppress(*self._lost):
            async with self._connection() as db:
                await db.execute("SELECT pg_notify($1, $2)", channel, word)

    async def close(self) -> None:
        self._callbacks.clear()
        for task in (self._again, self._beating):
            if task is not None:
                task.cancel()
        if self._db is not None and not self._db.is_closed():
            await self._db.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """The one, for ourselves alone; another if nobody answers."""
        async with self._turn:
            try:
                if self._db is None or self._db.is_closed():
                    self._db = await self._connect()
                    await self._db.execute(f"SET idle_session_timeout = '{SILENT_S:.0f} s'")
                    for channel in self._callbacks:
                        await self._db.add_listener(channel, self._heard)
                    self._db.add_termination_listener(self._ended)
                    self._beating = self._beating or asyncio.get_running_loop().create_task(self._beat())
                yield self._db
            except TimeoutError:
                if self._db is not None:
                    self._db.terminate()
                raise

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            with suppress(*self._lost):
                async with self._connection() as db:
                    await db.execute("SELECT 1")

    def _heard(self, _db: Any, _pid: int, channel: str, word: str) -> None:
        for callback in self._callbacks[channel]:
            callback(word)

    def _ended(self, _db: Any) -> None:
        """Who listens need not notice. What was said meanwhile is lost, so every channel gets an empty word."""
        if self._callbacks:
            self._again = asyncio.get_running_loop().create_task(self._listen_again())

    async def _listen_again(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                async with self._connection():
                    pass
            except self._lost:
                continue
            for channel in self._callbacks:
                self._heard(None, 0, channel, "")
            return
