"""Estimate how the posts of a feed are distributed over the hours of the week.

The weekly profile of a feed is shrunk towards a mixture of clusters of feeds, in layers of
Dirichlet shrinkage, each towards the layer above: the weekly profiles of the clusters; the feed's
own hours of the day, first smoothed, then unsmoothed, and its days of the week; its own hours of
the week. The strength of a layer is chosen per feed by leave-one-out likelihood (which strength
predicts each post best from all the others), with a prior from all feeds that decides for feeds
with few posts. Posts of a burst count once as evidence about the hours, and posts of a day once as
evidence about the days of the week. docs/policy.md describes the model.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tidings.model import HOUR_S, WEEK_S, Floats, Rows
from tidings.policy.base import EPOCH_HOUR, HOURS_PER_WEEK

#: Maximum number of clusters.
CLUSTERS = 12
#: Candidate strengths, in pseudo-posts, of the uniform prior of the five-minute bins of the hour,
#: and the gain of log likelihood (nats) above which the bins are used.
MINUTE_STRENGTHS = np.array([1.0, 5.0, 30.0, 150.0])
MINUTE_EVIDENCE = 5.0
#: Smoothing kernel for the hours of the day.
KERNEL = np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9
#: Candidate strengths of each layer, in pseudo-posts: cluster -> smoothed hours of the day;
#: smoothed -> unsmoothed hours of the day; cluster -> days of the week; days and hours -> hours of
#: the week.
STRENGTH_CANDIDATES = (
    np.array([5.0, 20.0, 80.0, 320.0]),
    np.array([1.0, 5.0, 25.0, 125.0, 1000.0]),
    np.array([5.0, 25.0, 125.0, 625.0, 3000.0]),
    np.array([40.0, 200.0, 1000.0, 5000.0]),
)
LAYERS = len(STRENGTH_CANDIDATES)
#: The kernel as a circulant matrix (24, 24).
CIRCULAR_KERNEL: Floats = np.sum(
    [weight * np.roll(np.eye(24), k - 2, axis=1) for k, weight in enumerate(KERNEL)], axis=0
)
#: Length of history from which on all hours of the week count as observed equally often.
FULLY_OBSERVED_S = 6 * WEEK_S
#: Feeds per chunk. This limits the memory of temporary arrays, which hold several weeks per feed.
CHUNK_ROWS = 250
#: Maximum number of feeds from which the prior of the strengths is fitted.
MAX_SAMPLED_FEEDS = 2_000
#: Weight of the uniform distribution in the prior of the strengths, in feeds.
UNIFORM_PRIOR_FEEDS = 5.0


def in_chunks(rows: Rows) -> list[Rows]:
    """Split rows into chunks of `CHUNK_ROWS`, to limit the memory of temporary arrays."""
    return [rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS)]


def _uniform_strength_prior() -> tuple[Floats, ...]:
    return tuple(np.full(len(layer), 1 / len(layer)) for layer in STRENGTH_CANDIDATES)


@dataclass(frozen=True, slots=True)
class SharedProfiles:
    """Clusters of weekly profiles and the prior of the layer strengths, shared by all feeds."""

    centers: Floats  #: (k, 168) profiles of the clusters, each with sum 1
    shares: Floats  #: (k,) share of feeds in each cluster
    #: per layer, the probability of each of `STRENGTH_CANDIDATES`
    strength_prior: tuple[Floats, ...] = field(default_factory=_uniform_strength_prior)


def fit_profiles(
    hours: Floats, k: int = CLUSTERS, seed: int = 0, rounds: int = 25
) -> SharedProfiles:
    """Fit the weekly profiles of k clusters of feeds (EM for a mixture of multinomials).

    Feeds count in proportion to their posts, up to 200. ``hours`` (n, 168) are counts, tempered for
    bursts. The last cluster is the mean of all feeds.
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
    tempered *= np.minimum(1.0, 200 / totals[rich])[:, None]  # at most 200 posts each
    centers = _seeds(tempered, population, k, rng)
    shares = np.full(k, 1 / k)
    for _ in range(rounds):
        z = responsibilities(tempered, SharedProfiles(centers, shares))
        shares = (z.sum(axis=0) + 1) / (len(rich) + k)
        centers = smooth(z.T @ tempered) + 10 * population
        centers /= centers.sum(axis=1, keepdims=True)
    return SharedProfiles(np.vstack([centers, population]), np.append(shares * 0.9, 0.1))


