"""Execution of polls, each in its own asyncio task, from the lease to the recorded result."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.gap_repair import GapRepairer
from tidings.aggregator.poller import PollResult, host_of
from tidings.aggregator.result_writer import ResultWriter
from tidings.aggregator.scheduler import Scheduler
from tidings.document import Links
from tidings.fetch import Fetcher
from tidings.fetch.urls import parse_url
from tidings.logs import Log
from tidings.reasons import Reason
from tidings.store import Store, StoreError
from tidings.store.feed_models import Feed, PollOutcome, RecordResult, Schedule
from tidings.store.feeds import host_of as leased_host

if TYPE_CHECKING:  # commands that only poll do not load these modules
    from tidings.aggregator.peer_exchange import PeerExchange
    from tidings.aggregator.poll_notices import NoticePublisher
    from tidings.aggregator.websub import Subscriber

#: Duration of a lease in seconds. It is longer than any poll, including the wait for the rate limit
#: of the host.
LEASE_S = 900.0
#: Maximum number of running polls per host. More polls would only wait for the rate limit of the
#: host and block polls of other hosts.
MAX_POLLS_PER_HOST = 20

log = Log("tidings.aggregator")


class SkippedPoll(Struct, frozen=True):
    """Requested poll that was not made, with the reason."""

    feed_id: int
    reason: Reason


class PollSummary(Struct, frozen=True):
    """Number of new and changed entries of one poll, and whether the poll failed.

    ``skipped`` is set if the poll was not made.
    """

    new: int = 0
    changed: int = 0
    failed: bool = False
    skipped: SkippedPoll | None = None


class PollTasks:
    """Polls that have started and whose results are not recorded yet."""

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        scheduler: Scheduler,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]],
        worker: str,
        wake: Callable[[], None],
    ) -> None:
        """Create the result writer and the gap repairer.

        ``worker`` names this process if several share the store. ``wake`` is called after each
        poll.
        """
        self._store, self._fetcher, self._clock, self._worker, self._wake = (
            store,
            fetcher,
            clock,
            worker,
            wake,
        )
        self.result_writer = ResultWriter(store, scheduler, sleep)
        self.gap_repairer = GapRepairer(store, fetcher, clock)
        self.tasks: dict[int, asyncio.Task[PollSummary]] = {}  #: running polls by feed id
        self.pinged_feeds: set[int] = set()  #: due feeds that a hub has announced
        self._leased_feeds: dict[int, Feed] = {}  # feeds whose poll is not recorded yet
        self._per_host: dict[str, int] = {}  # number of running polls by host
        self._idle_hosts: list[tuple[str, float]] = []  # hosts to release, and the time to do so
        self._feeds_with_gaps: set[int] = set()
        #: Manager of the WebSub subscriptions of polled feeds, set by the service.
        self.hub_subscriber: Subscriber | None = None
        #: Receiver of all recorded polls, set by the service if the exchange is on.
        self.peer_exchange: PeerExchange | None = None
        #: Receiver of all recorded polls in a worker, which passes them to the service.
        self.notice_publisher: NoticePublisher | None = None

    async def open(self) -> None:
        self._feeds_with_gaps = {
            gap.feed_id for gap in await self._store.gaps(state="open", limit=10_000)
        }

    async def close(self) -> None:
        """Cancel running polls and release their leases, so that their feeds are due again."""
        for task in self.tasks.values():
            task.cancel()
        await self.finish()
        await self.result_writer.close()
        await self._store.release(
            list(self._leased_feeds.values()), self._worker, self._fetcher.settings.host_spacing_s
        )

    async def finish(self) -> None:
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    async def release_hosts(self) -> None:
        """Release the leases of hosts without running polls, so that other workers can use them."""
        if self._idle_hosts:
            busy = {leased_host(feed.url) for feed in self._leased_feeds.values()}
            idle, self._idle_hosts = [host for host in self._idle_hosts if host[0] not in busy], []
            await self._store.release_hosts(idle, self._worker)

    def is_host_busy(self, url: str) -> bool:
        """Return whether the host of a URL has the maximum number of running polls.

        Hosts that are exempt from the rate limit are never busy.
        """
        if self._per_host.get(host_of(url), 0) < MAX_POLLS_PER_HOST:
            return False
        try:
            return not self._fetcher.is_exempt(str(parse_url(url).raw_host))
        except ValueError:
            return False

    def is_leased(self, feed_id: int) -> bool:
        """Return whether a feed has a running poll, which will set the time of the next poll."""
        return feed_id in self._leased_feeds

    async def lease_feed(self, feed_id: int) -> Feed | None:
        """Lease a feed after its running poll has finished.

        Returns None if the feed does not exist or is retired. The caller must call `start_poll`
        before awaiting anything else.
        """
        while True:
            while feed_id in self.tasks:
                await asyncio.wait([self.tasks[feed_id]])
            leased = await self._store.lease_feeds(1, lease_s=LEASE_S, feed_ids=[feed_id])
            if feed_id not in self.tasks:
                return leased[0] if leased else None

    def start_poll(
        self, feed: Feed, poll: Callable[[], Awaitable[PollResult]]
    ) -> "asyncio.Task[PollSummary]":
        """Start the poll of a leased feed as a task, and return the task.

        ``poll`` fetches the feed, or processes entries that were pushed.
        """
        self._leased_feeds[feed.id] = feed
        task = self.tasks[feed.id] = asyncio.create_task(self._finish(feed, poll))
        return task

    async def _finish(self, feed: Feed, poll: Callable[[], Awaitable[PollResult]]) -> PollSummary:
        host = host_of(feed.url)
        self._per_host[host] = self._per_host.get(host, 0) + 1
        self.pinged_feeds.discard(feed.id)
        self.result_writer.unfinished_polls += 1
        is_unfinished = True
        try:
            result = await poll()
            if not result.was_requested:
                return await self._postpone(result)
            is_unfinished = False
            self.result_writer.unfinished_polls -= 1
            if self.peer_exchange is None and self.notice_publisher is None:
                # The document is half of the memory of a poll that waits to be recorded.
                result = replace(result, document=None)
            outcome, recorded = await self.result_writer.record(result)
            self._leased_feeds.pop(feed.id, None)
            self._log_result(result, outcome, recorded)
            if (poll_listener := self.peer_exchange or self.notice_publisher) is not None:
                poll_listener.on_poll_recorded(result)
            if result.links is not None:
                await self._process_document(result, result.links)
            return PollSummary(
                new=len(recorded.new), changed=recorded.changed, failed=bool(outcome.error_kind)
            )
        except Exception as error:  # an error of one feed must not stop the loop
            # A feed whose poll was not recorded is due again when its lease expires.
            self._leased_feeds.pop(feed.id, None)
            if isinstance(error, StoreError):
                log.warning("poll_recording_failed", feed=feed.id, url=feed.url, error=str(error))
            else:
                log.exception("poll_processing_failed", feed=feed.id, url=feed.url)
            return PollSummary(failed=True)
        finally:
            self.result_writer.unfinished_polls -= is_unfinished
            del self.tasks[feed.id]
            self._per_host[host] -= 1
            if not self._per_host[host]:
                del self._per_host[host]
                if self._worker:
                    self._idle_hosts.append(
                        (
                            leased_host(feed.url),
                            self._clock() + self._fetcher.settings.host_spacing_s,
                        )
                    )
            self._wake()

    async def _postpone(self, result: PollResult) -> PollSummary:
        """Reschedule a poll that was not made because its host is paused."""
        (decision,) = await self.result_writer.decide([result.observation])
        await self._store.reschedule([Schedule(result.feed.id, decision.at, decision.reason)])
        self._leased_feeds.pop(result.feed.id, None)
        return PollSummary(skipped=SkippedPoll(result.feed.id, result.observation.failure))

    def _log_result(self, result: PollResult, outcome: PollOutcome, recorded: RecordResult) -> None:
        if outcome.retire_reason:
            self.result_writer.scheduler.remove_feed(outcome.feed_id)
        if outcome.gap is not None:
            self._feeds_with_gaps.add(outcome.feed_id)
            log.info("gap_suspected", feed=outcome.feed_id, missed=outcome.gap.missed)
        if result.notice:
            log.warning(
                "feed_notice_issued",
                feed=outcome.feed_id,
                url=result.feed.url,
                message=result.notice,
            )
        state = outcome.state
        log.info(
            "poll_finished",
            feed=outcome.feed_id,
            status=outcome.status,
            new=len(recorded.new),
            changed=recorded.changed,
            error=outcome.error_kind,
            next=state.next_poll_at if state is not None else None,
            reason=state.reason.code if state is not None else "",
        )

    async def _process_document(self, result: PollResult, links: Links) -> None:
        """Repair gaps and update the WebSub subscription after a document was fetched."""
        feed, scheduler = result.feed, self.result_writer.scheduler
        if feed.id in self._feeds_with_gaps:
            await scheduler.consume_budget(
                await self.gap_repairer.repair(feed, links), self._clock(), outside_polls=True
            )
            if not await self._store.gaps(feed_id=feed.id, state="open", limit=1):
                self._feeds_with_gaps.discard(feed.id)
        if (
            self.hub_subscriber is not None
            and result.outcome.source == "poll"
            and result.outcome.state is not None
        ):
            post_times = [
                entry.published_at for entry in result.outcome.new if entry.delay_s is not None
            ]
            await self.hub_subscriber.update_subscription(
                replace(feed, state=result.outcome.state), post_times
            )
            scheduler.set_push_share(feed.id, self.hub_subscriber.share(feed.id))
