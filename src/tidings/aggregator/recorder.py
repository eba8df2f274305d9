"""Polls that finish about the same time are decided on and recorded together: one transaction, one call of the policy.

A poll that finishes alone is recorded at once. Where others are about to finish it waits for them, for a moment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from msgspec.structs import asdict, replace

from tidings.aggregator.brain import Brain
from tidings.aggregator.looks import Decision, Look
from tidings.aggregator.patience import insist
from tidings.aggregator.reader import Seen
from tidings.policy.constraints import STATED_MAX_S
from tidings.privacy import without_password
from tidings.reasons import modified
from tidings.store import Store
from tidings.store.rows import PollOutcome, Recorded

#: Finished polls, and the new entries of those, that are recorded in one transaction. Each makes a segment of SQLite's search
#: index, and writes anew every page of an index in which its rows are strewn: fewer and larger ones cost a quarter less.
BATCH = 100
BATCH_ENTRIES = 750
#: So long a finished poll waits for others to be recorded with: a batch costs the policy what forty feeds in it do.
TOGETHER_S = 0.2

Finished: TypeAlias = "asyncio.Future[tuple[PollOutcome, Recorded]]"


class Recorder:
    """Between those who poll and the store."""

    def __init__(self, store: Store, brain: Brain, sleep: Callable[[float], Awaitable[object]]) -> None:
        self._store, self.brain, self._sleep = store, brain, sleep
        self.looking = 0  #: polls that are asking or reading, and will finish
        #: Held while the policy works in a thread, and from a decision until it is written: nobody may ask the policy or
        #: change next polls meanwhile.
        self.thinking = asyncio.Lock()
        self._finished: list[tuple[Seen, Finished]] = []
        self._entries = 0  # new ones of those
        self._room = asyncio.Event()
        self._enough = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Record what is left."""
        if self._work is not None:
            await self._work

    async def decide(self, looks: Sequence[Look]) -> list[Decision]:
        async with self.thinking:
            return await self.brain.decide(looks)

    async def room(self) -> None:
        """Wait until little waits to be recorded: what has been read takes many times the memory of the answer."""
        while self._entries >= BATCH_ENTRIES:
            self._room.clear()
            await self._room.wait()

    async def record(self, seen: Seen) -> tuple[PollOutcome, Recorded]:
        """Give the feed its next poll and store all of it; returns what was stored, and what of that was new."""
        finished: Finished = asyncio.get_running_loop().create_future()
        self._finished.append((seen, finished))
        self._entries += len(seen.outcome.new)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._record_all())
        if self._is_enough():
            self._enough.set()
        return await finished

    def _is_enough(self) -> bool:
        return not self.looking or len(self._finished) >= BATCH or self._entries >= BATCH_ENTRIES

    async def _record_all(self) -> None:
        while self._finished:
            if not self._is_enough():
                self._enough.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._enough.wait(), TOGETHER_S)
            batch = self._next_batch()
            async with self.thinking:
                await self._finish(batch)

    async def _finish(self, batch: Sequence[tuple[Seen, Finished]]) -> None:
        try:
            outcomes, recorded = await self._persist([seen for seen, _ in batch])
        except Exception as error:  # not lost: handed to each poll that waits for this batch
            for _, finished in batch:
                if not finished.done():
                    finished.set_exception(error)
            return
        for (_, finished), outcome, what in zip(batch, outcomes, recorded, strict=True):
            if not finished.done():  # whoever waited for it may have been cancelled
                finished.set_result((outcome, what))

    async def _persist(self, batch: Sequence[Seen]) -> tuple[list[PollOutcome], list[Recorded]]:
        decisions = await insist(lambda: self.brain.decide([seen.look for seen in batch]), self._sleep)
        outcomes = [_complete(seen, decision) for seen, decision in zip(batch, decisions, strict=True)]
        return outcomes, await insist(lambda: self._store.record(outcomes), self._sleep)

    def _next_batch(self) -> list[tuple[Seen, Finished]]:
        """Many polls that brought nothing, or few that brought much: a transaction holds up others and takes memory."""
        entries = size = 0
        while size < min(len(self._finished), BATCH) and entries < BATCH_ENTRIES:
            entries += len(self._finished[size][0].outcome.new)
            size += 1
        batch, self._finished = self._finished[:size], self._finished[size:]
        self._entries -= entries
        self._room.set()
        return batch


def _complete(seen: Seen, decision: Decision) -> PollOutcome:
    """A poll's effects, with its next time."""
    outcome = seen.outcome
    assert outcome.state is not None
    reason = decision.reason
    if outcome.adopt_url:
        reason = modified(reason, "feed_moved", url=without_password(outcome.adopt_url))
    state = replace(outcome.state, next_poll_at=min(decision.at, seen.latest), reason=reason)
    if (learned := decision.learned) is not None:
        until = outcome.at + min(learned.stated_s, STATED_MAX_S) if learned.stated_s else None
        state = replace(state, earliest_at=until, **asdict(learned))
    return replace(outcome, state=state, estimate=decision.estimate)
