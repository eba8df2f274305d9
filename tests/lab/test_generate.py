"""Tests that generated traces are reproducible and match the statistics of their papers."""

import numpy as np
import pytest

from tidings.errors import UsageError
from tidings.lab.generate import EPOCH, MODELS, SIA_CHO_SHAPES, blend, bump, generate
from tidings.lab.traces import UNLIMITED, Trace
from tidings.model import DAY_S
from tidings.policy.estimate import fit_zipf


@pytest.fixture(scope="module")
def sia_cho() -> Trace:
    return generate("sia-cho", 2000, 90, 0)


@pytest.fixture(scope="module")
def han() -> Trace:
    return generate("han", 1000, 42, 0)


@pytest.mark.parametrize("like", MODELS)
def test_the_same_seed_gives_the_same_trace(like: str) -> None:
    one, two, other = (
        generate(like, 40, 20, 7),
        generate(like, 40, 20, 7),
        generate(like, 40, 20, 8),
    )
    assert np.array_equal(one.times, two.times)
    assert np.array_equal(one.offsets, two.offsets)
    assert np.array_equal(one.window, two.window)
    assert np.array_equal(one.sizes, two.sizes)
    assert not np.array_equal(one.times, other.times)


@pytest.mark.parametrize("like", MODELS)
@pytest.mark.parametrize(("feeds", "days"), [(1, 1.0), (3, 0.5), (30, 20.25)])
def test_posts_are_whole_seconds_within_the_days(like: str, feeds: int, days: float) -> None:
    trace = generate(like, feeds, days, 1)
    assert trace.n_feeds == feeds
    assert trace.n_posts >= 1
    assert np.array_equal(trace.times, np.floor(trace.times))
    assert trace.start >= EPOCH
    assert trace.end < EPOCH + days * DAY_S
    assert trace.window.min() >= 1
    assert trace.sizes.min() > 0
    inside = np.ones(max(trace.n_posts - 1, 0), dtype=bool)
    inside[
        trace.offsets[1:-1][(trace.offsets[1:-1] > 0) & (trace.offsets[1:-1] < trace.n_posts)] - 1
    ] = False
    assert np.all(np.diff(trace.times)[inside] >= 0)


