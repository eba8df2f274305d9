"""The one policy that decides for all feeds, alive: it is told what polls brought, and gives each feed its next poll and why.

What the laboratory's simulator does with a trace is done here with the web, by the same calls in the same order: `observe`
and `decide` after every poll, `tick` at its times, whole seconds. A feed is taken in with its first document; until there is
a quiet moment for that (`settle`), since many come at once, it has a provisional time.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from msgspec import Struct
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

#: When the feeds are so many times as many as they were, the price is found anew.
GROWTH_FACTOR = 1.2
#: A budget for each feed grows with the feeds; the policy is told when it is off by so much.
BUDGET_TOLERANCE = 0.05


class SchedulerState(Struct, frozen=True):
    """What outlives the process, beside the policy's own."""

    next_tick: float
    saved_at: float
    tokens: float
    feeds: int = 0  #: that are followed
    learned: int = 0  #: of these, known to the policy
    unreported_polls: int = 0  #: polls since the policy's last tick
    per_day: float = 0.0  #: the budget that the tokens are of
    poll_bytes: MeanBytes = MeanBytes()
    byte_tokens: float | None = None


class Scheduler:
    """Holds the policy. Not for several threads."""

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        *,
        limits: Limits = DEFAULT_LIMITS,
        bytes_per_day: float = np.inf,
        seed: int = 0,
    ) -> None:
        """``bytes_per_day`` may be transferred by polls, beside the budget of requests."""
        self.policy, self.seed = policy, seed
        self.configured = self.budget = budget  #: what the configuration says, and what holds
        self.limits, self.bytes_per_day = limits, bytes_per_day
        self.byte_bucket = TokenBucket.full(bytes_per_day, 0.0)
        self.poll_bytes = MeanBytes()
        self.bucket = TokenBucket.full(budget.per_day(0), 0.0)
        self.next_tick = np.inf
        self.is_leader = (
            True  #: of several processes on one store, one does what is to be done once
        )
        self._planner = Planner(policy, limits, seed)
        self._pending_feeds: dict[int, PendingFeed] = {}
        self._needs_relearning = False  # the store knows feeds that the policy does not
        self._budget_changed = False
        self._poll_count, self._reported_polls = (
            0,
            0,
        )  # polls since the policy was started or restored, and what it was told of them
        self._feed_count = 0

    @property
    def started(self) -> bool:
        """Whether the policy can decide."""
        return self._planner.ready

    @property
    def has_pending_feeds(self) -> bool:
        """Whether there are feeds with a provisional time."""
        return self._needs_relearning or bool(self._pending_feeds)

    @property
    def budget_per_day(self) -> float:
        """Requests a day: as many as are configured, or as many as the budget of bytes is expected to allow."""
        requests = self.budget.per_day(
            max(self._feed_count, len(self._planner.row) + len(self._pending_feeds))
        )
        return min(requests, max(self.bytes_per_day / max(self.poll_bytes.mean, 1.0), 1.0))

    # --- the budget ----------------------------------------------------------------------------------------------------

    async def take_tokens(self, wanted: int, now: float) -> int:
        """Take up to so many requests out of the bucket; what is not used of them goes back with `spend`."""
        if not self._has_bytes(now):
            return 0
        granted = min(wanted, self.bucket.available(now))
        self.bucket.consume(granted, now)
        return granted

    async def consume_budget(
        self, requests: int, now: float, *, outside_polls: bool = False
    ) -> None:
        """Requests that were made without a grant, or, below 0, granted and not made; ``beside`` polls: for archives, say."""
        self.bucket.consume(requests, now)
        self._poll_count += requests * outside_polls

    async def next_token_times(self, store: Store, queue_length: int, now: float) -> list[float]:
        """When there will be requests again, for so many who stand in line; nothing if there are some now."""
        self._feed_count = len(
            await store.timings()
        )  # some may have been added since, and a budget for each grows with them
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
        """Count the bytes that each of some polls has transferred."""
        self.poll_bytes = self.poll_bytes.after(polls)
        if np.isfinite(self.bytes_per_day):
            self.byte_bucket.consume(sum(polls), now)

    async def change_budget(self, store: Store, budget: Budget, now: float) -> None:
        """Spend so much from now on: at the next tick, which is due at once, all feeds have new times."""
        await store.save_values(
            {BUDGET_OVERRIDE_KEY: msgspec.json.encode(BudgetOverride(budget, self.configured))}
        )
        self.budget, self._budget_changed, self.next_tick = budget, True, now

    # --- beginning and end ---------------------------------------------------------------------------------------------

    async def start(self, store: Store, now: float) -> None:
        """Take up where the last process stopped. Where there is nothing to take up, `settle` will begin."""
        timings = await store.timings()
        members = timings[timings["window"] > 0]
        saved = await store.estimates(self.policy.name)
        shared = await store.load_values()
        forbidden = await store.forbidden_hours()
        size = self.policy.row_dtype.itemsize
        estimated = np.array(
            [len(saved.get(int(i), b"")) == size for i in members["feed_id"]], dtype=np.bool_
        )
        own = self.decode_state(shared)
        self.budget = effective_budget(shared, self.configured)
        # What a process that was killed has spent stands in the log of polls.
        spent_since = now - DAY_S if own is None else own.saved_at
        spent = await store.polls_since(spent_since)
        self._feed_count = len(timings)
        per_day = self.budget.per_day(len(timings))
        full = TokenBucket.full(per_day, spent_since)
        self.bucket = full if own is None else TokenBucket(own.per_day, own.tokens, spent_since)
        self.bucket.set_budget(per_day, spent_since)  # feeds may have been added since
        self.bucket.consume(spent, now)
        if own is not None:
            self.poll_bytes = own.poll_bytes
            if own.byte_tokens is not None:
                self.byte_bucket = TokenBucket(
                    self.bytes_per_day, min(own.byte_tokens, self.bytes_per_day), spent_since
                )
        if not len(members):
            return
        if self.policy.extends and "policy" in shared and estimated.mean() > 0.5:
            if await self._restore(
                store, members, estimated, saved, shared["policy"], forbidden, now
            ):
                self.next_tick = now + self.policy.tick_s if own is None else own.next_tick
                self._poll_count = 0 if own is None else spent + own.unreported_polls
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
        """What `save` has put away, as the store's shared values have it."""
        try:
            return (
                msgspec.json.decode(shared["brain"], type=SchedulerState)
                if "brain" in shared
                else None
            )
        except msgspec.DecodeError:
            return None

    async def save(self, store: Store, now: float) -> None:
        """Put away what belongs to no single feed."""
        unreported_polls = self._poll_count - self._reported_polls
        bucket, learned = self.bucket, len(self._planner.row)
        bytes_left = self.byte_bucket.tokens if np.isfinite(self.bytes_per_day) else None
        own = SchedulerState(
            *(
                self.next_tick,
                now,
                bucket.tokens,
                self._feed_count,
                learned,
                unreported_polls,
                bucket.per_day,
            ),
            poll_bytes=self.poll_bytes,
            byte_tokens=bytes_left,
        )
        values = {"brain": msgspec.json.encode(own)}
        if self.started and self.policy.extends:
            values["policy"] = self.policy.save_shared_state()
        await store.save_values(values)

    async def _start_policy(
        self, store: Store, members: np.ndarray, forbidden: dict[int, bytes], now: float
    ) -> None:
        """Start the policy with all that the store knows."""
        history, since = await posting_history(store, members, now)
        self._planner.assign_rows(members["feed_id"].tolist())
        self.bucket.set_budget(
            self.budget_per_day, now
        )  # before the policy has its price, which others may see at once
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
        """Go on where the last process stopped, if we can; feeds that came since then are taken in when it is quiet."""
        here = members[estimated]
        ids, table = here["feed_id"].tolist(), self._planner.table(here, forbidden, now)
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
        """Take up these feeds alone, as far as the policy knows them: any process can decide for a feed that it holds."""
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
        self._planner.restore(
            ids, table, saved, shared, None, now
        )  # if it cannot, the leader will learn anew

    async def decide_with_new_feeds(
        self, observations: Sequence[PollObservation], now: float
    ) -> list[Decision]:
        """As `decide`, but newcomers are taken in now."""
        decisions = await self.decide(observations)
        if not self.started or not self._pending_feeds:
            return decisions
        pending_feeds, self._pending_feeds = list(self._pending_feeds.values()), {}
        rows = await self._planner.extend(pending_feeds, now)
        poll_times = np.array([pending_feed.observation.at for pending_feed in pending_feeds])
        decided = {
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
            if (s := decided.get(observation.feed_id)) is not None and s.next_poll_at is not None
            else decision
            for observation, decision in zip(observations, decisions, strict=True)
        ]

    def set_feed_count(self, feeds: int) -> None:
        """There are so many feeds, known to the policy or not."""
        self._feed_count = feeds

    # --- after polls ---------------------------------------------------------------------------------------------------

    async def decide(self, observations: Sequence[PollObservation]) -> list[Decision]:
        """Learn from a batch of polls, of different feeds, and say when each is next."""
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
        decided = {schedule.feed_id: schedule for schedule in schedules}
        return [
            self._decision(observation, decided.get(observation.feed_id), constraint_batch, i)
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
        """For a feed that the policy does not know: an even share of the budget."""
        earliest, why = (
            float(constraint_batch.constraints.earliest[i]),
            self._planner.constraint_reason(observation.feed_id, constraint_batch, i),
        )
        if not observation.ok:
            return Decision(float(np.ceil(max(earliest, observation.at + MIN_GAP_S))), why)
        feeds = len(self._planner.row) + len(self._pending_feeds)
        even_s = min(max(DAY_S * feeds / max(self.budget_per_day, 1e-9), MIN_GAP_S), DAY_S)
        at = observation.at + even_s * (0.5 + self._planner.phase(observation.feed_id))
        if at <= earliest:
            return Decision(float(np.ceil(earliest)), why)
        return Decision(float(np.ceil(at)), reason("new_feed"))

    async def count_peer_poll(self) -> None:
        """Somebody else has looked at a feed of ours."""
        self.policy.peer_polls += 1

    # --- now and then --------------------------------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Schedule]:
        """The policy's slow work, when it is time; returns feeds whose time has changed."""
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
        """For another budget."""
        self._budget_changed, self.next_tick = False, now + self.policy.tick_s
        self.bucket.set_budget(self.budget_per_day, now)
        if not self.policy.extends:
            self._needs_relearning = True  # it is started again when it is quiet
            return []
        # What was spent until now is told first: it is none of the new budget's.
        await asyncio.to_thread(self.policy.tick, now, self._poll_count)
        await asyncio.to_thread(self.policy.set_budget, self.usable_budget[0], now)
        return self._planner.reschedule(np.arange(len(self._planner.ids)), now)

    async def add_pending_feeds(self, store: Store, now: float) -> list[Schedule]:
        """Take in the newcomers, when there is time; returns feeds whose time has changed."""
        pending_feeds, self._pending_feeds = list(self._pending_feeds.values()), {}
        trim_heap()  # what polls have left: learning takes large pieces
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
        """Put away what the policy knows of these feeds, where nobody has learned more meanwhile."""
        changed_ids = self._planner.ids if self.policy.all_rows_changed else feed_ids
        rows = {i: self._planner.estimate(i) for i in changed_ids if i in self._planner.row}
        await store.save_estimates(rows, unless_since=now)

    def remove_feed(self, feed_id: int) -> None:
        """A feed that is not polled any more: it keeps its row, but no poll of it is worth anything."""
        self._pending_feeds.pop(feed_id, None)
        self._planner.remove_feed(feed_id)

    def update_weights(
        self, weights: Mapping[int, float], overrides: Mapping[int, float], now: float
    ) -> list[Schedule]:
        """Take other weights and minimum intervals of these feeds; returns the next polls of those that the policy knows."""
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
        """So much of what a feed posts comes without asking."""
        if feed_id in self._planner.row:
            self.policy.feeds.pushed_share[self._planner.row[feed_id]] = share

    async def _adjust_budget(self, now: float) -> None:
        self.bucket.set_budget(self.budget_per_day, now)
        budget, _ = self.usable_budget
        if self.policy.extends and abs(budget / self.policy.budget_per_day - 1) > BUDGET_TOLERANCE:
            await asyncio.to_thread(self.policy.set_budget, budget, now)

    @property
    def usable_budget(self) -> tuple[float, int]:
        """How much of the budget constraints allow to spend, and how many feeds are at their minimum interval for it."""
        return self._planner.usable_budget(self.budget_per_day)
