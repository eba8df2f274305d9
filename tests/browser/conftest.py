"""A real Chromium, a real service in a process of its own, and magazines to read. No page may complain in its console."""

import os
import shutil

import pytest

from tests import PATIENCE_S
from tests.browser.house import Walker, house, resident
from tests.browser.newsstand import Newsstand
from tests.browser.stories import MAGAZINES
from tests.web.people import Person

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


# Playwright keeps an event loop in this thread, so it must be gone before other tests run theirs: not for the whole session.
@pytest.fixture(scope="package")
def browser():
    """The Chromium that is installed, else Playwright's own."""
    try:
        from playwright.sync_api import Error, expect, sync_playwright
    except ImportError:
        _missing("needs Playwright; pip install 'tidings[dev]'")
    path = next(filter(None, map(shutil.which, INSTALLED)), None)
    with sync_playwright() as playwright:
        try:
            made = playwright.chromium.launch(executable_path=path)
        except Error as error:
            _missing(f"needs a browser; apt install chromium, or .venv/bin/playwright install chromium ({error})")
        expect.set_options(timeout=1000 * PATIENCE_S)
        yield made
        made.close()


def _missing(why):
    """On a laptop the pages need not be walked through; where tests are to prove something they must."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(why)


@pytest.fixture(scope="package")
def stand():
    with Newsstand() as stand:
        yield stand


@pytest.fixture(scope="package")
def home(tmp_path_factory, stand):
    """The administrator of a service that has all magazines."""
    with house(tmp_path_factory.mktemp("house")) as port:
        ada = Person(port, "ada").begin()
        for slug in MAGAZINES:
            ada.follow(stand.feed(slug))
        yield ada


@pytest.fixture
def enter(browser, home):
    """``enter()`` is a new user with a tab; options are those of the browser's context."""
    walkers = []

    def make(person=None, **context):
        walkers.append(Walker(browser, home.port, person or resident(home), **context))
        return walkers[-1]

    yield make
    for walker in walkers:
        walker.close()


@pytest.fixture
def reader(request, enter, stand):
    """A tab of somebody who follows all magazines; a parameter holds options of the browser's context."""
    walker = enter(**getattr(request, "param", {}))
    walker.person.send_file("/feeds/import", "file", stand.opml())
    walker.go("/unread")
    return walker
