"""Estimate posting rates, daily patterns, windows and missed posts from polled documents.

The estimators are from Sia & Cho sect. 4 and Han et al. sect. 3. The publishing statistics (Zipf's
law, lifetime of entries) are from FeedEx sect. 2.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, HOUR_S, Documents, Floats, Ints, Rows

#: Days of history for estimates. Sia & Cho sect. 4.2: more than 14 days do not reduce the delay.
ESTIMATION_DAYS = 14
#: Number of clusters. Sia & Cho sect. 4.3.1: with more than 12, patterns repeat.
CLUSTERS = 12
#: Posts assumed for a feed that has none in the estimation period, as it may resume posting.
SILENT_POSTS = 0.5


class RecentCounts:
    """Number of posts per feed, day and hour over the last days, in a ring buffer of days.

    The counts give both the rate and the daily pattern. ``table`` (n, days, 24) is a view of the
    policy's state, so that it is saved with the feed. Days start at ``day_start_s`` seconds after
    midnight UTC, so that a plan made at that time of day covers full days; hours are clock hours
    in UTC.
    """

    def __init__(self, table: npt.NDArray[np.uint16], day_start_s: float = 0.0) -> None:
        self.table = table
        self.days = table.shape[1]
        self.day_start_s = day_start_s

    def day(self, times: Floats) -> Ints:
        """Return the number of the day that contains each time (epoch seconds)."""
        number: Ints = np.floor((times - self.day_start_s) / DAY_S).astype(np.int64)
        return number

    def add(self, rows: Rows, times: Floats, now: float | Floats) -> None:
        """Count one post of each of ``rows`` at the time in ``times``.

        Times are in epoch seconds. Posts that are older than the ring buffer are ignored.
        """
        day, today = self.day(times), self.day(np.asarray(now, dtype=np.float64))
        recent = (day > today - self.days) & (day <= today)
        rows, day, times = rows[recent], day[recent], times[recent]
        hour = ((times % DAY_S) // HOUR_S).astype(np.int64)
        np.add.at(self.table, (rows, day % self.days, hour), 1)

    def clear_day(self, now: float) -> None:
        """Set the counts of the day that starts at ``now`` to zero."""
        self.table[:, int(self.day(np.array([now]))[0]) % self.days] = 0

    def rate_per_day(self, silent: float = SILENT_POSTS) -> Floats:
        """Return the mean posts per day of each feed in the ring buffer (Sia & Cho sect. 4.2).

        A feed without posts counts as ``silent`` posts.
        """
        posts = self.table.sum(axis=(1, 2), dtype=np.float64)
        rate: Floats = np.maximum(posts, silent) / self.days
        return rate

    def hourly(self) -> Floats:
        """Return the posts of each feed per hour of the day, summed over the days (n, 24).

        Sia & Cho sect. 4.3 calls this the daily pattern.
        """
        hourly: Floats = self.table.sum(axis=1, dtype=np.float64)
        return hourly


@dataclass(frozen=True, slots=True)
class Clusters:
    """Result of clustering the daily patterns of feeds."""

    centroids: Floats  #: (K, 24) daily pattern of each cluster; the shares of the hours sum to 1
    cluster_index: Ints  #: number of the cluster of each feed


def cluster_patterns(
    hourly: Floats, k: int = CLUSTERS, seed: int = 0, rounds: int = 50
) -> Clusters:
    """Cluster feeds by their share of posts per hour of the day (Sia & Cho sect. 4.3.1).

    ``hourly`` (n, 24) has the number of posts. The method is k-means: k-means++ seeding on at most
    20,000 feeds, then Lloyd's algorithm until nothing changes or for ``rounds`` iterations. Feeds
    without posts get the mean pattern.
    """
    totals = hourly.sum(axis=1)
    active = np.flatnonzero(totals > 0)
    mean_pattern = hourly.sum(axis=0) / totals.sum() if len(active) else np.full(24, 1 / 24)
    if len(active) <= k:
        centroids = (
            np.vstack([hourly[active] / totals[active, None], mean_pattern])
            if len(active)
            else mean_pattern[None, :]
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
        previous, nearest = nearest, _nearest(points, centroids)
        if np.array_equal(previous, nearest):
            break
        for c in range(k):
            if np.any(nearest == c):
                centroids[c] = points[nearest == c].mean(axis=0)
    centroids = np.vstack([centroids, mean_pattern])
    cluster_index = np.full(len(hourly), k)
    cluster_index[active] = _nearest(hourly[active] / totals[active, None], centroids[:k])
    return Clusters(centroids, cluster_index)


def _seed_centroids(points: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Choose initial centroids by k-means++, with probability proportional to squared distance."""
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
    """Return the largest number of entries seen in one document of each feed (window)."""
    return np.maximum(before, seen.count)


def missed_posts(seen: Documents, previous_poll: Floats, now: Floats) -> Floats:
    """Estimate the posts missed between two consecutive polls, 0 if there was no gap.

    There is a gap if consecutive documents share no entry (Han et al. sect. 2.2, "missing
    postings"). The visible entries are a sample of the rate: S entries in [oldest, now] give
    (S - 1) / span posts per second, an inverse-sampling estimate that is unbiased for Poisson
    posts. It is applied to the time from the previous poll to the oldest entry.
    """
    count = seen.count
    span = np.maximum(now - seen.oldest(), 1.0)
    unseen = np.maximum(seen.oldest() - previous_poll, 0.0)
    return np.where(seen.gap & (count > 0), unseen * np.maximum(count - 1, 0) / span, 0.0)


@dataclass(frozen=True, slots=True)
class ZipfFit:
    """Fit of Zipf's law ``rate = scale * rank ** -exponent`` to the ranks in ``ranks``.

    FeedEx sect. 2 describes the law. The values are nan if there are too few feeds.
    """

    exponent: float
    scale: float
    r_squared: float
    ranks: tuple[int, int]


def fit_zipf(rates: Floats, ranks: tuple[int, int] | None = None) -> ZipfFit:
    """Fit Zipf's law to publishing rates by linear regression in log-log coordinates.

    The default range of ranks is FeedEx's, 30 to 200 of 245, scaled to the number of feeds.
    """
    ordered = np.sort(rates[rates > 0])[::-1]
    n = len(ordered)
    low, high = ranks or (max(1, round(n * 30 / 245)), max(2, round(n * 200 / 245)))
    high = min(high, n)
    if high - low < 2:
        return ZipfFit(float("nan"), float("nan"), float("nan"), (low, high))
    x, y = np.log(np.arange(low, high + 1)), np.log(ordered[low - 1 : high])
    slope, intercept = np.polyfit(x, y, 1)
    residual = y - (slope * x + intercept)
    variation = ((y - y.mean()) ** 2).sum()
    r_squared = 1 - (residual**2).sum() / variation if variation > 0 else float("nan")
    return ZipfFit(float(-slope), float(np.exp(intercept)), float(r_squared), (low, high))


def entry_lifetimes_s(times: Floats, window: int) -> Floats:
    """Return the seconds that each entry stayed in a document of ``window`` entries.

    ``times`` are the posting times in order. Entries that are still in the document are left out.
    FeedEx Fig. 2d shows these lifetimes.
    """
    return times[window:] - times[:-window] if len(times) > window else np.empty(0)
