"""What a policy is: the one interface that the laboratory's simulator and the live scheduler both call.

A policy knows no clock, no I/O and no database. It is given a table of feeds and a budget (`start`), is told what
polls returned (`observe`), answers when to look next (`decide`), and does its slow work now and then (`tick`).
All four take arrays, one element per feed; times may differ between the rows of one call, because feeds that do not
share anything but slow state can be advanced together.

What a policy remembers of a feed is one record of a numpy structured array (`row_dtype`), so that any worker can load it,
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

#: The epoch's first hour in a week that begins on Monday: 1 January 1970 was a Thursday.
EPOCH_HOUR = 72
HOURS_PER_WEEK = 168
#: Fractional part of the golden ratio: its multiples fill [0, 1) evenly however many are taken.
GOLDEN_RATIO = 0.6180339887498949


@dataclass(slots=True)
class Feeds:
    """A struct of arrays: what the outside says about each feed. The live service changes it as it learns."""

    weight: Floats  #: how much a post of this feed matters
    window: Ints  #: entries that its document holds
    phase: Floats  #: in [0, 1): where the feed stands in a cycle of polls, so that no herd forms
    cost: Floats  #: of a poll: its expected transfer, 1 for one that is answered with 304
    earliest: Floats  #: no poll before this time (`constraints`), -inf if any will do
    min_interval_s: Floats  #: no less than this between polls, 0 if any will do
    max_interval_s: Floats  #: no more than this between polls, inf if any will do
    pushed_share: Floats  #: share of its posts, in [0, 1), that come without being asked for (WebSub, neighbours)
    skip: Bools | None = (
        None  #: (n, 168) hours of the week, Monday first, in which the feed may not be asked
    )

    @classmethod
    def of(
        cls, window: npt.ArrayLike, weight: npt.ArrayLike | None = None, seed: int = 0
    ) -> "Feeds":
        """A table of feeds without outside constraints."""
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
        """Put more feeds behind these."""
        n = len(self)
        for name in _COLUMNS:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)]))
        if self.skip is not None or more.skip is not None:
            free = np.zeros((len(self), HOURS_PER_WEEK), dtype=np.bool_)
            for rows, skip in ((slice(0, n), self.skip), (slice(n, None), more.skip)):
                if skip is not None:
                    free[rows] = skip
            self.skip = free

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
    """Phases in [0, 1) for n feeds: pseudo-random to look at, yet even over any run of neighbouring feeds.

    Sums over feeds (polls in a period, say) therefore stay within one or two of their expectation, where independent
    random phases would be off by the root of n.
    """
    start = np.random.default_rng(seed).random()
    phases: Floats = np.mod(start + GOLDEN_RATIO * np.arange(n), 1.0)
    return phases


@dataclass(frozen=True, slots=True)
class Decisions:
    """The next poll of each row and why: a small code with numbers, which `Policy.reason` names."""

    times: Floats
    code: npt.NDArray[np.uint8]
    numbers: npt.NDArray[np.float32]  #: (rows, k)


class Policy(ABC):
    """Decides when each feed is polled next. Subclasses are registered by name in `tidings.policy.registry`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    #: Whether the budget is an input; a policy without that knob polls as its rule says, times `scale`.
    budgeted: ClassVar[bool] = False
    #: Whether it steers by what was spent so far; then nobody may search for a factor on its behalf.
    holds_budget: ClassVar[bool] = False
    #: Whether feeds can be added while it runs (`extend`) and all it knows can be put away (`save_shared`, `restore`); one that
    #: plans for all feeds at once is started anew instead.
    extends: ClassVar[bool] = False
    #: Parameters that have other defaults in the service than in the laboratory, which repeats the papers.
    live_defaults: ClassVar[dict[str, object]] = {}
    #: Seconds between calls of `tick`.
    tick_s: float = DAY_S
    #: Whether the last `tick` has changed what is remembered of every feed.
    all_rows_changed: bool = False
    #: Looks that others have made and told of since the last `tick`; `observe` has heard of them like of our own.
    peer_polls: int = 0
    #: The share of looks for which we stand in line where others look as well; for the rest we wait longer, and let them.
    participation: float = 1.0
    #: Whether `observe` changes anything; if not, nobody need compute what polls return.
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
        """The record kept per feed."""
        return np.dtype([("since", "f8")])

    def start(
        self,
        feeds: Feeds,
        history: Documents,
        since: float | Floats,
        now: float,
        budget_per_day: float,
    ) -> None:
        """Begin with what is known: all posts of ``history`` came in [since, now) and have been seen.

        ``budget_per_day`` is in polls per day over all feeds, ``since`` one time or one for each feed.
        """
        self.feeds = feeds
        self.budget_per_day = budget_per_day
        self.state = np.zeros(len(feeds), dtype=self.row_dtype)
        self.state["since"] = since
        self._learn(history, now)

    @abstractmethod
    def _learn(self, history: Documents, now: float) -> None:
        """Fill the state from the history that all policies are given."""

    @abstractmethod
    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        """Take in what polls of ``rows`` at ``now`` returned."""

    @abstractmethod
    def _choose(self, rows: Rows, now: Floats, first: bool) -> Decisions:
        """The next poll of each row, were there no constraints from outside. ``first``: no poll has been made yet."""

    def decide(self, rows: Rows, now: Floats, *, first: bool = False) -> Decisions:
        """The next poll of each row, after ``now``, within the constraints of `Feeds`."""
        chosen = self._choose(rows, now, first)
        return replace(chosen, times=clamp(self.feeds, rows, now, chosen.times))

    def tick(self, now: float, spent: int) -> Rows | None:
        """Slow work; ``spent`` polls were made so far. Returns rows whose next poll must be decided again, if any."""
        return None

    def reason(self, code: int, numbers: npt.NDArray[np.float32]) -> Reason:
        """The reason of a decision, from its code and numbers. A plug-in may give `explain` instead."""
        return reason_value("policy", policy=self.name, text=self.explain(code, numbers))

    def explain(self, code: int, numbers: npt.NDArray[np.float32]) -> str:
        """The reason as text, for a policy that has no code in `tidings.reasons`."""
        return f"{self.name}: {', '.join(f'{float(number):.3g}' for number in numbers)}"

    @property
    def has_peer_polls(self) -> bool:
        """Whether others look as well: who knows the same would look at the same moment (`together`)."""
        return self.peer_polls > 0

    # The next four are for policies that say `extends`; whoever calls them has asked.

    def _not_extensible(self) -> NotImplementedError:
        return NotImplementedError(f"{self.name} plans for all feeds at once: start it anew")

    def extend(self, feeds: Feeds, history: Documents, since: Floats, now: float) -> Rows:
        """Take in more feeds, with one document each: everything they posted since ``since``. Returns their rows."""
        raise self._not_extensible()

    def set_budget(self, budget_per_day: float, now: float) -> None:
        """Go on with another budget."""
        raise self._not_extensible()

    def save_shared_state(self) -> bytes:
        """What the policy knows beyond single feeds."""
        raise self._not_extensible()

    def restore(
        self,
        feeds: Feeds,
        rows: Sequence[bytes],
        shared: bytes,
        budget_per_day: float | None,
        now: float,
    ) -> None:
        """Go on where `save_row` and `save_shared` left off; `UsageError` if that was another policy or version.

        With no budget these are some of the feeds only: they are decided for at the price that was saved.
        """
        raise self._not_extensible()

    def save_row(self, row: int) -> bytes:
        """Everything the policy remembers of one feed."""
        return bytes(self.state[row].tobytes())

    def load_row(self, row: int, saved: bytes) -> None:
        """Restore what `save_row` gave."""
        self.state[row] = np.frombuffer(saved, dtype=self.row_dtype)[0]


