"""Commands `lab allocate` and `lab schedule`: worked examples of the papers."""

import itertools

import numpy as np
import pytest

HAN = ("--rates", "30,30,10,10", "--budget", "8")
HAN_WINDOWS = ("--windows", "15,10,10,5")
FLAT = ",".join(["1"] * 24)
OFFICE = ",".join(["0"] * 9 + ["1"] * 8 + ["0"] * 7)


@pytest.mark.parametrize(
    ("policy", "polls", "missed"),
    [
        ("uniform", [2, 2, 2, 2], [0, 10, 0, 0]),
        ("min-delay", [3, 3, 1, 1], [0, 0, 0, 5]),
        ("min-missing", [2, 3, 1, 2], [0] * 4),
    ],
)
def test_han_tables_1_to_3(tidings, policy, polls, missed):
    found = tidings.json("lab", "allocate", "--policy", policy, *HAN, *HAN_WINDOWS, "--integer")
    assert found["polls"] == polls
    assert found["missed"] == missed
    assert found["total"] == 8


def test_fractional_square_root_rule_with_weights(tidings):
    plain = tidings.json("lab", "allocate", "--policy", "min-delay", *HAN)
    assert plain["polls"] == pytest.approx(
        [2.535898385, 2.535898385, 1.464101615, 1.464101615], abs=1e-8
    )
    assert "missed" not in plain
    weighted = tidings.json(
        "lab",
        "allocate",
        "--policy",
        "min-delay",
        "--rates",
        "1,1",
        "--weights",
        "1,9",
        "--budget",
        "8",
    )
    assert weighted["polls"] == pytest.approx([2, 6])


def test_table_shows_every_feed_and_the_total(tidings):
    lines = tidings("lab", "allocate", "--policy", "min-missing", *HAN, *HAN_WINDOWS).splitlines()
    assert lines[0].split() == ["feed", "rate", "window", "polls", "missed"]
    assert lines[-1].split() == ["total", "80", "8", "0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "best", *HAN), "unknown allocation 'best'; choose from uniform"),
        (
            ("--policy", "uniform", "--rates", "1,a", "--budget", "1"),
            "'a' at position 2 is not a number",
        ),
        (("--policy", "uniform", "--rates", "1,-1", "--budget", "1"), "must be at least 0"),
        (
            ("--policy", "uniform", "--rates", "1", "--budget", "-1"),
            "the budget must be a number of polls, 0 or more",
        ),
        (("--policy", "uniform", "--rates", "1", "--budget", "nan"), "the budget must be"),
        (
            ("--policy", "uniform", "--rates", "1,2", "--budget", "1", "--weights", "1"),
            "--weights has 1 numbers, but --rates has 2",
        ),
        (
            ("--policy", "uniform", "--rates", "1,2", "--budget", "1", "--windows", "1,0"),
            "must be at least 1",
        ),
        (
            ("--policy", "uniform", "--rates", "1,2", "--budget", "1", "--windows", "1,2.5"),
            "2.5 at position 2 is not a whole number",
        ),
        (("--policy", "min-missing", *HAN), "needs --windows"),
        (("--policy", "uniform", "--rates", "1"), "Missing option '--budget'"),
    ],
)
def test_invalid_allocations_are_rejected(tidings, arguments, message):
    assert message in tidings.expect_error("lab", "allocate", *arguments)


def brute_force_delay(hourly, polls):
    """Return the minimum delay over all times on the grid, in post-hours, by integration."""
    step = 0.05
    at = (np.arange(480) + 0.5) * step
    posts = np.asarray(hourly)[at.astype(int)] * step

    def delay(times):
        waits = np.min([np.mod(t - at, 24) for t in times], axis=0)
        return float((posts * waits).sum())

    return min(delay(times) for times in itertools.combinations(np.arange(48) / 2, polls))


@pytest.mark.parametrize("polls", [1, 2])
def test_schedule_equals_brute_force(tidings, polls):
    hourly = np.random.default_rng(polls).random(24).round(3)
    text = ",".join(str(h) for h in hourly)
    found = {
        m: tidings.json("lab", "schedule", "--hourly", text, "--polls", polls, "--method", m)
        for m in METHODS
    }
    for method in METHODS:
        assert found[method]["expected_delay_h"] == pytest.approx(
            brute_force_delay(hourly, polls), rel=1e-9
        ), method
        assert len(found[method]["times_h"]) == polls


METHODS = ("dp", "exhaustive", "iterative")


def test_schedule_as_text(tidings, tmp_path):
    text = tidings(
        "lab", "schedule", "--hourly", OFFICE, "--polls", "2", "--plot", tmp_path / "day.png"
    )
    assert text.splitlines()[0] == "Polls at        13:00 17:00"
    assert "16 h, sum over 8 posts per day" in text
    assert (tmp_path / "day.png").read_bytes().startswith(b"\x89PNG")


def test_feed_without_posts_has_no_delay(tidings):
    assert (
        tidings.json("lab", "schedule", "--hourly", ",".join("0" * 24), "--polls", "2")[
            "expected_delay_h"
        ]
        == 0
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--hourly", "1,2,3", "--polls", "2"), "--hourly has 3 numbers; enter 24"),
        (("--hourly", FLAT, "--polls", "0"), "must be between 1 and 48"),
        (("--hourly", FLAT, "--polls", "49"), "must be between 1 and 48"),
        (("--hourly", FLAT, "--polls", "2.5"), "'2.5' is not a valid integer"),
        (
            ("--hourly", FLAT, "--polls", "2", "--method", "luck"),
            "'luck' is not one of 'dp', 'exhaustive', 'iterative'",
        ),
        (
            ("--hourly", FLAT, "--polls", "2", "--plot", "day.txt"),
            "the suffix must be one of .png, .svg, .pdf",
        ),
        (
            ("--hourly", FLAT, "--polls", "2", "--plot", "nowhere/day.png"),
            "there is no directory nowhere; create it first",
        ),
    ],
)
def test_invalid_schedules_are_rejected(tidings, arguments, message):
    assert message in tidings.expect_error("lab", "schedule", *arguments)
