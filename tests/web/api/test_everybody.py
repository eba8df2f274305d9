"""Nobody reads, changes or guesses what is another's: a walk through every call of every dialect, as Bob and as nobody.

Ann alone follows Beta, in a folder, with a tag; both follow Alpha. Bob knows all her numbers and names.
"""

import json
import re
from hashlib import md5
from types import SimpleNamespace
from xmlrpc.client import dumps

import pytest
from starlette.routing import Route

from tests.clients.house import Press, Service
from tests.web import test_walk
from tidings.exchange import messages
from tidings.exchange.client import PATH as EXCHANGE
from tidings.exchange.values import Query
from tidings.store.people_rows import Stream
from tidings.web import api
from tidings.web.api.fever import PATHS, Fever
from tidings.web.api.google_reader import GoogleReader
from tidings.web.api.google_streams import LABEL, STATE, long_id
from tidings.web.api.miniflux import OPERATIONS
from tidings.web.app import make_app
from tidings.web.hub import Hub
from tidings.web.live import Streams

#: What would betray Ann: words of what she alone follows, and her folder and tag.
SECRETS = (b"Beta", b"beta", b"Caf", b"annstag")
FOLDER = "Tech & Café/x+y"


@pytest.fixture
def world(ann, bob):
    ann.own = sorted(ann.ids(Stream(feeds=(ann.beta,)), limit=100).ids)
    ann.mark(ann.own[:2], starred=True, add_tags=["annstag"])
    ann.mark(ann.own[2:3], unread=False)
    return ann, bob


def all_of(reader):
    """Everything that is a reader's, to be compared."""
    items = reader.items(reader.ids(Stream(), limit=1000).ids)
    marks = {i.entry.id: (i.unread, i.starred, i.rating, i.tags) for i in items}
    feeds = {(s.feed.id, s.title, s.folder, s.priority, s.full_text) for s in reader.subscriptions()}
    settings = reader.house.wait(reader.house.people.settings(reader.user))
    tokens = [(t.id, t.label) for t in reader.house.wait(reader.house.people.tokens(reader.user))]
    return marks, feeds, sorted((f.id, f.name) for f in reader.folders()), settings, tokens


# --- the REST API ------------------------------------------------------------------------------------------------------


def numbers(ann):
    token = ann.house.wait(ann.house.people.tokens(ann.user))[0]
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


def bodies(ann):
    """What Bob might send, to harm."""
    return {
        "/v1/entries": {"entry_ids": ann.own, "status": "read", "starred": False, "rating": 1, "remove_tags": ["annstag"]},
        "/v1/users/{user}": {"theme": "dark_serif", "password": "bob's now, ha ha"},
        "/v1/categories/{category_id}": {"title": "Bob's"},
        "/v1/feeds/{feed_id}": {"title": "Bob's"},
        "/v1/enclosures/{enclosure_id}": {"media_progression": 7},
    }


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_rest(world, operation):
    ann, bob = world
    before, ids = all_of(ann), numbers(ann)
    path = operation.path.format(**ids)
    body = bodies(ann).get(operation.path, {})
    nobody = ann.house.call(operation.method, path, json.dumps(body))
    assert nobody.status == 401
    if operation.path in ("/v1/users", "/v1/feeds", "/v1/categories", "/v1/api-keys", "/v1/discover", "/v1/import"):
        body = {}  # making things of one's own is allowed
    told = bob.rest(operation.method, path, body if operation.body else None)
    if operation.parameters:
        assert told.status in (400, 403, 404)
    elif operation.admin:
        assert told.status == 403
    assert not any(secret in told.body for secret in SECRETS)
    assert all_of(ann) == before


def test_rest_filters_lead_to_nobody_else(world):
    ann, bob = world
    ids = numbers(ann)
    for query in (f"feed_id={ids['feed_id']}", f"category_id={ids['category_id']}"):
        assert bob.rest("GET", f"/v1/entries?{query}").status == 400
    for query in ("search=Beta", "tags=annstag", "starred=true", f"after_entry_id={ann.own[0] - 1}&order=id"):
        told = bob.rest("GET", f"/v1/entries?{query}")
        assert not any(secret in told.body for secret in SECRETS)
        assert {entry["feed_id"] for entry in told.json["entries"]} <= {bob.alpha}


