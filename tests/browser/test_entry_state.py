"""Entry state in the browser: rating, tags, saved searches, rules, mark as read on scroll."""

import re

from playwright.sync_api import expect

from tests.browser.browser_session import feed_id


def test_rate_and_remove_tag(reader):
    page = reader.page
    page.get_by_role("link", name="Release 4.2").click()
    page.locator("article .menu summary").click()
    page.get_by_role("button", name="4 stars").click()
    # The article was reloaded and its menu is closed.
    expect(page.locator("article .rating [aria-pressed=true]")).to_have_count(4)
    page.locator("article .menu summary").click()
    page.get_by_label("Add tags").fill("builds")
    page.keyboard.press("Enter")
    expect(page.locator("#sidebar").get_by_role("link", name="builds")).to_be_visible()
    page.get_by_role("button", name="Remove tag builds").click()
    expect(page.locator("#sidebar").get_by_role("link", name="builds")).to_have_count(0)
    expect(page.get_by_role("list", name="Tags")).to_have_count(0)
    expect(page.locator("article .rating [aria-pressed=true]")).to_have_count(4)


def test_search_is_saved_and_deleted(reader):
    page = reader.page
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox").fill("release -crash")
    page.keyboard.press("Enter")
    expect(page.locator("#list .entry")).to_have_count(1)
    page.get_by_role("button", name="Save search").click()
    saved = page.locator("#sidebar").get_by_role("link", name="release -crash")
    expect(saved).to_be_visible()
    reader.keys("g u")
    saved.click()
    expect(page.locator("#list .entry")).to_have_count(1)
    page.get_by_role("button", name="Delete search").click()
    expect(page.locator("#list h1")).to_have_text("Unread")
    expect(saved).to_have_count(0)


def test_rule_stars_new_entry_and_page_shows_new_bar(reader, feed_server):
    page = reader.page
    reader.keys("g f")
    page.get_by_role("link", name="Rules").click()
    page.get_by_label("Action").select_option("star")
    page.get_by_label(re.compile("any of these words")).fill("comet")
    page.get_by_role("button", name="Add rule").click()
    expect(page.get_by_text("Add a star, contains comet")).to_be_visible()

    reader.go("/unread")
    before = len(reader.names)
    expect(page.locator("#list .entry")).to_have_count(before)
    feed_server.publish("weekly", "Extra: a comet over the gate")
    reader.client.post(f"/feed/{feed_id(reader.client, 'Weekly notes')}/poll")
    reader.keys("k")  # opens the last entry, which stays open
    selected = page.locator(".entry:has([aria-current])")
    expect(selected).to_have_class("entry")
    reader.keys("m")
    expect(selected).to_have_class("entry unread")
    title = page.locator("#article-title").inner_text()
    bar = page.get_by_role("button", name="1 new")
    expect(bar).to_be_visible()
    expect(page.locator("#list .entry")).to_have_count(before)  # the list does not shift
    expect(page.locator("#sidebar [data-count=unread]")).to_have_text(str(before + 1))
    bar.click()
    expect(page.locator("#list .entry")).to_have_count(before + 1)
    expect(page.locator(".entry", has_text="a comet over the gate")).to_have_class(
        "entry unread starred"
    )
    expect(bar).to_be_hidden()
    expect(page.locator("#article-title")).to_have_text(title)


def test_full_text_is_loaded_into_the_open_article(reader):
    page = reader.page
    page.get_by_role("link", name="Release 4.2").click()
    expect(page.locator("#article-title")).to_have_text("Release 4.2")
    page.get_by_role("link", name="Load full text").click()
    expect(page.locator("article .content")).to_have_text("kiln")  # the text of the site
    expect(page.locator("#list h1")).to_have_text("Unread")
    expect(page.locator("#article-title")).to_have_text("Release 4.2")


def test_form_keeps_input_after_an_error(reader):
    page = reader.go("/rules")
    page.get_by_label("Author").fill("Ada")
    page.get_by_label("Regular expression").fill("(wrong")
    page.get_by_role("button", name="Add rule").click()
    expect(page.get_by_role("alert")).to_contain_text("is not valid")
    expect(page.get_by_label("Author")).to_have_value("Ada")
    page.get_by_label("Regular expression").fill("right")
    page.get_by_role("button", name="Add rule").click()
    expect(
        page.get_by_text("Mute, author Ada, matches the regular expression right")
    ).to_be_visible()
    expect(page.get_by_label("Author")).to_have_value("")
    reader.ignore_browser_errors()  # Chromium logs the 400 response


def test_dragging_zooms_the_timeline(reader):
    page = reader.go(f"/feed/{feed_id(reader.client, 'Marginalia')}/about?days=1")
    frame = page.get_by_role("region", name="Posts and checks")

    def range_s():
        return int(frame.get_attribute("data-until")) - int(frame.get_attribute("data-from"))

    before, box = range_s(), frame.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.65 * box["width"], box["y"] + 30)
    page.mouse.up()
    page.wait_for_url("**/about?from=*")
    assert abs(range_s() / before - 0.25) < 0.02
    page.get_by_role("link", name="1 day").click()
    page.wait_for_url("**/about?days=1")
    assert abs(range_s() - before) <= 1


def test_mark_as_read_on_scroll(reader):
    page = reader.page
    reader.go("/settings")
    page.get_by_label("Mark posts as read when scrolled past").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.set_viewport_size({"width": 1200, "height": 420})
    reader.go("/unread")
    first, *_, last = reader.names
    page.locator("#list").hover()
    page.mouse.wheel(0, 400)
    expect(page.locator(".entry", has_text=first)).to_have_class("entry")
    expect(page.locator(".entry", has_text=last)).to_have_class("entry unread")
    # The count comes from the server, so the change is stored.
    expect(page.locator("#sidebar [data-count=unread]")).not_to_have_text(str(len(reader.names)))
    reader.go("/unread")
    assert first not in reader.names
    assert last in reader.names


def test_audio_plays_on_the_page(reader):
    page = reader.page
    page.get_by_role("link", name="Episode 12: The time signal").click()
    audio = page.get_by_label("Audio")
    expect(audio).to_be_visible()
    assert (
        audio.evaluate(
            "async audio => { audio.muted = true; await audio.play(); return audio.duration }"
        )
        == 1
    )
    expect(page.get_by_role("link", name="Download")).to_be_visible()
