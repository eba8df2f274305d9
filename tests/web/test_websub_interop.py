"""WebSub with somebody else's code: Flask-WebSub subscribes at our hub, and its hub pushes to us."""

import threading
import time
from contextlib import contextmanager
from queue import Queue

from flask import Flask, Response, request
from flask_websub.hub import Hub, SQLite3HubStorage
from flask_websub.subscriber import (
    SQLite3SubscriberStorage,
    SQLite3TempSubscriberStorage,
    Subscriber,
    discover,
)
from werkzeug.serving import make_server

from tests import TEST_TIMEOUT_S
from tests.aggregator.websub_harness import atom
from tests.web.conftest import ReaderServer
from tests.web.test_output_feeds import addresses, publish_and_poll
from tidings.aggregator import websub


@contextmanager
def running(app):
    """The application on a port of its own: its address."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    app.config["SERVER_NAME"] = f"127.0.0.1:{server.port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join(timeout=TEST_TIMEOUT_S)


class Tasks:
    """In place of Celery: a task runs at once, in a thread of its own."""

    def task(self, bind=False, **_options):
        def make(function):
            before = (self,) if bind else ()
            function.delay = lambda *given: threading.Thread(
                target=function, args=(*before, *given)
            ).start()
            return function

        return make


def test_an_independent_subscriber_at_our_hub(reader_server, ada, blogs, tmp_path):
    feed = ada.subscribe(blogs.url(1))
    app = Flask("subscriber")
    storage = (
        SQLite3SubscriberStorage(str(tmp_path / "kept.db")),
        SQLite3TempSubscriberStorage(str(tmp_path / "asked.db")),
    )
    subscriber, agreed, got = Subscriber(*storage), Queue(), Queue()
    app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
    subscriber.add_success_handler(lambda topic, callback, mode: agreed.put((topic, mode)))
    subscriber.add_listener(lambda topic, callback, body: got.put((topic, body)))
    topic = f"http://127.0.0.1:{reader_server.port}{addresses(ada, 'atom')['All entries']}"
    with running(app), app.app_context():
        found = discover(topic)
        assert found == {
            "topic_url": topic,
            "hub_url": f"http://127.0.0.1:{reader_server.port}/hub",
        }
        number = subscriber.subscribe(**found)
        assert agreed.get(timeout=TEST_TIMEOUT_S) == (topic, "subscribe")
        (came, *_) = publish_and_poll(ada, blogs, feed, 1)
        sent_topic, body = got.get(timeout=TEST_TIMEOUT_S)
        assert sent_topic == topic
        assert f"/entry/{came}<" in body.decode()
        subscriber.renew(number)
        assert agreed.get(timeout=TEST_TIMEOUT_S) == (topic, "subscribe")
        subscriber.unsubscribe(number)
        assert agreed.get(timeout=TEST_TIMEOUT_S) == (topic, "unsubscribe")


def test_an_independent_hub_pushes_to_us(tmp_path, monkeypatch):
    monkeypatch.setattr(websub, "ROUND_S", 0.1)
    posts, asked, app = ["first"], [], Flask("publisher")
    storage = SQLite3HubStorage(str(tmp_path / "hub.db"))
    hub = Hub(storage, Tasks(), SIGNATURE_ALGORITHM="sha512")
    app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))

    @app.route("/feed")
    def document():
        asked.append(request.user_agent.string)
        base = f"http://{app.config['SERVER_NAME']}"
        answer = Response(atom(*posts, at=time.time()), mimetype="application/atom+xml")
        answer.headers["Link"] = f'<{base}/hub>; rel="hub", <{base}/feed>; rel="self"'
        return answer

    with (
        running(app) as base,
        ReaderServer(tmp_path, **{"serve.public_url": "http://127.0.0.1:{port}"}) as server,
    ):
        ada = server.client("ada").create_admin()
        feed = ada.subscribe(f"{base}/feed")
        until(lambda: list(storage.get_callbacks(f"{base}/feed")))
        ((callback, _secret),) = storage.get_callbacks(f"{base}/feed")
        assert callback.startswith(f"http://127.0.0.1:{server.port}/push/")
        posts.insert(0, "second")
        hub.send_change_notification(f"{base}/feed")
        until(lambda: len(ada.get(f"/feed/{feed}").entries) == 2)
        assert [name.partition("/")[0] for name in asked].count(
            "tidings"
        ) == 1  # it came by push, not by a poll
        ada.post(f"/feed/{feed}/leave")
        hub.send_change_notification(f"{base}/feed")  # nobody is left who reads it: we say 410
        until(lambda: not list(storage.get_callbacks(f"{base}/feed")))


def until(condition):
    deadline = time.monotonic() + TEST_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
