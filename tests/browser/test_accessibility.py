"""Accessibility: no serious axe violations in both themes, visible focus, landmarks."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.browser_session import PHONE

SERIOUS = ("serious", "critical")
READER_PAGES = ["/unread", "/starred", "/search?q=river", "/search?q=zeppelin"]
MANAGEMENT_PAGES = [
    "/feeds",
    "/feeds/add",
    "/rules",
    "/statistics",
    "/settings",
    "/settings/apps",
    "/users",
    "/welcome",
    "/timing",
    "/timing/lab",
    "/peers",
]


def axe_violations(page, theme="light"):
    """Return serious axe violations with their HTML; in the dark theme only contrast is checked."""
    rules = {"runOnly": ["color-contrast"]} if theme == "dark" else {}
    found = Axe().run(page, options=rules).response["violations"]
    return [
        (violation["id"], node["html"][:200])
        for violation in found
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_have_no_serious_violations(open_session, admin, theme):
    session = open_session(admin, color_scheme=theme)
    for path in READER_PAGES + MANAGEMENT_PAGES:
        assert axe_violations(session.go(path), theme) == [], path
    page = session.go("/feeds")
    page.locator(".feeds-list a").first.click()
    expect(page.locator(".next-check .lead")).to_contain_text("Next check")
    assert axe_violations(page, theme) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_article_and_menus_have_no_serious_violations(reader, theme):
    page = reader.page
    page.emulate_media(color_scheme=theme)
    for name in ("The river that went underground", "Release 4.2", "Episode 12: The time signal"):
        page.get_by_role("link", name=name).click()
        expect(page.locator("#article-title")).to_have_text(name)
        assert axe_violations(page, theme) == [], name
    reader.keys("s t")
    assert axe_violations(page, theme) == []
    reader.keys("Escape Shift+?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert axe_violations(page, theme) == []


def test_login_page_and_phone_have_no_serious_violations(open_session, admin):
    session = open_session(admin, viewport=PHONE)
    page = session.go("/unread")
    page.get_by_role("link", name="Feeds and settings").click()
    assert axe_violations(page) == []
    session.context.clear_cookies()
    assert axe_violations(session.go("/login")) == []


def test_focus_starts_with_skip_link_and_is_visible(reader):
    page = reader.page
    reader.go("/feeds")
    reader.keys("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    reader.keys("Enter Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    for _ in range(12):
        has_outline = (
            "(s => s.outlineStyle !== 'none' && s.outlineWidth !== '0px')"
            "(getComputedStyle(document.activeElement))"
        )
        assert page.evaluate(has_outline), page.evaluate("document.activeElement.outerHTML")
        reader.keys("Tab")


def test_unread_state_and_landmarks_have_labels(reader):
    page = reader.page
    expect(page.get_by_role("link", name="Release 4.2 (unread)")).to_be_visible()
    expect(page.get_by_role("navigation", name="Feeds")).to_be_visible()
    expect(page.get_by_role("region", name="Posts")).to_be_visible()
    expect(page.get_by_role("main")).to_be_visible()
