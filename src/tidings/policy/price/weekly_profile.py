"""The pattern: how a feed's posts spread over the hours of the week, from its own posts and from feeds like it.

Layers of Dirichlet shrinkage: the clusters' weekly shapes; the feed's own hours of the day, smoothed, then sharp, and its days
of the week; its own hours of the week. How strongly a layer holds the next is told by each feed's own posts (which strength
would have foretold every post best from all the others?), and by the population where a feed has few. Posts that come in a
burst are one piece of evidence about the hours, and posts of one day one piece about the days, not many.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tidings.model import HOUR_S, Floats, Rows
from tidings.policy.base import EPOCH_HOUR
from tidings.policy.price.value_function import HOURS_PER_WEEK

CLUSTERS = 12
#: Pseudo-posts with which evenness may hold the five-minute bins of the hour; and the evidence that they must bring (nats).
MINUTE_STRENGTHS = np.array([1.0, 5.0, 30.0, 150.0])
MINUTE_EVIDENCE = 5.0
#: Own hours of the day lend to their neighbours like this.
KERNEL = np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9
#: Strengths offered to each layer, in pseudo-posts: cluster -> own hours of the day, smoothed; smoothed -> own hours of the
#: day; cluster -> own days of the week; own days and hours -> own hours of the week.
STRENGTH_CANDIDATES = (
    np.array([5.0, 20.0, 80.0, 320.0]),
    np.array([1.0, 5.0, 25.0, 125.0, 1000.0]),
    np.array([5.0, 25.0, 125.0, 625.0, 3000.0]),
    np.array([40.0, 200.0, 1000.0, 5000.0]),
)
LAYERS = len(STRENGTH_CANDIDATES)
#: The kernel around the clock, as a matrix: (24, 24).
CIRCULAR_KERNEL: Floats = np.sum(
    [weight * np.roll(np.eye(24), k - 2, axis=1) for k, weight in enumerate(KERNEL)], axis=0
)
#: Feeds that are looked at together: temporary arrays have the weeks of so many, several times.
CHUNK_ROWS = 250
#: How many feeds are asked, at most, which strength they prefer.
MAX_SAMPLED_FEEDS = 2_000
#: The population's word on strengths is worth this many feeds that think nothing.
UNIFORM_PRIOR_FEEDS = 5.0


def in_chunks(rows: Rows) -> list[Rows]:
    """A few rows at a time: all at once would take the memory of their weeks several times."""
    return [rows[begin : begin + CHUNK_ROWS] for begin in range(0, len(rows), CHUNK_ROWS)]


def _uniform_strength_prior() -> tuple[Floats, ...]:
    return tuple(np.full(len(offered), 1 / len(offered)) for offered in STRENGTH_CANDIDATES)


@dataclass(frozen=True, slots=True)
class SharedProfiles:
    """What feeds share: cluster shapes (k, 168), each summing to 1, their shares of the population, and how many feeds prefer
    each of the strengths offered, per layer."""

    centers: Floats
    shares: Floats
    strength_prior: tuple[Floats, ...] = field(default_factory=_uniform_strength_prior)


def fit_profiles(
    hours: Floats, k: int = CLUSTERS, seed: int = 0, rounds: int = 25
) -> SharedProfiles:
    """EM for a mixture of k multinomials over the hours of the week: feeds weigh by their evidence, sparse ones hardly.

    ``hours`` (n, 168) are counts, already tempered for bursts.
    """
    totals = hours.sum(axis=1)
    population = hours.sum(axis=0) + 1.0
    population /= population.sum()
    rng = np.random.default_rng(seed)
    rich = np.flatnonzero(totals >= 20)
    k = min(k, len(rich))
    if k < 2:
        return SharedProfiles(population[None, :], np.ones(1))
    tempered = hours[rich]
    tempered *= np.minimum(1.0, 200 / totals[rich])[:, None]  # no feed speaks louder than 200 posts
    centers = _seeds(tempered, population, k, rng)
    shares = np.full(k, 1 / k)
    for _ in range(rounds):
        z = responsibilities(tempered, SharedProfiles(centers, shares))
        shares = (z.sum(axis=0) + 1) / (len(rich) + k)
        centers = smooth(z.T @ tempered) + 10 * population
        centers /= centers.sum(axis=1, keepdims=True)
    return SharedProfiles(np.vstack([centers, population]), np.append(shares * 0.9, 0.1))


def _seeds(counts: Floats, population: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Far-apart profiles to start from (k-means++ on square roots, the Hellinger distance)."""
    roots = np.empty_like(counts)
    for part in in_chunks(np.arange(len(counts))):
        roots[part] = np.sqrt(
            (smooth(counts[part]) + 5 * population) / (counts[part].sum(axis=1, keepdims=True) + 5)
        )

    def distance_to(row: int) -> Floats:
        apart: Floats = np.maximum(2 - 2 * (roots @ roots[row]), 0.0)  # each row's squares sum to 1
        return apart

    chosen = [int(rng.integers(len(roots)))]
    distance = distance_to(chosen[0])
    while len(chosen) < k:
        total = distance.sum()
        chosen.append(int(rng.choice(len(roots), p=distance / total if total > 0 else None)))
        distance = np.minimum(distance, distance_to(chosen[-1]))
    return roots[chosen] ** 2


