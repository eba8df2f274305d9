"""Google Reader API, with requests as its clients send them (docs/api.md lists them)."""

import time
import xml.etree.ElementTree as ET
from urllib.parse import quote

import pytest

from tests.clients.servers import PASSWORD
from tidings.store.user_models import Stream
from tidings.web.api.google_streams import ID_OFFSET, entry_id, long_id

STATE = "user/-/state/com.google/"
LABEL = "user/-/label/"
FOLDER = "Tech & Café/x+y"


def ids(user, **params):
    """Return the entry ids of a stream."""
    query = "&".join(
        f"{name}={quote(str(v))}"
        for name, value in params.items()
        for v in ([value] if not isinstance(value, list) else value)
    )
    return [
        int(ref["id"]) - ID_OFFSET
        for ref in user.google(f"stream/items/ids?{query}").json["itemRefs"]
    ]


def edit(user, entry, **tags):
    response = user.google(
        "edit-tag",
        {
            "i": long_id(entry),
            **{k: [STATE + t for t in v.split()] for k, v in tags.items()},
            "T": "x\n",
        },
    )
    assert (response.status, response.body) == (200, b"OK")


# --- authentication -------------------------------------------------------------------------------


def test_client_login_returns_three_lines(server, ann):
    result = server.post(
        "/accounts/ClientLogin", {"Email": "ann", "Passwd": PASSWORD, "source": "newsboat0.000000"}
    )
    lines = result.text.splitlines()
    assert result.status == 200
    assert result.text.endswith("\n")
    assert [line.split("=")[0] for line in lines] == ["SID", "LSID", "Auth"]
    assert all(line.count("=") == 1 for line in lines)
    assert not set(lines[2].removeprefix("Auth=")) & set("&+;\\ ")


def test_client_login_json_get_and_multipart(server, ann):
    query = f"Email=ann&Passwd={quote(PASSWORD)}&output=json"
    assert server.call("GET", f"/accounts/ClientLogin?{query}").json["Auth"] == ann.auth
    part = '--xx\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    body = part.format("Email", "ann") + part.format("Passwd", PASSWORD) + "--xx--\r\n"
    result = server.call(
        "POST", "/accounts/ClientLogin", body, {"Content-Type": "multipart/form-data; boundary=xx"}
    )
    assert f"Auth={ann.auth}\n" in result.text


def test_wrong_password_returns_bad_authentication(server, ann):
    result = server.post("/accounts/ClientLogin", {"Email": "ann", "Passwd": "wrong"})
    assert (result.status, result.text) == (401, "Error=BadAuthentication\n")


@pytest.mark.parametrize("prefix", ["", "/api/greader.php", "//", "/some/proxy"])
def test_any_path_prefix_is_accepted(ann, prefix):
    assert ann.google("user-info", prefix=prefix.rstrip("/")).json["userName"] == "ann"
    assert ann.google("user-info", prefix=prefix).json["userName"] == "ann"


def test_base_url_returns_ok(server):
    assert server.call("GET", "/api/greader.php").text == "OK"
    assert server.call("GET", "/api/greader.php/").text == "OK"
    assert server.call("GET", "/reader/ping").text == "OK"


def test_invalid_token_returns_bad_token_header(server):
    result = server.call(
        "GET", "/reader/api/0/subscription/list", None, {"Authorization": "GoogleLogin auth=1/abc"}
    )
    assert result.status == 401
    assert result.headers["X-Reader-Google-Bad-Token"] == "true"


def test_auth_header_is_case_insensitive(server, ann):
    result = server.call(
        "GET", "/reader/api/0/user-info", None, {"Authorization": f"googlelogin AUTH={ann.auth}"}
    )
    assert result.json["userName"] == "ann"


def test_auth_token_as_t_is_accepted_only_in_post(server, ann):
    """Liferea sends no Authorization header with this request."""
    result = server.post(
        "/reader/api/0/stream/items/contents", {"T": ann.auth, "i": long_id(ann.entries[0])}
    )
    assert len(result.json["items"]) == 1
    assert server.call("GET", f"/reader/api/0/subscription/list?T={ann.auth}").status == 401


@pytest.mark.parametrize("token", [None, "", "x", "undefined", "issued", "issued\n"])
def test_write_accepts_any_t(ann, token):
    issued = ann.google("token").text
    fields = {"i": long_id(ann.entries[0]), "a": STATE + "read"}
    if token is not None:
        fields["T"] = token.replace("issued", issued.strip())
    assert ann.google("edit-tag", fields).text == "OK"
    assert not ann.item(ann.entries[0]).unread


