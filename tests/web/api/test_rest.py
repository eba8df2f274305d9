"""Miniflux API: status codes, errors and fields; and the extensions."""

import base64

import pytest

from tests.clients.servers import PASSWORD
from tidings.store import peers
from tidings.store.user_models import Stream


def basic(name, password=PASSWORD, encoding="utf-8"):
    return {
        "Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode(encoding)).decode()
    }


def titles(response):
    return [entry["title"] for entry in response.json["entries"]]


# --- authentication -------------------------------------------------------------------------------


def test_authentication_by_token_and_password(server, ann):
    assert ann.rest("GET", "/v1/me").json["username"] == "ann"
    assert server.call("GET", "/v1/me", None, basic("ann")).json["is_admin"] is True
    assert server.call("GET", "/v1/me", None, basic("ann", ann.token)).status == 200


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_non_ascii_password_encodings(server, ann, encoding):
    ann.rest("POST", "/v1/users", {"username": f"jo-{encoding}", "password": "grüße, jö!"})
    assert (
        server.call("GET", "/v1/me", None, basic(f"jo-{encoding}", "grüße, jö!", encoding)).status
        == 200
    )


def test_unauthenticated_request_returns_401(server):
    for headers in (
        {},
        basic("ann", "wrong"),
        {"X-Auth-Token": "nonsense"},
        {"Authorization": "Basic ???"},
    ):
        result = server.call("GET", "/v1/feeds", None, headers)
        assert (result.status, result.json) == (401, {"error_message": "access unauthorized"})
        assert result.headers["WWW-Authenticate"].startswith("Basic")


def test_failed_logins_are_rate_limited(server, ann):
    ann.rest("POST", "/v1/users", {"username": "guessed", "password": PASSWORD})
    result = [
        server.call("GET", "/v1/me", None, basic("guessed", f"guess {n}")).status for n in range(7)
    ]
    assert result[:5] == [401] * 5
    assert result[-1] == 429
    last = server.call("GET", "/v1/me", None, basic("guessed"))
    assert last.status == 429
    assert int(last.headers["Retry-After"]) > 0


# --- users and keys -------------------------------------------------------------------------------


def test_users_require_admin(ann, bob):
    created = ann.rest("POST", "/v1/users", {"username": "cid", "password": PASSWORD})
    assert created.status == 201
    assert created.json["username"] == "cid"
    assert "password" not in created.json
    number = created.json["id"]
    assert ann.rest("GET", f"/v1/users/{number}").json == ann.rest("GET", "/v1/users/cid").json
    assert ann.rest("POST", "/v1/users", {"username": "cid", "password": PASSWORD}).status == 400
    for method, path in [
        ("GET", "/v1/users"),
        ("GET", f"/v1/users/{number}"),
        ("DELETE", f"/v1/users/{number}"),
    ]:
        assert bob.rest(method, path).status == 403
    assert bob.rest("PUT", f"/v1/users/{number}", {"theme": "dark_serif"}).status == 403
    assert bob.rest("PUT", f"/v1/users/{bob.user.id}", {"is_admin": True}).status == 400
    assert ann.rest("DELETE", f"/v1/users/{ann.user.id}").status == 400
    assert ann.rest("DELETE", f"/v1/users/{number}").status == 204
    assert ann.rest("GET", f"/v1/users/{number}").status == 404


def test_unused_options_are_stored_and_returned(bob):
    result = bob.rest(
        "PUT",
        f"/v1/users/{bob.user.id}",
        {"theme": "dark_serif", "external_font_hosts": " a.example "},
    )
    assert result.status == 201
    assert (result.json["theme"], result.json["external_font_hosts"]) == ("dark_serif", "a.example")
    assert bob.rest("GET", "/v1/me").json["theme"] == "dark_serif"
    assert bob.rest("PUT", f"/v1/users/{bob.user.id}", {"theme": "no such theme"}).status == 400


