"""Posts that were pushed out unseen are looked for where publishers keep them: archives and further pages (RFC 5005).

An archive never changes, so its chain is walked until something known turns up. Pages shift while one reads, and some lead in
circles, so few are asked for and none twice. WordPress has pages that it tells nobody of. Where none of these helps, others
may know: recoverers are asked in turn.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from tidings.aggregator.entry_dates import EntryDates, declared_date
from tidings.aggregator.poller import entry_text
from tidings.document import Document, Entry, Links
from tidings.fetch import Fetcher, FetchRequest
from tidings.logs import Log
from tidings.model import WEEK_S
from tidings.parse import ParseError, parse, unique_entries
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.feed_models import Feed, Gap, GapRepair, PollOutcome, Source

#: Where to look, the best first: links, and how many of a kind are followed.
LINK_LIMITS = (("prev_archive", 50), ("next_page", 10), ("likely_page", 10))
#: So long a gap stays open while archives cannot be reached.
MAX_OPEN_S = WEEK_S

#: Entries of a feed from within a gap, by who had them.
RecoverySource: TypeAlias = Callable[[Feed, Gap], Awaitable[Mapping[str, Sequence[Entry]]]]

log = Log("tidings.gap_repair")


class GapRepairer:
    """Fills gaps as far as it can be done."""

    def __init__(self, store: Store, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._store, self._fetcher, self._clock = store, fetcher, clock
        self.recovery_sources: list[
            RecoverySource
        ] = []  #: who may be asked where archives do not help

    async def repair(self, feed: Feed, links: Links) -> int:
        """Repair the feed's open gaps, with the links of its latest document; returns how many requests that took."""
        requests = 0
        for gap in await self._store.gaps(feed_id=feed.id, state="open", limit=10):
            state, link_requests = await self._follow_links(feed, gap, links)
            requests += link_requests
            for recovery_source in self.recovery_sources if state != "repaired" else ():
                for who, entries in (await recovery_source(feed, gap)).items():
                    if await self._store_entries(
                        feed, gap, entries, "neighbour", "partly", peer_path=(who,)
                    ):
                        state = "partly"
            if state == "open" and self._clock() - gap.found_at < MAX_OPEN_S:
                continue
            await self._store_entries(
                feed, gap, (), "archive", "lost" if state == "open" else state
            )
            log.info("gap", feed=feed.id, missed=gap.missed, state=state, requests=requests)
        return requests

    async def _follow_links(self, feed: Feed, gap: Gap, links: Links) -> tuple[str, int]:
        """Follow archives, else pages, back to what is known. Returns what became of the gap, and the requests made."""
        link_name, most = next(
            ((name, most) for name, most in LINK_LIMITS if getattr(links, name)), ("", 0)
        )
        url, guessed = getattr(links, link_name, ""), link_name == "likely_page"
        seen, found, requests = {feed.url, feed.state.self_url}, 0, 0
        while url and url not in seen and requests < most:
            seen.add(url)
            result = await self._fetcher.fetch(
                FetchRequest(url, subscribers=feed.subscribers, want_delta=False)
            )
            requests += result.requests
            document = _read(result.body, result.content_type, result.url)
            if document is None:
                gone = guessed and result.status == 404
                return "partly" if found else "lost" if gone else "open", requests
            known = await self._store.known_entries(
                feed.id, [entry.identity for entry in document.entries]
            )
            missing = [
                e for e in document.entries if e.identity not in known and _is_in_gap(e, gap)
            ]
            found += await self._store_entries(
                feed,
                gap,
                missing,
                "archive",
                "partly",
                status=result.status,
                size=result.wire_bytes,
            )
            # Entries from behind the gap do not count: an archive may overlap with the feed itself.
            times = [k.published_at for k in known.values()] + [
                at for e in document.entries if (at := declared_date(e)) is not None
            ]
            if any(at is None or at <= gap.from_at for at in times):
                return "repaired", requests
            if (
                guessed and not missing
            ):  # whoever stands before this WordPress gives the same to all who ask
                break
            url = getattr(document.links, link_name)
        return "partly" if found else "lost", requests

    async def _store_entries(
        self,
        feed: Feed,
        gap: Gap,
        entries: Sequence[Entry],
        source: Source,
        state: str,
        *,
        status: int = 0,
        size: int = 0,
        peer_path: tuple[str, ...] = (),
    ) -> int:
        now = self._clock()
        new = tuple(
            entry_text(entry, date_recovered_entry(entry, gap.until_at, now)) for entry in entries
        )
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
                    repair=GapRepair(gap.id, state),
                    peer_path=peer_path,
                )
            ]
        )
        return len(recorded.new)


def _read(body: bytes | None, content_type: str, url: str) -> Document | None:
    try:
        return (
            unique_entries(parse(body, content_type=content_type, url=url))
            if body is not None
            else None
        )
    except ParseError:
        return None


def _is_in_gap(entry: Entry, gap: Gap) -> bool:
    """Archives hold years; what was posted before anybody asked for the feed was not lost."""
    at = declared_date(entry)
    return at is None or at >= gap.from_at


def date_recovered_entry(entry: Entry, latest: float, now: float) -> EntryDates:
    """The times of an entry that was found long after its publication."""
    at = declared_date(entry)
    if at is None or at > now:
        return EntryDates(latest, None, None)
    return EntryDates(at, now - at, None)
