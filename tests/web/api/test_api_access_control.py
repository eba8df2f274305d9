"""Access control: every call of every API, as another user and unauthenticated.

Ann is subscribed to Beta, in a folder and with a tag; Ann and Bob are subscribed to Alpha. Bob
knows all of Ann's ids and names, but must not read, change or detect her data.
"""

import json
import re
from hashlib import md5
from types import SimpleNamespace
from xmlrpc.client import dumps

import pytest
from starlette.routing import Route

from tests.clients.servers import BlogServer, ServiceProcess
from tests.web import test_access_control
from tidings.exchange import messages
from tidings.exchange.client import RPC_PATH as EXCHANGE
from tidings.exchange.protocol import Query
from tidings.store.user_models import Stream
from tidings.web import api
from tidings.web.api.fever import PATHS, Fever
from tidings.web.api.google_reader import GoogleReader
from tidings.web.api.google_streams import LABEL, STATE, long_id
from tidings.web.api.miniflux import OPERATIONS
from tidings.web.app import make_app
from tidings.web.hub import Hub
from tidings.web.sse import EventStreams

#: Texts that must not appear in responses to Bob: from Beta, and Ann's folder and tag.
SECRETS = (b"Beta", b"beta", b"Caf", b"annstag")
FOLDER = "Tech & Café/x+y"


@pytest.fixture
def users_with_data(ann, bob):
    ann.own = sorted(ann.ids(Stream(feeds=(ann.beta,)), limit=100).ids)
    ann.mark(ann.own[:2], starred=True, add_tags=["annstag"])
    ann.mark(ann.own[2:3], unread=False)
    return ann, bob


def snapshot(user):
    """Return all data of a user, for comparison."""
    items = user.items(user.ids(Stream(), limit=1000).ids)
    states = {i.entry.id: (i.unread, i.starred, i.rating, i.tags) for i in items}
    feeds = {(s.feed.id, s.title, s.folder, s.priority, s.full_text) for s in user.subscriptions()}
    settings = user.server.wait(user.server.user_service.settings(user.user))
    tokens = [(t.id, t.label) for t in user.server.wait(user.server.user_service.tokens(user.user))]
    return states, feeds, sorted((f.id, f.name) for f in user.folders()), settings, tokens


# --- REST API -------------------------------------------------------------------------------------


def path_ids(ann):
    token = ann.server.wait(ann.server.user_service.tokens(ann.user))[0]
    folder = next(folder for folder in ann.folders() if folder.name == FOLDER)
    return {
        "user": ann.user.id,
        "user_id": ann.user.id,
        "key_id": token.id,
        "category_id": folder.id,
        "feed_id": ann.beta,
        "icon_id": ann.beta,
        "entry_id": ann.own[0],
        "enclosure_id": ann.own[0] * 100,
    }


def request_bodies(ann):
    """Return request bodies that would change Ann's data."""
    return {
        "/v1/entries": {
            "entry_ids": ann.own,
            "status": "read",
            "starred": False,
            "rating": 1,
            "remove_tags": ["annstag"],
        },
        "/v1/users/{user}": {"theme": "dark_serif", "password": "bob's now, ha ha"},
        "/v1/categories/{category_id}": {"title": "Bob's"},
        "/v1/feeds/{feed_id}": {"title": "Bob's"},
        "/v1/feeds/{feed_id}/entries/import": {"url": "https://example.org/bob"},
        "/v1/enclosures/{enclosure_id}": {"media_progression": 7},
    }


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_rest_denies_other_users(users_with_data, operation):
    ann, bob = users_with_data
    before, ids = snapshot(ann), path_ids(ann)
    path = operation.path.format(**ids)
    body = request_bodies(ann).get(operation.path, {})
    anonymous = ann.server.call(operation.method, path, json.dumps(body))
    assert anonymous.status == 401
    if operation.path in (
        "/v1/users",
        "/v1/feeds",
        "/v1/categories",
        "/v1/api-keys",
        "/v1/discover",
        "/v1/import",
    ):
        body = {}  # creating objects is allowed
    result = bob.rest(operation.method, path, body if operation.body else None)
    if operation.parameters:
        assert result.status in (400, 403, 404)
    elif operation.admin:
        assert result.status == 403
    assert not any(secret in result.body for secret in SECRETS)
    assert snapshot(ann) == before


