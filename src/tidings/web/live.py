"""Pages that are open hear what changes: server-sent events, one stream for each page.

An event says only that something has changed; the page asks for what it shows. Who missed some is told so.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from tidings.people import Event
from tidings.web.visit import Site, Visit, page

#: So often something is said even when there is nothing to say, so that proxies keep the connection and we notice its end.
HEARTBEAT_S = 25.0
#: Streams open at once for one user; each tab has one.
MOST_STREAMS = 20


class Streams:
    """All streams of the service. `close` ends them, so that it can stop."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._closing = asyncio.Event()
        self._open: dict[int, int] = {}

    def close(self) -> None:
        self._closing.set()

    def routes(self) -> list[BaseRoute]:
        return [page(self._site, "/events", self._answer)]

    async def _answer(self, visit: Visit) -> Response:
        if self._open.get(visit.user.id, 0) >= MOST_STREAMS:
            return Response(status_code=429, headers={"retry-after": "60"})
        feeds = [s.feed.id for s in await visit.reading.subscriptions()]
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._tell(visit.user.id, feeds), media_type="text/event-stream", headers=headers)

    async def _tell(self, user_id: int, feeds: list[int]) -> AsyncIterator[bytes]:
        self._open[user_id] = self._open.get(user_id, 0) + 1
        events = self._site.events.listen(user_id, feeds)
        closing: asyncio.Future[Any] = asyncio.ensure_future(self._closing.wait())
        coming = _next(events)
        try:
            await asyncio.sleep(0)  # now it listens
            yield b"retry: 3000\nevent: hello\ndata: {}\n\n"
            while not closing.done():
                await asyncio.wait({coming, closing}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    yield _words(coming.result())
                    coming = _next(events)
                elif not closing.done():
                    yield b": still here\n\n"
        finally:
            self._open[user_id] -= 1
            closing.cancel()
            coming.cancel()
            await asyncio.wait({closing, coming})


def _next(events: AsyncIterator[Event]) -> "asyncio.Future[Any]":
    return asyncio.ensure_future(anext(events))


def _words(event: Event) -> bytes:
    told = {"feed": event.feed_id, "ids": event.entry_ids[:1000]}
    return b"event: %s\ndata: %s\n\n" % (event.kind.encode(), msgspec.json.encode(told))