def test_write_by_get_returns_405(ann):
    result = ann.google(f"edit-tag?i={long_id(ann.entries[0])}&a={STATE}read")
    assert result.status == 405
    assert ann.item(ann.entries[0]).unread


# --- ids ------------------------------------------------------------------------------------------


def test_item_id_forms():
    assert long_id(7) == "tag:google.com,2005:reader/item/00038d7ea4c68007"
    for form in (
        long_id(7),
        "tag:google.com,2005:reader/item/38d7ea4c68007",
        "00038d7ea4c68007",
        "1000000000000007",
    ):
        assert entry_id(form) == 7
    for invalid in (
        "",
        "7",
        "x",
        "-355401917359550817",
        "tag:google.com,2005:reader/item/fb115bd6d34a8e9f",
        "9" * 30,
    ):
        assert entry_id(invalid) is None


# --- labels and subscriptions ---------------------------------------------------------------------


def test_subscription_list_has_required_fields(ann, blogs):
    alpha, beta = sorted(
        ann.google("subscription/list?output=json").json["subscriptions"], key=lambda s: s["id"]
    )
    assert (alpha["id"], alpha["title"], alpha["url"]) == (
        f"feed/{ann.alpha}",
        "Alpha",
        blogs.feed("alpha"),
    )
    assert alpha["categories"] == []
    assert beta["categories"] == [{"id": LABEL + FOLDER, "label": FOLDER}]
    for field in ("sortid", "firstitemmsec", "htmlUrl", "iconUrl"):
        assert isinstance(alpha[field], str)


def test_etag_returns_304(server, ann):
    for call in ("subscription/list", "tag/list"):
        tag = ann.google(call).headers["ETag"]
        headers = {"Authorization": f"GoogleLogin auth={ann.auth}", "If-None-Match": tag}
        again = server.call("GET", f"/reader/api/0/{call}", None, headers)
        assert (again.status, again.body) == (304, b"")


def test_tag_list_distinguishes_tags_and_folders(ann):
    ann.mark(ann.entries[:1], add_tags=["later"])
    tags = ann.google("tag/list").json["tags"]
    assert {"id": STATE + "starred"} in tags
    assert {"id": LABEL + FOLDER, "type": "folder", "unread_count": 6} in tags
    assert {"id": LABEL + "later", "type": "tag", "unread_count": 1} in tags


def test_label_of_folder_and_tag_is_listed_as_folder(ann):
    ann.mark(ann.entries[:1], add_tags=[FOLDER])
    tags = ann.google("tag/list").json["tags"]
    assert [tag for tag in tags if tag["id"] == LABEL + FOLDER] == [
        {"id": LABEL + FOLDER, "type": "folder", "unread_count": 6}
    ]
    counts = [
        row["count"]
        for row in ann.google("unread-count").json["unreadcounts"]
        if row["id"] == LABEL + FOLDER
    ]
    assert counts == [6]


def test_unread_count_of_feeds_labels_and_all(ann):
    edit(ann, ann.entries[0], a="read")
    result = ann.google("unread-count?all=true").json
    counts = {row["id"]: row["count"] for row in result["unreadcounts"]}
    assert result["max"] == counts[STATE + "reading-list"] == 11
    assert counts[f"feed/{ann.beta}"] == counts[LABEL + FOLDER] == 6
    newest = {row["id"]: int(row["newestItemTimestampUsec"]) for row in result["unreadcounts"]}
    assert abs(newest[STATE + "reading-list"] / 1e6 - time.time()) < 600


# --- streams --------------------------------------------------------------------------------------


def test_item_refs_have_only_id(ann):
    result = ann.google("stream/items/ids?n=3").json
    assert [set(ref) for ref in result["itemRefs"]] == [{"id"}] * 3
    assert all(len(ref["id"]) == 16 and ref["id"].isdecimal() for ref in result["itemRefs"])


