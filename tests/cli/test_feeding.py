"""Feeds come in (`add`, `import`), are polled, and go out again (`export`)."""

import signal
import socket
import subprocess

import pytest

from tests import TEST_TIMEOUT_S
from tests.cli.conftest import TIDINGS


def entries_of(home, *arguments):
    return home.json("entries", "--limit", 0, *arguments)


def test_a_feed_is_added_by_its_own_address_with_one_request(home, blogs):
    blogs.asked.clear()
    added = home.json("add", blogs.url(1), "--folder", "News/Local", "--title", "Mine")
    assert (added["id"], added["new"], added["entries"]) == (1, True, 20)
    assert blogs.asked == ["/blog/1/atom.xml"]
    (feed,) = home.json("feeds")
    assert (feed["url"], feed["title"], feed["folder"], feed["entries"]) == (
        blogs.url(1),
        "Mine",
        "News/Local",
        20,
    )
    assert feed["reason"]
    assert "is followed already" in home("add", blogs.url(1))
    assert len(home.json("feeds")) == 1


def test_a_site_with_several_feeds_has_them_listed_and_one_is_chosen(home, blogs):
    complaint = home.run("add", blogs.site(1))
    assert complaint.exit_code == 2
    assert f"1  Birds and small kettles (rss)   {blogs.site(1)}/rss.xml" in complaint.stdout
    assert complaint.stderr == f"tidings: {blogs.site(1)} has 2 feeds; say which with --choose N\n"
    assert home.json("feeds") == []
    assert "there are only 2 feeds" in home.refuses("add", blogs.site(1), "--choose", 3)
    assert "feed 1, 20 entries" in home("add", blogs.site(1), "--choose", 2)
    assert [feed["url"] for feed in home.json("feeds")] == [f"{blogs.site(1)}/atom.xml"]
    again = home.run("add", blogs.site(1)).stdout.splitlines()
    assert [line.endswith("/atom.xml  followed already") for line in again] == [False, False, True]
    assert "is followed already" in home("add", blogs.site(1), "--choose", 2)


def test_a_password_in_an_address_is_not_printed(home, blogs):
    address = blogs.url(1).replace("://", "://ann:hush@")
    shown = address.replace("hush", "***")
    assert f"({shown}): feed 1, 20 entries" in home("add", address)
    for command in (("feeds",), ("explain", 1), ("add", address)):
        assert shown in home(*command)
        assert "hush" not in home(*command)
    assert "redirected" not in home("explain", 1)  # what was asked has no password in it
    assert "ann:***@" in home.refuses("add", "http://ann:hush@127.0.0.1:9/", code=1)
    assert home.json("feeds")[0]["url"] == address  # programs give it back to us
    assert f'xmlUrl="{address}"' in home("export")


def test_what_is_no_feed_says_so(home, blogs):
    assert "404" in home.refuses("add", f"{blogs.address}/nothing", code=1)


def test_what_is_no_address_is_a_mistake_of_who_typed_it(home):
    assert "only http and https addresses can be asked, not htp" in home.refuses(
        "add", "htp://example.org/feed"
    )


def test_private_addresses_are_refused_unless_allowed(tidings, blogs, tmp_path):
    complaint = tidings.refuses("--data-dir", tmp_path, "add", blogs.url(1), code=1)
    assert "fetch.allow_private" in complaint or "private" in complaint


def test_a_list_is_imported_once_polled_and_exported_again(home, blogs, tmp_path):
    listed = blogs.list(tmp_path / "feeds.opml")
    assert home("import", listed) == "4 new feeds, 0 known already, 0 bad rows\n"
    assert home("import", listed) == "0 new feeds, 4 known already, 0 bad rows\n"
    polled = home.json("poll", "--all")
    assert (polled["asked"], polled["new"], polled["failed"]) == (4, 80, 0)
    assert home.json("poll", "--all")["new"] == 0
    assert [poll["status"] for poll in home.json("explain", blogs.url(4))["polls"]] == [304, 200]
    entries = entries_of(home)
    assert len({(entry["feed"], entry["identity"]) for entry in entries}) == len(entries) == 80
    home("export", tmp_path / "again.opml")
    report = home.json("import", tmp_path / "again.opml", "--dry-run")
    assert (len(report["known"]), report["new"], report["problems"]) == (4, [], [])
    assert home("export") == (tmp_path / "again.opml").read_text()


def test_what_comes_later_is_found_by_the_next_poll_and_changes_nothing_else(home, blogs):
    home("add", blogs.url(1))
    before = {entry["identity"] for entry in entries_of(home)}
    blogs.move_on(2 * 1800)  # its gap is half an hour
    assert 1 <= home.json("poll", blogs.url(1))["new"] <= 3
    assert before < {entry["identity"] for entry in entries_of(home)}


def test_a_trial_says_what_would_be_done_and_leaves_no_trace(home, blogs, tmp_path):
    rows = f"{blogs.url(1)}\nnonsense\n# a comment\n{blogs.url(1)}\n"
    (tmp_path / "list.txt").write_text(rows)
    report = home.json("import", tmp_path / "list.txt", "--dry-run")
    assert [row["url"] for row in report["new"]] == [blogs.url(1)]
    assert [problem["line"] for problem in report["problems"]] == [2, 4]
    assert not (tmp_path / "data").exists()
    shown = home.run("import", tmp_path / "list.txt", "--dry-run")
    assert shown.stdout == "would be: 1 new feed, 0 known already, 2 bad rows\n"
    assert "line 2: nonsense is not a web address" in shown.stderr


def test_a_file_that_is_no_list_is_refused(home, tmp_path):
    (tmp_path / "page.html").write_text("<html><body>Hello")
    assert "this is not an OPML file" in home.refuses("import", tmp_path / "page.html", code=1)
    assert "does not exist" in home.refuses("import", tmp_path / "nothing.opml")


@pytest.mark.parametrize(
    "command", [("feeds",), ("entries",), ("poll",), ("status",), ("export",), ("backup", "b.db")]
)
def test_without_a_store_commands_say_how_to_begin(home, command):
    assert "begin with `tidings add URL`" in home.refuses(*command)


def test_ctrl_c_ends_a_poll_at_once_and_quietly(home, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        home.run("import", "-", input=f"http://127.0.0.1:{silent.getsockname()[1]}/feed\n")
        command = [
            TIDINGS,
            "--data-dir",
            tmp_path / "data",
            "--set",
            "fetch.allow_private=true",
            "poll",
        ]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()  # it asks, and would wait for half a minute
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=TEST_TIMEOUT_S) == ("", "")
            connection.close()
    assert process.returncode == 130


def test_an_unknown_feed_is_refused_by_its_name(home, blogs):
    home("add", blogs.url(1))
    for command in (("poll",), ("explain",), ("entries", "--feed")):
        assert "there is no feed http://nowhere.example/ here" in home.refuses(
            *command, "http://nowhere.example/"
        )
    assert "there is no feed 77 here" in home.refuses("poll", "77")
