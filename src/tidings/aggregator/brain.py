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

from tidings.aggregator.budget import CHOSEN, Bucket, Chosen, in_force
from tidings.aggregator.looks import HISTORY_S, NO_TIMES, Decision, Look, documents_of, forbid, history_of
from tidings.aggregator.monitor import window_sizes
from tidings.config import Budget
from tidings.errors import UsageError
from tidings.logs import Log
from tidings.model import DAY_S, HOUR_S, WEEK_S, Bools, Floats, Rows
from tidings.policy import Feeds, Policy
from tidings.policy.base import GOLDEN, spread
from tidings.store import Store
from tidings.store.rows import Estimate, Schedule
from tidings.words import duration

#: Two polls of one feed are at least this far apart, as in the simulator; polls happen at whole seconds.
LEAST_GAP_S = 1.0
#: What its document showed in so long a time is a feed's window, even if it was never seen to drop an entry.
WATCHED_S = 30 * DAY_S
#: Feeds that were asked together, and would all be asked again as soon as is polite, are parted by up to this share.
STRETCH = 0.2
#: When the feeds are so many times as many as they were, the price is found anew.
GROWN = 1.2
#: A budget for each feed grows with the feeds; the policy is told when it is off by so much.
BUDGET_OFF = 0.05

log = Log("tidings.brain")


class _Newcomer(Struct, frozen=True):
    """A feed that the policy does not know yet."""

    look: Look
    times: Floats


class Saved(Struct, frozen=True):
    """What outlives the process, beside the policy's own."""

    next_tick: float
    saved_at: float
    tokens: float
    feeds: int = 0  #: that are followed
    learned: int = 0  #: of these, known to the policy
    untold: int = 0  #: polls since the policy's last tick