def test_api_key_secret_is_shown_once_and_revocable(server, bob):
    created = bob.rest("POST", "/v1/api-keys", {"description": "phone"}).json
    headers = {"X-Auth-Token": created["token"]}
    assert server.call("GET", "/v1/me", None, headers).json["username"] == "bob"
    assert bob.rest("POST", "/v1/api-keys", {"description": "phone"}).status == 400
    listed = {k["description"]: k for k in bob.rest("GET", "/v1/api-keys").json}
    assert listed["phone"]["token"] == ""
    assert bob.rest("DELETE", f"/v1/api-keys/{created['id']}").status == 204
    assert bob.rest("DELETE", f"/v1/api-keys/{created['id']}").status == 404
    assert server.call("GET", "/v1/me", None, headers).status == 401


# --- categories and feeds -------------------------------------------------------------------------


def test_first_category_has_feeds_without_folder(ann):
    first, second = ann.rest("GET", "/v1/categories").json
    assert (first["title"], second["title"]) == ("All", "Tech & Café/x+y")
    assert "feed_count" not in first
    counted = ann.rest("GET", "/v1/categories?counts=true").json
    assert [(c["feed_count"], c["total_unread"]) for c in counted] == [(1, 6), (1, 6)]
    assert [f["id"] for f in ann.rest("GET", f"/v1/categories/{first['id']}/feeds").json] == [
        ann.alpha
    ]
    assert len(titles(ann.rest("GET", f"/v1/categories/{first['id']}/entries"))) == 6
    assert ann.rest("DELETE", f"/v1/categories/{first['id']}").status == 400


def test_create_rename_and_delete_category(ann):
    created = ann.rest("POST", "/v1/categories", {"title": "Greek"})
    assert created.status == 201
    path = f"/v1/categories/{created.json['id']}"
    assert ann.rest("POST", "/v1/categories", {"title": "Greek"}).status == 400
    assert ann.rest("POST", "/v1/categories", {"title": ""}).status == 400
    changed = ann.rest("PUT", path, {"title": "Hellenic", "hide_globally": True})
    assert (changed.status, changed.json["title"], changed.json["hide_globally"]) == (
        201,
        "Hellenic",
        True,
    )
    assert ann.rest("PUT", path + "/refresh").status == 204
    assert ann.rest("DELETE", path).status == 204
    assert ann.rest("DELETE", path).status == 404


def test_feed_life_cycle(ann, blogs):
    (found,) = ann.rest("POST", "/v1/discover", {"url": blogs.site("gamma")}).json
    assert found == {"title": "Gamma Releases", "url": blogs.feed("gamma"), "type": "rss"}
    created = ann.rest(
        "POST",
        "/v1/feeds",
        {"feed_url": found["url"], "scraper_rules": "article", "priority": "early"},
    )
    assert created.status == 201
    path = f"/v1/feeds/{created.json['feed_id']}"
    feed = ann.rest("GET", path).json
    assert (feed["title"], feed["site_url"], feed["scraper_rules"]) == (
        "Gamma",
        blogs.site("gamma"),
        "article",
    )
    assert (feed["priority"], feed["category"]["title"]) == ("early", "All")
    assert ann.rest("POST", "/v1/feeds", {"feed_url": found["url"]}).status == 400
    assert ann.rest("PUT", path, {"category_id": 123456}).status == 400
    category = ann.rest("GET", "/v1/categories").json[1]["id"]
    changed = ann.rest(
        "PUT", path, {"title": "Mine", "category_id": category, "crawler": True, "priority": "late"}
    )
    assert changed.status == 201
    assert (changed.json["title"], changed.json["category"]["id"], changed.json["priority"]) == (
        "Mine",
        category,
        "late",
    )
    assert changed.json["crawler"] is True
    assert ann.rest("PUT", path + "/refresh").status == 204
    icon = ann.rest("GET", path + "/icon").json
    assert icon["mime_type"] == "image/gif"
    assert icon["data"].startswith("image/gif;base64,")
    assert ann.rest("GET", f"/v1/icons/{icon['id']}").json == icon
    assert ann.rest("DELETE", path).status == 204
    assert ann.rest("GET", path).status == 404


