"""Commands `add`, `import`, `poll` and `export`."""

import signal
import socket
import subprocess

import pytest

from tests import TEST_TIMEOUT_S
from tests.cli.conftest import TIDINGS


def list_entries(local_tidings, *arguments):
    return local_tidings.json("entries", "--limit", 0, *arguments)


def test_add_by_feed_url_sends_one_request(local_tidings, blogs):
    blogs.requested_paths.clear()
    added = local_tidings.json("add", blogs.url(1), "--folder", "News/Local", "--title", "Mine")
    assert (added["id"], added["new"], added["entries"]) == (1, True, 20)
    assert blogs.requested_paths == ["/blog/1/atom.xml"]
    (feed,) = local_tidings.json("feeds")
    assert (feed["url"], feed["title"], feed["folder"], feed["entries"]) == (
        blogs.url(1),
        "Mine",
        "News/Local",
        20,
    )
    assert feed["reason"]
    assert "already subscribed to" in local_tidings("add", blogs.url(1))
    assert len(local_tidings.json("feeds")) == 1


def test_add_lists_the_feeds_of_a_site_and_takes_a_choice(local_tidings, blogs):
    result = local_tidings.run("add", blogs.site(1))
    assert result.exit_code == 2
    assert f"1  Birds and small kettles (rss)   {blogs.site(1)}/rss.xml" in result.stdout
    assert result.stderr == f"tidings: {blogs.site(1)} has 2 feeds; choose one with --choose N\n"
    assert local_tidings.json("feeds") == []
    assert "there are only 2 feeds" in local_tidings.expect_error(
        "add", blogs.site(1), "--choose", 3
    )
    assert "feed 1, 20 entries" in local_tidings("add", blogs.site(1), "--choose", 2)
    assert [feed["url"] for feed in local_tidings.json("feeds")] == [f"{blogs.site(1)}/atom.xml"]
    again = local_tidings.run("add", blogs.site(1)).stdout.splitlines()
    assert [line.endswith("/atom.xml  already subscribed") for line in again] == [
        False,
        False,
        True,
    ]
    assert "already subscribed to" in local_tidings("add", blogs.site(1), "--choose", 2)


def test_password_of_a_url_is_not_printed(local_tidings, blogs):
    address = blogs.url(1).replace("://", "://ann:hush@")
    shown = address.replace("hush", "***")
    assert f"({shown}): feed 1, 20 entries" in local_tidings("add", address)
    for command in (("feeds",), ("explain", 1), ("add", address)):
        assert shown in local_tidings(*command)
        assert "hush" not in local_tidings(*command)
    assert "redirected" not in local_tidings("explain", 1)  # the requested URL has no password
    assert "ann:***@" in local_tidings.expect_error("add", "http://ann:hush@127.0.0.1:9/", code=1)
    assert (
        local_tidings.json("feeds")[0]["url"] == address
    )  # JSON and OPML keep it, for import elsewhere
    assert f'xmlUrl="{address}"' in local_tidings("export")


def test_add_reports_a_missing_feed(local_tidings, blogs):
    assert "404" in local_tidings.expect_error("add", f"{blogs.address}/nothing", code=1)


def test_add_rejects_an_unsupported_scheme(local_tidings):
    assert "the address must start with http:// or https://" in local_tidings.expect_error(
        "add", "htp://example.org/feed"
    )


def test_private_addresses_are_rejected_by_default(tidings, blogs, tmp_path):
    message = tidings.expect_error("--data-dir", tmp_path, "add", blogs.url(1), code=1)
    assert "fetch.allow_private" in message or "private" in message


def test_import_poll_and_export(local_tidings, blogs, tmp_path):
    listed = blogs.write_opml(tmp_path / "feeds.opml")
    assert local_tidings("import", listed) == "4 new feeds, 0 already subscribed, 0 lines skipped\n"
    assert local_tidings("import", listed) == "0 new feeds, 4 already subscribed, 0 lines skipped\n"
    polled = local_tidings.json("poll", "--all")
    assert (polled["asked"], polled["new"], polled["failed"]) == (4, 80, 0)
    assert local_tidings.json("poll", "--all")["new"] == 0
    assert [poll["status"] for poll in local_tidings.json("explain", blogs.url(4))["polls"]] == [
        304,
        200,
    ]
    entries = list_entries(local_tidings)
    assert len({(entry["feed"], entry["identity"]) for entry in entries}) == len(entries) == 80
    local_tidings("export", tmp_path / "again.opml")
    report = local_tidings.json("import", tmp_path / "again.opml", "--dry-run")
    assert (len(report["known"]), report["new"], report["problems"]) == (4, [], [])
    assert local_tidings("export") == (tmp_path / "again.opml").read_text()


def test_next_poll_adds_new_entries_only(local_tidings, blogs):
    local_tidings("add", blogs.url(1))
    before = {entry["identity"] for entry in list_entries(local_tidings)}
    blogs.advance(2 * 1800)  # the blog posts every half hour
    assert 1 <= local_tidings.json("poll", blogs.url(1))["new"] <= 3
    assert before < {entry["identity"] for entry in list_entries(local_tidings)}


def test_dry_run_reports_and_creates_no_files(local_tidings, blogs, tmp_path):
    rows = f"{blogs.url(1)}\nnonsense\n# a comment\n{blogs.url(1)}\n"
    (tmp_path / "list.txt").write_text(rows)
    report = local_tidings.json("import", tmp_path / "list.txt", "--dry-run")
    assert [row["url"] for row in report["new"]] == [blogs.url(1)]
    assert [problem["line"] for problem in report["problems"]] == [2, 4]
    assert not (tmp_path / "data").exists()
    shown = local_tidings.run("import", tmp_path / "list.txt", "--dry-run")
    assert shown.stdout == "dry run: 1 new feed, 0 already subscribed, 2 lines skipped\n"
    assert "line 2: nonsense is not a web address" in shown.stderr


def test_import_rejects_other_files(local_tidings, tmp_path):
    (tmp_path / "page.html").write_text("<html><body>Hello")
    assert "not an OPML file" in local_tidings.expect_error(
        "import", tmp_path / "page.html", code=1
    )
    assert "does not exist" in local_tidings.expect_error("import", tmp_path / "nothing.opml")


@pytest.mark.parametrize(
    "command", [("feeds",), ("entries",), ("poll",), ("status",), ("export",), ("backup", "b.db")]
)
def test_commands_without_a_database_report_how_to_start(local_tidings, command):
    assert "start with `tidings add URL`" in local_tidings.expect_error(*command)


def test_ctrl_c_stops_a_poll_without_output(local_tidings, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        local_tidings.run("import", "-", input=f"http://127.0.0.1:{silent.getsockname()[1]}/feed\n")
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
            connection, _ = silent.accept()  # the request would time out after half a minute
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=TEST_TIMEOUT_S) == ("", "")
            connection.close()
    assert process.returncode == 130


def test_unknown_feed_is_reported(local_tidings, blogs):
    local_tidings("add", blogs.url(1))
    for command in (("poll",), ("explain",), ("entries", "--feed")):
        assert "there is no feed http://nowhere.example/;" in local_tidings.expect_error(
            *command, "http://nowhere.example/"
        )
    assert "there is no feed 77;" in local_tidings.expect_error("poll", "77")
