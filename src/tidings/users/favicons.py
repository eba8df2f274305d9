"""Feeds' little pictures: looked for once a feed has answered, politely and now and then, and kept.

What a site sends is believed by its first bytes and not by what it calls itself. Only kinds of pictures are kept that cannot
hold a script; an SVG can.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import urljoin

from tidings import logs
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.retry import retry_on_store_error
from tidings.fetch.models import FetchRequest
from tidings.parse.autodiscovery import find_icon
from tidings.store import icons as table
from tidings.store.user_models import Icon

#: More than this is no icon. The usual one has a few kilobytes; some sites put eight sizes into one file.
MAX_ICON_BYTES = 200_000
#: Looked for again after so long, found or not.
REFRESH_AFTER_S = 60 * 86400.0
#: How often new feeds are looked at, and how many at once.
CHECK_INTERVAL_S, BATCH_SIZE = 30.0, 20

_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF8": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"\x00\x00\x01\x00": "image/x-icon",
}

log = logs.Log("tidings.icons")


def icon_from_bytes(body: bytes) -> Icon | None:
    """An icon, if these bytes are one."""
    if len(body) > MAX_ICON_BYTES:
        return None
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return Icon("image/webp", body)
    return next(
        (Icon(kind, body) for start, kind in _KINDS.items() if body.startswith(start)), None
    )


class FaviconFetcher:
    """Looks for icons with the fetcher of the aggregator, which knows whom not to ask, and on its budget."""

    def __init__(self, aggregator: Aggregator, clock: Callable[[], float]) -> None:
        self._aggregator, self._clock = aggregator, clock
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """For ever, a few at a time."""
        while True:
            await retry_on_store_error(self._run_once, asyncio.sleep)
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _run_once(self) -> None:
        for feed_id, site in await self._aggregator.store.read(
            table.list_missing, self._clock() - REFRESH_AFTER_S, BATCH_SIZE
        ):
            await self.fetch_icon(feed_id, site)

    async def fetch_icon(self, feed_id: int, site: str) -> None:
        """Find and keep the icon of a feed whose site this is."""
        async with self._lock:
            icon = await self._find(site)
            await self._aggregator.store.write(table.save, feed_id, icon, self._clock())
        log.debug("icon", feed=feed_id, kind=icon.type if icon else "none")

    async def _find(self, site: str) -> Icon | None:
        """Where browsers look first, then what the page says: one request for most sites, three for few."""
        if (body := await self._get(urljoin(site, "/favicon.ico"))) and (
            icon := icon_from_bytes(body)
        ):
            return icon
        page = await self._get(site)
        named = find_icon(page, site) if page else ""
        body = await self._get(named) if named else None
        return icon_from_bytes(body) if body else None

    async def _get(self, url: str) -> bytes | None:
        result = await self._aggregator.fetcher.fetch(FetchRequest(url, want_delta=False))
        await self._aggregator.scheduler.consume_budget(
            result.requests, self._clock(), outside_polls=True
        )
        return result.body
