"""Run uvicorn inside the event loop of the service."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

#: Idle seconds after which a keep-alive connection is closed.
KEEP_ALIVE_TIMEOUT_S = 30
#: Seconds that open requests have to finish at shutdown.
SHUTDOWN_TIMEOUT_S = 3


class EmbeddedServer(uvicorn.Server):
    """Uvicorn server without signal handlers, which ends when ``should_exit`` is set."""

    def __init__(self, app: ASGIApp, certificate: str | None = None) -> None:
        """Configure the server; ``certificate`` is a PEM file with certificate and key, for TLS."""
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
async def serve_app(
    app: ASGIApp, server_socket: socket.socket, certificate: str | None = None
) -> AsyncIterator[None]:
    """Serve an application on a socket within the ``async with`` block."""
    server = EmbeddedServer(app, certificate)
    server_task = asyncio.create_task(server.serve(sockets=[server_socket]))
    try:
        yield
    finally:
        server.should_exit = True
        await server_task
