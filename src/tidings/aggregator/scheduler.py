"""Scheduler that runs the policy and decides the next poll of each feed with its reason.

It makes the same calls in the same order as the simulator does with a trace: `observe` and `decide`
after every poll, `tick` at its interval, times in whole seconds. A feed is added to the policy
after its first document. Since new feeds often come in large numbers, they are pending until the
loop is idle (`add_pending_feeds`) and have a provisional schedule until then.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from tidings.aggregator.budget import (
    BUDGET_OVERRIDE_KEY,
    BudgetOverride,
    MeanBytes,
    TokenBucket,
    effective_budget,
)
from tidings.aggregator.planner import MIN_GAP_S, ConstraintBatch, PendingFeed, Planner
from tidings.aggregator.poll_observation import (
    Decision,
    PollObservation,
    observation_from_timing,
    posting_history,
)
from tidings.config import Budget
from tidings.memory import trim_heap
from tidings.model import DAY_S
from tidings.policy import Policy
from tidings.policy.constraints import DEFAULT_LIMITS, Limits
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.feed_models import Schedule

#: Factor by which the number of feeds must grow for the leader to run a tick early, so that the
#: policy adjusts its price.
GROWTH_FACTOR = 1.2
#: Relative change of the usable budget above which the policy is given the new budget. The budget
#: changes with the number of feeds.
BUDGET_TOLERANCE = 0.05
#: Key of the stored `SchedulerState`.
STATE_KEY = "brain"


class SchedulerState(Struct, frozen=True):
    """State of the scheduler that survives a restart, except for the state of the policy."""

    next_tick: float
    saved_at: float
    tokens: float
    feeds: int = 0  #: number of feeds that have subscribers
    learned: int = 0  #: number of feeds that the policy knows
    #: Number of polls since the policy's last tick. The stored key is that of earlier versions.
    unreported_polls: int = field(default=0, name="untold")
    per_day: float = 0.0  #: daily budget for which `tokens` was computed
    poll_bytes: MeanBytes = MeanBytes()
    byte_tokens: float | None = None


class Scheduler:
    """Owner of the scheduling policy and of the request budget. It is not thread-safe."""

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        *,
        limits: Limits = DEFAULT_LIMITS,
        bytes_per_day: float = np.inf,
        seed: int = 0,
    ) -> None:
        """Create a scheduler with full token buckets.

        ``bytes_per_day`` limits the transfer of polls, in addition to the request budget.
        """
        self.policy, self.seed = policy, seed
        self.configured = self.budget = budget  #: configured budget, and the budget in effect
        self.limits, self.bytes_per_day = limits, bytes_per_day
        self.byte_bucket = TokenBucket.full(bytes_per_day, 0.0)
        self.poll_bytes = MeanBytes()
        self.bucket = TokenBucket.full(budget.per_day(0), 0.0)
        self.next_tick = np.inf
        self.is_leader = True  #: whether this process does the work that concerns all processes
        self._planner = Planner(policy, limits, seed)
        self._pending_feeds: dict[int, PendingFeed] = {}
        self._needs_relearning = False  # whether the policy must learn all feeds from the store
        self._budget_changed = False
        self._poll_count = 0  # number of polls since the policy was started or restored
        self._reported_polls = 0  # value of `_poll_count` at the last tick of the policy
        self._feed_count = 0

    @property
    def started(self) -> bool:
        """Whether the policy has been started and can decide."""
        return self._planner.ready

    @property
    def has_pending_feeds(self) -> bool:
        """Whether there are feeds with a provisional schedule."""
        return self._needs_relearning or bool(self._pending_feeds)

    @property
    def budget_per_day(self) -> float:
        """Number of requests per day that the request budget and the byte budget allow.

        The byte budget is converted with the mean number of bytes per poll.
        """
        requests = self.budget.per_day(
            max(self._feed_count, len(self._planner.row) + len(self._pending_feeds))
        )
        return min(requests, max(self.bytes_per_day / max(self.poll_bytes.mean, 1.0), 1.0))

    # --- budget ---------------------------------------------------------------------------------

    async def take_tokens(self, max_tokens: int, now: float) -> int:
        """Take up to ``max_tokens`` tokens from the budget and return the number of tokens taken.

        Return unused tokens with a negative `consume_budget`.
        """
        if not self._has_bytes(now):
            return 0
        granted = min(max_tokens, self.bucket.available(now))
        self.bucket.consume(granted, now)
        return granted

    async def consume_budget(
        self, requests: int, now: float, *, outside_polls: bool = False
    ) -> None:
        """Count requests that were made without `take_tokens`.

        A negative number returns unused tokens. ``outside_polls`` marks requests that are no polls
        (to archives, for autodiscovery).
        """
        self.bucket.consume(requests, now)
        self._poll_count += requests * outside_polls

    async def next_token_times(self, store: Store, queue_length: int, now: float) -> list[float]:
        """Return the times at which the next ``queue_length`` tokens become available.

        The list is empty if a token is available now.
        """
        self._feed_count = len(await store.timings())  # a budget per feed grows with new feeds
        self.bucket.set_budget(self.budget_per_day, now)
        if not self._has_bytes(now):
            return [
                self.byte_bucket.ready_at(now, position * self.poll_bytes.mean)
                for position in range(queue_length)
            ]
        return (
            []
            if self.bucket.available(now)
            else [self.bucket.ready_at(now, position) for position in range(queue_length)]
        )

    def _has_bytes(self, now: float) -> bool:
        return np.isinf(self.bytes_per_day) or self.byte_bucket.available(now) > 0

    async def consume_byte_budget(self, polls: Sequence[int], now: float) -> None:
        """Count the bytes that polls have transferred. ``polls`` has one number per poll."""
        self.poll_bytes = self.poll_bytes.after(polls)
        if np.isfinite(self.bytes_per_day):
            self.byte_bucket.consume(sum(polls), now)

    async def change_budget(self, store: Store, budget: Budget, now: float) -> None:
        """Change the budget at run time.

        The next tick reschedules all feeds and is due immediately.
        """
        await store.save_values(
            {BUDGET_OVERRIDE_KEY: msgspec.json.encode(BudgetOverride(budget, self.configured))}
        )
        self.budget, self._budget_changed, self.next_tick = budget, True, now

    # --- start and save -------------------------------------------------------------------------

    async def start(self, store: Store, now: float) -> None:
        """Restore the state from the store.

        If no usable state is stored, `add_pending_feeds` starts the policy.
        """
        timings = await store.timings()
        members = timings[timings["window"] > 0]
        saved = await store.estimates(self.policy.name)
        shared = await store.load_values()
        forbidden = await store.forbidden_hours()
        size = self.policy.row_dtype.itemsize
        estimated = np.array(
            [len(saved.get(int(i), b"")) == size for i in members["feed_id"]], dtype=np.bool_
        )
        state = self.decode_state(shared)
        self.budget = effective_budget(shared, self.configured)
        # The table of polls has the requests that a killed process made after it saved its state.
        spent_since = now - DAY_S if state is None else state.saved_at
        spent = await store.polls_since(spent_since)
        self._feed_count = len(timings)
        per_day = self.budget.per_day(len(timings))
        self.bucket = (
            TokenBucket.full(per_day, spent_since)
            if state is None
            else TokenBucket(state.per_day, state.tokens, spent_since)
        )
        self.bucket.set_budget(per_day, spent_since)  # feeds may have been added since
        self.bucket.consume(spent, now)
        if state is not None:
            self.poll_bytes = state.poll_bytes
            if state.byte_tokens is not None:
                self.byte_bucket = TokenBucket(
                    self.bytes_per_day, min(state.byte_tokens, self.bytes_per_day), spent_since
                )
        if not len(members):
            return
        if self.policy.extends and "policy" in shared and estimated.mean() > 0.5:
            if await self._restore(
                store, members, estimated, saved, shared["policy"], forbidden, now
            ):
                self.next_tick = now + self.policy.tick_s if state is None else state.next_tick
                self._poll_count = 0 if state is None else spent + state.unreported_polls
            else:
                self._needs_relearning = True
        elif not self.policy.extends and estimated.any():
            await self._start_policy(store, members, forbidden, now)
            for feed_id in members["feed_id"][estimated].tolist():
                self.policy.load_row(self._planner.row[feed_id], saved[feed_id])
        else:
            self._needs_relearning = True

    @staticmethod
    def decode_state(shared: Mapping[str, bytes]) -> SchedulerState | None:
        """Return the state that `save` has stored, or None if it is missing or invalid."""
        try:
            return (
                msgspec.json.decode(shared[STATE_KEY], type=SchedulerState)
                if STATE_KEY in shared
                else None
            )
        except msgspec.DecodeError:
            return None

    async def save(self, store: Store, now: float) -> None:
        """Store the state that belongs to no single feed."""
        state = SchedulerState(
            next_tick=self.next_tick,
            saved_at=now,
            tokens=self.bucket.tokens,
            feeds=self._feed_count,
            learned=len(self._planner.row),
            unreported_polls=self._poll_count - self._reported_polls,
            per_day=self.bucket.per_day,
            poll_bytes=self.poll_bytes,
            byte_tokens=self.byte_bucket.tokens if np.isfinite(self.bytes_per_day) else None,
        )
        values = {STATE_KEY: msgspec.json.encode(state)}
        if self.started and self.policy.extends:
            values["policy"] = self.policy.save_shared_state()
        await store.save_values(values)

    async def _start_policy(
        self, store: Store, members: np.ndarray, forbidden: dict[int, bytes], now: float
    ) -> None:
        """Start the policy with all feeds and posts of the store."""
        history, since = await posting_history(store, members, now)
        self._planner.assign_rows(members["feed_id"].tolist())
        # This must precede the start of the policy, because other tasks can read its price at once.
        self.bucket.set_budget(self.budget_per_day, now)
        await self._planner.start(members, forbidden, history, since, self.budget_per_day, now)
        self._needs_relearning, self._poll_count, self._reported_polls, self.next_tick = (
            False,
            0,
            0,
            now + self.policy.tick_s,
        )

    async def _restore(
        self,
        store: Store,
        members: np.ndarray,
        estimated: np.ndarray,
        saved: dict[int, bytes],
        shared: bytes,
        forbidden: dict[int, bytes],
        now: float,
    ) -> bool:
        """Restore the saved state of the policy, and return whether that state was valid.

        Feeds without a saved state become pending.
        """
        known = members[estimated]
        ids, table = known["feed_id"].tolist(), self._planner.table(known, forbidden, now)
        if not self._planner.restore(ids, table, saved, shared, self.budget_per_day, now):
            return False
        others = members[~estimated]
        if len(others):
            history, _ = await posting_history(store, others, now)
            for i, timing in enumerate(others):
                times = history.times[history.first[i] : history.end[i]]
                observation = observation_from_timing(
                    timing, forbidden.get(int(timing["feed_id"]), b""), now
                )
                self._pending_feeds[observation.feed_id] = PendingFeed(observation, times.copy())
        return True

    def restore_feeds(
        self,
        observations: Sequence[PollObservation],
        saved: Mapping[int, bytes],
        shared: bytes,
        now: float,
    ) -> None:
        """Restore the policy's state of the observed feeds only, which this process has leased."""
        size = self.policy.row_dtype.itemsize
        known = [
            observation
            for observation in observations
            if len(saved.get(observation.feed_id, b"")) == size
        ]
        ids = [observation.feed_id for observation in known]
        table = self._planner.feeds(
            ids,
            [observation.window for observation in known],
            [observation.weight for observation in known],
        )
        # If the state is invalid, the leader will learn the feeds again.
        self._planner.restore(ids, table, saved, shared, None, now)

    async def decide_with_new_feeds(
        self, observations: Sequence[PollObservation], now: float
    ) -> list[Decision]:
        """Decide as `decide` does, but add pending feeds to the policy immediately."""
        decisions = await self.decide(observations)
        if not self.started or not self._pending_feeds:
            return decisions
        pending_feeds, self._pending_feeds = list(self._pending_feeds.values()), {}
        rows = await self._planner.extend(pending_feeds, now)
        poll_times = np.array([pending_feed.observation.at for pending_feed in pending_feeds])
        schedule_by_feed = {
            schedule.feed_id: schedule
            for schedule in self._planner.schedules(rows, poll_times, now, first=True)
        }
        return [
            replace(
                decision,
                at=s.next_poll_at,
                reason=s.reason,
                estimate=self._planner.estimate(s.feed_id),
            )
            if (s := schedule_by_feed.get(observation.feed_id)) is not None
            and s.next_poll_at is not None
            else decision
            for observation, decision in zip(observations, decisions, strict=True)
        ]

    def set_feed_count(self, feeds: int) -> None:
        """Set the total number of feeds, whether the policy knows them or not."""
        self._feed_count = feeds

    # --- after polls ----------------------------------------------------------------------------

    async def decide(self, observations: Sequence[PollObservation]) -> list[Decision]:
        """Learn from a batch of polls of different feeds, and decide the next poll of each feed."""
        constraint_batch = self._planner.apply_observations(observations)
        await self.consume_byte_budget(
            [observation.bytes for observation in observations if observation.bytes is not None],
            observations[-1].at if observations else 0.0,
        )
        for observation in observations:
            self._poll_count += observation.count
            if observation.times is not None and observation.feed_id not in self._planner.row:
                self._pending_feeds[observation.feed_id] = PendingFeed(
                    observation, observation.times
                )
        known = [
            observation for observation in observations if observation.feed_id in self._planner.row
        ]
        if known:
            self._planner.observe([observation for observation in known if observation.ok])
        rows = np.array(
            [self._planner.row[observation.feed_id] for observation in known], dtype=np.intp
        )
        schedules = (
            self._planner.schedules(rows, np.array([observation.at for observation in known]))
            if known
            else []
        )
        schedule_by_feed = {schedule.feed_id: schedule for schedule in schedules}
        return [
            self._decision(
                observation, schedule_by_feed.get(observation.feed_id), constraint_batch, i
            )
            for i, observation in enumerate(observations)
        ]

    def _decision(
        self,
        observation: PollObservation,
        schedule: Schedule | None,
        constraint_batch: ConstraintBatch,
        i: int,
    ) -> Decision:
        learned = (
            constraint_batch.learned(i)
            if observation.ok and observation.bytes is not None
            else None
        )
        if schedule is None or schedule.next_poll_at is None:
            return replace(self._provisional(observation, constraint_batch, i), learned=learned)
        estimate = self._planner.estimate(observation.feed_id)
        return Decision(schedule.next_poll_at, schedule.reason, estimate, learned)

    def _provisional(
        self, observation: PollObservation, constraint_batch: ConstraintBatch, i: int
    ) -> Decision:
        """Decide the next poll of a feed that the policy does not know yet.

        The feed gets an even share of the budget.
        """
        earliest = float(constraint_batch.constraints.earliest[i])
        constraint_reason = self._planner.constraint_reason(
            observation.feed_id, constraint_batch, i
        )
        if not observation.ok:
            at = max(earliest, observation.at + MIN_GAP_S)
            return Decision(float(np.ceil(at)), constraint_reason)
        feeds = len(self._planner.row) + len(self._pending_feeds)
        even_s = min(max(DAY_S * feeds / max(self.budget_per_day, 1e-9), MIN_GAP_S), DAY_S)
        at = observation.at + even_s * (0.5 + self._planner.phase(observation.feed_id))
        if at <= earliest:
            return Decision(float(np.ceil(earliest)), constraint_reason)
        return Decision(float(np.ceil(at)), reason("new_feed"))

    async def count_peer_poll(self) -> None:
        """Count a poll that a peer has made of a feed of this service."""
        self.policy.peer_polls += 1

    # --- periodic work and changes --------------------------------------------------------------

    async def tick(self, now: float) -> list[Schedule]:
        """Run the periodic work of the policy and return the schedules that have changed."""
        due = self.next_tick
        while self.next_tick <= now:
            self.next_tick += self.policy.tick_s
        if not self.started:
            return []
        self._reported_polls = self._poll_count
        if self._budget_changed:
            return await self._replan(now)
        await self._adjust_budget(now)
        rows = await asyncio.to_thread(
            self.policy.tick, due if now - due < MIN_GAP_S else now, self._poll_count
        )
        if rows is None or not len(rows):
            return []
        return self._planner.reschedule(rows, now)

    async def _replan(self, now: float) -> list[Schedule]:
        """Reschedule all feeds after the budget has changed."""
        self._budget_changed, self.next_tick = False, now + self.policy.tick_s
        self.bucket.set_budget(self.budget_per_day, now)
        if not self.policy.extends:
            self._needs_relearning = True  # the policy is started again when the loop is idle
            return []
        # Report the number of polls first, because past polls do not count against the new budget.
        await asyncio.to_thread(self.policy.tick, now, self._poll_count)
        await asyncio.to_thread(self.policy.set_budget, self.usable_budget[0], now)
        return self._planner.reschedule(np.arange(len(self._planner.ids)), now)

    async def add_pending_feeds(self, store: Store, now: float) -> list[Schedule]:
        """Add pending feeds to the policy and return the schedules that have changed."""
        pending_feeds, self._pending_feeds = list(self._pending_feeds.values()), {}
        trim_heap()  # learning allocates large arrays, which do not fit into memory freed by polls
        if self.started and self.policy.extends:
            rows = await self._planner.extend(pending_feeds, now)
            poll_times = np.array([pending_feed.observation.at for pending_feed in pending_feeds])
        else:
            timings = await store.timings()
            await self._start_policy(
                store, timings[timings["window"] > 0], await store.forbidden_hours(), now
            )
            self._planner.apply_observations(
                [pending_feed.observation for pending_feed in pending_feeds]
            )
            rows, poll_times = (
                np.arange(len(self._planner.ids)),
                np.full(len(self._planner.ids), now),
            )
        await self._adjust_budget(now)
        schedules = self._planner.schedules(rows, poll_times, now, first=True)
        await self.save_rows(store, [self._planner.ids[row] for row in rows.tolist()], now)
        await self.save(store, now)
        return schedules

    async def save_rows(self, store: Store, feed_ids: Sequence[int], now: float) -> None:
        """Store the policy's state of feeds, unless a later poll has stored a newer state."""
        changed_ids = self._planner.ids if self.policy.all_rows_changed else feed_ids
        rows = {i: self._planner.estimate(i) for i in changed_ids if i in self._planner.row}
        await store.save_estimates(rows, unless_since=now)

    def remove_feed(self, feed_id: int) -> None:
        """Stop scheduling a feed. The policy keeps its row, but with a weight near 0."""
        self._pending_feeds.pop(feed_id, None)
        self._planner.remove_feed(feed_id)

    def update_weights(
        self, weights: Mapping[int, float], overrides: Mapping[int, float], now: float
    ) -> list[Schedule]:
        """Apply changed weights and minimum intervals, and return the new schedules.

        The mappings are by feed id. ``overrides`` are minimum intervals in seconds. Feeds that the
        policy does not know have no new schedule.
        """
        for feed_id in weights.keys() & self._pending_feeds.keys():
            pending_feed = self._pending_feeds[feed_id]
            observation = replace(
                pending_feed.observation, weight=weights[feed_id], override_s=overrides[feed_id]
            )
            self._pending_feeds[feed_id] = PendingFeed(observation, pending_feed.times)
        self._planner.set_override(overrides)
        known = {
            self._planner.row[feed_id]: weight
            for feed_id, weight in weights.items()
            if feed_id in self._planner.row
        }
        if not known:
            return []
        rows = np.array(list(known), dtype=np.intp)
        self.policy.feeds.weight[rows] = list(known.values())
        return self._planner.reschedule(rows, now)

    def set_push_share(self, feed_id: int, share: float) -> None:
        """Set the fraction of a feed's posts that a hub pushes."""
        if feed_id in self._planner.row:
            self.policy.feeds.pushed_share[self._planner.row[feed_id]] = share

    async def _adjust_budget(self, now: float) -> None:
        self.bucket.set_budget(self.budget_per_day, now)
        budget, _ = self.usable_budget
        if self.policy.extends and abs(budget / self.policy.budget_per_day - 1) > BUDGET_TOLERANCE:
            await asyncio.to_thread(self.policy.set_budget, budget, now)

    @property
    def usable_budget(self) -> tuple[float, int]:
        """Usable requests per day, and the number of feeds at their minimum interval."""
        return self._planner.usable_budget(self.budget_per_day)
