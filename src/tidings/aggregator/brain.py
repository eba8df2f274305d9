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

from tidings.aggregator.budget import CHOSEN, Bucket, Chosen, MeanBytes, in_force
from tidings.aggregator.looks import Decision, Look, history_of, look_of
from tidings.aggregator.planner import LEAST_GAP_S, Newcomer, Noted, Planner
from tidings.config import Budget
from tidings.memory import give_back
from tidings.model import DAY_S
from tidings.policy import Policy
from tidings.policy.constraints import DEFAULT_LIMITS, Limits
from tidings.reasons import reason
from tidings.store import Store
from tidings.store.rows import Schedule

#: When the feeds are so many times as many as they were, the price is found anew.
GROWN = 1.2
#: A budget for each feed grows with the feeds; the policy is told when it is off by so much.
BUDGET_OFF = 0.05


class Saved(Struct, frozen=True):
    """What outlives the process, beside the policy's own."""

    next_tick: float
    saved_at: float
    tokens: float
    feeds: int = 0  #: that are followed
    learned: int = 0  #: of these, known to the policy
    untold: int = 0  #: polls since the policy's last tick
    per_day: float = 0.0  #: the budget that the tokens are of
    poll_bytes: MeanBytes = MeanBytes()
    byte_tokens: float | None = None


