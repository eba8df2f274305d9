"""When an entry was published: every way in which feeds lie about it has a rule."""

import pytest

from tests.worlds import MONDAY
from tidings.aggregator.dating import date_new, dates_alike
from tidings.document import Entry
from tidings.model import DAY_S, HOUR_S

NOW = MONDAY + 12 * HOUR_S
BEFORE = NOW - 2 * HOUR_S


def entry(published=None, **fields):
    return Entry(identity=str(fields), digest=b"", published=published, **fields)


def date(*entries, previous=BEFORE, alike=False):
    dated = date_new(entries, previous, NOW, alike=alike)
    return dated[0] if len(dated) == 1 else dated


def test_a_date_between_the_polls_is_believed():
    dated = date(entry(NOW - 600))
    assert (dated.published_at, dated.delay_s, dated.counts_at) == (NOW - 600, 600, NOW - 600)


def test_the_update_counts_where_no_publication_is_told():
    assert date(entry(updated=NOW - 60)).published_at == NOW - 60


@pytest.mark.parametrize("zero", [0.0, -3600.0, 7200.0, -62_135_596_800.0])
def test_the_beginning_of_a_clock_is_no_date(zero):
    assert date(entry(zero)).published_at == NOW
    assert date(entry(zero, updated=NOW - 60)).published_at == NOW - 60
    assert date(entry(-DAY_S)).published_at == -DAY_S  # somebody may put a diary of 1969 online


def test_missing_dates_are_spread_over_the_time_since_the_last_poll_newest_first():
    dated = date(entry(), entry(), entry(), entry())
    assert [d.published_at for d in dated] == [NOW, NOW - 1800, NOW - 3600, NOW - 5400]
    assert all(BEFORE < d.counts_at <= NOW for d in dated)
    assert {d.delay_s for d in dated} == {None}


def test_missing_dates_of_a_first_document_say_nothing_but_their_order():
    first, second = date(entry(), entry(), previous=None)
    assert first.published_at > second.published_at > NOW - 10
    assert (first.counts_at, first.delay_s) == (None, None)


def test_a_first_document_is_history_without_delay():
    dated = date(entry(NOW - DAY_S), previous=None)
    assert (dated.published_at, dated.delay_s, dated.counts_at) == (NOW - DAY_S, None, NOW - DAY_S)


@pytest.mark.parametrize(("ahead_s", "delay"), [(200, 0.0), (7200, None), (400 * DAY_S, None)])
def test_a_date_in_the_future_is_the_time_of_arrival(ahead_s, delay):
    dated = date(entry(NOW + ahead_s))
    assert (dated.published_at, dated.counts_at, dated.delay_s) == (NOW, NOW, delay)


def test_a_day_is_some_time_of_that_day_after_the_last_poll():
    today = date(entry(MONDAY, date_only=True))
    assert BEFORE < today.published_at < NOW
    assert today.delay_s is None


def test_a_day_is_never_later_than_seen_and_never_another_day():
    assert MONDAY < date(entry(MONDAY, date_only=True), previous=None).published_at < NOW
    yesterday = date(entry(MONDAY - DAY_S, date_only=True))
    assert MONDAY - DAY_S < yesterday.published_at < MONDAY
    over_night = date(entry(MONDAY - DAY_S, date_only=True), previous=MONDAY - HOUR_S)
    assert MONDAY - HOUR_S < over_night.published_at < MONDAY


def test_one_date_for_all_entries_is_the_documents_and_counts_as_none():
    made = [entry(NOW - 5, url=str(i)) for i in range(4)]
    assert dates_alike(made)
    assert not dates_alike([*made, entry(NOW - 6)])
    assert not dates_alike(made[:2])
    assert not dates_alike([entry(MONDAY, date_only=True, url=str(i)) for i in range(4)])
    spread = date(*made, alike=True)
    assert len({d.published_at for d in spread}) == 4
    assert {d.delay_s for d in spread} == {None}


def test_an_old_date_that_was_not_there_before_is_shown_and_counts_as_arrived_now():
    late = date(entry(BEFORE - 3 * DAY_S))
    assert late.published_at == BEFORE - 3 * DAY_S
    assert BEFORE < late.counts_at <= NOW
    assert late.delay_s is None


def test_a_little_late_is_only_late():
    dated = date(entry(BEFORE - HOUR_S))
    assert (dated.published_at, dated.counts_at, dated.delay_s) == (BEFORE - HOUR_S, BEFORE - HOUR_S, 3 * HOUR_S)
