"""What readers leave on entries, and what they leave to the reader: rating, tags, searches, rules, scrolling."""

import re

from playwright.sync_api import expect

from tests.browser.browser_session import feed_id


def test_rate_and_take_a_tag_away(reader):
    page = reader.page
    page.get_by_role("link", name="Release 4.2").click()
    page.locator("article .menu summary").click()
    page.get_by_role("button", name="4 stars").click()
    expect(page.locator("article .rating [aria-pressed=true]")).to_have_count(
        4
    )  # the article is there anew, its menu closed
    page.locator("article .menu summary").click()
    page.get_by_label("Add tags").fill("builds")
    page.keyboard.press("Enter")
    expect(page.locator("#sidebar").get_by_role("link", name="builds")).to_be_visible()
    page.get_by_role("button", name="Remove the tag builds").click()
    expect(page.locator("#sidebar").get_by_role("link", name="builds")).to_have_count(0)
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


def test_a_rule_stars_what_arrives_and_the_page_hears_of_it(reader, feed_server):
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
    feed_server.publish("weekly", "Extra: a comet over the gate")
    reader.client.post(f"/feed/{feed_id(reader.client, 'Weekly notes')}/look")
    reader.keys("k")  # the last of all is open, and stays so
    opened = page.locator(".entry:has([aria-current])")
    expect(opened).to_have_class("entry")
    reader.keys("m")
    expect(opened).to_have_class("entry unread")
    read = page.locator("#article-title").inner_text()
    bar = page.get_by_role("button", name="1 new")
    expect(bar).to_be_visible()
    expect(page.locator("#list .entry")).to_have_count(
        before
    )  # nothing moves under the reader's eyes
    expect(page.locator("#sidebar [data-count=unread]")).to_have_text(str(before + 1))
    bar.click()
    expect(page.locator("#list .entry")).to_have_count(before + 1)
    expect(page.locator(".entry", has_text="a comet over the gate")).to_have_class(
        "entry unread starred"
    )
    expect(bar).to_be_hidden()
    expect(page.locator("#article-title")).to_have_text(read)


def test_the_whole_article_is_asked_for_where_one_reads(reader):
    page = reader.page
    page.get_by_role("link", name="Release 4.2").click()
    expect(page.locator("#article-title")).to_have_text("Release 4.2")
    page.get_by_role("link", name="Fetch the whole article").click()
    expect(page.locator("article .content")).to_have_text("kiln")  # all that its site has
    expect(page.locator("#list h1")).to_have_text("Unread")
    expect(page.locator("#article-title")).to_have_text("Release 4.2")


def test_what_was_typed_stays_until_it_is_right(reader):
    page = reader.go("/rules")
    page.get_by_label("Author").fill("Ada")
    page.get_by_label("Regular expression").fill("(wrong")
    page.get_by_role("button", name="Add the rule").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be read")
    expect(page.get_by_label("Author")).to_have_value("Ada")
    page.get_by_label("Regular expression").fill("right")
    page.get_by_role("button", name="Add the rule").click()
    expect(page.get_by_text("Muted, by Ada, matching right")).to_be_visible()
    expect(page.get_by_label("Author")).to_have_value("")
    reader.ignore_browser_errors()  # Chromium itself says that the first was refused


def test_what_is_drawn_over_is_seen_larger(reader):
    page = reader.go(f"/feed/{feed_id(reader.client, 'Marginalia')}/about?days=1")
    frame = page.get_by_role("region", name="Posts and checks")

    def shown_s():
        return int(frame.get_attribute("data-until")) - int(frame.get_attribute("data-from"))

    before, box = shown_s(), frame.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.65 * box["width"], box["y"] + 30)
    page.mouse.up()
    page.wait_for_url("**/about?from=*")
    assert abs(shown_s() / before - 0.25) < 0.02
    page.get_by_role("link", name="1 day").click()
    page.wait_for_url("**/about?days=1")
    assert abs(shown_s() - before) <= 1


def test_what_is_scrolled_past_is_read_if_one_wants_that(reader):
    page = reader.page
    reader.go("/settings")
    page.get_by_label("Mark entries as read when they are scrolled past").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.set_viewport_size({"width": 1200, "height": 420})
    reader.go("/unread")
    first, *_, last = reader.names
    page.locator("#list").hover()
    page.mouse.wheel(0, 400)
    expect(page.locator(".entry", has_text=first)).to_have_class("entry")
    expect(page.locator(".entry", has_text=last)).to_have_class("entry unread")
    expect(page.locator("#sidebar [data-count=unread]")).not_to_have_text(
        str(len(reader.names))
    )  # it is in the store
    reader.go("/unread")
    assert first not in reader.names
    assert last in reader.names


def test_sound_plays_on_the_page(reader):
    page = reader.page
    page.get_by_role("link", name="Episode 12: The time signal").click()
    sound = page.get_by_label("Sound of this entry")
    expect(sound).to_be_visible()
    assert (
        sound.evaluate(
            "async sound => { sound.muted = true; await sound.play(); return sound.duration }"
        )
        == 1
    )
    expect(page.get_by_role("link", name="Download")).to_be_visible()