class Brain:
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
        self.byte_bucket = Bucket.full(bytes_per_day, 0.0)
        self.poll_bytes = MeanBytes()
        self.bucket = Bucket.full(budget.per_day(0), 0.0)
        self.next_tick = np.inf
        self.leads = True  #: of several processes on one store, one does what is to be done once
        self._planner = Planner(policy, limits, seed)
        self._newcomers: dict[int, Newcomer] = {}
        self._unlearned = False  # the store knows feeds that the policy does not
        self._budget_changed = False
        self._spent, self._told = 0, 0  # polls since the policy was started or restored, and what it was told of them
        self._followed = 0

    @property
    def started(self) -> bool:
        """Whether the policy can decide."""
        return self._planner.ready

    @property
    def unsettled(self) -> bool:
        """Whether there are feeds with a provisional time."""
        return self._unlearned or bool(self._newcomers)

    @property
    def budget_per_day(self) -> float:
        """Requests a day: as many as are configured, or as many as the budget of bytes is expected to allow."""
        requests = self.budget.per_day(max(self._followed, len(self._planner.row) + len(self._newcomers)))
        return min(requests, max(self.bytes_per_day / max(self.poll_bytes.mean, 1.0), 1.0))

    # --- the budget ----------------------------------------------------------------------------------------------------

    async def grant(self, wanted: int, now: float) -> int:
        """Take up to so many requests out of the bucket; what is not used of them goes back with `spend`."""
        if not self._has_bytes(now):
            return 0
        granted = min(wanted, self.bucket.available(now))
        self.bucket.take(granted, now)
        return granted

    async def spend(self, requests: int, now: float, *, beside: bool = False) -> None:
        """Requests that were made without a grant, or, below 0, granted and not made; ``beside`` polls: for archives, say."""
        self.bucket.take(requests, now)
        self._spent += requests * beside

    async def wait_for_grant(self, store: Store, places: int, now: float) -> list[float]:
        """When there will be requests again, for so many who stand in line; nothing if there are some now."""
        self._followed = len(await store.timings())  # some may have been added since, and a budget for each grows with them
        self.bucket.set_budget(self.budget_per_day, now)
        if not self._has_bytes(now):
            return [self.byte_bucket.ready_at(now, place * self.poll_bytes.mean) for place in range(places)]
        return [] if self.bucket.available(now) else [self.bucket.ready_at(now, place) for place in range(places)]

    def _has_bytes(self, now: float) -> bool:
        return np.isinf(self.bytes_per_day) or self.byte_bucket.available(now) > 0

    async def spend_bytes(self, polls: Sequence[int], now: float) -> None:
        """Count the bytes that each of some polls has transferred."""
        self.poll_bytes = self.poll_bytes.after(polls)
        if np.isfinite(self.bytes_per_day):
            self.byte_bucket.take(sum(polls), now)

    async def change_budget(self, store: Store, budget: Budget, now: float) -> None:
        """Spend so much from now on: at the next tick, which is due at once, all feeds have new times."""
        await store.share({CHOSEN: msgspec.json.encode(Chosen(budget, self.configured))})
        self.budget, self._budget_changed, self.next_tick = budget, True, now

    # --- beginning and end ---------------------------------------------------------------------------------------------

    async def start(self, store: Store, now: float) -> None:
        """Take up where the last process stopped. Where there is nothing to take up, `settle` will begin."""
        timings = await store.timings()
        members = timings[timings["window"] > 0]
        saved = await store.estimates(self.policy.name)
        shared = await store.shared()
        forbidden = await store.forbidden_hours()
        size = self.policy.row_dtype.itemsize
        estimated = np.array([len(saved.get(int(i), b"")) == size for i in members["feed_id"]], dtype=np.bool_)
        own = self.saved(shared)
        self.budget = in_force(shared, self.configured)
        # What a process that was killed has spent stands in the log of polls.
        spent_since = now - DAY_S if own is None else own.saved_at
        spent = await store.polls_since(spent_since)
        self._followed = len(timings)
        per_day = self.budget.per_day(len(timings))
        full = Bucket.full(per_day, spent_since)
        self.bucket = full if own is None else Bucket(own.per_day, own.tokens, spent_since)
        self.bucket.set_budget(per_day, spent_since)  # feeds may have been added since
        self.bucket.take(spent, now)
        if own is not None:
            self.poll_bytes = own.poll_bytes
            if own.byte_tokens is not None:
                self.byte_bucket = Bucket(self.bytes_per_day, min(own.byte_tokens, self.bytes_per_day), spent_since)
        if not len(members):
            return
        if self.policy.extends and "policy" in shared and estimated.mean() > 0.5:
            if await self._restore(store, members, estimated, saved, shared["policy"], forbidden, now):
                self.next_tick = now + self.policy.tick_s if own is None else own.next_tick
                self._spent = 0 if own is None else spent + own.untold
            else:
                self._unlearned = True
        elif not self.policy.extends and estimated.any():
            await self._begin(store, members, forbidden, now)
            for feed_id in members["feed_id"][estimated].tolist():
                self.policy.load_row(self._planner.row[feed_id], saved[feed_id])
        else:
            self._unlearned = True

    @staticmethod
    def saved(shared: Mapping[str, bytes]) -> Saved | None:
        """What `save` has put away, as the store's shared values have it."""
        try:
            return msgspec.json.decode(shared["brain"], type=Saved) if "brain" in shared else None
        except msgspec.DecodeError:
            return None

    async def save(self, store: Store, now: float) -> None:
        """Put away what belongs to no single feed."""
        untold = self._spent - self._told
        bucket, learned = self.bucket, len(self._planner.row)
        bytes_left = self.byte_bucket.tokens if np.isfinite(self.bytes_per_day) else None
        own = Saved(
            *(self.next_tick, now, bucket.tokens, self._followed, learned, untold, bucket.per_day),
            poll_bytes=self.poll_bytes,
            byte_tokens=bytes_left,
        )
        values = {"brain": msgspec.json.encode(own)}
        if self.started and self.policy.extends:
            values["policy"] = self.policy.save_shared()
        await store.share(values)

    async def _begin(self, store: Store, members: np.ndarray, forbidden: dict[int, bytes], now: float) -> None:
        """Start the policy with all that the store knows."""
        history, since = await history_of(store, members, now)
        self._planner.number(members["feed_id"].tolist())
        self.bucket.set_budget(self.budget_per_day, now)  # before the policy has its price, which others may see at once
        await self._planner.start(members, forbidden, history, since, self.budget_per_day, now)
        self._unlearned, self._spent, self._told, self.next_tick = False, 0, 0, now + self.policy.tick_s

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
            history, _ = await history_of(store, others, now)
            for i, timing in enumerate(others):
                times = history.times[history.first[i] : history.end[i]]
                look = look_of(timing, forbidden.get(int(timing["feed_id"]), b""), now)
                self._newcomers[look.feed_id] = Newcomer(look, times.copy())
        return True

    def recall(self, looks: Sequence[Look], saved: Mapping[int, bytes], shared: bytes, now: float) -> None:
        """Take up these feeds alone, as far as the policy knows them: any process can decide for a feed that it holds."""
        size = self.policy.row_dtype.itemsize
        known = [look for look in looks if len(saved.get(look.feed_id, b"")) == size]
        ids = [look.feed_id for look in known]
        table = self._planner.feeds(ids, [look.window for look in known], [look.weight for look in known])
        self._planner.restore(ids, table, saved, shared, None, now)  # if it cannot, the leader will learn anew

    async def decide_at_once(self, looks: Sequence[Look], now: float) -> list[Decision]:
        """As `decide`, but newcomers are taken in now."""
        decisions = await self.decide(looks)
        if not self.started or not self._newcomers:
            return decisions
        newcomers, self._newcomers = list(self._newcomers.values()), {}
        rows = await self._planner.extend(newcomers, now)
        asked = np.array([newcomer.look.at for newcomer in newcomers])
        decided = {schedule.feed_id: schedule for schedule in self._planner.schedules(rows, asked, now, first=True)}
        return [
            replace(decision, at=s.next_poll_at, reason=s.reason, estimate=self._planner.estimate(s.feed_id))
            if (s := decided.get(look.feed_id)) is not None and s.next_poll_at is not None
            else decision
            for look, decision in zip(looks, decisions, strict=True)
        ]

    def follow(self, feeds: int) -> None:
        """There are so many feeds, known to the policy or not."""
        self._followed = feeds

    # --- after polls ---------------------------------------------------------------------------------------------------

    async def decide(self, looks: Sequence[Look]) -> list[Decision]:
        """Learn from a batch of polls, of different feeds, and say when each is next."""
        noted = self._planner.note(looks)
        await self.spend_bytes([look.bytes for look in looks if look.bytes is not None], looks[-1].at if looks else 0.0)
        for look in looks:
            self._spent += look.count
            if look.times is not None and look.feed_id not in self._planner.row:
                self._newcomers[look.feed_id] = Newcomer(look, look.times)
        known = [look for look in looks if look.feed_id in self._planner.row]
        if known:
            self._planner.observe([look for look in known if look.ok])
        rows = np.array([self._planner.row[look.feed_id] for look in known], dtype=np.intp)
        schedules = self._planner.schedules(rows, np.array([look.at for look in known])) if known else []
        decided = {schedule.feed_id: schedule for schedule in schedules}
        return [self._decision(look, decided.get(look.feed_id), noted, i) for i, look in enumerate(looks)]

    def _decision(self, look: Look, schedule: Schedule | None, noted: Noted, i: int) -> Decision:
        learned = noted.learned(i) if look.ok and look.bytes is not None else None
        if schedule is None or schedule.next_poll_at is None:
            return replace(self._provisional(look, noted, i), learned=learned)
        estimate = self._planner.estimate(look.feed_id)
        return Decision(schedule.next_poll_at, schedule.reason, estimate, learned)

    def _provisional(self, look: Look, noted: Noted, i: int) -> Decision:
        """For a feed that the policy does not know: an even share of the budget."""
        earliest, why = float(noted.constraints.earliest[i]), self._planner.bound_reason(look.feed_id, noted, i)
        if not look.ok:
            return Decision(float(np.ceil(max(earliest, look.at + LEAST_GAP_S))), why)
        feeds = len(self._planner.row) + len(self._newcomers)
        even_s = min(max(DAY_S * feeds / max(self.budget_per_day, 1e-9), LEAST_GAP_S), DAY_S)
        at = look.at + even_s * (0.5 + self._planner.phase(look.feed_id))
        if at <= earliest:
            return Decision(float(np.ceil(earliest)), why)
        return Decision(float(np.ceil(at)), reason("new_feed"))

    async def hear(self) -> None:
        """Somebody else has looked at a feed of ours."""
        self.policy.others += 1

    # --- now and then --------------------------------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Schedule]:
        """The policy's slow work, when it is time; returns feeds whose time has changed."""
        due = self.next_tick
        while self.next_tick <= now:
            self.next_tick += self.policy.tick_s
        if not self.started:
            return []
        self._told = self._spent
        if self._budget_changed:
            return await self._plan_anew(now)
        await self._adjust_budget(now)
        rows = await asyncio.to_thread(self.policy.tick, due if now - due < LEAST_GAP_S else now, self._spent)
        if rows is None or not len(rows):
            return []
        return self._planner.anew(rows, now)

    async def _plan_anew(self, now: float) -> list[Schedule]:
        """For another budget."""
        self._budget_changed, self.next_tick = False, now + self.policy.tick_s
        self.bucket.set_budget(self.budget_per_day, now)
        if not self.policy.extends:
            self._unlearned = True  # it is started again when it is quiet
            return []
        # What was spent until now is told first: it is none of the new budget's.
        await asyncio.to_thread(self.policy.tick, now, self._spent)
        await asyncio.to_thread(self.policy.set_budget, self.usable_budget[0], now)
        return self._planner.anew(np.arange(len(self._planner.ids)), now)

    async def settle(self, store: Store, now: float) -> list[Schedule]:
        """Take in the newcomers, when there is time; returns feeds whose time has changed."""
        newcomers, self._newcomers = list(self._newcomers.values()), {}
        give_back()  # what polls have left: learning takes large pieces
        if self.started and self.policy.extends:
            rows = await self._planner.extend(newcomers, now)
            asked = np.array([newcomer.look.at for newcomer in newcomers])
        else:
            timings = await store.timings()
            await self._begin(store, timings[timings["window"] > 0], await store.forbidden_hours(), now)
            self._planner.note([newcomer.look for newcomer in newcomers])
            rows, asked = np.arange(len(self._planner.ids)), np.full(len(self._planner.ids), now)
        await self._adjust_budget(now)
        schedules = self._planner.schedules(rows, asked, now, first=True)
        await self.save_rows(store, [self._planner.ids[row] for row in rows.tolist()], now)
        await self.save(store, now)
        return schedules

    async def save_rows(self, store: Store, feed_ids: Sequence[int], now: float) -> None:
        """Put away what the policy knows of these feeds, where nobody has learned more meanwhile."""
        renewed = self._planner.ids if self.policy.renewed else feed_ids
        rows = {i: self._planner.estimate(i) for i in renewed if i in self._planner.row}
        await store.save_estimates(rows, unless_since=now)

    def forget(self, feed_id: int) -> None:
        """A feed that is not polled any more: it keeps its row, but no poll of it is worth anything."""
        self._newcomers.pop(feed_id, None)
        self._planner.forget(feed_id)

    def weigh(self, weights: Mapping[int, float], overrides: Mapping[int, float], now: float) -> list[Schedule]:
        """Take other weights and minimum intervals of these feeds; returns the next polls of those that the policy knows."""
        for feed_id in weights.keys() & self._newcomers.keys():
            newcomer = self._newcomers[feed_id]
            look = replace(newcomer.look, weight=weights[feed_id], override_s=overrides[feed_id])
            self._newcomers[feed_id] = Newcomer(look, newcomer.times)
        self._planner.set_override(overrides)
        known = {self._planner.row[feed_id]: weight for feed_id, weight in weights.items() if feed_id in self._planner.row}
        if not known:
            return []
        rows = np.array(list(known), dtype=np.intp)
        self.policy.feeds.weight[rows] = list(known.values())
        return self._planner.anew(rows, now)

    def pushed(self, feed_id: int, share: float) -> None:
        """So much of what a feed posts comes without asking."""
        if feed_id in self._planner.row:
            self.policy.feeds.pushed[self._planner.row[feed_id]] = share

    async def _adjust_budget(self, now: float) -> None:
        self.bucket.set_budget(self.budget_per_day, now)
        budget, _ = self.usable_budget
        if self.policy.extends and abs(budget / self.policy.budget_per_day - 1) > BUDGET_OFF:
            await asyncio.to_thread(self.policy.set_budget, budget, now)

    @property
    def usable_budget(self) -> tuple[float, int]:
        """How much of the budget constraints allow to spend, and how many feeds are at their minimum interval for it."""
        return self._planner.usable_budget(self.budget_per_day)
