"""Minimum interval of a feed: its description, and how users set it, on the page and by API."""

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
    """Return the page's text if the user has set ``own_s`` and the shortest of all is ``set_s``."""
    feed = Feed(
        1, "https://a.example/feed", 0.0, 1.0, None, "", own_s if set_s is None else set_s, state
    )
    own = Subscription(feed, "A", None, "", "normal", False, 0.0, 0, None, False, own_s)
    return min_interval_text(own, min_interval(feed, Limits()))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (POLLED, "15 min (the server supports 304 Not Modified)"),
        (replace(POLLED, not_modified=0.1), "60 min (the server always sends the full feed)"),
        (
            replace(POLLED, stated_s=2 * HOUR_S, stated_by=TTL),
            "2 h (requested by the feed with ttl)",
        ),
        (
            replace(POLLED, stated_s=HOUR_S, stated_by=UPDATE_PERIOD),
            "60 min (requested by the feed with sy:updatePeriod)",
        ),
        (
            replace(POLLED, stated_s=600, stated_by=FRESHNESS_LIFETIME),
            "10 min (requested by the server with Cache-Control or Expires)",
        ),
        (replace(POLLED, usual_gap_s=60.0), "5 min (the feed lists posts only for a short time)"),
        (
            replace(POLLED, errors=3, next_poll_at=2e9),
            "15 min (the server supports 304 Not Modified)",
        ),
        (FeedState(), "not known until the first check"),
    ],
)
def test_min_interval_text_names_the_reason(state, expected):
    assert text(state) == expected


def test_user_interval_applies_unless_publisher_states_longer():
    stated = replace(POLLED, stated_s=2 * HOUR_S, stated_by=TTL)
    assert text(POLLED, own_s=30 * MINUTE_S) == "30 min (set by you)"
    assert (
        text(POLLED, own_s=0, set_s=HOUR_S)
        == "60 min (set by another user; the shortest interval applies)"
    )
    assert (
        text(POLLED, own_s=DAY_S, set_s=HOUR_S)
        == "60 min (set by another user; the shortest interval applies)"
    )
    assert text(stated, own_s=30 * MINUTE_S) == (
        "2 h (requested by the feed with ttl, which overrides your interval of 30 min)"
    )
    assert text(stated, own_s=6 * HOUR_S) == "6 h (set by you)"


@pytest.fixture
def feed(ada, bob, blogs):
    """A feed with two subscribers and no user-set interval."""
    for client in (ada, bob):
        number = client.subscribe(blogs.url(1))
        client.post(f"/feed/{number}/about", min_interval="0")
    return number


def options(page):
    select = page.text.partition('<select name="min_interval">')[2].partition("</select>")[0]
    return [part.partition(">")[2].partition("<")[0] for part in select.split("<option")[1:]]


def test_feed_page_shows_and_sets_min_interval(ada, bob, feed):
    about = f"/feed/{feed}/about"
    page = ada.get(about)
    assert "Minimum interval: 15 min (the server supports 304 Not Modified)" in page.text
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
        "Minimum interval: 30 min (set by another user; the shortest interval applies)"
        in bob.get(about).text
    )
    ada.post(about, title="Mine")  # a form without the field keeps it
    assert '<option value="1800" selected>' in ada.get(about).text
    ada.post(about, min_interval="0")
    assert "Minimum interval: 2 h (set by another user" in ada.get(about).text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("60", "60 s is not allowed as a minimum interval; choose automatic, or 15 min to 7 d."),
        (
            "9999999",
            "116 d is not allowed as a minimum interval; choose automatic, or 15 min to 7 d.",
        ),
        ("soon", "&#39;soon&#39; is not a minimum interval; choose one from the list."),
        ("-900", "is not a minimum interval; choose one from the list"),
    ],
)
def test_invalid_interval_is_rejected(ada, feed, given, sentence):
    page = ada.post(f"/feed/{feed}/about", min_interval=given)
    assert (page.status, sentence in page.text) == (400, True)
    assert '<option value="0" selected>' in ada.get(f"/feed/{feed}/about").text


def test_api_shows_and_sets_min_interval(reader_server, ada, feed):
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
