"""The minimum interval of a feed: what is in force and why, and how a subscriber sets it, on the page and by the API."""

import json

import pytest
from msgspec.structs import replace

from tests.web.client import basic
from tidings.aggregator.min_interval import min_interval
from tidings.model import DAY_S, HOUR_S, MINUTE_S
from tidings.policy.constraints import FRESHNESS_LIFETIME, TTL, UPDATE_PERIOD, Limits
from tidings.store.feed_models import Feed, FeedState
from tidings.store.user_models import Subscription
from tidings.web.feed_page import min_interval_text

POLLED = FeedState(window=10, shown=10, last_poll_at=1e9, not_modified=0.9, document_bytes=9000)


def text(state, *, own_s=0.0, set_s=None):
    """What the page says, where the user has set ``own_s``, and ``set_s`` is the shortest of all subscribers."""
    feed = Feed(
        1, "https://a.example/feed", 0.0, 1.0, None, "", own_s if set_s is None else set_s, state
    )
    own = Subscription(feed, "A", None, "", "normal", False, 0.0, 0, None, False, own_s)
    return min_interval_text(own, min_interval(feed, Limits()))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (POLLED, "15 min (answers unchanged with 304)"),
        (replace(POLLED, not_modified=0.1), "60 min (always sends the full document)"),
        (replace(POLLED, stated_s=2 * HOUR_S, stated_by=TTL), "2 h (its ttl)"),
        (
            replace(POLLED, stated_s=HOUR_S, stated_by=UPDATE_PERIOD),
            "60 min (its update period, sy:updatePeriod)",
        ),
        (
            replace(POLLED, stated_s=600, stated_by=FRESHNESS_LIFETIME),
            "10 min (Cache-Control or Expires of its server)",
        ),
        (replace(POLLED, usual_gap_s=60.0), "5 min (its document is replaced quickly)"),
        (replace(POLLED, errors=3, next_poll_at=2e9), "15 min (answers unchanged with 304)"),
        (FeedState(), "not known yet: the feed has not been checked"),
    ],
)
def test_what_sets_the_minimum_interval_is_said_in_words(state, said):
    assert text(state) == said


def test_what_a_subscriber_sets_holds_unless_the_publisher_states_more():
    stated = replace(POLLED, stated_s=2 * HOUR_S, stated_by=TTL)
    assert text(POLLED, own_s=30 * MINUTE_S) == "30 min (set by you)"
    assert (
        text(POLLED, own_s=0, set_s=HOUR_S)
        == "60 min (set by another subscriber; the shortest counts)"
    )
    assert (
        text(POLLED, own_s=DAY_S, set_s=HOUR_S)
        == "60 min (set by another subscriber; the shortest counts)"
    )
    assert text(stated, own_s=30 * MINUTE_S) == (
        "2 h (its ttl; the publisher's statement wins over the shorter 30 min set by you)"
    )
    assert text(stated, own_s=6 * HOUR_S) == "6 h (set by you)"


@pytest.fixture
def feed(ada, bob, blogs):
    """Both are subscribed, and neither has set an interval."""
    for client in (ada, bob):
        number = client.subscribe(blogs.url(1))
        client.post(f"/feed/{number}/about", min_interval="0")
    return number


def options(page):
    select = page.text.partition('<select name="min_interval">')[2].partition("</select>")[0]
    return [part.partition(">")[2].partition("<")[0] for part in select.split("<option")[1:]]


def test_the_feed_page_shows_and_sets_the_minimum_interval(ada, bob, feed):
    about = f"/feed/{feed}/about"
    page = ada.get(about)
    assert "Minimum interval: 15 min (answers unchanged with 304)" in page.text
    assert options(page) == [
        "Automatic (15 min)",
        "15 min",
        "30 min",
        "1 h",
        "2 h",
        "6 h",
        "12 h",
        "1 day",
        "1 week",
    ]
    assert '<option value="0" selected>' in page.text
    assert ada.post(about, min_interval="1800").redirect_path == about
    page = ada.get(about)
    assert "Minimum interval: 30 min (set by you)" in page.text
    assert '<option value="1800" selected>30 min' in page.text
    assert options(page)[0] == "Automatic (15 min)"
    bob.post(about, min_interval="7200")
    assert (
        "Minimum interval: 30 min (set by another subscriber; the shortest counts)"
        in bob.get(about).text
    )
    ada.post(about, title="Mine")  # a form without the field changes nothing of it
    assert '<option value="1800" selected>' in ada.get(about).text
    ada.post(about, min_interval="0")
    assert "Minimum interval: 2 h (set by another subscriber" in ada.get(about).text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("60", "The minimum interval must be between 15 min and 7 d, or automatic, not 60 s."),
        (
            "9999999",
            "The minimum interval must be between 15 min and 7 d, or automatic, not 116 d.",
        ),
        ("soon", "Choose a minimum interval from the list, not &#39;soon&#39;."),
        ("-900", "Choose a minimum interval from the list"),
    ],
)
def test_another_interval_is_refused(ada, feed, given, sentence):
    page = ada.post(f"/feed/{feed}/about", min_interval=given)
    assert (page.status, sentence in page.text) == (400, True)
    assert '<option value="0" selected>' in ada.get(f"/feed/{feed}/about").text


def test_the_api_shows_and_sets_the_minimum_interval(reader_server, ada, feed):
    def put(seconds):
        body = json.dumps({"min_interval_s": seconds})
        return ada.request(
            "PUT", f"/v1/feeds/{feed}", body, **basic("ada"), Content_Type="application/json"
        )

    changed = put(7200)
    assert (changed.status, changed.json["min_interval_s"]) == (201, 7200)
    assert ada.get(f"/v1/feeds/{feed}", **basic("ada")).json["min_interval_s"] == 7200
    explained = ada.get(f"/v1/feeds/{feed}/explain", **basic("ada")).json
    assert (explained["min_interval_s"], explained["min_interval_code"]) == (
        7200,
        "min_interval_override",
    )
    for wrong in (60, -1, 8 * DAY_S, "often"):
        assert put(wrong).status == 400
    assert put(0).json["min_interval_s"] == 0
