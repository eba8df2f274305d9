"""Parameter types, tables, JSON and number formats."""

import json

import click
import numpy as np
import pytest

from tidings import formatting
from tidings.cli.output import NameList, NumberList, print_json, print_table


def test_number_list_with_spaces_and_exponents():
    assert NumberList().convert("30, 2.5,1e2", None, None) == [30, 2.5, 100]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,x", "'x' at position 2 is not a number"),
        ("1,,2", "'' at position 2 is not a number"),
        ("", "'' at position 1"),
        ("1,nan", "nan at position 2 is not a finite number"),
        ("inf", "not a finite number"),
        ("1,-1", "-1 at position 2 must be at least 0"),
    ],
)
def test_invalid_number_is_reported_with_its_position(text, message):
    with pytest.raises(click.BadParameter, match=message):
        NumberList(low=0).convert(text, None, None)


def test_name_list_rejects_empty_and_repeated_names():
    assert NameList().convert("uniform, fixed:interval_h=2", None, None) == [
        "uniform",
        "fixed:interval_h=2",
    ]
    with pytest.raises(click.BadParameter, match="empty name"):
        NameList().convert("uniform,", None, None)
    with pytest.raises(click.BadParameter, match="uniform is listed twice"):
        NameList().convert("uniform,price,uniform", None, None)


def test_json_replaces_nan_and_infinity_by_null(capsys):
    print_json({"a": np.array([1.5, np.nan]), "b": np.int64(3), "c": (float("inf"), None, True)})
    assert json.loads(capsys.readouterr().out) == {
        "a": [1.5, None],
        "b": 3,
        "c": [None, None, True],
    }


def test_tables_are_aligned_and_plain_when_not_a_terminal(capsys):
    print_table(["policy", "polls"], [["uniform", "1"], ["a:b=[red]", "1,234"]])
    assert capsys.readouterr().out == "policy     polls\nuniform        1\na:b=[red]  1,234\n"


def test_wide_table_is_not_wrapped_when_not_a_terminal(capsys):
    print_table(["policy", "x"], [["p" * 150, "1"]])
    assert capsys.readouterr().out.splitlines()[1] == "p" * 150 + "  1"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "1.5 min"),
        (5399, "90 min"),
        (5400, "1.5 h"),
        (1e6, "11.6 d"),
        (None, "–"),
    ],
)
def test_durations(seconds, text):
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.01234, "0.0123"), (4, "4"), (4.567, "4.57"), (12345.6, "12,346"), (0, "0")],
)
def test_figures(number, text):
    assert formatting.figures(number) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, "–"),
        (1000.4, "now"),
        (999, "1 s ago"),
        (918.2, "82 s ago"),
        (1000 + 846, "in 14 min"),
        (1000 - 15000, "4.2 h ago"),
    ],
)
def test_relative_times(at, text):
    assert formatting.ago(at, 1000) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.8, "80 %"),
        (1.0, "100 %"),
        (0.0417, "4.2 %"),
        (0.0037, "0.37 %"),
        (0.0, "0 %"),
        (None, "–"),
    ],
)
def test_short_percentage_has_two_figures(share, text):
    assert formatting.percent_short(share) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (18_400, "18 kB"),
        (3_230_000, "3.2 MB"),
        (120_400_000, "120 MB"),
    ],
)
def test_sizes(number, text):
    assert formatting.size(number) == text


def test_common_unit_is_that_of_the_smallest_value():
    assert formatting.common_unit([7200, 600, None, 0]) == ("min", 60.0)
    assert formatting.in_unit(7200, 60.0) == "120.00"
    assert formatting.percent(0.0037) == "0.37 %"
    assert formatting.percent(0.8) == "80.00 %"
    assert formatting.count(1, "feed") == "1 feed"
