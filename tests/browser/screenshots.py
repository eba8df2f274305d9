"""Take the screenshots of the docs: ``python -m tests.browser.screenshots docs/img``."""

import shutil
import sys
import time
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import expect, sync_playwright

from tests import TEST_TIMEOUT_S
from tests.browser.browser_session import PHONE, BrowserSession, UserClient, feed_id, run_server
from tests.browser.feed_server import FeedServer
from tests.browser.sample_feeds import RIVER, SAMPLE_FEEDS

WIDE = {"width": 1280, "height": 800}
NAME = "The river that went underground"


def take_screenshots(folder):
    with (
        TemporaryDirectory() as data,
        FeedServer() as feed_server,
        run_server(Path(data)) as port,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        ada = UserClient(port, "ada").create_admin()
        prepare_feeds(ada, feed_server)
        for name, theme in (("reader", "light"), ("reader-dark", "dark")):
            session = BrowserSession(
                browser, port, ada, viewport=WIDE, color_scheme=theme, device_scale_factor=1.5
            )
            page = session.go("/all")
            page.locator("summary", has_text="Feeds in Science").click()
            page.get_by_role("link", name=NAME).click()
            expect(page.locator("article img").first).to_be_visible()
            page.screenshot(path=folder / f"{name}.png")
            session.close()
        phone(browser, port, ada, folder)
        browser.close()


def prepare_feeds(ada, feed_server):
    """Subscribe to all sample feeds; mark some posts as read, star one, fetch one with a delay."""
    feed_server.remove_post("marginalia", NAME)
    ada.send_file("/feeds/import", "file", feed_server.opml())
    for slug in SAMPLE_FEEDS:
        ada.subscribe(feed_server.feed(slug))
    feed_server.publish("marginalia", NAME, RIVER, "Ada Writer", ago_s=660)
    ada.post(f"/feed/{feed_id(ada, 'Marginalia')}/poll")
    entries = ada.get("/all").entries
    for entry in entries[5:9]:
        ada.post(f"/entry/{entry}", read="1")
    ada.post(f"/entry/{entries[2]}", star="1")
    deadline = time.monotonic() + TEST_TIMEOUT_S
    while 'class="favicon initial"' in ada.get("/feeds").text and time.monotonic() < deadline:
        time.sleep(0.5)  # icons are fetched in the background
    ada.get("/feeds")  # shows the toasts, so that they are not in the screenshots


def phone(browser, port, ada, folder):
    """Take a screenshot of list and article on a phone, side by side."""
    session = BrowserSession(
        browser, port, ada, viewport=PHONE, is_mobile=True, has_touch=True, device_scale_factor=2
    )
    shots = []
    page = session.go("/all")
    shots.append(page.screenshot())
    page.get_by_role("link", name=NAME).tap()
    expect(page.locator("article img").first).to_be_visible()
    shots.append(page.screenshot())
    session.close()
    both = browser.new_page(
        viewport={"width": 2 * PHONE["width"] + 72, "height": PHONE["height"] + 48},
        device_scale_factor=1.5,
    )
    frames = "".join(
        f'<img src="data:image/png;base64,{b64encode(shot).decode()}">' for shot in shots
    )
    style = (
        "body{margin:24px;display:flex;gap:24px;background:#dfe6e4}"
        " img{width:390px;border-radius:28px}"
    )
    both.set_content(f"<style>{style}</style>{frames}")
    both.screenshot(path=folder / "phone.png")


if __name__ == "__main__":
    take_screenshots(Path(sys.argv[1]))
