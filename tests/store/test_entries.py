"""Listing and searching entries: filters, pages, search syntax; status of the store."""

import random

import pytest

from tests.store.conftest import entry
from tests.trace_helpers import MONDAY
from tidings.store.search import parse_query


@pytest.fixture
def filled_store(store):
    a, b = store.subscribe("https://a.example/"), store.subscribe("https://b.example/")
    store.record_poll(
        a,
        new=[
            entry(1, title="Apples", text="Green apples and a café"),
            entry(2, title="Pears", text="Yellow pears"),
        ],
    )
    store.record_poll(b, new=[entry(3, title="Both", text="Apples, pears; und Äpfel")])
    return store


def test_entries_of_one_feed(filled_store):
    assert filled_store.titles(feed_id=1) == ["Pears", "Apples"]


def test_since_and_until_are_times_of_arrival(filled_store):
    assert filled_store.titles(since=MONDAY + 1) == ["Both"]
    assert filled_store.titles(until=MONDAY + 1) == ["Pears", "Apples"]


def test_pages_do_not_overlap_when_entries_arrive_in_between(filled_store):
    first = filled_store.entries(limit=2)
    filled_store.record_poll(1, new=[entry(4)])
    second = filled_store.entries(limit=2, before=first[-1].id)
    assert [e.title for e in first + second] == ["Both", "Pears", "Apples"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("apples", ["Both", "Apples"]),
        ("apples pears", ["Both"]),
        ("APPLES -pears", ["Apples"]),
        ("-apples", ["Pears"]),
        ('"apples pears"', ["Both"]),
        ('"pears apples"', []),
        ('-"apples pears" apples', ["Apples"]),
        ("gre*", ["Apples"]),
        ("gre", []),
        ("cafe", ["Apples"]),
        ("apfel", ["Both"]),
        ("title:apples", []),
        ("apples OR yellow", []),
        ('"yellow', ["Pears"]),
        ("!?", []),
        ("", ["Both", "Pears", "Apples"]),
    ],
)
def test_search_query_syntax(filled_store, query, found):
    assert filled_store.titles(search=query) == found


def test_search_combines_with_other_filters(filled_store):
    assert filled_store.titles(search="apples", feed_id=2) == ["Both"]
    assert filled_store.titles(search="apples", limit=1) == ["Both"]
    assert filled_store.titles(search="apples", before=3) == ["Apples"]


def test_random_queries_raise_no_error(filled_store):
    rng = random.Random(5)
    pieces = [
        '"',
        "'",
        "*",
        "-",
        "^",
        "(",
        ")",
        ":",
        "+",
        "{",
        "}",
        "NEAR",
        "AND",
        "OR",
        "NOT",
        " ",
        "\0",
        "\udc80",
        "a",
        "é",
        "%",
        ";",
    ]
    for _ in range(300):
        filled_store.entries(search="".join(rng.choices(pieces, k=rng.randint(1, 12))), limit=1)
    filled_store.entries(search="word " * 5000, limit=1)


def test_query_of_punctuation_is_empty():
    assert parse_query('-"" * ""').is_empty


def test_posting_times_are_arrays_by_feed_and_time(filled_store):
    filled_store.record_poll(1, new=[entry(0)])
    times = filled_store.posting_times(since=MONDAY)
    assert times["feed_id"].tolist() == [1, 1, 1, 2]
    assert ((times["at"] - MONDAY) / 3600).tolist() == [0, 1, 2, 3]
    assert filled_store.posting_times(since=MONDAY + 3600, feed_ids=[1])["at"].tolist() == [
        MONDAY + 3600,
        MONDAY + 7200,
    ]


def test_status_of_an_empty_store(store):
    status = store.status()
    assert (status.feeds, status.due, status.next_due_at, status.day.delay_p50_s) == (
        0,
        0,
        None,
        None,
    )


def test_status_counts_recent_polls_and_entries(store):
    a, b = store.subscribe("https://a.example/"), store.subscribe("https://b.example/")
    store.record_poll(a, new=[entry(n, delay_s=float(n)) for n in range(1, 11)], bytes=1000)
    store.clock.forward(days=2)
    store.record_poll(a, new=[entry(11, delay_s=100.0), entry(12)], bytes=10)
    store.record_poll(b, state={"errors": 3, "error_kind": "timeout"}, status=0, next_in_s=-1)
    status = store.status()
    assert (status.feeds, status.failing, status.due, status.entries, status.errors) == (
        2,
        1,
        1,
        12,
        {"timeout": 1},
    )
    assert (status.day.polls, status.day.bytes, status.day.new, status.day.delay_p50_s) == (
        2,
        10,
        2,
        100.0,
    )
    assert (
        status.week.polls,
        status.week.new,
        status.week.delay_p50_s,
        status.week.delay_p90_s,
    ) == (3, 12, 6.0, 10.0)
