"""Word between processes: who leads, and what has just happened.

In PostgreSQL the leader holds an advisory lock on a connection of its own, which ends with the process or with the connection;
news go by LISTEN and NOTIFY. A SQLite file is served by one process, which leads and talks to itself.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

Callback: TypeAlias = Callable[[str], object]

#: Before a lost connection is made again.
PAUSE_S = 1.0


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
        self._connect, self._lost = connect, lost
        self._callbacks: defaultdict[str, list[Callback]] = defaultdict(list)
        self._making = asyncio.Lock()
        self._db: Any = None
        self._again: asyncio.Task[None] | None = None

    async def lead(self, office: int) -> bool:
        try:
            db = await self._connection()
            held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND granted AND pid = pg_backend_pid()"
            if await db.fetchval(held, office):
                return True
            return bool(await db.fetchval("SELECT pg_try_advisory_lock($1)", office))
        except self._lost:
            return False

    async def listen(self, channel: str, callback: Callback) -> None:
        self._callbacks[channel].append(callback)
        db = await self._connection()
        if len(self._callbacks[channel]) == 1:
            await db.add_listener(channel, self._heard)

    async def notify(self, channel: str, word: str) -> None:
        with suppress(*self._lost):
            db = await self._connection()
            await db.execute("SELECT pg_notify($1, $2)", channel, word)

    async def close(self) -> None:
        self._callbacks.clear()
        if self._again is not None:
            self._again.cancel()
        if self._db is not None and not self._db.is_closed():
            await self._db.close()

    async def _connection(self) -> Any:
        async with self._making:
            if self._db is None or self._db.is_closed():
                self._db = await self._connect()
                for channel in self._callbacks:
                    await self._db.add_listener(channel, self._heard)
                self._db.add_termination_listener(self._ended)
            return self._db

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
                await self._connection()
            except self._lost:
                continue
            for channel in self._callbacks:
                self._heard(None, 0, channel, "")
            return
