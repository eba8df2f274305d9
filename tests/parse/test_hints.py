"""Polling hints of publishers: ttl, skipHours, skipDays, syndication module."""

import pytest

from tests.parse.feeds import parse_document, rss
from tidings.document import Hints


def hints(*parts: str) -> Hints:
    return parse_document(rss(*parts)).hints


@pytest.mark.parametrize(
    ("ttl", "seconds"),
    [
        ("60", 3600.0),
        (" 1.5 ", 90.0),
        ("0", None),
        ("-5", None),
        ("999999999", None),
        ("soon", None),
        ("nan", None),
    ],
)
def test_ttl_is_minutes(ttl: str, seconds: float | None) -> None:
    assert hints(f"<ttl>{ttl}</ttl>").ttl_s == seconds


@pytest.mark.parametrize(
    ("period", "frequency", "seconds"),
    [
        ("hourly", "1", 3600.0),
        ("daily", "2", 43200.0),
        ("Weekly", "", 604800.0),
        ("", "4", 21600.0),
        ("often", "1", None),
        ("yearly", "1", None),
    ],
)
def test_syndication_module(period: str, frequency: str, seconds: float | None) -> None:
    assert (
        hints(
            f"<sy:updatePeriod>{period}</sy:updatePeriod>"
            f"<sy:updateFrequency>{frequency}</sy:updateFrequency>"
        ).period_s
        == seconds
    )


def test_skip_hours_and_days() -> None:
    parsed = hints(
        "<skipHours><hour>0</hour><hour>24</hour><hour>07</hour><hour>25</hour><hour>x</hour>"
        "</skipHours>",
        "<skipDays><day>Sunday</day><day>monday</day><day>Someday</day></skipDays>",
    )
    assert parsed.skip_hours == {0, 7}
    assert parsed.skip_days == {6, 0}


def test_skipping_all_hours_is_ignored() -> None:
    assert not hints(
        "<skipHours>" + "".join(f"<hour>{hour}</hour>" for hour in range(24)) + "</skipHours>"
    ).any
