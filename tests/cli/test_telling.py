"""What is known and why: `explain` and `status`."""

import re

import pytest


@pytest.fixture
def followed(home, blogs):
    """A blog that has been polled twice, and a host that is not there."""
    home("add", blogs.url(1))
    blogs.move_on(3600)
    home("poll", blogs.url(1))
    home.run("import", "-", input="http://127.0.0.1:9/nothing.xml")
    home("poll", "--due")
    return home


def test_explain_tells_posts_wishes_troubles_the_next_poll_and_the_last_ones_with_their_reasons(
    followed, blogs
):
    told = followed("explain", blogs.url(1))
    lines = told.splitlines()
    assert lines[0] == "Birds and small kettles"
    assert lines[1] == f"{blogs.url(1)} (feed 1, atom 1.0)"
    labels = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert labels[2:7] == ["next poll", "posts", "wishes", "troubles", "last polls"]
    assert "           why: " in told
    assert "its document holds 20 entries" in told
    assert told.count("200: ") == 2
    assert "               why: requested manually" in told
    assert max(map(len, lines)) <= 80


def test_explain_names_what_is_wrong(followed):
    told = followed("explain", 2)
    assert "troubles   1 failure in a row" in told
    assert "connect: " in told


def test_explain_gives_programs_everything(followed, blogs):
    told = followed.json("explain", blogs.url(1), "--polls", 1)
    assert told["feed"]["url"] == blogs.url(1)
    assert told["next_poll_at"] == told["feed"]["state"]["next_poll_at"]
    assert told["reason"]
    assert len(told["polls"]) == 1


def test_status_fits_the_terminal_and_names_budget_delays_and_errors(followed):
    told = followed("status")
    assert "2 followed, 1 failing, 0 retired" in told
    assert "budget     24 requests a day" in told
    assert "errors     1 feed: connect" in told
    assert "paused     no host" in told
    assert re.search(r"^median delay +– +– +–$", told, re.MULTILINE)
    assert "Delay: available after 3 days of checks and 50 posts (so far 0 days," in told
    assert max(map(len, told.splitlines())) <= 80


def test_status_gives_programs_everything(followed):
    told = followed.json("status")
    assert (told["budget_per_day"], told["usable_per_day"], told["feeds_at_min_interval"]) == (
        24,
        24,
        0,
    )
    assert told["evidence"]["posts"] < 50
    assert told["status"]["day"]["polls"] == 3
    assert told["status"]["errors"] == {"connect": 1}


@pytest.mark.parametrize("command", ["status", "timing"])
def test_a_budget_that_cannot_be_used_says_so(followed, command):
    flags = ("--set", "policy.budget=1000")
    note = r"\d+ of 1,000 requests a day can be used: 1 feed is at its minimum interval."
    assert re.search(note.replace(" ", r"\s+"), followed(*flags, command))
    told = followed.json(*flags, command)
    # One feed has shown no document yet: it counts with its share, 500. The other is polled at most every 15 to 18 min.
    assert 580 <= told["usable_per_day"] <= 596
    assert told["feeds_at_min_interval"] == 1


def test_explain_gives_programs_the_minimum_interval(followed, blogs):
    told = followed.json("explain", blogs.url(1))["min_interval"]
    assert (told["interval_s"], told["reason"]["code"]) == (900, "min_interval")


def test_timing_tells_the_week_by_day_draws_it_and_says_when_it_knows_too_little(
    followed, tmp_path
):
    told = followed("timing")
    heading = ["requests", "304", "failed", "new", "median", "90", "%", "missed", "recovered"]
    assert told.splitlines()[0].split() == heading
    assert [line.split()[2:] for line in told.splitlines()[1:7]] == [
        ["–"] * 8
    ] * 6  # days before the first poll
    assert told.splitlines()[7].split()[6:8] == ["–", "–"]
    assert "Delay: available after 3 days of checks and 50 posts" in told
    today = followed.json("timing", "--plot", tmp_path / "week.svg")["days"][-1]
    assert (today["asked"], today["failed"]) == (3, 1)
    assert "Delay by day" in (tmp_path / "week.svg").read_text()
    assert "available after 3 days of checks and 14 days of post history" in followed.refuses(
        "timing", "--budgets"
    )
