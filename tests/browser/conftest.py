"""A real Chromium, a real service in a process of its own, and magazines to read. No page may complain in its console."""

import os
import shutil

import pytest

from tests import TEST_TIMEOUT_S
from tests.browser.browser_session import BrowserSession, add_reader, run_server
from tests.browser.feed_server import FeedServer
from tests.browser.sample_feeds import SAMPLE_FEEDS
from tests.web.client import UserClient

BROWSER_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


# Playwright keeps an event loop in this thread, so it must be gone before other tests run theirs: not for the whole session.
@pytest.fixture(scope="package")
def browser():
    """The Chromium that is installed, else Playwright's own."""
    try:
        from playwright.sync_api import Error, expect, sync_playwright
    except ImportError:
        _skip_or_fail("needs Playwright; pip install 'tidings[dev]'")
    path = next(filter(None, map(shutil.which, BROWSER_COMMANDS)), None)
    with sync_playwright() as playwright:
        try:
            made = playwright.chromium.launch(executable_path=path)
        except Error as error:
            _skip_or_fail(
                f"needs a browser; apt install chromium, or .venv/bin/playwright install chromium ({error})"
            )
        expect.set_options(timeout=1000 * TEST_TIMEOUT_S)
        yield made
        made.close()


def _skip_or_fail(why):
    """On a laptop the pages need not be walked through; where tests are to prove something they must."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.fixture(scope="package")
def feed_server():
    with FeedServer() as feed_server:
        yield feed_server


@pytest.fixture(scope="package")
def admin(tmp_path_factory, feed_server):
    """The administrator of a service that has all magazines."""
    with run_server(tmp_path_factory.mktemp("house")) as port:
        ada = UserClient(port, "ada").create_admin()
        for slug in SAMPLE_FEEDS:
            ada.subscribe(feed_server.feed(slug))
        yield ada


@pytest.fixture
def open_session(browser, admin):
    """``enter()`` is a new user with a tab; options are those of the browser's context."""
    sessions = []

    def make(client=None, **context):
        sessions.append(BrowserSession(browser, admin.port, client or add_reader(admin), **context))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def reader(request, open_session, feed_server):
    """A tab of somebody who follows all magazines; a parameter holds options of the browser's context."""
    session = open_session(**getattr(request, "param", {}))
    session.client.send_file("/feeds/import", "file", feed_server.opml())
    session.go("/unread")
    return session
