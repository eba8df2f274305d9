"""Reading without scripts: lists, articles, marks, search, rules, feeds; everything by links and forms."""

import re
import time

import pytest

from tests.local_server import LocalServer
from tests.web.test_demo_launcher import until

JSON = "application/json"


@pytest.fixture(scope="module", autouse=True)
def subscriptions(reader_server, blogs):
    """Ada follows two blogs, one of them in a folder; bob one of these."""
    reader_server.ada.post("/settings", page_size=25, fold_duplicates="on")
    reader_server.one = reader_server.ada.subscribe(blogs.url(1))
    reader_server.two = reader_server.ada.subscribe(blogs.url(2))
    reader_server.ada.post(
        f"/feed/{reader_server.two}/about", title="My second", folder="Shelf", priority="early"
    )
    reader_server.bob.subscribe(blogs.url(1))


def article_title(page):
    return re.search(r'id="article-title"[^>]*>(?:<a[^>]*>)?([^<]+)', page.text).group(1)


def test_lists_have_pages_that_neither_skip_nor_repeat(ada):
    first = ada.get("/unread")
    assert len(first.entries) == 25
    second = ada.get(first.link(r"/unread\?[^\"]*after=[^\"]*"))
    assert len({*first.entries, *second.entries}) == 40
    assert "after=" not in second.text.partition("</ol>")[2]
    assert "Unread" in first.text
    assert ada.get("/unread?after=nonsense").status == 400


def test_an_entry_opens_beside_its_list_and_only_a_form_marks_it(ada):
    listed = ada.get("/unread")
    entry = listed.entries[3]
    page = ada.get(listed.link(rf"/unread\?[^\"]*entry={entry}"))
    assert page.entries == listed.entries
    assert article_title(page)
    assert entry in page.unread  # looking changes nothing
    done = ada.post(f"/entry/{entry}", read="1", next=f"/unread?entry={entry}")
    assert done.redirect_path == f"/unread?entry={entry}"
    assert entry not in ada.get("/unread").entries
    assert ada.post(f"/entry/{entry}", read="0").redirect_path == f"/entry/{entry}"
    assert ada.get("/unread").unread[3] == entry
    assert ada.post(f"/entry/{entry}", nonsense="1").status == 400


def test_parts_for_scripts_hold_only_what_changes(ada):
    listed = ada.get("/unread?part=list")
    assert "<html" not in listed.text
    assert len(listed.entries) == 25
    article = ada.get(f"/entry/{listed.entries[0]}?part=article")
    assert article.text.lstrip().startswith("<article")
    assert ada.get(f"/entry/{listed.entries[0]}").redirect_path.startswith("/feed/")


def test_star_tag_and_rate(reader_server, ada, bob):
    entry = ada.get(f"/feed/{reader_server.one}").entries[0]
    marks = ada.post(f"/entry/{entry}", accept=JSON, star="1").json
    assert marks == {"id": entry, "unread": True, "starred": True, "rating": 0, "tags": []}
    assert ada.post(f"/entry/{entry}", accept=JSON, tag="rivers, to read").json["tags"] == [
        "rivers",
        "to read",
    ]
    assert ada.post(f"/entry/{entry}", accept=JSON, rating="4").json["rating"] == 4
    assert ada.post(f"/entry/{entry}", accept=JSON, rating="9").status == 400
    assert ada.get("/starred").entries == [entry]
    assert ada.get("/tag/to%20read").entries == [entry]
    assert 'href="/tag/to%20read"' in ada.get("/unread").text
    assert ada.post(f"/entry/{entry}", accept=JSON, untag="rivers").json["tags"] == ["to read"]
    assert bob.get("/starred").entries == []
    ada.post(f"/entry/{entry}", star="0", untag="to read")
    ada.post(f"/entry/{entry}", untag="to read")


def test_mark_all_read_and_take_it_back(reader_server, ada, bob):
    before = ada.get("/counts").json
    assert before["unread"] == 40
    assert before["feeds"] == {str(reader_server.one): 20, str(reader_server.two): 20}
    (folder,) = before["folders"]
    answer = ada.post(
        "/mark-all", view=f"folder/{folder}", until=int(time.time()) + 1, next=f"/folder/{folder}"
    )
    assert answer.redirect_path == f"/folder/{folder}"
    page = ada.get(f"/folder/{folder}")
    assert "20 entries marked as read" in page.text
    assert "You have read everything." in page.text
    assert len(ada.get(f"/folder/{folder}?show=all").entries) == 20
    assert ada.get("/counts").json["feeds"] == {str(reader_server.one): 20}
    assert bob.get("/counts").json["unread"] == 20
    ada.post("/undo")
    assert ada.get("/counts").json == before
    ids = ada.get("/unread").entries[:3]
    assert ada.post("/mark", accept=JSON, ids=",".join(map(str, ids)), unread="0").json[
        "ids"
    ] == sorted(ids)
    assert ada.post("/mark", accept=JSON, ids=",".join(map(str, ids)), unread="1").json[
        "ids"
    ] == sorted(ids)


