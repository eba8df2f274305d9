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
RECONNECT_DELAY_S = 1.0
#: Between beats, and how long the server waits for one.
HEARTBEAT_INTERVAL_S = 10.0
SESSION_TIMEOUT_S = 40.0


class PubSub(Protocol):
    """What both kinds can do."""

    async def acquire_leadership(self, lock_id: int) -> bool:
        """Whether this process holds the office, which is taken if nobody does. Ask again and again: it can be lost."""
        ...

    async def listen(self, channel: str, callback: Callback) -> None:
        """Call back with every word that is sent on the channel from now on, by any process."""
        ...

    async def notify(self, channel: str, payload: str) -> None:
        """Send a short word (less than 8,000 bytes) to all who listen. It may be lost with a connection."""
        ...

    async def close(self) -> None: ...


class LocalPubSub:
    """Within one process."""

    def __init__(self) -> None:
        self._callbacks: defaultdict[str, list[Callback]] = defaultdict(list)

    async def acquire_leadership(self, lock_id: int) -> bool:
        return True

    async def listen(self, channel: str, callback: Callback) -> None:
        self._callbacks[channel].append(callback)

    async def notify(self, channel: str, payload: str) -> None:
        for callback in self._callbacks[channel]:
            callback(payload)

    async def close(self) -> None:
        self._callbacks.clear()


class PostgresPubSub:
    """Between all processes that use a database."""

    def __init__(
        self, connect: Callable[[], Any], connection_errors: tuple[type[BaseException], ...]
    ) -> None:
        """``connect`` makes a connection whose commands fail with `TimeoutError` where no answer comes."""
        self._connect, self._connection_errors = connect, connection_errors
        self._callbacks: defaultdict[str, list[Callback]] = defaultdict(list)
        self._connection_lock = asyncio.Lock()  # a connection does one thing at a time
        self._db: Any = None
        self._reconnect_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None

    async def acquire_leadership(self, lock_id: int) -> bool:
        try:
            async with self._connection() as db:
                held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND granted AND pid = pg_backend_pid()"
                if await db.fetchval(held, lock_id):
                    return True
                return bool(await db.fetchval("SELECT pg_try_advisory_lock($1)", lock_id))
        except self._connection_errors:
            return False

    async def listen(self, channel: str, callback: Callback) -> None:
        self._callbacks[channel].append(callback)
        async with self._connection() as db:
            if len(self._callbacks[channel]) == 1:
                await db.add_listener(channel, self._dispatch)

    async def notify(self, channel: str, payload: str) -> None:
        with suppress(*self._connection_errors):
            async with self._connection() as db:
                await db.execute("SELECT pg_notify($1, $2)", channel, payload)

    async def close(self) -> None:
        self._callbacks.clear()
        for task in (self._reconnect_task, self._heartbeat_task):
            if task is not None:
                task.cancel()
        if self._db is not None and not self._db.is_closed():
            await self._db.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """The one, for ourselves alone; another if nobody answers."""
        async with self._connection_lock:
            try:
                if self._db is None or self._db.is_closed():
                    self._db = await self._connect()
                    await self._db.execute(
                        f"SET idle_session_timeout = '{SESSION_TIMEOUT_S:.0f} s'"
                    )
                    for channel in self._callbacks:
                        await self._db.add_listener(channel, self._dispatch)
                    self._db.add_termination_listener(self._on_connection_closed)
                    self._heartbeat_task = (
                        self._heartbeat_task
                        or asyncio.get_running_loop().create_task(self._send_heartbeats())
                    )
                yield self._db
            except TimeoutError:
                if self._db is not None:
                    self._db.terminate()
                raise

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            with suppress(*self._connection_errors):
                async with self._connection() as db:
                    await db.execute("SELECT 1")

    def _dispatch(self, _db: Any, _pid: int, channel: str, payload: str) -> None:
        for callback in self._callbacks[channel]:
            callback(payload)

    def _on_connection_closed(self, _db: Any) -> None:
        """Who listens need not notice. What was said meanwhile is lost, so every channel gets an empty word."""
        if self._callbacks:
            self._reconnect_task = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while True:
            await asyncio.sleep(RECONNECT_DELAY_S)
            try:
                async with self._connection():
                    pass
            except self._connection_errors:
                continue
            for channel in self._callbacks:
                self._dispatch(None, 0, channel, "")
            return
