"""Load the full text of an entry from its web page (readability extraction).

trafilatura (the extra ``fulltext``) extracts the article. New entries of feeds for which a
subscriber has enabled full text are fetched in the background, within the request budget. For
other entries, a user can request the full text.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tidings import logs
from tidings.aggregator.aggregator import Aggregator
from tidings.errors import TidingsError
from tidings.fetch.models import FetchRequest
from tidings.i18n import _
from tidings.parse.sanitize import sanitize_html
from tidings.store import StoreError
from tidings.store import full_texts as table
from tidings.users.errors import ArticleUnavailable

#: Maximum size of a page. Extraction from a longer one would block other pages.
MAX_PAGE_BYTES = 2_000_000
#: Seconds between checks for new entries, and maximum number of entries per check.
CHECK_INTERVAL_S, BATCH_SIZE = 10.0, 10
#: Delay before a failed page is fetched again, and entry age after which it is not fetched again.
RETRY_AFTER_S, MAX_ENTRY_AGE_S = 6 * 3600.0, 2 * 86400.0

log = logs.Log("tidings.articles")


class FullTextFetcher:
    """Background task that fetches articles with the aggregator's fetcher and request budget."""

    def __init__(self, aggregator: Aggregator, clock: Callable[[], float]) -> None:
        self._aggregator, self._store, self._clock = aggregator, aggregator.store, clock

    async def run(self) -> None:
        """Fetch missing articles in batches, until canceled."""
        while True:
            try:
                while await self.run_once():
                    pass
            except StoreError as error:
                log.warning("store_unavailable", error=str(error))
            await asyncio.sleep(CHECK_INTERVAL_S)

    async def run_once(self) -> int:
        """Fetch one batch of missing articles and return how many entries were tried."""
        now = self._clock()
        missing = await self._store.read(
            table.list_missing, now - MAX_ENTRY_AGE_S, now - RETRY_AFTER_S, BATCH_SIZE
        )
        results = await asyncio.gather(
            *(self.fetch(*entry) for entry in missing), return_exceptions=True
        )
        for (entry_id, url), result in zip(missing, results, strict=True):
            if isinstance(result, TidingsError):
                log.info("full_text_failed", entry=entry_id, url=url, problem=str(result))
            elif isinstance(result, BaseException):
                raise result
        return len(missing)

    async def fetch(self, entry_id: int, url: str) -> str:
        """Return the article of an entry as sanitized HTML, from the store or from its web page.

        Raises `ArticleUnavailable` with the reason. Results and failures are stored.
        """
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
                _("couldn't load the full text: %(error)s", error=result.error.message)
            )
        if result.body is None or len(result.body) > MAX_PAGE_BYTES:
            raise ArticleUnavailable(
                _(
                    "couldn't load the full text: the page is larger than %(limit)s MB",
                    limit=MAX_PAGE_BYTES // 1_000_000,
                )
            )
        article = await asyncio.to_thread(extract, result.body, result.url)
        if not article:
            raise ArticleUnavailable(_("couldn't load the full text: no article found on the page"))
        return article


def _extractor() -> Callable[[bytes, str], str]:
    try:
        import trafilatura
    except ImportError:
        raise ArticleUnavailable(
            _("full text needs trafilatura; install it with: pip install 'tidings[fulltext]'")
        ) from None

    def extract(body: bytes, url: str) -> str:
        options: dict[str, Any] = {
            "include_images": True,
            "include_links": True,
            "include_formatting": True,
        }
        try:
            article = trafilatura.extract(
                body, url=url, output_format="html", include_comments=False, **options
            )
        except Exception as error:  # the input is untrusted and the library has many code paths
            raise ArticleUnavailable(
                _(
                    "couldn't load the full text: the page could not be parsed (%(error)s)",
                    error=type(error).__name__,
                )
            ) from None
        return sanitize_html(article, url) if article else ""

    return extract
