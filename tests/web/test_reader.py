"""Reader pages without JavaScript: lists, articles, entry state, search, rules, feeds, settings."""

import re
import time

import pytest

from tests.local_server import LocalServer
from tests.web.client import wait_until

JSON = "application/json"


@pytest.fixture(scope="module", autouse=True)
def subscriptions(reader_server, blogs):
    """Ada is subscribed to two feeds, one in a folder; bob to one of them."""
    reader_server.ada.post("/settings", page_size=25, fold_duplicates="on")
    reader_server.one = reader_server.ada.subscribe(blogs.url(1))
    reader_server.two = reader_server.ada.subscribe(blogs.url(2))
    reader_server.ada.post(
        f"/feed/{reader_server.two}/about", title="My second", folder="Shelf", priority="early"
    )
    reader_server.bob.subscribe(blogs.url(1))


def article_title(page):
    return re.search(r'id="article-title"[^>]*>(?:<a[^>]*>)?([^<]+)', page.text).group(1)


def test_pagination_neither_skips_nor_repeats(ada):
    first = ada.get("/unread")
    assert len(first.entries) == 25
    second = ada.get(first.link(r"/unread\?[^\"]*after=[^\"]*"))
    assert len({*first.entries, *second.entries}) == 40
    assert "after=" not in second.text.partition("</ol>")[2]
    assert "Unread" in first.text
    assert ada.get("/unread?after=nonsense").status == 400


def test_opening_an_entry_keeps_it_unread_until_a_form_marks_it(ada):
    listed = ada.get("/unread")
    entry = listed.entries[3]
    page = ada.get(listed.link(rf"/unread\?[^\"]*entry={entry}"))
    assert page.entries == listed.entries
    assert article_title(page)
    assert entry in page.unread  # a GET request changes nothing
    done = ada.post(f"/entry/{entry}", read="1", next=f"/unread?entry={entry}")
    assert done.redirect_path == f"/unread?entry={entry}"
    assert entry not in ada.get("/unread").entries
    assert ada.post(f"/entry/{entry}", read="0").redirect_path == f"/entry/{entry}"
    assert ada.get("/unread").unread[3] == entry
    assert ada.post(f"/entry/{entry}", nonsense="1").status == 400


def test_part_parameter_returns_fragments(ada):
    listed = ada.get("/unread?part=list")
    assert "<html" not in listed.text
    assert len(listed.entries) == 25
    article = ada.get(f"/entry/{listed.entries[0]}?part=article")
    assert article.text.lstrip().startswith("<article")
    assert ada.get(f"/entry/{listed.entries[0]}").redirect_path.startswith("/feed/")


def test_star_tag_and_rate(reader_server, ada, bob):
    entry = ada.get(f"/feed/{reader_server.one}").entries[0]
    state = ada.post(f"/entry/{entry}", accept=JSON, star="1").json
    assert state == {"id": entry, "unread": True, "starred": True, "rating": 0, "tags": []}
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


def test_mark_all_as_read_and_undo(reader_server, ada, bob):
    before = ada.get("/counts").json
    assert before["unread"] == 40
    assert before["feeds"] == {str(reader_server.one): 20, str(reader_server.two): 20}
    (folder,) = before["folders"]
    answer = ada.post(
        "/mark-all", view=f"folder/{folder}", until=int(time.time()) + 1, next=f"/folder/{folder}"
    )
    assert answer.redirect_path == f"/folder/{folder}"
    page = ada.get(f"/folder/{folder}")
    assert "20 posts marked as read" in page.text
    assert "All caught up" in page.text
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


def test_mark_all_skips_entries_newer_than_the_page(ada):
    assert ada.post("/mark-all", accept=JSON, view="unread", until=1000).json["ids"] == 0
    assert ada.get("/counts").json["unread"] == 40


def test_search_and_saved_search(ada, bob):
    assert "Search the titles" in ada.get("/search").text
    word = article_title(ada.get(f"/unread?entry={ada.get('/unread').entries[0]}")).split()[-1]
    found = ada.get(f"/search?q={word}")
    assert 0 < len(found.entries) < 40
    assert "No results" in ada.get("/search?q=zeppelin").text
    saved = ada.post("/searches", q=word).redirect_path
    assert ada.get(saved).entries == found.entries
    assert f'href="{saved}"' in ada.get("/unread").text
    assert bob.get(saved).status == 404
    ada.post("/searches", do="remove", id=saved.rpartition("/")[2])
    assert ada.get(saved).status == 404


def test_rules_are_added_shown_and_deleted(reader_server, ada):
    assert (
        ada.post(
            "/rules", action="tag", tag="kettles", words="kettle", feed_id=reader_server.two
        ).redirect_path
        == "/rules"
    )
    page = ada.get("/rules").text
    assert "Add the tag “kettles”, contains kettle, feed My second" in page
    assert ada.post("/rules", action="star", regex="(").status == 400
    assert ada.post("/rules", action="explode").status == 400
    ada.post("/rules", do="remove", id=re.search(r'name="id" value="(\d+)"', page).group(1))
    assert "No rules yet" in ada.get("/rules").text


