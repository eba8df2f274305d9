"""The policy, feed by feed: whose each row of its table is, what that feed has to keep to, and its next poll in words."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tidings.aggregator.looks import HISTORY_S, NO_TIMES, Look, documents_of, forbid
from tidings.aggregator.monitor import window_sizes
from tidings.errors import UsageError
from tidings.logs import Log
from tidings.model import DAY_S, Bools, Documents, Floats, Rows
from tidings.policy import Feeds, Policy
from tidings.policy.base import GOLDEN, constrain, spread
from tidings.policy.together import longer_s
from tidings.store.rows import Estimate, Schedule
from tidings.words import duration

#: Two polls of one feed are at least this far apart, as in the simulator; polls happen at whole seconds.
LEAST_GAP_S = 1.0
#: What its document showed in so long a time is a feed's window, even if it was never seen to drop an entry.
WATCHED_S = 30 * DAY_S
#: Feeds that were asked together, and would all be asked again as soon as is polite, are parted by up to this share.
STRETCH = 0.2

log = Log("tidings.brain")


class Newcomer(Struct, frozen=True):
    """A feed that the policy does not know yet."""

    look: Look
    times: Floats


class Planner:
    """Speaks of feeds where the policy speaks of rows."""

    def __init__(self, policy: Policy, least_gap_s: float, longest_s: float, seed: int) -> None:
        self.policy, self._least_gap_s, self._longest_s = policy, least_gap_s, longest_s
        self.ready = False  #: whether the policy can decide
        self.row: dict[int, int] = {}  #: of each feed that it knows
        self.ids: list[int] = []  #: of each row, also where the feed is followed no more
        self._first_phase = float(spread(1, seed)[0])
        self._documents: dict[int, Floats] = {}  # only for policies that look at more than what is new
        self._why: dict[int, str] = {}  # of `earliest`, where there is one

    # --- the table -----------------------------------------------------------------------------------------------------

    def number(self, ids: list[int]) -> None:
        self.ids = ids
        self.row = {feed_id: row for row, feed_id in enumerate(ids)}

    def table(self, members: np.ndarray, forbidden: Mapping[int, bytes], now: float, full: Bools | bool = False) -> Feeds:
        """The policy's table from the store's; ``full`` where more posts are known than a document holds."""
        ids = members["feed_id"]
        dropped = (members["dropped"] > 0) | full | (now - members["added_at"] > WATCHED_S)
        feeds = self.feeds(ids, window_sizes(members["window"], dropped, members["by_age"]), members["weight"])
        # A failing feed waits for as long as was decided when it failed.
        feeds.earliest = np.where(members["errors"] > 0, members["next_poll_at"], members["earliest_at"])
        feeds.earliest = np.maximum(feeds.earliest, members["last_poll_at"] + self._least_gap_s * (1 + STRETCH * feeds.phase))
        for row, feed_id in enumerate(ids.tolist()):
            if feed_id in forbidden:
                forbid(feeds, row, forbidden[feed_id])
        return feeds

    def feeds(self, ids: npt.ArrayLike, windows: npt.ArrayLike, weights: npt.ArrayLike) -> Feeds:
        """A table of no more than these; phases are as `spread`'s, but a feed's own whenever it is asked for."""
        feeds = Feeds.of(windows, weights)
        feeds.phase = np.mod(self._first_phase + GOLDEN * (np.asarray(ids) - 1), 1.0)
        feeds.longest_s[:] = self._longest_s
        return feeds

    def phase(self, feed_id: int) -> float:
        return (self._first_phase + GOLDEN * (feed_id - 1)) % 1.0

    async def start(
        self, members: np.ndarray, forbidden: Mapping[int, bytes], history: Documents, since: Floats, budget: float, now: float
    ) -> None:
        """Begin with these, which were numbered, and what they have posted."""
        table = self.table(members, forbidden, now, history.count > members["window"])
        await asyncio.to_thread(self.policy.start, table, history, since, now, budget)
        self.ready = bool(self.ids)
        if not self.policy.extends:
            spans = zip(self.ids, members["window"].tolist(), history.first.tolist(), history.end.tolist(), strict=True)
            for feed_id, window, first, end in spans:
                self._documents.setdefault(feed_id, history.times[max(end - window, first) : end].copy())

    def restore(
        self, ids: list[int], table: Feeds, saved: Mapping[int, bytes], shared: bytes, budget: float | None, now: float
    ) -> bool:
        """Go on with what was saved of these; False if it cannot be used, and has to be learned anew."""
        try:
            self.policy.restore(table, [saved[i] for i in ids], shared, budget, now)
        except UsageError as problem:
            log.warning("estimates not usable", problem=str(problem))
            return False
        self.number(ids)
        self.ready = True
        return True

    async def extend(self, newcomers: Sequence[Newcomer], now: float) -> Rows:
        """Take in more feeds; returns their rows."""
        looks = [newcomer.look for newcomer in newcomers]
        ids = [look.feed_id for look in looks]
        more = self.feeds(ids, [max(look.window, 1) for look in looks], [look.weight for look in looks])
        since = np.empty(len(looks))
        times = []
        for i, newcomer in enumerate(newcomers):
            recent = np.sort(newcomer.times[newcomer.times > now - HISTORY_S])
            look = newcomer.look
            more.earliest[i], why = self.earliest(look)
            if why:
                self._why[look.feed_id] = why
            if look.forbidden:
                forbid(more, i, look.forbidden)
            since[i] = max(min([look.added_at, *recent[:1].tolist()]), now - HISTORY_S)
            times.append(recent)
        history = documents_of(times, [len(t) for t in times], [False] * len(times))
        rows = await asyncio.to_thread(self.policy.extend, more, history, since, now)
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

    def constrain(self, look: Look) -> None:
        """What the policy has to keep to, in its table."""
        feed_id, row = look.feed_id, self.row.get(look.feed_id)
        if row is None:
            return
        feeds = self.policy.feeds
        feeds.weight[row] = look.weight
        if look.window:
            feeds.window[row] = look.window
        feeds.earliest[row], why = self.earliest(look)
        if why:
            self._why[feed_id] = why
        else:
            self._why.pop(feed_id, None)
        if look.forbidden or feeds.forbidden is not None:
            forbid(feeds, row, look.forbidden)

    def earliest(self, look: Look) -> tuple[float, str]:
        """The latest of what is wished and of what is polite where nothing is said."""
        gap_s = self._least_gap_s if look.asked_gap_s is None else min(look.asked_gap_s, self._least_gap_s)
        gap_s = min(gap_s, look.overflow_s / 2)
        stretched_s = gap_s * (1 + STRETCH * self.phase(look.feed_id))
        polite = look.at + stretched_s if look.ok and gap_s > 0 else -np.inf
        if polite > look.earliest:
            return polite, f"it would be asked sooner, but {duration(gap_s)} between polls is the least"
        return look.earliest, look.why

    def note(self, look: Look) -> None:
        if look.times is not None and not self.policy.extends:
            self._documents[look.feed_id] = look.times
        self.constrain(look)

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
            times = constrain(self.policy.feeds, rows, asked, times + longer)
        times = np.ceil(times)
        bound = self.policy.feeds.earliest[rows]
        late = asked + self.policy.feeds.longest_s[rows]
        out = []
        for i, row in enumerate(rows.tolist()):
            feed_id = self.ids[row]
            if feed_id not in self.row:
                continue
            at = float(times[i])
            why = self._why.get(feed_id, "")
            if why and at <= bound[i] + 1:
                words = why
            elif at >= late[i] and bound[i] <= late[i]:
                words = f"no feed is left alone for more than {duration(self._longest_s)}"
            else:
                words = self.policy.explain(int(chosen.code[i]), chosen.numbers[i])
            out.append(Schedule(feed_id, at, words))
        return out

    def anew(self, rows: Rows, now: float) -> list[Schedule]:
        """Decide for these rows between their polls: something else has changed."""
        return self.schedules(rows, np.full(len(rows), now - LEAST_GAP_S), now)
