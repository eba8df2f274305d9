"""Scriptable origin server that records requests, and a harness that polls it.

A test calls ``w.serve("/feed", etag='"1"')`` and ``await w.poll("/feed")``, and then checks
``w.requests_to("/feed")``.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests import TEST_TIMEOUT_S
from tidings import event_loop
from tidings.fetch import Fetcher, FetchRequest, FetchResult, FetchSettings
from tidings.fetch.validators import NO_VALIDATORS, Validators

#: Monday 16 November 2026, 0:00 GMT.
MONDAY = 1794787200.0
RSS = (
    b"<?xml version='1.0'?><rss version='2.0'><channel><title>t</title>"
    b"<item><guid>1</guid></item></channel></rss>"
)


@dataclass
class ReceivedRequest:
    """A request as it was received."""

    line: str
    raw: list[tuple[str, bytes]]
    connection: int

    @property
    def target(self) -> str:
        return self.line.split(" ")[1]

    @property
    def method(self) -> str:
        return self.line.split(" ")[0]

    def header(self, name: str) -> str | None:
        value = self.bytes(name)
        return None if value is None else value.decode("latin-1")

    def bytes(self, name: str) -> bytes | None:
        return next((value for key, value in self.raw if key == name.lower()), None)

    @property
    def conditional(self) -> bool:
        return (
            self.header("If-None-Match") is not None or self.header("If-Modified-Since") is not None
        )


@dataclass
class Response:
    """A scripted response; ``body`` may be a function that writes to the connection."""

    status: int = 200
    body: bytes | Callable[[asyncio.StreamWriter], Awaitable[None]] = RSS
    headers: dict[str, str | bytes] = field(default_factory=dict)
    close: bool = False

    async def write(self, writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {self.status} x".encode()]
        for name, value in self.headers.items():
            head.append(
                name.encode()
                + b": "
                + (value if isinstance(value, bytes) else value.encode("latin-1"))
            )
        names = {name.lower() for name in self.headers}
        if (
            isinstance(self.body, bytes)
            and self.status != 304
            and not names & {"content-length", "transfer-encoding"}
        ):
            head.append(f"Content-Length: {len(self.body)}".encode())
        if self.close:
            head.append(b"Connection: close")
        writer.write(b"\r\n".join(head) + b"\r\n\r\n")
        if not isinstance(self.body, bytes):
            await self.body(writer)
        elif self.status != 304:
            writer.write(self.body)
        await writer.drain()


Script = Callable[[ReceivedRequest], Response]


class OriginServer:
    """HTTP/1.1 server on loopback with keep-alive and one script per path."""

    def __init__(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.scripts: dict[str, Script] = {}
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def running(
        self, host: str = "127.0.0.1", **options: Any
    ) -> AsyncIterator["OriginServer"]:
        server = await asyncio.start_server(self._serve, host, 0, **options)
        self.port: int = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        connection = self.connections
        self._writers.add(writer)
        try:
            while True:
                first = await reader.readexactly(1)
                if first == b"\x16":  # a TLS handshake
                    break
                head = (first + await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
                raw = [
                    (name.decode().lower(), value.strip())
                    for name, _, value in (line.partition(b":") for line in head[1:-2])
                ]
                request = ReceivedRequest(head[0].decode("latin-1"), raw, connection)
                self.requests.append(request)
                response = self.scripts.get(request.target.partition("?")[0], _not_found)(request)
                await response.write(writer)
                if response.close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            self._writers.discard(writer)


def _not_found(request: ReceivedRequest) -> Response:
    return Response(404, b"nothing here")


class Clock:
    """A virtual clock that moves only with `sleep` or when a test sets `now`."""

    def __init__(self) -> None:
        self.now = MONDAY
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class PollHarness:
    """An origin server, a clock and a fetcher; it stores validators and digests between polls."""

    def __init__(self, origin: OriginServer, fetcher: Fetcher, clock: Clock) -> None:
        self.origin, self.fetcher, self.clock = origin, fetcher, clock
        self._stored: dict[str, tuple[Validators, bytes]] = {}

    def url(self, path: str) -> str:
        return path if not path.startswith("/") else f"http://127.0.0.1:{self.origin.port}{path}"

    def serve(
        self,
        path: str,
        *,
        body: Any = RSS,
        status: int = 200,
        etag: str | bytes = "",
        modified: str | bytes = "",
        **headers: str,
    ) -> None:
        """Serve a document with support for conditional requests.

        Further headers are keywords with underscores, such as ``Cache_Control``.
        """
        response_headers: dict[str, str | bytes] = {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if etag:
            response_headers["ETag"] = etag
        if modified:
            response_headers["Last-Modified"] = modified

        def script(request: ReceivedRequest) -> Response:
            matches = [
                _bytes(value) == request.bytes(name)
                for name, value in (("If-None-Match", etag), ("If-Modified-Since", modified))
                if value
            ]
            is_unchanged = bool(matches) and all(matches) and status == 200
            return Response(304 if is_unchanged else status, body, response_headers)

        self.origin.scripts[path] = script

    def script(self, path: str, *responses: Response) -> None:
        """Serve these responses in turn, and then the last one repeatedly."""
        left = list(responses)
        self.origin.scripts[path] = lambda request: left.pop(0) if len(left) > 1 else left[0]

    async def poll(self, path: str, **options: Any) -> FetchResult:
        """Poll once, with the validators and the digest of the previous polls."""
        validators, body_digest = self._stored.get(path, (NO_VALIDATORS, b""))
        result = await self.fetcher.fetch(
            FetchRequest(self.url(path), validators, body_digest, **options)
        )
        self._stored[path] = (result.validators, result.digest)
        return result

    def requests_to(self, path: str) -> list[ReceivedRequest]:
        return [request for request in self.origin.requests if request.target == path]


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


@asynccontextmanager
async def poll_harness(**settings: Any) -> AsyncIterator[PollHarness]:
    settings = {"contact_url": "https://reader.example/about", "allow_private": True, **settings}
    clock = Clock()
    async with (
        OriginServer().running() as origin,
        Fetcher(FetchSettings(**settings), clock, sleep=clock.sleep) as fetcher,
    ):
        yield PollHarness(origin, fetcher, clock)


def with_harness(
    **settings: Any,
) -> Callable[[Callable[[PollHarness], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run a coroutine test with a `PollHarness`."""

    def wrap(test: Callable[[PollHarness], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def scenario() -> None:
            async with poll_harness(**settings) as w:
                await asyncio.wait_for(test(w), TEST_TIMEOUT_S)

        @functools.wraps(test)
        def run() -> None:
            event_loop.run(scenario())

        del run.__wrapped__  # type: ignore[attr-defined]  # else pytest takes `w` for a fixture
        return run

    return wrap
