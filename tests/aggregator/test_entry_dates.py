"""Entry dates: rules for missing, wrong and implausible dates."""

import pytest

from tests.trace_helpers import MONDAY
from tidings.aggregator.entry_dates import date_new_entries, has_uniform_dates
from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S

NOW = MONDAY + 12 * HOUR_S
BEFORE = NOW - 2 * HOUR_S


def entry(published=None, **fields):
    return Entry(identity=str(fields), digest=b"", published=published, **fields)


def date(*entries, previous_poll_at=BEFORE, uniform=False):
    entry_dates = date_new_entries(entries, previous_poll_at, NOW, uniform=uniform)
    return entry_dates[0] if len(entry_dates) == 1 else entry_dates


def test_date_between_polls_is_accepted():
    entry_dates = date(entry(NOW - 600))
    assert (entry_dates.published_at, entry_dates.delay_s, entry_dates.appeared_at) == (
        NOW - 600,
        600,
        NOW - 600,
    )


def test_updated_date_is_used_without_published_date():
    assert date(entry(updated=NOW - 60)).published_at == NOW - 60


@pytest.mark.parametrize("zero", [0.0, -3600.0, 7200.0, -62_135_596_800.0])
def test_epoch_is_not_a_date(zero):
    assert date(entry(zero)).published_at == NOW
    assert date(entry(zero, updated=NOW - 60)).published_at == NOW - 60
    assert date(entry(-DAY_S)).published_at == -DAY_S  # a diary of 1969 may be published


def test_undated_entries_are_spread_since_last_poll():
    entry_dates = date(entry(), entry(), entry(), entry())
    assert [d.published_at for d in entry_dates] == [NOW, NOW - 1800, NOW - 3600, NOW - 5400]
    assert all(BEFORE < d.appeared_at <= NOW for d in entry_dates)
    assert {d.delay_s for d in entry_dates} == {None}


def test_undated_entries_of_first_document_keep_order():
    first, second = date(entry(), entry(), previous_poll_at=None)
    assert first.published_at > second.published_at > NOW - 10
    assert (first.appeared_at, first.delay_s) == (None, None)


def test_first_document_has_no_delays():
    entry_dates = date(entry(NOW - DAY_S), previous_poll_at=None)
    assert (entry_dates.published_at, entry_dates.delay_s, entry_dates.appeared_at) == (
        NOW - DAY_S,
        None,
        NOW - DAY_S,
    )


@pytest.mark.parametrize(("ahead_s", "delay"), [(200, 0.0), (7200, None), (400 * DAY_S, None)])
def test_future_date_becomes_arrival_time(ahead_s, delay):
    entry_dates = date(entry(NOW + ahead_s))
    assert (entry_dates.published_at, entry_dates.appeared_at, entry_dates.delay_s) == (
        NOW,
        NOW,
        delay,
    )


def test_date_without_time_is_after_last_poll():
    today = date(entry(MONDAY, date_only=True))
    assert BEFORE < today.published_at < NOW
    assert today.delay_s is None


def test_date_without_time_stays_on_its_day():
    assert MONDAY < date(entry(MONDAY, date_only=True), previous_poll_at=None).published_at < NOW
    yesterday = date(entry(MONDAY - DAY_S, date_only=True))
    assert MONDAY - DAY_S < yesterday.published_at < MONDAY
    over_night = date(entry(MONDAY - DAY_S, date_only=True), previous_poll_at=MONDAY - HOUR_S)
    assert MONDAY - HOUR_S < over_night.published_at < MONDAY


def test_identical_dates_of_all_entries_are_ignored():
    made = [entry(NOW - 5, url=str(i)) for i in range(4)]
    assert has_uniform_dates(made)
    assert not has_uniform_dates([*made, entry(NOW - 6)])
    assert not has_uniform_dates(made[:2])
    assert not has_uniform_dates([entry(MONDAY, date_only=True, url=str(i)) for i in range(4)])
    spread = date(*made, uniform=True)
    assert len({d.published_at for d in spread}) == 4
    assert {d.delay_s for d in spread} == {None}


def test_old_date_is_shown_but_appears_now():
    late = date(entry(BEFORE - 3 * DAY_S))
    assert late.published_at == BEFORE - 3 * DAY_S
    assert BEFORE < late.appeared_at <= NOW
    assert late.delay_s is None


def test_slightly_late_entry_keeps_its_date():
    entry_dates = date(entry(BEFORE - HOUR_S))
    assert (entry_dates.published_at, entry_dates.appeared_at, entry_dates.delay_s) == (
        BEFORE - HOUR_S,
        BEFORE - HOUR_S,
        3 * HOUR_S,
    )