def test_change_feed_url(ann, blogs):
    feed_id = ann.rest("POST", "/v1/feeds", {"feed_url": blogs.feed("old")}).json["feed_id"]
    assert ann.rest("PUT", f"/v1/feeds/{feed_id}", {"feed_url": blogs.feed("alpha")}).status == 400
    result = ann.rest("PUT", f"/v1/feeds/{feed_id}", {"feed_url": blogs.feed("new")})
    assert result.status == 201
    assert result.json["feed_url"] == blogs.feed("new")
    assert ann.rest("GET", f"/v1/feeds/{feed_id}").status == 404
    assert ann.rest("DELETE", f"/v1/feeds/{result.json['id']}").status == 204


@pytest.mark.parametrize("url", ["", "no address", "ftp://127.0.0.1/feed", "file:///etc/passwd"])
def test_only_http_urls_are_accepted(ann, url):
    assert ann.rest("POST", "/v1/feeds", {"feed_url": url}).status == 400
    assert ann.rest("POST", "/v1/discover", {"url": url}).status == 400


def test_discovery_without_feed_returns_404(ann, blogs):
    assert ann.rest("POST", "/v1/discover", {"url": blogs.address + "/nothing"}).status == 404


def test_counters(ann):
    ann.mark(ann.entries[:2], unread=False)
    result = ann.rest("GET", "/v1/feeds/counters").json
    assert result["reads"][str(ann.alpha)] + result["reads"][str(ann.beta)] == 2
    assert sum(result["unreads"].values()) == 10


def test_opml_export_and_import(ann, blogs):
    opml = ann.rest("GET", "/v1/export")
    assert opml.text.startswith("<?xml")
    assert blogs.feed("alpha") in opml.text
    result = ann.rest("POST", "/v1/import", opml.body.replace(b"/alpha/", b"/psi/"))
    assert result.status == 201
    assert "message" in result.json
    (found,) = [s for s in ann.subscriptions() if s.feed.url == blogs.feed("psi")]
    ann.unsubscribe(found.feed.id)


# --- entries --------------------------------------------------------------------------------------


def test_entry_fields(ann, blogs):
    result = ann.rest("GET", f"/v1/entries/{ann.entries[0]}").json
    assert (result["title"], result["url"], result["status"]) == (
        "Alpha 2.0.1",
        f"{blogs.address}/alpha/1",
        "unread",
    )
    assert result["published_at"].endswith("Z")
    assert result["created_at"]
    assert result["changed_at"]
    assert result["feed"]["id"] == result["feed_id"] == ann.alpha
    assert (result["author"], result["tags"], result["reading_time"], result["starred"]) == (
        "Nan",
        ["news"],
        1,
        False,
    )
    assert ann.rest("GET", f"/v1/feeds/{ann.alpha}/entries/{ann.entries[0]}").json == result
    assert ann.rest("GET", f"/v1/feeds/{ann.beta}/entries/{ann.entries[0]}").status == 404
    assert ann.rest("GET", "/v1/entries/999999").status == 404
    # The site has only a feed, without pages.
    failed = ann.rest("GET", f"/v1/entries/{ann.entries[0]}/fetch-content")
    assert (failed.status, "404" in failed.json["error_message"]) == (400, True)


def test_changed_entry_text_is_per_user(ann, bob):
    """Translation and summary tools use this. Their HTML is sanitized like that of feeds."""
    (number,) = ann.ids(Stream(feeds=(ann.alpha,)), limit=1).ids
    before = bob.rest("GET", f"/v1/entries/{number}").json
    result = ann.rest(
        "PUT",
        f"/v1/entries/{number}",
        {"title": "In short", "content": "<p>So<script>alert(1)</script></p>"},
    )
    assert result.status == 201
    assert (result.json["title"], result.json["content"]) == ("In short", "<p>So</p>")
    assert (
        ann.rest("PUT", f"/v1/entries/{number}", {"title": "Shorter"}).json["content"]
        == "<p>So</p>"
    )
    ann.mark([number], starred=True)
    assert titles(ann.rest("GET", "/v1/entries?starred=true")) == ["Shorter"]
    after = bob.rest("GET", f"/v1/entries/{number}").json
    assert (after["title"], after["content"]) == (before["title"], before["content"])
    assert ann.rest("PUT", f"/v1/entries/{number}", {"title": ""}).status == 400
    (hidden,) = ann.ids(Stream(feeds=(ann.beta,)), limit=1).ids
    assert bob.rest("PUT", f"/v1/entries/{hidden}", {"title": "Mine"}).status == 404
    again = ann.rest(
        "PUT", f"/v1/entries/{number}", {"title": before["title"], "content": before["content"]}
    ).json
    assert again["content"] == before["content"]


