"""Access control: every page and form, for other users and without login."""

import re

import pytest

from tidings.web import account, demo_launcher, feeds, image_proxy, lab, peers, reader, timing
from tidings.web.sse import EventStreams

#: Modules with routes; the handlers are not called.
PARTS = (account, reader, feeds, timing, peers, lab, demo_launcher, image_proxy)
ROUTES = [route for part in PARTS for route in part.routes(None)]
ROUTES += EventStreams(None).routes()
PAGES = sorted({route.path for route in ROUTES if "GET" in route.methods})
FORMS = sorted({route.path for route in ROUTES if "POST" in route.methods})
PUBLIC_PATHS = {"/", "/login", "/setup", "/demo"}
#: Pages with data of all users.
ADMIN_PATHS = [path for path in PAGES if path.startswith(("/users", "/peers", "/timing"))]


@pytest.fixture(scope="module")
def secrets(reader_server, blogs):
    """Objects of ada that bob must not see, by kind; bob has a subscription too."""
    ada, bob = reader_server.ada, reader_server.bob
    feed = ada.subscribe(blogs.url(1))
    entry = ada.get(f"/feed/{feed}").entries[0]
    ada.post(f"/entry/{entry}", tag="occult-tag")
    ada.post(f"/feed/{feed}/about", folder="Occult folder", title="Occult feed")
    ada.post("/searches", q="kettle", name="Occult search")
    ada.post("/rules", action="star", words="occult-rule")
    ada.post("/settings/apps", label="Occult app")
    bob.subscribe(blogs.url(4))
    return {
        "feed": feed,
        "entry": entry,
        "folder": 1,
        "saved": 1,
        "tag": "occult-tag",
        "icon": feed,
    }


def fill_path(path, secrets):
    """Fill a route's path with ids of ada's objects."""
    kind = path.split("/")[1]
    path = re.sub(r"\{id(:int)?\}", str(secrets.get(kind, 1)), path)
    return path.replace("{signature}", "0" * 24).replace("{url}", "aHR0cDovL2E")


@pytest.mark.parametrize("path", [path for path in PAGES if path not in PUBLIC_PATHS])
def test_page_without_login_redirects_to_login(reader_server, secrets, path):
    answer = reader_server.client().get(fill_path(path, secrets))
    assert answer.status == 303
    assert answer.redirect_path.startswith("/login?next=")
    assert "Occult" not in answer.text


@pytest.mark.parametrize("path", [path for path in FORMS if path not in PUBLIC_PATHS])
def test_form_without_login_is_rejected(reader_server, secrets, path):
    anonymous_client = reader_server.client()
    assert anonymous_client.post(fill_path(path, secrets), at="/login").status == 401


@pytest.mark.parametrize("path", [path for path in PAGES if path not in {"/events", *PUBLIC_PATHS}])
def test_page_hides_objects_of_other_users(reader_server, secrets, path):
    answer = reader_server.bob.get(fill_path(path, secrets))
    if "{" in path and not path.startswith("/tag/") and path != "/folder/{id:int}/feeds":
        assert answer.status == 404
    assert answer.status in (200, 303, 403, 404)
    assert "ccult" not in answer.text.replace(
        "occult-tag", "" if path.startswith("/tag/") else "occult-tag"
    )
    assert f'id="e{secrets["entry"]}"' not in answer.text


def test_admin_pages_are_forbidden_for_users(reader_server):
    for path in ADMIN_PATHS:
        assert reader_server.bob.get(path).status == 403, path
    assert reader_server.ada.get("/peers").status == 200


def test_forms_cannot_change_objects_of_other_users(reader_server, secrets):
    ada, bob = reader_server.ada, reader_server.bob
    entry, feed = secrets["entry"], secrets["feed"]
    before = {
        path: re.sub(r'value="\w{96}"|data-csrf="\w+"', "", ada.get(path).text)
        for path in ("/rules", "/feeds", "/settings/apps")
    }
    counts, pressed_buttons = (
        ada.get("/counts").json,
        ada.get(f"/entry/{entry}?part=article").text.count('aria-pressed="true"'),
    )
    for path, fields in [
        (f"/entry/{entry}", {"read": "1"}),
        (f"/entry/{entry}", {"star": "1"}),
        (f"/feed/{feed}/about", {"title": "taken"}),
        (f"/feed/{feed}/unsubscribe", {}),
        (f"/feed/{feed}/poll", {}),
        ("/folders", {"do": "remove", "id": 1}),
        ("/folders", {"do": "rename", "id": 1, "name": "taken"}),
        ("/rules", {"do": "remove", "id": 1}),
        ("/rules", {"action": "star", "feed_id": feed}),
        ("/searches", {"do": "remove", "id": 1}),
        ("/tags", {"do": "remove", "tag": "occult-tag"}),
        ("/mark-all", {"view": f"feed/{feed}"}),
        ("/mark-all", {"view": "folder/1"}),
        ("/settings/apps/remove", {"id": 1}),
        ("/settings/password", {"old": "x", "password": "y" * 8, "again": "y" * 8}),
        ("/users", {"do": "remove", "id": 1}),
    ]:
        assert bob.post(path, fields).status in (400, 403, 404), (path, fields)
    assert bob.post("/mark", ids=str(entry), unread="0").json == {"ids": []}
    bob.post("/undo")
    assert ada.get("/counts").json == counts
    assert (
        ada.get(f"/entry/{entry}?part=article").text.count('aria-pressed="true"') == pressed_buttons
    )
    after = {
        path: re.sub(r'value="\w{96}"|data-csrf="\w+"', "", ada.get(path).text) for path in before
    }
    assert {
        path: re.sub("<time.*?</time>|[0-9.]+ (s|min) ago|in [0-9.]+ min", "", text)
        for path, text in after.items()
    } == {
        path: re.sub("<time.*?</time>|[0-9.]+ (s|min) ago|in [0-9.]+ min", "", text)
        for path, text in before.items()
    }