def test_streams_by_name(ann):
    first, second, *_others = ann.entries
    edit(ann, first, a="read")
    edit(ann, second, a="starred")
    everything = list(reversed(ann.entries))
    assert ids(ann, n=100) == ids(ann, n=100, s=STATE + "reading-list") == everything
    assert ids(ann, n=100, s="user/1234/state/com.google/read") == [first]
    assert ids(ann, n=100, s=STATE + "starred") == [second]
    assert ids(ann, n=100, s=STATE + "unread") == [i for i in everything if i != first]
    assert ids(ann, n=100, s=f"feed/{ann.alpha}") == ids(ann, n=100, s=f"feed/feed/{ann.alpha}")
    assert sorted(ids(ann, n=100, s=LABEL + FOLDER)) == sorted(
        ids(ann, n=100, s=f"feed/{ann.beta}")
    )
    assert (
        ids(ann, s=LABEL + "nothing")
        == ids(ann, s=STATE + "broadcast")
        == ids(ann, s="feed/999")
        == []
    )
    assert ids(ann, n=100, r="o") == ann.entries


def test_stream_by_feed_url(ann, blogs):
    assert (
        ids(ann, n=100, s="feed/" + blogs.feed("alpha"))
        == ids(ann, n=100, s=f"feed/{ann.alpha}")
        != []
    )


def test_exclusions_and_intersections(ann):
    first, second, *others = ann.entries
    edit(ann, first, a="read")
    edit(ann, second, a="starred read")
    assert ids(ann, n=100, xt=[STATE + "read", STATE + "starred"], r="o") == others
    assert ids(ann, n=100, xt=STATE + "unread", r="o") == [first, second]
    assert ids(ann, n=100, it=[STATE + "read", STATE + "starred"]) == [second]
    assert ids(ann, n=100, xt=f"feed/{ann.alpha}") == ids(
        ann, n=100, xt=f"feed/{ann.alpha}", s=LABEL + FOLDER
    )
    assert ids(ann, n=100, s=f"feed/{ann.alpha}", it=LABEL + FOLDER) == []
    assert ids(ann, n=100, s=STATE + "read", xt=STATE + "read") == []


def test_ot_and_nt_are_arrival_times(ann):
    """All entries were published hours ago and received just now."""
    now = int(time.time())
    assert len(ids(ann, n=100, ot=now - 600)) == 12
    assert ids(ann, n=100, ot=now + 600) == []
    assert ids(ann, n=100, nt=now - 600) == []


@pytest.mark.parametrize("order", ["", "o"])
def test_pagination_is_stable_during_marking(ann, order):
    seen, after = [], ""
    for _ in range(20):
        result = ann.google(f"stream/items/ids?n=5&xt={STATE}read&r={order}&c={after}").json
        page = [int(ref["id"]) - ID_OFFSET for ref in result["itemRefs"]]
        ann.google("edit-tag", {"i": [str(i + ID_OFFSET) for i in page], "a": STATE + "read"})
        seen += page
        after = result.get("continuation")
        if after is None:
            break
    assert sorted(seen) == ann.entries


def test_last_page_has_no_continuation(ann):
    assert "continuation" not in ann.google("stream/items/ids?n=12").json
    assert ann.google("stream/items/ids?n=11").json["continuation"]
    assert ann.google("stream/items/ids?n=2&c=nonsense").status == 400


def test_item_has_required_fields(ann, blogs):
    ann.mark(ann.entries[:1], starred=True, unread=False, add_tags=["later"])
    result = ann.google(
        "stream/items/contents",
        {"i": [str(ann.entries[0] + ID_OFFSET), "nonsense", "1000000000999999"]},
    ).json
    (item,) = result["items"]
    assert isinstance(result["id"], str)
    assert isinstance(result["updated"], int)
    assert item["id"] == long_id(ann.entries[0])
    assert isinstance(item["published"], int)
    assert isinstance(item["crawlTimeMsec"], str)
    assert isinstance(item["timestampUsec"], str)
    assert (
        item["canonical"][0]["href"] == item["alternate"][0]["href"] == f"{blogs.address}/alpha/1"
    )
    assert "<p>" in item["summary"]["content"]
    assert item["origin"] == {
        "streamId": f"feed/{ann.alpha}",
        "title": "Alpha",
        "htmlUrl": blogs.site("alpha"),
    }
    assert item["enclosure"][0]["type"] == "audio/mpeg"
    assert {STATE + "reading-list", STATE + "read", STATE + "starred", LABEL + "later"} == set(
        item["categories"]
    )


@pytest.mark.parametrize("stream", ["feed/{}", "feed%2F{}"])
def test_stream_contents_by_path(ann, stream):
    result = ann.google(f"stream/contents/{stream.format(ann.alpha)}?n=4").json
    assert len(result["items"]) == 4
    assert result["continuation"]
    assert result["id"] == f"feed/{ann.alpha}"
    more = ann.google(
        f"stream/contents/{stream.format(ann.alpha)}?n=4&c={result['continuation']}"
    ).json
    assert len(more["items"]) == 2
    assert "continuation" not in more