def test_imported_entry_is_visible_only_to_its_importer(server, blogs):
    carl, dora = server.user("carl"), server.user("dora")
    feed = carl.subscribe_to(blogs.feed("imports"))
    dora.subscribe_to(blogs.feed("imports"))
    path = f"/v1/feeds/{feed}/entries/import"
    payload = {
        "title": "Imported\n entry",
        "url": "https://example.org/imported",
        "content": "<p>Hello<script>x()</script></p>",
        "author": "Carl",
        "external_id": "e-1",
        "status": "unread",
        "tags": ["a", "b"],
        "published_at": 1_700_000_000,
    }
    first = carl.rest("POST", path, payload)
    assert (first.status, list(first.json)) == (201, ["id"])
    number = first.json["id"]
    entry = carl.rest("GET", f"/v1/feeds/{feed}/entries/{number}").json
    assert (entry["title"], entry["content"], entry["status"]) == (
        "Imported entry",
        "<p>Hello</p>",
        "unread",
    )
    assert (entry["author"], entry["tags"]) == ("Carl", ["a", "b"])
    assert entry["published_at"] == "2023-11-14T22:13:20Z"
    again = carl.rest("POST", path, {**payload, "status": "", "starred": True})
    assert (again.status, again.json) == (200, {"id": number})
    entry = carl.rest("GET", f"/v1/entries/{number}").json
    assert (entry["status"], entry["starred"]) == ("read", True)
    assert carl.rest("POST", path, payload).status == 200
    assert carl.rest("GET", f"/v1/entries/{number}").json["starred"] is True

    assert "Imported entry" in titles(carl.rest("GET", f"/v1/feeds/{feed}/entries"))
    assert dora.rest("GET", f"/v1/entries/{number}").status == 404
    assert dora.rest("GET", "/v1/entries").json["total"] == 6
    assert (
        b"Imported" not in dora.google("stream/contents/user/-/state/com.google/reading-list").body
    )
    theirs = dora.rest("POST", path, payload)
    assert theirs.status == 201
    assert theirs.json["id"] != number


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"url": "javascript:alert(1)"},
        {"url": "https://example.org/", "status": "removed"},
        {"url": "https://example.org/", "published_at": -1},
        {"url": "https://example.org/", "published_at": 10**12},
    ],
)
def test_invalid_imported_entry_returns_400(ann, bad):
    assert ann.rest("POST", f"/v1/feeds/{ann.alpha}/entries/import", bad).status == 400


def test_entry_filters(ann):
    everything = titles(ann.rest("GET", "/v1/entries"))
    assert len(everything) == 12
    assert titles(ann.rest("GET", f"/v1/entries?feed_id={ann.alpha}")) == [
        f"Alpha 2.0.{n}" for n in range(1, 7)
    ]
    newest = titles(
        ann.rest("GET", f"/v1/feeds/{ann.alpha}/entries?order=published_at&direction=desc&limit=2")
    )
    assert newest == ["Alpha 2.0.6", "Alpha 2.0.5"]
    page = ann.rest("GET", f"/v1/feeds/{ann.alpha}/entries?limit=4&offset=4")
    assert (titles(page), page.json["total"]) == (["Alpha 2.0.5", "Alpha 2.0.6"], 6)
    assert titles(ann.rest("GET", "/v1/entries?search=2.0.3&order=title")) == [
        "Alpha 2.0.3",
        "Beta 2.0.3",
    ]
    ann.mark(ann.entries[:1], starred=True, unread=False, add_tags=["later"])
    for query in (
        "status=read",
        "starred=True",
        "starred=1",
        "tags=later",
        "status=read&starred=true",
    ):
        assert titles(ann.rest("GET", f"/v1/entries?{query}")) == ["Alpha 2.0.1"], query
    assert ann.rest("GET", "/v1/entries?status=read&status=unread").json["total"] == 12
    half = ann.entries[5]
    assert ann.rest("GET", f"/v1/entries?after_entry_id={half}").json["total"] == 6
    assert ann.rest("GET", f"/v1/entries?before_entry_id={half}").json["total"] == 5
    for bad in (
        "status=removed",
        "order=nonsense",
        "direction=up",
        "limit=-1",
        "limit=x",
        f"feed_id={10**6}",
    ):
        assert ann.rest("GET", f"/v1/entries?{bad}").status == 400, bad


