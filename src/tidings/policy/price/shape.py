"""The pattern: how a feed's posts spread over the hours of the week, from its own posts and from feeds like it.

Three layers of Dirichlet shrinkage, each of which speaks as far as the evidence goes: the clusters' weekly shapes; the feed's
own hours of the day and days of the week; its own hours of the week. Posts that come in a burst are one piece of evidence, not
many.
"""

from dataclasses import dataclass

import numpy as np

from tidings.model import HOUR_S, Floats
from tidings.policy.base import EPOCH_HOUR
from tidings.policy.price.value import HOURS

CLUSTERS = 12
#: Pseudo-posts with which the layer above speaks: cluster -> own day and week -> own hours of the week.
DAY_PRIOR = 40.0
WEEK_PRIOR = 200.0
#: The same for five-minute bins of the hour against evenness; and the evidence that they must bring (nats).
MINUTE_PRIOR = 30.0
MINUTE_EVIDENCE = 5.0


@dataclass(frozen=True, slots=True)
class Shapes:
    """What feeds share: cluster shapes (k, 168), each summing to 1, and their shares of the population."""

    centres: Floats
    shares: Floats


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
    return Shapes(np.vstack([centres, population]), np.append(shares * 0.9, 0.1))


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


def weekly_shape(hours: Floats, evidence: Floats, z: Floats, shared: Shapes) -> Floats:
    """Shape of each feed over the week, mean 1: (n, 168).

    ``hours`` are its counts, ``evidence`` in (0, 1] what share of them are independent, ``z`` its clusters.
    """
    counts = hours * evidence[:, None]
    total = counts.sum(axis=1, keepdims=True)
    prior = z @ shared.centres
    n = len(hours)
    by_day = counts.reshape(n, 7, 24)
    prior_day = prior.reshape(n, 7, 24)
    of_day = (by_day.sum(axis=1) + DAY_PRIOR * prior_day.sum(axis=1)) / (total + DAY_PRIOR)
    of_week = (by_day.sum(axis=2) + DAY_PRIOR * prior_day.sum(axis=2)) / (total + DAY_PRIOR)
    own = (of_week[:, :, None] * of_day[:, None, :]).reshape(n, HOURS)
    shape: Floats = (counts + WEEK_PRIOR * own) / (total + WEEK_PRIOR) * HOURS
    return shape


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
