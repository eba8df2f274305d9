"""Feeds' little pictures: looked for once a feed has answered, politely and now and then, and kept.

What a site sends is believed by its first bytes and not by what it calls itself. Only kinds of pictures are kept that cannot
hold a script; an SVG can.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import urljoin

from tidings import logs
from tidings.aggregator.aggregator import Aggregator
from tidings.aggregator.patience import insist
from tidings.fetch.values import FetchRequest
from tidings.parse.html import find_icon
from tidings.store import icons as table
from tidings.store.people_rows import Icon

#: More than this is no icon. The usual one has a few kilobytes; some sites put eight sizes into one file.
MOST_BYTES = 200_000
#: Looked for again after so long, found or not.
AGAIN_S = 60 * 86400.0
#: How often new feeds are looked at, and how many at once.
ROUND_S, AT_ONCE = 30.0, 20

_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"GIF8": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"\x00\x00\x01\x00": "image/x-icon",
}

log = logs.Log("tidings.icons")


def picture(body: bytes) -> Icon | None:
    """An icon, if these bytes are one."""
    if len(body) > MOST_BYTES:
        return None
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        return Icon("image/webp", body)
    return next((Icon(kind, body) for start, kind in _KINDS.items() if body.startswith(start)), None)


class Icons:
    """Looks for icons with the fetcher of the aggregator, which knows whom not to ask, and on its budget."""

    def __init__(self, aggregator: Aggregator, clock: Callable[[], float]) -> None:
        self._aggregator, self._clock = aggregator, clock
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """For ever, a few at a time."""
        while True:
            await insist(self._round, asyncio.sleep)
            await asyncio.sleep(ROUND_S)

    async def _round(self) -> None:
        for feed_id, site in await self._aggregator.store.read(table.wanting, self._clock() - AGAIN_S, AT_ONCE):
            await self.look(feed_id, site)

    async def look(self, feed_id: int, site: str) -> None:
        """Find and keep the icon of a feed whose site this is."""
        async with self._one_at_a_time:
            icon = await self._find(site)
            await self._aggregator.store.write(table.save, feed_id, icon, self._clock())
        log.debug("icon", feed=feed_id, kind=icon.type if icon else "none")

    async def _find(self, site: str) -> Icon | None:
        """Where browsers look first, then what the page says: one request for most sites, three for few."""
        if (body := await self._get(urljoin(site, "/favicon.ico"))) and (icon := picture(body)):
            return icon
        page = await self._get(site)
        named = find_icon(page, site) if page else ""
        body = await self._get(named) if named else None
        return picture(body) if body else None

    async def _get(self, url: str) -> bytes | None:
        result = await self._aggregator.fetcher.fetch(FetchRequest(url, want_delta=False))
        await self._aggregator.brain.spend(result.requests, self._clock(), beside=True)
        return result.body