def test_published_bounds_are_exclusive(ann):
    at = [
        e["published_at"] for e in ann.rest("GET", f"/v1/feeds/{ann.alpha}/entries").json["entries"]
    ]
    from datetime import datetime

    third = int(datetime.fromisoformat(at[2]).timestamp())
    assert ann.rest("GET", f"/v1/feeds/{ann.alpha}/entries?after={third}").json["total"] == 3
    assert (
        ann.rest("GET", f"/v1/feeds/{ann.alpha}/entries?published_before={third}").json["total"]
        == 2
    )


def test_hidden_feeds_are_not_globally_visible(ann):
    ann.rest("PUT", f"/v1/feeds/{ann.beta}", {"hide_globally": True})
    assert {t.split()[0] for t in titles(ann.rest("GET", "/v1/entries?globally_visible=true"))} == {
        "Alpha"
    }
    ann.rest("PUT", f"/v1/feeds/{ann.beta}", {"hide_globally": False})
    assert ann.rest("GET", "/v1/entries?globally_visible=true").json["total"] == 12


def test_update_entry_state(ann):
    entry = ann.entries[0]
    assert ann.rest("PUT", "/v1/entries", {"entry_ids": [entry], "status": "read"}).status == 204
    assert (
        ann.rest(
            "PUT",
            "/v1/entries",
            {"entry_ids": [entry], "starred": True, "rating": 5, "add_tags": ["x"]},
        ).status
        == 204
    )
    result = ann.rest("GET", f"/v1/entries/{entry}").json
    assert (result["status"], result["starred"], result["rating"], result["own_tags"]) == (
        "read",
        True,
        5,
        ["x"],
    )
    assert ann.rest("PUT", f"/v1/entries/{entry}/bookmark").status == 204
    assert not ann.item(entry).starred
    assert ann.rest("PUT", f"/v1/entries/{entry}/star").status == 204
    assert ann.item(entry).starred
    for bad in (
        {"entry_ids": []},
        {"entry_ids": [entry]},
        {"entry_ids": [entry], "status": "x"},
        {"entry_ids": [-1]},
        [],
    ):
        assert ann.rest("PUT", "/v1/entries", bad).status == 400


def test_mark_all_as_read_by_feed_category_and_user(ann):
    assert ann.rest("PUT", f"/v1/feeds/{ann.alpha}/mark-all-as-read").status == 204
    assert ann.count(Stream(unread=True)) == 6
    category = ann.rest("GET", "/v1/categories").json[1]["id"]
    assert ann.rest("PUT", f"/v1/categories/{category}/mark-all-as-read").status == 204
    assert ann.count(Stream(unread=True)) == 0
    ann.mark(ann.entries, unread=True)
    assert ann.rest("PUT", f"/v1/users/{ann.user.id}/mark-all-as-read").status == 204
    assert ann.count(Stream(unread=True)) == 0


def test_entry_ids(ann):
    ann.mark(ann.entries[:1], unread=False)
    result = ann.rest("GET", "/v1/entries/ids?status=unread&limit=3&offset=1").json
    assert (result["total"], result["entry_ids"]) == (11, ann.entries[::-1][1:4])
    assert ann.rest("GET", "/v1/entries/ids?status=maybe").status == 400


