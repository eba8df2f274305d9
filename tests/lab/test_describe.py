"""Tests of trace statistics, compared with counts by hand."""

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, poisson_trace, trace_of
from tidings.lab.describe import as_text, describe, fano_factors, lifetimes_s, picture, sparkline
from tidings.lab.traces import UNLIMITED
from tidings.model import DAY_S, HOUR_S

WEEKS = 4


@pytest.fixture(scope="module")
def poisson():
    return poisson_trace(np.geomspace(0.5, 20, 60), 7 * WEEKS, seed=1, window=8)


def test_rates_and_counts_of_small_trace():
    trace = trace_of([0, DAY_S, 2 * DAY_S], [DAY_S], [], window=[2, 5, UNLIMITED], start=MONDAY)
    found = describe(trace)
    assert (found["feeds"], found["posts"], found["days"]) == (3, 4, 2)
    assert found["rate_per_day"]["mean"] == pytest.approx(4 / 2 / 3)
    assert found["rate_per_day"]["max"] == 1.5
    assert found["rate_per_day"]["silent_feeds"] == 1
    assert found["rate_per_day"]["busiest_tenth_share"] == 0.75
    assert (found["window"]["min"], found["window"]["max"], found["window"]["unlimited_feeds"]) == (
        2,
        5,
        1,
    )
    assert found["mean_post_bytes"] == 560


def test_hours_and_days_are_utc_and_begin_on_monday():
    posts = [MONDAY + 9 * HOUR_S, MONDAY + 9 * HOUR_S + 30, MONDAY + 5 * DAY_S + 23 * HOUR_S]
    found = describe(trace_of(posts))
    assert found["hour_of_day_share"][9] == pytest.approx(2 / 3)
    assert found["hour_of_day_share"][23] == pytest.approx(1 / 3)
    assert found["day_of_week_share"] == pytest.approx([2 / 3, 0, 0, 0, 0, 1 / 3, 0])
    assert found["hour_of_week_share"][5][23] == pytest.approx(1 / 3)


def test_bursts_are_counted_per_feed():
    found = describe(trace_of([0, 60, 121, 500], [61, 62]))["bursts"]
    assert found["within_60s_share"] == pytest.approx(2 / 6)
    assert found["median_gap_s"] == pytest.approx(60.5)


def test_fano_is_one_for_poisson_and_larger_for_bursts(poisson):
    assert np.median(fano_factors(poisson)) == pytest.approx(1, abs=0.15)
    bursts = trace_of(
        *[[day * DAY_S + k for day in range(0, 28, 4) for k in range(8)] + [28 * DAY_S]] * 3
    )
    assert fano_factors(bursts).min() > 4


def test_fano_equals_the_plain_computation(poisson):
    days = int(poisson.days)
    expected = []
    for f in range(poisson.n_feeds):
        since = poisson.times[poisson.offsets[f] : poisson.offsets[f + 1]] - poisson.start
        counts = np.histogram(since[since < days * DAY_S], bins=days, range=(0, days * DAY_S))[0]
        if counts.sum() >= 10:
            expected.append(counts.var(ddof=1) / counts.mean())
    assert fano_factors(poisson) == pytest.approx(expected)


def test_lifetimes_end_when_a_window_of_newer_entries_is_there():
    assert lifetimes_s(trace_of([0, 10, 30, 70], [5], window=[2, 1])).tolist() == [30, 60]
    assert describe(trace_of([0, 10], window=5))["entry_lifetime_s"]["entries"] == 0


def test_zipf_exponent_is_recovered():
    rates = 400 / np.arange(1, 121)
    assert describe(poisson_trace(rates, 30, seed=2))["zipf"]["exponent"] == pytest.approx(
        1, abs=0.05
    )


def test_text_fits_80_columns(poisson):
    text = as_text(describe(poisson))
    assert max(len(line) for line in text.splitlines()) <= 80
    for label in (
        "Posts a day",
        "Window",
        "Hour of the day",
        "Day of the week",
        "Zipf",
        "Bursts",
        "Entry lifetime",
    ):
        assert f"\n{label}" in text


def test_trace_with_one_post_is_described():
    trace = trace_of([5], window=UNLIMITED)
    found = describe(trace)
    assert "too few feeds to fit" in as_text(found)
    assert "every feed is taken to show everything" in as_text(found)
    assert len(picture(trace, found).axes) == 6


def test_picture_has_titles_and_axes_with_units(poisson):
    axes = picture(poisson, describe(poisson)).axes
    assert len(axes) == 6
    assert all(ax.get_title(loc="left") for ax in axes)
    assert axes[0].get_xlabel() == "posts a day"


def test_sparkline():
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert sparkline([0, 0]) == "▁▁"
