"""The service as a process of its own, and somebody who walks through it with Chromium."""

import re
import subprocess
from contextlib import contextmanager
from itertools import count

from tests import PATIENCE_S
from tests.cli.conftest import TIDINGS
from tests.web.people import PASSWORD, Person

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1360, "height": 860}

_names = count(1)


@contextmanager
def house(folder):
    """A service that nobody has set up yet: its port. Feeds on the loopback address may be followed."""
    command = [TIDINGS, "--data-dir", folder, "--set", "fetch.allow_private=true", "serve", "--port", "0"]
    with open(folder / "log", "w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            yield int(re.search(r"http://127.0.0.1:(\d+)", process.stdout.readline()).group(1))
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_S)


class Walker:
    """A person and a tab. ``walker.go("/unread")``, ``walker.keys("j s")``, ``walker.page`` for the rest."""

    def __init__(self, browser, port, person=None, **context):
        self.person, self.base, self.complaints = person, f"http://127.0.0.1:{port}", []
        self.forgiven = False
        self.context = browser.new_context(base_url=self.base, **{"viewport": DESK, **context})
        if person is not None:
            self.context.add_cookies([{"name": "tidings", "value": person.cookie, "url": self.base}])
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", self._failed)

    def _said(self, said):
        if said.type in ("error", "warning") and "blocked by Playwright" not in said.text:  # that was the test's own wish
            self.complaints.append(f"{said.location['url']}: {said.text}")

    def _failed(self, request):
        """What the page itself gave up, when it was left, is no complaint."""
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{request.url}: {request.failure}")

    def go(self, path):
        self.page.goto(path)
        return self.page

    def keys(self, keys):
        self.page.wait_for_load_state()  # before that nobody listens
        for key in keys.split(" "):
            self.page.keyboard.press(key)

    @property
    def names(self):
        """The titles in the list."""
        return [text.partition("\n")[0] for text in self.page.locator("#list .entry .title").all_inner_texts()]

    def forgive(self):
        """Somewhere on the way the browser complains for a good reason."""
        self.forgiven = True

    def close(self):
        self.context.close()
        assert self.forgiven or self.complaints[:3] == []


def resident(admin):
    """A new user."""
    return admin.invite(f"reader-{next(_names)}")


def feed_id(person, title):
    """The number of one of the person's feeds."""
    return int(re.search(rf'/feed/(\d+)/about"><b>{title}<', person.get("/feeds").text).group(1))


__all__ = ["DESK", "PASSWORD", "PHONE", "Person", "Walker", "feed_id", "house", "resident"]
