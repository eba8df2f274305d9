"""What was removed is there again when it is taken back, as it was."""

import re

import pytest

from tests.web.test_reader import JSON

UNDO = '<form method="post" action="/undo">'


@pytest.fixture(scope="module", autouse=True)
def subscribed_feeds(reader_server, blogs):
    reader_server.one, reader_server.two = (
        reader_server.ada.subscribe(blogs.url(number)) for number in (1, 2)
    )


def undo_from_page(client, done):
    """On the page that follows: returns what it said, and where taking back led."""
    page = client.get(done.redirect_path)
    assert page.text.count(UNDO) == 1
    return re.search(r'<div class="note"><span>(.*?)</span>', page.text).group(1), client.post(
        "/undo"
    ).redirect_path


def test_a_feed_is_followed_again_as_it_was(reader_server, ada):
    ada.post(
        f"/feed/{reader_server.one}/about",
        title="Mine",
        folder="Shelf",
        priority="early",
        full_text="on",
    )
    read = ada.get(f"/feed/{reader_server.one}").entries[3:7]
    ada.post("/mark", ids=",".join(map(str, read)), unread="0")
    ada.post(f"/entry/{read[0]}", star="1")
    ada.post("/rules", action="star", words="kettle", feed_id=reader_server.one)
    unread, counted = ada.get(f"/feed/{reader_server.one}?show=all").unread, ada.get("/counts").json
    said, led = undo_from_page(ada, ada.post(f"/feed/{reader_server.one}/leave"))
    assert said.startswith("Unsubscribed from Mine.")
    assert led == f"/feed/{reader_server.one}"
    assert ada.get("/counts").json == counted
    assert ada.get(f"/feed/{reader_server.one}?show=all").unread == unread
    assert set(read).isdisjoint(unread)
    page = ada.get(f"/feed/{reader_server.one}/about").text
    assert all(
        f'name="{name}" value="{value}"' in page
        for name, value in (("title", "Mine"), ("folder", "Shelf"))
    )
    assert 'value="early" checked' in page
    assert 'name="full_text" checked' in page
    assert "with the words kettle, in Mine" in ada.get("/rules").text


def test_a_feed_that_goes_by_its_own_title_does_so_again(reader_server, ada):
    undo_from_page(ada, ada.post(f"/feed/{reader_server.two}/leave"))
    assert 'name="title" value=""' in ada.get(f"/feed/{reader_server.two}/about").text


def test_what_came_meanwhile_is_unread(reader_server, ada, blogs):
    bob = reader_server.bob
    bob.subscribe(blogs.url(2))
    ada.post("/mark-all", view=f"feed/{reader_server.two}")
    left = ada.post(f"/feed/{reader_server.two}/leave")
    before = set(bob.get(f"/feed/{reader_server.two}?show=all").entries)
    blogs.until_news(2)
    bob.post(f"/feed/{reader_server.two}/look")
    came = set(bob.get(f"/feed/{reader_server.two}?show=all").entries) - before
    assert came
    undo_from_page(ada, left)
    assert set(ada.get(f"/feed/{reader_server.two}?show=all").unread) == came


def test_a_folder_has_its_feeds_again(reader_server, ada):
    for feed in (reader_server.one, reader_server.two):
        ada.post(f"/feed/{feed}/about", folder="Birds")
    number = re.search(
        r'/folder/(\d+)"[^>]*>(?:(?!/folder/).)*Birds', ada.get("/feeds").text, re.DOTALL
    ).group(1)
    said, led = undo_from_page(ada, ada.post("/folders", do="remove", id=number))
    assert (said, led) == ("The folder is gone; its feeds stay.", "/feeds#folders")
    assert all(
        'name="folder" value="Birds"' in ada.get(f"/feed/{feed}/about").text
        for feed in (reader_server.one, reader_server.two)
    )
    assert ada.post("/folders", do="remove", id=number).status == 404


def test_a_tag_is_on_its_entries_again(reader_server, ada):
    entries = ada.get(f"/feed/{reader_server.one}?show=all").entries[:3]
    for entry in entries:
        ada.post(f"/entry/{entry}", tag="to read")
    assert (
        "The tag to read is gone"
        in undo_from_page(ada, ada.post("/tags", do="remove", tag="to read"))[0]
    )
    assert sorted(ada.get("/tag/to%20read").entries) == sorted(entries)
    ada.post(f"/feed/{reader_server.one}/leave")
    undo_from_page(ada, ada.post("/tags", do="remove", tag="to read"))
    assert sorted(ada.get("/tag/to%20read").entries) == sorted(
        entries
    )  # also where the feed is no longer followed


def test_rules_and_searches_come_back(ada):
    ada.post("/rules", action="tag", tag="tea", words="kettle")
    number = re.findall(r'name="id" value="(\d+)"', ada.get("/rules").text)[-1]
    assert undo_from_page(ada, ada.post("/rules", do="remove", id=number))[1] == "/rules"
    assert "Tagged “tea”, with the words kettle" in ada.get("/rules").text
    kept = ada.post("/searches", q="kettle").redirect_path
    undo_from_page(ada, ada.post("/searches", do="remove", id=kept.rpartition("/")[2]))
    assert re.search(r'href="/saved/\d+"', ada.get("/unread").text)


def test_only_what_was_done_last_is_taken_back_and_only_once(reader_server, ada):
    ada.post("/tags", do="remove", tag="to read")
    left = ada.post(f"/feed/{reader_server.two}/leave")
    page = ada.get(left.redirect_path).text
    assert page.count('<div class="note">') == 2
    assert page.count(UNDO) == 1
    assert ada.post("/undo", accept=JSON).json == {"done": True}
    assert ada.post("/undo", accept=JSON).json == {"done": False}
    assert ada.get(f"/feed/{reader_server.two}").status == 200
    assert ada.get("/tag/to%20read").entries == []