def test_enclosure_progress(ann):
    (enclosure,) = ann.rest("GET", f"/v1/entries/{ann.entries[0]}").json["enclosures"]
    path = f"/v1/enclosures/{enclosure['id']}"
    assert (enclosure["mime_type"], enclosure["size"]) == ("audio/mpeg", 1234)
    assert ann.rest("PUT", path, {"media_progression": 20}).status == 204
    assert ann.rest("GET", path).json["media_progression"] == 20
    assert ann.rest("GET", "/v1/enclosures/99999").status == 404


def test_flush_history(bob):
    bob.mark(bob.entries[:2], unread=False)
    bob.mark(bob.entries[:1], starred=True)
    assert bob.rest("PUT", "/v1/flush-history").status == 202
    assert bob.rest("GET", "/v1/entries?status=read").json["total"] == 1
    assert bob.rest("GET", "/v1/entries").json["total"] == 5
    assert bob.rest("DELETE", "/v1/flush-history").status == 202


def test_explain_and_budget(ann, bob):
    result = ann.rest("GET", f"/v1/feeds/{ann.alpha}/explain").json
    assert result["next_check_at"]
    assert result["reason"]
    assert result["habits"]
    assert {"wishes", "troubles"} <= result.keys()
    assert result["polls"][0]["new"] == 6
    assert bob.rest("GET", f"/v1/feeds/{ann.beta}/explain").status == 404
    budget = ann.rest("GET", "/v1/budget").json
    assert budget["budget_per_day"] > 0
    assert budget["feeds"] >= 2
    assert bob.rest("GET", "/v1/budget").status == 403


def test_timing_is_sorted_by_next_check(ann, bob):
    timing = ann.rest("GET", "/v1/timing").json
    assert {row["feed_id"] for row in timing} == {ann.alpha, ann.beta}
    assert [row["next_check_at"] for row in timing] == sorted(
        row["next_check_at"] for row in timing
    )
    assert all(row["reason"] for row in timing)
    assert ann.rest("GET", "/v1/timing?offset=1&limit=1").json == timing[1:]
    assert [row["feed_id"] for row in bob.rest("GET", "/v1/timing").json] == [bob.alpha]


def test_peers_require_admin(server, ann, bob):
    peer = peers.Peer("a.example:8036", 1.0, True, 0.5, None, "", b"", {"brought": 3.0})
    server.wait(server.site.store.write(peers.save_peers, [peer]))
    (result,) = ann.rest("GET", "/v1/peers").json
    assert (result["address"], result["present"], result["figures"]) == (
        "a.example:8036",
        True,
        {"brought": 3.0},
    )
    assert bob.rest("GET", "/v1/peers").status == 403


# --- requests -------------------------------------------------------------------------------------


def test_invalid_requests_return_error_message(ann):
    for method, path, body, status in [
        ("POST", "/v1/categories", b"{", 400),
        ("POST", "/v1/categories", b'{"title": "a\\u0000b"}', 400),
        ("POST", "/v1/categories", b'{"title": 7}', 400),
        ("GET", "/v1/feeds/x", None, 400),
        ("GET", "/v1/feeds/0", None, 400),
        ("GET", "/v1/feeds/99999999999999999999", None, 400),
        ("GET", "/v1/nothing", None, 404),
        ("PATCH", "/v1/feeds", None, 405),
        ("PUT", "/v1/entries", b" " * 9_000_000, 413),
    ]:
        result = ann.rest(method, path, body)
        assert (result.status, "error_message" in result.json) == (status, True), path
    assert ann.rest("PATCH", "/v1/feeds").headers["Allow"] == "GET, OPTIONS, POST"


def test_cors_preflight(server):
    result = server.call("OPTIONS", "/v1/feeds")
    assert result.status == 204
    assert result.headers["Access-Control-Allow-Origin"] == "*"


def test_health_version_and_integrations(server, ann):
    assert server.call("GET", "/healthcheck").text == "OK"
    assert server.call("GET", "/version").text == ann.rest("GET", "/v1/version").json["version"]
    assert ann.rest("GET", "/v1/integrations/status").json == {"has_integrations": False}
    assert ann.rest("POST", f"/v1/entries/{ann.entries[0]}/save").status == 400