# --- Google Reader -----------------------------------------------------------------------------------------------------


def google_calls(house):
    google = GoogleReader(house.site)
    return [*google.reads, *(f"stream/contents/{LABEL}{FOLDER}".replace(" ", "%20").replace("é", "%C3%A9"),)], list(
        google.writes
    )


def test_google_reader(world):
    ann, bob = world
    before, house = all_of(ann), ann.house
    reads, writes = google_calls(house)
    streams = [f"feed/{ann.beta}", LABEL + FOLDER, LABEL + "annstag", STATE + "starred", STATE + "reading-list"]
    for call in reads:
        assert house.call("GET", f"/reader/api/0/{call}").status == 401
        for stream in streams:
            fields = {"s": stream, "i": list(map(long_id, ann.own)), "n": 1000}
            told = bob.google(call, fields)
            assert told.status == 200
            if not call.startswith("stream/contents"):  # which tells the name that it was given
                assert not any(secret in told.body for secret in SECRETS), call
            assert "Beta" not in told.text
    for call in writes:
        assert house.post(f"/reader/api/0/{call}", {"s": streams[0]}).status == 401
        for stream in streams:
            fields = {"s": stream, "i": list(map(long_id, ann.own)), "a": STATE + "read", "r": STATE + "starred"}
            for more in ({"ac": "unsubscribe"}, {"ac": "edit", "t": "Bob's", "r": [LABEL + FOLDER, LABEL + "annstag"]}):
                told = bob.google(call, {**fields, **more, "dest": LABEL + "Bob's"})
                assert told.status in (200, 400, 404), call
    assert all_of(ann) == before
    headers = {"Authorization": f"GoogleLogin auth={bob.auth}"}
    for target in (f"/reader/atom/feed/{ann.beta}", "/reader/atom/" + STATE + "reading-list", "/reader/subscriptions/export"):
        assert house.call("GET", target).status == 401
        told = house.call("GET", target, None, headers)
        assert not any(secret in told.body for secret in SECRETS)


def test_an_auth_token_cannot_be_made_from_another(ann, bob):
    _number, _, secret = bob.auth.partition("/")
    forged = {"Authorization": f"GoogleLogin auth={ann.user.id}/{secret}"}
    assert bob.house.call("GET", "/reader/api/0/user-info", None, forged).status == 401


# --- Fever -------------------------------------------------------------------------------------------------------------


def test_fever(world):
    ann, bob = world
    before, key = all_of(ann), md5(f"bob:{bob.token}".encode()).hexdigest()
    wishes = [*Fever(ann.house.site).selectors, f"items&with_ids={','.join(map(str, ann.own))}", f"items&feed_ids={ann.beta}"]
    wishes += [f"mark=item&as={how}&id={entry}" for how in ("read", "unsaved") for entry in ann.own]
    wishes += [
        f"mark=feed&as=read&id={ann.beta}",
        f"mark=group&as=read&id={numbers(ann)['category_id']}",
        "mark=group&as=read&id=0",
    ]
    for wish in wishes:
        assert ann.house.post(f"/fever/?api&{wish}", {}).json == {"api_version": 3, "auth": 0}
        told = ann.house.post(f"/fever/?api&{wish}", {"api_key": key})
        assert told.json["auth"] == 1
        assert not any(secret in told.body for secret in SECRETS), wish
        assert not {str(i) for i in ann.own} & set(told.json.get("unread_item_ids", "").split(","))
    assert all_of(ann) == before


def test_icons_are_found_by_those_who_were_told_where(world):
    ann, _ = world
    assert ann.house.call("GET", f"/api/icons/{ann.beta}/{'0' * 32}").status == 404


# --- everything --------------------------------------------------------------------------------------------------------