def test_what_arrived_after_the_page_was_made_is_not_marked_with_it(ada):
    assert ada.post("/mark-all", accept=JSON, view="unread", until=1000).json["ids"] == 0
    assert ada.get("/counts").json["unread"] == 40


def test_search_and_searches_that_are_kept(ada, bob):
    assert "Search in everything" in ada.get("/search").text
    word = article_title(ada.get(f"/unread?entry={ada.get('/unread').entries[0]}")).split()[-1]
    found = ada.get(f"/search?q={word}")
    assert 0 < len(found.entries) < 40
    assert "Nothing has these words." in ada.get("/search?q=zeppelin").text
    kept = ada.post("/searches", q=word).redirect_path
    assert ada.get(kept).entries == found.entries
    assert f'href="{kept}"' in ada.get("/unread").text
    assert bob.get(kept).status == 404
    ada.post("/searches", do="remove", id=kept.rpartition("/")[2])
    assert ada.get(kept).status == 404


def test_rules_are_made_shown_and_removed(reader_server, ada):
    assert (
        ada.post(
            "/rules", action="tag", tag="kettles", words="kettle", feed_id=reader_server.two
        ).redirect_path
        == "/rules"
    )
    page = ada.get("/rules").text
    assert "Tagged “kettles”, with the words kettle, in My second" in page
    assert ada.post("/rules", action="star", regex="(").status == 400
    assert ada.post("/rules", action="explode").status == 400
    ada.post("/rules", do="remove", id=re.search(r'name="id" value="(\d+)"', page).group(1))
    assert "There is no rule yet." in ada.get("/rules").text


def test_a_site_with_several_feeds_offers_the_choice(ada, blogs):
    page = ada.post("/feeds/add", url=blogs.site(3))
    assert page.status == 200
    choices = re.findall(r'name="choice" value="([^"]+)"', page.text)
    assert len(choices) == 2
    assert "followed already" not in page.text
    added = ada.post("/feeds/add", url=blogs.site(3), choice=choices[1], folder="Shelf")
    again = ada.post("/feeds/add", url=blogs.site(3)).text
    assert f'<a href="{added.redirect_path}">followed already</a>' in again
    assert re.findall(r'name="choice" value="[^"]+"( \w+)', again) == [" checked", " disabled"]
    other = ada.subscribe(choices[0])
    assert (
        "You follow all feeds of 127.0.0.1 already."
        in ada.post("/feeds/add", url=blogs.site(3)).text
    )
    ada.post(f"/feed/{other}/leave")
    feed = int(added.redirect_path.rpartition("/")[2])
    assert len(ada.get(added.redirect_path).entries) == 20
    assert "Unsubscribed from" in ada.get(ada.post(f"/feed/{feed}/leave").redirect_path).text
    assert ada.get(f"/feed/{feed}").status == 404


@pytest.mark.parametrize(
    ("url", "said"),
    [("", "type the address"), ("127.0.0.1:9", "connection refused"), ("ftp://a.example/", ">ftp")],
)
def test_an_address_without_a_feed_says_why(ada, url, said):
    page = ada.post("/feeds/add", url=url)
    assert page.status == 400
    assert said in page.text.lower()


def test_a_feed_is_renamed_moved_weighed_and_looked_at(reader_server, ada, blogs):
    page = ada.get(f"/feed/{reader_server.two}/about").text
    assert 'name="title" value="My second"' in page
    assert 'name="folder" value="Shelf"' in page
    assert 'value="early" checked' in page
    assert "Next check" in page
    asked = len(blogs.asked)
    looked = ada.post(f"/feed/{reader_server.two}/look").redirect_path
    assert len(blogs.asked) == asked + 1
    assert "Nothing new." in ada.get(looked).text


def test_folders_are_made_renamed_and_removed(ada):
    ada.post("/folders", do="add", name="Empty")
    number = re.search(
        r'value="(\d+)">\s*<label class="grow"><span class="sr">[^<]*</span><input name="name" value="Empty"',
        ada.get("/feeds").text,
    )
    ada.post("/folders", do="rename", id=number.group(1), name="Still empty")
    assert ada.post("/folders", do="add", name="Still empty").status == 400
    assert "Still empty" in ada.get("/feeds").text
    ada.post("/folders", do="remove", id=number.group(1))
    assert "Still empty" not in ada.get("/feeds").text


