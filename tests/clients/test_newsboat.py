"""newsboat from Debian in a terminal, with the Google Reader (`feedhq`) and Miniflux APIs."""

import shutil
import sqlite3
import subprocess

import pytest

from tests import TEST_TIMEOUT_S
from tests.clients.conftest import entry_states, require_programs, wait_until
from tests.clients.servers import PASSWORD
from tests.clients.terminal import Terminal

CONFIG = """
urls-source "{source}"
{source}-url "{address}"
{source}-login "{name}"
{source}-password "{password}"
show-read-feeds yes
confirm-exit no
"""
STAR = """
feedhq-show-special-feeds no
feedhq-flag-star "s"
"""


@pytest.fixture(params=["feedhq", "miniflux"])
def source(request):
    require_programs("newsboat")
    return request.param


@pytest.fixture
def newsboat(source, service, app, tmp_path):
    """Return the command with its files in a temporary folder."""
    config = CONFIG.format(source=source, address=service.address, name=app.name, password=PASSWORD)
    (tmp_path / "config").write_text(config + (STAR if source == "feedhq" else ""))
    (tmp_path / "urls").touch()
    return [
        shutil.which("newsboat"),
        "-C",
        tmp_path / "config",
        "-c",
        tmp_path / "cache.db",
        "-u",
        tmp_path / "urls",
    ]


def reload(newsboat, tmp_path):
    """Reload the feeds; return whether each title is unread in newsboat."""
    subprocess.run(
        [*newsboat, "-x", "reload"],
        env={"HOME": str(tmp_path)},
        check=True,
        timeout=TEST_TIMEOUT_S,
        capture_output=True,
    )
    with sqlite3.connect(tmp_path / "cache.db") as cache:
        return dict(cache.execute("SELECT title, unread FROM rss_item"))


def test_newsboat_reads_and_writes_state(source, newsboat, app, tmp_path):
    entry = app.rest("GET", "/v1/entries?search=2.0.1").json["entries"][0]
    app.rest("PUT", "/v1/entries", {"entry_ids": [entry["id"]], "status": "read"})
    found = reload(newsboat, tmp_path)
    assert len(found) == 8
    assert [title for title, unread in found.items() if not unread] == [entry["title"]]
    with Terminal(newsboat, {"HOME": str(tmp_path)}) as terminal:
        terminal.wait_for("Alpha")
        terminal.send_keys("\r")  # opens the blog
        terminal.wait_for("Alpha 2.0.4")
        terminal.send_keys("\r")  # opens its newest post, which is the first
        terminal.wait_for("Text 4 of alpha")
        terminal.send_keys("q")  # closes it: now it is read
        wait_until(lambda: "Alpha 2.0.4" in entry_states(app)[0], "the read state")
        if source == "feedhq":  # with Miniflux, this version of newsboat does not sync flags
            terminal.send_keys("\x05")
            terminal.wait_for("Flags:")
            terminal.send_keys("s\r")
            wait_until(lambda: entry_states(app)[1] == {"Alpha 2.0.4"}, "the star")
        terminal.send_keys("N")
        wait_until(lambda: "Alpha 2.0.4" not in entry_states(app)[0], "the unread state")
        terminal.send_keys("A")  # marks all posts of the blog as read
        wait_until(
            lambda: {f"Alpha 2.0.{n}" for n in range(1, 5)} <= entry_states(app)[0],
            "all posts of the blog being read",
        )
    assert {
        title for title, unread in reload(newsboat, tmp_path).items() if not unread
    } == entry_states(app)[0]
