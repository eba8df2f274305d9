"""Tests of WebSub with Flask-WebSub, both as subscriber of the hub and as hub."""

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
from tests.web.client import wait_until
from tests.web.conftest import ReaderServer
from tests.web.test_output_feeds import output_paths, publish_and_poll
from tidings.aggregator import websub


@contextmanager
def running(app):
    """Run a WSGI application on a free port; yields its base URL."""
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
    """Replacement for Celery: runs each task in a thread."""

    def task(self, bind=False, **_options):
        def make(function):
            bound = (self,) if bind else ()
            function.delay = lambda *args: threading.Thread(
                target=function, args=(*bound, *args)
            ).start()
            return function

        return make


def test_flask_websub_subscribes_to_our_hub(reader_server, ada, blogs, tmp_path):
    feed = ada.subscribe(blogs.url(1))
    app = Flask("subscriber")
    storage = (
        SQLite3SubscriberStorage(str(tmp_path / "subscriptions.db")),
        SQLite3TempSubscriberStorage(str(tmp_path / "pending.db")),
    )
    subscriber, confirmed, got = Subscriber(*storage), Queue(), Queue()
    app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
    subscriber.add_success_handler(lambda topic, callback, mode: confirmed.put((topic, mode)))
    subscriber.add_listener(lambda topic, callback, body: got.put((topic, body)))
    topic = f"http://127.0.0.1:{reader_server.port}{output_paths(ada, 'atom')['All posts']}"
    with running(app), app.app_context():
        found = discover(topic)
        assert found == {
            "topic_url": topic,
            "hub_url": f"http://127.0.0.1:{reader_server.port}/hub",
        }
        number = subscriber.subscribe(**found)
        assert confirmed.get(timeout=TEST_TIMEOUT_S) == (topic, "subscribe")
        (new_id, *_) = publish_and_poll(ada, blogs, feed, 1)
        sent_topic, body = got.get(timeout=TEST_TIMEOUT_S)
        assert sent_topic == topic
        assert f"/entry/{new_id}<" in body.decode()
        subscriber.renew(number)
        assert confirmed.get(timeout=TEST_TIMEOUT_S) == (topic, "subscribe")
        subscriber.unsubscribe(number)
        assert confirmed.get(timeout=TEST_TIMEOUT_S) == (topic, "unsubscribe")


def test_flask_websub_hub_pushes_to_us(tmp_path, monkeypatch):
    monkeypatch.setattr(websub, "ROUND_S", 0.1)
    posts, user_agents, app = ["first"], [], Flask("publisher")
    storage = SQLite3HubStorage(str(tmp_path / "hub.db"))
    hub = Hub(storage, Tasks(), SIGNATURE_ALGORITHM="sha512")
    app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))

    @app.route("/feed")
    def document():
        user_agents.append(request.user_agent.string)
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
        wait_until(lambda: list(storage.get_callbacks(f"{base}/feed")))
        ((callback, _secret),) = storage.get_callbacks(f"{base}/feed")
        assert callback.startswith(f"http://127.0.0.1:{server.port}/push/")
        posts.insert(0, "second")
        hub.send_change_notification(f"{base}/feed")
        wait_until(lambda: len(ada.get(f"/feed/{feed}").entries) == 2)
        # Only the first poll: the second post came by push.
        assert [name.partition("/")[0] for name in user_agents].count("tidings") == 1
        ada.post(f"/feed/{feed}/unsubscribe")
        hub.send_change_notification(f"{base}/feed")  # no subscriber is left: answered with 410
        wait_until(lambda: not list(storage.get_callbacks(f"{base}/feed")))
