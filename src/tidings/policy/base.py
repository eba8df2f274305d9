"""Base class of the policies, which the simulator and the live scheduler call.

A policy has no access to the clock, to I/O or to the database. The caller passes a table of feeds
and a budget (`start`), reports the results of polls (`observe`), gets the times of the next polls
(`decide`), and calls `tick` periodically for slow work. `observe` and `decide` take arrays with one
element per feed. Times may differ between the rows of one call: feeds share only state that changes
slowly, so the simulator can advance many of them at once.

The state of a feed is one record of a numpy structured array (`row_dtype`). Any worker can load it,
observe, decide and save it again as bytes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidings.errors import UsageError
from tidings.model import DAY_S, HOUR_S, Bools, Documents, Floats, Ints, Rows
from tidings.reasons import Reason
from tidings.reasons import reason as reason_value

#: Hour of the week (from Monday) at the Unix epoch: 1 January 1970 was a Thursday.
EPOCH_HOUR = 72
HOURS_PER_WEEK = 168
#: Fractional part of the golden ratio. Any number of its multiples, modulo 1, fills [0, 1) evenly.
GOLDEN_RATIO = 0.6180339887498949


@dataclass(slots=True)
class Feeds:
    """Table of feeds with the properties that the caller measures and the policy reads.

    Each attribute is an array with one element per feed. The live service updates the arrays in
    place when it learns something new about a feed.
    """

    weight: Floats  #: importance of a post of this feed
    window: Ints  #: number of entries that the feed's document lists
    phase: Floats  #: position in the poll cycle, in [0, 1); spreads the polls of similar feeds
    cost: Floats  #: expected transfer of a poll, in units of a poll that is answered with 304
    earliest: Floats  #: earliest allowed poll (`constraints`), epoch seconds; -inf for any time
    min_interval_s: Floats  #: minimum time between polls, 0 for no constraint
    max_interval_s: Floats  #: maximum time between polls, inf for no constraint
    pushed_share: Floats  #: share of posts, in [0, 1), received without a poll (WebSub, peers)
    skip: Bools | None = None  #: (n, 168) hours of the week, Monday first, in which not to poll

    @classmethod
    def of(
        cls, window: npt.ArrayLike, weight: npt.ArrayLike | None = None, seed: int = 0
    ) -> "Feeds":
        """Create a table of feeds without poll constraints.

        ``window`` is the number of entries that each feed's document lists. ``weight`` is the
        importance of each feed, by default 1. ``seed`` determines the phases.
        """
        windows = np.asarray(window, dtype=np.int64)
        n = len(windows)
        weights = np.ones(n) if weight is None else np.asarray(weight, dtype=np.float64)
        return cls(
            weight=weights,
            window=windows,
            phase=golden_ratio_phases(n, seed),
            cost=np.ones(n),
            earliest=np.full(n, -np.inf),
            min_interval_s=np.zeros(n),
            max_interval_s=np.full(n, np.inf),
            pushed_share=np.zeros(n),
        )

    def extend(self, more: "Feeds") -> None:
        """Append the feeds of the table ``more``."""
        n = len(self)
        for name in _COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))
        if self.skip is not None or more.skip is not None:
            joined = np.zeros((len(self), HOURS_PER_WEEK), dtype=np.bool_)
            for rows, skip in ((slice(0, n), self.skip), (slice(n, None), more.skip)):
                if skip is not None:
                    joined[rows] = skip
            self.skip = joined

    def __len__(self) -> int:
        return len(self.weight)


_COLUMNS = (
    "weight",
    "window",
    "phase",
    "cost",
    "earliest",
    "min_interval_s",
    "max_interval_s",
    "pushed_share",
)


def golden_ratio_phases(n: int, seed: int = 0) -> Floats:
    """Return n evenly distributed phases in [0, 1), one per feed.

    A phase is the position of a feed in its poll cycle. The phases are a Kronecker sequence with
    the golden ratio, so those of any consecutive feeds are evenly distributed too. Sums over feeds,
    such as the polls in a period, therefore stay within one or two of their expectation, where
    independent random phases would deviate by about sqrt(n).
    """
    start = np.random.default_rng(seed).random()
    phases: Floats = np.mod(start + GOLDEN_RATIO * np.arange(n), 1.0)
    return phases


@dataclass(frozen=True, slots=True)
class Decisions:
    """Times of the next polls, with the codes and numbers that explain them.

    Each attribute has one element per feed. `Policy.reason` turns a code and its numbers into a
    reason.
    """

    times: Floats  #: epoch seconds
    code: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.float32]  #: (number of feeds, k)


class Policy(ABC):
    """Base class of the policies, which decide when each feed is polled next.

    Subclasses are registered by name in `tidings.policy.registry`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    #: Whether the budget is an input. Otherwise a rule determines the intervals, and `scale`
    #: multiplies them.
    budgeted: ClassVar[bool] = False
    #: Whether the policy itself keeps to the budget. The lab then does not search for a `scale`.
    holds_budget: ClassVar[bool] = False
    #: Whether feeds can be added while the policy runs (`extend`) and its state can be saved and
    #: restored (`save_shared_state`, `restore`). Other policies plan all feeds together; the caller
    #: creates a new policy instead.
    extends: ClassVar[bool] = False
    #: Defaults of parameters in the service, where they differ from those of the papers and the
    #: lab.
    live_defaults: ClassVar[dict[str, object]] = {}
    #: Seconds between calls of `tick`.
    tick_s: float = DAY_S
    #: Whether the last `tick` changed the saved state of every feed.
    all_rows_changed: bool = False
    #: Polls that peers have reported since the last `tick`. `observe` has received their results.
    peer_polls: int = 0
    #: Share of polls that this node does itself instead of deferring them to peers
    #: (`coordination`).
    participation: float = 1.0
    #: Whether `observe` has an effect. If not, the simulator need not compute the results of polls.
    learns: bool = True

    def __init__(self, *, scale: float = 1.0, seed: int = 0) -> None:
        if not scale > 0:
            raise UsageError(f"{self.name}: scale must be above 0, not {scale}")
        self.scale = scale
        self.seed = seed
        self.feeds: Feeds
        self.state: npt.NDArray[np.void]
        self.budget_per_day = 0.0

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        """Data type of the state of one feed."""
        return np.dtype([("since", "f8")])

    def start(
        self,
        feeds: Feeds,
        history: Documents,
        since: float | Floats,
        now: float,
        budget_per_day: float,
    ) -> None:
        """Initialize the state from a history of posts.

        ``history`` has all posts of each feed in [since, now). ``since`` is one time or one per
        feed, in epoch seconds. ``budget_per_day`` is in polls per day over all feeds.
        """
        self.feeds = feeds
        self.budget_per_day = budget_per_day
        self.state = np.zeros(len(feeds), dtype=self.row_dtype)
        self.state["since"] = since
        self._learn(history, now)

    @abstractmethod
    def _learn(self, history: Documents, now: float) -> None:
        """Initialize the state from a history of posts, as described in `start`."""

    @abstractmethod
    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        """Learn from the documents that the polls of ``rows`` at ``now`` returned.

        ``now`` has one time in epoch seconds per row, and ``seen`` one document per row.
        """

    @abstractmethod
    def _choose(self, rows: Rows, now: Floats, first: bool) -> Decisions:
        """Return the time of the next poll of each row, before poll constraints are applied.

        ``first`` is true for the first decision, before any poll of these rows.
        """

    def decide(self, rows: Rows, now: Floats, *, first: bool = False) -> Decisions:
        """Return the next poll of each row, after ``now``, within the poll constraints.

        ``first`` is true for the first decision, before any poll of these rows.
        """
        chosen = self._choose(rows, now, first)
        return replace(chosen, times=clamp(self.feeds, rows, now, chosen.times))

    def tick(self, now: float, spent: int) -> Rows | None:
        """Do slow periodic work such as fitting models; runs every `tick_s` seconds.

        ``spent`` is the number of polls made until now. Returns the rows whose next poll must be
        decided again, or None.
        """
        return None

    def reason(self, code: int, numbers: npt.NDArray[np.float32]) -> Reason:
        """Return the reason of a decision from the code and numbers in `Decisions`.

        A plug-in may override `explain` instead.
        """
        return reason_value("policy", policy=self.name, text=self.explain(code, numbers))

    def explain(self, code: int, numbers: npt.NDArray[np.float32]) -> str:
        """Return the reason as text, for a policy without a code in `tidings.reasons`."""
        return f"{self.name}: {', '.join(f'{float(number):.3g}' for number in numbers)}"

    @property
    def has_peer_polls(self) -> bool:
        """Whether peers poll the same feeds, so that polls need coordination (`coordination`)."""
        return self.peer_polls > 0

    # The next four methods are for policies with `extends`; callers check that flag first.

    def _not_extensible(self) -> NotImplementedError:
        return NotImplementedError(
            f"{self.name} plans all feeds together; start a new policy with all feeds instead"
        )

    def extend(self, feeds: Feeds, history: Documents, since: Floats, now: float) -> Rows:
        """Add feeds while the policy runs and return their row numbers.

        ``history`` has one document per feed with all posts of the feed since ``since``.
        """
        raise self._not_extensible()

    def set_budget(self, budget_per_day: float, now: float) -> None:
        """Change the budget, in polls per day over all feeds."""
        raise self._not_extensible()

    def save_shared_state(self) -> bytes:
        """Return the state that is shared by all feeds, as bytes."""
        raise self._not_extensible()

    def restore(
        self,
        feeds: Feeds,
        rows: Sequence[bytes],
        shared_state: bytes,
        budget_per_day: float | None,
        now: float,
    ) -> None:
        """Restore the state that `save_row` (one item per feed) and `save_shared_state` returned.

        Without a budget, ``feeds`` is a part of all feeds, and the saved price stays in effect.
        Raises `UsageError` if the state was written by another policy or an incompatible version.
        """
        raise self._not_extensible()

    def save_row(self, row: int) -> bytes:
        """Return the state of one feed as bytes."""
        return bytes(self.state[row].tobytes())

    def load_row(self, row: int, saved: bytes) -> None:
        """Restore the state of one feed from the bytes of `save_row`."""
        self.state[row] = np.frombuffer(saved, dtype=self.row_dtype)[0]


