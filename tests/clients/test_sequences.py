"""Apps that cannot be run here, request by request: what each asks for, in its order and its spelling, and what it makes of it.

Taken from their sources or from recorded requests; of Reeder and Unread, which are closed, from descriptions. Every app finds
everything, with one post read and one starred, and writes back another read mark and another star, seen by the REST API.
"""

import re
from hashlib import md5
from urllib.parse import quote

import pytest

from tests.clients.conftest import marks
from tests.clients.house import PASSWORD

STATE = "user/-/state/com.google/"
READING, READ, STARRED = f"{STATE}reading-list", f"{STATE}read", f"{STATE}starred"
LONG = "tag:google.com,2005:reader/item/"
ALL = {f"{blog} 2.0.{number}" for blog in ("Alpha", "Beta") for number in range(1, 5)}


def multipart(fields):
    parts = [f'--cut\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields]
    return "".join(parts) + "--cut--\r\n", {"Content-Type": "multipart/form-data; boundary=cut"}


class Phone:
    """Google Reader's dialect as an app speaks it, behind the prefix that it puts before every path."""

    def __init__(self, app, prefix=""):
        self.house, self.name, self.token, self.prefix = app.house, app.name, app.token, prefix
        self.auth = ""
        self.unread, self.starred, self.ids = set(), set(), {}

    def get(self, path):
        answer = self.house.call("GET", self.prefix + path, None, {"Authorization": f"GoogleLogin auth={self.auth}"})
        assert answer.status == 200, (path, answer.text)
        return answer

    def post(self, path, fields, headers=None):
        known = {"Authorization": f"GoogleLogin auth={self.auth}"} if self.auth and headers is None else headers
        answer = self.house.post(self.prefix + path, fields, known)
        assert answer.status == 200, (path, answer.text)
        return answer

    def log_in(self, **more):
        told = self.post("/accounts/ClientLogin", {"Email": self.name, "Passwd": PASSWORD, **more}, {}).text
        self.auth = re.search("^Auth=(.*)$", told, re.MULTILINE).group(1)

    def feeds(self):
        return self.get("/reader/api/0/subscription/list?output=json").json["subscriptions"]

    def references(self, query):
        """Ids, page after page."""
        found, after = [], ""
        while after is not None:
            told = self.get(f"/reader/api/0/stream/items/ids?{query}{after}").json
            found += [reference["id"] for reference in told["itemRefs"]]
            after = f"&c={told['continuation']}" if "continuation" in told else None
        return found

    def take(self, items):
        """As those do that believe the categories."""
        for item in items:
            self.ids[item["title"]] = item["id"]
            self.unread |= set() if READ in item["categories"] else {item["title"]}
            self.starred |= {item["title"]} if STARRED in item["categories"] else set()

    def believe(self, items, unread, starred):
        """As those do that believe the lists of ids."""
        self.ids = {item["title"]: item["id"] for item in items}
        by_id = {str(int(item["id"].removeprefix(LONG), 16)): item["title"] for item in items}
        self.unread, self.starred = {by_id[i] for i in unread}, {by_id[i] for i in starred}

    def edit(self, title, tag, **more):
        fields = {"i": self.ids[title], "a": tag, **more}
        assert self.post("/reader/api/0/edit-tag", fields).body == b"OK"


# --- the apps ----------------------------------------------------------------------------------------------------------


def newsboat_of_today(app):
    """From 2.24 on: `freshrss`."""
    phone = Phone(app, "/api/greader.php")
    phone.log_in(source="newsboat")
    for feed in phone.feeds():
        phone.take(phone.get(f"/reader/api/0/stream/contents/{quote(feed['id'], safe='')}?n=20").json["items"])
    token = phone.get("/reader/api/0/token").text
    return phone, lambda title, tag: phone.edit(title, tag, T=token, ac="edit")


def liferea(app):
    phone = Phone(app)
    phone.log_in(service="reader", source="liferea", **{"continue": app.house.address})
    feeds, address = phone.feeds(), {}
    for feed in feeds:
        asked = f"s={quote(feed['id'], safe='')}&client=liferea&n=50&output=json&merge=true"
        pairs = [("output", "json"), ("mediaRss", "true"), ("T", phone.auth), *(("i", i) for i in phone.references(asked))]
        items = phone.post("/reader/api/0/stream/items/contents", pairs, {}).json["items"]  # the token as T is all it sends
        address |= {item["title"]: feed["url"] for item in items}
        phone.take(items)

    def mark(title, tag):
        token = phone.get("/reader/api/0/token").text
        fields = {"i": phone.ids[title], "s": f"feed/{address[title]}", "a": tag, "ac": "edit-tags", "T": f"{token}\n"}
        assert phone.post("/reader/api/0/edit-tag?client=liferea", {**fields, "async": "true"}).body == b"OK"

    return phone, mark


def rss_guard(app):
    phone = Phone(app)
    phone.log_in()
    assert {"id": READING} not in phone.get("/reader/api/0/tag/list?output=json").json["tags"]
    phone.feeds()
    since = "ot=1763164800"
    starred = phone.references(f"output=json&n=200000&s={quote(STARRED, safe='')}&{since}")
    every = phone.references(f"output=json&n=200000&s={quote(READING, safe='')}&{since}")
    unread = phone.references(f"output=json&n=200000&s={quote(READING, safe='')}&xt={READ}&{since}")
    long = [("i", f"{LONG}{int(i):016x}") for i in every]
    items = phone.post("/reader/api/0/stream/items/contents?output=json&n=200000", long).json["items"]
    phone.believe(items, unread, starred)
    return phone, phone.edit


def netnewswire(app):
    phone = Phone(app)
    phone.log_in()
    phone.get("/reader/api/0/tag/list?output=json")
    tag = phone.get("/reader/api/0/subscription/list?output=json").headers["ETag"]
    known = {"Authorization": f"GoogleLogin auth={phone.auth}", "If-None-Match": tag}
    assert app.house.call("GET", "/reader/api/0/subscription/list?output=json", None, known).status == 304
    every = phone.references(f"s={READING}&ot=1&n=3&output=json")  # three a page, so that it has to go on
    unread = phone.references(f"s={READING}&xt={READ}&n=1000&output=json")
    starred = phone.references(f"s={STARRED}&n=1000&output=json")
    token = phone.get("/reader/api/0/token").text.strip()
    fields = [("T", token), ("output", "json"), *(("i", f"{LONG}{int(i):016x}") for i in every)]
    phone.believe(phone.post("/reader/api/0/stream/items/contents", fields).json["items"], unread, starred)
    return phone, lambda title, tag: phone.edit(title, tag, T=token)


def fluent_reader(app):
    """Its ids are decimal, and it sends no T."""
    phone = Phone(app, "/api/greader.php")
    phone.log_in()
    phone.get("/reader/api/0/user-info")
    phone.feeds()
    items, after = [], ""
    while after is not None:
        told = phone.get(f"/reader/api/0/stream/contents?output=json&n=3&ot=1{after}").json
        items += told["items"]
        after = f"&c={told['continuation']}" if "continuation" in told else None
    assert all(item["canonical"][0]["href"] for item in items)
    unread = phone.references(f"output=json&s={READING}&xt={READ}&n=1000")
    phone.believe(items, unread, phone.references(f"output=json&s={STARRED}&n=1000"))
    phone.ids = {title: str(int(i.removeprefix(LONG), 16)) for title, i in phone.ids.items()}
    return phone, lambda title, tag: phone.edit(title, tag, ac="edit")


def readrops(app):
    """Forms are multipart, two streams are left out at once, and a reference may hold nothing but an id."""
    phone = Phone(app, "/api/greader.php")
    body, headers = multipart([("Email", app.name), ("Passwd", PASSWORD)])
    phone.auth = phone.post("/accounts/ClientLogin", body, headers).text.splitlines()[2].removeprefix("Auth=")
    token = phone.get("/reader/api/0/token").text.strip()
    assert phone.get("/reader/api/0/user-info").json["userName"] == app.name
    assert all(len(feed["categories"]) <= 1 for feed in phone.feeds())
    items = phone.get(f"/reader/api/0/stream/contents/{READING}?xt={READ}&xt={STARRED}&n=2500").json["items"]
    kept = phone.get(f"/reader/api/0/stream/contents/{STARRED}?n=1000").json["items"]
    assert not {item["id"] for item in items} & {item["id"] for item in kept}
    read = phone.references(f"xt={STATE}unread&s={READING}&n=2500")
    unread = phone.references(f"xt={READ}&s={READING}&n=2500")
    assert (len(read), len(unread)) == (1, 7)
    told = phone.get("/reader/api/0/stream/items/ids?s=" + STARRED).json["itemRefs"]
    assert [list(reference) for reference in told] == [["id"]]
    phone.believe(items + kept, unread, [reference["id"] for reference in told])
    return phone, lambda title, tag: phone.edit(title, tag, T=token)


def read_you(app):
    phone = Phone(app, "/api/greader.php")
    fields = {"output": "json", "Email": app.name, "Passwd": PASSWORD, "client": "ReadYou", "accountType": "HOSTED_OR_GOOGLE"}
    phone.auth = phone.post("/accounts/ClientLogin", {**fields, "service": "reader"}, {}).json["Auth"]
    token = phone.get("/reader/api/0/token").text.strip()
    phone.get("/reader/api/0/user-info")
    unread = phone.references(f"s={READING}&xt={READ}&n=10000&output=json")
    starred = phone.references(f"s={STARRED}&n=10000&output=json")
    read = phone.references(f"s={READ}&n=10000&ot=1&output=json")
    phone.feeds()
    asked = [("output", "json"), ("T", token), *(("i", i) for i in {*unread, *starred, *read})]
    phone.believe(phone.post("/reader/api/0/stream/items/contents", asked).json["items"], unread, starred)
    return phone, lambda title, tag: phone.edit(title, tag, T=token)


def feedme(app):
    """Its T is empty."""
    phone = Phone(app, "/api/greader.php")
    phone.log_in()
    phone.get("/reader/api/0/tag/list?output=json")
    phone.feeds()
    phone.get("/reader/api/0/unread-count?output=json")
    phone.references(f"n=500&ot=0&s={STARRED}&output=json")
    phone.take(phone.get("/reader/api/0/stream/contents?n=500&output=json").json["items"])
    return phone, lambda title, tag: phone.edit(title, tag, T="")


def reeder(app):
    """Its T is the letter x."""
    phone = Phone(app, "/api/greader.php")
    phone.log_in()
    phone.feeds()
    unread = phone.references(f"s={READING}&xt={READ}&n=10000&output=json")
    starred = phone.references(f"s={STARRED}&n=10000&output=json")
    every = phone.references(f"s={READING}&n=10000&output=json")
    asked = [("output", "json"), ("T", "x"), *(("i", i) for i in every)]
    phone.believe(phone.post("/reader/api/0/stream/items/contents", asked).json["items"], unread, starred)
    return phone, lambda title, tag: phone.edit(title, tag, T="x")


@pytest.mark.parametrize(
    "play",
    [newsboat_of_today, liferea, rss_guard, netnewswire, fluent_reader, readrops, read_you, feedme, reeder],
    ids=lambda play: play.__name__,
)
def test_google_reader(app, play):
    begin(app)
    phone, mark = play(app)
    assert set(phone.ids) == (ALL - {"Alpha 2.0.1"} if play is readrops else ALL)  # it does not ask for what is read
    assert (phone.unread, phone.starred) == (ALL - {"Alpha 2.0.1"}, {"Beta 2.0.2"})
    mark("Alpha 2.0.3", READ)
    mark("Beta 2.0.4", STARRED)
    assert marks(app) == ({"Alpha 2.0.1", "Alpha 2.0.3"}, {"Beta 2.0.2", "Beta 2.0.4"})


def begin(app):
    ids = {entry["title"]: entry["id"] for entry in app.rest("GET", "/v1/entries").json["entries"]}
    app.rest("PUT", "/v1/entries", {"entry_ids": [ids["Alpha 2.0.1"]], "status": "read"})
    app.rest("PUT", "/v1/entries", {"entry_ids": [ids["Beta 2.0.2"]], "starred": True})


# --- Fever -------------------------------------------------------------------------------------------------------------


def unread_and_reeder(app, key):
    """Forward from the first id; everything in forms."""

    def ask(*names, **fields):
        return app.house.post(f"/fever/?api&{'&'.join(names)}", {"api_key": key, **fields}).json

    told = ask("groups", "feeds", "favicons")
    assert {feed["title"] for feed in told["feeds"]} == {"Alpha", "Beta"}
    assert [group["title"] for group in told["groups"]] == ["Greek"]
    items, last = [], 0
    while found := ask("items", f"since_id={last}")["items"]:
        items, last = items + found, found[-1]["id"]
    told = ask("unread_item_ids", "saved_item_ids")
    return items, told, lambda i, how: ask(mark="item", id=i, **{"as": how})


def fluent_reader_by_fever(app, key):
    """Backward from the highest number that its language knows."""

    def ask(names, **fields):
        return app.house.post(f"/api/fever.php?api{names}", {"api_key": key.upper(), **fields}).json

    items, lowest = [], 9007199254740991
    while found := ask(f"&items&max_id={lowest}")["items"]:
        items, lowest = items + found, found[-1]["id"]
    told = ask("&unread_item_ids") | ask("&saved_item_ids")
    return items, told, lambda i, how: ask("", mark="item", id=i, **{"as": how})


def readrops_by_fever(app, key):
    """The address does not say ``api``, and marks stand in it."""

    def ask(query):
        body, headers = multipart([("api_key", key)])
        return app.house.call("POST", f"/api/fever.php?{query}", body, headers).json

    assert ask("feeds")["feeds"]
    assert ask("groups")["groups"]
    items = ask("items&max_id=0")["items"]
    return items, ask("unread_item_ids") | ask("saved_item_ids"), lambda i, how: ask(f"mark=item&as={how}&id={i}")


@pytest.mark.parametrize("play", [unread_and_reeder, fluent_reader_by_fever, readrops_by_fever], ids=lambda play: play.__name__)
def test_fever(app, play):
    begin(app)
    items, told, mark = play(app, md5(f"{app.name}:{app.token}".encode()).hexdigest())
    ids = {item["title"]: item["id"] for item in items}
    assert set(ids) == ALL
    assert {item["title"] for item in items if item["is_read"]} == {"Alpha 2.0.1"}
    unread = set(map(int, told["unread_item_ids"].split(",")))
    assert unread == {ids[title] for title in ALL - {"Alpha 2.0.1"}}
    assert told["saved_item_ids"] == str(ids["Beta 2.0.2"])
    for _ in range(2):  # said twice, it is done once
        mark(ids["Alpha 2.0.3"], "read")
        mark(ids["Beta 2.0.4"], "saved")
    assert marks(app) == ({"Alpha 2.0.1", "Alpha 2.0.3"}, {"Beta 2.0.2", "Beta 2.0.4"})