def _seeds(counts: Floats, population: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Choose the initial profiles of the clusters by k-means++ with the Hellinger distance."""
    roots = np.empty_like(counts)
    for part in in_chunks(np.arange(len(counts))):
        roots[part] = np.sqrt(
            (smooth(counts[part]) + 5 * population) / (counts[part].sum(axis=1, keepdims=True) + 5)
        )

    def distance_to(row: int) -> Floats:
        # The squares of each row sum to 1.
        squared: Floats = np.maximum(2 - 2 * (roots @ roots[row]), 0.0)
        return squared

    chosen = [int(rng.integers(len(roots)))]
    distance = distance_to(chosen[0])
    while len(chosen) < k:
        total = distance.sum()
        chosen.append(int(rng.choice(len(roots), p=distance / total if total > 0 else None)))
        distance = np.minimum(distance, distance_to(chosen[-1]))
    return roots[chosen] ** 2


def smooth(counts: Floats) -> Floats:
    """Smooth counts over adjacent hours with the kernel (1/4, 1/2, 1/4); the week is cyclic."""
    quarter = counts / 4
    smoothed: Floats = counts / 2
    smoothed += np.roll(quarter, 1, axis=-1)
    smoothed += np.roll(quarter, -1, axis=-1)
    return smoothed


def responsibilities(hours: Floats, profiles: SharedProfiles) -> Floats:
    """Return the posterior probability that each feed belongs to each cluster (n, k)."""
    log = hours @ np.log(profiles.centers).T + np.log(profiles.shares)
    log -= log.max(axis=1, keepdims=True)
    z: Floats = np.exp(log)
    z /= z.sum(axis=1, keepdims=True)
    return z


def _smooth_hours_of_day(of_day: Floats) -> Floats:
    """Smooth counts by hour of the day (n, 24) with `KERNEL`; the day is cyclic."""
    smoothed: Floats = of_day @ CIRCULAR_KERNEL
    return smoothed


def _posterior(counts: Floats, size: Floats, above: Floats, strength: Floats) -> Floats:
    """Return the posterior mean of a Dirichlet layer with ``size`` counts and prior ``above``."""
    mean: Floats = (counts + strength * above) / (size + strength)
    return mean


def _posterior_rows(counts: Floats, above: Floats, strength: Floats) -> Floats:
    """Return the posterior mean of a Dirichlet layer in which each row sums to 1."""
    return _posterior(counts, counts.sum(axis=-1, keepdims=True), above, strength)


def _leave_one_out(counts: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return counts and sums without one post of the respective bin.

    ``weight`` is what a post adds to its own bin.
    """
    return np.maximum(counts - weight, 0.0), np.maximum(counts.sum(axis=-1, keepdims=True) - 1, 0.0)


def unobserved_posts(hours: Floats, begin: Floats, end: Floats) -> Floats:
    """Return the posts to impute for hours of the week that were observed less often (n, 168).

    ``hours`` (n, 168) are the counts of the time from ``begin`` to ``end`` (epoch seconds). If a
    history covers only Saturday and Sunday, the counts of the other days are zero although nothing
    is known of them. The missing hours get the feed's mean rate at the same hour of the day, so
    that all hours count as observed equally often.
    """
    imputed = np.zeros_like(hours)
    young = np.flatnonzero(end - begin < FULLY_OBSERVED_S)
    if len(young) == 0:
        return imputed
    observed = np.maximum(hours_between(begin[young], end[young]), 0.0)
    missing = np.ceil(observed.max(axis=1, keepdims=True)) - observed
    by_day = (len(young), 7, 24)
    counts, exposure = (a.reshape(by_day).sum(axis=1) for a in (hours[young], observed))
    mean_rate = counts.sum(axis=1) / np.maximum(exposure.sum(axis=1), 1.0)
    # One hour at the mean rate as prior: an hour of the day may not have been observed at all.
    of_day = (counts + mean_rate[:, None]) / (exposure + 1.0)
    imputed[young] = missing * np.tile(of_day, (1, 7))
    return imputed


@dataclass(frozen=True, slots=True)
class TemperedCounts:
    """Number of posts per hour of the week (n, 168), reduced where posts depend on each other."""

    hours: Floats  #: evidence about hours of the day, in which posts of a burst count once
    weekly: Floats  #: evidence about the week, in which posts of a day count once

    @classmethod
    def of(cls, hours: Floats, events: Floats, days: Floats) -> "TemperedCounts":
        """Reduce raw counts, in place, by the numbers of bursts and of days with posts.

        ``events`` is the number of bursts, and ``days`` the number of days with posts.
        """
        total = np.maximum(hours.sum(axis=1), 1.0)
        weekly = hours * np.clip(days / total, 0.02, 1.0)[:, None]
        hours *= np.clip(events / total, 0.05, 1.0)[:, None]
        return cls(hours, weekly)

    @property
    def days(self) -> Floats:
        """Number of posts per day of the week (n, 7)."""
        days: Floats = self.weekly.reshape(len(self.weekly), 7, 24).sum(axis=2)
        return days

    def take(self, rows: Rows) -> "TemperedCounts":
        """Return the counts of the feeds with these row numbers."""
        return TemperedCounts(self.hours[rows], self.weekly[rows])


def _layers(e: TemperedCounts, prior: Floats, strengths: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the shares of posts by smoothed hour of the day, hour of the day, and weekday."""
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
    """Return the weekly profile of each feed (n, 168), with mean 1.

    ``z`` are the probabilities of its clusters, ``strengths`` (n, LAYERS) the strengths of its
    layers.
    """
    _, day, week = _layers(e, z @ profiles.centers, strengths)
    own = (week[:, :, None] * day[:, None, :]).reshape(len(z), HOURS_PER_WEEK)
    profile: Floats = _posterior_rows(e.weekly, own, strengths[:, 3:4]) * HOURS_PER_WEEK
    return profile


def leave_one_out_strengths(
    e: TemperedCounts, z: Floats, profiles: SharedProfiles
) -> tuple[Floats, tuple[Floats, ...]]:
    """Choose the layer strengths that predict each post of a feed best from its other posts.

    The criterion is the leave-one-out likelihood, so the posts that make a layer can also score
    it. Returns the strengths (n, LAYERS) and, per layer, the posterior probabilities of all
    candidates.
    """
    n = len(z)
    prior = (z @ profiles.centers).reshape(n, 7, 24)
    of_day, above = e.hours.reshape(n, 7, 24).sum(axis=1), prior.sum(axis=1)
    smoothed = _smooth_hours_of_day(of_day)
    chosen = np.empty((n, LAYERS))
    posteriors = []

    def choose(
        layer: int, counts: Floats, own: Floats, above: Floats, weight: float = 1.0
    ) -> Floats:
        """Choose the strength of a layer and return its leave-one-out prediction.

        ``counts`` are the posts to predict; ``own`` are the counts that make the layer.
        """
        candidates = STRENGTH_CANDIDATES[layer]
        others, size = _leave_one_out(own, weight)
        row, bin = np.nonzero(counts)  # empty bins have no likelihood to score
        log_likelihood = counts[row, bin] * np.log(
            _posterior(others[row, bin], size[row, 0], above[row, bin], candidates[:, None])
        )
        score = np.stack([np.bincount(row, each, n) for each in log_likelihood], axis=1)
        score = score + np.log(profiles.strength_prior[layer])
        chosen[:, layer] = candidates[np.argmax(score, axis=1)]
        score = np.exp(score - score.max(axis=1, keepdims=True))
        posteriors.append(score / score.sum(axis=1, keepdims=True))
        return _posterior(others, size, above, chosen[:, layer : layer + 1])

    smooth_day = choose(0, of_day, smoothed, above, float(KERNEL[2]))
    day = choose(1, of_day, of_day, smooth_day)
    week = choose(2, e.days, e.days, prior.sum(axis=2))
    own = (week[:, :, None] * day[:, None, :]).reshape(n, HOURS_PER_WEEK)
    choose(3, e.weekly, e.weekly, own)
    return chosen, tuple(posteriors)


def fit_strength_prior(
    evidence: Callable[[Rows], TemperedCounts],
    rows: Rows,
    profiles: SharedProfiles,
    rounds: int = 4,
) -> SharedProfiles:
    """Fit the prior of the layer strengths by EM, from feeds with at least 20 posts.

    ``evidence`` returns the counts of some ``rows``. Returns ``profiles`` with the new prior.
    """
    posts = [evidence(part).hours.sum(axis=1) for part in in_chunks(rows)]
    rows = rows[np.concatenate([np.zeros(0), *posts]) >= 20][:MAX_SAMPLED_FEEDS]
    clusters = [responsibilities(evidence(part).hours, profiles) for part in in_chunks(rows)]
    for _ in range(rounds if len(rows) else 0):
        posteriors = [
            leave_one_out_strengths(evidence(part), z, profiles)[1]
            for part, z in zip(in_chunks(rows), clusters, strict=True)
        ]
        feeds_per_strength = (
            np.sum([each.sum(axis=0) for each in layer], axis=0)
            for layer in zip(*posteriors, strict=True)
        )
        strength_prior = tuple(
            (each + UNIFORM_PRIOR_FEEDS / len(each)) / (len(rows) + UNIFORM_PRIOR_FEEDS)
            for each in feeds_per_strength
        )
        profiles = SharedProfiles(profiles.centers, profiles.shares, strength_prior)
    return profiles


def minute_factor(minutes: Floats, events: Floats) -> Floats:
    """Return the relative activity of each five-minute bin of the hour (n, 12), with mean 1.

    All factors of a feed are 1 unless the bins improve its leave-one-out log likelihood by
    `MINUTE_EVIDENCE`.
    """
    bins = minutes.shape[1]
    counts = minutes * np.clip(events / np.maximum(minutes.sum(axis=1), 1.0), 0.05, 1.0)[:, None]
    uniform = np.full((1, bins), 1 / bins)
    strengths = MINUTE_STRENGTHS[:, None, None]
    gain = (
        counts * np.log(_posterior(*_leave_one_out(counts, 1.0), uniform, strengths) * bins)
    ).sum(axis=2)
    best = np.argmax(gain, axis=0)
    factor = _posterior_rows(counts, uniform, MINUTE_STRENGTHS[best][:, None]) * bins
    significant = gain[best, np.arange(len(counts))] > MINUTE_EVIDENCE
    used: Floats = np.where(significant[:, None], factor, 1.0)
    return used


def mass_between(profile: Floats, begin: Floats, end: Floats) -> Floats:
    """Return the integral over [begin, end] of the weekly profile of each feed, in hours.

    ``profile`` has the shape (n, 168). Times are epoch seconds.
    """
    ends = np.cumsum(profile, axis=1)
    row = np.arange(len(profile))

    def until(t: Floats) -> Floats:
        hours = t / HOUR_S + EPOCH_HOUR
        weeks = np.floor(hours / HOURS_PER_WEEK)
        part = hours - weeks * HOURS_PER_WEEK
        at = np.minimum(part.astype(np.int64), HOURS_PER_WEEK - 1)
        total: Floats = weeks * ends[:, -1] + ends[row, at] - (at + 1 - part) * profile[row, at]
        return total

    return until(end) - until(begin)


def hours_between(begin: Floats, end: Floats) -> Floats:
    """Return how many hours of [begin, end] fall into each hour of the week (n, 168)."""

    def until(t: Floats) -> Floats:
        weeks, part = np.divmod(t / HOUR_S + EPOCH_HOUR, HOURS_PER_WEEK)
        total: Floats = weeks[:, None] + np.clip(
            part[:, None] - np.arange(HOURS_PER_WEEK), 0.0, 1.0
        )
        return total

    return until(end) - until(begin)


#: Length of the busiest period of the day that reasons mention, in hours.
BUSIEST_HOURS = 4


def busiest_hours(profile: Floats) -> Floats:
    """Return the busiest time of day of each feed and its share of weekend posts (n, 3).

    The columns are the first hour of the busiest `BUSIEST_HOURS` hours of the day, their share of
    the posts, and the share of the weekend.
    """
    week = profile.reshape(len(profile), 7, 24) / HOURS_PER_WEEK
    of_day = week.sum(axis=1)
    busy = np.sum([np.roll(of_day, -k, axis=1) for k in range(BUSIEST_HOURS)], axis=0)
    first = np.argmax(busy, axis=1)
    return np.column_stack(
        [first, busy[np.arange(len(profile)), first], week[:, 5:].sum(axis=(1, 2))]
    )
