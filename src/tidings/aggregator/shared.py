"""One brain for any number of workers: what it knows lies in the store, and each process takes up the part that it needs.

A worker decides for the feeds that it has just polled: it takes up their records and what all feeds share (the price of a
poll, the common patterns), observes, decides, and the records go back with what the polls brought. One process at a time
leads: now and then it takes up everything, moves the price, and gives new times to feeds whose time has come closer by that.
Nobody holds anything between two calls that is not in the store, so another can go on wherever one stopped.
"""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from tidings.aggregator.brain import GROWN, Brain
from tidings.aggregator.budget import in_force
from tidings.aggregator.looks import Decision, Look
from tidings.config import Budget
from tidings.logs import Log
from tidings.model import DAY_S
from tidings.policy import Policy
from tidings.policy.constraints import DEFAULT_LIMITS, Limits
from tidings.store import Store
from tidings.store.claims import BYTES
from tidings.store.rows import Schedule

#: How often a process asks whether it leads, and the leader whether there is something to do: so soon another takes over.
CHECK_S = 15.0
#: In the store: how many looks of others were told of, which the one process that has neighbours counts, and of how many of
#: them the policy knows.
HEARD, TOLD = "looks_heard", "looks_told"
#: So old may be what a worker knows of the price, which moves every four hours.
FRESH_S = 30.0

log = Log("tidings.brain")


class SharedBrain(Brain):
    """The brain as one of several processes has it."""

    def __init__(
        self,
        make: Callable[[], Policy],
        budget: Budget,
        store: Store,
        limits: Limits = DEFAULT_LIMITS,
        bytes_per_day: float = np.inf,
    ) -> None:
        super().__init__(make(), budget, limits=limits, bytes_per_day=bytes_per_day)
        self._make, self._store = make, store
        self._known_at = -float("inf")
        self._shared: bytes = b""
        self._heard = 0

    async def start(self, store: Store, now: float) -> None:
        await self._refresh(now)
        self._heard = int((await store.shared()).get(HEARD, b"0"))
        self.next_tick = now

    async def save(self, store: Store, now: float) -> None:
        """Nothing: all of it is in the store already."""

    async def _refresh(self, now: float) -> None:
        """What all feeds share, as the leader has left it."""
        shared = await self._store.shared()
        self._known_at, self._shared = now, shared.get("policy", b"")
        own = self.saved(shared)
        self.budget = in_force(shared, self.configured)
        if own is not None and own.poll_bytes.polls > self.poll_bytes.polls:
            self.poll_bytes = own.poll_bytes
        self._followed = len(await self._store.timings()) if own is None else own.feeds

    async def decide(self, looks: Sequence[Look]) -> list[Decision]:
        """As ever, by a brain that knows these feeds only."""
        now = max(look.at for look in looks)
        if now - self._known_at > FRESH_S:
            await self._refresh(now)
        part = self._whole()
        part.follow(self._followed)
        if self._shared:
            saved = await self._store.estimates(self.policy.name, [look.feed_id for look in looks])
            part.recall(looks, saved, self._shared, now)
            self.policy.turns = part.policy.turns
        await self.spend_bytes([look.bytes for look in looks if look.bytes is not None], now)
        return await part.decide_at_once(looks, now)

    def _whole(self) -> Brain:
        """A brain of this process alone, which is dropped after use."""
        return Brain(self._make(), self.budget, limits=self.limits, bytes_per_day=self.bytes_per_day, seed=self.seed)

    async def hear(self) -> None:
        self._heard += 1
        await self._store.share({HEARD: str(self._heard).encode()})

    # --- the budget is the store's -------------------------------------------------------------------------------------

    async def grant(self, wanted: int, now: float) -> int:
        if await self._missing_bytes() > 0:
            return 0
        return await self._store.grant(wanted, self.budget_per_day)

    async def spend_bytes(self, polls: Sequence[int], now: float) -> None:
        self.poll_bytes = self.poll_bytes.after(polls)
        if np.isfinite(self.bytes_per_day):
            await self._store.spend(sum(polls), BYTES)

    async def _missing_bytes(self) -> float:
        return await self._store.missing(self.bytes_per_day, BYTES) if np.isfinite(self.bytes_per_day) else 0.0

    async def spend(self, requests: int, now: float, *, beside: bool = False) -> None:
        await self._store.spend(requests)

    async def wait_for_grant(self, store: Store, places: int, now: float) -> list[float]:
        await self._refresh(now)
        if (bytes_ := await self._missing_bytes()) > 0:
            mean = self.poll_bytes.mean
            return [now + (bytes_ + place * mean) * DAY_S / self.bytes_per_day for place in range(places)]
        missing = await self._store.missing(self.budget_per_day)
        return [now + (missing + place) * DAY_S / self.budget_per_day for place in range(places)] if missing > 0 else []

    async def change_budget(self, store: Store, budget: Budget, now: float) -> None:
        """The leader finds its price as soon as it looks."""
        await super().change_budget(store, budget, now)
        own = self.saved(await store.shared())
        if own is not None:
            await store.share({"brain": msgspec.json.encode(replace(own, next_tick=now))})

    # --- leading -------------------------------------------------------------------------------------------------------

    async def tick(self, now: float) -> list[Schedule]:
        """If this process leads: learn, move the price, when it is time for that."""
        self.next_tick = now + CHECK_S
        self.leads = await self._store.lead()
        if not self.leads or not await self._is_time(now):
            return []
        timings = await self._store.timings()
        was = dict(zip(timings["feed_id"].tolist(), timings["next_poll_at"].tolist(), strict=True))
        whole = self._whole()
        await whole.start(self._store, now)
        whole.poll_bytes = self.poll_bytes
        schedules = await whole.settle(self._store, now) if whole.unsettled else []
        if now >= whole.next_tick:
            shared = await self._store.shared()
            whole.policy.others = int(shared.get(HEARD, b"0")) - int(shared.get(TOLD, b"0"))
            schedules += await whole.tick(now)
            await self._store.share({TOLD: shared.get(HEARD, b"0")})
            await whole.save_rows(self._store, [s.feed_id for s in schedules], now)
        await whole.save(self._store, now)
        await self._refresh(now)
        log.info("led", feeds=len(was), rescheduled=len(schedules), next_tick=whole.next_tick)
        return [replace(s, was=was.get(s.feed_id)) for s in schedules]

    async def _is_time(self, now: float) -> bool:
        own = self.saved(await self._store.shared())
        if own is None or now >= own.next_tick:
            return True
        return await self._store.estimated(self.policy.name) > GROWN * max(own.learned, 1)
