"""Policies that set the interval of each feed from its latest document, without a budget.

They are the strategies of Urbansky et al. 2011 and FeedEx (Jun & Ahamad 2006), and simple baselines
of the literature. For comparisons at a common budget, ``scale`` multiplies all intervals and their
limits.
"""

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tidings.errors import UsageError
from tidings.model import DAY_S, HOUR_S, MINUTE_S, Documents, Floats, Rows
from tidings.policy.base import Decisions, Policy, reason
from tidings.reasons import Reason
from tidings.reasons import reason as reason_value

#: Limits of the interval. Urbansky et al. sect. 3: "we limit the poll interval to [2 min, 31 d]".
MIN_INTERVAL_S = 2 * MINUTE_S
MAX_INTERVAL_S = 31 * DAY_S


class IntervalPolicy(Policy):
    """Base class of policies that derive the next interval from the latest document."""

    min_interval_s: float = MIN_INTERVAL_S
    max_interval_s: float = MAX_INTERVAL_S
    rule: ClassVar[str] = "rule"  #: name of the rule in `tidings.reasons`

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        return np.dtype([("since", "f8"), ("interval_s", "f8")])

    def _learn(self, history: Documents, now: float) -> None:
        rows = np.arange(len(self.feeds))
        window = np.minimum(history.count, self.feeds.window)
        document = Documents(
            history.times, history.end - window, history.end - window, history.end, history.gap
        )
        self._set_first_interval(rows, np.full(len(rows), now), document)

    def _set_first_interval(self, rows: Rows, now: Floats, seen: Documents) -> None:
        """Set the interval from the first document, whose entries are all new."""
        self.state["interval_s"][rows] = self._interval(rows, now, seen)

    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        self.state["interval_s"][rows] = self._interval(rows, now, seen)

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        """Return the seconds until the next poll, before limits and scale are applied."""
        raise NotImplementedError  # not abstract: `fixed` needs no rule

    def _choose(self, rows: Rows, now: Floats, first: bool) -> Decisions:
        interval = (
            np.clip(self.state["interval_s"][rows], self.min_interval_s, self.max_interval_s)
            * self.scale
        )
        wait = interval * self.feeds.phase[rows] if first else interval
        return Decisions(now + wait, **reason(0, interval / HOUR_S, n=len(rows)))

    def reason(self, code: int, numbers: npt.NDArray[np.float32]) -> Reason:
        return reason_value(
            "adaptive", policy=self.name, interval_h=round(float(numbers[0]), 4), rule=self.rule
        )


