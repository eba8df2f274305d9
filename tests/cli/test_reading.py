"""What the store holds, for people and for programs."""

import time

import pytest

FIELDS = (
    "id feed feed_url feed_title identity url title author content summary published published_told updated first_seen changed "
    "delay_s tags enclosures comments_url source"
)


@pytest.fixture
def read(home, blogs):
    """A home with two blogs in it."""
    home("add", blogs.url(1))
    home("add", blogs.url(2))
    return home


def test_entries_have_every_field_that_is_kept(read):
    entry = read.json("entries", "--limit", 1)[0]
    assert " ".join(entry) == FIELDS
    assert entry["source"] == "poll"
    assert entry["published"] == entry["published_told"] <= entry["first_seen"] <= time.time()
    assert entry["identity"].startswith("2:")
    assert entry["summary"].startswith("<p>")


def test_entries_are_limited_by_number_feed_time_and_words(read, blogs):
    everything = read.json("entries", "--limit", 0)
    assert len(everything) == 40
    assert read.json("entries", "--limit", 3) == everything[:3]
    of_one = read.json("entries", "--feed", blogs.url(1), "--limit", 0)
    assert of_one == read.json("entries", "--feed", "1", "--limit", 0)
    assert {entry["feed"] for entry in of_one} == {1}
    assert read.json("entries", "--since", "2100-01-01") == []
    assert read.json("entries", "--since", "1h", "--limit", 0) == everything
    wanted = [
        entry["id"]
        for entry in everything
        if "lantern" in entry["title"] + entry["content"] + entry["summary"]
    ]
    assert [
        entry["id"] for entry in read.json("entries", "--search", "LANTERN", "--limit", 0)
    ] == wanted
    assert read.json("entries", "--search", "zebra") == []


def test_tables_are_for_people(read):
    feeds = read("feeds").splitlines()
    assert feeds[0].split() == [
        "id",
        "title",
        "address",
        "entries",
        "newest",
        "asked",
        "next",
        "error",
    ]
    assert feeds[1].startswith("1   Birds and small kettles")
    entries = read("entries", "--limit", 2).splitlines()
    assert entries[0].split() == ["id", "title", "feed", "published", "arrived"]
    assert len(entries) == 3


@pytest.mark.parametrize("when", ["yesterday", "5", "2026-13-01", ""])
def test_what_is_no_time_is_refused(read, when):
    assert "is not a time; write 2h or 3d (ago), 2026-11-16" in read.refuses(
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
def test_times_are_utc_unless_they_say_otherwise(text, at):
    from tidings.cli.reading import Moment

    assert Moment().convert(text, None, None) == at
