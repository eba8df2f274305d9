"""Validators go out as the bytes they came in as, whatever those are; here their text has one character per byte."""

import asyncio
import re
from typing import Any

import aiohttp

_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def as_received(value: str | None) -> str | None:
    """A validator as the library reads it (UTF-8, the rest escaped) into one character per byte; None if it cannot be sent."""
    if value is None or (value.isascii() and value.isprintable()):
        return value
    value = value.encode("utf-8", "surrogateescape").decode("latin-1")
    return None if _UNSENDABLE.search(value) else value


class ExactRequest(aiohttp.ClientRequest):
    """A request whose headers go out as the bytes they came in as.

    The library writes header text as UTF-8. Ours has one character per byte, so where there is one beyond ASCII (ETags have
    been seen in latin-1) the bytes are put back on their way to the socket.
    """

    async def send(self, conn: Any) -> aiohttp.ClientResponse:
        protocol = conn.protocol
        if "".join(self.headers.values()).isascii():
            return await super().send(conn)
        transport = protocol.transport
        protocol.transport = _AsReceived(transport)
        try:
            return await super().send(conn)
        finally:
            protocol.transport = transport


class _AsReceived:
    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        self._transport.write(bytes(data).decode("utf-8").encode("latin-1"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
