"""Request sequences of apps that cannot run in tests, in their order and spelling.

They are from the apps' source code or recorded requests; those of Reeder and Unread, which are
closed source, from descriptions. Each app must find all posts, one read and one starred. It then
marks another post as read and stars another one, which the REST API must report.
"""

import re
from hashlib import md5
from urllib.parse import quote

import pytest

from tests.clients.conftest import entry_states
from tests.clients.servers import PASSWORD

STATE = "user/-/state/com.google/"
READING, READ, STARRED = f"{STATE}reading-list", f"{STATE}read", f"{STATE}starred"
LONG = "tag:google.com,2005:reader/item/"
ALL = {f"{blog} 2.0.{number}" for blog in ("Alpha", "Beta") for number in range(1, 5)}


def multipart(fields):
    parts = [
        f'--cut\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    ]
    return "".join(parts) + "--cut--\r\n", {"Content-Type": "multipart/form-data; boundary=cut"}


class GoogleReaderApp:
    """A Google Reader client with its path prefix and its local state."""

    def __init__(self, app, prefix=""):
        self.server, self.name, self.token, self.prefix = app.server, app.name, app.token, prefix
        self.auth = ""
        self.unread, self.starred, self.ids = set(), set(), {}

    def get(self, path):
        response = self.server.call(
            "GET", self.prefix + path, None, {"Authorization": f"GoogleLogin auth={self.auth}"}
        )
        assert response.status == 200, (path, response.text)
        return response

    def post(self, path, fields, headers=None):
        headers = (
            {"Authorization": f"GoogleLogin auth={self.auth}"}
            if self.auth and headers is None
            else headers
        )
        response = self.server.post(self.prefix + path, fields, headers)
        assert response.status == 200, (path, response.text)
        return response

    def log_in(self, **more):
        result = self.post(
            "/accounts/ClientLogin", {"Email": self.name, "Passwd": PASSWORD, **more}, {}
        ).text
        self.auth = re.search("^Auth=(.*)$", result, re.MULTILINE).group(1)

    def feeds(self):
        return self.get("/reader/api/0/subscription/list?output=json").json["subscriptions"]

    def fetch_item_ids(self, query):
        """Return the ids of all pages."""
        found, after = [], ""
        while after is not None:
            result = self.get(f"/reader/api/0/stream/items/ids?{query}{after}").json
            found += [reference["id"] for reference in result["itemRefs"]]
            after = f"&c={result['continuation']}" if "continuation" in result else None
        return found

    def apply_categories(self, items):
        """Update the local state from the categories of items."""
        for item in items:
            self.ids[item["title"]] = item["id"]
            self.unread |= set() if READ in item["categories"] else {item["title"]}
            self.starred |= {item["title"]} if STARRED in item["categories"] else set()

    def apply_id_lists(self, items, unread, starred):
        """Update the local state from lists of unread and starred ids."""
        self.ids = {item["title"]: item["id"] for item in items}
        by_id = {str(int(item["id"].removeprefix(LONG), 16)): item["title"] for item in items}
        self.unread, self.starred = {by_id[i] for i in unread}, {by_id[i] for i in starred}

    def edit(self, title, tag, **more):
        fields = {"i": self.ids[title], "a": tag, **more}
        assert self.post("/reader/api/0/edit-tag", fields).body == b"OK"


# --- Google Reader apps ---------------------------------------------------------------------------


def newsboat_freshrss(app):
    """newsboat from version 2.24, `freshrss`."""
    client = GoogleReaderApp(app, "/api/greader.php")
    client.log_in(source="newsboat")
    for feed in client.feeds():
        client.apply_categories(
            client.get(f"/reader/api/0/stream/contents/{quote(feed['id'], safe='')}?n=20").json[
                "items"
            ]
        )
    token = client.get("/reader/api/0/token").text
    return client, lambda title, tag: client.edit(title, tag, T=token, ac="edit")


def liferea(app):
    client = GoogleReaderApp(app)
    client.log_in(service="reader", source="liferea", **{"continue": app.server.address})
    feeds, feed_urls = client.feeds(), {}
    for feed in feeds:
        params = f"s={quote(feed['id'], safe='')}&client=liferea&n=50&output=json&merge=true"
        pairs = [
            ("output", "json"),
            ("mediaRss", "true"),
            ("T", client.auth),
            *(("i", i) for i in client.fetch_item_ids(params)),
        ]
        # Liferea sends only the token as T.
        response = client.post("/reader/api/0/stream/items/contents", pairs, {})
        items = response.json["items"]
        feed_urls |= {item["title"]: feed["url"] for item in items}
        client.apply_categories(items)

    def mark(title, tag):
        token = client.get("/reader/api/0/token").text
        fields = {
            "i": client.ids[title],
            "s": f"feed/{feed_urls[title]}",
            "a": tag,
            "ac": "edit-tags",
            "T": f"{token}\n",
        }
        assert (
            client.post("/reader/api/0/edit-tag?client=liferea", {**fields, "async": "true"}).body
            == b"OK"
        )

    return client, mark


def rss_guard(app):
    client = GoogleReaderApp(app)
    client.log_in()
    assert {"id": READING} not in client.get("/reader/api/0/tag/list?output=json").json["tags"]
    client.feeds()
    since = "ot=1763164800"
    starred = client.fetch_item_ids(f"output=json&n=200000&s={quote(STARRED, safe='')}&{since}")
    all_ids = client.fetch_item_ids(f"output=json&n=200000&s={quote(READING, safe='')}&{since}")
    unread = client.fetch_item_ids(
        f"output=json&n=200000&s={quote(READING, safe='')}&xt={READ}&{since}"
    )
    long_ids = [("i", f"{LONG}{int(i):016x}") for i in all_ids]
    items = client.post("/reader/api/0/stream/items/contents?output=json&n=200000", long_ids).json[
        "items"
    ]
    client.apply_id_lists(items, unread, starred)
    return client, client.edit


def netnewswire(app):
    client = GoogleReaderApp(app)
    client.log_in()
    client.get("/reader/api/0/tag/list?output=json")
    tag = client.get("/reader/api/0/subscription/list?output=json").headers["ETag"]
    headers = {"Authorization": f"GoogleLogin auth={client.auth}", "If-None-Match": tag}
    assert (
        app.server.call("GET", "/reader/api/0/subscription/list?output=json", None, headers).status
        == 304
    )
    # Three per page, to test pagination.
    all_ids = client.fetch_item_ids(f"s={READING}&ot=1&n=3&output=json")
    unread = client.fetch_item_ids(f"s={READING}&xt={READ}&n=1000&output=json")
    starred = client.fetch_item_ids(f"s={STARRED}&n=1000&output=json")
    token = client.get("/reader/api/0/token").text.strip()
    fields = [("T", token), ("output", "json"), *(("i", f"{LONG}{int(i):016x}") for i in all_ids)]
    client.apply_id_lists(
        client.post("/reader/api/0/stream/items/contents", fields).json["items"], unread, starred
    )
    return client, lambda title, tag: client.edit(title, tag, T=token)


def fluent_reader(app):
    """Sends decimal ids and no T."""
    client = GoogleReaderApp(app, "/api/greader.php")
    client.log_in()
    client.get("/reader/api/0/user-info")
    client.feeds()
    items, after = [], ""
    while after is not None:
        result = client.get(f"/reader/api/0/stream/contents?output=json&n=3&ot=1{after}").json
        items += result["items"]
        after = f"&c={result['continuation']}" if "continuation" in result else None
    assert all(item["canonical"][0]["href"] for item in items)
    unread = client.fetch_item_ids(f"output=json&s={READING}&xt={READ}&n=1000")
    client.apply_id_lists(items, unread, client.fetch_item_ids(f"output=json&s={STARRED}&n=1000"))
    client.ids = {title: str(int(i.removeprefix(LONG), 16)) for title, i in client.ids.items()}
    return client, lambda title, tag: client.edit(title, tag, ac="edit")


def readrops(app):
    """Sends multipart forms, excludes two streams at once, and accepts only ids in references."""
    client = GoogleReaderApp(app, "/api/greader.php")
    body, headers = multipart([("Email", app.name), ("Passwd", PASSWORD)])
    client.auth = (
        client.post("/accounts/ClientLogin", body, headers)
        .text.splitlines()[2]
        .removeprefix("Auth=")
    )
    token = client.get("/reader/api/0/token").text.strip()
    assert client.get("/reader/api/0/user-info").json["userName"] == app.name
    assert all(len(feed["categories"]) <= 1 for feed in client.feeds())
    items = client.get(
        f"/reader/api/0/stream/contents/{READING}?xt={READ}&xt={STARRED}&n=2500"
    ).json["items"]
    starred_items = client.get(f"/reader/api/0/stream/contents/{STARRED}?n=1000").json["items"]
    assert not {item["id"] for item in items} & {item["id"] for item in starred_items}
    read = client.fetch_item_ids(f"xt={STATE}unread&s={READING}&n=2500")
    unread = client.fetch_item_ids(f"xt={READ}&s={READING}&n=2500")
    assert (len(read), len(unread)) == (1, 7)
    result = client.get("/reader/api/0/stream/items/ids?s=" + STARRED).json["itemRefs"]
    assert [list(reference) for reference in result] == [["id"]]
    client.apply_id_lists(items + starred_items, unread, [reference["id"] for reference in result])
    return client, lambda title, tag: client.edit(title, tag, T=token)


def read_you(app):
    client = GoogleReaderApp(app, "/api/greader.php")
    fields = {
        "output": "json",
        "Email": app.name,
        "Passwd": PASSWORD,
        "client": "ReadYou",
        "accountType": "HOSTED_OR_GOOGLE",
    }
    client.auth = client.post("/accounts/ClientLogin", {**fields, "service": "reader"}, {}).json[
        "Auth"
    ]
    token = client.get("/reader/api/0/token").text.strip()
    client.get("/reader/api/0/user-info")
    unread = client.fetch_item_ids(f"s={READING}&xt={READ}&n=10000&output=json")
    starred = client.fetch_item_ids(f"s={STARRED}&n=10000&output=json")
    read = client.fetch_item_ids(f"s={READ}&n=10000&ot=1&output=json")
    client.feeds()
    params = [("output", "json"), ("T", token), *(("i", i) for i in {*unread, *starred, *read})]
    client.apply_id_lists(
        client.post("/reader/api/0/stream/items/contents", params).json["items"], unread, starred
    )
    return client, lambda title, tag: client.edit(title, tag, T=token)


def feedme(app):
    """Sends an empty T."""
    client = GoogleReaderApp(app, "/api/greader.php")
    client.log_in()
    client.get("/reader/api/0/tag/list?output=json")
    client.feeds()
    client.get("/reader/api/0/unread-count?output=json")
    client.fetch_item_ids(f"n=500&ot=0&s={STARRED}&output=json")
    client.apply_categories(
        client.get("/reader/api/0/stream/contents?n=500&output=json").json["items"]
    )
    return client, lambda title, tag: client.edit(title, tag, T="")


def reeder(app):
    """Sends x as T."""
    client = GoogleReaderApp(app, "/api/greader.php")
    client.log_in()
    client.feeds()
    unread = client.fetch_item_ids(f"s={READING}&xt={READ}&n=10000&output=json")
    starred = client.fetch_item_ids(f"s={STARRED}&n=10000&output=json")
    all_ids = client.fetch_item_ids(f"s={READING}&n=10000&output=json")
    params = [("output", "json"), ("T", "x"), *(("i", i) for i in all_ids)]
    client.apply_id_lists(
        client.post("/reader/api/0/stream/items/contents", params).json["items"], unread, starred
    )
    return client, lambda title, tag: client.edit(title, tag, T="x")


@pytest.mark.parametrize(
    "run_app",
    [
        newsboat_freshrss,
        liferea,
        rss_guard,
        netnewswire,
        fluent_reader,
        readrops,
        read_you,
        feedme,
        reeder,
    ],
    ids=lambda run_app: run_app.__name__,
)
def test_google_reader(app, run_app):
    set_entry_states(app)
    client, mark = run_app(app)
    # Readrops does not fetch read items.
    assert set(client.ids) == (ALL - {"Alpha 2.0.1"} if run_app is readrops else ALL)
    assert (client.unread, client.starred) == (ALL - {"Alpha 2.0.1"}, {"Beta 2.0.2"})
    mark("Alpha 2.0.3", READ)
    mark("Beta 2.0.4", STARRED)
    assert entry_states(app) == ({"Alpha 2.0.1", "Alpha 2.0.3"}, {"Beta 2.0.2", "Beta 2.0.4"})


def set_entry_states(app):
    ids = {entry["title"]: entry["id"] for entry in app.rest("GET", "/v1/entries").json["entries"]}
    app.rest("PUT", "/v1/entries", {"entry_ids": [ids["Alpha 2.0.1"]], "status": "read"})
    app.rest("PUT", "/v1/entries", {"entry_ids": [ids["Beta 2.0.2"]], "starred": True})


# --- Fever ----------------------------------------------------------------------------------------


def unread_and_reeder(app, key):
    """Fetches forward from the first id, with all parameters in forms."""

    def request(*names, **fields):
        return app.server.post(f"/fever/?api&{'&'.join(names)}", {"api_key": key, **fields}).json

    result = request("groups", "feeds", "favicons")
    assert {feed["title"] for feed in result["feeds"]} == {"Alpha", "Beta"}
    assert [group["title"] for group in result["groups"]] == ["Greek"]
    items, last = [], 0
    while found := request("items", f"since_id={last}")["items"]:
        items, last = items + found, found[-1]["id"]
    result = request("unread_item_ids", "saved_item_ids")
    return items, result, lambda i, state: request(mark="item", id=i, **{"as": state})


def fluent_reader_by_fever(app, key):
    """Fetches backward from the largest safe integer of JavaScript."""

    def request(names, **fields):
        return app.server.post(
            f"/api/fever.php?api{names}", {"api_key": key.upper(), **fields}
        ).json

    items, lowest = [], 9007199254740991
    while found := request(f"&items&max_id={lowest}")["items"]:
        items, lowest = items + found, found[-1]["id"]
    result = request("&unread_item_ids") | request("&saved_item_ids")
    return items, result, lambda i, state: request("", mark="item", id=i, **{"as": state})


def readrops_by_fever(app, key):
    """Omits ``api`` in the URL and sends marks in the query string."""

    def request(query):
        body, headers = multipart([("api_key", key)])
        return app.server.call("POST", f"/api/fever.php?{query}", body, headers).json

    assert request("feeds")["feeds"]
    assert request("groups")["groups"]
    items = request("items&max_id=0")["items"]
    return (
        items,
        request("unread_item_ids") | request("saved_item_ids"),
        lambda i, state: request(f"mark=item&as={state}&id={i}"),
    )


@pytest.mark.parametrize(
    "run_app",
    [unread_and_reeder, fluent_reader_by_fever, readrops_by_fever],
    ids=lambda run_app: run_app.__name__,
)
def test_fever(app, run_app):
    set_entry_states(app)
    items, result, mark = run_app(app, md5(f"{app.name}:{app.token}".encode()).hexdigest())
    ids = {item["title"]: item["id"] for item in items}
    assert set(ids) == ALL
    assert {item["title"] for item in items if item["is_read"]} == {"Alpha 2.0.1"}
    unread = set(map(int, result["unread_item_ids"].split(",")))
    assert unread == {ids[title] for title in ALL - {"Alpha 2.0.1"}}
    assert result["saved_item_ids"] == str(ids["Beta 2.0.2"])
    for _ in range(2):  # the operation is idempotent
        mark(ids["Alpha 2.0.3"], "read")
        mark(ids["Beta 2.0.4"], "saved")
    assert entry_states(app) == ({"Alpha 2.0.1", "Alpha 2.0.3"}, {"Beta 2.0.2", "Beta 2.0.4"})
