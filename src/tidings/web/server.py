"""The HTTP server: uvicorn, as a part of a service that has other things to do as well."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

#: A connection over which nothing is said for so long is closed.
KEEP_ALIVE_TIMEOUT_S = 30
#: Answers under way when the service ends have this long.
SHUTDOWN_TIMEOUT_S = 3


class EmbeddedServer(uvicorn.Server):
    """Signals are left alone: who stops the service sets ``should_exit``."""

    def __init__(self, app: ASGIApp, certificate: str | None = None) -> None:
        """``certificate`` is a file with a certificate and its key, for encryption."""
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                lifespan="off",
                http="httptools",
                ws="none",
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_TIMEOUT_S,
                timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
                ssl_certfile=certificate,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(
    app: ASGIApp, listening: socket.socket, certificate: str | None = None
) -> AsyncIterator[None]:
    """Within, the application answers at the socket."""
    server = EmbeddedServer(app, certificate)
    answering = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await answering
