"""Recovery of missed posts from archived and paged feeds (RFC 5005) and from peers.

Archive documents never change, so their links are followed until a known entry is found. Pages
shift while they are read, and some link back to earlier pages: at most ten are requested, and none
twice. WordPress has pages that its feeds do not link to. If none of these helps, the recovery
sources (peers) are tried in turn.
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

#: Names of the links to follow, best first, with the maximum number of requests for each.
LINK_LIMITS = (("prev_archive", 50), ("next_page", 10), ("likely_page", 10))
#: Maximum time in seconds that a gap stays open while archives cannot be reached.
MAX_OPEN_S = WEEK_S

#: Function that returns entries of a feed within a gap, grouped by the peer that sent them.
RecoverySource: TypeAlias = Callable[[Feed, Gap], Awaitable[Mapping[str, Sequence[Entry]]]]

log = Log("tidings.gap_repair")


class GapRepairer:
    """Filler of gaps, which recovers missed posts from archives, pages and peers."""

    def __init__(self, store: Store, fetcher: Fetcher, clock: Callable[[], float]) -> None:
        self._store, self._fetcher, self._clock = store, fetcher, clock
        self.recovery_sources: list[RecoverySource] = []  #: tried after archives and pages

    async def repair(self, feed: Feed, links: Links) -> int:
        """Fill the open gaps of a feed and return the number of requests that were sent.

        ``links`` are the links of the feed's latest document.
        """
        requests = 0
        for gap in await self._store.gaps(feed_id=feed.id, state="open", limit=10):
            state, link_requests = await self._follow_links(feed, gap, links)
            requests += link_requests
            for recovery_source in self.recovery_sources if state != "repaired" else ():
                for peer, entries in (await recovery_source(feed, gap)).items():
                    if await self._store_entries(
                        feed, gap, entries, "neighbour", "partly", peer_path=(peer,)
                    ):
                        state = "partly"
            if state == "open" and self._clock() - gap.found_at < MAX_OPEN_S:
                continue
            await self._store_entries(
                feed, gap, (), "archive", "lost" if state == "open" else state
            )
            log.info(
                "gap_repair_finished",
                feed=feed.id,
                missed=gap.missed,
                state=state,
                requests=requests,
            )
        return requests

    async def _follow_links(self, feed: Feed, gap: Gap, links: Links) -> tuple[str, int]:
        """Store missed entries from linked documents until a document has a known entry.

        Returns the state of the gap and the number of requests.
        """
        link_name, max_requests = next(
            ((name, limit) for name, limit in LINK_LIMITS if getattr(links, name)), ("", 0)
        )
        url, guessed = getattr(links, link_name, ""), link_name == "likely_page"
        seen, recovered_count, requests = {feed.url, feed.state.self_url}, 0, 0
        while url and url not in seen and requests < max_requests:
            seen.add(url)
            result = await self._fetcher.fetch(
                FetchRequest(url, subscribers=feed.subscribers, want_delta=False)
            )
            requests += result.requests
            document = _read(result.body, result.content_type, result.url)
            if document is None:
                has_no_pages = guessed and result.status == 404
                return "partly" if recovered_count else "lost" if has_no_pages else "open", requests
            known = await self._store.known_entries(
                feed.id, [entry.identity for entry in document.entries]
            )
            missing = [
                e for e in document.entries if e.identity not in known and _is_in_gap(e, gap)
            ]
            recovered_count += await self._store_entries(
                feed,
                gap,
                missing,
                "archive",
                "partly",
                status=result.status,
                size=result.wire_bytes,
            )
            # Entries after the gap do not count: an archive may overlap with the feed itself.
            times = [k.published_at for k in known.values()] + [
                at for e in document.entries if (at := declared_date(e)) is not None
            ]
            if any(at is None or at <= gap.from_at for at in times):
                return "repaired", requests
            if guessed and not missing:
                break  # a cache in front of this WordPress ignores the page number
            url = getattr(document.links, link_name)
        return "partly" if recovered_count else "lost", requests

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
    """Return whether an entry is undated or was posted after the start of the gap.

    Entries that are older than the gap were not missed.
    """
    at = declared_date(entry)
    return at is None or at >= gap.from_at


def date_recovered_entry(entry: Entry, latest: float, now: float) -> EntryDates:
    """Return the dates of an entry that was recovered long after its publication.

    ``latest`` is the publication time if the entry declares none.
    """
    at = declared_date(entry)
    if at is None or at > now:
        return EntryDates(latest, None, None)
    return EntryDates(at, now - at, None)