def clamp(feeds: Feeds, rows: Rows, now: Floats, times: Floats) -> Floats:
    """Move poll times to the nearest times that the poll constraints allow (epoch seconds).

    `earliest` takes precedence over the maximum interval, and skipped hours over both. A feed that
    skips all hours of the week is treated as if it skipped none.
    """
    latest = now + feeds.max_interval_s[rows]
    times = np.maximum(np.minimum(times, latest), feeds.earliest[rows])
    if feeds.skip is None:
        return times
    skip = feeds.skip[rows]
    skips_all = skip.all(axis=1)
    times = times.copy()
    for _ in range(HOURS_PER_WEEK):
        hour = hour_of_week(times)
        blocked = skip[np.arange(len(rows)), hour] & ~skips_all & np.isfinite(times)
        if not blocked.any():
            break
        times[blocked] = (np.floor(times[blocked] / HOUR_S) + 1) * HOUR_S
    return times


def hour_of_week(times: Floats) -> Ints:
    """Return the hour of the week in UTC of each time, from 0 (Monday 0:00) to 167."""
    finite = np.where(np.isfinite(times), times, 0.0)
    return ((finite // HOUR_S).astype(np.int64) + EPOCH_HOUR) % HOURS_PER_WEEK


def reason(code: int | npt.ArrayLike, *numbers: npt.ArrayLike, n: int) -> dict[str, Any]:
    """Return the fields ``code`` and ``numbers`` of `Decisions` for n rows.

    ``code`` and each of ``numbers`` are scalars, or arrays with one element per row.
    """
    codes = np.empty(n, dtype=np.uint8)
    codes[:] = code
    table = np.empty((n, len(numbers)), dtype=np.float32)
    for column, values in enumerate(numbers):
        table[:, column] = values
    return {"code": codes, "numbers": table}
