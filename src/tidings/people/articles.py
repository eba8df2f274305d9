"""Whole articles, for feeds that have only their beginnings: fetched from the site, as politely as feeds are, and made safe.

What on a page is the article is found by trafilatura (the extra ``fulltext``). Feeds whose subscribers want it have theirs
fetched when entries arrive, in the background and on the budget; any other entry's can be asked for by its reader.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tidings import logs
from tidings.aggregator.aggregator import Aggregator
from tidings.errors import TidingsError
from tidings.fetch.values import FetchRequest
from tidings.parse.sanitise import clean_html
from tidings.people.errors import NoArticle
from tidings.store import StoreError
from tidings.store import full_texts as table

#: A page longer than this is no article, and would hold up others.
MOST_BYTES = 2_000_000
#: How often new entries are looked at, and how many at once.
ROUND_S, AT_ONCE = 10.0, 10
#: What could not be had is tried again after so long, until its entry is so old.
AGAIN_S, LOOK_BACK_S = 6 * 3600.0, 2 * 86400.0

log = logs.Log("tidings.articles")


class Articles:
    """Fetches with the fetcher of the aggregator, which knows whom not to ask, and on its budget."""

    def __init__(self, aggregator: Aggregator, clock: Callable[[], float]) -> None:
        self._aggregator, self._store, self._clock = aggregator, aggregator.store, clock

    async def run(self) -> None:
        """For ever, a few at a time."""
        while True:
            try:
                while await self.round():
                    pass
            except StoreError as error:
                log.warning("the store cannot be used; trying again", error=str(error))
            await asyncio.sleep(ROUND_S)

    async def round(self) -> int:
        """Fetch some of those that are wanted, with or without success; how many."""
        now = self._clock()
        wanted = await self._store.read(table.wanting, now - LOOK_BACK_S, now - AGAIN_S, AT_ONCE)
        found = await asyncio.gather(*(self.fetch(*entry) for entry in wanted), return_exceptions=True)
        for (entry_id, url), result in zip(wanted, found, strict=True):
            if isinstance(result, TidingsError):
                log.info("no article", entry=entry_id, url=url, problem=str(result))
            elif isinstance(result, BaseException):
                raise result
        return len(wanted)

    async def fetch(self, entry_id: int, url: str) -> str:
        """An entry's article, as HTML that is safe to show. `NoArticle` says why there is none."""
        if kept := await self._store.read(table.kept, entry_id):
            return kept
        try:
            article = await self._fetch(url)
        except NoArticle:
            await self._store.write(table.save, entry_id, "", self._clock())
            raise
        await self._store.write(table.save, entry_id, article, self._clock())
        return article

    async def _fetch(self, url: str) -> str:
        extract = _extractor()
        result = await self._aggregator.fetcher.fetch(FetchRequest(url, want_delta=False))
        await self._aggregator.brain.spend(result.requests, self._clock(), beside=True)
        if result.error is not None:
            raise NoArticle(f"the article cannot be had from its site: {result.error.words}")
        if result.body is None or len(result.body) > MOST_BYTES:
            raise NoArticle("what its site has at the entry's address is too long for an article")
        article = await asyncio.to_thread(extract, result.body, result.url)
        if not article:
            raise NoArticle("no article was found on the page that its site has for it")
        return article


def _extractor() -> Callable[[bytes, str], str]:
    try:
        import trafilatura
    except ImportError:
        raise NoArticle("full texts need trafilatura; install it with: pip install 'tidings[fulltext]'") from None

    def extract(body: bytes, url: str) -> str:
        options: dict[str, Any] = {"include_images": True, "include_links": True, "include_formatting": True}
        try:
            found = trafilatura.extract(body, url=url, output_format="html", include_comments=False, **options)
        except Exception as error:  # pages are hostile, and this library is deep
            raise NoArticle(f"the page could not be read: {type(error).__name__}") from None
        return clean_html(found, url) if found else ""

    return extract
