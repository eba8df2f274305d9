"""Polling loop that leases due feeds, polls them, records results and plans the next polls.

Results are recorded in batches. A feed is leased while it is polled: if the process dies, the feed
is due again when the lease expires, and its poll was recorded either completely or not at all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tidings.aggregator.min_interval import postpone_to_min_interval
from tidings.aggregator.poll_tasks import (
    LEASE_S,
    MAX_POLLS_PER_HOST,
    PollSummary,
    PollTasks,
    SkippedPoll,
)
from tidings.aggregator.poller import Poller
from tidings.aggregator.result_writer import BATCH
from tidings.aggregator.scheduler import Scheduler
from tidings.document import Entry
from tidings.fetch import Fetcher, FetchResult
from tidings.logs import Log
from tidings.model import DAY_S
from tidings.policy.constraints import is_skipped
from tidings.reasons import Reason, reason, with_modifier
from tidings.store import Store, StoreError
from tidings.store.feed_models import Feed, Schedule

#: Number of concurrent polls per allowed connection. It is more than one because some polls wait
#: for the rate limit of their host or for the parser.
POLLS_PER_CONNECTION = 2
#: Minimum time in seconds until the next poll that is needed to add pending feeds to the policy.
IDLE_S = 30.0
#: Maximum time in seconds that feeds stay pending if the loop is never idle.
MAX_PENDING_S = 600.0
#: Maximum backoff in seconds after errors of the store.
MAX_STORE_BACKOFF_S = 30.0
#: Delay in seconds before a worker retries when all due feeds belong to hosts leased by others.
LEASE_RETRY_S = 0.5
#: Time in seconds after a token by which other postponed polls are due later than those of feeds
#: that were never polled. The token would otherwise go to the feed with the smaller id.
NEW_FEED_LEAD_S = 60.0
#: Name of the database notification channel on which other processes announce due feeds.
FEEDS_CHANNEL = "feeds"
#: Interval in seconds of retention runs, which delete old entries.
RETENTION_S = DAY_S
#: Delay in seconds of the first retention run. It is short because some services restart every
#: night.
FIRST_RETENTION_S = 3600.0

HUB_NOTIFIED = reason("hub_notified")

log = Log("tidings.aggregator")
Progress = Callable[[int, int], object]


class PollTotals(Struct, frozen=True):
    """Number of polls, new entries, changed entries and failures of a manual refresh."""

    poll_count: int = 0
    new: int = 0
    changed: int = 0
    failed: int = 0
    skipped: tuple[SkippedPoll, ...] = ()

    def plus(self, poll: PollSummary) -> "PollTotals":
        if poll.skipped is not None:
            return replace(self, skipped=(*self.skipped, poll.skipped))
        return PollTotals(
            self.poll_count + 1,
            self.new + poll.new,
            self.changed + poll.changed,
            self.failed + poll.failed,
            self.skipped,
        )


class Aggregator:
    """Polling loop of the service, with operations for manual polls.

    ``async with`` restores the host pauses and the state of the scheduler from the store, and saves
    the state of the scheduler at the end.
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        scheduler: Scheduler,
        clock: Callable[[], float],
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        retain_days: float = 365.0,
        retain_entries: int = 100,
        worker: str = "",
    ) -> None:
        """Connect the components of the polling loop.

        ``worker`` names this process if several processes share the store, and is empty otherwise.
        ``retain_days`` and ``retain_entries`` control retention.
        """
        self.store, self.fetcher, self.scheduler = store, fetcher, scheduler
        self.polls = PollTasks(
            store, fetcher, scheduler, clock, sleep=sleep, worker=worker, wake=self.wake
        )
        self.poller = Poller(
            store, fetcher, clock, sleep, self.polls.result_writer.wait_for_capacity
        )
        self._clock, self._sleep, self._worker = clock, sleep, worker
        self._retain_days, self._retain_entries = retain_days, retain_entries
        self._max_polls = POLLS_PER_CONNECTION * fetcher.settings.concurrency
        self._wake = asyncio.Event()
        self.is_idle = False  #: whether no feed is due and no poll is running

    async def __aenter__(self) -> "Aggregator":
        now = self._clock()
        for pause in await self.store.paused_hosts():
            self.fetcher.host_limiter.pause(pause.host, pause.until)
        for host, at in (
            await self.store.last_request_times(now - self.fetcher.settings.host_spacing_s)
        ).items():
            self.fetcher.host_limiter.record_request(host, at)
        await self.scheduler.start(self.store, now)
        await self.store.listen(FEEDS_CHANNEL, lambda _: self.wake())
        await self.polls.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.polls.close()
        await self.scheduler.save(self.store, self._clock())

    @property
    def polls_in_flight(self) -> int:
        """Number of polls that have started and whose results are not recorded yet."""
        return len(self.polls.tasks)

    def set_scheduler(self, scheduler: Scheduler) -> None:
        """Replace the scheduler after another process has polled feeds."""
        self.scheduler = self.polls.result_writer.scheduler = scheduler

    def wake(self) -> None:
        """Wake the polling loop because feeds were added or are due sooner."""
        self._wake.set()

    # --- scheduled polls ------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Poll feeds when they are due until ``stop`` is set, then wait for running polls.

        Errors of the store (a database restart, a full disk) are retried with exponential backoff.
        """
        self._retain_at, self._pending_deadline = (
            self._clock() + FIRST_RETENTION_S,
            self._clock() + MAX_PENDING_S,
        )
        failures = 0
        try:
            while not stop.is_set():
                self._wake.clear()
                try:
                    wake_at = await self._run_due_work()
                    failures = 0
                except StoreError as error:
                    failures += 1
                    wake_at = self._clock() + min(2.0**failures, MAX_STORE_BACKOFF_S)
                    log.warning("store_operation_failed", error=str(error), failures=failures)
                await self._wait_until(wake_at, stop)
        finally:
            await self.polls.finish()

    async def _run_due_work(self) -> float:
        """Do all work that is due and return the time at which more work is due."""
        while True:
            now = self._clock()
            if now >= self.scheduler.next_tick:
                async with self.polls.result_writer.policy_lock:
                    await self._reschedule(await self.scheduler.tick(now))
                    await self.scheduler.save(self.store, now)
            if now >= self._retain_at:
                self._retain_at = now + RETENTION_S
                if self.scheduler.is_leader:
                    deleted = await self.store.apply_retention(
                        days=self._retain_days, min_entries=self._retain_entries
                    )
                    log.info("retention_finished", entries=deleted.entries, polls=deleted.polls)
            if await self._start_due_polls(now):
                continue
            next_at = await self._next_at(now)
            if not self.scheduler.has_pending_feeds or (
                next_at <= now + IDLE_S and now < self._pending_deadline
            ):
                return min(next_at, self._retain_at)
            await self._add_pending_feeds(now)
            self._pending_deadline = now + MAX_PENDING_S

    async def _start_due_polls(self, now: float) -> int:
        """Lease due feeds, start their polls and return the number of leased feeds."""
        free = self._max_polls - len(self.polls.tasks)
        if free <= 0:
            return 0
        await self.polls.release_hosts()
        if self._worker and await self._next_at(now) > now + LEASE_RETRY_S:
            return 0  # without due feeds, take no tokens from the shared budget
        granted = await self.scheduler.take_tokens(min(free, BATCH), now)
        if not granted:
            return await self._postpone_until_budget(now)
        leased = await self.store.lease_feeds(granted, lease_s=LEASE_S, worker=self._worker)
        started_count, postponed_schedules = 0, []
        for feed in leased:
            if feed.id in self.polls.tasks:
                continue  # its lease has expired, but its poll still runs
            if self.polls.is_host_busy(feed.url):
                wait_s = MAX_POLLS_PER_HOST * self.fetcher.settings.host_spacing_s
                postponed_schedules.append(
                    Schedule(feed.id, now + wait_s, reason("host_rate_limit"))
                )
            else:
                self._start_poll(feed, feed.state.reason)
                started_count += 1
        if started_count < granted:
            await self.scheduler.consume_budget(started_count - granted, now)
        if postponed_schedules:
            await self.store.reschedule(postponed_schedules)
        return len(leased)

    async def _next_at(self, now: float) -> float:
        """Return the time of the next poll or of the next tick of the scheduler.

        A tick is the periodic work of the policy.
        """
        due = await self.store.next_due()
        if due is not None and due <= now and self._worker:  # another worker has leased the host
            due = now + LEASE_RETRY_S
        return min(self.scheduler.next_tick, now + DAY_S if due is None else due)

    async def _postpone_until_budget(self, now: float) -> int:
        """Postpone each due feed to the time at which the budget has a token for its poll.

        Feeds that were never polled get the first tokens. Returns the number of due feeds, or 1 if
        the budget has tokens again.
        """
        token_times = await self.scheduler.next_token_times(self.store, BATCH, now)
        if not token_times:
            return 1
        # No worker name is passed, so that feeds of hosts leased by others are postponed too.
        leased = await self.store.lease_feeds(BATCH, lease_s=LEASE_S)
        leased.sort(key=lambda feed: feed.state.last_poll_at is not None)
        postponed = [
            Schedule(
                feed.id,
                at + (0.0 if feed.state.last_poll_at is None else NEW_FEED_LEAD_S),
                with_modifier(feed.state.reason, "budget_spent"),
            )
            for feed, at in zip(leased, token_times, strict=False)
        ]
        if postponed:
            await self.store.reschedule(postponed)
            log.info(
                "budget_exhausted",
                waiting=len(postponed),
                until=postponed[-1].next_poll_at,
                budget_per_day=self.scheduler.budget_per_day,
            )
        return len(leased)

    async def _wait_until(self, until: float, stop: asyncio.Event) -> None:
        """Wait until a time, until `wake` is called or until ``stop`` is set."""
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(event)
            for event in (
                self._sleep(max(until - self._clock(), 0.0)),
                self._wake.wait(),
                stop.wait(),
            )
        ]
        self.is_idle = not self.polls.tasks
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        self.is_idle = False
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _add_pending_feeds(self, now: float) -> None:
        async with self.polls.result_writer.policy_lock:
            await self._reschedule(await self.scheduler.add_pending_feeds(self.store, now))

    async def _reschedule(self, schedules: Sequence[Schedule]) -> None:
        """Store new poll times, except for feeds that are being polled or announced by a hub."""
        await self.store.reschedule(
            [
                s
                for s in schedules
                if not self.polls.is_leased(s.feed_id) and s.feed_id not in self.polls.pinged_feeds
            ]
        )

    # --- manual polls and external events -------------------------------------------------------

    async def poll(
        self,
        feed_ids: Sequence[int] | None = None,
        *,
        due: bool = False,
        progress: Progress | None = None,
    ) -> PollTotals:
        """Poll the feeds with the given ids now, and return the totals.

        Without ``feed_ids``, all feeds are polled; with ``due``, only feeds that are due. A manual
        poll ignores the schedule but respects the publisher's poll constraints (Retry-After, ttl,
        skipHours). ``progress`` is called with the number of finished polls and the number of all
        polls.
        """
        now = self._clock()
        allowed_ids, skipped = await self._allowed_polls(feed_ids, now, due=due)
        total, totals = len(allowed_ids) + len(skipped), PollTotals(skipped=tuple(skipped))
        # A queue is cheaper than asyncio.wait on a set of tasks.
        finished_polls: asyncio.Queue[PollSummary] = asyncio.Queue()
        running = 0
        while allowed_ids or running:
            if allowed_ids and (free := min(self._max_polls - len(self.polls.tasks), BATCH)) > 0:
                chunk, allowed_ids = allowed_ids[:free], allowed_ids[free:]
                for feed in await self.store.lease_feeds(
                    len(chunk), lease_s=LEASE_S, feed_ids=chunk
                ):
                    if feed.id not in self.polls.tasks:
                        await self.scheduler.consume_budget(1, now)
                        task = self._start_poll(
                            feed, feed.state.reason if due else reason("manual")
                        )
                        task.add_done_callback(
                            lambda task: (
                                None
                                if task.cancelled()
                                else finished_polls.put_nowait(task.result())
                            )
                        )
                        running += 1
                continue
            totals = totals.plus(await finished_polls.get())
            running -= 1
            if progress is not None:
                progress(totals.poll_count + len(totals.skipped), total)
        if self.scheduler.has_pending_feeds:
            await self._add_pending_feeds(self._clock())
        return totals

    async def _allowed_polls(
        self, feed_ids: Sequence[int] | None, now: float, *, due: bool
    ) -> tuple[list[int], list[SkippedPoll]]:
        """Return the ids of feeds that may be polled now, and the feeds that are skipped.

        The feed that has been due for the longest time comes first. ``due`` selects only due feeds.
        """
        timings = await self.store.timings()
        forbidden = await self.store.forbidden_hours()
        timings = timings[np.argsort(timings["next_poll_at"], kind="stable")]
        if feed_ids is not None:
            timings = timings[np.isin(timings["feed_id"], np.array(feed_ids, dtype=np.int64))]
        if due:
            timings = timings[timings["next_poll_at"] <= now]
        allowed_ids, skipped = [], []
        for feed_id, earliest in timings[["feed_id", "earliest_at"]].tolist():
            if earliest > now:
                skipped.append(
                    SkippedPoll(feed_id, reason("publisher_wait", wait_s=earliest - now))
                )
            elif is_skipped(forbidden.get(feed_id, b""), now):
                skipped.append(SkippedPoll(feed_id, reason("skip_hours")))
            else:
                allowed_ids.append(feed_id)
        for feed_id in set(feed_ids or ()) - set(timings["feed_id"].tolist()) if not due else ():
            feed = await self.store.feed(feed_id)
            skip_reason = (
                reason("retired", text=feed.retired_reason) if feed else reason("no_such_feed")
            )
            skipped.append(SkippedPoll(feed_id, skip_reason))
        return allowed_ids, skipped

    async def handle_fetch_result(self, feed_id: int, result: FetchResult) -> PollSummary:
        """Record the response of an autodiscovery request as the first poll of a new feed."""
        if feed_id in self.polls.tasks:
            return PollSummary()
        (feed,) = await self.store.lease_feeds(1, lease_s=LEASE_S, feed_ids=[feed_id])
        return await self.polls.start_poll(
            feed, partial(self.poller.poll, feed, reason("added_manually"), result)
        )

    async def handle_push(self, feed_id: int, body: bytes, content_type: str) -> int:
        """Record a document that a WebSub hub has pushed, and return the number of new entries.

        Raises `ParseError` if the body is not a feed.
        """
        feed = await self.store.feed(feed_id)
        if feed is None or feed.retired_at is not None:
            return 0
        document = await self.poller.parse(body, content_type, feed.state.self_url or feed.url)
        feed = await self.polls.lease_feed(feed_id)
        return (
            0
            if feed is None
            else (
                await self.polls.start_poll(feed, partial(self.poller.handle_push, feed, document))
            ).new
        )

    async def handle_peer_entries(
        self, feed_id: int, entries: Sequence[Entry], max_delay_s: float, **fields: Any
    ) -> int:
        """Record entries received from peers, and return the number of new entries.

        The next poll is postponed by at most ``max_delay_s`` seconds. ``fields`` are fields of the
        `PollOutcome`; see `Poller.handle_peer_entries`.
        """
        feed = await self.polls.lease_feed(feed_id)
        if feed is None:
            return 0
        poll = partial(
            self.poller.handle_peer_entries,
            feed,
            entries,
            _latest_poll_at(feed, max_delay_s, self._clock()),
            **fields,
        )
        return (await self.polls.start_poll(feed, poll)).new

    async def handle_peer_poll(self, feed_id: int, at: float, max_delay_s: float) -> None:
        """Postpone the next poll of a feed because a peer has polled the feed at the time ``at``.

        The next poll is at most ``max_delay_s`` seconds after the last poll by this service.
        """
        feed = await self.store.feed(feed_id)
        if (
            feed is None
            or feed.retired_at is not None
            or feed_id in self.polls.tasks
            or at <= (feed.state.last_poll_at or at)
        ):
            return
        now, planned = self._clock(), feed.state.next_poll_at
        (decision,) = await self.polls.result_writer.decide(
            [self.poller.peer_poll_observation(feed, at)]
        )
        poll_at = min(max(decision.at, now), _latest_poll_at(feed, max_delay_s, now))
        if decision.estimate is not None:
            await self.store.save_estimates({feed_id: decision.estimate})
        await self._reschedule(
            [
                Schedule(
                    feed_id,
                    poll_at,
                    with_modifier(decision.reason, "peer_polled"),
                    expected_poll_at=planned,
                )
            ]
        )

    async def handle_ping(self, feed_id: int, ping_reason: Reason = HUB_NOTIFIED) -> None:
        """Make a feed due as soon as its server allows, because a hub has announced a new post."""
        feed = await self.store.feed(feed_id)
        if feed is not None and feed.retired_at is None and feed_id not in self.polls.tasks:
            self.polls.pinged_feeds.add(feed_id)
            at = max(self._clock(), feed.state.earliest_at or 0.0)
            await self.store.reschedule([Schedule(feed_id, at, ping_reason)])
            self.wake()

    async def update_weights(self, feed_ids: Sequence[int]) -> None:
        """Apply changed weights, minimum intervals and unsubscriptions of the given feeds.

        The next poll is moved only if it becomes earlier, or if it would violate the minimum
        interval. Other changes take effect after the next poll.
        """
        feeds = {
            feed_id: feed
            for feed_id in feed_ids
            if (feed := await self.store.feed(feed_id)) is not None
        }
        async with self.polls.result_writer.policy_lock:
            for feed in feeds.values():
                if feed.retired_at is not None:
                    self.scheduler.remove_feed(feed.id)
            weights = {feed.id: feed.weight for feed in feeds.values()}
            overrides = {feed.id: feed.min_interval_s for feed in feeds.values()}
            new_schedules = {
                s.feed_id: s
                for s in self.scheduler.update_weights(weights, overrides, self._clock())
            }
            await self._reschedule(
                [
                    s
                    for feed in feeds.values()
                    if (s := self._changed_schedule(feed, new_schedules.get(feed.id)))
                ]
            )
        self.wake()

    def _changed_schedule(self, feed: Feed, new_schedule: Schedule | None) -> Schedule | None:
        """Return the new schedule of a feed whose weight or minimum interval has changed.

        Returns None if the present schedule stays. ``new_schedule`` is the decision of the policy,
        or None if another process plans.
        """
        planned, at = (
            feed.state.next_poll_at,
            None if new_schedule is None else new_schedule.next_poll_at,
        )
        later = postpone_to_min_interval(feed, self.scheduler.limits)
        if later is not None:
            return (
                new_schedule
                if at is not None and later.next_poll_at is not None and at >= later.next_poll_at
                else later
            )
        return new_schedule if at is not None and planned is not None and at < planned else None

    def _start_poll(self, feed: Feed, poll_reason: Reason) -> "asyncio.Task[PollSummary]":
        return self.polls.start_poll(feed, partial(self.poller.poll, feed, poll_reason))


def _latest_poll_at(feed: Feed, max_delay_s: float, now: float) -> float:
    """Return the latest time to which polls by peers may postpone the next poll of a feed.

    A due poll is not postponed. A poll that is already planned for later stays there.
    """
    planned = feed.state.next_poll_at or now
    return (
        planned if planned <= now else max(planned, (feed.state.last_poll_at or now) + max_delay_s)
    )
