"""What readers leave on entries, and what they leave to the reader: rating, tags, searches, rules, scrolling."""

import re

from playwright.sync_api import expect

from tests.browser.house import feed_id


def test_rate_and_take_a_tag_away(reader):
    page = reader.page
    page.get_by_role("link", name="Release 4.2").click()
    page.locator("article .menu summary").click()
    page.get_by_role("button", name="4 stars").click()
    expect(page.locator("article .rating [aria-pressed=true]")).to_have_count(4)  # the article is there anew, its menu closed
    page.locator("article .menu summary").click()
    page.get_by_label("Add tags").fill("builds")
    page.keyboard.press("Enter")
    expect(page.locator("#sidebar").get_by_role("link", name="builds")).to_have_count(0)  # until the page is made anew
    page.reload()
    expect(page.locator("#sidebar").get_by_role("link", name="builds")).to_be_visible()
    page.get_by_role("button", name="Remove the tag builds").click()
    expect(page.get_by_role("list", name="Tags")).to_have_count(0)
    expect(page.locator("article .rating [aria-pressed=true]")).to_have_count(4)


def test_a_search_is_kept_and_forgotten(reader):
    page = reader.page
    page.get_by_role("link", name="Search", exact=True).click()
    page.get_by_role("searchbox").fill("release -crash")
    page.keyboard.press("Enter")
    expect(page.locator("#list .entry")).to_have_count(1)
    page.get_by_role("button", name="Keep this search").click()
    kept = page.locator("#sidebar").get_by_role("link", name="release -crash")
    expect(kept).to_be_visible()
    reader.keys("g u")
    kept.click()
    expect(page.locator("#list .entry")).to_have_count(1)
    page.get_by_role("button", name="Forget this search").click()
    expect(page.locator("#list h1")).to_have_text("Unread")
    expect(kept).to_have_count(0)


def test_a_rule_stars_what_arrives_and_the_page_hears_of_it(reader, stand):
    page = reader.page
    reader.keys("g f")
    page.get_by_role("link", name="Rules").click()
    page.get_by_label("What to do").select_option("star")
    page.get_by_label(re.compile("Any of these words")).fill("comet")
    page.get_by_role("button", name="Add the rule").click()
    expect(page.get_by_text("Starred, with the words comet")).to_be_visible()

    reader.go("/unread")
    before = len(reader.names)
    expect(page.locator("#list .entry")).to_have_count(before)
    stand.publish("weekly", "Extra: a comet over the gate")
    reader.person.post(f"/feed/{feed_id(reader.person, 'Weekly notes')}/look")
    bar = page.get_by_role("button", name="1 new")
    expect(bar).to_be_visible()
    expect(page.locator("#list .entry")).to_have_count(before)  # nothing moves under the reader's eyes
    expect(page.locator("#sidebar [data-count=unread]")).to_have_text(str(before + 1))
    bar.click()
    expect(page.locator("#list .entry")).to_have_count(before + 1)
    expect(page.locator(".entry", has_text="a comet over the gate")).to_have_class("entry unread starred")
    expect(bar).to_be_hidden()


def test_what_is_scrolled_past_is_read_if_one_wants_that(reader):
    page = reader.page
    reader.go("/settings")
    page.get_by_label("Mark entries as read when they are scrolled past").check()
    page.get_by_role("button", name="Save").click()
    page.set_viewport_size({"width": 1200, "height": 420})
    reader.go("/unread")
    first, *_, last = reader.names
    page.locator("#list").hover()
    page.mouse.wheel(0, 400)
    expect(page.locator(".entry", has_text=first)).to_have_class("entry")
    expect(page.locator(".entry", has_text=last)).to_have_class("entry unread")
    expect(page.locator("#sidebar [data-count=unread]")).not_to_have_text(str(len(reader.names)))  # it is in the store
    reader.go("/unread")
    assert first not in reader.names
    assert last in reader.names


def test_sound_plays_on_the_page(reader):
    page = reader.page
    page.get_by_role("link", name="Episode 12: The time signal").click()
    sound = page.get_by_label("Sound of this entry")
    expect(sound).to_be_visible()
    assert sound.evaluate("async sound => { sound.muted = true; await sound.play(); return sound.duration }") == 1
    expect(page.get_by_role("link", name="Download")).to_be_visible()
