"""The Feed Monitor's mathematics: rate, pattern, clusters, window, missed posts, and publishing statistics."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, HOUR_S, Documents, Floats, Ints, Rows

#: Sia & Cho sect. 4.2: no gain in delay beyond a fortnight of history.
ESTIMATION_DAYS = 14
#: Sia & Cho sect. 4.3.1: patterns found beyond 12 clusters are like others.
CLUSTERS = 12
#: A feed without a post in the fortnight is counted as half a post: it may still come back.
SILENT_POSTS = 0.5


class RecentCounts:
    """Posts per hour of the last ``days`` days of each feed, as a ring of days: rate and daily pattern in one.

    ``table`` (n, days, 24) is the policy's own state, so that it is saved with the feed. Days begin at the time of day
    ``begins_s``, so that a plan made at that time sees whole days; hours are hours of the clock.
    """

    def __init__(self, table: npt.NDArray[np.uint16], day_start_s: float = 0.0) -> None:
        self.table = table
        self.days = table.shape[1]
        self.day_start_s = day_start_s

    def day(self, times: Floats) -> Ints:
        """The number of the day that each time falls into."""
        number: Ints = np.floor((times - self.day_start_s) / DAY_S).astype(np.int64)
        return number

    def add(self, rows: Rows, times: Floats, now: float | Floats) -> None:
        """Count posts of feeds ``rows`` at ``times``; those older than the ring are left out."""
        day, today = self.day(times), self.day(np.asarray(now, dtype=np.float64))
        known = (day > today - self.days) & (day <= today)
        rows, day, times = rows[known], day[known], times[known]
        hour = ((times % DAY_S) // HOUR_S).astype(np.int64)
        np.add.at(self.table, (rows, day % self.days, hour), 1)

    def clear_day(self, now: float) -> None:
        """Empty the slot of the day that begins at ``now``."""
        self.table[:, int(self.day(np.array([now]))[0]) % self.days] = 0

    def rate_per_day(self, silent: float = SILENT_POSTS) -> Floats:
        """Posts per day over the ring (Sia & Cho sect. 4.2); silent feeds count as ``silent`` posts."""
        posts = self.table.sum(axis=(1, 2), dtype=np.float64)
        rate: Floats = np.maximum(posts, silent) / self.days
        return rate

    def hourly(self) -> Floats:
        """Posts in each hour of the day, days overlaid (Sia & Cho sect. 4.3): (n, 24)."""
        overlaid: Floats = self.table.sum(axis=1, dtype=np.float64)
        return overlaid


@dataclass(frozen=True, slots=True)
class Clusters:
    """Posting patterns shared by many feeds: centroids (K, 24) that sum to 1, and each feed's cluster."""

    centroids: Floats
    cluster_index: Ints


def cluster_patterns(
    hourly: Floats, k: int = CLUSTERS, seed: int = 0, rounds: int = 50
) -> Clusters:
    """K-means (Sia & Cho sect. 4.3.1) on each feed's daily fractions; feeds without posts get the common pattern.

    k-means++ seeding on at most 20,000 feeds, then Lloyd's iteration to a standstill.
    """
    totals = hourly.sum(axis=1)
    active = np.flatnonzero(totals > 0)
    common = hourly.sum(axis=0) / totals.sum() if len(active) else np.full(24, 1 / 24)
    if len(active) <= k:
        centroids = (
            np.vstack([hourly[active] / totals[active, None], common])
            if len(active)
            else common[None, :]
        )
        cluster_index = np.full(len(hourly), len(centroids) - 1)
        cluster_index[active] = np.arange(len(active))
        return Clusters(centroids, cluster_index)
    rng = np.random.default_rng(seed)
    sample = rng.permutation(active)[:20_000]
    points = hourly[sample] / totals[sample, None]
    centroids = _seed_centroids(points, k, rng)
    nearest = np.full(len(points), -1)
    for _ in range(rounds):
        before, nearest = nearest, _nearest(points, centroids)
        if np.array_equal(before, nearest):
            break
        for c in range(k):
            if np.any(nearest == c):
                centroids[c] = points[nearest == c].mean(axis=0)
    centroids = np.vstack([centroids, common])
    cluster_index = np.full(len(hourly), k)
    cluster_index[active] = _nearest(hourly[active] / totals[active, None], centroids[:k])
    return Clusters(centroids, cluster_index)


def _seed_centroids(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """k-means++: each next centroid is drawn in proportion to its squared distance from those chosen."""
    centroids = points[[rng.integers(len(points))]]
    distance = ((points - centroids[0]) ** 2).sum(axis=1)
    while len(centroids) < k:
        total = distance.sum()
        share = distance / total if total > 0 else None
        chosen = points[rng.choice(len(points), p=share)]
        centroids = np.vstack([centroids, chosen])
        distance = np.minimum(distance, ((points - chosen) ** 2).sum(axis=1))
    return centroids


def _nearest(points: Floats, centroids: Floats) -> Ints:
    squared = (centroids**2).sum(axis=1) - 2 * points @ centroids.T
    nearest: Ints = np.argmin(squared, axis=1)
    return nearest


def window_size(seen: Documents, before: Ints) -> Ints:
    """S, the entries a document holds: the most that were ever seen at once."""
    return np.maximum(before, seen.count)


def missed_posts(seen: Documents, previous_poll: Floats, now: Floats) -> Floats:
    """Expected posts lost between two consecutive documents that share no entry (Han et al. sect. 3), else 0.

    The visible part is a sample of the rate: its S entries span [oldest, now], so the time between the previous poll and the
    oldest visible entry held about (S - 1) / span posts a second (an inverse-sampling estimate, unbiased for Poisson).
    """
    count = seen.count
    span = np.maximum(now - seen.oldest(), 1.0)
    unseen = np.maximum(seen.oldest() - previous_poll, 0.0)
    return np.where(seen.gap & (count > 0), unseen * np.maximum(count - 1, 0) / span, 0.0)


@dataclass(frozen=True, slots=True)
class ZipfFit:
    """``rate = scale * rank ** -exponent`` fitted on a log-log line over a range of ranks (FeedEx sect. 2)."""

    exponent: float
    scale: float
    r_squared: float
    ranks: tuple[int, int]


def fit_zipf(rates: Floats, ranks: tuple[int, int] | None = None) -> ZipfFit:
    """Fit Zipf's law to publishing rates. By default over FeedEx's middle part, ranks 30 to 200 of 245."""
    ordered = np.sort(rates[rates > 0])[::-1]
    n = len(ordered)
    low, high = ranks or (max(1, round(n * 30 / 245)), max(2, round(n * 200 / 245)))
    high = min(high, n)
    if high - low < 2:
        return ZipfFit(float("nan"), float("nan"), float("nan"), (low, high))
    x, y = np.log(np.arange(low, high + 1)), np.log(ordered[low - 1 : high])
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - (slope * x + intercept)
    spread = ((y - y.mean()) ** 2).sum()
    r_squared = 1 - (residual**2).sum() / spread if spread > 0 else float("nan")
    return ZipfFit(float(-slope), float(np.exp(intercept)), float(r_squared), (low, high))


def entry_lifetimes_s(times: Floats, window: int) -> Floats:
    """How long each entry stayed in a document of ``window`` entries (FeedEx Fig. 2d); those still there are left out."""
    return times[window:] - times[:-window] if len(times) > window else np.empty(0)
