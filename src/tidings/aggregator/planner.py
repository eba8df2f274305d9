"""The policy, feed by feed: which feed each row of its table is, its constraints, and its next poll with the reason."""

import asyncio
import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tidings.aggregator.document_diff import window_sizes
from tidings.aggregator.poll_observation import (
    HISTORY_S,
    NO_TIMES,
    LearnedFacts,
    PollObservation,
    build_documents,
    constraint_facts,
    stored_constraint_facts,
)
from tidings.errors import UsageError
from tidings.logs import Log
from tidings.model import DAY_S, Bools, Documents, Floats, Rows
from tidings.policy import Feeds, Policy
from tidings.policy.base import GOLDEN_RATIO, clamp, golden_ratio_phases
from tidings.policy.constraints import (
    BACKOFF,
    UNCONSTRAINED,
    Constraints,
    Limits,
    apply_constraints,
    constrain,
    no_facts,
    reason_of,
    usable_budget,
)
from tidings.policy.coordination import coordination_delay_s
from tidings.reasons import Reason, reason
from tidings.store.feed_models import Estimate, Schedule

#: Two polls of one feed are at least this far apart, as in the simulator; polls happen at whole seconds.
MIN_GAP_S = 1.0
#: What its document showed in so long a time is a feed's window, even if it was never seen to drop an entry.
WINDOW_CERTAIN_AFTER_S = 30 * DAY_S

log = Log("tidings.scheduler")


class PendingFeed(Struct, frozen=True):
    """A feed that the policy does not know yet."""

    observation: PollObservation
    times: Floats


class ConstraintBatch(Struct, frozen=True):
    """What a batch of polls means for when their feeds may be polled again; one element per poll."""

    facts: npt.NDArray[np.void]
    constraints: Constraints

    def learned(self, i: int) -> LearnedFacts:
        return LearnedFacts(
            *(self.facts[name][i].item() for name in LearnedFacts.__struct_fields__)
        )


