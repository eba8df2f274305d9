"""Pages on a phone, in the dark theme, without JavaScript and offline."""

import pytest
from playwright.sync_api import expect

from tests.browser.browser_session import PHONE

PAGES = [
    "/unread",
    "/all",
    "/search?q=river",
    "/feeds",
    "/feeds/add",
    "/rules",
    "/statistics",
    "/settings",
    "/settings/apps",
]


@pytest.fixture
def phone(open_session, feed_server):
    session = open_session(viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2)
    session.client.send_file("/feeds/import", "file", feed_server.opml())
    return session


def test_phone_shows_one_pane_at_a_time(phone):
    page = phone.go("/unread")
    expect(page.locator("#list")).to_be_visible()
    expect(page.locator("#main")).to_be_hidden()
    page.get_by_role("link", name="The river that went underground").tap()
    expect(page.locator("article .content")).to_be_visible()
    expect(page.locator("#list")).to_be_hidden()
    page.get_by_role("button", name="Next post").tap()
    expect(page.locator("#article-title")).not_to_have_text("The river that went underground")
    page.get_by_role("link", name="Back to list").tap()
    expect(page.locator("#list")).to_be_visible()
    page.get_by_role("link", name="Feeds and settings").tap()
    page.locator("#sidebar").get_by_role("link", name="Science").tap()
    expect(page.locator("#list h1")).to_have_text("Science")
    expect(page.locator("#sidebar")).to_be_hidden()
    page.get_by_role("link", name="A map of the night").tap()
    expect(page.locator("article .content")).to_be_visible()
    page.go_back()
    expect(page.locator("#list h1")).to_have_text("Science")
    expect(page.locator("#list")).to_be_visible()


def test_panes_scroll_instead_of_the_page(reader):
    reader.page.set_viewport_size({"width": 1200, "height": 420})
    for path in ("/feeds#folders", "/settings", "/unread"):
        page = reader.go(path)
        assert page.evaluate("document.scrollingElement.scrollHeight") == 420, path
        assert page.evaluate("document.scrollingElement.scrollTop") == 0, path


def test_pages_fit_the_width_of_a_phone(phone):
    for path in PAGES:
        page = phone.go(path)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"], path
    page = phone.go("/unread")
    page.get_by_role("link", name="Release 4.2").tap()  # code and a table
    expect(page.locator("article pre")).to_be_visible()
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]


def test_touch_targets_are_large_enough(phone):
    page = phone.go("/unread")
    for control in page.locator("#list :is(a, button):visible").all():
        box = control.bounding_box()
        assert box["height"] >= 40, control.inner_text()
        assert box["width"] >= 40, control.inner_text()


def test_theme_follows_system_until_chosen(open_session):
    session = open_session(color_scheme="dark")
    page = session.go("/settings")

    def brightness():
        red, green, blue = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        return (red + green + blue) / 3

    assert brightness() < 60
    page.emulate_media(color_scheme="light")
    assert brightness() > 200
    switch = page.get_by_role("button", name="Change theme")
    for chosen in ("light", "dark"):
        with page.expect_response("**/settings/theme"):
            switch.click()
        expect(page.locator("html")).to_have_attribute("data-theme", chosen)
    page.reload()
    assert brightness() < 60  # despite the light system theme


def test_reader_works_without_javascript(open_session, feed_server):
    session = open_session(java_script_enabled=False)
    session.client.send_file("/feeds/import", "file", feed_server.opml())
    page = session.go("/unread")
    before, rows = len(session.names), page.locator("#list .entry .title")
    page.get_by_role("link", name="The river that went underground").click()
    expect(page.locator("article .content")).to_contain_text("three pounds of dye")
    page.get_by_role("button", name="Star", exact=True).click()
    page.get_by_role("button", name="Unread", exact=True).click()
    expect(page.locator("#article-title")).to_have_text("The river that went underground")
    page.locator("#sidebar").get_by_role("link", name="Unread").click()
    expect(rows).to_have_count(before - 1)
    page.locator("#sidebar").get_by_role("link", name="Starred").click()
    expect(rows).to_contain_text(["The river that went underground"])
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox").fill("glacier")
    page.keyboard.press("Enter")
    expect(rows).to_contain_text(["What a glacier writes down"])
    page.locator("#sidebar").get_by_role("link", name="Unread").click()
    page.get_by_role("button", name="Mark all as read").click()
    expect(page.get_by_text("All caught up")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(rows).to_have_count(before - 1)


def test_offline_page_is_shown_without_connection(open_session):
    session = open_session()
    page = session.go("/unread")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.reload()  # now controlled by the service worker
    session.context.set_offline(True)
    page.goto("/starred")
    expect(page.get_by_role("heading", name="You're offline")).to_be_visible()
    session.context.set_offline(False)
    session.ignore_browser_errors()  # Chromium logs failed requests


def test_failed_request_is_reported_without_connection(reader):
    page = reader.page
    page.get_by_role("link", name="Release 4.2").click()
    star = page.get_by_role("button", name="Star", exact=True)
    expect(star).to_be_visible()
    reader.context.set_offline(True)
    star.click()
    message = "The request failed. Check your connection and try again."
    expect(page.get_by_text(message)).to_be_visible()
    reader.context.set_offline(False)
    reader.ignore_browser_errors()  # Chromium logs failed requests
