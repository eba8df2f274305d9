"""Polls under way: each is a task that goes from the claim of its feed to the record of what it brought, and what follows."""

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

if TYPE_CHECKING:  # those who only poll need no hubs
    from tidings.aggregator.peer_exchange import PeerExchange
    from tidings.aggregator.poll_notices import NoticePublisher
    from tidings.aggregator.websub import Subscriber

#: Longer than any poll takes, with its wait for the host's turn.
LEASE_S = 900.0
#: Feeds of one host under way at once; more would wait in line and keep others from being asked.
MAX_POLLS_PER_HOST = 20

log = Log("tidings.aggregator")


class SkippedPoll(Struct, frozen=True):
    """A feed that was not polled although somebody asked for it."""

    feed_id: int
    reason: Reason


class PollSummary(Struct, frozen=True):
    """What one poll came to."""

    new: int = 0
    changed: int = 0
    failed: bool = False
    skipped: SkippedPoll | None = None


class PollTasks:
    """Those that have been begun and are not yet recorded."""

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
        """``wake`` is called whenever one has ended."""
        self._store, self._fetcher, self._clock, self._worker, self._wake = (
            store,
            fetcher,
            clock,
            worker,
            wake,
        )
        self.result_writer = ResultWriter(store, scheduler, sleep)
        self.gap_repairer = GapRepairer(store, fetcher, clock)
        self.tasks: dict[int, asyncio.Task[PollSummary]] = {}  #: by feed
        self.pinged_feeds: set[int] = (
            set()
        )  #: a hub has said that there is news of these, which will be asked
        self._leased_feeds: dict[int, Feed] = {}  # what was claimed and is not recorded
        self._per_host: dict[str, int] = {}
        self._idle_hosts: list[tuple[str, float]] = []  # hosts that others may have, and from when
        self._feeds_with_gaps: set[int] = set()
        self.hub_subscriber: Subscriber | None = (
            None  #: set by who has one: it is told of hubs, and tells what they are worth
        )
        self.peer_exchange: PeerExchange | None = (
            None  #: set by who has one: it is told what polls have shown
        )
        self.notice_publisher: NoticePublisher | None = (
            None  #: the same, where another process has the neighbours
        )

    async def open(self) -> None:
        self._feeds_with_gaps = {
            gap.feed_id for gap in await self._store.gaps(state="open", limit=10_000)
        }

    async def close(self) -> None:
        """Let go of all: what was begun is due again, for whoever comes next."""
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
        """Let other workers have the hosts that we have asked all we wanted."""
        if self._idle_hosts:
            held = {leased_host(feed.url) for feed in self._leased_feeds.values()}
            hosts, self._idle_hosts = [one for one in self._idle_hosts if one[0] not in held], []
            await self._store.release_hosts(hosts, self._worker)

    def is_host_busy(self, url: str) -> bool:
        """Whether enough feeds of its host are under way; hosts without limits are never crowded."""
        if self._per_host.get(host_of(url), 0) < MAX_POLLS_PER_HOST:
            return False
        try:
            return not self._fetcher.is_exempt(str(parse_url(url).raw_host))
        except ValueError:
            return False

    def is_leased(self, feed_id: int) -> bool:
        """Whether a feed was claimed for a poll that is not recorded yet: that poll will give it its next time."""
        return feed_id in self._leased_feeds

    async def lease_feed(self, feed_id: int) -> Feed | None:
        """Claim a feed once nobody is at it; None if it cannot be claimed. Begin before anything is awaited."""
        while True:
            while feed_id in self.tasks:
                await asyncio.wait([self.tasks[feed_id]])
            claimed = await self._store.lease_feeds(1, lease_s=LEASE_S, feed_ids=[feed_id])
            if feed_id not in self.tasks:
                return claimed[0] if claimed else None

    def start_poll(
        self, feed: Feed, poll: Callable[[], Awaitable[PollResult]]
    ) -> "asyncio.Task[PollSummary]":
        """Of a feed that was claimed; ``look`` asks for it, or has what somebody sent."""
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
                result = replace(
                    result, document=None
                )  # it takes half the memory of a poll that waits to be recorded
            outcome, what = await self.result_writer.record(result)
            self._leased_feeds.pop(feed.id, None)
            self._log_result(result, outcome, what)
            if (poll_listener := self.peer_exchange or self.notice_publisher) is not None:
                poll_listener.on_poll_recorded(result)
            if result.links is not None:
                await self._process_document(result, result.links)
            return PollSummary(
                new=len(what.new), changed=what.changed, failed=bool(outcome.error_kind)
            )
        except (
            Exception
        ) as error:  # whatever it was, one feed's trouble must not end the loop for all
            self._leased_feeds.pop(feed.id, None)
            if isinstance(error, StoreError):
                log.warning(
                    "a poll could not be recorded; it is due again",
                    feed=feed.id,
                    url=feed.url,
                    error=str(error),
                )
            else:
                log.exception(
                    "a poll was not finished; if it was not recorded, it is due again",
                    feed=feed.id,
                    url=feed.url,
                )
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
        """Its host has asked to be left alone: nothing was asked, nothing is recorded but the new time."""
        (decision,) = await self.result_writer.decide([result.observation])
        await self._store.reschedule([Schedule(result.feed.id, decision.at, decision.reason)])
        self._leased_feeds.pop(result.feed.id, None)
        return PollSummary(skipped=SkippedPoll(result.feed.id, result.observation.failure))

    def _log_result(self, result: PollResult, outcome: PollOutcome, what: RecordResult) -> None:
        if outcome.retire:
            self.result_writer.scheduler.remove_feed(outcome.feed_id)
        if outcome.gap is not None:
            self._feeds_with_gaps.add(outcome.feed_id)
            log.info("gap suspected", feed=outcome.feed_id, missed=outcome.gap.missed)
        if result.notice:
            log.warning("notice", feed=outcome.feed_id, url=result.feed.url, says=result.notice)
        state = outcome.state
        log.info(
            "polled",
            feed=outcome.feed_id,
            status=outcome.status,
            new=len(what.new),
            changed=what.changed,
            error=outcome.error_kind,
            next=state.next_poll_at if state is not None else None,
            reason=state.reason.code if state is not None else "",
        )

    async def _process_document(self, result: PollResult, links: Links) -> None:
        """Look for what was lost, and for a hub that would tell sooner."""
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
            found = [
                entry.published_at for entry in result.outcome.new if entry.delay_s is not None
            ]
            await self.hub_subscriber.update_subscription(
                replace(feed, state=result.outcome.state), found
            )
            scheduler.set_push_share(feed.id, self.hub_subscriber.share(feed.id))
