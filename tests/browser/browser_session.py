"""Browser tests: the service as a subprocess, and browser sessions of its users."""

import re
import subprocess
from contextlib import contextmanager
from itertools import count

from tests import TEST_TIMEOUT_S
from tests.cli.conftest import TIDINGS
from tests.web.client import PASSWORD, UserClient

PHONE = {"width": 390, "height": 844}
DESKTOP = {"width": 1360, "height": 860}

_names = count(1)


@contextmanager
def run_server(folder):
    """Run the service before setup, with feeds on loopback allowed; yields its port."""
    command = [
        TIDINGS,
        "--data-dir",
        folder,
        "--set",
        "fetch.allow_private=true",
        "serve",
        "--port",
        "0",
    ]
    with (
        open(folder / "log", "w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield int(re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline()).group(1))
        finally:
            process.terminate()
            process.wait(timeout=TEST_TIMEOUT_S)


class BrowserSession:
    """A user with a browser tab: ``session.go("/unread")``, ``session.keys("j s")``."""

    def __init__(self, browser, port, client=None, **context):
        self.client, self.base, self.browser_errors = client, f"http://127.0.0.1:{port}", []
        self.errors_ignored = False
        self.context = browser.new_context(base_url=self.base, **{"viewport": DESKTOP, **context})
        if client is not None:
            self.context.add_cookies(
                [{"name": "tidings", "value": client.cookie, "url": self.base}]
            )
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * TEST_TIMEOUT_S)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.browser_errors.append(str(error)))
        self.page.on("requestfailed", self._on_request_failed)

    def _on_console(self, message):
        blocked_by_test = "blocked by Playwright" in message.text
        if message.type in ("error", "warning") and not blocked_by_test:
            self.browser_errors.append(f"{message.location['url']}: {message.text}")

    def _on_request_failed(self, request):
        """Record failed requests, except those aborted because the page was left."""
        if request.failure != "net::ERR_ABORTED":
            self.browser_errors.append(f"{request.url}: {request.failure}")

    def go(self, path):
        self.page.goto(path)
        return self.page

    def keys(self, keys):
        self.page.wait_for_load_state()  # the scripts are loaded
        for key in keys.split(" "):
            self.page.keyboard.press(key)

    @property
    def names(self):
        """Titles of the entries in the list."""
        return [
            text.partition("\n")[0]
            for text in self.page.locator("#list .entry .title").all_inner_texts()
        ]

    def ignore_browser_errors(self):
        """Accept console errors that the test provokes."""
        self.errors_ignored = True

    def close(self):
        self.context.close()
        assert self.errors_ignored or self.browser_errors[:3] == []


def add_reader(admin):
    """Add a new user."""
    return admin.add_user(f"reader-{next(_names)}")


def feed_id(client, title):
    """Return the id of a user's feed."""
    return int(re.search(rf'/feed/(\d+)/about"><b>{title}<', client.get("/feeds").text).group(1))


__all__ = [
    "DESKTOP",
    "PASSWORD",
    "PHONE",
    "BrowserSession",
    "UserClient",
    "add_reader",
    "feed_id",
    "run_server",
]
