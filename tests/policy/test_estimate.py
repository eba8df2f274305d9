"""Estimators: rate, daily pattern, clusters, window, missed posts, Zipf's law."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, document
from tidings.model import DAY_S, HOUR_S
from tidings.policy.estimate import (
    RecentCounts,
    cluster_patterns,
    entry_lifetimes_s,
    fit_zipf,
    missed_posts,
    window_size,
)


def counts(n=1, days=14):
    return RecentCounts(np.zeros((n, days, 24), dtype=np.uint16))


def test_rate_is_posts_in_ring_buffer_over_days():
    recent = counts()
    now = MONDAY + 20 * DAY_S - 1
    posts = np.array([now - d * DAY_S for d in (0.5, 1, 2, 13, 15, 19)])
    recent.add(np.zeros(6, dtype=np.intp), posts, now)
    assert recent.rate_per_day() == pytest.approx([4 / 14])


def test_days_can_start_at_any_time_of_day():
    day_start_s = 7.5 * HOUR_S
    recent = RecentCounts(np.zeros((1, 2, 24), dtype=np.uint16), day_start_s)
    now = MONDAY + 10 * DAY_S + day_start_s
    recent.add(
        np.zeros(3, dtype=np.intp), now - np.array([1.0, 2 * DAY_S - 1, 2 * DAY_S + 1]), now - 1e-6
    )
    assert recent.rate_per_day() == pytest.approx([1.0])  # two posts in the last 48 hours
    assert recent.hourly()[0, 7] == 2


def test_feed_without_posts_counts_as_half_a_post():
    assert counts().rate_per_day() == pytest.approx([0.5 / 14])


def test_hourly_pattern_sums_over_days():
    recent = counts()
    now = MONDAY + 14 * DAY_S - 1
    recent.add(
        np.zeros(3, dtype=np.intp),
        MONDAY + np.array([DAY_S + 8 * HOUR_S, 2 * DAY_S + 8.5 * HOUR_S, 17 * HOUR_S]),
        now,
    )
    hourly = recent.hourly()[0]
    assert (hourly[8], hourly[17], hourly.sum()) == (2, 1, 3)


def test_new_day_replaces_oldest():
    recent = counts(days=2)
    recent.add(np.array([0]), np.array([MONDAY + 60]), MONDAY + 60)
    recent.clear_day(MONDAY + DAY_S)
    assert recent.hourly().sum() == 1
    recent.clear_day(MONDAY + 2 * DAY_S)
    assert recent.hourly().sum() == 0


def test_clusters_recover_generating_patterns():
    rng = np.random.default_rng(0)
    morning, night = np.zeros(24), np.zeros(24)
    morning[7:11], night[20:24] = 0.25, 0.25
    truth = rng.integers(0, 2, 400)
    hourly = np.array([rng.multinomial(60, (morning, night)[t]) for t in truth], dtype=float)
    hourly[0] = 0
    clusters = cluster_patterns(hourly, k=2, seed=1)
    agree = np.mean(clusters.cluster_index[1:] == truth[1:])
    assert agree in (0.0, 1.0)
    assert clusters.centroids.sum(axis=1) == pytest.approx(np.ones(3))
    # A feed without posts has the mean pattern.
    assert clusters.centroids[clusters.cluster_index[0]] == pytest.approx(
        hourly.sum(axis=0) / hourly.sum()
    )


def test_fewer_feeds_than_clusters_keep_own_patterns():
    hourly = np.eye(24)[:3] * 5
    clusters = cluster_patterns(hourly, k=12)
    assert clusters.centroids[clusters.cluster_index] == pytest.approx(np.eye(24)[:3])


def test_no_posts_give_uniform_pattern():
    assert cluster_patterns(np.zeros((3, 24))).centroids == pytest.approx(np.full((1, 24), 1 / 24))


def test_window_is_maximum_of_entries_per_document():
    assert window_size(document(1, 2, 3), np.array([2])).tolist() == [3]
    assert window_size(document(1), np.array([2])).tolist() == [2]


def test_overlapping_documents_miss_no_posts():
    assert missed_posts(
        document(10, 20, 30, new=2), np.array([0.0]), np.array([40.0])
    ).tolist() == [0]


def test_missed_posts_are_estimated_from_visible_entries():
    # Ten entries, one every 10 s; the previous poll was at 0.
    seen = document(*np.arange(100, 200, 10), gap=True)
    assert missed_posts(seen, np.array([0.0]), np.array([190.0])) == pytest.approx([100 * 9 / 90])


def test_missed_posts_is_unbiased_for_poisson():
    rng = np.random.default_rng(4)
    lost, estimated = 0, 0.0
    for _ in range(400):
        posts = np.cumsum(rng.exponential(1.0, 400))
        posts = posts[posts < 200]
        lost += len(posts) - 15
        estimated += missed_posts(
            document(*posts[-15:], gap=True), np.array([0.0]), np.array([200.0])
        )[0]
    assert estimated == pytest.approx(lost, rel=0.05)


def test_zipf_fit_recovers_parameters():
    fit = fit_zipf(100 * np.arange(1.0, 246.0) ** -0.8)
    assert fit.exponent == pytest.approx(0.8)
    assert fit.scale == pytest.approx(100)
    assert fit.r_squared == pytest.approx(1)
    assert fit.ranks == (30, 200)


def test_entry_lifetime_ends_when_window_has_newer_entries():
    assert entry_lifetimes_s(np.array([0.0, 5, 7, 20]), 2).tolist() == [7, 15]
    assert len(entry_lifetimes_s(np.array([0.0, 5]), 2)) == 0
