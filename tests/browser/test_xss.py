"""Cross-site scripting (XSS): attacks in all fields of a feed must not run in the browser."""

from html import escape

import pytest
from playwright.sync_api import expect

from tests.browser.xss_payloads import ALL_PAYLOADS, DOM_CLOBBERING, SCHEMES

#: Runs in the page: triggers events and returns dangerous attributes and elements.
INSPECT = """() => {
  for (const element of document.querySelectorAll("article, article *, .entry *")) {
    for (const kind of ["mouseover", "pointerenter", "focus", "toggle"]) {
      element.dispatchEvent(new Event(kind));
    }
  }
  const inside = [...document.querySelectorAll("article *, .entry *, #sidebar *")];
  const wrong = inside.flatMap((element) => [...element.attributes]
    .filter(({ name, value }) => /^(on|style$|srcdoc$|formaction$)/.test(name)
      || /^(href|src|poster|cite|data|background)$/.test(name)
      && !/^(https?:|mailto:|\\/|#)/.test(value))
    .map(({ name, value }) => `${element.tagName} ${name}=${value}`));
  const forbidden = new RegExp("^(script|style|i?frame|object|embed|form|input|button|select|svg"
    + "|math|meta|link|base)$");
  const foreign = [...document.querySelectorAll("article .content *")]
    .map((element) => element.localName)
    .filter((name) => forbidden.test(name));
  return [...wrong, ...foreign];
}"""


def document(site):
    """Return a feed with an attack in every field: title, text, author, category, link, file."""
    items = []
    for number, attack in enumerate(ALL_PAYLOADS):
        attack = attack.replace("RUN", f"alert({number})").replace("\u2028", "&#8232;")
        text, scheme = (
            escape(attack),
            escape(SCHEMES[number % len(SCHEMES)].replace("RUN", f"alert({number})")),
        )
        items.append(
            f"<item><title>{number} {text}</title><guid isPermaLink='false'>{number}</guid>"
            f"<author>{text}</author><category>{text}</category><link>{scheme}</link>"
            f"<comments>{scheme}</comments><enclosure url='{scheme}' type='audio/mpeg' length='1'/>"
            f"<description>{text}</description></item>"
        )
    title = escape("<img src=x onerror=alert(-1)>")
    head = f"<title>Evil {title}</title><link>javascript:alert(-2)</link><description/>"
    return f"<rss version='2.0'><channel>{head}{''.join(items)}</channel></rss>".encode()


@pytest.fixture
def victim(open_session, feed_server):
    """Subscriber of the malicious feed, with the content security policy bypassed."""
    feed_server.documents["evil"] = document(feed_server.address)
    session = open_session(bypass_csp=True)
    session.client.post("/settings", page_size=200)
    session.dialogs = []
    session.page.on(
        "dialog", lambda dialog: (session.dialogs.append(dialog.message), dialog.dismiss())
    )
    session.feed = session.client.subscribe(feed_server.feed("evil"))
    return session


def test_payloads_do_not_run_in_any_field(victim):
    page = victim.go(f"/feed/{victim.feed}?show=all")
    expect(page.locator("#list .entry")).to_have_count(len(ALL_PAYLOADS))
    for entry in page.locator("#list .entry").evaluate_all(
        "rows => rows.map(row => row.dataset.id)"
    ):
        page.keyboard.press("j")
        page.wait_for_selector(f"article[data-id='{entry}']")
        assert page.evaluate(INSPECT) == [], page.locator("article").inner_html()
        assert victim.dialogs == [], page.locator("article").inner_html()
    for path in (
        f"/feed/{victim.feed}/about",
        "/feeds",
        "/rules",
        "/settings/apps",
        "/search?q=alert",
        "/statistics",
    ):
        victim.go(path)
        assert page.evaluate(INSPECT) == []
    assert victim.dialogs == []
    assert page.url.endswith("/statistics")  # no navigation
    victim.ignore_browser_errors()  # missing images


def test_dom_clobbering_has_no_effect(victim):
    page = victim.go(f"/feed/{victim.feed}?show=all")
    page.locator("#list .entry").nth(ALL_PAYLOADS.index(DOM_CLOBBERING)).click()
    expect(page.locator("article .content")).to_contain_text("x")
    assert page.locator("article .content :is([id], [name], [class])").count() == 0
    victim.keys("Shift+?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    victim.ignore_browser_errors()


def test_harness_detects_a_running_payload(victim):
    """Check the test itself: an unsanitized payload opens a dialog."""
    page = victim.go("/unread")
    page.evaluate(
        "document.querySelector('#main').innerHTML ="
        " '<img src=x onerror=alert(7)><p onwheel=x style=x>'"
    )
    with page.expect_event("dialog"):
        page.evaluate("document.querySelector('#main').innerHTML = '<img src=x onerror=alert(8)>'")
    assert set(victim.dialogs) & {"7", "8"}
    victim.ignore_browser_errors()


def test_content_security_policy_stops_unsanitized_payloads(open_session, feed_server):
    """Write payloads into the page without sanitizing: the policy must stop them."""
    session = open_session()
    dialogs = []
    session.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page = session.go("/unread")
    canary = f"{feed_server.address}/canary"
    for attack in ALL_PAYLOADS[:-1]:
        page.evaluate(
            "html => { document.querySelector('#main').innerHTML = html }",
            attack.replace("RUN", "alert(1)"),
        )
    page.evaluate(
        "url => { document.querySelector('#main').innerHTML = `<form action=${url}><button>x` }",
        canary,
    )
    page.evaluate("document.querySelector('#main form').submit()")
    page.evaluate("url => fetch(url).catch(() => 0)", canary)
    assert dialogs == []
    assert not [path for path in feed_server.requested_paths if path.startswith("/canary")]
    assert any("Content Security Policy" in error for error in session.browser_errors)
    session.ignore_browser_errors()


def test_svg_image_opened_directly_runs_no_script(open_session, feed_server):
    session = open_session()
    dialogs = []
    session.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    feed_server.documents["evil/icon.svg"] = (
        b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
    )
    feed_server.publish(
        "shady", "One", '<p>x</p><img src="{site}/evil/icon.svg" width="20" height="20">'
    )
    feed = session.client.subscribe(feed_server.feed("shady"))
    session.client.post("/settings", image_proxy="on")
    page = session.go(f"/feed/{feed}")
    page.locator("#list .entry").click()
    image = page.locator("article .content img")
    expect(image).to_be_visible()
    session.go(image.get_attribute("src"))
    assert page.evaluate("document.documentElement.localName") == "svg"
    assert dialogs == []
    session.ignore_browser_errors()  # Chromium logs the blocked script
