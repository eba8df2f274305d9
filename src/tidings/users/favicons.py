"""Fetch, validate and store the favicons of feeds in the background.

The media type is detected from the first bytes (magic number), not from the Content-Type header.
Only raster formats are stored; SVG is not, because it can contain scripts.
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

#: Maximum size of an icon. Most have a few kB, but some sites put eight sizes into one file.
MAX_ICON_BYTES = 200_000
#: Seconds after which a site is checked again for an icon, whether it had one or not.
REFRESH_AFTER_S = 60 * 86400.0
#: Seconds between checks for feeds without icon, and maximum number of feeds per check.
CHECK_INTERVAL_S, BATCH_SIZE = 30.0, 20

#: Magic numbers of the accepted formats; WebP is checked separately.
_MAGIC_NUMBERS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF8": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"\x00\x00\x01\x00": "image/x-icon",
}

log = logs.Log("tidings.icons")


def icon_from_bytes(body: bytes) -> Icon | None:
    """Return the icon with its detected media type, or None if the image is not accepted."""
    if len(body) > MAX_ICON_BYTES:
        return None
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return Icon("image/webp", body)
    return next(
        (Icon(kind, body) for start, kind in _MAGIC_NUMBERS.items() if body.startswith(start)),
        None,
    )


class FaviconFetcher:
    """Background task that fetches favicons with the aggregator's fetcher and request budget."""

    def __init__(self, aggregator: Aggregator, clock: Callable[[], float]) -> None:
        self._aggregator, self._clock = aggregator, clock
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Fetch missing and outdated icons in batches, until canceled."""
        while True:
            await retry_on_store_error(self._run_once, asyncio.sleep)
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def _run_once(self) -> None:
        for feed_id, site in await self._aggregator.store.read(
            table.list_missing, self._clock() - REFRESH_AFTER_S, BATCH_SIZE
        ):
            await self.fetch_icon(feed_id, site)

    async def fetch_icon(self, feed_id: int, site: str) -> None:
        """Find the icon of the feed's site and store it, or store that there is none."""
        async with self._lock:
            icon = await self._find(site)
            await self._aggregator.store.write(table.save, feed_id, icon, self._clock())
        log.debug("icon_saved", feed=feed_id, kind=icon.type if icon else "none")

    async def _find(self, site: str) -> Icon | None:
        """Return the icon of a site, or None; this takes one to three requests.

        Tries /favicon.ico first, then the icon that the page links.
        """
        if (body := await self._get(urljoin(site, "/favicon.ico"))) and (
            icon := icon_from_bytes(body)
        ):
            return icon
        page = await self._get(site)
        icon_url = find_icon(page, site) if page else ""
        body = await self._get(icon_url) if icon_url else None
        return icon_from_bytes(body) if body else None

    async def _get(self, url: str) -> bytes | None:
        result = await self._aggregator.fetcher.fetch(FetchRequest(url, want_delta=False))
        await self._aggregator.scheduler.consume_budget(
            result.requests, self._clock(), outside_polls=True
        )
        return result.body