def test_label_with_special_characters_in_path(ann):
    result = ann.google(f"stream/contents/{quote(LABEL + FOLDER, safe='')}?n=10").json
    assert len(result["items"]) == 6
    assert result["title"] == FOLDER


def test_contents_default_to_reading_list(ann):
    assert len(ann.google("stream/contents?output=json&n=100").json["items"]) == 12


def test_atom_has_read_state_for_newsboat(server, ann):
    edit(ann, ann.entries[0], a="read")
    headers = {"Authorization": f"GoogleLogin auth={ann.auth}"}
    result = server.call("GET", f"/reader/atom/feed%2F{ann.alpha}?n=20", None, headers)
    assert result.headers["Content-Type"].startswith("application/atom+xml")
    atom = "{http://www.w3.org/2005/Atom}"
    labels = {
        entry.find(atom + "id").text: {c.get("label") for c in entry.iter(atom + "category")}
        for entry in ET.fromstring(result.body).iter(atom + "entry")
    }
    assert "read" in labels[long_id(ann.entries[0])]
    assert "fresh" not in labels[long_id(ann.entries[0])]
    assert "fresh" in labels[long_id(ann.entries[1])]
    assert "read" not in labels[long_id(ann.entries[1])]


def test_atom_drops_invalid_xml_characters(server, ann):
    """Titles of JSON feeds and tags of users can contain such characters."""
    ann.mark(ann.entries[:1], add_tags=["a\x01b\ufffe"])
    title = ann.item(ann.entries[0]).entry.title
    ann.override_text(ann.entries[0], title="bell \x07")
    result = server.call(
        "GET",
        f"/reader/atom/feed%2F{ann.alpha}",
        None,
        {"Authorization": f"GoogleLogin auth={ann.auth}"},
    )
    ann.override_text(ann.entries[0], title=title)
    found = ET.fromstring(result.body)
    assert "bell " in {node.text for node in found.iter("{http://www.w3.org/2005/Atom}title")}
    assert LABEL + "ab" in {
        node.get("term") for node in found.iter("{http://www.w3.org/2005/Atom}category")
    }


def test_legacy_calls(server, ann):
    assert ann.google(f"stream/items/count?s=feed/{ann.alpha}").text == "6"
    assert ann.google(f"subscribed?s=feed/{ann.alpha}").text == "true"
    assert ann.google("subscribed?s=feed/999").text == "false"
    assert ann.google("preference/list").json == {"prefs": []}
    assert ann.google("preference/stream/list").json == {"streamprefs": {}}
    assert ann.google("friend/list").json == {"friends": []}
    assert ann.google("preference/stream/set", {"s": "x"}).text == "OK"
    assert ann.google("0undefined").status == 404
    assert (
        server.call("OPTIONS", "/reader/api/0/tag/list").headers["Access-Control-Allow-Origin"]
        == "*"
    )


# --- changes --------------------------------------------------------------------------------------


def test_read_has_precedence_over_kept_unread(ann):
    """newsboat sends both tags."""
    entry = ann.entries[0]
    edit(ann, entry, a="read", r="kept-unread")
    assert not ann.item(entry).unread
    edit(ann, entry, r="read", a="kept-unread tracking-kept-unread")
    assert ann.item(entry).unread
    edit(ann, entry, r="kept-unread")
    assert not ann.item(entry).unread


def test_stars_and_tags(ann):
    entry = ann.entries[0]
    edit(ann, entry, a="starred broadcast like")
    ann.google("edit-tag", {"i": long_id(entry), "a": LABEL + "für später/&"})
    assert ann.item(entry).starred
    assert ann.item(entry).tags == ("für später/&",)
    edit(ann, entry, r="starred")
    ann.google("edit-tag", {"i": long_id(entry), "r": LABEL + "für später/&"})
    assert not ann.item(entry).starred
    assert ann.item(entry).tags == ()


