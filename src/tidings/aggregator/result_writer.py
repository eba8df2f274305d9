"""Writer that records finished polls in batches, with one transaction per batch.

Before a batch is stored, the scheduler decides the next poll of each feed. A poll is recorded
immediately if no other poll is running; otherwise it waits up to `BATCH_WAIT_S` for other polls.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec.structs import asdict, replace

from tidings.aggregator.poll_observation import Decision, PollObservation
from tidings.aggregator.poller import PollResult
from tidings.aggregator.retry import retry_on_store_error
from tidings.aggregator.scheduler import Scheduler
from tidings.policy.constraints import STATED_MAX_S
from tidings.reasons import with_modifier
from tidings.redaction import redact_password
from tidings.store import Store
from tidings.store.feed_models import PollOutcome, RecordResult

#: Maximum number of polls in a batch. Each transaction adds a segment to SQLite's search index and
#: rewrites every index page that contains one of its rows, so large batches cost a quarter less.
BATCH = 100
#: Number of new entries at which a batch is written without waiting for more polls.
BATCH_ENTRIES = 750
#: Maximum time in seconds that a finished poll waits for its batch. Batches save time because each
#: call of the policy has a fixed cost, which is as high as the cost of forty feeds.
BATCH_WAIT_S = 0.2

ResultFuture: TypeAlias = "asyncio.Future[tuple[PollOutcome, RecordResult]]"


class ResultWriter:
    """Queue of finished polls, from which batches are decided and stored."""

    def __init__(
        self, store: Store, scheduler: Scheduler, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._store, self.scheduler, self._sleep = store, scheduler, sleep
        self.unfinished_polls = 0  #: number of polls that are fetching or parsing
        #: Lock for the policy and for poll times. A task has this lock while the policy runs in a
        #: thread, and from a decision until that decision is stored.
        self.policy_lock = asyncio.Lock()
        self._queue: list[tuple[PollResult, ResultFuture]] = []
        self._entries = 0  # number of new entries of all queued polls
        self._has_capacity = asyncio.Event()
        self._batch_ready = asyncio.Event()
        self._writer_task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Wait until all queued polls are recorded."""
        if self._writer_task is not None:
            await self._writer_task

    async def decide(self, observations: Sequence[PollObservation]) -> list[Decision]:
        async with self.policy_lock:
            return await self.scheduler.decide(observations)

    async def wait_for_capacity(self) -> None:
        """Wait until the queue has fewer than `BATCH_ENTRIES` new entries (backpressure).

        A parsed document takes many times the memory of the response.
        """
        while self._entries >= BATCH_ENTRIES:
            self._has_capacity.clear()
            await self._has_capacity.wait()

    async def record(self, result: PollResult) -> tuple[PollOutcome, RecordResult]:
        """Decide the feed's next poll and store the result of the finished poll.

        Returns the stored outcome with the decision, and the ids that the store has assigned.
        """
        future: ResultFuture = asyncio.get_running_loop().create_future()
        self._queue.append((result, future))
        self._entries += len(result.outcome.new)
        if self._writer_task is None or self._writer_task.done():
            self._writer_task = asyncio.create_task(self._record_all())
        if self._is_batch_ready():
            self._batch_ready.set()
        return await future

    def _is_batch_ready(self) -> bool:
        return (
            not self.unfinished_polls or len(self._queue) >= BATCH or self._entries >= BATCH_ENTRIES
        )

    async def _record_all(self) -> None:
        while self._queue:
            if not self._is_batch_ready():
                self._batch_ready.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._batch_ready.wait(), BATCH_WAIT_S)
            batch = self._next_batch()
            async with self.policy_lock:
                await self._finish(batch)

    async def _finish(self, batch: Sequence[tuple[PollResult, ResultFuture]]) -> None:
        try:
            outcomes, recorded = await self._persist([result for result, _ in batch])
        except Exception as error:  # each poll that waits for this batch gets the error
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), outcome, record_result in zip(batch, outcomes, recorded, strict=True):
            if not future.done():  # the waiting task may have been stopped
                future.set_result((outcome, record_result))

    async def _persist(
        self, batch: Sequence[PollResult]
    ) -> tuple[list[PollOutcome], list[RecordResult]]:
        decisions = await retry_on_store_error(
            lambda: self.scheduler.decide([result.observation for result in batch]), self._sleep
        )
        outcomes = [
            _complete(result, decision) for result, decision in zip(batch, decisions, strict=True)
        ]
        return outcomes, await retry_on_store_error(
            lambda: self._store.record(outcomes), self._sleep
        )

    def _next_batch(self) -> list[tuple[PollResult, ResultFuture]]:
        """Remove the next batch from the queue and return it.

        The size is limited because a long transaction blocks other transactions and takes memory.
        """
        entries = size = 0
        while size < min(len(self._queue), BATCH) and entries < BATCH_ENTRIES:
            entries += len(self._queue[size][0].outcome.new)
            size += 1
        batch, self._queue = self._queue[:size], self._queue[size:]
        self._entries -= entries
        self._has_capacity.set()
        return batch


def _complete(result: PollResult, decision: Decision) -> PollOutcome:
    """Return the outcome of a poll completed with the decision about the next poll."""
    outcome = result.outcome
    assert outcome.state is not None
    reason = decision.reason
    if outcome.new_url:
        reason = with_modifier(reason, "feed_moved", url=redact_password(outcome.new_url))
    state = replace(outcome.state, next_poll_at=min(decision.at, result.latest), reason=reason)
    if (learned := decision.learned) is not None:
        until = outcome.at + min(learned.stated_s, STATED_MAX_S) if learned.stated_s else None
        state = replace(state, earliest_at=until, **asdict(learned))
    return replace(outcome, state=state, estimate=decision.estimate)
