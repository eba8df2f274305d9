"""Fixtures: Chromium, the service in a subprocess, and sample feeds. Console errors fail a test."""

import os
import shutil

import pytest

from tests import TEST_TIMEOUT_S
from tests.browser.browser_session import BrowserSession, add_reader, run_server
from tests.browser.feed_server import FeedServer
from tests.browser.sample_feeds import SAMPLE_FEEDS
from tests.web.client import UserClient

BROWSER_COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


# Package scope: Playwright runs an event loop in this thread, so it must be closed before other
# tests start theirs.
@pytest.fixture(scope="package")
def browser():
    """Installed Chromium, or else Playwright's own."""
    try:
        from playwright.sync_api import Error, expect, sync_playwright
    except ImportError:
        _skip_or_fail("needs Playwright; pip install 'tidings[dev]'")
    path = next(filter(None, map(shutil.which, BROWSER_COMMANDS)), None)
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(executable_path=path)
        except Error as error:
            _skip_or_fail(
                "needs a browser; apt install chromium, or"
                f" .venv/bin/playwright install chromium ({error})"
            )
        expect.set_options(timeout=1000 * TEST_TIMEOUT_S)
        yield chromium
        chromium.close()


def _skip_or_fail(reason):
    """Skip the browser tests on developers' machines, fail in CI."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


@pytest.fixture(scope="package")
def feed_server():
    with FeedServer() as feed_server:
        yield feed_server


@pytest.fixture(scope="package")
def admin(tmp_path_factory, feed_server):
    """Administrator of a service with all sample feeds."""
    with run_server(tmp_path_factory.mktemp("data")) as port:
        ada = UserClient(port, "ada").create_admin()
        for slug in SAMPLE_FEEDS:
            ada.subscribe(feed_server.feed(slug))
        yield ada


@pytest.fixture
def open_session(browser, admin):
    """Return a function that opens a session of a new user; options go to the browser context."""
    sessions = []

    def make(client=None, **context):
        sessions.append(BrowserSession(browser, admin.port, client or add_reader(admin), **context))
        return sessions[-1]

    yield make
    for session in sessions:
        session.close()


@pytest.fixture
def reader(request, open_session, feed_server):
    """Session of a user with all sample feeds; a parameter has options of the browser context."""
    session = open_session(**getattr(request, "param", {}))
    session.client.send_file("/feeds/import", "file", feed_server.opml())
    session.go("/unread")
    return session