class Fixed(IntervalPolicy):
    name = "fixed"
    summary = "a constant interval (Urbansky et al.: Fix 1h, Fix 1d)"
    rule = "configured"
    learns = False

    def __init__(self, *, interval_h: float = 1.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(scale=scale, seed=seed)
        if not interval_h > 0:
            raise UsageError(f"fixed: interval_h must be above 0, not {interval_h}")
        self.interval_h = interval_h

    def _learn(self, history: Documents, now: float) -> None:
        self.state["interval_s"] = self.interval_h * HOUR_S


def mean_gap_s(seen: Documents) -> Floats:
    """Return the mean time in seconds between the entries of a document.

    The result is nan for fewer than two entries. Urbansky et al. Eq. 1: (newest - oldest) / (w -
    1).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(seen.count > 1, (seen.newest() - seen.oldest()) / (seen.count - 1), np.nan)


class FixedLearned(IntervalPolicy):
    name = "fixed-learned"
    summary = "a constant interval, the mean gap of the first document (Urbansky et al.)"
    rule = "first_document"
    learns = False

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        gap = mean_gap_s(seen)
        return np.where(np.isnan(gap), HOUR_S, gap)


class MovingAverage(IntervalPolicy):
    """Policy whose interval is the mean gap between entries (Urbansky et al. Eq. 1 and 2).

    Eq. 1 applies if the document has new entries. Otherwise Eq. 2 applies: the time since the
    newest entry replaces the oldest gap. Each poll without new entries adds one virtual item to the
    real window (the listed entries), (poll - second oldest) / (w - 1), as in the code that the
    authors released. If virtual items accumulated, the interval would stop growing
    (docs/papers.md).
    """

    name = "moving-average"
    summary = "the mean gap of the latest document, longer without new posts (Urbansky et al.)"
    rule = "moving_average"

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        virtual_newest = np.maximum(now, seen.newest())
        with np.errstate(divide="ignore", invalid="ignore"):
            without_news = (virtual_newest - seen.oldest(1)) / (seen.count - 1)
        interval = np.where(seen.new > 0, mean_gap_s(seen), without_news)
        # If all entries have the same date there is no gap to average.
        interval = np.where(interval > 0, interval, self.max_interval_s)
        interval = np.where(seen.count == 1, HOUR_S / 2, interval)
        return np.where(seen.count == 0, self.max_interval_s, interval)


class PostRate(IntervalPolicy):
    """Policy that polls when ``target`` posts are expected, from the posts per hour of the day.

    Urbansky et al. sect. 3.4 and Eq. 3, "Post Rate". The paper uses 1,440 bins of a minute;
    interpolated hourly bins give the same interval to within a few minutes. Days of observation
    are counted up to the poll, not up to the newest post, so that the rate of a feed that stops
    posting decreases.
    """

    name = "post-rate"
    summary = "when one new post is expected, from posts per hour of the day (Urbansky et al.)"
    rule = "expected_post"
    learns_online: ClassVar[bool] = True

    def __init__(self, *, target: float = 1.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(scale=scale, seed=seed)
        if not target > 0:
            raise UsageError(f"{self.name}: target must be above 0, not {target}")
        self.target = target

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        return np.dtype([("since", "f8"), ("interval_s", "f8"), ("hourly", "f4", (24,))])

    def _learn(self, history: Documents, now: float) -> None:
        self._count(np.arange(len(self.feeds)), history)
        super()._learn(history, now)

    def _count(self, rows: Rows, seen: Documents) -> None:
        index, times = seen.new_entries()
        np.add.at(
            self.state["hourly"], (rows[index], ((times % DAY_S) // HOUR_S).astype(np.int64)), 1
        )

    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        if self.learns_online:
            self._count(rows, seen)
        super().observe(rows, now, seen)

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        state = self.state[rows]
        days = np.maximum((self._known_until(now) - state["since"]) / DAY_S, 1.0)
        per_hour = state["hourly"] / days[:, None]
        return time_to_expect(per_hour, now, self.target, self.max_interval_s)

    def _known_until(self, now: Floats) -> Floats:
        return now


class IndividualHistory(PostRate):
    name = "individual-history"
    summary = "like post-rate, with rates learned only from the training data (Bright et al. 2006)"
    rule = "trained_post"
    learns_online = False

    def _learn(self, history: Documents, now: float) -> None:
        self._trained_until = now
        super()._learn(history, now)

    def _known_until(self, now: Floats) -> Floats:
        return np.full(len(now), self._trained_until)


def time_to_expect(per_hour: Floats, now: Floats, target: float, max_interval_s: float) -> Floats:
    """Return the seconds from ``now`` until ``target`` posts are expected.

    Urbansky et al. Eq. 3, with hourly bins. ``per_hour`` (n, 24) are posts per hour, by hour of the
    day. The result is at most ``max_interval_s``.
    """
    n = len(now)
    cumulative = np.zeros((n, 49))
    np.cumsum(np.tile(per_hour, 2), axis=1, out=cumulative[:, 1:])
    daily = cumulative[:, 24]
    hour_now = (now % DAY_S) / HOUR_S
    at = hour_now.astype(np.int64)
    row = np.arange(n)
    goal = cumulative[row, at] + (hour_now - at) * per_hour[row, at] + target
    with np.errstate(divide="ignore", invalid="ignore"):
        # Subtract full days, so that the goal falls within 24 h of the current hour.
        days = np.maximum(np.ceil((goal - cumulative[row, at + 24]) / daily - 1e-9), 0.0)
        goal = goal - np.where(daily > 0, days * daily, 0.0)
        slot = np.clip((cumulative < goal[:, None] - 1e-12).sum(axis=1), 1, 48)
        low = cumulative[row, slot - 1]
        part = np.clip((goal - low) / (cumulative[row, slot] - low), 0.0, 1.0)
        wait = days * DAY_S + (slot - 1 + part - hour_now) * HOUR_S
    return np.where(daily > 0, np.minimum(wait, max_interval_s), max_interval_s)


class FreshnessRate(IntervalPolicy):
    """Policy that doubles or halves the interval by the share of new entries (FeedEx sect. 3.3).

    As printed, a share below the target *shortens* the interval. That contradicts the section's own
    reasoning and is a positive feedback. By default the direction is corrected (docs/papers.md);
    ``literal=true`` applies the rule as printed.
    """

    name = "freshness-rate"
    summary = "double or halve the interval by the share of new entries (FeedEx)"
    rule = "new_share"
    min_interval_s = 15 * MINUTE_S

    def __init__(
        self,
        *,
        target: float = 0.1,
        literal: bool = False,
        first_h: float = 1.0,
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(scale=scale, seed=seed)
        if not 0 <= target <= 1:
            raise UsageError(f"freshness-rate: target must be between 0 and 1, not {target}")
        self.target, self.literal, self.first_s = target, literal, first_h * HOUR_S

    def _set_first_interval(self, rows: Rows, now: Floats, seen: Documents) -> None:
        # All entries of a first document are new, so it gives no evidence.
        self.state["interval_s"][rows] = self.first_s

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        share = seen.new / np.maximum(seen.count, 1)
        longer = share > self.target if self.literal else share < self.target
        shorter = share < self.target if self.literal else share > self.target
        before = self.state["interval_s"][rows]
        after = np.where(longer, before * 2, np.where(shorter, before / 2, before))
        return np.clip(after, self.min_interval_s, self.max_interval_s)


class AdaptiveTtl(IntervalPolicy):
    name = "adaptive-ttl"
    summary = "a share of the time since the newest entry, like web caches"
    rule = "newest_age"

    def __init__(self, *, share: float = 0.2, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(scale=scale, seed=seed)
        self.share = share

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        return np.where(seen.count > 0, self.share * np.maximum(now - seen.newest(), 0.0), HOUR_S)


class Lru2(IntervalPolicy):
    name = "lru-2"
    summary = "the gap between the two newest entries"
    rule = "newest_gap"

    def _interval(self, rows: Rows, now: Floats, seen: Documents) -> Floats:
        return np.where(seen.count > 1, seen.newest() - seen.newest(1), HOUR_S)