def test_the_day_and_the_week_begin_at_the_epoch() -> None:
    assert EPOCH % DAY_S == 0
    assert (EPOCH // DAY_S + 3) % 7 == 0  # a Monday


@pytest.mark.parametrize(
    ("like", "feeds", "days"),
    [("atlantis", 10, 10.0), ("han", 0, 10.0), ("han", 10, 0.0), ("han", 10, float("nan"))],
)
def test_invalid_generator_arguments_are_rejected(like: str, feeds: int, days: float) -> None:
    with pytest.raises(UsageError):
        generate(like, feeds, days, 0)


def test_shapes_are_shares_of_a_day() -> None:
    assert np.allclose(SIA_CHO_SHAPES.sum(axis=1), 1)
    assert int(np.argmax(bump(13.5, 2.0))) == 13
    assert np.allclose(blend(1.0), 1 / 24)


def test_bursts_keep_the_rate_and_bring_posts_together(han: Trace) -> None:
    """Each arrival is four posts about an hour apart, and the mean rate stays the same."""
    gaps = np.diff(han.times)[np.diff(han.feed_of_post) == 0]
    assert han.n_posts / 42 == pytest.approx(1083, rel=0.12)
    assert (gaps < 3 * 3600).mean() > 0.6


# --- like the papers ------------------------------------------------------------------------------


def test_sia_cho_rates_follow_the_two_figures_that_set_them(sia_cho: Trace) -> None:
    """The mean rate is 4.3 (sect. 4.6), and E sqrt(rate) is 1.69 (from Table 1).

    Together they give the gain of 1 - 1.69^2 / 4.3 = 34 %.
    """
    rates = np.diff(sia_cho.offsets) / 90
    assert rates.mean() == pytest.approx(4.3, rel=0.08)
    assert np.sqrt(rates).mean() == pytest.approx(1.69, rel=0.05)


def test_sia_cho_feeds_post_in_learning_weeks(sia_cho: Trace) -> None:
    early = sia_cho.times < EPOCH + 14 * DAY_S
    assert np.bincount(sia_cho.feed_of_post[early], minlength=2000).min() >= 1


def test_sia_cho_windows_and_the_time_of_day(sia_cho: Trace) -> None:
    """Windows are 10 to 15 entries, and a poll of all feeds at midnight waits 645 minutes.

    That is the uniform policy of Table 1.
    """
    assert sia_cho.window.min() == 10
    assert sia_cho.window.max() == 15
    assert sia_cho.window.mean() == pytest.approx(12, abs=0.4)
    assert ((-sia_cho.times) % DAY_S).mean() / 60 == pytest.approx(645, abs=25)


def test_han_data(han: Trace) -> None:
    """The trace has the daily counts, rates and windows of Figs. 10 to 12.

    There are 1,160 posts on weekdays and 892 at weekends, 94 % of feeds have fewer than 10 a day,
    and 83 % of windows are 10 to 15.
    """
    day = ((han.times - EPOCH) // DAY_S).astype(int)
    counts = np.bincount(day, minlength=42)
    weekend = np.arange(42) % 7 >= 5
    assert counts[~weekend].mean() == pytest.approx(1160, rel=0.12)
    assert counts[weekend].mean() / counts[~weekend].mean() == pytest.approx(892 / 1160, abs=0.08)
    assert ((np.diff(han.offsets) / 42) < 10).mean() == pytest.approx(0.94, abs=0.035)
    assert ((han.window >= 10) & (han.window <= 15)).mean() == pytest.approx(0.83, abs=0.03)
    assert han.window.min() >= 1
    assert han.window.max() <= 60


def test_urbansky_data() -> None:
    """Most feeds hardly post (mean of 1/n near 0.44), and a few list only one batch of posts."""
    trace = generate("urbansky", 3000, 120, 0)
    items = np.bincount(trace.feed_of_post[trace.times >= trace.end - 21 * DAY_S], minlength=3000)
    assert (1 / items[items > 0]).mean() == pytest.approx(0.44, abs=0.08)
    count = np.diff(trace.offsets)
    span = (
        trace.times[trace.offsets[1:] - 1]
        - trace.times[np.minimum(trace.offsets[:-1], trace.n_posts - 1)]
    )
    batches = (count == trace.window) & (span < 10 * trace.window)
    assert batches.mean() == pytest.approx(0.015, abs=0.005)


def test_feedex_data() -> None:
    """Rates follow Zipf's law in the middle ranks, and windows are those of the paper.

    79 documents have 15 entries, 30 have 10, one has 126. Rate and window are hardly correlated.
    """
    trace = generate("feedex", 245, 10, 0)
    rates = np.diff(trace.offsets) / 10
    assert fit_zipf(rates, (30, 200)).r_squared > 0.98
    assert (trace.window == 15).sum() == 79
    assert (trace.window == 10).sum() == 30
    assert trace.window.max() == 126
    assert np.corrcoef(rates, trace.window)[0, 1] ** 2 < 0.15
    fool = np.array([name.startswith("no weekends") for name in trace.feed_names])[
        trace.feed_of_post
    ]
    assert np.all(((trace.times[fool] - EPOCH) // DAY_S) % 7 < 5)


def test_homogeneous_is_flat() -> None:
    """Posts have no daily or weekly pattern, windows are unlimited, and counts are Poisson."""
    trace = generate("homogeneous", 2000, 70, 0)
    hours = np.bincount(((trace.times % DAY_S) // 3600).astype(int), minlength=24)
    expected = trace.n_posts / 24
    assert np.abs(hours / expected - 1).max() < 5 / np.sqrt(expected)
    assert np.all(trace.window == UNLIMITED)
    day = ((trace.times - EPOCH) // DAY_S).astype(int)
    counts = np.bincount(trace.feed_of_post * 70 + day, minlength=2000 * 70).reshape(2000, 70)
    dispersion = counts.var(axis=1, ddof=1) / counts.mean(axis=1).clip(1e-9)
    assert dispersion[counts.mean(axis=1) > 1].mean() == pytest.approx(1, abs=0.05)
