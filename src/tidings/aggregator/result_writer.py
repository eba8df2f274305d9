"""Polls that finish about the same time are decided on and recorded together: one transaction, one call of the policy.

A poll that finishes alone is recorded at once. Where others are about to finish it waits for them, for a moment.
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

#: Finished polls, and the new entries of those, that are recorded in one transaction. Each makes a segment of SQLite's search
#: index, and writes anew every page of an index in which its rows are strewn: fewer and larger ones cost a quarter less.
BATCH = 100
BATCH_ENTRIES = 750
#: So long a finished poll waits for others to be recorded with: a batch costs the policy what forty feeds in it do.
BATCH_WAIT_S = 0.2

ResultFuture: TypeAlias = "asyncio.Future[tuple[PollOutcome, RecordResult]]"


class ResultWriter:
    """Between those who poll and the store."""

    def __init__(
        self, store: Store, scheduler: Scheduler, sleep: Callable[[float], Awaitable[object]]
    ) -> None:
        self._store, self.scheduler, self._sleep = store, scheduler, sleep
        self.unfinished_polls = 0  #: polls that are asking or reading, and will finish
        #: Held while the policy works in a thread, and from a decision until it is written: nobody may ask the policy or
        #: change next polls meanwhile.
        self.policy_lock = asyncio.Lock()
        self._queue: list[tuple[PollResult, ResultFuture]] = []
        self._entries = 0  # new ones of those
        self._has_capacity = asyncio.Event()
        self._batch_ready = asyncio.Event()
        self._writer_task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Record what is left."""
        if self._writer_task is not None:
            await self._writer_task

    async def decide(self, observations: Sequence[PollObservation]) -> list[Decision]:
        async with self.policy_lock:
            return await self.scheduler.decide(observations)

    async def wait_for_capacity(self) -> None:
        """Wait until little waits to be recorded: what has been read takes many times the memory of the answer."""
        while self._entries >= BATCH_ENTRIES:
            self._has_capacity.clear()
            await self._has_capacity.wait()

    async def record(self, result: PollResult) -> tuple[PollOutcome, RecordResult]:
        """Give the feed its next poll and store all of it; returns what was stored, and what of that was new."""
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
        except Exception as error:  # not lost: handed to each poll that waits for this batch
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), outcome, what in zip(batch, outcomes, recorded, strict=True):
            if not future.done():  # whoever waited for it may have been cancelled
                future.set_result((outcome, what))

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
        """Many polls that brought nothing, or few that brought much: a transaction holds up others and takes memory."""
        entries = size = 0
        while size < min(len(self._queue), BATCH) and entries < BATCH_ENTRIES:
            entries += len(self._queue[size][0].outcome.new)
            size += 1
        batch, self._queue = self._queue[:size], self._queue[size:]
        self._entries -= entries
        self._has_capacity.set()
        return batch


def _complete(result: PollResult, decision: Decision) -> PollOutcome:
    """A poll's effects, with its next time."""
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
