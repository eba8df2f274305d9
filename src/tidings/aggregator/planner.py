"""Planner that maps feeds to rows of the policy's table and applies poll constraints."""

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

#: Minimum time in seconds between two polls of a feed, as in the simulator. Polls are at whole
#: seconds.
MIN_GAP_S = 1.0
#: Age in seconds of a subscription after which the largest document is taken as full, so that its
#: number of entries is the feed's window.
WINDOW_CERTAIN_AFTER_S = 30 * DAY_S

log = Log("tidings.scheduler")


class PendingFeed(Struct, frozen=True):
    """New feed that has not been added to the policy yet."""

    observation: PollObservation
    times: Floats  #: times of all known posts


class ConstraintBatch(Struct, frozen=True):
    """Poll constraints of several feeds, and the data from which they follow.

    Each array has one element per feed.
    """

    facts: npt.NDArray[np.void]
    constraints: Constraints

    def learned(self, i: int) -> LearnedFacts:
        return LearnedFacts(
            *(self.facts[name][i].item() for name in LearnedFacts.__struct_fields__)
        )


class Planner:
    """Translator between feed ids and the rows of the policy's table."""

    def __init__(self, policy: Policy, limits: Limits, seed: int) -> None:
        self.policy, self.limits = policy, limits
        self.ready = False  #: whether the policy has been started and can decide
        self.row: dict[int, int] = {}  #: row of each feed that the policy knows
        self.ids: list[int] = []  #: feed id of each row, including removed feeds
        self._first_phase = float(golden_ratio_phases(1, seed)[0])
        # Entry times of the last documents, only for policies that use more than the new entries.
        self._documents: dict[int, Floats] = {}
        self._facts = no_facts(0)  # data for the poll constraints of each row
        self._failures: dict[int, Reason] = {}  # reasons of waits after failures

    # --- table ----------------------------------------------------------------------------------

    def assign_rows(self, ids: list[int]) -> None:
        self.ids = ids
        self.row = {feed_id: row for row, feed_id in enumerate(ids)}

    def table(
        self, members: np.ndarray, skip: Mapping[int, bytes], now: float, full: Bools | bool = False
    ) -> Feeds:
        """Return the policy's table of feeds for rows of the store's table.

        ``skip`` has the excluded hours of the week by feed id. ``full`` marks feeds that have more
        known posts than a document lists.
        """
        dropped = (
            (members["dropped"] > 0) | full | (now - members["added_at"] > WINDOW_CERTAIN_AFTER_S)
        )
        windows = window_sizes(members["window"], dropped, members["by_age"])
        feeds = self.feeds(members["feed_id"], windows, members["weight"])
        self._facts = stored_constraint_facts(members, skip)
        apply_constraints(feeds, slice(None), constrain(self._facts, feeds.phase, self.limits))
        return feeds

    def feeds(self, ids: npt.ArrayLike, windows: npt.ArrayLike, weights: npt.ArrayLike) -> Feeds:
        """Return a table of feeds without poll constraints.

        The phase of a feed, a number in [0, 1) that spreads polls, depends only on the feed id.
        """
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
        """Start the policy with the posting history of its feeds. Call `assign_rows` before.

        ``budget`` is in requests per day; the policy gets the part that poll constraints allow to
        use. ``since`` is the time from which the history of each feed is complete.
        """
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
        """Restore the saved state of the policy, and return whether that was possible.

        If not, the policy must learn the feeds again. ``saved`` has the rows by feed id, and
        ``shared`` is the state that belongs to no single feed. ``budget`` is in requests per day.
        """
        try:
            usable = None if budget is None else usable_budget(table, budget)[0]
            self.policy.restore(table, [saved[i] for i in ids], shared, usable, now)
        except UsageError as error:
            log.warning("estimates_discarded", error=str(error))
            return False
        self.assign_rows(ids)
        if len(self._facts) != len(ids):  # `apply_observations` will fill in the data
            self._facts = no_facts(len(ids))
        self.ready = True
        return True

    async def extend(self, pending_feeds: Sequence[PendingFeed], now: float) -> Rows:
        """Add feeds to the policy and return their row numbers."""
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
        """Stop scheduling a feed. Its row stays in the table, but with a weight near 0."""
        row = self.row.pop(feed_id, None)
        if row is not None:
            self.policy.feeds.weight[row] = 1e-12

    def estimate(self, feed_id: int) -> Estimate:
        return Estimate(self.policy.name, self.policy.save_row(self.row[feed_id]))

    # --- after polls ----------------------------------------------------------------------------

    def apply_observations(self, observations: Sequence[PollObservation]) -> ConstraintBatch:
        """Update poll constraints, weights and windows of the feeds that were polled.

        The window is the number of entries that a feed document lists.
        """
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
        """Return why a feed may not be polled sooner, or `NO_REASON` if it may.

        ``i`` is the index of the feed in the batch.
        """
        if constraint_batch.constraints.code[i] == BACKOFF and feed_id in self._failures:
            return self._failures[feed_id]
        return reason_of(constraint_batch.constraints, constraint_batch.facts, i)

    def set_override(self, overrides: Mapping[int, float]) -> None:
        """Apply the minimum intervals in seconds that subscribers have set, where 0 means none."""
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
        """Return the usable requests per day and the number of feeds at their minimum interval."""
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
        documents = build_documents(
            shown, new_counts, [observation.gap for observation in observations]
        )
        poll_times = np.array([observation.at for observation in observations])
        self.policy.observe(rows, poll_times, documents)

    def schedules(
        self, rows: Rows, poll_times: Floats, now: float | None = None, *, first: bool = False
    ) -> list[Schedule]:
        """Decide the next polls of the feeds in the given rows after polls at ``poll_times``.

        With ``now``, the decision is made between polls. ``first`` marks feeds that are new to the
        policy.
        """
        min_times = poll_times + MIN_GAP_S if now is None else poll_times
        decisions = self.policy.decide(rows, poll_times, first=first)
        times = np.maximum(decisions.times, min_times)
        if self.policy.has_peer_polls:
            delays = [
                coordination_delay_s(gap_s, self.policy.participation, random.random)
                for gap_s in (times - poll_times).tolist()
            ]
            times = clamp(self.policy.feeds, rows, poll_times, times + delays)
        times = np.ceil(times)
        earliest = self.policy.feeds.earliest[rows]
        latest = poll_times + self.policy.feeds.max_interval_s[rows]
        facts = self._facts[rows]
        constraint_batch = ConstraintBatch(
            facts, constrain(facts, self.policy.feeds.phase[rows], self.limits)
        )
        schedules = []
        for i, row in enumerate(rows.tolist()):
            feed_id = self.ids[row]
            if feed_id not in self.row:
                continue
            at = float(times[i])
            if constraint_batch.constraints.code[i] != UNCONSTRAINED and at <= earliest[i] + 1:
                poll_reason = self.constraint_reason(feed_id, constraint_batch, i)
            elif at >= latest[i] and earliest[i] <= latest[i]:
                poll_reason = reason("max_interval", interval_s=self.limits.max_interval_s)
            else:
                poll_reason = self.policy.reason(int(decisions.code[i]), decisions.numbers[i])
            schedules.append(Schedule(feed_id, at, poll_reason))
        return schedules

    def reschedule(self, rows: Rows, now: float) -> list[Schedule]:
        """Decide the next polls of rows again after a change of price, budget or weight."""
        return self.schedules(rows, np.full(len(rows), now - MIN_GAP_S), now)