def smooth(counts: Floats) -> Floats:
    """Neighbouring hours lend a quarter each (the week is a circle)."""
    quarter = counts / 4
    lent: Floats = counts / 2
    lent += np.roll(quarter, 1, axis=-1)
    lent += np.roll(quarter, -1, axis=-1)
    return lent


def responsibilities(hours: Floats, profiles: SharedProfiles) -> Floats:
    """How well each cluster explains each feed: (n, k), rows sum to 1."""
    log = hours @ np.log(profiles.centers).T + np.log(profiles.shares)
    log -= log.max(axis=1, keepdims=True)
    z: Floats = np.exp(log)
    z /= z.sum(axis=1, keepdims=True)
    return z


def _smooth_hours_of_day(of_day: Floats) -> Floats:
    """Hours of the day (n, 24) smoothed with the kernel, the day being a circle."""
    smoothed: Floats = of_day @ CIRCULAR_KERNEL
    return smoothed


def _posterior(counts: Floats, size: Floats, above: Floats, strength: Floats) -> Floats:
    """Mean of a Dirichlet layer: counts, ``size`` in all, held by the layer above."""
    mean: Floats = (counts + strength * above) / (size + strength)
    return mean


def _posterior_rows(counts: Floats, above: Floats, strength: Floats) -> Floats:
    """What a layer comes to; rows sum to 1."""
    return _posterior(counts, counts.sum(axis=-1, keepdims=True), above, strength)


def _leave_one_out(counts: Floats, weight: float) -> tuple[Floats, Floats]:
    """Counts and their sums, for each bin as if one of its own posts (which lent it ``weight``) had not been seen."""
    return np.maximum(counts - weight, 0.0), np.maximum(counts.sum(axis=-1, keepdims=True) - 1, 0.0)


@dataclass(frozen=True, slots=True)
class TemperedCounts:
    """Counts of some feeds over the hours of the week (n, 168), tempered: what they tell of the hours of the day (posts of a
    burst are one), and of the week (posts of a day are one)."""

    hours: Floats
    weekly: Floats

    @classmethod
    def of(cls, hours: Floats, events: Floats, days: Floats) -> "TemperedCounts":
        """From raw counts, which become tempered ones, and how many bursts and different days they came in."""
        total = np.maximum(hours.sum(axis=1), 1.0)
        weekly = hours * np.clip(days / total, 0.02, 1.0)[:, None]
        hours *= np.clip(events / total, 0.05, 1.0)[:, None]
        return cls(hours, weekly)

    @property
    def days(self) -> Floats:
        """Days of the week: (n, 7)."""
        days: Floats = self.weekly.reshape(len(self.weekly), 7, 24).sum(axis=2)
        return days

    def take(self, rows: Rows) -> "TemperedCounts":
        return TemperedCounts(self.hours[rows], self.weekly[rows])