def test_tags_are_renamed_and_removed(ada):
    entry = ada.get("/all").entries[0]
    ada.post(f"/entry/{entry}", tag="old name")
    assert (
        ada.post("/tags", do="rename", tag="old name", name="new & better").redirect_path
        == "/feeds#tags"
    )
    assert ada.get("/tag/new%20%26%20better").entries == [entry]
    assert "1 entry" in ada.get("/feeds").text.partition('id="tags"')[2]
    assert ada.post("/tags", do="remove", tag="old name").status == 404
    ada.post("/tags", do="remove", tag="new & better")
    assert 'id="tags"' not in ada.get("/feeds").text


def test_lists_come_in_and_go_out(reader_server, ada, bob):
    exported = ada.get("/feeds/export.opml")
    assert "attachment" in exported.headers["Content-Disposition"]
    assert b'text="My second"' in exported.body
    answer = bob.send_file("/feeds/import", "file", exported.body)
    assert answer.redirect_path == "/unread"
    assert "1 feed is followed now; 1 were known already." in bob.get("/unread").text
    with_errors = bob.send_file(
        "/feeds/import", "file", b'<opml><body><outline text="nothing"/></body></opml>'
    )
    assert "1 line was passed over" in with_errors.text
    assert bob.send_file("/feeds/import", "file", b"<html>").status == 400
    bob.post(f"/feed/{reader_server.two}/leave")


def test_settings_are_kept_and_wrong_ones_refused(ada):
    ada.post(
        "/settings",
        theme="dark",
        order="arrival",
        page_size=25,
        timezone="Europe/Berlin",
        fold_duplicates="on",
    )
    page = ada.get("/settings").text
    assert 'data-theme="dark"' in page
    assert '<option value="arrival" selected>' in page
    assert "img-src 'self' https: http:;" in ada.get("/unread").headers["Content-Security-Policy"]
    assert ada.post("/settings", theme="pink").status == 400
    assert ada.post("/settings", page_size="9").status == 400
    assert ada.post("/settings", webhook_url="javascript:alert(1)").status == 400
    assert ada.post("/settings/theme", accept=JSON, theme="auto").json == {"theme": "auto"}
    ada.post("/settings", order="publication", page_size=25, timezone="UTC", fold_duplicates="on")


def test_a_test_that_nobody_takes_is_told_with_the_reason(bob):
    assert "Send a test" not in bob.get("/settings").text
    assert bob.post("/settings/test").status == 400
    with LocalServer() as there:
        there.answers += [503] * 100
        bob.post("/settings", webhook_url=f"{there.address}/hook")
        assert bob.post("/settings/test").redirect_path == "/settings#alerts"
        assert "on its way to 1 address." in bob.get("/settings").text
        failed = until(lambda: re.search(r"<b>http · 127.0.0.1</b>.*", bob.get("/settings").text))
    assert "503" in failed.group(0)
    assert "Tried once" in failed.group(0)
    bob.post("/settings")


def test_apps_get_tokens_that_are_shown_once_and_can_be_taken_back(ada):
    page = ada.post("/settings/apps", label="NetNewsWire")
    secret = re.search(r"<code>([a-z0-9]+)</code>", page.text).group(1)
    again = ada.get("/settings/apps").text
    assert secret not in again
    assert "never used" in again
    ada.post(
        "/settings/apps/remove",
        id=re.search(r'action="/settings/apps/remove".*?name="id" value="(\d+)"', again).group(1),
    )
    assert "NetNewsWire</b>" not in ada.get("/settings/apps").text


def test_statistics_tell_what_was_read(ada):
    page = ada.get("/statistics")
    assert page.status == 200
    assert "the last thirty days" in page.text


def test_what_browsers_install(ada):
    manifest = ada.get("/manifest.webmanifest")
    assert manifest.json["display"] == "standalone"
    for told in manifest.json["icons"]:
        icon = ada.get(told["src"])
        assert (icon.status, icon.headers["Content-Type"]) == (200, "image/png")
        assert "immutable" in icon.headers["Cache-Control"]
    worker = ada.get("/sw.js")
    for path in re.findall(r'"([\w.]+\.(?:css|js|svg))"', worker.text):
        version = re.search(r"/static/(\w+)/", worker.text).group(1)
        assert ada.get(f"/static/{version}/{path}").status == 200
    assert "cannot be reached" in ada.get("/offline").text
    assert ada.get("/static/x/..%2fapp.py").status == 404
