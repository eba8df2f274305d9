"""The pattern: how a feed's posts spread over the hours of the week, from its own posts and from feeds like it.

Layers of Dirichlet shrinkage, each of which speaks as far as its evidence goes: the clusters' weekly shapes; the feed's own
hours of the day, smoothed, then sharp, and its days of the week; its own hours of the week. How much a layer has to say is told
by the population itself: the more feeds differ from the layer above, beyond what counting noise explains, the weaker that one
holds them. Posts that come in a burst are one piece of evidence, not many.
"""

from dataclasses import dataclass

import numpy as np

from tidings.model import HOUR_S, Floats
from tidings.policy.base import EPOCH_HOUR
from tidings.policy.price.value import HOURS

CLUSTERS = 12
#: Pseudo-posts of five-minute bins of the hour against evenness; and the evidence that they must bring (nats).
MINUTE_PRIOR = 30.0
MINUTE_EVIDENCE = 5.0
#: Bounds of a layer's strength, in pseudo-posts.
WEAKEST, STRONGEST = 2.0, 2000.0
#: Own hours of the day lend to their neighbours like this.
KERNEL = np.array([1.0, 2.0, 3.0, 2.0, 1.0]) / 9


@dataclass(frozen=True, slots=True)
class Strengths:
    """Pseudo-posts with which a layer holds the one below it."""

    smooth: float = 40.0  #: cluster -> own hours of the day, smoothed
    day: float = 100.0  #: smoothed -> own hours of the day
    week: float = 40.0  #: cluster -> own days of the week
    hour: float = 200.0  #: own days and hours -> own hours of the week