class Brain:
    """Holds the policy. Not for several threads."""

    def __init__(
        self, policy: Policy, budget: Budget, *, least_gap_s: float = HOUR_S, longest_s: float = WEEK_S, seed: int = 0
    ) -> None:
        """``least_gap_s`` between polls is what publishers may expect who say nothing; none waits more than ``longest_s``."""
        self.policy, self.seed = policy, seed
        self.configured = self.budget = budget  #: what the configuration says, and what holds
        self.least_gap_s, self.longest_s = least_gap_s, longest_s
        self.bucket = Bucket.full(budget.per_day(0), 0.0)
        self.next_tick = np.inf
        self.leads = True  #: of several processes on one store, one does what is to be done once
        self._first_phase = float(spread(1, seed)[0])
        self._row: dict[int, int] = {}
        self._ids: list[int] = []
        self._ready = False
        self._documents: dict[int, Floats] = {}  # only for policies that look at more than what is new
        self._why: dict[int, str] = {}  # of `earliest`, where there is one
        self._newcomers: dict[int, _Newcomer] = {}
        self._unlearned = False  # the store knows feeds that the policy does not
        self._budget_changed = False
        self._spent, self._told = 0, 0  # polls since the policy was started or restored, and what it was told of them
        self._followed = 0

    @property
    def started(self) -> bool:
        """Whether the policy can decide."""
        return self._ready

    @property
    def unsettled(self) -> bool:
        """Whether there are feeds with a provisional time."""
        return self._unlearned or bool(self._newcomers)

    @property
    def budget_per_day(self) -> float:
        return self.budget.per_day(max(self._followed, len(self._row) + len(self._newcomers)))

    # --- the budget ----------------------------------------------------------------------------------------------------

    async def grant(self, wanted: int, now: float) -> int:
        """Take up to so many requests out of the bucket; what is not used of them goes back with `spend`."""
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
        return [] if self.bucket.available(now) else [self.bucket.ready_at(now, place) for place in range(places)]

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
        self.bucket = Bucket(self.budget.per_day(len(timings)), 0.0, spent_since)
        self.bucket.tokens = self.bucket.per_day if own is None else own.tokens
        self.bucket.take(spent, now)
        if not len(members):
            return
        if self.policy.extends and "policy" in shared and estimated.mean() > 0.5:
            try:
                await self._restore(store, members, estimated, saved, shared["policy"], forbidden, now)
            except UsageError as problem:
                log.warning("estimates not usable, learning anew", problem=str(problem))
                self._number([])
                self._unlearned = True
            else:
                self.next_tick = now + self.policy.tick_s if own is None else own.next_tick
                self._spent = 0 if own is None else spent + own.untold
        elif not self.policy.extends and estimated.any():
            await self._begin(store, members, forbidden, now)
            for feed_id in members["feed_id"][estimated].tolist():
                self.policy.load_row(self._row[feed_id], saved[feed_id])
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
        own = Saved(self.next_tick, now, self.bucket.tokens, self._followed, len(self._row), self._spent - self._told)
        values = {"brain": msgspec.json.encode(own)}
        if self.started and self.policy.extends:
            values["policy"] = self.policy.save_shared()
        await store.share(values)

    async def _begin(self, store: Store, members: np.ndarray, forbidden: dict[int, bytes], now: float) -> None:
        """Start the policy with all that the store knows."""
        history, since = await history_of(store, members, now)
        self._number(members["feed_id"].tolist())
        table = self._table(members, forbidden, now, history.count > members["window"])
        await asyncio.to_thread(self.policy.start, table, history, since, now, self._useful_budget())
        self._ready = bool(self._ids)
        self._unlearned, self._spent, self._told, self.next_tick = False, 0, 0, now + self.policy.tick_s
        if not self.policy.extends:
            ends = history.end.tolist()
            for feed_id, window, end, first in zip(
                self._ids, members["window"].tolist(), ends, history.first.tolist(), strict=True
            ):
                self._documents.setdefault(feed_id, history.times[max(end - window, first) : end].copy())

    async def _restore(
        self,
        store: Store,
        members: np.ndarray,
        estimated: np.ndarray,
        saved: dict[int, bytes],
        shared: bytes,
        forbidden: dict[int, bytes],
        now: float,
    ) -> None:
        """Go on where the last process stopped; feeds that came since then are taken in when it is quiet."""
        here = members[estimated]
        ids = here["feed_id"].tolist()
        table = self._table(here, forbidden, now)
        self._number(ids)
        self.policy.restore(table, [saved[i] for i in ids], shared, self._useful_budget(), now)
        self._ready = True
        others = members[~estimated]
        if len(others):
            history, _ = await history_of(store, others, now)
            for i, timing in enumerate(others):
                times = history.times[history.first[i] : history.end[i]]
                look = Look(
                    int(timing["feed_id"]),
                    now,
                    weight=float(timing["weight"]),
                    added_at=float(timing["added_at"]),
                    window=int(window_sizes(timing["window"], timing["dropped"], timing["by_age"])),
                    earliest=float(timing["next_poll_at"] if timing["errors"] else timing["earliest_at"]),
                    forbidden=forbidden.get(int(timing["feed_id"]), b""),
                )
                self._newcomers[look.feed_id] = _Newcomer(look, times.copy())

    def recall(self, looks: Sequence[Look], saved: Mapping[int, bytes], shared: bytes, now: float) -> None:
        """Take up these feeds alone, as far as the policy knows them: any process can decide for a feed that it holds."""
        size = self.policy.row_dtype.itemsize
        known = [look for look in looks if len(saved.get(look.feed_id, b"")) == size]
        ids = np.array([look.feed_id for look in known], dtype=np.int64)
        table = Feeds.of([look.window for look in known], [look.weight for look in known], self.seed)
        table.phase = self._phases(ids)
        table.longest_s[:] = self.longest_s
        try:
            self.policy.restore(table, [saved[i] for i in ids.tolist()], shared, None, now)
        except UsageError as problem:  # the leader will learn anew
            log.warning("estimates not usable", problem=str(problem))
            return
        self._number(ids.tolist())
        self._ready = True

    async def decide_at_once(self, looks: Sequence[Look], now: float) -> list[Decision]:
        """As `decide`, but newcomers are taken in now."""
        decisions = await self.decide(looks)
        if not self._ready or not self._newcomers:
            return decisions
        newcomers, self._newcomers = list(self._newcomers.values()), {}
        rows = await self._extend(newcomers, now)
        asked = np.array([newcomer.look.at for newcomer in newcomers])
        decided = {schedule.feed_id: schedule for schedule in self._schedules(rows, asked, now, first=True)}
        return [
            self._decision(look, decided[look.feed_id]) if look.feed_id in decided else decision
            for look, decision in zip(looks, decisions, strict=True)
        ]

    def follow(self, feeds: int) -> None:
        """There are so many feeds, known to the policy or not."""
        self._followed = feeds

    def _number(self, ids: list[int]) -> None:
        self._ids = ids
        self._row = {feed_id: row for row, feed_id in enumerate(ids)}

    def _table(self, members: np.ndarray, forbidden: dict[int, bytes], now: float, full: Bools | bool = False) -> Feeds:
        """The policy's table from the store's; ``full`` where more posts are known than a document holds."""
        ids = members["feed_id"]
        dropped = (members["dropped"] > 0) | full | (now - members["added_at"] > WATCHED_S)
        feeds = Feeds.of(window_sizes(members["window"], dropped, members["by_age"]), members["weight"], self.seed)
        feeds.phase = self._phases(ids)
        # A failing feed waits for as long as was decided when it failed.
        feeds.earliest = np.where(members["errors"] > 0, members["next_poll_at"], members["earliest_at"])
        feeds.earliest = np.maximum(feeds.earliest, members["last_poll_at"] + self.least_gap_s * (1 + STRETCH * feeds.phase))
        feeds.longest_s[:] = self.longest_s
        for row, feed_id in enumerate(ids.tolist()):
            if feed_id in forbidden:
                forbid(feeds, row, forbidden[feed_id])
        return feeds

    def _phases(self, ids: np.ndarray) -> Floats:
        """As `spread`, by feed: the same whenever it is asked for."""
        phases: Floats = np.mod(self._first_phase + GOLDEN * (ids - 1), 1.0)
        return phases

    def _phase(self, feed_id: int) -> float:
        return (self._first_phase + GOLDEN * (feed_id - 1)) % 1.0

    # --- after polls ---------------------------------------------------------------------------------------------------

    async def decide(self, looks: Sequence[Look]) -> list[Decision]:
        """Learn from a batch of polls, of different feeds, and say when each is next."""
        for look in looks:
            self._note(look)
        known = [look for look in looks if look.feed_id in self._row]
        if known:
            self._observe([look for look in known if look.ok])
        rows = np.array([self._row[look.feed_id] for look in known], dtype=np.intp)
        schedules = self._schedules(rows, np.array([look.at for look in known])) if known else []
        decided = {schedule.feed_id: schedule for schedule in schedules}
        return [self._decision(look, decided.get(look.feed_id)) for look in looks]

    def _decision(self, look: Look, schedule: Schedule | None) -> Decision:
        if schedule is None or schedule.next_poll_at is None:
            return self._provisional(look)
        estimate = Estimate(self.policy.name, self.policy.save_row(self._row[look.feed_id]))
        return Decision(schedule.next_poll_at, schedule.reason, estimate)

    def _note(self, look: Look) -> None:
        """Keep what the poll says about the feed beside its posts."""
        feed_id = look.feed_id
        if look.count:
            self._spent += 1
        if look.times is not None and not self.policy.extends:
            self._documents[feed_id] = look.times
        if feed_id in self._row:
            self._constrain(look)
        elif look.times is not None:
            self._newcomers[feed_id] = _Newcomer(look, look.times)

    def _constrain(self, look: Look) -> None:
        """What the policy has to keep to, in its table."""
        feeds, feed_id = self.policy.feeds, look.feed_id
        row = self._row.get(feed_id)
        if row is None:
            return
        feeds.weight[row] = look.weight
        if look.window:
            feeds.window[row] = look.window
        feeds.earliest[row], why = self._earliest(look)
        if why:
            self._why[feed_id] = why
        else:
            self._why.pop(feed_id, None)
        if look.forbidden or feeds.forbidden is not None:
            forbid(feeds, row, look.forbidden)

    def _earliest(self, look: Look) -> tuple[float, str]:
        """The latest of what is wished and of what is polite where nothing is said."""
        gap_s = self.least_gap_s if look.asked_gap_s is None else min(look.asked_gap_s, self.least_gap_s)
        gap_s = min(gap_s, look.overflow_s / 2)
        stretched_s = gap_s * (1 + STRETCH * self._phase(look.feed_id))
        polite = look.at + stretched_s if look.ok and gap_s > 0 else -np.inf
        if polite > look.earliest:
            return polite, f"it would be asked sooner, but {duration(gap_s)} between polls is the least"
        return look.earliest, look.why

    def _observe(self, looks: Sequence[Look]) -> None:
        if not looks or not self.policy.learns:
            return
        rows = np.array([self._row[look.feed_id] for look in looks])
        shown = [self._shown(look) for look in looks]
        fresh = [look.fresh if look.times is not None else 0 for look in looks]
        seen = documents_of(shown, fresh, [look.gap for look in looks])
        self.policy.observe(rows, np.array([look.at for look in looks]), seen)

    def _shown(self, look: Look) -> Floats:
        """The times of the document, also where it was not sent again."""
        return look.times if look.times is not None else self._documents.get(look.feed_id, NO_TIMES)

    def _schedules(self, rows: Rows, asked: Floats, now: float | None = None, *, first: bool = False) -> list[Schedule]:
        """Decide for these rows, after their polls of ``asked`` (or, between polls, after ``now``)."""
        least = asked + LEAST_GAP_S if now is None else asked
        chosen = self.policy.decide(rows, asked, first=first)
        times = np.ceil(np.maximum(chosen.times, least))
        bound = self.policy.feeds.earliest[rows]
        late = asked + self.policy.feeds.longest_s[rows]
        out = []
        for i, row in enumerate(rows.tolist()):
            feed_id = self._ids[row]
            if feed_id not in self._row:
                continue
            at = float(times[i])
            why = self._why.get(feed_id, "")
            if why and at <= bound[i] + 1:
                words = why
            elif at >= late[i] and bound[i] <= late[i]:
                words = f"no feed is left alone for more than {duration(self.longest_s)}"
            else:
                words = self.policy.explain(int(chosen.code[i]), chosen.numbers[i])
            out.append(Schedule(feed_id, at, words))
        return out

    def _provisional(self, look: Look) -> Decision:
        """For a feed that the policy does not know: an even share of the budget."""
        earliest, why = self._earliest(look)
        if not look.ok:
            return Decision(float(np.ceil(max(earliest, look.at + LEAST_GAP_S))), why)
        feeds = len(self._row) + len(self._newcomers)
        even_s = min(max(DAY_S * feeds / max(self.budget_per_day, 1e-9), LEAST_GAP_S), DAY_S)
        at = look.at + even_s * (0.5 + self._phase(look.feed_id))
        if at <= earliest:
            return Decision(float(np.ceil(earliest)), why)
        return Decision(float(np.ceil(at)), "new: how often it posts is not known yet")

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
        return self._schedules(rows, np.full(len(rows), now - LEAST_GAP_S), now)

    async def _plan_anew(self, now: float) -> list[Schedule]:
        """For another budget."""
        self._budget_changed, self.next_tick = False, now + self.policy.tick_s
        self.bucket.set_budget(self.budget_per_day, now)
        if not self.policy.extends:
            self._unlearned = True  # it is started again when it is quiet
            return []
        # What was spent until now is told first: it is none of the new budget's.
        await asyncio.to_thread(self.policy.tick, now, self._spent)
        await asyncio.to_thread(self.policy.set_budget, self._useful_budget(), now)
        rows = np.arange(len(self._ids))
        return self._schedules(rows, np.full(len(rows), now - LEAST_GAP_S), now)

    async def settle(self, store: Store, now: float) -> list[Schedule]:
        """Take in the newcomers, when there is time; returns feeds whose time has changed."""
        newcomers, self._newcomers = list(self._newcomers.values()), {}
        if self.started and self.policy.extends:
            rows = await self._extend(newcomers, now)
            asked = np.array([newcomer.look.at for newcomer in newcomers])
        else:
            timings = await store.timings()
            await self._begin(store, timings[timings["window"] > 0], await store.forbidden_hours(), now)
            for newcomer in newcomers:
                self._constrain(newcomer.look)
            rows, asked = np.arange(len(self._ids)), np.full(len(self._ids), now)
        await self._adjust_budget(now)
        schedules = self._schedules(rows, asked, now, first=True)
        await self.save_rows(store, [self._ids[row] for row in rows.tolist()], now)
        await self.save(store, now)
        return schedules

    async def save_rows(self, store: Store, feed_ids: Sequence[int], now: float) -> None:
        """Put away what the policy knows of these feeds, where nobody has learned more meanwhile."""
        name, renewed = self.policy.name, self._ids if self.policy.renewed else feed_ids
        rows = {i: Estimate(name, self.policy.save_row(self._row[i])) for i in renewed if i in self._row}
        await store.save_estimates(rows, unless_since=now)

    async def _extend(self, newcomers: list[_Newcomer], now: float) -> Rows:
        looks = [newcomer.look for newcomer in newcomers]
        ids = [look.feed_id for look in looks]
        more = Feeds.of([max(look.window, 1) for look in looks], [look.weight for look in looks])
        more.phase = self._phases(np.array(ids))
        more.longest_s[:] = self.longest_s
        since = np.empty(len(looks))
        times = []
        for i, newcomer in enumerate(newcomers):
            recent = np.sort(newcomer.times[newcomer.times > now - HISTORY_S])
            look = newcomer.look
            more.earliest[i], why = self._earliest(look)
            if why:
                self._why[look.feed_id] = why
            if look.forbidden:
                forbid(more, i, look.forbidden)
            since[i] = max(min([look.added_at, *recent[:1].tolist()]), now - HISTORY_S)
            times.append(recent)
        history = documents_of(times, [len(t) for t in times], [False] * len(times))
        rows = await asyncio.to_thread(self.policy.extend, more, history, since, now)
        for feed_id, row in zip(ids, rows.tolist(), strict=True):
            self._ids.append(feed_id)
            self._row[feed_id] = row
        return rows

    def forget(self, feed_id: int) -> None:
        """A feed that is not polled any more: it keeps its row, but no poll of it is worth anything."""
        self._newcomers.pop(feed_id, None)
        row = self._row.pop(feed_id, None)
        if row is not None:
            self.policy.feeds.weight[row] = 1e-12

    def weigh(self, weights: Mapping[int, float], now: float) -> list[Schedule]:
        """These feeds matter more or less than before; returns when they are next, those that the policy knows."""
        known = {self._row[feed_id]: weight for feed_id, weight in weights.items() if feed_id in self._row}
        if not known:
            return []
        rows = np.array(list(known), dtype=np.intp)
        self.policy.feeds.weight[rows] = list(known.values())
        return self._schedules(rows, np.full(len(rows), now - LEAST_GAP_S), now)

    def pushed(self, feed_id: int, share: float) -> None:
        """So much of what a feed posts comes without asking."""
        if feed_id in self._row:
            self.policy.feeds.pushed[self._row[feed_id]] = share

    async def _adjust_budget(self, now: float) -> None:
        self.bucket.set_budget(self.budget_per_day, now)
        budget = self._useful_budget()
        if self.policy.extends and abs(budget / self.policy.budget_per_day - 1) > BUDGET_OFF:
            await asyncio.to_thread(self.policy.set_budget, budget, now)

    def _useful_budget(self) -> float:
        """What the policy may spend: no more than the least gap lets it, or it would plan for what cannot be."""
        most = len(self._row) * DAY_S / self.least_gap_s if self.least_gap_s > 0 else np.inf
        return min(self.budget_per_day, max(most, 1.0))
