"""What is known and why: `explain` and `status`."""

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


def test_explain_tells_posts_wishes_troubles_the_next_poll_and_the_last_ones_with_their_reasons(followed, blogs):
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
    assert "half of them within" in told
    assert max(map(len, told.splitlines())) <= 80


def test_status_gives_programs_everything(followed):
    told = followed.json("status")
    assert told["budget_per_day"] == 24
    assert told["status"]["day"]["polls"] == 3
    assert told["status"]["errors"] == {"connect": 1}


def test_timing_tells_the_week_by_day_draws_it_and_says_when_it_knows_too_little(followed, tmp_path):
    told = followed("timing")
    assert told.splitlines()[0].split() == ["asked", "304", "failed", "new", "half", "in", "90", "%", "in", "lost", "back"]
    assert len(told.splitlines()) == 8
    today = followed.json("timing", "--plot", tmp_path / "week.svg")["days"][-1]
    assert (today["asked"], today["failed"]) == (3, 1)
    assert "How late posts came" in (tmp_path / "week.svg").read_text()
    assert "too little history" in followed.refuses("timing", "--budgets")
