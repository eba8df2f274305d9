"""Keyboard shortcuts of the reader."""

import pytest
from playwright.sync_api import expect

RIVER = "The river that went underground"


def article_title(page):
    return page.locator("#article-title")


def press_and_expect(reader, key, title):
    reader.keys(key)
    expect(article_title(reader.page)).to_have_text(title)


def test_next_and_previous(reader):
    first, second, *_ = reader.names
    press_and_expect(reader, "j", first)
    press_and_expect(reader, "j", second)
    press_and_expect(reader, "k", first)
    press_and_expect(reader, "k", first)  # there is no previous entry


def test_space_scrolls_and_then_opens_next_unread(reader):
    main, (first, second, *_) = reader.page.locator("#main"), reader.names
    press_and_expect(reader, "Space", first)
    reader.page.set_viewport_size({"width": 1360, "height": 300})
    reader.keys("Space")
    assert main.evaluate("main => main.scrollTop") > 0
    expect(article_title(reader.page)).to_have_text(first)
    main.evaluate("main => main.scrollTo(0, main.scrollHeight)")
    press_and_expect(reader, "Space", second)


def test_next_and_previous_unread_skip_read_entries(reader):
    page, (first, second, third, *_) = reader.page, reader.names
    press_and_expect(reader, "j", first)
    press_and_expect(reader, "j", second)
    press_and_expect(reader, "k", first)
    press_and_expect(reader, "n", third)
    reader.keys("m")  # unread again
    expect(page.locator(".entry", has_text=third)).to_have_class("entry unread")
    reader.keys("j")
    press_and_expect(reader, "p", third)


def test_open_close_and_original_in_new_tab(reader, feed_server):
    page = reader.page
    press_and_expect(reader, "o", reader.names[0])
    reader.keys("o")
    expect(article_title(page)).to_have_count(0)
    press_and_expect(reader, "Enter", reader.names[0])  # the row has the focus
    with reader.context.expect_page() as other:
        reader.keys("v")
    assert other.value.url.startswith(feed_server.address)
    reader.keys("Escape")
    expect(article_title(page)).to_have_count(0)


# `page.route` does not see requests of pages that a service worker controls, so it is blocked.
@pytest.mark.parametrize("reader", [{"service_workers": "block"}], indirect=True)
def test_last_change_wins_over_slow_earlier_request(reader):
    page, first, held = reader.page, reader.names[0], []

    def hold(route):
        held.append(route) if route.request.method == "POST" and not held else route.continue_()

    page.route("**/entry/*", hold)
    with page.expect_request(lambda request: request.method == "POST"):  # marks it as read
        reader.keys("j")
    reader.keys("m")  # marks it as unread
    row = page.locator(".entry", has_text=first)
    expect(row).to_have_class("entry unread")
    with page.expect_response(lambda answer: "read=0" in (answer.request.post_data or "")):
        held[0].continue_()
    expect(row).to_have_class("entry unread")
    page.goto(page.url.partition("?")[0])
    expect(row).to_have_class("entry unread")


@pytest.mark.parametrize("reader", [{"service_workers": "block"}], indirect=True)
def test_list_reload_waits_for_pending_changes(reader):
    page, first, held = reader.page, reader.names[0], []

    def hold(route):
        held.append(route) if route.request.method == "POST" else route.continue_()

    page.route("**/entry/*", hold)
    with page.expect_request(lambda request: request.method == "POST"):
        reader.keys("j")
    list_requests = []
    page.on(
        "request",
        lambda request: list_requests.append(request.url) if "part=list" in request.url else None,
    )
    reader.keys("r")
    expect(article_title(page)).to_have_text(first)
    assert list_requests == []
    with page.expect_response(lambda answer: "part=list" in answer.url):
        held[0].continue_()
    expect(page.locator("#list .entry", has_text=first)).to_have_count(0)


