"""Commands `lab score`, `compare` and `limit`."""

import numpy as np
import pytest

from tests.trace_helpers import score_brute_force, trace_of
from tidings.lab.traces import read_table, read_trace, write_trace

METRICS = (
    *(
        "polls",
        "polls_per_feed_day",
        "posts",
        "mean_delay_s",
        "median_delay_s",
        "p95_delay_s",
        "max_delay_s",
    ),
    *("missed", "missed_share", "charged_delay_s", "polls_per_post", "bytes"),
)


def poll_list(folder, rows):
    file = folder / "polls.csv"
    file.write_text("feed_id,polled_at\n" + "".join(f"{feed},{at}\n" for feed, at in rows))
    return file


# --- score ----------------------------------------------------------------------------------


def test_score_equals_brute_force(tidings, tmp_path):
    trace = trace_of([0, 100, 150, 155, 160, 900], [50, 500], [1000], window=2)
    write_trace(trace, tmp_path / "t")
    polls = {0: [100, 400], 1: [500], 2: []}
    file = poll_list(tmp_path, [(f, at) for f, times in polls.items() for at in times])
    found = tidings.json("lab", "score", tmp_path / "t", "--polls", file)
    expected = score_brute_force(trace, polls)
    delays = [delay for _, delay, _ in expected if delay is not None]
    assert set(METRICS) <= set(found)
    assert found["polls"] == 3
    assert found["posts"] == 9
    assert found["missed"] == sum(1 for _, delay, _ in expected if delay is None) == 1
    assert found["mean_delay_s"] == np.mean(delays)
    assert found["max_delay_s"] == max(delays)
    assert found["charged_delay_s"] == np.mean([charged for _, _, charged in expected])
    assert found["ignored_polls"] == 0


def test_polls_outside_the_scored_period_are_ignored_and_counted(tidings, tmp_path):
    write_trace(trace_of([1000, 200_000], [3000]), tmp_path / "t")
    polls = [(0, 1), (0, 1000), (1, 2000), (1, 300_000)]
    found = tidings.json("lab", "score", tmp_path / "t", "--polls", poll_list(tmp_path, polls))
    assert (found["polls"], found["ignored_polls"]) == (2, 2)
    later = tidings.json(
        "lab", "score", tmp_path / "t", "--polls", poll_list(tmp_path, polls), "--train-days", "1"
    )
    assert (later["polls"], later["ignored_polls"], later["posts"]) == (0, 4, 1)


def test_score_as_text(tidings, sample, tmp_path):
    text = tidings(
        "lab",
        "score",
        sample,
        "--polls",
        poll_list(tmp_path, [(0, 1)]),
        "--plot",
        tmp_path / "delays.svg",
    )
    assert "1 poll outside the scored period was ignored" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert (tmp_path / "delays.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "feed_id,polled_at\n0,5\n99,6\n",
            "polls.csv, row 2, column 'feed_id': feed 99 is not in the trace",
        ),
        (
            "feed_id,polled_at\n0,5\n0,soon\n",
            "polls.csv, row 2, column 'polled_at': 'soon' is not a number",
        ),
        ("feed_id,polled_at\n0,\n", "polls.csv, row 1, column 'polled_at': is empty"),
        ("feed_id,at\n0,5\n", "has no column 'polled_at'; it has feed_id, at"),
        ("", "polls.csv: is empty"),
    ],
)
def test_invalid_poll_lists_are_reported_by_file_row_and_column(
    tidings, sample, tmp_path, rows, message
):
    (tmp_path / "polls.csv").write_text(rows)
    assert message in tidings.expect_error(
        "lab", "score", sample, "--polls", tmp_path / "polls.csv"
    )


def test_missing_poll_list_is_reported(tidings, sample):
    assert "nowhere.parquet: does not exist" in tidings.expect_error(
        "lab", "score", sample, "--polls", "nowhere.parquet"
    )


# --- compare --------------------------------------------------------------------------------


def test_compare_has_equal_budgets_and_saved_polls_score_the_same(tidings, sample, tmp_path):
    policies = "uniform,min-delay,fixed:interval_h=3"
    arguments = (
        "--policies",
        policies,
        "--budget",
        "4",
        "--train-days",
        "7",
        "--save-polls",
        tmp_path / "polls",
    )
    found = tidings.json("lab", "compare", sample, *arguments)
    names = ["uniform", "min-delay", "fixed:interval_h=3@native", "fixed:interval_h=3"]
    assert [result["policy"] for result in found["results"]] == names
    assert (found["trace"], found["budget"], found["train_days"]) == ("sample", 4, 7)
    for result in found["results"]:
        assert set(METRICS) <= set(result)
        file = tmp_path / "polls" / f"{result['policy']}.parquet"
        assert set(read_table(file)) == {"feed_id", "polled_at"}
        again = tidings.json("lab", "score", sample, "--polls", file, "--train-days", "7")
        assert {key: again[key] for key in METRICS} == {key: result[key] for key in METRICS}
        if not result["policy"].endswith("@native"):
            assert result["polls_per_feed_day"] == pytest.approx(4, rel=0.005)
            assert found["limit_charged_s"] <= result["charged_delay_s"]


def test_no_native_omits_the_native_run(tidings, sample):
    arguments = ("--policies", "fixed", "--budget", "4", "--train-days", "7", "--no-native")
    assert [
        result["policy"] for result in tidings.json("lab", "compare", sample, *arguments)["results"]
    ] == ["fixed"]


