"""The policy, feed by feed: which feed each row of its table is, its constraints, and its next poll with the reason."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tidings.aggregator.looks import HISTORY_S, NO_TIMES, Learned, Look, documents_of, facts_of, stored_facts
from tidings.aggregator.monitor import window_sizes
from tidings.errors import UsageError
from tidings.logs import Log
from tidings.model import DAY_S, Bools, Documents, Floats, Rows
from tidings.policy import Feeds, Policy
from tidings.policy.base import GOLDEN, clamp, spread
from tidings.policy.constraints import (
    BACKOFF,
    NOTHING,
    Constraints,
    Limits,
    apply,
    constrain,
    no_facts,
    reason_of,
    usable_budget,
)
from tidings.policy.together import longer_s
from tidings.reasons import Reason, reason
from tidings.store.rows import Estimate, Schedule

#: Two polls of one feed are at least this far apart, as in the simulator; polls happen at whole seconds.
LEAST_GAP_S = 1.0
#: What its document showed in so long a time is a feed's window, even if it was never seen to drop an entry.
WATCHED_S = 30 * DAY_S

log = Log("tidings.brain")


class Newcomer(Struct, frozen=True):
    """A feed that the policy does not know yet."""

    look: Look
    times: Floats


class Noted(Struct, frozen=True):
    """What a batch of polls means for when their feeds may be polled again; one element per poll."""

    facts: npt.NDArray[np.void]
    constraints: Constraints

    def learned(self, i: int) -> Learned:
        return Learned(*(self.facts[name][i].item() for name in Learned.__struct_fields__))


class Planner:
    """Speaks of feeds where the policy speaks of rows."""

    def __init__(self, policy: Policy, limits: Limits, seed: int) -> None:
        self.policy, self.limits = policy, limits
        self.ready = False  #: whether the policy can decide
        self.row: dict[int, int] = {}  #: of each feed that it knows
        self.ids: list[int] = []  #: of each row, also where the feed is followed no more
        self._first_phase = float(spread(1, seed)[0])
        self._documents: dict[int, Floats] = {}  # only for policies that look at more than what is new
        self._facts = no_facts(0)  # of each row
        self._failures: dict[int, Reason] = {}  # why a feed that fails has to wait

    # --- the table -----------------------------------------------------------------------------------------------------

    def number(self, ids: list[int]) -> None:
        self.ids = ids
        self.row = {feed_id: row for row, feed_id in enumerate(ids)}

    def table(self, members: np.ndarray, skip: Mapping[int, bytes], now: float, full: Bools | bool = False) -> Feeds:
        """The policy's table from the store's; ``full`` where more posts are known than a document holds."""
        dropped = (members["dropped"] > 0) | full | (now - members["added_at"] > WATCHED_S)
        windows = window_sizes(members["window"], dropped, members["by_age"])
        feeds = self.feeds(members["feed_id"], windows, members["weight"])
        self._facts = stored_facts(members, skip)
        apply(feeds, slice(None), constrain(self._facts, feeds.phase, self.limits))
        return feeds

    def feeds(self, ids: npt.ArrayLike, windows: npt.ArrayLike, weights: npt.ArrayLike) -> Feeds:
        """A table of no more than these; phases are as `spread`'s, but a feed's own whenever it is asked for."""
        feeds = Feeds.of(windows, weights)
        feeds.phase = np.mod(self._first_phase + GOLDEN * (np.asarray(ids) - 1), 1.0)
        feeds.max_interval_s[:] = self.limits.max_interval_s
        return feeds

    def phase(self, feed_id: int) -> float:
        return (self._first_phase + GOLDEN * (feed_id - 1)) % 1.0

    async def start(
        self, members: np.ndarray, skip: Mapping[int, bytes], history: Documents, since: Floats, budget: float, now: float
    ) -> None:
        """Begin with these, which were numbered, and what they have posted; ``budget`` as far as it can be used."""
        table = self.table(members, skip, now, history.count > members["window"])
        usable, _ = usable_budget(table, budget)
        await asyncio.to_thread(self.policy.start, table, history, since, now, usable)
        self.ready = bool(self.ids)
        if not self.policy.extends:
            spans = zip(self.ids, members["window"].tolist(), history.first.tolist(), history.end.tolist(), strict=True)
            for feed_id, window, first, end in spans:
                self._documents.setdefault(feed_id, history.times[max(end - window, first) : end].copy())

    def restore(
        self, ids: list[int], table: Feeds, saved: Mapping[int, bytes], shared: bytes, budget: float | None, now: float
    ) -> bool:
        """Go on with what was saved of these; False if it cannot be used, and has to be learned again."""
        try:
            usable = None if budget is None else usable_budget(table, budget)[0]
            self.policy.restore(table, [saved[i] for i in ids], shared, usable, now)
        except UsageError as problem:
            log.warning("estimates not usable", problem=str(problem))
            return False
        self.number(ids)
        if len(self._facts) != len(ids):  # constraints come with the polls that these are recalled for
            self._facts = no_facts(len(ids))
        self.ready = True
        return True

    async def extend(self, newcomers: Sequence[Newcomer], now: float) -> Rows:
        """Take in more feeds; returns their rows."""
        looks = [newcomer.look for newcomer in newcomers]
        ids = [look.feed_id for look in looks]
        more = self.feeds(ids, [max(look.window, 1) for look in looks], [look.weight for look in looks])
        facts = facts_of(looks)
        apply(more, slice(None), constrain(facts, more.phase, self.limits))
        since = np.empty(len(looks))
        times = []
        for i, newcomer in enumerate(newcomers):
            recent = np.sort(newcomer.times[newcomer.times > now - HISTORY_S])
            since[i] = max(min([newcomer.look.added_at, *recent[:1].tolist()]), now - HISTORY_S)
            times.append(recent)
        history = documents_of(times, [len(t) for t in times], [False] * len(times))
        rows = await asyncio.to_thread(self.policy.extend, more, history, since, now)
        self._facts = np.concatenate([self._facts, facts])
        for feed_id, row in zip(ids, rows.tolist(), strict=True):
            self.ids.append(feed_id)
            self.row[feed_id] = row
        return rows

    def forget(self, feed_id: int) -> None:
        """It keeps its row, but no poll of it is worth anything."""
        row = self.row.pop(feed_id, None)
        if row is not None:
            self.policy.feeds.weight[row] = 1e-12

    def estimate(self, feed_id: int) -> Estimate:
        return Estimate(self.policy.name, self.policy.save_row(self.row[feed_id]))

    # --- after polls ---------------------------------------------------------------------------------------------------

    def note(self, looks: Sequence[Look]) -> Noted:
        """Take in what polls say about their feeds beside the posts: constraints, weights, windows."""
        facts = facts_of(looks)
        noted = Noted(facts, constrain(facts, np.array([self.phase(look.feed_id) for look in looks]), self.limits))
        for look in looks:
            if look.times is not None and not self.policy.extends:
                self._documents[look.feed_id] = look.times
            if look.failure:
                self._failures[look.feed_id] = look.failure
            else:
                self._failures.pop(look.feed_id, None)
        known = [i for i, look in enumerate(looks) if look.feed_id in self.row]
        if known:
            rows = np.array([self.row[looks[i].feed_id] for i in known], dtype=np.intp)
            self._facts[rows] = facts[known]
            apply(self.policy.feeds, rows, noted.constraints.of(np.array(known)))
            for i, row in zip(known, rows.tolist(), strict=True):
                self.policy.feeds.weight[row] = looks[i].weight
                if looks[i].window:
                    self.policy.feeds.window[row] = looks[i].window
        return noted

    def bound_reason(self, feed_id: int, noted: Noted, i: int) -> Reason:
        """Why a feed may not be polled sooner; none where it may be at any time."""
        if noted.constraints.code[i] == BACKOFF and feed_id in self._failures:
            return self._failures[feed_id]
        return reason_of(noted.constraints, noted.facts, i)

    def set_override(self, overrides: Mapping[int, float]) -> None:
        """Subscribers have set other minimum intervals, 0 for none."""
        known = {self.row[feed_id]: override for feed_id, override in overrides.items() if feed_id in self.row}
        rows = np.array(list(known), dtype=np.intp)
        if len(rows):
            self._facts["override_s"][rows] = list(known.values())
            apply(self.policy.feeds, rows, constrain(self._facts[rows], self.policy.feeds.phase[rows], self.limits))

    def usable_budget(self, budget: float) -> tuple[float, int]:
        """How much of a budget can be used, and how many feeds their minimum interval keeps below their share."""
        return usable_budget(self.policy.feeds, budget) if self.ready else (budget, 0)

    def observe(self, looks: Sequence[Look]) -> None:
        if not looks or not self.policy.learns:
            return
        rows = np.array([self.row[look.feed_id] for look in looks])
        shown = [look.times if look.times is not None else self._documents.get(look.feed_id, NO_TIMES) for look in looks]
        fresh = [look.fresh if look.times is not None else 0 for look in looks]
        seen = documents_of(shown, fresh, [look.gap for look in looks])
        self.policy.observe(rows, np.array([look.at for look in looks]), seen)

    def schedules(self, rows: Rows, asked: Floats, now: float | None = None, *, first: bool = False) -> list[Schedule]:
        """Decide for these rows, after their polls of ``asked`` (or, between polls, after ``now``)."""
        least = asked + LEAST_GAP_S if now is None else asked
        chosen = self.policy.decide(rows, asked, first=first)
        times = np.maximum(chosen.times, least)
        if self.policy.among_others:
            longer = [longer_s(gap_s, self.policy.turns, random.random) for gap_s in (times - asked).tolist()]
            times = clamp(self.policy.feeds, rows, asked, times + longer)
        times = np.ceil(times)
        bound = self.policy.feeds.earliest[rows]
        late = asked + self.policy.feeds.max_interval_s[rows]
        facts = self._facts[rows]
        noted = Noted(facts, constrain(facts, self.policy.feeds.phase[rows], self.limits))
        out = []
        for i, row in enumerate(rows.tolist()):
            feed_id = self.ids[row]
            if feed_id not in self.row:
                continue
            at = float(times[i])
            if noted.constraints.code[i] != NOTHING and at <= bound[i] + 1:
                why = self.bound_reason(feed_id, noted, i)
            elif at >= late[i] and bound[i] <= late[i]:
                why = reason("max_interval", interval_s=self.limits.max_interval_s)
            else:
                why = self.policy.reason(int(chosen.code[i]), chosen.numbers[i])
            out.append(Schedule(feed_id, at, why))
        return out

    def anew(self, rows: Rows, now: float) -> list[Schedule]:
        """Decide for these rows between their polls: something else has changed."""
        return self.schedules(rows, np.full(len(rows), now - LEAST_GAP_S), now)
