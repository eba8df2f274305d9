"""Choose the time of the next poll with the lowest expected cost (one-step lookahead).

Waiting from now until t costs the delay of the posts that are visible at t, plus a penalty for the
posts missed until t, minus the decrease of the value function until t: the later the poll, the less
future remains to pay for (docs/policy.md Eq. 4). The search first compares full hours, then
five-minute bins of the two hours around the best hour.
"""

from dataclasses import dataclass

import numpy as np

from tidings.model import DAY_S, HOUR_S, MINUTE_S, Bools, Floats, Ints
from tidings.policy.base import HOURS_PER_WEEK, hour_of_week
from tidings.policy.price.overflow_loss import expected_loss

#: Length of a bin in seconds, and bins per hour.
BIN_S = 300.0
BINS = int(HOUR_S / BIN_S)
#: Share of the window (entries per document) below which the overflow loss is neglected.
NEGLIGIBLE_FILL = 0.1
#: Gaps tried for a feed with a constant rate, in units of the optimal gap without losses.
STEADY_GAP_FACTORS = np.geomspace(0.02, 50, 28)


@dataclass(frozen=True, slots=True)
class LookaheadInputs:
    """Inputs of a decision about the next polls of several feeds.

    Each attribute has one element or row per feed.
    """

    now: Floats
    rate_per_day: Floats  #: posts per day
    profile: Floats  #: (n, 168) weekly profile, mean 1
    minutes: Floats  #: (n, 12) factor of each five-minute bin of the hour, mean 1
    value_decrease: Floats  #: (n, 168) decrease of the value function per hour, in polls
    pending_posts: Floats  #: posts expected since the last poll
    scale: Floats  #: weight divided by price, in polls per post-day
    window: Floats  #: entries in a document
    fano: Floats  #: variance of the counts divided by their mean
    batch: Floats  #: mean number of posts published at once
    earliest: Floats  #: earliest allowed poll, epoch seconds
    skip: Bools | None  #: (n, 168) hours of the week in which not to poll
    phase: Floats  #: position of the poll within a bin, in [0, 1); constant per feed


def optimal_steady_gap(
    rate_per_day: Floats,
    window: Floats,
    fano: Floats,
    batch: Floats,
    scale: Floats,
    loss_days: float,
) -> tuple[Floats, Floats]:
    """Return the minimum cost per day of a feed with a constant rate, and the gap between polls.

    The cost is in polls, the gap in days. If no posts are missed these are sqrt(2 rho) and
    sqrt(2 / rho), with rho = scale x rate_per_day (docs/policy.md Eq. 2). The gap is inf if the
    posts of a full window are not worth a poll. ``loss_days`` is the penalty for a missed post.
    """
    rho = np.maximum(scale * rate_per_day, 1e-12)
    lossless_gap = np.sqrt(2 / rho)
    cost, gap = np.sqrt(2 * rho), lossless_gap.copy()
    risky = np.flatnonzero(rate_per_day * lossless_gap > NEGLIGIBLE_FILL * window)
    if len(risky) == 0:
        return cost, gap
    gaps = lossless_gap[risky, None] * STEADY_GAP_FACTORS
    mass = rate_per_day[risky, None] * gaps
    lost, charged = _loss(mass, window[risky], fano[risky], batch[risky])
    delay = _integral(mass - lost, np.zeros(len(risky)), np.diff(gaps, axis=1, prepend=0.0))
    per_day = (scale[risky, None] * (delay + loss_days * charged) + 1) / gaps
    best = np.argmin(per_day, axis=1)
    row = np.arange(len(risky))
    cost[risky] = per_day[row, best]
    gap[risky] = np.where(best < len(STEADY_GAP_FACTORS) - 1, gaps[row, best], np.inf)
    return cost, gap


def _integral(values: Floats, start: Floats, width: Floats) -> Floats:
    """Return the running integral (trapezoidal rule) of values at the ends of intervals.

    ``start`` is the value at the beginning of the first interval, and ``width`` the length of each
    interval.
    """
    previous = np.concatenate([start[:, None], values[:, :-1]], axis=1)
    area: Floats = np.cumsum((values + previous) / 2 * width, axis=1)
    return area


def _loss(mass: Floats, window: Floats, fano: Floats, batch: Floats) -> tuple[Floats, Floats]:
    """Return how many posts are expected to be missed, and how many of them are avoidable.

    The part of a batch that exceeds the window is missed at any polling frequency. Only avoidable
    losses add a penalty to the cost of waiting.
    """
    lost = np.zeros_like(mass)
    row, point = np.nonzero(mass > NEGLIGIBLE_FILL * window[:, None])
    lost[row, point] = expected_loss(mass[row, point], window[row], fano[row])
    unavoidable = expected_loss(batch, window, fano) / batch
    return lost, np.maximum(lost - mass * unavoidable[:, None], 0.0)


def _losses(mass: Floats, o: LookaheadInputs) -> tuple[Floats, Floats]:
    """Return the result of `_loss`, computed only for feeds that may miss posts."""
    lost, charged = np.zeros_like(mass), np.zeros_like(mass)
    # Windows of infinite size never fill.
    risky = np.flatnonzero(mass[:, -1] > NEGLIGIBLE_FILL * o.window)
    if len(risky):
        lost[risky], charged[risky] = _loss(
            mass[risky], o.window[risky], o.fano[risky], o.batch[risky]
        )
    return lost, charged


