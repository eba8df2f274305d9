"""WebSub hub: the test cases of websub.rocks by number, and other rules of the W3C standard."""

import hmac
import json
import time
from queue import Empty, Queue
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests import TEST_TIMEOUT_S
from tests.local_server import LocalServer
from tests.web.conftest import ReaderServer
from tests.web.test_output_feeds import output_paths, publish_and_poll
from tidings.web import hub

FORM = "application/x-www-form-urlencoded"


class SubscriberServer(LocalServer):
    """A subscriber: ``verifications`` has the hub's challenges, ``got`` the delivered content."""

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
        body = query["hub.challenge"] if self.confirms_intent else "something else"
        self.verifications.put((request.path, query))
        return 200, "text/plain", body.encode()

    def next_push(self):
        return self.got.get(timeout=TEST_TIMEOUT_S)[1:]  # path, headers, body

    def next_verification(self):
        return self.verifications.get(timeout=TEST_TIMEOUT_S)[1]


@pytest.fixture(scope="module", autouse=True)
def no_batch_delay():
    """Deliver without waiting for more entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "BATCH_DELAY_S", 0.02)
        yield


@pytest.fixture(scope="module")
def publisher(reader_server, blogs):
    """A server with output feeds; ``publisher.publish_and_poll()`` adds an entry to all of them."""
    reader_server.feed = reader_server.ada.subscribe(blogs.url(1))
    reader_server.publish_and_poll = lambda: publish_and_poll(
        reader_server.ada, blogs, reader_server.feed, 1
    )
    reader_server.topic = lambda kind="atom", title="All posts": (
        f"http://127.0.0.1:{reader_server.port}{output_paths(reader_server.ada, kind)[title]}"
    )
    return reader_server


@pytest.fixture
def subscriber():
    with SubscriberServer() as subscriber:
        yield subscriber


def request(publisher, **fields):
    """Send a request to the hub; return status and text of the response."""
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
    """Wait until the hub has stored this number of subscriptions."""
    import sqlite3

    deadline = time.monotonic() + TEST_TIMEOUT_S
    while time.monotonic() < deadline:
        with sqlite3.connect(f"file:{publisher.store_path}?mode=ro", uri=True) as db:
            row = db.execute("SELECT value FROM key_values WHERE key = 'hub'").fetchone()
        if len(json.loads(row[0]) if row else []) == number:
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(autouse=True)
def unsubscribe_after_test(publisher, subscriber):
    """Remove all subscriptions after each test: the callback answers 410."""
    yield
    subscriber.confirms_intent, subscriber.status = True, 410
    publisher.publish_and_poll()
    assert wait_for_subscriptions(publisher, 0)


def test_100_subscription_and_delivery(publisher, subscriber):
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
    assert body == document.body  # the full document
    assert (
        headers["Link"]
        == f'<http://127.0.0.1:{publisher.port}/hub>; rel="hub", <{publisher.topic()}>; rel="self"'
    )
    assert headers["X-Hub-Signature"] is None


def test_101_delivery_is_signed_with_secret(publisher, subscriber):
    subscribe(publisher, subscriber, secret="between us")
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    _path, headers, body = subscriber.next_push()
    assert (
        headers["X-Hub-Signature"] == f"sha256={hmac.digest(b'between us', body, 'sha256').hex()}"
    )


def test_102_unknown_parameters_are_ignored(publisher, subscriber):
    assert subscribe(publisher, subscriber, foo="bar", unknown="1")["hub.mode"] == "subscribe"
    assert wait_for_subscriptions(publisher, 1)


def test_103_subscription_is_renewed(publisher, subscriber):
    first = subscribe(publisher, subscriber, lease_seconds=1000)
    second = subscribe(publisher, subscriber, lease_seconds=2000)
    assert first["hub.challenge"] != second["hub.challenge"]
    assert (first["hub.lease_seconds"], second["hub.lease_seconds"]) == ("1000", "2000")
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    subscriber.next_push()
    with pytest.raises(Empty):
        subscriber.got.get(timeout=0.2)  # once, not twice


def test_104_unsubscribe(publisher, subscriber):
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    verification = subscribe(publisher, subscriber, mode="unsubscribe")
    assert verification["hub.mode"] == "unsubscribe"
    assert "hub.lease_seconds" not in verification
    assert wait_for_subscriptions(publisher, 0)


@pytest.mark.parametrize("kind", ["rss", "json"])
def test_106_rss_and_json_content(publisher, subscriber, kind):
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


def test_unconfirmed_subscription_gets_no_delivery(publisher, subscriber):
    subscriber.confirms_intent = False
    subscribe(publisher, subscriber)
    publisher.publish_and_poll()
    with pytest.raises(Empty):
        subscriber.got.get(timeout=0.5)
    assert wait_for_subscriptions(publisher, 0)


def test_unconfirmed_unsubscribe_is_ignored(publisher, subscriber):
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    subscriber.confirms_intent = False  # it did not send the request
    subscribe(publisher, subscriber, mode="unsubscribe")
    publisher.publish_and_poll()
    subscriber.next_push()


def test_callback_query_is_kept(publisher, subscriber):
    subscribe(publisher, subscriber, callback=f"{subscriber.address}?id=7")
    assert wait_for_subscriptions(publisher, 1)
    publisher.publish_and_poll()
    assert subscriber.next_push()[0] == "/callback?id=7"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
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
def test_invalid_request_gets_an_error(publisher, subscriber, fields, status, message):
    request_fields = {
        "mode": "subscribe",
        "topic": publisher.topic(),
        "callback": subscriber.address,
        **fields,
    }
    response_status, text = request(publisher, **request_fields)
    assert (response_status, message in text) == (status, True)


@pytest.mark.parametrize(
    ("requested_lease", "granted_lease"),
    [("1", hub.MIN_LEASE_S), ("99999999", hub.MAX_LEASE_S), ("soon", hub.DEFAULT_LEASE_S)],
)
def test_lease_is_bounded(publisher, subscriber, requested_lease, granted_lease):
    verification = subscribe(publisher, subscriber, lease_seconds=requested_lease)
    assert verification["hub.lease_seconds"] == str(granted_lease)
    assert wait_for_subscriptions(publisher, 1)


def test_failed_delivery_is_retried(publisher, subscriber, monkeypatch):
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


def test_link_reset_removes_subscriptions(publisher, subscriber):
    subscribe(publisher, subscriber)
    assert wait_for_subscriptions(publisher, 1)
    publisher.ada.post("/settings/outputs")
    publisher.publish_and_poll()
    assert wait_for_subscriptions(publisher, 0)


def test_subscriptions_survive_a_restart(tmp_path, blogs, subscriber):
    with ReaderServer(tmp_path) as first:
        ada = first.client("ada").create_admin()
        feed = ada.subscribe(blogs.url(2))
        topic = f"http://127.0.0.1:{first.port}{output_paths(ada, 'atom')['All posts']}"
        first.topic = lambda: topic
        subscribe(first, subscriber)
        assert wait_for_subscriptions(first, 1)
    with ReaderServer(tmp_path, **{"serve.public_url": f"http://127.0.0.1:{first.port}"}) as second:
        ada = second.client("ada")
        ada.log_in()
        assert publish_and_poll(ada, blogs, feed, 2)
        assert subscriber.next_push()


def test_private_callback_is_not_contacted(tmp_path, blogs, subscriber):
    with ReaderServer(tmp_path) as first_server:
        ada = first_server.client("ada").create_admin()
        ada.subscribe(blogs.url(2))
        path = output_paths(ada, "atom")["All posts"]
    with ReaderServer(tmp_path, **{"fetch.allow_private": "false"}) as guarded:
        guarded.topic = lambda: f"http://127.0.0.1:{guarded.port}{path}"
        request(guarded, mode="subscribe", topic=guarded.topic(), callback=subscriber.address)
        with pytest.raises(Empty):
            subscriber.verifications.get(timeout=1)
