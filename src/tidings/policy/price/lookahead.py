"""One step ahead: of all moments to look next, the one that costs least.

Waiting from now until t costs what the posts visible by then have waited, plus what the posts lost by then are charged, minus
the fall of the value until t (`value`: the later we look, the less future is left to pay for). Hours first, then five-minute
bins of the two hours around the best.
"""

from dataclasses import dataclass

import numpy as np

from tidings.model import DAY_S, HOUR_S, MINUTE_S, Bools, Floats, Ints
from tidings.policy.base import hour_of_week
from tidings.policy.price.overflow_loss import expected_loss
from tidings.policy.price.value_function import HOURS_PER_WEEK

BIN_S = 300.0
BINS = int(HOUR_S / BIN_S)
#: Windows that are filled to less than this share lose nothing worth computing.
NEGLIGIBLE_FILL = 0.1
#: Gaps tried for a steady feed, in units of the gap that it would have without losses.
STEADY_GAP_FACTORS = np.geomspace(0.02, 50, 28)


@dataclass(frozen=True, slots=True)
class LookaheadInputs:
    """What is known of some feeds when they are to be decided; one element (or row) per feed."""

    now: Floats
    rate_per_day: Floats  #: posts a day
    profile: Floats  #: (n, 168), mean 1
    minutes: Floats  #: (n, 12), mean 1
    fall: Floats  #: (n, 168) fall of the value per hour of the week, in polls
    pending_posts: Floats  #: posts expected since the last look
    scale: Floats  #: weight over price: polls per post-day
    window: Floats
    fano: Floats
    batch: Floats  #: posts that come at once, on average
    earliest: Floats
    skip: Bools | None  #: (n, 168)
    phase: Floats  #: where in a bin to look: in [0, 1), and the same always


def optimal_steady_gap(
    rate_per_day: Floats,
    window: Floats,
    fano: Floats,
    batch: Floats,
    scale: Floats,
    loss_days: float,
) -> tuple[Floats, Floats]:
    """Least cost a day (in polls) of a feed that posts evenly, and the gap (days) that has it.

    Without losses: sqrt(2 rho) at sqrt(2 / rho), rho = scale x rate_per_day. A gap without end: what a full window saves is not
    worth a poll, now.
    """
    rho = np.maximum(scale * rate_per_day, 1e-12)
    free_gap = np.sqrt(2 / rho)
    cost, gap = np.sqrt(2 * rho), free_gap.copy()
    risky = np.flatnonzero(rate_per_day * free_gap > NEGLIGIBLE_FILL * window)
    if len(risky) == 0:
        return cost, gap
    gaps = free_gap[risky, None] * STEADY_GAP_FACTORS
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
    """Running integral by trapezes of values at the ends of intervals, beginning at ``start``."""
    before = np.concatenate([start[:, None], values[:, :-1]], axis=1)
    area: Floats = np.cumsum((values + before) / 2 * width, axis=1)
    return area


def _loss(mass: Floats, window: Floats, fano: Floats, batch: Floats) -> tuple[Floats, Floats]:
    """Posts expected to be lost at each of a row's points, and those of them that polling could have saved.

    What is lost of a batch larger than the window is lost however often one looks.
    """
    lost = np.zeros_like(mass)
    row, point = np.nonzero(mass > NEGLIGIBLE_FILL * window[:, None])
    lost[row, point] = expected_loss(mass[row, point], window[row], fano[row])
    anyway = expected_loss(batch, window, fano) / batch
    return lost, np.maximum(lost - mass * anyway[:, None], 0.0)


def _losses(mass: Floats, o: LookaheadInputs) -> tuple[Floats, Floats]:
    """`_loss`, computed for feeds only whose window may fill."""
    lost, charged = np.zeros_like(mass), np.zeros_like(mass)
    risky = np.flatnonzero(
        mass[:, -1] > NEGLIGIBLE_FILL * o.window
    )  # never, for a window without end
    if len(risky):
        lost[risky], charged[risky] = _loss(
            mass[risky], o.window[risky], o.fano[risky], o.batch[risky]
        )
    return lost, charged


