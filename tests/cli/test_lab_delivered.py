"""Command `lab delivered`."""

import json

import pytest

SMALL_RUN = ("--train-days", "18", "--budgets", "24", "--min-intervals", "1h")


@pytest.fixture(scope="module")
def rows(sample, tmp_path_factory):
    """Return the JSON output, the saved file and the text output of a small run."""
    from tests.cli.conftest import Tidings

    out = tmp_path_factory.mktemp("out") / "rows.json"
    arguments = ("lab", "delivered", sample, *SMALL_RUN)
    return (
        Tidings().json(*arguments, "--out", out),
        json.loads(out.read_text()),
        Tidings()(*arguments),
    )


def test_json_is_one_list_of_rows(rows):
    found, saved, _ = rows
    assert found == saved
    settings = [
        (row["policy"], row["budget_per_feed_day"], row["min_interval_s"], row["default"])
        for row in found
    ]
    assert settings == [
        ("hourly", 24, 900, False),
        ("price", 12, 900, True),
        ("price", 24, 900, False),
        ("price", 12, 3600, False),
        ("price", 24, 3600, False),
    ]
    for row in found:
        assert row["trace"] == "sample"
        assert row["charged_delay_s"] > 0
        assert {
            "mean_delay_s",
            "median_delay_s",
            "p90_delay_s",
            "polls",
            "missed_share",
            "bytes",
        } <= set(row)
    assert found[0]["polls_per_feed_day"] == pytest.approx(24, rel=0.005)


def test_table_fits_80_columns_and_marks_the_default(rows):
    _, _, text = rows
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0].startswith("sample: 20 feeds, ")
    assert "Minimum interval 15 min" in lines
    assert "Minimum interval 60 min" in lines
    assert sum(line.startswith("price 12* ") for line in lines) == 1
    assert any(line.startswith("hourly ") for line in lines)
    assert "! marks runs below 95 % of the budget, because of the poll constraints." in lines
    assert "geometric mean" not in text


def test_several_traces_have_a_summary(tidings, sample):
    text = tidings(
        "lab",
        "delivered",
        sample,
        sample,
        "--train-days",
        "18",
        "--budgets",
        "24",
        "--min-intervals",
        "15min",
    )
    assert "All traces: geometric mean of the ratios" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "equal requests" in text
    assert "default settings" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policies", "prize"), "unknown policy 'prize'"),
        (("--budgets", "0"), "must be above 0"),
        (("--min-intervals", "5min,soon"), "'soon' is not a duration"),
        (("--min-intervals", "2d"), "'2d' is not a duration up to 1 day"),
        (("--train-days", "21"), "21 days of training leave nothing to test"),
        (("--out", "nowhere/rows.json"), "create it first"),
    ],
)
def test_invalid_values_exit_with_code_2(tidings, sample, arguments, message):
    assert message in tidings.expect_error("lab", "delivered", sample, *arguments)
