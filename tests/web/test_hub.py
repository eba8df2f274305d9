"""Our hub as W3C WebSub wants it: the cases of websub.rocks by their numbers, and what else the text demands."""

import hmac
import json
import time
from queue import Empty, Queue
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests import PATIENCE_S
from tests.sites import Site
from tests.web.conftest import Serving
from tests.web.test_output import addresses, news
from tidings.web import hub

FORM = "application/x-www-form-urlencoded"


class Follower(Site):
    """A subscriber: ``questions`` has those whether it meant it, ``got`` what it was sent."""

    def __init__(self):
        super().__init__()
        self.questions, self.got = Queue(), Queue()
        self.honest, self.status = True, 200
        self.address += "/callback"

    def answer(self, request):
        if request.method == "POST":
            self.got.put(request)
            return self.status, "text/plain", b""
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        said = query["hub.challenge"] if self.honest else "something else"
        self.questions.put((request.path, query))
        return 200, "text/plain", said.encode()

    def next_push(self):
        return self.got.get(timeout=PATIENCE_S)[1:]  # path, headers, body

    def next_question(self):
        return self.questions.get(timeout=PATIENCE_S)[1]


@pytest.fixture(scope="module", autouse=True)
def haste():
    """Followers are told at once, not after a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "GATHER_S", 0.02)
        yield


@pytest.fixture(scope="module")
def publisher(house, blogs):
    """Ada, whose output feeds have a hub; ``publisher.news()`` makes something appear in all of them."""
    house.feed = house.ada.follow(blogs.url(1))
    house.news = lambda: news(house.ada, blogs, house.feed, 1)
    house.topic = lambda kind="atom", title="All entries": f"http://127.0.0.1:{house.port}{addresses(house.ada, kind)[title]}"
    return house


@pytest.fixture
def follower():
    with Follower() as follower:
        yield follower


def ask(publisher, **fields):
    """What a subscriber sends to the hub; the status and the text of its answer."""
    form = urlencode({f"hub.{name}" if name != "unknown" else name: value for name, value in fields.items()})
    answer = publisher.person().ask("POST", "/hub", form, Content_Type=FORM)
    return answer.status, answer.text


def subscribe(publisher, follower, **more):
    fields = {"mode": "subscribe", "topic": publisher.topic(), "callback": follower.address, **more}
    status, text = ask(publisher, **fields)
    assert status == 202, text
    return follower.next_question()


def settled(publisher, number):
    """The hub has that many followers; it keeps them in the store, where we look."""
    import sqlite3

    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with sqlite3.connect(f"file:{publisher.store_path}?mode=ro", uri=True) as db:
            row = db.execute("SELECT value FROM shared WHERE key = 'hub'").fetchone()
        if len(json.loads(row[0]) if row else []) == number:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(autouse=True)
def alone(publisher, follower):
    """Whoever follows when a test ends says goodbye, so that the next begins alone."""
    yield
    follower.honest, follower.status = True, 410
    publisher.news()
    assert settled(publisher, 0)


def test_100_a_typical_subscription(publisher, follower):
    question = subscribe(publisher, follower)
    assert question["hub.mode"] == "subscribe"
    assert question["hub.topic"] == publisher.topic()
    assert len(question["hub.challenge"]) >= 20
    assert int(question["hub.lease_seconds"]) == hub.LEASE_S
    assert settled(publisher, 1)
    publisher.news()
    _path, headers, body = follower.next_push()
    document = publisher.ada.get(urlsplit(publisher.topic()).path)
    assert headers["Content-Type"] == document.headers["Content-Type"].partition(";")[0]
    assert body == document.body  # the whole of it
    assert headers["Link"] == f'<http://127.0.0.1:{publisher.port}/hub>; rel="hub", <{publisher.topic()}>; rel="self"'
    assert headers["X-Hub-Signature"] is None


def test_101_with_a_secret_it_is_signed(publisher, follower):
    subscribe(publisher, follower, secret="between us")
    assert settled(publisher, 1)
    publisher.news()
    _path, headers, body = follower.next_push()
    assert headers["X-Hub-Signature"] == f"sha256={hmac.digest(b'between us', body, 'sha256').hex()}"


def test_102_what_it_does_not_know_it_ignores(publisher, follower):
    assert subscribe(publisher, follower, foo="bar", unknown="1")["hub.mode"] == "subscribe"
    assert settled(publisher, 1)


def test_103_a_subscription_is_renewed_before_it_ends(publisher, follower):
    first = subscribe(publisher, follower, lease_seconds=1000)
    second = subscribe(publisher, follower, lease_seconds=2000)
    assert first["hub.challenge"] != second["hub.challenge"]
    assert (first["hub.lease_seconds"], second["hub.lease_seconds"]) == ("1000", "2000")
    assert settled(publisher, 1)
    publisher.news()
    follower.next_push()
    with pytest.raises(Empty):
        follower.got.get(timeout=0.2)  # once, not twice


def test_104_unsubscribing(publisher, follower):
    subscribe(publisher, follower)
    assert settled(publisher, 1)
    question = subscribe(publisher, follower, mode="unsubscribe")
    assert question["hub.mode"] == "unsubscribe"
    assert "hub.lease_seconds" not in question
    assert settled(publisher, 0)


@pytest.mark.parametrize("kind", ["rss", "json"])
def test_106_content_of_another_kind(publisher, follower, kind):
    subscribe(publisher, follower, topic=publisher.topic(kind))
    assert settled(publisher, 1)
    publisher.news()
    _path, headers, body = follower.next_push()
    assert headers["Content-Type"] == {"rss": "application/rss+xml", "json": "application/feed+json"}[kind]
    assert (json.loads(body)["version"] if kind == "json" else body[:5]) in ("https://jsonfeed.org/version/1.1", b"<?xml")


def test_who_did_not_mean_it_gets_nothing(publisher, follower):
    follower.honest = False
    subscribe(publisher, follower)
    publisher.news()
    with pytest.raises(Empty):
        follower.got.get(timeout=0.5)
    assert settled(publisher, 0)


def test_nobody_can_unsubscribe_another(publisher, follower):
    subscribe(publisher, follower)
    assert settled(publisher, 1)
    follower.honest = False  # it did not ask for that
    subscribe(publisher, follower, mode="unsubscribe")
    publisher.news()
    follower.next_push()


def test_a_callback_keeps_its_own_query(publisher, follower):
    subscribe(publisher, follower, callback=f"{follower.address}?id=7")
    assert settled(publisher, 1)
    publisher.news()
    assert follower.next_push()[0] == "/callback?id=7"


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"mode": "publish"}, 400, "hub.mode"),
        ({"mode": ""}, 400, "hub.mode"),
        ({"callback": "ftp://example.org/"}, 400, "hub.callback"),
        ({"callback": ""}, 400, "hub.callback"),
        ({"secret": "x" * 200}, 400, "less than 200 bytes"),
        ({"topic": "https://example.org/feed"}, 404, "not a feed of this hub"),
        ({"topic": ""}, 404, "not a feed of this hub"),
    ],
)
def test_a_request_that_cannot_be_meant_says_why(publisher, follower, fields, status, said):
    told = {"mode": "subscribe", "topic": publisher.topic(), "callback": follower.address, **fields}
    answered, text = ask(publisher, **told)
    assert (answered, said in text) == (status, True)


@pytest.mark.parametrize(("asked", "granted"), [("1", hub.SHORTEST_S), ("99999999", hub.LONGEST_S), ("soon", hub.LEASE_S)])
def test_leases_are_finite(publisher, follower, asked, granted):
    assert subscribe(publisher, follower, lease_seconds=asked)["hub.lease_seconds"] == str(granted)
    assert settled(publisher, 1)


def test_a_failed_delivery_is_tried_again(publisher, follower, monkeypatch):
    monkeypatch.setattr(hub, "AGAIN_S", 0.1)
    subscribe(publisher, follower)
    assert settled(publisher, 1)
    follower.status = 500
    publisher.news()
    follower.next_push()
    follower.next_push()
    follower.status = 204
    follower.next_push()
    assert settled(publisher, 1)


def test_an_address_that_is_made_new_ends_what_followed_the_old_one(publisher, follower):
    subscribe(publisher, follower)
    assert settled(publisher, 1)
    publisher.ada.post("/settings/outputs")
    publisher.news()
    assert settled(publisher, 0)


def test_subscriptions_outlive_the_service_and_what_came_meanwhile_is_sent(tmp_path, blogs, follower):
    with Serving(tmp_path) as first:
        ada = first.person("ada").begin()
        feed = ada.follow(blogs.url(2))
        topic = f"http://127.0.0.1:{first.port}{addresses(ada, 'atom')['All entries']}"
        first.topic = lambda: topic
        subscribe(first, follower)
        assert settled(first, 1)
    with Serving(tmp_path, **{"serve.public_url": f"http://127.0.0.1:{first.port}"}) as second:
        ada = second.person("ada")
        ada.log_in()
        assert news(ada, blogs, feed, 2)
        assert follower.next_push()


def test_callbacks_in_our_own_network_are_not_asked(tmp_path, blogs, follower):
    with Serving(tmp_path) as open_house:
        ada = open_house.person("ada").begin()
        ada.follow(blogs.url(2))
        path = addresses(ada, "atom")["All entries"]
    with Serving(tmp_path, **{"fetch.allow_private": "false"}) as guarded:
        guarded.topic = lambda: f"http://127.0.0.1:{guarded.port}{path}"
        ask(guarded, mode="subscribe", topic=guarded.topic(), callback=follower.address)
        with pytest.raises(Empty):
            follower.questions.get(timeout=1)