def test_site_with_several_feeds_offers_a_choice(ada, blogs):
    page = ada.post("/feeds/add", url=blogs.site(3))
    assert page.status == 200
    choices = re.findall(r'name="choice" value="([^"]+)"', page.text)
    assert len(choices) == 2
    assert "already subscribed" not in page.text
    added = ada.post("/feeds/add", url=blogs.site(3), choice=choices[1], folder="Shelf")
    again = ada.post("/feeds/add", url=blogs.site(3)).text
    assert f'<a href="{added.redirect_path}">already subscribed</a>' in again
    assert re.findall(r'name="choice" value="[^"]+"( \w+)', again) == [" checked", " disabled"]
    other = ada.subscribe(choices[0])
    assert (
        "You are already subscribed to all feeds of 127.0.0.1."
        in ada.post("/feeds/add", url=blogs.site(3)).text
    )
    ada.post(f"/feed/{other}/unsubscribe")
    feed = int(added.redirect_path.rpartition("/")[2])
    assert len(ada.get(added.redirect_path).entries) == 20
    assert "Unsubscribed from" in ada.get(ada.post(f"/feed/{feed}/unsubscribe").redirect_path).text
    assert ada.get(f"/feed/{feed}").status == 404


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "enter the address"),
        ("127.0.0.1:9", "connection refused"),
        ("ftp://a.example/", ">ftp"),
    ],
)
def test_adding_invalid_address_shows_error(ada, url, message):
    page = ada.post("/feeds/add", url=url)
    assert page.status == 400
    assert message in page.text.lower()


def test_feed_page_shows_settings_and_checks_now(reader_server, ada, blogs):
    page = ada.get(f"/feed/{reader_server.two}/about").text
    assert 'name="title" value="My second"' in page
    assert 'name="folder" value="Shelf"' in page
    assert 'value="early" checked' in page
    assert "Next check" in page
    requests = len(blogs.requested_paths)
    page_path = ada.post(f"/feed/{reader_server.two}/poll").redirect_path
    assert len(blogs.requested_paths) == requests + 1
    assert "No new posts." in ada.get(page_path).text


def test_folders_are_added_renamed_and_deleted(ada):
    ada.post("/folders", do="add", name="Empty")
    number = re.search(
        r'value="(\d+)">\s*<label class="grow"><span class="sr-only">[^<]*</span>'
        r'<input name="name" value="Empty"',
        ada.get("/feeds").text,
    )
    ada.post("/folders", do="rename", id=number.group(1), name="Still empty")
    assert ada.post("/folders", do="add", name="Still empty").status == 400
    assert "Still empty" in ada.get("/feeds").text
    ada.post("/folders", do="remove", id=number.group(1))
    assert "Still empty" not in ada.get("/feeds").text


def test_tags_are_renamed_and_deleted(ada):
    entry = ada.get("/all").entries[0]
    ada.post(f"/entry/{entry}", tag="old name")
    assert (
        ada.post("/tags", do="rename", tag="old name", name="new & better").redirect_path
        == "/feeds#tags"
    )
    assert ada.get("/tag/new%20%26%20better").entries == [entry]
    assert "1 post" in ada.get("/feeds").text.partition('id="tags"')[2]
    assert ada.post("/tags", do="remove", tag="old name").status == 404
    ada.post("/tags", do="remove", tag="new & better")
    assert 'id="tags"' not in ada.get("/feeds").text


def test_opml_export_and_import(reader_server, ada, bob):
    exported = ada.get("/feeds/export.opml")
    assert "attachment" in exported.headers["Content-Disposition"]
    assert b'text="My second"' in exported.body
    answer = bob.send_file("/feeds/import", "file", exported.body)
    assert answer.redirect_path == "/unread"
    assert "Imported 1 feed. You were already subscribed to 1 feed." in bob.get("/unread").text
    with_errors = bob.send_file(
        "/feeds/import", "file", b'<opml><body><outline text="nothing"/></body></opml>'
    )
    assert "1 line skipped" in with_errors.text
    assert bob.send_file("/feeds/import", "file", b"<html>").status == 400
    bob.post(f"/feed/{reader_server.two}/unsubscribe")


def test_settings_are_saved_and_invalid_ones_rejected(ada):
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


def test_failed_test_notification_is_listed_with_its_error(bob):
    assert "Send test" not in bob.get("/settings").text
    assert bob.post("/settings/test").status == 400
    with LocalServer() as server:
        server.answers += [503] * 100
        bob.post("/settings", webhook_url=f"{server.address}/hook")
        assert bob.post("/settings/test").redirect_path == "/settings#alerts"
        assert "Sending a test notification to 1 address." in bob.get("/settings").text
        failed = wait_until(
            lambda: re.search(r"<b>http · 127.0.0.1</b>.*", bob.get("/settings").text)
        )
    assert "503" in failed.group(0)
    assert "1 attempt" in failed.group(0)
    bob.post("/settings")


def test_app_token_is_shown_once_and_can_be_revoked(ada):
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


def test_statistics_page(ada):
    page = ada.get("/statistics")
    assert page.status == 200
    assert "last 30 days" in page.text


def test_manifest_and_service_worker(ada):
    manifest = ada.get("/manifest.webmanifest")
    assert manifest.json["display"] == "standalone"
    for manifest_icon in manifest.json["icons"]:
        icon = ada.get(manifest_icon["src"])
        assert (icon.status, icon.headers["Content-Type"]) == (200, "image/png")
        assert "immutable" in icon.headers["Cache-Control"]
    worker = ada.get("/sw.js")
    for path in re.findall(r'"([\w.]+\.(?:css|js|svg))"', worker.text):
        version = re.search(r"/static/(\w+)/", worker.text).group(1)
        assert ada.get(f"/static/{version}/{path}").status == 200
    assert "Reconnect to load articles" in ada.get("/offline").text
    assert ada.get("/static/x/..%2fapp.py").status == 404
