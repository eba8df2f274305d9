"""First steps in the browser: setup, OPML import, adding a site, login errors."""

from playwright.sync_api import expect

from tests.browser.browser_session import PASSWORD, BrowserSession, run_server


def test_setup_import_and_first_article(browser, feed_server, tmp_path):
    with run_server(tmp_path) as port:
        session = BrowserSession(browser, port)
        page = session.go("/unread")
        expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
        page.get_by_label("User name").fill("ada")
        page.get_by_label("Password (at least 8 characters)").fill(PASSWORD)
        page.get_by_label("Repeat password").fill(PASSWORD)
        page.keyboard.press("Enter")

        expect(page.get_by_role("heading", name="Welcome, ada")).to_be_visible()
        file = {"name": "feeds.opml", "mimeType": "text/x-opml", "buffer": feed_server.opml()}
        page.get_by_label("OPML file, or a text file with one URL per line").set_input_files(file)
        page.get_by_role("button", name="Import").click()
        expect(page.get_by_text("Imported 6 feeds.")).to_be_visible()
        expect(page.locator("#sidebar").get_by_role("link", name="Science")).to_be_visible()
        expect(page.locator("#list .entry").first).to_be_visible()  # without a reload

        feed_server.publish("garden", "The first frost", "<p>Everything is white.</p>")
        page.keyboard.press("a")
        page.get_by_label("Address of a site or a feed").fill(feed_server.site("garden"))
        page.get_by_label("Folder").fill("Outside")
        page.get_by_role("button", name="Add feed", exact=True).click()
        expect(page.get_by_text("Subscribed to Garden.")).to_be_visible()
        page.get_by_role("link", name="The first frost").click()
        expect(page.locator("article .content")).to_have_text("Everything is white.")
        expect(page.locator("#sidebar").get_by_role("link", name="Outside")).to_be_visible()
        session.close()


def test_wrong_password_and_wrong_address_show_errors(open_session):
    session = open_session()
    page = session.go("/feeds/add")
    page.get_by_label("Address of a site or a feed").fill("http://127.0.0.1:9/")
    page.get_by_role("button", name="Add feed", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("127.0.0.1")
    session.context.clear_cookies()
    page = session.go("/unread")
    page.get_by_label("User name").fill(session.client.name)
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Wrong user name or password")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Unread")).to_be_visible()
    session.ignore_browser_errors()  # Chromium logs the 400 and 403 responses
