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
from tidings.fetch.models import FetchRequest
from tidings.parse.sanitize import sanitize_html
from tidings.store import StoreError
from tidings.store import full_texts as table
from tidings.users.errors import ArticleUnavailable

#: A page longer than this is no article, and would hold up others.
MAX_PAGE_BYTES = 2_000_000
#: How often new entries are looked at, and how many at once.
CHECK_INTERVAL_S, BATCH_SIZE = 10.0, 10
#: What could not be had is tried again after so long, until its entry is so old.
RETRY_AFTER_S, MAX_ENTRY_AGE_S = 6 * 3600.0, 2 * 86400.0

log = logs.Log("tidings.articles")


class FullTextFetcher:
    """Fetches with the fetcher of the aggregator, which knows whom not to ask, and on its budget."""

    def __init__(self, aggregator: Aggregator, clock: Callable[[], float]) -> None:
        self._aggregator, self._store, self._clock = aggregator, aggregator.store, clock

    async def run(self) -> None:
        """For ever, a few at a time."""
        while True:
            try:
                while await self.run_once():
                    pass
            except StoreError as error:
                log.warning("the store cannot be used; trying again", error=str(error))
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def run_once(self) -> int:
        """Fetch some of those that are wanted, with or without success; how many."""
        now = self._clock()
        wanted = await self._store.read(
            table.list_missing, now - MAX_ENTRY_AGE_S, now - RETRY_AFTER_S, BATCH_SIZE
        )
        found = await asyncio.gather(
            *(self.fetch(*entry) for entry in wanted), return_exceptions=True
        )
        for (entry_id, url), result in zip(wanted, found, strict=True):
            if isinstance(result, TidingsError):
                log.info("no article", entry=entry_id, url=url, problem=str(result))
            elif isinstance(result, BaseException):
                raise result
        return len(wanted)

    async def fetch(self, entry_id: int, url: str) -> str:
        """An entry's article, as HTML that is safe to show. `NoArticle` says why there is none."""
        if stored_content := await self._store.read(table.stored_content, entry_id):
            return stored_content
        try:
            article = await self._fetch(url)
        except ArticleUnavailable:
            await self._store.write(table.save, entry_id, "", self._clock())
            raise
        await self._store.write(table.save, entry_id, article, self._clock())
        return article

    async def _fetch(self, url: str) -> str:
        extract = _extractor()
        result = await self._aggregator.fetcher.fetch(FetchRequest(url, want_delta=False))
        await self._aggregator.scheduler.consume_budget(
            result.requests, self._clock(), outside_polls=True
        )
        if result.error is not None:
            raise ArticleUnavailable(
                f"the article cannot be had from its site: {result.error.message}"
            )
        if result.body is None or len(result.body) > MAX_PAGE_BYTES:
            raise ArticleUnavailable(
                "what its site has at the entry's address is too long for an article"
            )
        article = await asyncio.to_thread(extract, result.body, result.url)
        if not article:
            raise ArticleUnavailable("no article was found on the page that its site has for it")
        return article


def _extractor() -> Callable[[bytes, str], str]:
    try:
        import trafilatura
    except ImportError:
        raise ArticleUnavailable(
            "full texts need trafilatura; install it with: pip install 'tidings[fulltext]'"
        ) from None

    def extract(body: bytes, url: str) -> str:
        options: dict[str, Any] = {
            "include_images": True,
            "include_links": True,
            "include_formatting": True,
        }
        try:
            found = trafilatura.extract(
                body, url=url, output_format="html", include_comments=False, **options
            )
        except Exception as error:  # pages are hostile, and this library is deep
            raise ArticleUnavailable(
                f"the page could not be read: {type(error).__name__}"
            ) from None
        return sanitize_html(found, url) if found else ""

    return extract