def test_label_without_items_creates_folder(ann):
    assert ann.google("edit-tag", {"a": LABEL + "Empty"}).text == "OK"
    assert ann.google("edit-tag", {"a": LABEL + "Empty"}).text == "OK"
    assert "Empty" in [folder.name for folder in ann.folders()]
    assert ann.google("disable-tag", {"s": LABEL + "Empty"}).text == "OK"
    assert "Empty" not in [folder.name for folder in ann.folders()]


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000, 1_000_000_000])
def test_mark_all_as_read_accepts_all_time_units(ann, scale):
    ann.google("mark-all-as-read", {"s": f"feed/{ann.alpha}", "ts": int(time.time() - 600) * scale})
    assert ann.count(Stream(unread=True)) == 12
    ann.google("mark-all-as-read", {"s": f"feed/{ann.alpha}", "ts": int(time.time() + 600) * scale})
    assert ann.count(Stream(unread=True)) == ann.count(Stream(unread=True, feeds=(ann.beta,))) == 6


def test_mark_all_as_read_without_time_or_stream(ann):
    assert ann.google("mark-all-as-read", {"T": "x"}).status == 400
    assert ann.count(Stream(unread=True)) == 12
    assert ann.google("mark-all-as-read", {"s": f"feed/{ann.alpha}", "ts": "0"}).text == "OK"
    assert ann.count(Stream(unread=True)) == 6
    assert ann.google("mark-all-as-read", {"s": STATE + "reading-list", "T": "x"}).text == "OK"
    assert ann.count(Stream(unread=True)) == 0


def test_quickadd_then_edit_and_unsubscribe(ann, blogs):
    result = ann.google("subscription/quickadd", {"quickadd": blogs.site("gamma")}).json
    assert result["numResults"] == 1
    assert result["streamName"] == "Gamma"
    name = result["streamId"]

    def listed():
        return {s["id"]: s for s in ann.google("subscription/list").json["subscriptions"]}.get(name)

    assert listed()["url"] == blogs.feed("gamma")
    ann.google(
        "subscription/edit", {"ac": "edit", "s": name, "t": "My gamma", "a": LABEL + "Greek"}
    )
    assert (listed()["title"], listed()["categories"][0]["label"]) == ("My gamma", "Greek")
    ann.google("rename-tag", {"s": LABEL + "Greek", "dest": LABEL + "Hellenic"})
    assert listed()["categories"][0]["label"] == "Hellenic"
    ann.google("subscription/edit", {"ac": "edit", "s": name, "r": LABEL + "Hellenic"})
    assert listed()["categories"] == []
    assert (
        ann.google(
            "subscription/edit", {"ac": "unsubscribe", "s": "feed/" + blogs.feed("gamma")}
        ).text
        == "OK"
    )
    assert listed() is None


def test_quickadd_failure_returns_error(ann, blogs):
    result = ann.google("subscription/quickadd", {"quickadd": blogs.address + "/nothing"})
    assert result.status == 200
    assert result.json["numResults"] == 0
    assert result.json["error"]


def test_subscribe_with_title_and_folder(ann, blogs):
    fields = {
        "ac": "subscribe",
        "s": "feed/" + blogs.feed("delta"),
        "t": "Mine",
        "a": LABEL + "Greek",
    }
    assert ann.google("subscription/edit", fields).text == "OK"
    (found,) = [s for s in ann.subscriptions() if s.feed.url == blogs.feed("delta")]
    assert (found.title, found.folder) == ("Mine", "Greek")
    assert ann.google("subscription/edit", {"ac": "edit", "a": LABEL + "Latin"}).text == "OK"
    assert [folder.feeds for folder in ann.folders() if folder.name == "Latin"] == [0]
    assert (
        ann.google(
            "subscription/edit", {**fields, "t": "Still mine", "a": LABEL + LABEL + "Latin"}
        ).text
        == "OK"
    )
    again = ann.subscription(found.feed.id)
    assert (again.title, again.folder) == ("Still mine", "Latin")
    ann.google("disable-tag", {"s": LABEL + "Latin"})
    ann.google("disable-tag", {"s": LABEL + "Greek"})
    ann.unsubscribe(found.feed.id)


def test_opml_export_and_import(server, ann, blogs):
    opml = ann.google("subscription/export").text
    assert blogs.feed("alpha") in opml
    headers = {"Authorization": f"GoogleLogin auth={ann.auth}"}
    assert (
        blogs.feed("beta") in server.call("GET", "/reader/subscriptions/export", None, headers).text
    )
    new = opml.replace("/alpha/", "/omega/").encode()
    result = server.call(
        "POST", "/reader/api/0/subscription/import", new, {**headers, "Content-Type": "text/xml"}
    )
    assert result.text == "OK"
    (found,) = [s for s in ann.subscriptions() if s.feed.url == blogs.feed("omega")]
    ann.unsubscribe(found.feed.id)
