"""Commands `explain`, `status` and `timing`."""

import re

import pytest


@pytest.fixture
def polled_feeds(local_tidings, blogs):
    """Subscribe to a blog that is polled twice, and to a host that cannot be reached."""
    local_tidings("add", blogs.url(1))
    blogs.advance(3600)
    local_tidings("poll", blogs.url(1))
    local_tidings.run("import", "-", input="http://127.0.0.1:9/nothing.xml")
    local_tidings("poll", "--due")
    return local_tidings


def test_explain_shows_the_schedule_and_recent_polls(polled_feeds, blogs):
    output = polled_feeds("explain", blogs.url(1))
    lines = output.splitlines()
    assert lines[0] == "Birds and small kettles"
    assert lines[1] == f"{blogs.url(1)} (feed 1, atom 1.0)"
    labels = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert labels[2:7] == ["next poll", "posts", "limits", "problems", "recent polls"]
    assert "           reason: " in output
    assert "the feed lists its latest 20 posts" in output
    assert output.count("200: ") == 2
    assert "               reason: a user requested this check" in output
    assert max(map(len, lines)) <= 80


def test_explain_shows_errors(polled_feeds):
    output = polled_feeds("explain", 2)
    assert "problems   the last check failed" in output
    assert "connect: " in output


def test_explain_json(polled_feeds, blogs):
    output = polled_feeds.json("explain", blogs.url(1), "--polls", 1)
    assert output["feed"]["url"] == blogs.url(1)
    assert output["next_poll_at"] == output["feed"]["state"]["next_poll_at"]
    assert output["reason"]
    assert len(output["polls"]) == 1


def test_status_shows_budget_delays_and_errors(polled_feeds):
    output = polled_feeds("status")
    assert "2 subscribed, 1 failing, 0 no longer polled" in output
    assert "budget     24 requests a day" in output
    assert "errors     1 feed: connect" in output
    assert "paused     no host" in output
    assert re.search(r"^median delay +– +– +–$", output, re.MULTILINE)
    assert "Delays are shown after 3 days of checks and 50 posts (so far: 0 days and" in output
    assert max(map(len, output.splitlines())) <= 80


def test_status_json(polled_feeds):
    output = polled_feeds.json("status")
    assert (
        output["budget_per_day"],
        output["usable_per_day"],
        output["feeds_at_min_interval"],
    ) == (
        24,
        24,
        0,
    )
    assert output["evidence"]["posts"] < 50
    assert output["status"]["day"]["polls"] == 3
    assert output["status"]["errors"] == {"connect": 1}


@pytest.mark.parametrize("command", ["status", "timing"])
def test_unusable_budget_is_reported(polled_feeds, command):
    flags = ("--set", "policy.budget=1000")
    note = (
        r"Only \d+ of 1,000 requests a day can be used. "
        "1 feed is already checked as often as allowed."
    )
    assert re.search(note.replace(" ", r"\s+"), polled_feeds(*flags, command))
    output = polled_feeds.json(*flags, command)
    # One feed was never fetched and counts with its share, 500. The other is polled at most every
    # 15 to 18 min.
    assert 580 <= output["usable_per_day"] <= 596
    assert output["feeds_at_min_interval"] == 1


def test_explain_json_has_the_minimum_interval(polled_feeds, blogs):
    output = polled_feeds.json("explain", blogs.url(1))["min_interval"]
    assert (output["interval_s"], output["reason"]["code"]) == (900, "min_interval")


def test_timing_shows_and_plots_the_week_and_reports_missing_history(polled_feeds, tmp_path):
    output = polled_feeds("timing")
    heading = "requests unchanged failed new posts median 90 % of posts missed recovered"
    assert " ".join(output.splitlines()[0].split()) == heading
    assert [line.split()[2:] for line in output.splitlines()[1:7]] == [
        ["–"] * 8
    ] * 6  # days before the first poll
    assert output.splitlines()[7].split()[6:8] == ["–", "–"]
    assert "Delays are shown after 3 days of checks and 50 posts" in output
    today = polled_feeds.json("timing", "--plot", tmp_path / "week.svg")["days"][-1]
    assert (today["asked"], today["failed"]) == (3, 1)
    assert "Delay by day" in (tmp_path / "week.svg").read_text()
    assert "shown after 3 days of checks and 14 days of post history" in polled_feeds.expect_error(
        "timing", "--budgets"
    )
