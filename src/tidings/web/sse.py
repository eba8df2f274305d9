"""Send live updates to open pages as server-sent events (SSE), one stream per browser tab.

An event states only what kind of data has changed; the page then requests what it shows. A client
that missed events gets ``events_lost``.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from tidings.users import Event
from tidings.web.request_context import AppServices, RequestContext, page

#: Seconds between heartbeat comments. They prevent proxies from closing the connection, and the
#: server notices when the client has closed it.
HEARTBEAT_S = 25.0
#: Maximum number of open streams per user. Each browser tab has one.
MAX_STREAMS_PER_USER = 20


class EventStreams:
    """Open event streams of all users, which `close` ends at shutdown."""

    def __init__(self, services: AppServices) -> None:
        self._services = services
        self._closing = asyncio.Event()
        self._open: dict[int, int] = {}

    def close(self) -> None:
        self._closing.set()

    def routes(self) -> list[BaseRoute]:
        return [page(self._services, "/events", self._answer)]

    async def _answer(self, context: RequestContext) -> Response:
        if self._open.get(context.user.id, 0) >= MAX_STREAMS_PER_USER:
            return Response(status_code=429, headers={"retry-after": "60"})
        feeds = [s.feed.id for s in await context.reader_service.subscriptions()]
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            self._send_events(context.user.id, feeds),
            media_type="text/event-stream",
            headers=headers,
        )

    async def _send_events(self, user_id: int, feeds: list[int]) -> AsyncIterator[bytes]:
        self._open[user_id] = self._open.get(user_id, 0) + 1
        events = self._services.events.listen(user_id, feeds)
        closing: asyncio.Future[Any] = asyncio.ensure_future(self._closing.wait())
        next_event = _next(events)
        try:
            await asyncio.sleep(0)  # lets the listener register before the first event
            yield b"retry: 3000\nevent: connected\ndata: {}\n\n"
            while not closing.done():
                await asyncio.wait(
                    {next_event, closing}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if next_event.done():
                    yield _encode_event(next_event.result())
                    next_event = _next(events)
                elif not closing.done():
                    yield b": heartbeat\n\n"
        finally:
            self._open[user_id] -= 1
            closing.cancel()
            next_event.cancel()
            await asyncio.wait({closing, next_event})


def _next(events: AsyncIterator[Event]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(anext(events))


def _encode_event(event: Event) -> bytes:
    payload = {"feed": event.feed_id, "ids": event.entry_ids[:1000]}
    return b"event: %s\ndata: %s\n\n" % (event.kind.encode(), msgspec.json.encode(payload))
