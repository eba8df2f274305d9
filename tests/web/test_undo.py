"""Undo restores removed feeds, folders, tags, rules and searches as they were."""

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
    """Undo the action on its next page; return the message and the redirect path of the undo."""
    page = client.get(done.redirect_path)
    assert page.text.count(UNDO) == 1
    return re.search(r'<div class="toast"><span>(.*?)</span>', page.text).group(1), client.post(
        "/undo"
    ).redirect_path


def test_undo_unsubscribe_restores_settings_and_read_state(reader_server, ada):
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
    unread, counts = ada.get(f"/feed/{reader_server.one}?show=all").unread, ada.get("/counts").json
    message, path = undo_from_page(ada, ada.post(f"/feed/{reader_server.one}/unsubscribe"))
    assert message.startswith("Unsubscribed from Mine.")
    assert path == f"/feed/{reader_server.one}"
    assert ada.get("/counts").json == counts
    assert ada.get(f"/feed/{reader_server.one}?show=all").unread == unread
    assert set(read).isdisjoint(unread)
    page = ada.get(f"/feed/{reader_server.one}/about").text
    assert all(
        f'name="{name}" value="{value}"' in page
        for name, value in (("title", "Mine"), ("folder", "Shelf"))
    )
    assert 'value="early" checked' in page
    assert 'name="full_text" checked' in page
    assert "contains kettle, feed Mine" in ada.get("/rules").text


def test_undo_unsubscribe_keeps_original_title(reader_server, ada):
    undo_from_page(ada, ada.post(f"/feed/{reader_server.two}/unsubscribe"))
    assert 'name="title" value=""' in ada.get(f"/feed/{reader_server.two}/about").text


def test_entries_added_before_undo_are_unread(reader_server, ada, blogs):
    bob = reader_server.bob
    bob.subscribe(blogs.url(2))
    ada.post("/mark-all", view=f"feed/{reader_server.two}")
    response = ada.post(f"/feed/{reader_server.two}/unsubscribe")
    before = set(bob.get(f"/feed/{reader_server.two}?show=all").entries)
    blogs.advance_until_posts(2)
    bob.post(f"/feed/{reader_server.two}/poll")
    new_ids = set(bob.get(f"/feed/{reader_server.two}?show=all").entries) - before
    assert new_ids
    undo_from_page(ada, response)
    assert set(ada.get(f"/feed/{reader_server.two}?show=all").unread) == new_ids


def test_undo_folder_deletion_restores_its_feeds(reader_server, ada):
    for feed in (reader_server.one, reader_server.two):
        ada.post(f"/feed/{feed}/about", folder="Birds")
    number = re.search(
        r'/folder/(\d+)"[^>]*>(?:(?!/folder/).)*Birds', ada.get("/feeds").text, re.DOTALL
    ).group(1)
    message, path = undo_from_page(ada, ada.post("/folders", do="remove", id=number))
    assert (message, path) == ("Folder deleted. Its feeds are kept.", "/feeds#folders")
    assert all(
        'name="folder" value="Birds"' in ada.get(f"/feed/{feed}/about").text
        for feed in (reader_server.one, reader_server.two)
    )
    assert ada.post("/folders", do="remove", id=number).status == 404


def test_undo_tag_deletion_restores_tagged_entries(reader_server, ada):
    entries = ada.get(f"/feed/{reader_server.one}?show=all").entries[:3]
    for entry in entries:
        ada.post(f"/entry/{entry}", tag="to read")
    assert (
        "Tag to read removed"
        in undo_from_page(ada, ada.post("/tags", do="remove", tag="to read"))[0]
    )
    assert sorted(ada.get("/tag/to%20read").entries) == sorted(entries)
    ada.post(f"/feed/{reader_server.one}/unsubscribe")
    undo_from_page(ada, ada.post("/tags", do="remove", tag="to read"))
    # Also for entries of a feed without a subscription.
    assert sorted(ada.get("/tag/to%20read").entries) == sorted(entries)


def test_undo_restores_rules_and_searches(ada):
    ada.post("/rules", action="tag", tag="tea", words="kettle")
    number = re.findall(r'name="id" value="(\d+)"', ada.get("/rules").text)[-1]
    assert undo_from_page(ada, ada.post("/rules", do="remove", id=number))[1] == "/rules"
    assert "Add the tag “tea”, contains kettle" in ada.get("/rules").text
    saved = ada.post("/searches", q="kettle").redirect_path
    undo_from_page(ada, ada.post("/searches", do="remove", id=saved.rpartition("/")[2]))
    assert re.search(r'href="/saved/\d+"', ada.get("/unread").text)


def test_only_last_action_is_undone_and_only_once(reader_server, ada):
    ada.post("/tags", do="remove", tag="to read")
    response = ada.post(f"/feed/{reader_server.two}/unsubscribe")
    page = ada.get(response.redirect_path).text
    assert page.count('<div class="toast">') == 2
    assert page.count(UNDO) == 1
    assert ada.post("/undo", accept=JSON).json == {"done": True}
    assert ada.post("/undo", accept=JSON).json == {"done": False}
    assert ada.get(f"/feed/{reader_server.two}").status == 200
    assert ada.get("/tag/to%20read").entries == []