def test_read_star_and_tag(reader):
    page, first = reader.page, reader.names[0]
    row = page.locator(".entry", has_text=first)
    reader.keys("j")
    expect(row).to_have_class("entry")
    reader.keys("m")
    expect(row).to_have_class("entry unread")
    reader.keys("s")
    expect(row).to_have_class("entry unread starred")
    expect(page.get_by_role("button", name="Star", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    reader.keys("t")
    page.keyboard.type("rivers, to read")
    reader.keys("Enter")
    expect(page.get_by_role("list", name="Tags").get_by_role("link")).to_have_text(
        ["rivers", "to read"]
    )
    reader.keys("g s")
    expect(page.locator("#list .entry")).to_have_count(1)
    expect(page.locator("#list h1")).to_have_text("Starred")


def test_go_to_views_and_search(reader):
    page = reader.page
    for keys, title in [
        ("g s", "Starred"),
        ("g a", "All posts"),
        ("g u", "Unread"),
        ("/", "Search"),
    ]:
        reader.keys(keys)
        expect(page.locator("#list h1")).to_have_text(title)
    page.keyboard.type("jo glacier g u")  # typed into the focused field, no shortcuts
    expect(page.get_by_role("searchbox")).to_have_value("jo glacier g u")
    page.get_by_role("searchbox").fill("glacier")
    reader.keys("Enter")
    expect(page.locator("#list .entry")).to_have_count(1)
    reader.keys("g f")
    expect(page).to_have_url(f"{reader.base}/feeds")
    reader.keys("a")
    expect(page).to_have_url(f"{reader.base}/feeds/add")


def test_administrators_go_to_timing(open_session, admin):
    session = open_session(admin)
    page = session.go("/unread")
    session.keys("g t")
    expect(page).to_have_url(f"{session.base}/timing")
    expect(page.get_by_role("heading", name="Timing")).to_be_visible()


def test_next_feed_and_unread_only(reader):
    page = reader.page
    page.locator("summary", has_text="Feeds in Science").click()
    reader.keys("g a")
    expect(page.locator("#list h1")).to_have_text("All posts")
    reader.keys("J")
    expect(page.locator("#list h1")).to_have_text("Listening")
    reader.keys("J")
    expect(page.locator("#list h1")).to_have_text("Science")
    reader.keys("J")
    expect(page.locator("#list h1")).to_have_text("Marginalia")
    reader.keys("K")
    expect(page.locator("#list h1")).to_have_text("Science")
    before = page.locator("#list .entry").count()
    press_and_expect(reader, "j", RIVER)
    reader.keys("r")
    expect(page.locator("#list .entry")).to_have_count(before - 1)
    reader.keys("u")
    expect(page.locator("#list .entry")).to_have_count(before)


def test_mark_all_as_read_and_undo(reader):
    page, before = reader.page, len(reader.names)
    reader.keys("Shift+A")
    expect(page.get_by_text("All caught up")).to_be_visible()
    expect(page.locator("#sidebar [data-count=unread]")).to_have_text("")
    page.get_by_role("status").get_by_role("button", name="Undo").click()
    expect(page.locator("#list .entry.unread")).to_have_count(before)
    expect(page.locator("#sidebar [data-count=unread]")).to_have_text(str(before))


def test_help_lists_all_shortcuts(reader):
    reader.keys("Shift+?")
    dialog = reader.page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    assert {*"jknpovmstAur/aJK?gf", "Enter"} <= set(dialog.locator("kbd").all_inner_texts())
    reader.keys("j")  # disabled while the dialog is open
    reader.keys("Escape")
    expect(dialog).to_be_hidden()
    expect(article_title(reader.page)).to_have_count(0)


def test_browser_back_and_forward(reader):
    page = reader.page
    press_and_expect(reader, "j", reader.names[0])
    page.go_back()
    expect(article_title(page)).to_have_count(0)
    page.go_forward()
    expect(article_title(page)).to_have_text(reader.names[0])
    reader.keys("g a")
    expect(page.locator("#list h1")).to_have_text("All posts")
    page.go_back()
    expect(page.locator("#list h1")).to_have_text("Unread")
