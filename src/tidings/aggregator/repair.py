"""Posts that were pushed out unseen are looked for where publishers keep them: archives and further pages (RFC 5005).

An archive never changes, so its chain is walked until something known turns up. Pages shift while one reads, and some lead in
circles, so few are asked for and none twice. WordPress has pages that it tells nobody of. Where none of these helps, others
may know: recoverers are asked in turn.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from tidings.aggregator.dating import Dated, told
from tidings.aggregator.reader import entry_text
from tidings.document import Document, Entry, Links
from tidings.fetch import Fetcher, FetchRequest
from tidings.logs import Log
from tidings.model import WEEK_S
from tidings.parse import ParseError, each_once, parse
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.rows import Feed, Gap, PollOutcome, Repair, Source

#: Where to look, the best first: links, and how many of a kind are followed.
ROADS = (("prev_archive", 50), ("next_page", 10), ("likely_page", 10))
#: So long a gap stays open while archives cannot be reached.
PATIENCE_S = WEEK_S

#: Entries of a feed from within a gap, by who had them.
Recoverer: TypeAlias = Callable[[Feed, Gap], Awaitable[Mapping[str, Sequence[Entry]]]]

log = Log("tidings.repair")


class Repairer:
    """Fills gaps as far as it can be done."""

    def __init__(self, store: Store, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._store, self._fetcher, self._clock = store, fetcher, clock
        self.recoverers: list[Recoverer] = []  #: who may be asked where archives do not help

    async def repair(self, feed: Feed, links: Links) -> int:
        """Repair the feed's open gaps, with the links of its latest document; returns how many requests that took."""
        requests = 0
        for gap in await self._store.gaps(feed_id=feed.id, state="open", limit=10):
            state, asked = await self._walk(feed, gap, links)
            requests += asked
            for recoverer in self.recoverers if state != "repaired" else ():
                for who, entries in (await recoverer(feed, gap)).items():
                    if await self._keep(feed, gap, entries, "neighbour", "partly", told_by=(who,)):
                        state = "partly"
            if state == "open" and self._clock() - gap.found_at < PATIENCE_S:
                continue
            await self._keep(feed, gap, (), "archive", "lost" if state == "open" else state)
            log.info("gap", feed=feed.id, lost=gap.lost, state=state, requests=requests)
        return requests

    async def _walk(self, feed: Feed, gap: Gap, links: Links) -> tuple[str, int]:
        """Follow archives, else pages, back to what is known. Returns what became of the gap, and the requests made."""
        road, most = next(((name, most) for name, most in ROADS if getattr(links, name)), ("", 0))
        url, guessed = getattr(links, road, ""), road == "likely_page"
        seen, found, requests = {feed.url, feed.state.self_url}, 0, 0
        while url and url not in seen and requests < most:
            seen.add(url)
            result = await self._fetcher.fetch(FetchRequest(url, subscribers=feed.subscribers, want_delta=False))
            requests += result.requests
            document = _read(result.body, result.content_type, result.url)
            if document is None:
                gone = guessed and result.status == 404
                return "partly" if found else "lost" if gone else "open", requests
            known = await self._store.known(feed.id, [entry.identity for entry in document.entries])
            missing = [e for e in document.entries if e.identity not in known and _within(e, gap)]
            found += await self._keep(feed, gap, missing, "archive", "partly", status=result.status, size=result.wire_bytes)
            # Entries from behind the gap do not count: an archive may overlap with the feed itself.
            times = [k.published_at for k in known.values()] + [at for e in document.entries if (at := told(e)) is not None]
            if any(at is None or at <= gap.from_at for at in times):
                return "repaired", requests
            if guessed and not missing:  # whoever stands before this WordPress gives the same to all who ask
                break
            url = getattr(document.links, road)
        return "partly" if found else "lost", requests

    async def _keep(
        self,
        feed: Feed,
        gap: Gap,
        entries: Sequence[Entry],
        source: Source,
        state: str,
        *,
        status: int = 0,
        size: int = 0,
        told_by: tuple[str, ...] = (),
    ) -> int:
        now = self._clock()
        new = tuple(entry_text(entry, date_old(entry, gap.until_at, now)) for entry in entries)
        (recorded,) = await self._store.record(
            [
                PollOutcome(
                    feed_id=feed.id,
                    at=now,
                    reason=reason("gap_repair"),
                    source=source,
                    status=status,
                    bytes=size,
                    entries=len(entries),
                    new=new,
                    repair=Repair(gap.id, state),
                    told_by=told_by,
                )
            ]
        )
        return len(recorded.new)


def _read(body: bytes | None, content_type: str, url: str) -> Document | None:
    try:
        return each_once(parse(body, content_type=content_type, url=url)) if body is not None else None
    except ParseError:
        return None


def _within(entry: Entry, gap: Gap) -> bool:
    """Archives hold years; what was posted before anybody asked for the feed was not lost."""
    at = told(entry)
    return at is None or at >= gap.from_at


def date_old(entry: Entry, latest: float, now: float) -> Dated:
    """The times of an entry that was found long after its publication."""
    at = told(entry)
    if at is None or at > now:
        return Dated(latest, None, None)
    return Dated(at, now - at, None)