def cheapest_poll_times(o: LookaheadInputs, hours: int, loss_days: float) -> tuple[Floats, Floats]:
    """The moment of least cost within ``hours`` for each feed, and the posts expected by then."""
    n = len(o.now)
    row = np.arange(n)
    each = row[:, None]
    hour0 = np.floor(o.now / HOUR_S)
    week_hour = hour_of_week(o.now)[:, None]
    index = (week_hour + np.arange(hours)) % HOURS_PER_WEEK

    # Hour boundaries: segment k ends at boundary k; segment 0 is what is left of this hour.
    width = np.full((n, hours), 1 / 24)
    width[:, 0] = ((hour0 + 1) * HOUR_S - o.now) / DAY_S
    rate = o.rate_per_day[:, None] * o.profile[each, index]
    # Within an hour, posts and with them the fall of the value spread as the minutes of the hour say.
    active = np.full((n, hours), 1.0)
    active[:, 0] = _rest_of_hour(o.minutes, o.now)
    posts = rate / 24 * active
    mass = o.pending_posts[:, None] + np.cumsum(posts, axis=1)
    lost, charged = _losses(mass, o)
    delay = _integral(mass - lost, o.pending_posts, width)
    fall = np.cumsum(o.fall[each, index] * active, axis=1)
    cost = o.scale[:, None] * (delay + loss_days * charged) - fall
    ends = (hour0 + 1)[:, None] * HOUR_S + HOUR_S * np.arange(hours)
    cost[_disallowed(o, ends, (index + 1) % HOURS_PER_WEEK)] = np.inf
    best = np.argmin(cost, axis=1)

    # Five-minute bins of the two hours around the best boundary, with the minutes of the hour.
    start = best - 1  # the boundary where the bins begin; -1: the beginning of this hour
    known = start >= 0
    at = np.maximum(start, 0)
    first_bin = (hour0 + 1 + start) * HOUR_S
    bins = first_bin[:, None] + BIN_S * np.arange(2 * BINS)
    segment = np.minimum((start + 1)[:, None] + np.arange(2 * BINS) // BINS, hours - 1)
    inside = np.clip((bins + BIN_S - o.now[:, None]) / BIN_S, 0.0, 1.0)
    days = inside * (BIN_S / DAY_S)
    active = np.tile(o.minutes, 2) * days
    in_bin = rate[each, segment] * active
    mass0 = np.where(known, mass[row, at], o.pending_posts)
    fine_mass = mass0[:, None] + np.cumsum(in_bin, axis=1)
    fine_lost, fine_charged = _losses(fine_mass, o)
    lost0 = np.where(known, lost[row, at], 0.0)
    delay0 = np.where(known, delay[row, at], 0.0)
    fine_delay = delay0[:, None] + _integral(fine_mass - fine_lost, mass0 - lost0, days)
    fall0 = np.where(known, fall[row, at], 0.0)
    fine_fall = fall0[:, None] + np.cumsum(o.fall[each, index[each, segment]] * active * 24, axis=1)
    fine = o.scale[:, None] * (fine_delay + loss_days * fine_charged) - fine_fall
    fine[(inside <= 0) | _disallowed(o, bins + BIN_S, hour_of_week(bins + BIN_S))] = np.inf
    pick = np.argmin(fine, axis=1)
    times = bins[row, pick] + BIN_S * (1 + o.phase)  # at the same second for all would be a herd
    # Where the best bin is the one in which a poll becomes allowed, that moment is better than its end. The minimum
    # interval is stretched by phase, so this is no herd either.
    begins = (o.earliest > np.maximum(bins[row, pick], o.now)) & (
        o.earliest <= bins[row, pick] + BIN_S
    )
    times = np.where(begins, o.earliest, times)

    # Feeds faster than the bins: the steady gap at the rate of now.
    gap = np.sqrt(2 / np.maximum(o.scale * rate[:, 0], 1e-12)) * DAY_S
    fast = gap < 2 * BIN_S
    times = np.where(fast, np.minimum(times, o.now + np.maximum(gap, MINUTE_S)), times)
    return times, fine_mass[row, pick]


def _rest_of_hour(minutes: Floats, now: Floats) -> Floats:
    """Hours of average activity that are left of this hour, given the minutes at which a feed posts."""
    position = (now % HOUR_S) / BIN_S
    at = position.astype(np.int64)
    row = np.arange(len(now))
    ends = np.cumsum(minutes, axis=1)
    rest: Floats = (ends[:, -1] - ends[row, at] + minutes[row, at] * (at + 1 - position)) / BINS
    return rest


def _disallowed(o: LookaheadInputs, times: Floats, hours: Ints) -> Bools:
    """Moments at which the outside does not allow a look."""
    closed: Bools = times < o.earliest[:, None]
    if o.skip is not None:
        closed |= o.skip[np.arange(len(hours))[:, None], hours]
    return closed
