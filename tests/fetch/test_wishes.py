"""Hints of a document and of its headers become: not before, and never in these hours."""

import math

import pytest

from tests.fetch.origin import MONDAY
from tidings.document import NO_HINTS, Hints
from tidings.fetch.wishes import HOURS_A_WEEK, hour_of_week, wishes
from tidings.model import DAY_S, HOUR_S


def test_no_wish_no_bound() -> None:
    wish = wishes(NO_HINTS, MONDAY)
    assert (wish.earliest, wish.forbidden, wish.reason) == (-math.inf, None, "")


def test_ttl_is_a_lower_bound() -> None:
    wish = wishes(Hints(ttl_s=2 * HOUR_S), MONDAY)
    assert wish.earliest == MONDAY + 2 * HOUR_S
    assert wish.reason == "its ttl asks for 2 h between polls"


@pytest.mark.parametrize(("ttl_s", "bound_s"), [(30 * DAY_S, DAY_S), (0, None), (-60, None), (6e10, None)])
def test_ttl_is_believed_up_to_a_day_and_absurd_ones_are_ignored(ttl_s: float, bound_s: float | None) -> None:
    earliest = wishes(Hints(ttl_s=ttl_s), MONDAY).earliest
    assert earliest == (-math.inf if bound_s is None else MONDAY + bound_s)


def test_update_period_is_a_lower_bound() -> None:
    assert wishes(Hints(period_s=6 * HOUR_S), MONDAY).earliest == MONDAY + 6 * HOUR_S


def test_the_latest_wish_wins_and_gives_the_reason() -> None:
    hints = Hints(ttl_s=HOUR_S, period_s=2 * HOUR_S)
    fresh = wishes(hints, MONDAY, fresh_until=MONDAY + 3 * HOUR_S)
    told = wishes(hints, MONDAY, fresh_until=MONDAY + 3 * HOUR_S, retry_at=MONDAY + 9 * DAY_S)
    assert (fresh.earliest, fresh.reason) == (MONDAY + 3 * HOUR_S, "the server calls the document fresh for 3 h")
    assert (told.earliest, told.reason) == (MONDAY + 9 * DAY_S, "the server asked to be left alone for 9 d")


def test_wishes_of_the_past_are_over() -> None:
    assert wishes(NO_HINTS, MONDAY, fresh_until=MONDAY - 1, retry_at=MONDAY - 1).earliest == -math.inf


def test_skip_hours_and_days_are_hours_of_the_week_in_gmt() -> None:
    forbidden = wishes(Hints(skip_hours=frozenset({0, 23}), skip_days=frozenset({6})), MONDAY).forbidden
    assert forbidden is not None
    assert len(forbidden) == HOURS_A_WEEK
    assert [hour for hour in range(48) if forbidden[hour]] == [0, 23, 24, 47]
    assert all(forbidden[6 * 24 :])


def test_skipping_the_whole_week_cannot_be_meant() -> None:
    assert wishes(Hints(skip_days=frozenset(range(7))), MONDAY).forbidden is None


def test_the_week_begins_on_monday() -> None:
    assert hour_of_week(MONDAY) == 0
    assert hour_of_week(MONDAY - 1) == 167
    assert hour_of_week(MONDAY + DAY_S + 5.5 * HOUR_S) == 29
