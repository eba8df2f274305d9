"""Tests of the comparison with hourly polling, its rows, settings and poll constraints."""

import numpy as np
import pytest

from tests.trace_helpers import poisson_trace
from tidings.config import Config
from tidings.errors import TraceError, UsageError
from tidings.lab.compare import run_policy
from tidings.lab.hourly_baseline import (
    HOURLY,
    Settings,
    compare_with_hourly,
    default_settings,
    plan,
    settings_grid,
    summarize,
)
from tidings.lab.simulate import Conditions, simulate
from tidings.lab.traces import read_trace, write_trace
from tidings.model import HOUR_S, MINUTE_S
from tidings.policy.constraints import Limits

METRICS = {
    *(
        "charged_delay_s",
        "mean_delay_s",
        "median_delay_s",
        "p90_delay_s",
        "polls",
        "polls_per_feed_day",
    ),
    *("missed_share", "bytes", "posts"),
}
DEFAULT = Settings("price", 12.0, 15 * MINUTE_S)


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Return two small traces of 14 days, one of slow feeds and one of feeds of all rates.

    The first 8 days are for training.
    """
    folder = tmp_path_factory.mktemp("traces")
    write_trace(poisson_trace(np.geomspace(0.3, 3, 8), 14, seed=1, window=500), folder / "slow")
    write_trace(poisson_trace(np.geomspace(0.3, 60, 8), 14, seed=2, window=500), folder / "mixed")
    return [folder / "slow", folder / "mixed"]


@pytest.fixture(scope="module")
def table(traces):
    """Return the rows of the table, and the polls and conditions of every run."""
    runs = []

    def recording_simulate(trace, policy, *arguments, **options):
        polls = simulate(trace, policy, *arguments, **options)
        runs.append((polls, options["conditions"]))
        return polls

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidings.lab.hourly_baseline.simulate", recording_simulate)
        patch.setattr("tidings.lab.compare.simulate", recording_simulate)
        rows = compare_with_hourly(traces, train_days=8)
    return rows, runs


def test_default_settings_are_those_of_the_configuration():
    config = Config()
    assert default_settings(10) == Settings(
        config.policy_name, config.budget.requests, config.min_interval_s
    )


def test_every_trace_has_every_setting(table):
    rows, _ = table
    per_trace = [
        (HOURLY, 24, 15, False),
        ("price", 6, 15, False),
        ("price", 12, 15, True),
        ("price", 24, 15, False),
        ("price", 12, 60, False),
        ("price", 24, 60, False),
    ]
    found = [
        (
            row["trace"],
            row["policy"],
            row["budget_per_feed_day"],
            row["min_interval_s"] / 60,
            row["default"],
        )
        for row in rows
    ]
    assert found == [(trace, *setting) for trace in ("slow", "mixed") for setting in per_trace]
    assert all(set(row) >= METRICS for row in rows)


def test_polls_are_those_of_the_budget(table):
    rows, _ = table
    for row in rows:
        if row["policy"] == HOURLY:
            assert row["polls_per_feed_day"] == pytest.approx(24, rel=0.005)
        elif (row["budget_per_feed_day"], row["min_interval_s"]) == (24, HOUR_S):
            # 60 minutes, stretched by up to a fifth, leave no room for 24 polls.
            assert not row["reached_budget"]
            assert row["polls_per_feed_day"] < 23
        else:
            assert row["polls_per_feed_day"] == pytest.approx(row["budget_per_feed_day"], rel=0.05)


def test_every_run_is_under_the_constraints_of_its_row(table):
    rows, runs = table
    assert len(rows) == len(runs)
    for row, (polls, conditions) in zip(rows, runs, strict=True):
        assert conditions.limits.min_interval_s == row["min_interval_s"]
        feed, times = polls.feed, polls.times
        gaps = np.diff(times)[feed[1:] == feed[:-1]]
        assert gaps.min() >= row["min_interval_s"]


def test_ratios_are_to_hourly_polling_on_the_same_trace(table):
    rows, _ = table
    for trace in ("slow", "mixed"):
        of_trace = [row for row in rows if row["trace"] == trace]
        hourly = of_trace[0]
        for row in of_trace:
            assert row["requests_ratio"] == row["polls"] / hourly["polls"]
            assert row["charged_delay_ratio"] == row["charged_delay_s"] / hourly["charged_delay_s"]


def test_a_row_is_what_the_simulator_says(table, traces):
    rows, _ = table
    row = rows[-1]
    assert (row["trace"], row["budget_per_feed_day"], row["min_interval_s"]) == (
        "mixed",
        24,
        HOUR_S,
    )
    trace = read_trace(traces[1])
    (result,) = run_policy(
        trace, "price", 24, trace.training_end(8), conditions=Conditions(Limits(HOUR_S))
    )
    assert result.figures()["charged_delay_s"] == row["charged_delay_s"]


def test_summary_gives_equal_requests_and_the_default(table):
    rows, _ = table
    summaries = summarize(rows)
    assert [(line.policy, line.budget, line.default) for line in summaries] == [
        ("price", 12, True),
        ("price", 24, False),
    ]
    for line in summaries:
        ratios = {
            row["trace"]: row["charged_delay_ratio"]
            for row in rows
            if (row["policy"], row["budget_per_feed_day"], row["min_interval_s"])
            == ("price", line.budget, 15 * MINUTE_S)
        }
        assert line.charged_delay_ratio == pytest.approx(np.prod(list(ratios.values())) ** 0.5)
        assert line.worst_ratio == ratios[line.worst_trace] == max(ratios.values())


def test_chosen_rows_always_have_hourly_polling_and_the_default():
    rows = settings_grid(DEFAULT, ["uniform"], [2.0, 4.0], [30 * MINUTE_S, 15 * MINUTE_S])
    assert rows == [
        Settings(HOURLY, 24.0, 15 * MINUTE_S),
        DEFAULT,
        *(Settings("uniform", budget, 15 * MINUTE_S) for budget in (2.0, 4.0, 12.0)),
        *(Settings("uniform", budget, 30 * MINUTE_S) for budget in (4.0, 12.0)),
    ]


def test_several_processes_give_the_same_rows(traces):
    reports = []
    arguments = (traces[:1], ["uniform"], [4.0], [], 8)
    together = compare_with_hourly(
        *arguments, jobs=2, report=lambda text, steps: reports.append(steps)
    )
    assert together == compare_with_hourly(*arguments)
    assert sum(reports) == len(together) == 4


def test_progress_adds_up_to_the_rows(traces):
    steps = []
    rows = compare_with_hourly(
        traces[:1], ["uniform"], [4.0], [], 8, report=lambda text, done: steps.append(done)
    )
    assert sum(steps) == pytest.approx(len(rows))


def test_wrong_arguments_are_refused_before_anything_runs(traces):
    with pytest.raises(UsageError, match="unknown policy"):
        plan(traces, ["prize"])
    with pytest.raises(TraceError, match="leave nothing to test"):
        plan(traces, train_days=28)
    with pytest.raises(UsageError, match="at least one trace"):
        plan([])
