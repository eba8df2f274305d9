"""Commands `entries` and `feeds`."""

import time

import pytest

FIELDS = (
    "id feed feed_url feed_title identity url title author content summary published "
    "published_told updated first_seen changed delay_s tags enclosures comments_url source"
)


@pytest.fixture
def subscribed(local_tidings, blogs):
    """Subscribe to two blogs."""
    local_tidings("add", blogs.url(1))
    local_tidings("add", blogs.url(2))
    return local_tidings


def test_entries_json_has_all_stored_fields(subscribed):
    entry = subscribed.json("entries", "--limit", 1)[0]
    assert " ".join(entry) == FIELDS
    assert entry["source"] == "poll"
    assert entry["published"] == entry["published_told"] <= entry["first_seen"] <= time.time()
    assert entry["identity"].startswith("2:")
    assert entry["summary"].startswith("<p>")


def test_entries_filters(subscribed, blogs):
    everything = subscribed.json("entries", "--limit", 0)
    assert len(everything) == 40
    assert subscribed.json("entries", "--limit", 3) == everything[:3]
    of_one = subscribed.json("entries", "--feed", blogs.url(1), "--limit", 0)
    assert of_one == subscribed.json("entries", "--feed", "1", "--limit", 0)
    assert {entry["feed"] for entry in of_one} == {1}
    assert subscribed.json("entries", "--since", "2100-01-01") == []
    assert subscribed.json("entries", "--since", "1h", "--limit", 0) == everything
    wanted = [
        entry["id"]
        for entry in everything
        if "lantern" in entry["title"] + entry["content"] + entry["summary"]
    ]
    assert [
        entry["id"] for entry in subscribed.json("entries", "--search", "LANTERN", "--limit", 0)
    ] == wanted
    assert subscribed.json("entries", "--search", "zebra") == []


def test_tables(subscribed):
    feeds = subscribed("feeds").splitlines()
    assert feeds[0].split() == [
        "id",
        "title",
        "URL",
        "entries",
        "newest",
        "last",
        "poll",
        "next",
        "poll",
        "error",
    ]
    assert feeds[1].startswith("1   Birds and small kettles")
    entries = subscribed("entries", "--limit", 2).splitlines()
    assert entries[0].split() == ["id", "title", "feed", "published", "received"]
    assert len(entries) == 3


@pytest.mark.parametrize("when", ["yesterday", "5", "2026-13-01", ""])
def test_invalid_time_is_rejected(subscribed, when):
    assert "is not a time; write 2h or 3d (ago), 2026-11-16" in subscribed.expect_error(
        "entries", "--since", when
    )


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-16", 1794787200),
        ("2026-11-16T09:00", 1794819600),
        ("2026-11-16T09:00+01:00", 1794816000),
        ("1794787200", 1794787200),
    ],
)
def test_times_without_an_offset_are_utc(text, at):
    from tidings.cli.entries import Timestamp

    assert Timestamp().convert(text, None, None) == at
