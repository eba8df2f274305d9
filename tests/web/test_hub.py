"""Our hub as W3C WebSub wants it: the cases of websub.rocks by their numbers, and what else the text demands."""

import hmac
import json
import time
from queue import Empty, Queue
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests import TEST_TIMEOUT_S
from tests.local_server import LocalServer
from tests.web.conftest import ReaderServer
from tests.web.test_output_feeds import addresses, publish_and_poll
from tidings.web import hub

FORM = "application/x-www-form-urlencoded"


class SubscriberServer(LocalServer):
    """A subscriber: ``questions`` has those whether it meant it, ``got`` what it was sent."""

    def __init__(self):
        super().__init__()
        self.verifications, self.got = Queue(), Queue()
        self.confirms_intent, self.status = True, 200
        self.address += "/callback"

    def answer(self, request):
        if request.method == "POST":
            self.got.put(request)
            return self.status, "text/plain", b""
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        said = query["hub.challenge"] if self.confirms_intent else "something else"
        self.verifications.put((request.path, query))
        return 200, "text/plain", said.encode()

    def next_push(self):
        return self.got.get(timeout=TEST_TIMEOUT_S)[1:]  # path, headers, body

    def next_verification(self):
        return self.verifications.get(timeout=TEST_TIMEOUT_S)[1]