def clamp(feeds: Feeds, rows: Rows, now: Floats, times: Floats) -> Floats:
    """Move poll times to where they are allowed; `earliest` wins over the maximum interval, skipped hours over both."""
    latest = now + feeds.max_interval_s[rows]
    times = np.maximum(np.minimum(times, latest), feeds.earliest[rows])
    if feeds.skip is None:
        return times
    skip = feeds.skip[rows]
    everything = skip.all(axis=1)
    times = times.copy()
    for _ in range(168):
        hour = hour_of_week(times)
        blocked = skip[np.arange(len(rows)), hour] & ~everything & np.isfinite(times)
        if not blocked.any():
            break
        times[blocked] = (np.floor(times[blocked] / HOUR_S) + 1) * HOUR_S
    return times


def hour_of_week(times: Floats) -> Ints:
    """0 for Monday's first hour (UTC) to 167 for Sunday's last."""
    finite = np.where(np.isfinite(times), times, 0.0)
    return ((finite // HOUR_S).astype(np.int64) + EPOCH_HOUR) % 168


def reason(code: int | npt.ArrayLike, *numbers: npt.ArrayLike, n: int) -> dict[str, Any]:
    """The reason fields of `Decisions` for n rows from scalars or arrays."""
    codes = np.empty(n, dtype=np.uint8)
    codes[:] = code
    table = np.empty((n, len(numbers)), dtype=np.float32)
    for column, values in enumerate(numbers):
        table[:, column] = values
    return {"code": codes, "numbers": table}
