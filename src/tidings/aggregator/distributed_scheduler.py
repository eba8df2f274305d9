"""Scheduler for several workers that share one policy whose state is in the database.

A worker decides for the feeds that it has just polled: it loads their policy rows and the shared
state (price of a poll, common weekly profiles), observes, decides, and stores the rows together
with the poll results. One process at a time is the leader: at each tick it loads all feeds, adjusts
the price, and reschedules feeds whose next poll becomes earlier. No process keeps state that is not
in the store, so any other can take over.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from tidings.aggregator.budget import effective_budget
from tidings.aggregator.poll_observation import Decision, PollObservation
from tidings.aggregator.scheduler import GROWTH_FACTOR, STATE_KEY, Scheduler
from tidings.config import Budget
from tidings.logs import Log
from tidings.model import DAY_S
from tidings.policy import Policy
from tidings.policy.constraints import DEFAULT_LIMITS, Limits
from tidings.store import Store
from tidings.store.feed_models import Schedule
from tidings.store.token_bucket import BYTES

#: Interval in seconds of leader election and of the leader's checks for work.
LEADER_CHECK_S = 15.0
#: Key of the stored number of polls by peers, counted by the one process that has peers.
PEER_POLLS_COUNTED_KEY = "looks_heard"
#: Key of the stored number of polls by peers that the policy has already taken into account.
PEER_POLLS_APPLIED_KEY = "looks_told"
#: Maximum age in seconds of a worker's copy of the shared state. The price changes only every four
#: hours.
MAX_SHARED_STATE_AGE_S = 30.0

log = Log("tidings.scheduler")


class DistributedScheduler(Scheduler):
    """Scheduler of one process among several that share a database."""

    def __init__(
        self,
        make_policy: Callable[[], Policy],
        budget: Budget,
        store: Store,
        limits: Limits = DEFAULT_LIMITS,
        bytes_per_day: float = np.inf,
    ) -> None:
        super().__init__(make_policy(), budget, limits=limits, bytes_per_day=bytes_per_day)
        self._make_policy, self._store = make_policy, store
        self._refreshed_at = -float("inf")
        self._shared: bytes = b""
        self._peer_poll_count = 0

    async def start(self, store: Store, now: float) -> None:
        await self._refresh(now)
        self._peer_poll_count = int((await store.load_values()).get(PEER_POLLS_COUNTED_KEY, b"0"))
        self.next_tick = now

    async def save(self, store: Store, now: float) -> None:
        """Do nothing, because all state is already in the store."""

    async def _refresh(self, now: float) -> None:
        """Load the shared state that the leader has stored."""
        shared = await self._store.load_values()
        self._refreshed_at, self._shared = now, shared.get("policy", b"")
        state = self.decode_state(shared)
        self.budget = effective_budget(shared, self.configured)
        if state is not None and state.poll_bytes.polls > self.poll_bytes.polls:
            self.poll_bytes = state.poll_bytes
        self._feed_count = len(await self._store.timings()) if state is None else state.feeds

    async def decide(self, observations: Sequence[PollObservation]) -> list[Decision]:
        """Decide the next polls of the observed feeds with a temporary scheduler.

        The temporary scheduler contains only the observed feeds.
        """
        now = max(observation.at for observation in observations)
        if now - self._refreshed_at > MAX_SHARED_STATE_AGE_S:
            await self._refresh(now)
        partial_scheduler = self._local_scheduler()
        partial_scheduler.set_feed_count(self._feed_count)
        if self._shared:
            saved = await self._store.estimates(
                self.policy.name, [observation.feed_id for observation in observations]
            )
            partial_scheduler.restore_feeds(observations, saved, self._shared, now)
            self.policy.participation = partial_scheduler.policy.participation
        await self.consume_byte_budget(
            [observation.bytes for observation in observations if observation.bytes is not None],
            now,
        )
        return await partial_scheduler.decide_with_new_feeds(observations, now)

    def _local_scheduler(self) -> Scheduler:
        """Return a temporary scheduler that keeps its state in the memory of this process."""
        return Scheduler(
            self._make_policy(),
            self.budget,
            limits=self.limits,
            bytes_per_day=self.bytes_per_day,
            seed=self.seed,
        )

    async def count_peer_poll(self) -> None:
        self._peer_poll_count += 1
        await self._store.save_values({PEER_POLLS_COUNTED_KEY: str(self._peer_poll_count).encode()})

    # --- budget in the store --------------------------------------------------------------------

    async def take_tokens(self, max_tokens: int, now: float) -> int:
        if await self._missing_bytes() > 0:
            return 0
        return await self._store.take_tokens(max_tokens, self.budget_per_day)

    async def consume_byte_budget(self, polls: Sequence[int], now: float) -> None:
        self.poll_bytes = self.poll_bytes.after(polls)
        if np.isfinite(self.bytes_per_day):
            await self._store.consume_budget(sum(polls), BYTES)

    async def _missing_bytes(self) -> float:
        return (
            await self._store.token_deficit(self.bytes_per_day, BYTES)
            if np.isfinite(self.bytes_per_day)
            else 0.0
        )

    async def consume_budget(
        self, requests: int, now: float, *, outside_polls: bool = False
    ) -> None:
        await self._store.consume_budget(requests)

    async def next_token_times(self, store: Store, queue_length: int, now: float) -> list[float]:
        await self._refresh(now)
        if (byte_deficit := await self._missing_bytes()) > 0:
            mean = self.poll_bytes.mean
            return [
                now + (byte_deficit + position * mean) * DAY_S / self.bytes_per_day
                for position in range(queue_length)
            ]
        token_deficit = await self._store.token_deficit(self.budget_per_day)
        return (
            [
                now + (token_deficit + position) * DAY_S / self.budget_per_day
                for position in range(queue_length)
            ]
            if token_deficit > 0
            else []
        )

    async def change_budget(self, store: Store, budget: Budget, now: float) -> None:
        """Change the budget. The leader computes the new price at its next check."""
        await super().change_budget(store, budget, now)
        state = self.decode_state(await store.load_values())
        if state is not None:
            await store.save_values({STATE_KEY: msgspec.json.encode(replace(state, next_tick=now))})

    # --- leader ---------------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Schedule]:
        """Add new feeds and adjust the price if this process is the leader and a tick is due.

        Returns the new schedules of feeds whose next poll is moved.
        """
        self.next_tick = now + LEADER_CHECK_S
        self.is_leader = await self._store.acquire_leadership()
        if not self.is_leader or not await self._is_tick_due(now):
            return []
        timings = await self._store.timings()
        expected_poll_at = dict(
            zip(timings["feed_id"].tolist(), timings["next_poll_at"].tolist(), strict=True)
        )
        full_scheduler = self._local_scheduler()
        await full_scheduler.start(self._store, now)
        full_scheduler.poll_bytes = self.poll_bytes
        schedules = (
            await full_scheduler.add_pending_feeds(self._store, now)
            if full_scheduler.has_pending_feeds
            else []
        )
        if now >= full_scheduler.next_tick:
            shared = await self._store.load_values()
            full_scheduler.policy.peer_polls = int(shared.get(PEER_POLLS_COUNTED_KEY, b"0")) - int(
                shared.get(PEER_POLLS_APPLIED_KEY, b"0")
            )
            schedules += await full_scheduler.tick(now)
            await self._store.save_values(
                {PEER_POLLS_APPLIED_KEY: shared.get(PEER_POLLS_COUNTED_KEY, b"0")}
            )
            await full_scheduler.save_rows(self._store, [s.feed_id for s in schedules], now)
        await full_scheduler.save(self._store, now)
        await self._refresh(now)
        log.info(
            "tick_finished",
            feeds=len(expected_poll_at),
            rescheduled=len(schedules),
            next_tick=full_scheduler.next_tick,
        )
        return [replace(s, expected_poll_at=expected_poll_at.get(s.feed_id)) for s in schedules]

    async def _is_tick_due(self, now: float) -> bool:
        state = self.decode_state(await self._store.load_values())
        if state is None or now >= state.next_tick:
            return True
        return await self._store.count_estimates(self.policy.name) > GROWTH_FACTOR * max(
            state.learned, 1
        )