def _layers(e: TemperedCounts, prior: Floats, strengths: Floats) -> tuple[Floats, Floats, Floats]:
    """Smoothed hours of the day, sharp ones, days of the week; each sums to 1."""
    n = len(prior)
    above = prior.reshape(n, 7, 24)
    of_day = e.hours.reshape(n, 7, 24).sum(axis=1)
    smooth_day = _posterior_rows(_smooth_hours_of_day(of_day), above.sum(axis=1), strengths[:, 0:1])
    day = _posterior_rows(of_day, smooth_day, strengths[:, 1:2])
    week = _posterior_rows(e.days, above.sum(axis=2), strengths[:, 2:3])
    return smooth_day, day, week


def weekly_profile(
    e: TemperedCounts, z: Floats, strengths: Floats, profiles: SharedProfiles
) -> Floats:
    """Shape of each feed over the week, mean 1: (n, 168). ``z`` are its clusters, ``strengths`` (n, LAYERS) its own."""
    _, day, week = _layers(e, z @ profiles.centers, strengths)
    own = (week[:, :, None] * day[:, None, :]).reshape(len(z), HOURS_PER_WEEK)
    profile: Floats = _posterior_rows(e.weekly, own, strengths[:, 3:4]) * HOURS_PER_WEEK
    return profile


def leave_one_out_strengths(
    e: TemperedCounts, z: Floats, profiles: SharedProfiles
) -> tuple[Floats, tuple[Floats, ...]]:
    """The strengths that would have foretold each post of a feed best from its others: (n, LAYERS), and how likely all are.

    Leaving one out is what lets a layer be judged by the very posts that it was made from.
    """
    n = len(z)
    prior = (z @ profiles.centers).reshape(n, 7, 24)
    of_day, above = e.hours.reshape(n, 7, 24).sum(axis=1), prior.sum(axis=1)
    around = _smooth_hours_of_day(of_day)
    chosen = np.empty((n, LAYERS))
    likely = []

    def choose(
        layer: int, counts: Floats, lent: Floats, above: Floats, weight: float = 1.0
    ) -> Floats:
        """Settle the strength of a layer by the bins that have ``counts``; returns what is foretold with it."""
        offered = STRENGTH_CANDIDATES[layer][:, None]
        left, size = _leave_one_out(lent, weight)
        row, bin = np.nonzero(counts)  # most are empty, and say nothing
        told = counts[row, bin] * np.log(
            _posterior(left[row, bin], size[row, 0], above[row, bin], offered)
        )
        score = np.stack([np.bincount(row, each, n) for each in told], axis=1) + np.log(
            profiles.strength_prior[layer]
        )
        chosen[:, layer] = STRENGTH_CANDIDATES[layer][np.argmax(score, axis=1)]
        score = np.exp(score - score.max(axis=1, keepdims=True))
        likely.append(score / score.sum(axis=1, keepdims=True))
        return _posterior(left, size, above, chosen[:, layer : layer + 1])

    smooth_day = choose(0, of_day, around, above, float(KERNEL[2]))
    day = choose(1, of_day, of_day, smooth_day)
    week = choose(2, e.days, e.days, prior.sum(axis=2))
    own = (week[:, :, None] * day[:, None, :]).reshape(n, HOURS_PER_WEEK)
    choose(3, e.weekly, e.weekly, own)
    return chosen, tuple(likely)