#: Handlers are not called here: the routes alone are listed.
SITE = SimpleNamespace(live=None, public_url="")
DOOR = Route(EXCHANGE, lambda request: None, methods=["POST"])
ROUTES = make_app(SITE, Hub(SITE, None, None), Streams(SITE), [*api.routes(SITE), DOOR]).routes
#: What tells a stranger something that is no user's: how to log in, that the service runs, its files, and its manual.
FOR_EVERYBODY = {
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
#: Where neighbours come in, who are nobody's users; what they are told is tried below.
FOR_NEIGHBOURS = {EXCHANGE}
#: What a stranger can reach with a secret in the address, as feed readers and hubs do.
WITH_A_SECRET = {"/out/{path:path}", "/push/{token}", "/api/icons/{feed_id:int}/{proof}", "/hub"}
#: Walked above, by all that can be asked there, as another user.
WALKED = {
    *(operation.path for operation in OPERATIONS),
    *PATHS,
    *("/{prefix:path}reader/api/0/{call:path}", "/{prefix:path}reader/atom/{stream:path}"),
    *("/{prefix:path}reader/subscriptions/export", "/{prefix:path}accounts/ClientLogin"),
    "/v1/{rest:path}",
}
#: Figures of the whole service and of the exchange, which nobody but an administrator may see.
FOR_ADMINISTRATORS = {"/api/status", "/metrics", "/peers"}


def test_of_every_route_it_is_said_who_may_ask():
    """Whoever adds a route says it here, or in the walk through the pages."""
    said = (
        FOR_EVERYBODY
        | FOR_NEIGHBOURS
        | WITH_A_SECRET
        | WALKED
        | FOR_ADMINISTRATORS
        | {route.path for route in test_walk.ROUTES}
    )
    assert {route.path for route in ROUTES} - said == set()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Where neighbours may come in too."""
    folder, on = tmp_path_factory.mktemp("service"), ("exchange.enabled=true", "fetch.contact_url=http://here.example/")
    with Press() as press, Service(folder, {press.feed("beta"): "Ann's folder"}, on) as service:
        service.bob = service.reader("bob")
        service.press = press
        yield service


def test_strangers_are_told_nothing_by_any_route(service):
    asked = 0
    for route in ROUTES:
        if route.path in FOR_EVERYBODY:
            continue
        path = re.sub(r"\{prefix:path\}", "", re.sub(r"\{(?!prefix)[^}]*\}", "1", route.path)).replace("//", "/")
        path = path if path.startswith("/") else f"/{path}"
        for method in sorted(route.methods or {"GET", "POST", "PUT", "DELETE"}):
            if method in ("HEAD", "OPTIONS"):
                continue
            told = service.call(method, path)
            asked += 1
            if route.path in PATHS:
                assert told.json == {"api_version": 3, "auth": 0}
            elif route.path == EXCHANGE:
                assert b"<fault>" in told.body
            elif told.status == 303:
                assert told.headers["Location"].startswith("/login"), path
            else:
                assert told.status in (400, 401, 403, 404, 410), (method, path, told.status)
    assert asked > 150


def test_figures_are_for_administrators(service):
    for path in sorted(FOR_ADMINISTRATORS):
        told = service.call("GET", path, None, {"Authorization": f"Bearer {service.bob.token}"})
        assert told.status in (303, 403), path


def test_neighbours_are_told_of_no_user(service):
    """That somebody here follows a feed is what the exchange is for; who, in which folder and with which tags is not."""
    ann = service.reader("anneliese")
    entries = ann.rest("GET", "/v1/entries").json["entries"]
    ann.rest("PUT", "/v1/entries", {"entry_ids": [entries[0]["id"]], "starred": True, "add_tags": ["annstag"]})
    feed = service.press.feed("beta")
    query = messages.write_query(Query("1", feed))
    here = [[feed, 0]]
    for function, *told in (
        ("get_neighbors",),
        ("get_entries", query, []),
        ("query_feed", query),
        ("check_did", b"\0" * 16),
        ("dispute", feed, "beta-1", 0.0),
        ("update_subset", here),
        ("connect", here),
        ("query_feed", query | {"id": "2"}),
        ("get_entries", query, []),
    ):
        answer = service.call("POST", EXCHANGE, dumps((9, *told), function))
        assert answer.status == 200
        assert not any(secret in answer.body for secret in (b"anneliese", b"Ann's", b"annstag", b"starred")), function