def test_rest_filters_deny_other_users(users_with_data):
    ann, bob = users_with_data
    ids = path_ids(ann)
    for query in (f"feed_id={ids['feed_id']}", f"category_id={ids['category_id']}"):
        assert bob.rest("GET", f"/v1/entries?{query}").status == 400
    for query in (
        "search=Beta",
        "tags=annstag",
        "starred=true",
        f"after_entry_id={ann.own[0] - 1}&order=id",
    ):
        result = bob.rest("GET", f"/v1/entries?{query}")
        assert not any(secret in result.body for secret in SECRETS)
        assert {entry["feed_id"] for entry in result.json["entries"]} <= {bob.alpha}


# --- Google Reader --------------------------------------------------------------------------------


def google_calls(server):
    google = GoogleReader(server.site)
    return [
        *google.reads,
        *(f"stream/contents/{LABEL}{FOLDER}".replace(" ", "%20").replace("é", "%C3%A9"),),
    ], list(google.writes)


def test_google_reader(users_with_data):
    ann, bob = users_with_data
    before, server = snapshot(ann), ann.server
    reads, writes = google_calls(server)
    streams = [
        f"feed/{ann.beta}",
        LABEL + FOLDER,
        LABEL + "annstag",
        STATE + "starred",
        STATE + "reading-list",
    ]
    for call in reads:
        assert server.call("GET", f"/reader/api/0/{call}").status == 401
        for stream in streams:
            fields = {"s": stream, "i": list(map(long_id, ann.own)), "n": 1000}
            result = bob.google(call, fields)
            assert result.status == 200
            if not call.startswith("stream/contents"):  # it returns the requested name
                assert not any(secret in result.body for secret in SECRETS), call
            assert "Beta" not in result.text
    for call in writes:
        assert server.post(f"/reader/api/0/{call}", {"s": streams[0]}).status == 401
        for stream in streams:
            fields = {
                "s": stream,
                "i": list(map(long_id, ann.own)),
                "a": STATE + "read",
                "r": STATE + "starred",
            }
            for more in (
                {"ac": "unsubscribe"},
                {"ac": "edit", "t": "Bob's", "r": [LABEL + FOLDER, LABEL + "annstag"]},
            ):
                result = bob.google(call, {**fields, **more, "dest": LABEL + "Bob's"})
                assert result.status in (200, 400, 404), call
    assert snapshot(ann) == before
    headers = {"Authorization": f"GoogleLogin auth={bob.auth}"}
    for target in (
        f"/reader/atom/feed/{ann.beta}",
        "/reader/atom/" + STATE + "reading-list",
        "/reader/subscriptions/export",
    ):
        assert server.call("GET", target).status == 401
        result = server.call("GET", target, None, headers)
        assert not any(secret in result.body for secret in SECRETS)


def test_forged_auth_token_is_rejected(ann, bob):
    _number, _, secret = bob.auth.partition("/")
    forged = {"Authorization": f"GoogleLogin auth={ann.user.id}/{secret}"}
    assert bob.server.call("GET", "/reader/api/0/user-info", None, forged).status == 401


# --- Fever ----------------------------------------------------------------------------------------


def test_fever(users_with_data):
    ann, bob = users_with_data
    before, key = snapshot(ann), md5(f"bob:{bob.token}".encode()).hexdigest()
    queries = [
        *Fever(ann.server.site).selectors,
        f"items&with_ids={','.join(map(str, ann.own))}",
        f"items&feed_ids={ann.beta}",
    ]
    queries += [
        f"mark=item&as={state}&id={entry}" for state in ("read", "unsaved") for entry in ann.own
    ]
    queries += [
        f"mark=feed&as=read&id={ann.beta}",
        f"mark=group&as=read&id={path_ids(ann)['category_id']}",
        "mark=group&as=read&id=0",
    ]
    for query in queries:
        assert ann.server.post(f"/fever/?api&{query}", {}).json == {"api_version": 3, "auth": 0}
        result = ann.server.post(f"/fever/?api&{query}", {"api_key": key})
        assert result.json["auth"] == 1
        assert not any(secret in result.body for secret in SECRETS), query
        assert not {str(i) for i in ann.own} & set(
            result.json.get("unread_item_ids", "").split(",")
        )
    assert snapshot(ann) == before


def test_icon_with_wrong_signature_is_404(users_with_data):
    ann, _ = users_with_data
    assert ann.server.call("GET", f"/api/icons/{ann.beta}/{'0' * 32}").status == 404


# --- all routes -----------------------------------------------------------------------------------