def fit_strength_prior(
    evidence: Callable[[Rows], TemperedCounts],
    rows: Rows,
    profiles: SharedProfiles,
    rounds: int = 4,
) -> SharedProfiles:
    """Let the feeds with much to say tell how many prefer which strength (EM); ``evidence`` tells that of some ``rows``."""
    told = [evidence(part).hours.sum(axis=1) for part in in_chunks(rows)]
    rows = rows[np.concatenate([np.zeros(0), *told]) >= 20][:MAX_SAMPLED_FEEDS]
    clusters = [responsibilities(evidence(part).hours, profiles) for part in in_chunks(rows)]
    for _ in range(rounds if len(rows) else 0):
        likely = [
            leave_one_out_strengths(evidence(part), z, profiles)[1]
            for part, z in zip(in_chunks(rows), clusters, strict=True)
        ]
        votes = (
            np.sum([each.sum(axis=0) for each in layer], axis=0)
            for layer in zip(*likely, strict=True)
        )
        strength_prior = tuple(
            (each + UNIFORM_PRIOR_FEEDS / len(each)) / (len(rows) + UNIFORM_PRIOR_FEEDS)
            for each in votes
        )
        profiles = SharedProfiles(profiles.centers, profiles.shares, strength_prior)
    return profiles


def minute_factor(minutes: Floats, events: Floats) -> Floats:
    """Factor of each five-minute bin of the hour, mean 1: (n, 12); 1 throughout unless the evidence is strong."""
    bins = minutes.shape[1]
    counts = minutes * np.clip(events / np.maximum(minutes.sum(axis=1), 1.0), 0.05, 1.0)[:, None]
    even = np.full((1, bins), 1 / bins)
    strengths = MINUTE_STRENGTHS[:, None, None]
    gain = (counts * np.log(_posterior(*_leave_one_out(counts, 1.0), even, strengths) * bins)).sum(
        axis=2
    )
    best = np.argmax(gain, axis=0)
    factor = _posterior_rows(counts, even, MINUTE_STRENGTHS[best][:, None]) * bins
    kept: Floats = np.where(
        gain[best, np.arange(len(counts))][:, None] > MINUTE_EVIDENCE, factor, 1.0
    )
    return kept


def mass_between(profile: Floats, begin: Floats, end: Floats) -> Floats:
    """Integral of a weekly profile (n, 168), in hours of average activity, between two times of each row."""
    ends = np.cumsum(profile, axis=1)
    row = np.arange(len(profile))

    def upto(t: Floats) -> Floats:
        hours = t / HOUR_S + EPOCH_HOUR
        weeks = np.floor(hours / HOURS_PER_WEEK)
        within = hours - weeks * HOURS_PER_WEEK
        at = np.minimum(within.astype(np.int64), HOURS_PER_WEEK - 1)
        total: Floats = weeks * ends[:, -1] + ends[row, at] - (at + 1 - within) * profile[row, at]
        return total

    return upto(end) - upto(begin)


def hours_between(begin: Floats, end: Floats) -> Floats:
    """How long each hour of the week lasted between two times of each row, in hours: (n, 168)."""

    def upto(t: Floats) -> Floats:
        weeks, within = np.divmod(t / HOUR_S + EPOCH_HOUR, HOURS_PER_WEEK)
        total: Floats = weeks[:, None] + np.clip(
            within[:, None] - np.arange(HOURS_PER_WEEK), 0.0, 1.0
        )
        return total

    return upto(end) - upto(begin)


#: Length of the busiest time of day that is told to people.
BUSIEST_HOURS = 4


def busiest_hours(profile: Floats) -> Floats:
    """For words: (n, 3) first hour of the busiest HABIT_HOURS of the day, their share of posts, and the weekend's."""
    week = profile.reshape(len(profile), 7, 24) / HOURS_PER_WEEK
    of_day = week.sum(axis=1)
    busy = np.sum([np.roll(of_day, -k, axis=1) for k in range(BUSIEST_HOURS)], axis=0)
    first = np.argmax(busy, axis=1)
    return np.column_stack(
        [first, busy[np.arange(len(profile)), first], week[:, 5:].sum(axis=(1, 2))]
    )
