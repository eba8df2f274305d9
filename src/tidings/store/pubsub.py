"""Leader election (advisory lock) and messages between processes (LISTEN/NOTIFY).

In PostgreSQL the leader has an advisory lock on a dedicated connection; the lock ends with the
process or with the connection. Messages are sent with NOTIFY. Heartbeats detect a connection that
is cut without notice: the client that gets no answer reconnects, and the server ends a session that
is idle for too long, so that another process can become the leader. A SQLite file is served by only
one process, which is always the leader and sends messages to itself.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeAlias

Callback: TypeAlias = Callable[[str], object]

#: Delay in seconds before a reconnect.
RECONNECT_DELAY_S = 1.0
#: Interval in seconds between heartbeats.
HEARTBEAT_INTERVAL_S = 10.0
#: Idle time in seconds after which the server ends the session.
SESSION_TIMEOUT_S = 40.0


class PubSub(Protocol):
    """Interface for leader election and messages, implemented for both databases."""

    async def acquire_leadership(self, lock_id: int) -> bool:
        """Try to become the leader, and return whether this process is the leader.

        Call this repeatedly, because leadership ends with the connection.
        """
        ...

    async def listen(self, channel: str, callback: Callback) -> None:
        """Call ``callback`` with the payload of every message on a channel, from any process.

        An empty payload means that messages may have been missed during a reconnect.
        """
        ...

    async def notify(self, channel: str, payload: str) -> None:
        """Send a payload of less than 8,000 bytes to all listeners. The message may be lost."""
        ...

    async def close(self) -> None: ...


class LocalPubSub:
    """Messages within one process, which is always the leader."""

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
    """Messages and leader election between all processes that use a PostgreSQL database."""

    def __init__(
        self, connect: Callable[[], Any], connection_errors: tuple[type[BaseException], ...]
    ) -> None:
        """Create an object without a connection, which is opened on first use.

        ``connect`` opens a connection whose commands raise `TimeoutError` without an answer.
        """
        self._connect, self._connection_errors = connect, connection_errors
        self._callbacks: defaultdict[str, list[Callback]] = defaultdict(list)
        self._connection_lock = asyncio.Lock()  # asyncpg allows one command at a time
        self._db: Any = None
        self._reconnect_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None

    async def acquire_leadership(self, lock_id: int) -> bool:
        try:
            async with self._connection() as db:
                lock_query = (
                    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 "
                    "AND granted AND pid = pg_backend_pid()"
                )
                if await db.fetchval(lock_query, lock_id):
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
        """Lock the connection for one command, and open it first if there is none."""
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
        if self._callbacks:
            self._reconnect_task = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Reconnect, then send every listener an empty payload.

        Messages may have been missed during the time without a connection.
        """
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
