"""Posts that try to run something: through a real feed, into the real page, in the real browser. Nothing runs."""

from html import escape

import pytest
from playwright.sync_api import expect

from tests.browser.xss_payloads import ALL_PAYLOADS, DOM_CLOBBERING, SCHEMES

#: In the page that is looked at; what an article holds, and where it leads.
INSPECT = """() => {
  for (const element of document.querySelectorAll("article, article *, .entry *")) {
    for (const kind of ["mouseover", "pointerenter", "focus", "toggle"]) element.dispatchEvent(new Event(kind));
  }
  const inside = [...document.querySelectorAll("article *, .entry *, #sidebar *")];
  const wrong = inside.flatMap((element) => [...element.attributes]
    .filter(({ name, value }) => /^(on|style$|srcdoc$|formaction$)/.test(name)
      || /^(href|src|poster|cite|data|background)$/.test(name) && !/^(https?:|mailto:|\\/|#)/.test(value))
    .map(({ name, value }) => `${element.tagName} ${name}=${value}`));
  const foreign = [...document.querySelectorAll("article .content *")].map((element) => element.localName)
    .filter((name) => /^(script|style|i?frame|object|embed|form|input|button|select|svg|math|meta|link|base)$/.test(name));
  return [...wrong, ...foreign];
}"""


def document(site):
    """A feed with an attack in every place that a post has: title, text, author, category, address, file."""
    items = []
    for number, attack in enumerate(ALL_PAYLOADS):
        attack = attack.replace("RUN", f"alert({number})").replace("\u2028", "&#8232;")
        text, scheme = (
            escape(attack),
            escape(SCHEMES[number % len(SCHEMES)].replace("RUN", f"alert({number})")),
        )
        items.append(
            f"<item><title>{number} {text}</title><guid isPermaLink='false'>{number}</guid><author>{text}</author>"
            f"<category>{text}</category><link>{scheme}</link><comments>{scheme}</comments>"
            f"<enclosure url='{scheme}' type='audio/mpeg' length='1'/><description>{text}</description></item>"
        )
    head = f"<title>Evil {escape('<img src=x onerror=alert(-1)>')}</title><link>javascript:alert(-2)</link><description/>"
    return f"<rss version='2.0'><channel>{head}{''.join(items)}</channel></rss>".encode()


@pytest.fixture
def victim(open_session, feed_server):
    """Somebody who follows that feed, in a browser whose second lock, the content security policy, is open."""
    feed_server.documents["evil"] = document(feed_server.address)
    session = open_session(bypass_csp=True)
    session.client.post("/settings", page_size=200)
    session.dialogs = []
    session.page.on(
        "dialog", lambda dialog: (session.dialogs.append(dialog.message), dialog.dismiss())
    )
    session.feed = session.client.subscribe(feed_server.feed("evil"))
    return session


def test_no_post_runs_anything_in_any_place(victim):
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
    assert page.url.endswith("/statistics")  # nothing led away
    victim.ignore_browser_errors()  # pictures that are not there


def test_no_post_takes_the_place_of_a_part_of_the_page(victim):
    page = victim.go(f"/feed/{victim.feed}?show=all")
    page.locator("#list .entry").nth(ALL_PAYLOADS.index(DOM_CLOBBERING)).click()
    expect(page.locator("article .content")).to_contain_text("x")
    assert page.locator("article .content :is([id], [name], [class])").count() == 0
    victim.keys("Shift+?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    victim.ignore_browser_errors()


def test_an_attack_that_got_through_would_be_noticed(victim):
    """Else the tests above would prove nothing."""
    page = victim.go("/unread")
    page.evaluate(
        "document.querySelector('#main').innerHTML = '<img src=x onerror=alert(7)><p onwheel=x style=x>'"
    )
    with page.expect_event("dialog"):
        page.evaluate("document.querySelector('#main').innerHTML = '<img src=x onerror=alert(8)>'")
    assert set(victim.dialogs) & {"7", "8"}
    victim.ignore_browser_errors()


def test_what_got_through_would_be_stopped_by_the_policy(open_session, feed_server):
    """The second lock alone: attacks written into the page as they are, past the sanitiser."""
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
        "address => { document.querySelector('#main').innerHTML = `<form action=${address}><button>x` }",
        canary,
    )
    page.evaluate("document.querySelector('#main form').submit()")
    page.evaluate("address => fetch(address).catch(() => 0)", canary)
    assert dialogs == []
    assert not [path for path in feed_server.requested_paths if path.startswith("/canary")]
    assert any("Content Security Policy" in said for said in session.browser_errors)
    session.ignore_browser_errors()


def test_pictures_of_strangers_run_nothing_when_opened_by_themselves(open_session, feed_server):
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
    picture = page.locator("article .content img")
    expect(picture).to_be_visible()
    session.go(picture.get_attribute("src"))
    assert page.evaluate("document.documentElement.localName") == "svg"
    assert dialogs == []
    session.ignore_browser_errors()  # Chromium says that it did not run the script