def test_against_adds_ratios_with_intervals(tidings, sample):
    arguments = (
        "--policies",
        "uniform,min-delay",
        "--budget",
        "4",
        "--train-days",
        "7",
        "--against",
        "uniform",
    )
    found = tidings.json("lab", "compare", sample, *arguments)
    uniform, ours = found["results"]
    assert "against" not in uniform
    for key, figure in (("charged_delay", "charged_delay_s"), ("delay", "mean_delay_s")):
        ratio = ours["against"][key]
        assert ratio["ratio"] == pytest.approx(ours[figure] / uniform[figure])
        assert ratio["low"] <= ratio["ratio"] <= ratio["high"]
    text = tidings("lab", "compare", sample, *arguments)
    assert "Ratio to uniform" in text


def test_table_fits_80_columns_and_ends_with_the_limit(tidings, sample, tmp_path):
    plot = tmp_path / "delays.png"
    arguments = (
        "--policies",
        "uniform,freshness-rate",
        "--budget",
        "4",
        "--train-days",
        "7",
        "--plot",
        plot,
    )
    text = tidings("lab", "compare", sample, *arguments)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.splitlines()[-1].startswith("(limit)")
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_several_budgets_give_a_curve(tidings, sample, tmp_path):
    plot, polls = tmp_path / "curve.svg", tmp_path / "polls"
    arguments = (
        "--policies",
        "uniform",
        "--budget",
        "1,4",
        "--train-days",
        "7",
        "--plot",
        plot,
        "--save-polls",
        polls,
    )
    found = tidings.json("lab", "compare", sample, *arguments)
    assert [at["budget"] for at in found["curve"]] == [1, 4]
    slow, fast = (at["results"][0]["charged_delay_s"] for at in found["curve"])
    assert fast < slow
    assert sorted(str(file.relative_to(polls)) for file in polls.rglob("*.parquet")) == [
        "1/uniform.parquet",
        "4/uniform.parquet",
    ]
    assert "polls per feed and day" in plot.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "best", "--budget", "4"), "unknown policy 'best'; choose from"),
        (
            ("--policies", "fixed:hours=2", "--budget", "4"),
            "has no parameter 'hours'; it takes interval_h=1.0",
        ),
        (("--policies", "uniform,uniform", "--budget", "4"), "uniform is listed twice"),
        (("--policies", "uniform", "--budget", "0"), "must be above 0"),
        (("--policies", "uniform", "--budget", "much"), "'much' at position 1 is not a number"),
        (
            ("--policies", "uniform", "--budget", "4", "--train-days", "21"),
            "21 days of training leave nothing to test",
        ),
        (
            ("--policies", "uniform", "--budget", "4", "--against", "price"),
            "--against price is not in --policies",
        ),
        (
            ("--policies", "uniform", "--budget", "4", "--plot", "curve.gif"),
            "the suffix must be one of",
        ),
        (("--policies", "uniform"), "Missing option '--budget'"),
    ],
)
def test_invalid_comparisons_are_rejected(tidings, sample, arguments, message):
    assert message in tidings.expect_error("lab", "compare", sample, *arguments)


def test_save_polls_rejects_a_file(tidings, sample, tmp_path):
    (tmp_path / "polls").write_text("")
    arguments = ("--policies", "uniform", "--budget", "4", "--save-polls", tmp_path / "polls")
    assert "is a file; choose a directory" in tidings.expect_error(
        "lab", "compare", sample, *arguments
    )


# --- limit ----------------------------------------------------------------------------------


def test_limit_of_a_small_example(tidings, tmp_path):
    """Two days, one poll: best at 100 s; the final poll at the end finds the last post."""
    write_trace(trace_of([0, 100, 172_800]), tmp_path / "t")
    found = tidings.json("lab", "limit", tmp_path / "t", "--budget", "0.5")
    assert (found["polls"], found["posts"]) == (1, 3)
    assert found["mean_delay_s"] == pytest.approx(100 / 3)
    assert found["charged_delay_s"] == pytest.approx(100 / 3)


def test_weights_do_not_change_the_limit(tidings, tmp_path, sample):
    trace = read_trace(sample)
    trace.weight[:] = np.linspace(0.1, 9, trace.n_feeds)
    write_trace(trace, tmp_path / "weighted")
    plain, weighted = (
        tidings.json("lab", "limit", t, "--budget", "1") for t in (sample, tmp_path / "weighted")
    )
    assert weighted["mean_delay_s"] == pytest.approx(plain["mean_delay_s"])
    assert weighted["charged_delay_s"] == pytest.approx(plain["charged_delay_s"])


def test_limit_decreases_with_the_budget(tidings, sample, tmp_path):
    plot = tmp_path / "limit.pdf"
    found = tidings.json("lab", "limit", sample, "--budget", "0,1,2", "--plot", plot)
    delays = [at["mean_delay_s"] for at in found["curve"]]
    assert delays == sorted(delays, reverse=True)
    assert plot.read_bytes().startswith(b"%PDF")
    assert "No policy can be faster than" in tidings("lab", "limit", sample, "--budget", "1")


def test_invalid_limits_are_rejected(tidings, sample):
    assert "must be at least 0" in tidings.expect_error("lab", "limit", sample, "--budget", "-1")
    assert "needs several budgets" in tidings.expect_error(
        "lab", "limit", sample, "--budget", "1", "--plot", "x.png"
    )
