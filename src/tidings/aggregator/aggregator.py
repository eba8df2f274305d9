"""The living loop: feeds that are due are claimed, polled, recorded and given their next time, for as long as it runs.

Any number of polls are under way; what they bring is recorded in batches, as many as have finished while the last batch was
written. A claim is a lease: if the process dies, the feeds it held are due again when the lease runs out, and nothing of them
was recorded, or all.
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

#: Polls under way for each that may be asking: the others wait for their host's turn, or are being read.
POLLS_PER_CONNECTION = 2
#: New feeds are made known to the policy when nothing is due for so long, and every so often if that never happens.
IDLE_S = 30.0
MAX_PENDING_S = 600.0
#: So long the loop waits, at most, before it tries a store again that could not be used.
MAX_STORE_BACKOFF_S = 30.0
#: So long a worker waits that found nothing although something is due: another holds the hosts of it.
LEASE_RETRY_S = 0.5
#: On this channel other processes say that there are feeds to be asked.
FEEDS_CHANNEL = "feeds"
#: Old entries are forgotten so often.
RETENTION_S = DAY_S
#: The first time, soon: there are services that are restarted every night.
FIRST_RETENTION_S = 3600.0

HUB_NOTIFIED = reason("hub_notified")

log = Log("tidings.aggregator")
Progress = Callable[[int, int], object]


class PollTotals(Struct, frozen=True):
    """What polling by hand came to."""

    poll_count: int = 0
    new: int = 0
    changed: int = 0
    failed: int = 0
    skipped: tuple[SkippedPoll, ...] = ()

    def plus(self, one: PollSummary) -> "PollTotals":
        if one.skipped is not None:
            return replace(self, skipped=(*self.skipped, one.skipped))
        return PollTotals(
            self.poll_count + 1,
            self.new + one.new,
            self.changed + one.changed,
            self.failed + one.failed,
            self.skipped,
        )


class Aggregator:
    """Use it with ``async with``: that takes up what the last process left."""

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
        """``worker`` is the name of one of several processes that share the store; the only one needs none."""
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
        self.is_idle = False  #: nothing is due, and nothing under way

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
        """Polls that have been begun and not yet recorded."""
        return len(self.polls.tasks)

    def set_scheduler(self, scheduler: Scheduler) -> None:
        """Go on with a brain that knows more."""
        self.scheduler = self.polls.result_writer.scheduler = scheduler

    def wake(self) -> None:
        """Something has changed outside: feeds were added, or are due sooner."""
        self._wake.set()

    # --- by the clock --------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Poll what is due, whenever it is due, until ``stop``; polls under way are then finished.

        A store that cannot be used now (a database that is being restarted, a full disk) is tried again and again.
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
                    rest_until = await self._run_due_work()
                    failures = 0
                except StoreError as error:
                    failures += 1
                    rest_until = self._clock() + min(2.0**failures, MAX_STORE_BACKOFF_S)
                    log.warning(
                        "the store cannot be used; trying again",
                        error=str(error),
                        failures=failures,
                    )
                await self._wait_until(rest_until, stop)
        finally:
            await self.polls.finish()

    async def _run_due_work(self) -> float:
        """Returns when there will be something to do again."""
        while True:
            now = self._clock()
            if now >= self.scheduler.next_tick:
                async with self.polls.result_writer.policy_lock:
                    await self._reschedule(await self.scheduler.tick(now))
                    await self.scheduler.save(self.store, now)
            if now >= self._retain_at:
                self._retain_at = now + RETENTION_S
                if self.scheduler.is_leader:
                    gone = await self.store.apply_retention(
                        days=self._retain_days, min_entries=self._retain_entries
                    )
                    log.info("retained", entries=gone.entries, polls=gone.polls)
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
        """Claim what is due and can be begun; returns how many."""
        free = self._max_polls - len(self.polls.tasks)
        if free <= 0:
            return 0
        await self.polls.release_hosts()
        if self._worker and await self._next_at(now) > now + LEASE_RETRY_S:
            return 0  # do not trouble the budget of all for nothing
        granted = await self.scheduler.take_tokens(min(free, BATCH), now)
        if not granted:
            return await self._postpone_until_budget(now)
        claimed = await self.store.lease_feeds(granted, lease_s=LEASE_S, worker=self._worker)
        started_count, postponed_schedules = 0, []
        for feed in claimed:
            if feed.id in self.polls.tasks:
                continue  # its lease has run out while it waits for its host; it will be recorded
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
        return len(claimed)

    async def _next_at(self, now: float) -> float:
        """When there is something to do."""
        due = await self.store.next_due()
        if due is not None and due <= now and self._worker:  # another worker holds its host
            due = now + LEASE_RETRY_S
        return min(self.scheduler.next_tick, now + DAY_S if due is None else due)

    async def _postpone_until_budget(self, now: float) -> int:
        """All that may be spent is spent: what is due takes its place in line, and says so. Returns 0 if nothing is due."""
        token_times = await self.scheduler.next_token_times(self.store, BATCH, now)
        if not token_times:
            return 1
        claimed = await self.store.lease_feeds(
            BATCH, lease_s=LEASE_S
        )  # whoever holds their hosts: they are only put off
        waits = [
            Schedule(feed.id, at, with_modifier(feed.state.reason, "budget_spent"))
            for feed, at in zip(claimed, token_times, strict=False)
        ]
        if waits:
            await self.store.reschedule(waits)
            log.info(
                "budget spent",
                waiting=len(waits),
                until=waits[-1].next_poll_at,
                budget_per_day=self.scheduler.budget_per_day,
            )
        return len(claimed)

    async def _wait_until(self, until: float, stop: asyncio.Event) -> None:
        """Until then, or until something happens."""
        waits: list[asyncio.Future[object]] = [
            asyncio.ensure_future(what)
            for what in (
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
        """Not those that are being polled, which will have a time of their own, nor those that have news."""
        await self.store.reschedule(
            [
                s
                for s in schedules
                if not self.polls.is_leased(s.feed_id) and s.feed_id not in self.polls.pinged_feeds
            ]
        )

    # --- by hand -------------------------------------------------------------------------------------------------------

    async def poll(
        self,
        feed_ids: Sequence[int] | None = None,
        *,
        due: bool = False,
        progress: Progress | None = None,
    ) -> PollTotals:
        """Poll these feeds, or all, whether ``due`` or not: our own timing gives way, the servers' wishes never do."""
        now = self._clock()
        wanted, skipped = await self._allowed_polls(feed_ids, now, due=due)
        total, totals = len(wanted) + len(skipped), PollTotals(skipped=tuple(skipped))
        done: asyncio.Queue[PollSummary] = (
            asyncio.Queue()
        )  # cheaper than waiting for a set of tasks
        running = 0
        while wanted or running:
            if wanted and (free := min(self._max_polls - len(self.polls.tasks), BATCH)) > 0:
                chunk, wanted = wanted[:free], wanted[free:]
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
                                None if task.cancelled() else done.put_nowait(task.result())
                            )
                        )
                        running += 1
                continue
            totals = totals.plus(await done.get())
            running -= 1
            if progress is not None:
                progress(totals.poll_count + len(totals.skipped), total)
        if self.scheduler.has_pending_feeds:
            await self._add_pending_feeds(self._clock())
        return totals

    async def _allowed_polls(
        self, feed_ids: Sequence[int] | None, now: float, *, due: bool
    ) -> tuple[list[int], list[SkippedPoll]]:
        """Those that may be asked now, longest due first, and why the others may not."""
        timings = await self.store.timings()
        forbidden = await self.store.forbidden_hours()
        timings = timings[np.argsort(timings["next_poll_at"], kind="stable")]
        if feed_ids is not None:
            timings = timings[np.isin(timings["feed_id"], np.array(feed_ids, dtype=np.int64))]
        if due:
            timings = timings[timings["next_poll_at"] <= now]
        wanted, skipped = [], []
        for feed_id, earliest in timings[["feed_id", "earliest_at"]].tolist():
            if earliest > now:
                skipped.append(
                    SkippedPoll(feed_id, reason("publisher_wait", wait_s=earliest - now))
                )
            elif is_skipped(forbidden.get(feed_id, b""), now):
                skipped.append(SkippedPoll(feed_id, reason("skip_hours")))
            else:
                wanted.append(feed_id)
        for feed_id in set(feed_ids or ()) - set(timings["feed_id"].tolist()) if not due else ():
            feed = await self.store.feed(feed_id)
            why = reason("retired", text=feed.retired_reason) if feed else reason("no_such_feed")
            skipped.append(SkippedPoll(feed_id, why))
        return wanted, skipped

    async def handle_fetch_result(self, feed_id: int, result: FetchResult) -> PollSummary:
        """Record an answer that was had by other means: the request by which a new feed was found."""
        if feed_id in self.polls.tasks:
            return PollSummary()
        claimed = await self.store.lease_feeds(1, lease_s=LEASE_S, feed_ids=[feed_id])
        return await self.polls.start_poll(
            claimed[0], partial(self.poller.poll, claimed[0], reason("added_manually"), result)
        )

    async def handle_push(self, feed_id: int, body: bytes, content_type: str) -> int:
        """Record what a hub has sent; returns how many entries were new. `ParseError` if it is no feed."""
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
        """Record what neighbours have told; returns how many entries were new. See `Reader.take_told` and `take_look`."""
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
        """Somebody else has looked at the feed, so that it need not be asked so soon: but for no more than ``bound_s`` after
        our own last look.
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
        then = min(max(decision.at, now), _latest_poll_at(feed, max_delay_s, now))
        if decision.estimate is not None:
            await self.store.save_estimates({feed_id: decision.estimate})
        await self._reschedule(
            [
                Schedule(
                    feed_id,
                    then,
                    with_modifier(decision.reason, "peer_polled"),
                    expected_poll_at=planned,
                )
            ]
        )

    async def handle_ping(self, feed_id: int, why: Reason = HUB_NOTIFIED) -> None:
        """A hub says that there is news: the feed is due as soon as its server's wishes allow."""
        feed = await self.store.feed(feed_id)
        if feed is not None and feed.retired_at is None and feed_id not in self.polls.tasks:
            self.polls.pinged_feeds.add(feed_id)
            at = max(self._clock(), feed.state.earliest_at or 0.0)
            await self.store.reschedule([Schedule(feed_id, at, why)])
            self.wake()

    async def update_weights(self, feed_ids: Sequence[int]) -> None:
        """Take other weights and minimum intervals of these feeds from the store, or that nobody is subscribed any more.

        A feed may be polled sooner than was planned, and is never polled before its minimum interval is over. Otherwise it
        is soon enough to decide after its next poll.
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
            decided = {
                s.feed_id: s
                for s in self.scheduler.update_weights(weights, overrides, self._clock())
            }
            await self._reschedule(
                [
                    s
                    for feed in feeds.values()
                    if (s := self._changed_schedule(feed, decided.get(feed.id)))
                ]
            )
        self.wake()

    def _changed_schedule(self, feed: Feed, decided: Schedule | None) -> Schedule | None:
        """The next poll of a feed whose weight or minimum interval has changed; None where it stays as planned."""
        planned, at = feed.state.next_poll_at, None if decided is None else decided.next_poll_at
        later = postpone_to_min_interval(feed, self.scheduler.limits)
        if later is not None:  # where another process plans, nothing is decided here
            return (
                decided
                if at is not None and later.next_poll_at is not None and at >= later.next_poll_at
                else later
            )
        return decided if at is not None and planned is not None and at < planned else None

    def _start_poll(self, feed: Feed, why: Reason) -> "asyncio.Task[PollSummary]":
        return self.polls.start_poll(feed, partial(self.poller.poll, feed, why))


def _latest_poll_at(feed: Feed, max_delay_s: float, now: float) -> float:
    """Until when others' looks may put off our own: not where it is due, and what was planned anyway may be later."""
    planned = feed.state.next_poll_at or now
    return (
        planned if planned <= now else max(planned, (feed.state.last_poll_at or now) + max_delay_s)
    )