NO_STRENGTHS = Strengths(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Shapes:
    """What feeds share: cluster shapes (k, 168), each summing to 1, their shares of the population, and layer strengths."""

    centres: Floats
    shares: Floats
    strengths: Strengths = Strengths()


def fit_shapes(hours: Floats, k: int = CLUSTERS, seed: int = 0, rounds: int = 25, most: int = 20_000) -> Shapes:
    """EM for a mixture of k multinomials over the hours of the week: feeds weigh by their evidence, sparse ones hardly.

    ``hours`` (n, 168) are counts, already tempered for bursts.
    """
    totals = hours.sum(axis=1)
    population = hours.sum(axis=0) + 1.0
    population /= population.sum()
    rng = np.random.default_rng(seed)
    rich = np.flatnonzero(totals >= 20)
    if len(rich) > most:
        rich = rng.choice(rich, most, replace=False)
    k = min(k, len(rich))
    if k < 2:
        return Shapes(population[None, :], np.ones(1))
    counts = hours[rich]
    sizes = totals[rich]
    tempered = counts * np.minimum(1.0, 200 / sizes)[:, None]  # no feed speaks louder than 200 posts
    profile = (smooth(tempered) + 5 * population) / (tempered.sum(axis=1, keepdims=True) + 5)
    centres = _seeds(profile, k, rng)
    shares = np.full(k, 1 / k)
    for _ in range(rounds):
        z = responsibilities(tempered, Shapes(centres, shares))
        shares = (z.sum(axis=0) + 1) / (len(rich) + k)
        centres = smooth(z.T @ tempered) + 10 * population
        centres /= centres.sum(axis=1, keepdims=True)
    found = Shapes(np.vstack([centres, population]), np.append(shares * 0.9, 0.1))
    return Shapes(found.centres, found.shares, fit_strengths(hours, found))


def _seeds(profile: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Far-apart profiles to start from (k-means++ on square roots, the Hellinger distance)."""
    roots = np.sqrt(profile)
    chosen = [int(rng.integers(len(roots)))]
    distance = ((roots - roots[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < k:
        total = distance.sum()
        chosen.append(int(rng.choice(len(roots), p=distance / total if total > 0 else None)))
        distance = np.minimum(distance, ((roots - roots[chosen[-1]]) ** 2).sum(axis=1))
    return profile[chosen]


def smooth(counts: Floats) -> Floats:
    """Neighbouring hours lend a quarter each (the week is a circle)."""
    lent: Floats = counts / 2 + (np.roll(counts, 1, axis=-1) + np.roll(counts, -1, axis=-1)) / 4
    return lent


def responsibilities(hours: Floats, shared: Shapes) -> Floats:
    """How well each cluster explains each feed: (n, k), rows sum to 1."""
    log = hours @ np.log(shared.centres).T + np.log(shared.shares)
    log -= log.max(axis=1, keepdims=True)
    z: Floats = np.exp(log)
    z /= z.sum(axis=1, keepdims=True)
    return z


def _around_the_clock(of_day: Floats) -> Floats:
    """Hours of the day (n, 24) smoothed with the kernel, the day being a circle."""
    smoothed: Floats = sum(KERNEL[k] * np.roll(of_day, k - 2, axis=-1) for k in range(len(KERNEL)))
    return smoothed


def _held(counts: Floats, above: Floats, strength: float) -> Floats:
    """Posterior mean of a Dirichlet layer: counts, held by the layer above; rows sum to 1."""
    held: Floats = (counts + strength * above) / (counts.sum(axis=1, keepdims=True) + strength)
    return held


def _layers(counts: Floats, prior: Floats, by: Strengths) -> tuple[Floats, Floats, Floats, Floats]:
    """Smoothed hours of the day, sharp ones, days of the week, and their product over the week; each sums to 1."""
    n = len(counts)
    table, above = counts.reshape(n, 7, 24), prior.reshape(n, 7, 24)
    of_day = table.sum(axis=1)
    smooth_day = _held(_around_the_clock(of_day), above.sum(axis=1), by.smooth)
    day = _held(of_day, smooth_day, by.day)
    week = _held(table.sum(axis=2), above.sum(axis=2), by.week)
    return smooth_day, day, week, (week[:, :, None] * day[:, None, :]).reshape(n, HOURS)


def weekly_shape(hours: Floats, evidence: Floats, z: Floats, shared: Shapes) -> Floats:
    """Shape of each feed over the week, mean 1: (n, 168).

    ``hours`` are its counts, ``evidence`` in (0, 1] what share of them are independent, ``z`` its clusters.
    """
    counts = hours * evidence[:, None]
    own = _layers(counts, z @ shared.centres, shared.strengths)[3]
    shape: Floats = _held(counts, own, shared.strengths.hour) * HOURS
    return shape


def fit_strengths(counts: Floats, shared: Shapes, most: int = 2_000) -> Strengths:
    """How strongly each layer holds the next, from the population: (n, 168) counts, tempered for bursts."""
    counts = counts[counts.sum(axis=1) >= 20][:most]
    if len(counts) < 5:
        return shared.strengths
    prior = responsibilities(counts, shared) @ shared.centres
    n = len(counts)
    size = counts.sum(axis=1)
    table, above = counts.reshape(n, 7, 24), prior.reshape(n, 7, 24)
    of_day, of_week = table.sum(axis=1), table.sum(axis=2)
    smooth = _strength(of_day, above.sum(axis=1), np.full(n, 23.0))
    week = _strength(of_week, above.sum(axis=2), np.full(n, 6.0))
    smooth_day = _held(_around_the_clock(of_day), above.sum(axis=1), smooth)
    # The smoothed layer has seen the counts that it is held against: it explains part of their noise.
    seen = size / (size + smooth)
    day = _strength(of_day, smooth_day, 23 * (1 - 2 * KERNEL[2] * seen + (KERNEL**2).sum() * seen**2))
    so_far = Strengths(smooth, day, week)
    hour = _strength(counts, _layers(counts, prior, so_far)[3], np.full(n, HOURS - 30.0))
    return Strengths(smooth, day, week, hour)


def _strength(counts: Floats, above: Floats, freedom: Floats) -> float:
    """Concentration of a Dirichlet-multinomial by moments: E chi^2 = freedom (n + strength) / (1 + strength), pooled."""
    size = counts.sum(axis=1)
    chi2 = ((counts - size[:, None] * above) ** 2 / np.maximum(size[:, None] * above, 1e-9)).sum(axis=1)
    ratio = chi2.sum() / freedom.sum()
    mean_size = (freedom * size).sum() / freedom.sum()
    strength = (mean_size - ratio) / (ratio - 1) if ratio > 1 else STRONGEST
    return float(np.clip(strength, WEAKEST, STRONGEST))


def minute_factor(minutes: Floats, evidence: Floats) -> Floats:
    """Factor of each five-minute bin of the hour, mean 1: (n, 12); 1 throughout unless the evidence is strong."""
    counts = minutes * evidence[:, None]
    total = counts.sum(axis=1, keepdims=True)
    factor = (counts + MINUTE_PRIOR / 12) / (total + MINUTE_PRIOR) * 12
    gain = (counts * np.log(factor)).sum(axis=1, keepdims=True)
    kept: Floats = np.where(gain > MINUTE_EVIDENCE, factor, 1.0)
    return kept


def mass_between(shape: Floats, begin: Floats, end: Floats) -> Floats:
    """Integral of a weekly shape (n, 168), in hours of average activity, between two times of each row."""
    ends = np.cumsum(shape, axis=1)
    row = np.arange(len(shape))

    def upto(t: Floats) -> Floats:
        hours = t / HOUR_S + EPOCH_HOUR
        weeks = np.floor(hours / HOURS)
        within = hours - weeks * HOURS
        at = np.minimum(within.astype(np.int64), HOURS - 1)
        total: Floats = weeks * ends[:, -1] + ends[row, at] - (at + 1 - within) * shape[row, at]
        return total

    return upto(end) - upto(begin)


#: Length of the busiest time of day that is told to people.
HABIT_HOURS = 4


def habits(shape: Floats) -> Floats:
    """For words: (n, 3) first hour of the busiest HABIT_HOURS of the day, their share of posts, and the weekend's."""
    week = shape.reshape(len(shape), 7, 24) / HOURS
    of_day = week.sum(axis=1)
    busy = np.sum([np.roll(of_day, -k, axis=1) for k in range(HABIT_HOURS)], axis=0)
    first = np.argmax(busy, axis=1)
    return np.column_stack([first, busy[np.arange(len(shape)), first], week[:, 5:].sum(axis=(1, 2))])