class Planner:
    """Speaks of feeds where the policy speaks of rows."""

    def __init__(self, policy: Policy, limits: Limits, seed: int) -> None:
        self.policy, self.limits = policy, limits
        self.ready = False  #: whether the policy can decide
        self.row: dict[int, int] = {}  #: of each feed that it knows
        self.ids: list[int] = []  #: of each row, also where the feed is followed no more
        self._first_phase = float(golden_ratio_phases(1, seed)[0])
        self._documents: dict[
            int, Floats
        ] = {}  # only for policies that look at more than what is new
        self._facts = no_facts(0)  # of each row
        self._failures: dict[int, Reason] = {}  # why a feed that fails has to wait

    # --- the table -----------------------------------------------------------------------------------------------------

    def assign_rows(self, ids: list[int]) -> None:
        self.ids = ids
        self.row = {feed_id: row for row, feed_id in enumerate(ids)}

    def table(
        self, members: np.ndarray, skip: Mapping[int, bytes], now: float, full: Bools | bool = False
    ) -> Feeds:
        """The policy's table from the store's; ``full`` where more posts are known than a document holds."""
        dropped = (
            (members["dropped"] > 0) | full | (now - members["added_at"] > WINDOW_CERTAIN_AFTER_S)
        )
        windows = window_sizes(members["window"], dropped, members["by_age"])
        feeds = self.feeds(members["feed_id"], windows, members["weight"])
        self._facts = stored_constraint_facts(members, skip)
        apply_constraints(feeds, slice(None), constrain(self._facts, feeds.phase, self.limits))
        return feeds

    def feeds(self, ids: npt.ArrayLike, windows: npt.ArrayLike, weights: npt.ArrayLike) -> Feeds:
        """A table of no more than these; phases are as `spread`'s, but a feed's own whenever it is asked for."""
        feeds = Feeds.of(windows, weights)
        feeds.phase = np.mod(self._first_phase + GOLDEN_RATIO * (np.asarray(ids) - 1), 1.0)
        feeds.max_interval_s[:] = self.limits.max_interval_s
        return feeds

    def phase(self, feed_id: int) -> float:
        return (self._first_phase + GOLDEN_RATIO * (feed_id - 1)) % 1.0

    async def start(
        self,
        members: np.ndarray,
        skip: Mapping[int, bytes],
        history: Documents,
        since: Floats,
        budget: float,
        now: float,
    ) -> None:
        """Begin with these, which were numbered, and what they have posted; ``budget`` as far as it can be used."""
        table = self.table(members, skip, now, history.count > members["window"])
        usable, _ = usable_budget(table, budget)
        await asyncio.to_thread(self.policy.start, table, history, since, now, usable)
        self.ready = bool(self.ids)
        if not self.policy.extends:
            spans = zip(
                self.ids,
                members["window"].tolist(),
                history.first.tolist(),
                history.end.tolist(),
                strict=True,
            )
            for feed_id, window, first, end in spans:
                self._documents.setdefault(
                    feed_id, history.times[max(end - window, first) : end].copy()
                )

    def restore(
        self,
        ids: list[int],
        table: Feeds,
        saved: Mapping[int, bytes],
        shared: bytes,
        budget: float | None,
        now: float,
    ) -> bool:
        """Go on with what was saved of these; False if it cannot be used, and has to be learned again."""
        try:
            usable = None if budget is None else usable_budget(table, budget)[0]
            self.policy.restore(table, [saved[i] for i in ids], shared, usable, now)
        except UsageError as problem:
            log.warning("estimates not usable", problem=str(problem))
            return False
        self.assign_rows(ids)
        if len(self._facts) != len(
            ids
        ):  # constraints come with the polls that these are recalled for
            self._facts = no_facts(len(ids))
        self.ready = True
        return True

    async def extend(self, pending_feeds: Sequence[PendingFeed], now: float) -> Rows:
        """Take in more feeds; returns their rows."""
        observations = [pending_feed.observation for pending_feed in pending_feeds]
        ids = [observation.feed_id for observation in observations]
        more = self.feeds(
            ids,
            [max(observation.window, 1) for observation in observations],
            [observation.weight for observation in observations],
        )
        facts = constraint_facts(observations)
        apply_constraints(more, slice(None), constrain(facts, more.phase, self.limits))
        since = np.empty(len(observations))
        times = []
        for i, pending_feed in enumerate(pending_feeds):
            recent = np.sort(pending_feed.times[pending_feed.times > now - HISTORY_S])
            since[i] = max(
                min([pending_feed.observation.added_at, *recent[:1].tolist()]), now - HISTORY_S
            )
            times.append(recent)
        history = build_documents(times, [len(t) for t in times], [False] * len(times))
        rows = await asyncio.to_thread(self.policy.extend, more, history, since, now)
        self._facts = np.concatenate([self._facts, facts])
        for feed_id, row in zip(ids, rows.tolist(), strict=True):
            self.ids.append(feed_id)
            self.row[feed_id] = row
        return rows

    def remove_feed(self, feed_id: int) -> None:
        """It keeps its row, but no poll of it is worth anything."""
        row = self.row.pop(feed_id, None)
        if row is not None:
            self.policy.feeds.weight[row] = 1e-12

    def estimate(self, feed_id: int) -> Estimate:
        return Estimate(self.policy.name, self.policy.save_row(self.row[feed_id]))

    # --- after polls ---------------------------------------------------------------------------------------------------

    def apply_observations(self, observations: Sequence[PollObservation]) -> ConstraintBatch:
        """Take in what polls say about their feeds beside the posts: constraints, weights, windows."""
        facts = constraint_facts(observations)
        constraint_batch = ConstraintBatch(
            facts,
            constrain(
                facts,
                np.array([self.phase(observation.feed_id) for observation in observations]),
                self.limits,
            ),
        )
        for observation in observations:
            if observation.times is not None and not self.policy.extends:
                self._documents[observation.feed_id] = observation.times
            if observation.failure:
                self._failures[observation.feed_id] = observation.failure
            else:
                self._failures.pop(observation.feed_id, None)
        known = [i for i, observation in enumerate(observations) if observation.feed_id in self.row]
        if known:
            rows = np.array([self.row[observations[i].feed_id] for i in known], dtype=np.intp)
            self._facts[rows] = facts[known]
            apply_constraints(
                self.policy.feeds, rows, constraint_batch.constraints.of(np.array(known))
            )
            for i, row in zip(known, rows.tolist(), strict=True):
                self.policy.feeds.weight[row] = observations[i].weight
                if observations[i].window:
                    self.policy.feeds.window[row] = observations[i].window
        return constraint_batch

    def constraint_reason(self, feed_id: int, constraint_batch: ConstraintBatch, i: int) -> Reason:
        """Why a feed may not be polled sooner; none where it may be at any time."""
        if constraint_batch.constraints.code[i] == BACKOFF and feed_id in self._failures:
            return self._failures[feed_id]
        return reason_of(constraint_batch.constraints, constraint_batch.facts, i)

    def set_override(self, overrides: Mapping[int, float]) -> None:
        """Subscribers have set other minimum intervals, 0 for none."""
        known = {
            self.row[feed_id]: override
            for feed_id, override in overrides.items()
            if feed_id in self.row
        }
        rows = np.array(list(known), dtype=np.intp)
        if len(rows):
            self._facts["override_s"][rows] = list(known.values())
            apply_constraints(
                self.policy.feeds,
                rows,
                constrain(self._facts[rows], self.policy.feeds.phase[rows], self.limits),
            )

    def usable_budget(self, budget: float) -> tuple[float, int]:
        """How much of a budget can be used, and how many feeds their minimum interval keeps below their share."""
        return usable_budget(self.policy.feeds, budget) if self.ready else (budget, 0)

    def observe(self, observations: Sequence[PollObservation]) -> None:
        if not observations or not self.policy.learns:
            return
        rows = np.array([self.row[observation.feed_id] for observation in observations])
        shown = [
            observation.times
            if observation.times is not None
            else self._documents.get(observation.feed_id, NO_TIMES)
            for observation in observations
        ]
        new_counts = [
            observation.new_count if observation.times is not None else 0
            for observation in observations
        ]
        seen = build_documents(shown, new_counts, [observation.gap for observation in observations])
        self.policy.observe(rows, np.array([observation.at for observation in observations]), seen)

    def schedules(
        self, rows: Rows, poll_times: Floats, now: float | None = None, *, first: bool = False
    ) -> list[Schedule]:
        """Decide for these rows, after their polls of ``asked`` (or, between polls, after ``now``)."""
        least = poll_times + MIN_GAP_S if now is None else poll_times
        chosen = self.policy.decide(rows, poll_times, first=first)
        times = np.maximum(chosen.times, least)
        if self.policy.has_peer_polls:
            longer = [
                coordination_delay_s(gap_s, self.policy.participation, random.random)
                for gap_s in (times - poll_times).tolist()
            ]
            times = clamp(self.policy.feeds, rows, poll_times, times + longer)
        times = np.ceil(times)
        bound = self.policy.feeds.earliest[rows]
        late = poll_times + self.policy.feeds.max_interval_s[rows]
        facts = self._facts[rows]
        constraint_batch = ConstraintBatch(
            facts, constrain(facts, self.policy.feeds.phase[rows], self.limits)
        )
        out = []
        for i, row in enumerate(rows.tolist()):
            feed_id = self.ids[row]
            if feed_id not in self.row:
                continue
            at = float(times[i])
            if constraint_batch.constraints.code[i] != UNCONSTRAINED and at <= bound[i] + 1:
                why = self.constraint_reason(feed_id, constraint_batch, i)
            elif at >= late[i] and bound[i] <= late[i]:
                why = reason("max_interval", interval_s=self.limits.max_interval_s)
            else:
                why = self.policy.reason(int(chosen.code[i]), chosen.numbers[i])
            out.append(Schedule(feed_id, at, why))
        return out

    def reschedule(self, rows: Rows, now: float) -> list[Schedule]:
        """Decide for these rows between their polls: something else has changed."""
        return self.schedules(rows, np.full(len(rows), now - MIN_GAP_S), now)