@pytest.fixture(scope="module", autouse=True)
def no_batch_delay():
    """Followers are told at once, not after a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "BATCH_DELAY_S", 0.02)
        yield


@pytest.fixture(scope="module")
def publisher(reader_server, blogs):
    """Ada, whose output feeds have a hub; ``publisher.news()`` makes something appear in all of them."""
    reader_server.feed = reader_server.ada.subscribe(blogs.url(1))
    reader_server.publish_and_poll = lambda: publish_and_poll(
        reader_server.ada, blogs, reader_server.feed, 1
    )
    reader_server.topic = lambda kind="atom", title="All entries": (
        f"http://127.0.0.1:{reader_server.port}{addresses(reader_server.ada, kind)[title]}"
    )
    return reader_server


@pytest.fixture
def subscriber():
    with SubscriberServer() as subscriber:
        yield subscriber


def request(publisher, **fields):
    """What a subscriber sends to the hub; the status and the text of its answer."""
    form = urlencode(
        {f"hub.{name}" if name != "unknown" else name: value for name, value in fields.items()}
    )
    answer = publisher.client().request("POST", "/hub", form, Content_Type=FORM)
    return answer.status, answer.text


def subscribe(publisher, subscriber, **more):
    fields = {
        "mode": "subscribe",
        "topic": publisher.topic(),
        "callback": subscriber.address,
        **more,
    }
    status, text = request(publisher, **fields)
    assert status == 202, text
    return subscriber.next_verification()


def wait_for_subscriptions(publisher, number):
    """The hub has that many followers; it keeps them in the store, where we look."""
    import sqlite3

    deadline = time.monotonic() + TEST_TIMEOUT_S
    while time.monotonic() < deadline:
        with sqlite3.connect(f"file:{publisher.store_path}?mode=ro", uri=True) as db:
            row = db.execute("SELECT value FROM shared WHERE key = 'hub'").fetchone()
        if len(json.loads(row[0]) if row else []) == number:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(autouse=True)
def unsubscribe_after_test(publisher, subscriber):
    """Whoever follows when a test ends says goodbye, so that the next begins alone."""
    yield
    subscriber.confirms_intent, subscriber.status = True, 410
    publisher.publish_and_poll()
    assert wait_for_subscriptions(publisher, 0)


def test_100_a_typical_subscription(publisher, subscriber):
    verification = subscribe(publisher, subscriber)
    assert verification["hub.mode"] == "subscribe"
    assert verification["hub.topic"] == publisher.topic()
    assert len(verification["hub.challenge"]) >= 20
    assert int(verification["hub.lease_seconds"]) == hub.DEFAULT_LEASE_S
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    _path, headers, body = subscriber.next_push()
    document = publisher.ada.get(urlsplit(publisher.topic()).path)
    assert headers["Content-Type"] == document.headers["Content-Type"].partition(";")[0]
    assert body == document.body  # the whole of it
    assert (
        headers["Link"]
        == f'<http://127.0.0.1:{publisher.port}/hub>; rel="hub", <{publisher.topic()}>; rel="self"'
    )
    assert headers["X-Hub-Signature"] is None


def test_101_with_a_secret_it_is_signed(publisher, subscriber):
    subscribe(publisher, subscriber, secret="between us")
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    _path, headers, body = subscriber.next_push()
    assert (
        headers["X-Hub-Signature"] == f"sha256={hmac.digest(b'between us', body, 'sha256').hex()}"
    )


def test_102_what_it_does_not_know_it_ignores(publisher, subscriber):
    assert subscribe(publisher, subscriber, foo="bar", unknown="1")["hub.mode"] == "subscribe"
    assert wait_for_subscriptions(publisher, 1)


def test_103_a_subscription_is_renewed_before_it_ends(publisher, subscriber):
    first = subscribe(publisher, subscriber, lease_seconds=1000)
    second = subscribe(publisher, subscriber, lease_seconds=2000)
    assert first["hub.challenge"] != second["hub.challenge"]
    assert (first["hub.lease_seconds"], second["hub.lease_seconds"]) == ("1000", "2000")
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    subscriber.next_push()
    with pytest.raises(Empty):
        subscriber.got.get(timeout=0.2)  # once, not twice


def test_104_unsubscribing(publisher, subscriber):
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    verification = subscribe(publisher, subscriber, mode="unsubscribe")
    assert verification["hub.mode"] == "unsubscribe"
    assert "hub.lease_seconds" not in verification
    assert wait_for_subscriptions(publisher, 0)


@pytest.mark.parametrize("kind", ["rss", "json"])
def test_106_content_of_another_kind(publisher, subscriber, kind):
    subscribe(publisher, subscriber, topic=publisher.topic(kind))
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    _path, headers, body = subscriber.next_push()
    assert (
        headers["Content-Type"]
        == {"rss": "application/rss+xml", "json": "application/feed+json"}[kind]
    )
    assert (json.loads(body)["version"] if kind == "json" else body[:5]) in (
        "https://jsonfeed.org/version/1.1",
        b"<?xml",
    )


def test_who_did_not_mean_it_gets_nothing(publisher, subscriber):
    subscriber.confirms_intent = False
    subscribe(publisher, subscriber)
    publisher.publish_and_poll()
    with pytest.raises(Empty):
        subscriber.got.get(timeout=0.5)
    assert wait_for_subscriptions(publisher, 0)


def test_nobody_can_unsubscribe_another(publisher, subscriber):
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    subscriber.confirms_intent = False  # it did not ask for that
    subscribe(publisher, subscriber, mode="unsubscribe")
    publisher.publish_and_poll()
    subscriber.next_push()


def test_a_callback_keeps_its_own_query(publisher, subscriber):
    subscribe(publisher, subscriber, callback=f"{subscriber.address}?id=7")
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    assert subscriber.next_push()[0] == "/callback?id=7"


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
def test_a_request_that_cannot_be_meant_says_why(publisher, subscriber, fields, status, said):
    request_fields = {
        "mode": "subscribe",
        "topic": publisher.topic(),
        "callback": subscriber.address,
        **fields,
    }
    answered, text = request(publisher, **request_fields)
    assert (answered, said in text) == (status, True)


@pytest.mark.parametrize(
    ("asked", "granted"),
    [("1", hub.MIN_LEASE_S), ("99999999", hub.MAX_LEASE_S), ("soon", hub.DEFAULT_LEASE_S)],
)
def test_leases_are_finite(publisher, subscriber, asked, granted):
    assert subscribe(publisher, subscriber, lease_seconds=asked)["hub.lease_seconds"] == str(
        granted
    )
    assert wait_for_subscriptions(publisher, 1)


def test_a_failed_delivery_is_tried_again(publisher, subscriber, monkeypatch):
    monkeypatch.setattr(hub, "RETRY_DELAY_S", 0.1)
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    subscriber.status = 500
    publisher.publish_and_poll()
    subscriber.next_push()
    subscriber.next_push()
    subscriber.status = 204
    subscriber.next_push()
    assert wait_for_subscriptions(publisher, 1)


def test_an_address_that_is_made_new_ends_what_followed_the_old_one(publisher, subscriber):
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    publisher.ada.post("/settings/outputs")
    publisher.publish_and_poll()
    assert wait_for_subscriptions(publisher, 0)


def test_subscriptions_outlive_the_service_and_what_came_meanwhile_is_sent(
    tmp_path, blogs, subscriber
):
    with ReaderServer(tmp_path) as first:
        ada = first.client("ada").create_admin()
        feed = ada.subscribe(blogs.url(2))
        topic = f"http://127.0.0.1:{first.port}{addresses(ada, 'atom')['All entries']}"
        first.topic = lambda: topic
        subscribe(first, subscriber)
        assert wait_for_subscriptions(first, 1)
    with ReaderServer(tmp_path, **{"serve.public_url": f"http://127.0.0.1:{first.port}"}) as second:
        ada = second.client("ada")
        ada.log_in()
        assert publish_and_poll(ada, blogs, feed, 2)
        assert subscriber.next_push()


def test_callbacks_in_our_own_network_are_not_asked(tmp_path, blogs, subscriber):
    with ReaderServer(tmp_path) as first_server:
        ada = first_server.client("ada").create_admin()
        ada.subscribe(blogs.url(2))
        path = addresses(ada, "atom")["All entries"]
    with ReaderServer(tmp_path, **{"fetch.allow_private": "false"}) as guarded:
        guarded.topic = lambda: f"http://127.0.0.1:{guarded.port}{path}"
        request(guarded, mode="subscribe", topic=guarded.topic(), callback=subscriber.address)
        with pytest.raises(Empty):
            subscriber.verifications.get(timeout=1)