def cheapest_poll_times(o: LookaheadInputs, hours: int, loss_days: float) -> tuple[Floats, Floats]:
    """Return the cheapest time in the next ``hours``, and the posts expected by then.

    Implements docs/policy.md Eq. 4. ``loss_days`` is the penalty for a missed post, in days of
    delay. Times are epoch seconds.
    """
    n = len(o.now)
    row = np.arange(n)
    each = row[:, None]
    hour0 = np.floor(o.now / HOUR_S)
    week_hour = hour_of_week(o.now)[:, None]
    index = (week_hour + np.arange(hours)) % HOURS_PER_WEEK

    # Hour boundaries: segment k ends at boundary k; segment 0 is the rest of the current hour.
    width = np.full((n, hours), 1 / 24)
    width[:, 0] = ((hour0 + 1) * HOUR_S - o.now) / DAY_S
    rate = o.rate_per_day[:, None] * o.profile[each, index]
    # Within an hour, posts and the decrease of the value function are distributed by `minutes`.
    active = np.full((n, hours), 1.0)
    active[:, 0] = _rest_of_hour(o.minutes, o.now)
    posts = rate / 24 * active
    mass = o.pending_posts[:, None] + np.cumsum(posts, axis=1)
    lost, charged = _losses(mass, o)
    delay = _integral(mass - lost, o.pending_posts, width)
    decrease = np.cumsum(o.value_decrease[each, index] * active, axis=1)
    cost = o.scale[:, None] * (delay + loss_days * charged) - decrease
    ends = (hour0 + 1)[:, None] * HOUR_S + HOUR_S * np.arange(hours)
    cost[_disallowed(o, ends, (index + 1) % HOURS_PER_WEEK)] = np.inf
    best = np.argmin(cost, axis=1)

    # Five-minute bins of the two hours around the best boundary.
    start = best - 1  # boundary where the bins begin; -1: the beginning of the current hour
    has_start = start >= 0
    at = np.maximum(start, 0)
    first_bin = (hour0 + 1 + start) * HOUR_S
    bins = first_bin[:, None] + BIN_S * np.arange(2 * BINS)
    segment = np.minimum((start + 1)[:, None] + np.arange(2 * BINS) // BINS, hours - 1)
    inside = np.clip((bins + BIN_S - o.now[:, None]) / BIN_S, 0.0, 1.0)
    days = inside * (BIN_S / DAY_S)
    active = np.tile(o.minutes, 2) * days
    in_bin = rate[each, segment] * active
    mass0 = np.where(has_start, mass[row, at], o.pending_posts)
    fine_mass = mass0[:, None] + np.cumsum(in_bin, axis=1)
    fine_lost, fine_charged = _losses(fine_mass, o)
    lost0 = np.where(has_start, lost[row, at], 0.0)
    delay0 = np.where(has_start, delay[row, at], 0.0)
    fine_delay = delay0[:, None] + _integral(fine_mass - fine_lost, mass0 - lost0, days)
    decrease0 = np.where(has_start, decrease[row, at], 0.0)
    fine_decrease = decrease0[:, None] + np.cumsum(
        o.value_decrease[each, index[each, segment]] * active * 24, axis=1
    )
    fine = o.scale[:, None] * (fine_delay + loss_days * fine_charged) - fine_decrease
    fine[(inside <= 0) | _disallowed(o, bins + BIN_S, hour_of_week(bins + BIN_S))] = np.inf
    pick = np.argmin(fine, axis=1)
    # The phase spreads the polls of similar feeds over the five minutes after the best bin.
    times = bins[row, pick] + BIN_S * (1 + o.phase)
    # If a poll becomes allowed within the best bin, that time is better than the end of the bin.
    # The minimum interval includes the phase, so these polls are spread too.
    allowed_in_bin = (o.earliest > np.maximum(bins[row, pick], o.now)) & (
        o.earliest <= bins[row, pick] + BIN_S
    )
    times = np.where(allowed_in_bin, o.earliest, times)

    # If the gaps are shorter than the bins, poll at the steady gap for the current rate.
    gap = np.sqrt(2 / np.maximum(o.scale * rate[:, 0], 1e-12)) * DAY_S
    fast = gap < 2 * BIN_S
    times = np.where(fast, np.minimum(times, o.now + np.maximum(gap, MINUTE_S)), times)
    return times, fine_mass[row, pick]


def _rest_of_hour(minutes: Floats, now: Floats) -> Floats:
    """Return the share of an hour's activity that is left in the current hour of each feed.

    ``minutes`` (n, 12) is the factor of each five-minute bin, with mean 1.
    """
    position = (now % HOUR_S) / BIN_S
    at = position.astype(np.int64)
    row = np.arange(len(now))
    ends = np.cumsum(minutes, axis=1)
    rest: Floats = (ends[:, -1] - ends[row, at] + minutes[row, at] * (at + 1 - position)) / BINS
    return rest


def _disallowed(o: LookaheadInputs, times: Floats, hours: Ints) -> Bools:
    """Return which times the poll constraints forbid.

    ``hours`` are the hours of the week of the times.
    """
    disallowed: Bools = times < o.earliest[:, None]
    if o.skip is not None:
        disallowed |= o.skip[np.arange(len(hours))[:, None], hours]
    return disallowed
