"""What a budget buys: more polls, less delay, fewer losses; a sample of feeds says nearly the same
as all of them.
"""

import numpy as np
import pytest

from tests.cli.conftest import Tidings
from tests.trace_helpers import poisson_trace, trace_of
from tidings.errors import TraceError, UsageError
from tidings.lab.score import metrics, score_polls
from tidings.lab.simulate import simulate
from tidings.lab.traces import write_trace
from tidings.lab.whatif import training_days, whatif
from tidings.model import DAY_S
from tidings.policy import make_policy


@pytest.fixture(scope="module")
def trace():
    return poisson_trace(np.geomspace(0.5, 20, 60), 24, seed=5, window=6)


def test_more_polls_reduce_delay_and_missed_posts(trace):
    points = whatif(trace, [0.5, 2.0, 8.0], train_days=14)
    assert [point.budget for point in points] == [0.5, 2.0, 8.0]
    for figure in ("mean_delay_s", "median_delay_s", "missed_share", "charged_delay_s"):
        values = [getattr(point, figure) for point in points]
        assert values == sorted(values, reverse=True), figure
    assert [point.polls_per_day for point in points] == [
        pytest.approx(p.polls_per_feed_day * 60) for p in points
    ]


def test_a_point_is_one_replay(trace):
    (point,) = whatif(trace, [2.0], "combined", 14)
    start = trace.training_end(14)
    found = metrics(score_polls(trace, simulate(trace, make_policy("combined"), 2.0, start), start))
    assert point.charged_delay_s == found["charged_delay_s"]
    assert point.missed_share == found["missed_share"]
    assert point.posts == found["posts"]


def test_sample_is_scaled_to_all_feeds(trace):
    (whole,) = whatif(trace, [2.0], "min-delay", 14)
    (sampled,) = whatif(trace, [2.0], "min-delay", 14, sample_feeds=40)
    assert sampled.posts < whole.posts
    assert sampled.polls_per_day == pytest.approx(whole.polls_per_day, rel=0.02)
    assert sampled.charged_delay_s == pytest.approx(whole.charged_delay_s, rel=0.4)
    assert whatif(trace, [2.0], "min-delay", 14, sample_feeds=600) == [whole]
    assert whatif(trace, [2.0], "min-delay", 14, 40, seed=1) == whatif(
        trace, [2.0], "min-delay", 14, 40, seed=1
    )


def test_progress_rises_to_the_end(trace):
    reports = []
    whatif(trace, [1.0, 3.0], "uniform", 14, progress=reports.append)
    assert reports == sorted(reports)
    assert reports[-1] == pytest.approx(1.0)
    assert sum(share <= 0.25 for share in reports) == len(reports) // 2  # a quarter of the polls


def test_training_is_four_weeks_or_half(trace):
    assert training_days(trace) == pytest.approx(trace.days / 2)
    assert training_days(poisson_trace([5.0], 80)) == 28
    assert training_days(trace, 3.0) == 3


def test_invalid_arguments_are_rejected(trace):
    with pytest.raises(UsageError, match="moving-average has no budget"):
        whatif(trace, [1.0], "moving-average")
    with pytest.raises(UsageError, match="budgets"):
        whatif(trace, [])
    with pytest.raises(UsageError, match="budgets"):
        whatif(trace, [0.0])
    with pytest.raises(UsageError, match="at least one feed"):
        whatif(trace, [1.0], sample_feeds=0)
    lone = trace_of([0.0, 1.0], [2 * DAY_S], start=1e9)
    with pytest.raises(TraceError, match="nothing to judge"):
        whatif(
            lone,
            [1.0],
            train_days=1.0,
            sample_feeds=1,
            seed=next(s for s in range(50) if drawn_feed(s) == 0),
        )


def drawn_feed(seed):
    return int(np.random.default_rng(seed).choice(2, 1, replace=False)[0])


def test_the_command_prints_and_draws(trace, tmp_path):
    tidings = Tidings()
    write_trace(trace, tmp_path / "t")
    options = (
        "lab",
        "whatif",
        tmp_path / "t",
        "--budgets",
        "1,4",
        "--train-days",
        "14",
        "--policy",
        "min-delay",
    )
    text = tidings(*options, "--plot", tmp_path / "budget.svg")
    assert "min-delay after 14 days of training; 60 feeds" in text
    assert (tmp_path / "budget.svg").read_text().startswith("<?xml")
    found = tidings.json(*options, "--sample", "20")
    assert [point["budget"] for point in found["points"]] == [1.0, 4.0]
    assert found["sample"] == 20
    assert "simulated on a sample of 20" in tidings(*options, "--sample", "20")
    assert "must be one of" in tidings.expect_error(*options, "--plot", "budget.gif")
