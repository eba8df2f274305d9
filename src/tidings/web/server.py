"""The HTTP server: uvicorn, as a part of a service that has other things to do as well."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

#: A connection over which nothing is said for so long is closed.
SILENCE_S = 30
#: Answers under way when the service ends have this long.
GRACE_S = 3


class PageServer(uvicorn.Server):
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
                timeout_keep_alive=SILENCE_S,
                timeout_graceful_shutdown=GRACE_S,
                ssl_certfile=certificate,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(app: ASGIApp, listening: socket.socket, certificate: str | None = None) -> AsyncIterator[None]:
    """Within, the application answers at the socket."""
    server = PageServer(app, certificate)
    answering = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await answering
