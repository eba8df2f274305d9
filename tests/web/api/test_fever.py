"""Fever API, with requests as its clients send them."""

from hashlib import md5

import pytest

from tests.clients.servers import GIF
from tidings.store import icons
from tidings.store.user_models import Icon, Stream


def key(user):
    return md5(f"{user.name}:{user.token}".encode()).hexdigest()


def fever(user, query="", path="/api/fever.php", **fields):
    """Send a Fever request and return its JSON; fields are sent as a form."""
    response = user.server.post(f"{path}?api&{query}", {"api_key": key(user), **fields})
    assert response.status == 200
    return response.json


@pytest.mark.parametrize("path", ["/fever/", "/fever.php", "/api/fever.php", "/api/fever.php/"])
def test_api_key_is_md5_of_name_and_token(ann, path):
    result = fever(ann, path=path)
    assert (result["api_version"], result["auth"]) == (3, 1)
    assert isinstance(result["last_refreshed_on_time"], int)


def test_missing_key_returns_auth_0(server):
    assert server.post("/api/fever.php?api&items", {"api_key": "0" * 32}).json == {
        "api_version": 3,
        "auth": 0,
    }
    assert server.call("GET", "/api/fever.php?api&items").json == {"api_version": 3, "auth": 0}


def test_key_in_upper_case_and_multipart(server, ann):
    body = (
        f"--xx\r\nContent-Disposition: form-data; "
        f'name="api_key"\r\n\r\n{key(ann).upper()}\r\n--xx--\r\n'
    )
    result = server.call(
        "POST", "/fever/?feeds", body, {"Content-Type": "multipart/form-data; boundary=xx"}
    ).json
    assert len(result["feeds"]) == 2


def test_groups_and_feeds(ann, blogs):
    result = fever(ann, "groups&feeds=1")
    groups = {group["title"]: group["id"] for group in result["groups"]}
    assert list(groups) == ["All", "Tech & Café/x+y"]
    members = {row["group_id"]: row["feed_ids"] for row in result["feeds_groups"]}
    assert members == {groups["All"]: str(ann.alpha), groups["Tech & Café/x+y"]: str(ann.beta)}
    for title, feed in ("All", ann.alpha), ("Tech & Café/x+y", ann.beta):
        assert {
            item["feed_id"] for item in fever(ann, f"items&group_ids={groups[title]}")["items"]
        } == {feed}
    alpha = next(feed for feed in result["feeds"] if feed["id"] == ann.alpha)
    assert (alpha["title"], alpha["url"], alpha["site_url"]) == (
        "Alpha",
        blogs.feed("alpha"),
        blogs.site("alpha"),
    )
    assert alpha["is_spark"] == 0


def test_favicons_have_no_data_prefix(server, ann):
    server.wait(server.site.store.write(icons.save, ann.alpha, Icon("image/gif", GIF), 0.0))
    result = fever(ann, "favicons&feeds")
    (icon,) = result["favicons"]
    assert icon["id"] == ann.alpha
    assert icon["data"].startswith("image/gif;base64,R0lGOD")
    assert (
        next(feed for feed in result["feeds"] if feed["id"] == ann.alpha)["favicon_id"] == ann.alpha
    )


def test_items_by_since_id_max_id_and_with_ids(ann):
    result = fever(ann, "items&since_id=0")
    assert result["total_items"] == 12
    assert [item["id"] for item in result["items"]] == ann.entries
    half = ann.entries[5]
    assert [i["id"] for i in fever(ann, f"items&since_id={half}")["items"]] == ann.entries[6:]
    assert [i["id"] for i in fever(ann, f"items&max_id={half}")["items"]] == ann.entries[4::-1]
    newest = [i["id"] for i in fever(ann, "items&max_id=9007199254740991")["items"]]
    assert newest == [i["id"] for i in fever(ann, "items&max_id=0")["items"]] == ann.entries[::-1]
    expected = ann.entries[2:4]
    assert [
        i["id"] for i in fever(ann, "items", with_ids=",".join(map(str, expected)))["items"]
    ] == expected
    assert fever(ann, "items&with_ids=999999")["items"] == []
    assert {i["feed_id"] for i in fever(ann, f"items&feed_ids={ann.beta}")["items"]} == {ann.beta}


def test_item_fields(ann, blogs):
    ann.mark(ann.entries[:1], unread=False, starred=True)
    item = fever(ann, "items")["items"][0]
    assert (item["is_read"], item["is_saved"], item["title"]) == (1, 1, "Alpha 2.0.1")
    assert item["url"] == f"{blogs.address}/alpha/1"
    assert "<p>" in item["html"]
    assert isinstance(item["created_on_time"], int)


def test_mark_is_idempotent(ann):
    entry = ann.entries[0]
    for _ in range(2):
        result = fever(ann, f"mark=item&as=saved&id={entry}")  # freshrss-api
        assert result["saved_item_ids"] == str(entry)
        result = fever(ann, mark="item", **{"as": "read"}, id=entry)  # Fluent Reader
        assert str(entry) not in result["unread_item_ids"].split(",")
    fever(ann, f"mark=item&as=unsaved&id={entry}")
    assert fever(ann, "saved_item_ids")["saved_item_ids"] == ""
    result = fever(ann, f"mark=item&as=unread&id={entry}")
    assert set(result["unread_item_ids"].split(",")) == set(map(str, ann.entries))


def test_mark_by_get_is_ignored(server, ann):
    result = server.call(
        "GET", f"/fever/?api&mark=item&as=read&id={ann.entries[0]}&api_key={key(ann)}"
    ).json
    assert result["auth"] == 1
    assert ann.item(ann.entries[0]).unread


def test_mark_feed_and_group_before_time(ann):
    fever(ann, f"mark=feed&as=read&id={ann.alpha}&before=1000")
    assert ann.count(Stream(unread=True)) == 12
    fever(ann, f"mark=feed&as=read&id={ann.alpha}&before=99999999999")
    assert ann.count(Stream(unread=True, feeds=(ann.alpha,))) == 0
    ann.mark(ann.entries, unread=True)
    fever(ann, f"mark=group&as=read&id={2**31 - 1}")  # feeds without folder: Alpha
    assert ann.count(Stream(unread=True, feeds=(ann.alpha,))) == 0
    fever(ann, "mark=group&as=read&id=-1")
    assert ann.count(Stream(unread=True)) == 6
    fever(ann, "mark=group&as=read&id=0")
    assert ann.count(Stream(unread=True)) == 0


def test_unread_recently_read(ann):
    fever(ann, f"mark=item&as=read&id={ann.entries[0]}")
    result = fever(ann, "unread_recently_read=1")
    assert len(result["unread_item_ids"].split(",")) == 12


def test_links_are_empty(ann):
    assert fever(ann, "links")["links"] == []
