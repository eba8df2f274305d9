"""`--as-served` and `--min-interval` of `lab compare` and `lab evaluate`."""

import pytest

COMPARE_OPTIONS = (
    "--policies",
    "uniform,combined",
    "--budget",
    "24",
    "--train-days",
    "14",
    "--no-native",
)


def test_compare_as_served_lists_policies_below_the_budget(tidings, sample):
    arguments = (
        "lab",
        "compare",
        sample,
        *COMPARE_OPTIONS,
        "--as-served",
        "--min-interval",
        "60min",
    )
    found = tidings.json(*arguments)
    assert found["min_interval_s"] == 3600
    assert [result["reached_budget"] for result in found["results"]] == [False, False]
    text = tidings(*arguments)
    assert "With the constraints of the service, minimum interval 60 min" in text
    assert (
        "Below 95 % of the budget, because of the poll constraints:\n  uniform\n  combined\n"
        in text
    )
    assert max(len(line) for line in text.splitlines()) <= 80


def test_compare_as_served_uses_the_default_minimum_interval(tidings, sample):
    found = tidings.json("lab", "compare", sample, *COMPARE_OPTIONS, "--as-served")
    assert found["min_interval_s"] == 900
    assert all(result["reached_budget"] for result in found["results"])


def test_compare_without_constraints_is_unchanged(tidings, sample):
    found = tidings.json("lab", "compare", sample, *COMPARE_OPTIONS)
    assert found["min_interval_s"] is None
    assert all(result["reached_budget"] for result in found["results"])
    assert "With the constraints of the service" not in tidings(
        "lab", "compare", sample, *COMPARE_OPTIONS
    )


def test_evaluate_as_served(tidings, sample):
    arguments = (
        "--budgets",
        "12",
        "--train-days",
        "14",
        "--policies",
        "uniform",
        "--ours",
        "min-delay",
        "--as-served",
    )
    served = tidings.json("lab", "evaluate", sample, *arguments)
    assert served["min_interval_s"] == served["cells"][0]["min_interval_s"] == 900
    assert tidings("lab", "evaluate", sample, *arguments).startswith(
        "With the constraints of the service, minimum interval 15 min\n\n"
    )
    assert tidings.json("lab", "evaluate", sample, *arguments[:-1])["min_interval_s"] is None


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_min_interval_requires_as_served(tidings, sample, command):
    chosen = COMPARE_OPTIONS if command == "compare" else ()
    message = tidings.expect_error("lab", command, sample, *chosen, "--min-interval", "15min")
    assert "add --as-served" in message
    message = tidings.expect_error(
        "lab", command, sample, *chosen, "--as-served", "--min-interval", "often"
    )
    assert "'often' is not a duration up to 1 day" in message
