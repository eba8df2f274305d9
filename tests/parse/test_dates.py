"""Dates as they are found."""

from datetime import UTC, datetime

import pytest

from tidings.parse.dates import read_date


def told(text: str) -> str | None:
    when = read_date(text)
    if when is None:
        return None
    moment = datetime.fromtimestamp(when.time, UTC)
    return moment.strftime("%Y-%m-%d") if when.date_only else moment.strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon, 01 Jan 2024 10:00:00 GMT", "2024-01-01T10:00:00"),
        ("Sun, 01 Jan 2024 10:00:00 GMT", "2024-01-01T10:00:00"),  # the weekday is wrong
        ("Mon, 1 Jan 2024 10:00 GMT", "2024-01-01T10:00:00"),
        ("1 January 2024 10:00:00 +0200", "2024-01-01T08:00:00"),
        ("Mon, 01 Jan 24 10:00:00 EST", "2024-01-01T15:00:00"),
        ("Fri, 01 Jan 99 10:00:00 Z", "1999-01-01T10:00:00"),
        ("Mon, 01 Jan 2024 10:00:00 IST", "2024-01-01T04:30:00"),
        ("Mon, 01 Jan 2024 10:00:00 GMT+0100 (CET)", "2024-01-01T09:00:00"),
        ("Mon,01 Jan 2024 10:00:00 PDT", "2024-01-01T17:00:00"),
        ("Mon, 01-Jan-2024 10:00:00 GMT", "2024-01-01T10:00:00"),
        ("Mon Jan  1 10:00:00 2024", "2024-01-01T10:00:00"),
        ("Jan 1, 2024 3:04 pm", "2024-01-01T15:04:00"),
        ("Mi, 01 Mai 2024 10:00:00 +0200", "2024-05-01T08:00:00"),
        ("mar., 05 déc. 2023 10:00:00 +0100", "2023-12-05T09:00:00"),
        ("Mon, 01 Jan 2024 10:00:00 Nowhere", "2024-01-01T10:00:00"),
        ("Mon, 01 Jan 2024", "2024-01-01"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00"),
        ("2024-01-01T10:00:00.123-05:00", "2024-01-01T15:00:00"),
        ("2024-01-01 10:00:00 +0530", "2024-01-01T04:30:00"),
        ("2024-01-01T10:00+01", "2024-01-01T09:00:00"),
        ("20240101T100000Z", "2024-01-01T10:00:00"),
        ("2024-01-01T24:00:00Z", "2024-01-02T00:00:00"),
        ("2024-060", "2024-02-29"),
        ("2024-05-01", "2024-05-01"),
        ("2024-05", "2024-05-01"),
        ("2024", "2024-01-01"),
        ("2024/05/01 10:00:00", "2024-05-01T10:00:00"),
        ("31.12.2023 10:00", "2023-12-31T10:00:00"),
        ("12/31/2023", "2023-12-31"),
        ("1704103200", "2024-01-01T10:00:00"),
        ("1704103200123", "2024-01-01T10:00:00"),
    ],
)
def test_read(text: str, expected: str) -> None:
    assert told(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "yesterday",
        "2024-13-01",
        "Tue, 31 Feb 2024 10:00:00 GMT",
        "0000-00-00 00:00:00",
        "1 2 3 4",
        "Mon, 99 Jan 2024 99:99:99",
        "9" * 500,
    ],
)
def test_unreadable(text: str) -> None:
    assert read_date(text) is None


def test_fractions_of_seconds_are_kept() -> None:
    when = read_date("2024-01-01T10:00:00.250Z")
    assert when is not None
    assert when.time == 1704103200.25
