"""Freshness and Retry-After headers, valid and invalid."""

from email.utils import formatdate

import pytest
from multidict import CIMultiDict

from tests.fetch.origin_server import MONDAY
from tidings.fetch.freshness import fresh_until, retry_at
from tidings.model import DAY_S


def fresh_for(**headers: str) -> float | None:
    until = fresh_until(
        CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}), MONDAY
    )
    return None if until is None else until - MONDAY


def retry_in(**headers: str) -> float | None:
    at = retry_at(
        CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()}), MONDAY
    )
    return None if at is None else at - MONDAY


def date(offset_s: float) -> str:
    return formatdate(MONDAY + offset_s, usegmt=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("max-age=3600", 3600),
        ("public, MAX-AGE=3600", 3600),
        ('max-age="3600"', 3600),
        ("max-age = 3600", 3600),
        ("max-age=3600, max-age=60", 3600),
        ("max-age=60.5", 60),
        ("s-maxage=60", None),
        ("s-maxage=60, max-age=3600", 3600),
        ("x-max-age=60", None),
        ("no-cache", None),
        ("no-store, max-age=3600", 3600),
        ("max-age=0", None),
        ("max-age=-1", None),
        ("max-age=soon", None),
        ("", None),
        ("max-age=504921600", DAY_S),  # 16 years
        ("max-age=" + "9" * 400, DAY_S),
    ],
)
def test_max_age(text: str, seconds: float | None) -> None:
    assert fresh_for(Cache_Control=text) == seconds


def test_several_cache_control_headers_are_joined() -> None:
    headers = CIMultiDict([("Cache-Control", "no-transform"), ("Cache-Control", "max-age=60")])
    assert fresh_until(headers, MONDAY) == MONDAY + 60


def test_age_is_subtracted() -> None:
    assert fresh_for(Cache_Control="max-age=3600", Age="600") == 3000
    assert fresh_for(Cache_Control="max-age=3600", Age="4000") is None
    assert fresh_for(Cache_Control="max-age=3600", Age="old") == 3600


def test_expires_is_relative_to_the_date_header() -> None:
    assert fresh_for(Expires=date(3600)) == 3600
    assert fresh_for(Expires=date(9e6 + 3600), Date=date(9e6)) == 3600
    assert fresh_for(Expires=date(-10)) is None
    assert fresh_for(Expires=date(40 * DAY_S)) == DAY_S


@pytest.mark.parametrize("text", ["0", "-1", "never", "", "Thu, 99 Foo 2026 99:99:99 GMT"])
def test_invalid_expires_is_ignored(text: str) -> None:
    assert fresh_for(Expires=text) is None


def test_max_age_precedes_expires() -> None:
    assert fresh_for(Cache_Control="max-age=60", Expires=date(3600)) == 60
    assert fresh_for(Cache_Control="max-age=0", Expires=date(3600)) is None
    assert fresh_for(Cache_Control="no-cache", Expires=date(3600)) == 3600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120),
        (" 120 ", 120),
        (date(7200), 7200),
        ("Monday, 16-Nov-26 02:00:00 GMT", 7200),  # RFC 850
        ("Mon Nov 16 02:00:00 2026", 7200),  # asctime
        ("0", None),
        ("-5", None),
        (date(-60), None),
        ("later", None),
        ("", None),
        ("315360000", 31 * DAY_S),  # ten years
        ("9" * 400, 31 * DAY_S),
        (date(4000 * DAY_S), 31 * DAY_S),
    ],
)
def test_retry_after(text: str, seconds: float | None) -> None:
    assert retry_in(Retry_After=text) == seconds


def test_retry_after_date_is_relative_to_the_date_header() -> None:
    assert retry_in(Retry_After=date(-5000 + 600), Date=date(-5000)) == 600