#: Handlers are not called; only the routes are listed.
SITE = SimpleNamespace(status_reporter=None, public_url="")
EXCHANGE_ROUTE = Route(EXCHANGE, lambda request: None, methods=["POST"])
ROUTES = make_app(
    SITE, Hub(SITE, None, None), EventStreams(SITE), [*api.routes(SITE), EXCHANGE_ROUTE]
).routes
#: Public routes without user data: login, health, static files, API reference.
PUBLIC_ROUTES = {
    *(
        "/",
        "/login",
        "/setup",
        "/static/{version}/{name}",
        "/sw.js",
        "/manifest.webmanifest",
        "/offline",
        "/healthz",
        "/readyz",
    ),
    *("/healthz", "/readyz", "/healthcheck", "/version", "/v1/openapi.json", "/v1/docs"),
    *("/{prefix:path}reader/ping", "/api/greader.php", "/api/greader.php/"),
}
#: Routes for peers of the exchange, which are tested below.
PEER_ROUTES = {EXCHANGE}
#: Routes with a secret in the URL, for feed readers and hubs.
SECRET_URL_ROUTES = {
    "/out/{path:path}",
    "/push/{token}",
    "/api/icons/{feed_id:int}/{proof}",
    "/hub",
}
#: Routes that are tested above with all their operations.
USER_ROUTES = {
    *(operation.path for operation in OPERATIONS),
    *PATHS,
    *("/{prefix:path}reader/api/0/{call:path}", "/{prefix:path}reader/atom/{stream:path}"),
    *("/{prefix:path}reader/subscriptions/export", "/{prefix:path}accounts/ClientLogin"),
    "/v1/{rest:path}",
}
#: Routes with statistics of the service and of the exchange, for administrators only.
ADMIN_ROUTES = {"/api/status", "/metrics", "/peers"}


def test_all_routes_have_declared_access():
    """A new route must be added here or to the test of the pages."""
    declared = (
        PUBLIC_ROUTES
        | PEER_ROUTES
        | SECRET_URL_ROUTES
        | USER_ROUTES
        | ADMIN_ROUTES
        | {route.path for route in test_access_control.ROUTES}
    )
    assert {route.path for route in ROUTES} - declared == set()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service process with the exchange enabled."""
    folder, settings = (
        tmp_path_factory.mktemp("service"),
        ("exchange.enabled=true", "fetch.contact_url=http://self.example/"),
    )
    with (
        BlogServer() as blogs,
        ServiceProcess(folder, {blogs.feed("beta"): "Ann's folder"}, settings) as service,
    ):
        service.bob = service.user("bob")
        service.blogs = blogs
        yield service


def test_unauthenticated_requests_are_rejected(service):
    request_count = 0
    for route in ROUTES:
        if route.path in PUBLIC_ROUTES:
            continue
        path = re.sub(
            r"\{prefix:path\}", "", re.sub(r"\{(?!prefix)[^}]*\}", "1", route.path)
        ).replace("//", "/")
        path = path if path.startswith("/") else f"/{path}"
        for method in sorted(route.methods or {"GET", "POST", "PUT", "DELETE"}):
            if method in ("HEAD", "OPTIONS"):
                continue
            result = service.call(method, path)
            request_count += 1
            if route.path in PATHS:
                assert result.json == {"api_version": 3, "auth": 0}
            elif route.path == EXCHANGE:
                assert b"<fault>" in result.body
            elif result.status == 303:
                assert result.headers["Location"].startswith("/login"), path
            else:
                assert result.status in (400, 401, 403, 404, 410), (method, path, result.status)
    assert request_count > 150


def test_admin_routes_require_admin(service):
    for path in sorted(ADMIN_ROUTES):
        result = service.call("GET", path, None, {"Authorization": f"Bearer {service.bob.token}"})
        assert result.status in (303, 403), path


def test_exchange_reveals_no_user(service):
    """Peers may learn that a feed is subscribed to, but not by which user, folder and tags."""
    ann = service.user("anneliese")
    entries = ann.rest("GET", "/v1/entries").json["entries"]
    ann.rest(
        "PUT",
        "/v1/entries",
        {"entry_ids": [entries[0]["id"]], "starred": True, "add_tags": ["annstag"]},
    )
    feed = service.blogs.feed("beta")
    query = messages.write_query(Query("1", feed))
    subset = [[feed, 0]]
    for function, *arguments in (
        ("get_neighbors",),
        ("get_entries", query, []),
        ("query_feed", query),
        ("check_did", b"\0" * 16),
        ("dispute", feed, "beta-1", 0.0),
        ("update_subset", subset),
        ("connect", subset),
        ("query_feed", query | {"id": "2"}),
        ("get_entries", query, []),
    ):
        response = service.call("POST", EXCHANGE, dumps((9, *arguments), function))
        assert response.status == 200
        assert not any(
            secret in response.body for secret in (b"anneliese", b"Ann's", b"annstag", b"starred")
        ), function
