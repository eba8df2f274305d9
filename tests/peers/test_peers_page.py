"""User interface of the exchange: peers page, commands, output feeds, error messages."""

import asyncio
import re
import time

import pytest

from tests.cli.conftest import Tidings
from tests.peers.peer_network import Publisher, until
from tests.peers.reference_peer import ReferencePeer, bundle
from tests.peers.test_reference_peer import post
from tests.web.conftest import ReaderServer
from tidings.parse import parse
from tidings.store import Store
from tidings.store.feed_models import NewSubscription

ON = {
    "exchange.enabled": "true",
    "exchange.keys": "true",
    "fetch.contact_url": "http://n1.example/",
}


async def subscribe(path, url):
    async with Store.open(path, clock=time.time) as store:
        await store.add_subscriptions([NewSubscription(url, time.time() + 86400)])


@pytest.fixture
def serving(tmp_path):
    with Publisher() as publisher:
        asyncio.run(subscribe(tmp_path / "tidings.db", publisher.url))
        with ReaderServer(tmp_path, **ON) as serving:
            serving.ada = serving.client("ada").create_admin()
            serving.feed, serving.nid = publisher.url, f"127.0.0.1:{serving.port}"
            yield serving


def test_peers_are_shown_on_page_in_command_and_in_output_feed(serving, tmp_path):
    options = (f"--set={name}={value}" for name, value in ON.items())
    tidings = Tidings("--data-dir", tmp_path, *options)
    assert "No peers yet" in serving.ada.get("/peers").text
    with ReferencePeer("127.0.0.40") as peer:
        other_feed = "http://other.example/feed?a=1&b=2"
        assert peer.connect(serving.nid, [serving.feed, other_feed]) == {serving.feed: 0}
        assert peer.offer(serving.nid, bundle(serving.feed, [post(1)], 0.0))
        page = until(
            lambda: (text := serving.ada.get("/peers").text) and peer.nid in text and text,
            "the peer is on the page",
        )
        cells = "".join(f"<td>{number}</td>" for number in (1, 1, 0, -1, 1, 0, 0))
        assert f"{peer.nid}</th>{cells}" in page
        assert "/feeds/add?url=http%3A//other.example/feed%3Fa%3D1%26b%3D2" in page
        (shown,) = until(lambda: tidings.json("peers")["peers"], "the peer is stored")
        assert (shown["nid"], shown["present"], shown["usefulness"]) == (peer.nid, True, 1.0)
        assert re.search(rf"{peer.nid} +1 ", tidings("peers"))
        assert re.fullmatch("[0-9a-f]{64}", tidings.json("peers")["key"])
        url = serving.ada.get("/settings/apps").link(r"[^\"]*/out/[^\"]*\.atom")
        output_feed = serving.ada.get("/out" + url.partition("/out")[2])
        assert parse(output_feed.body).links.peers == (peer.nid,)
        tidings("peers", "private", "1")
        assert "is a private feed, so its posts cannot be recovered" in tidings.expect_error(
            "recover", "1"
        )
    assert serving.ada.add_user("bob").get("/peers").status == 403


def test_exchange_is_off_by_default(tmp_path):
    with ReaderServer(tmp_path) as serving:
        assert "Set exchange.enabled" in serving.client("ada").create_admin().get("/peers").text
        assert serving.get("/RPC2", "POST", "<x/>")[0].status == 404
    tidings = Tidings("--data-dir", tmp_path)
    assert "Peer exchange is off" in tidings("peers")
    asyncio.run(subscribe(tmp_path / "tidings.db", "https://a.example/feed"))
    assert "peer exchange is off; set exchange.enabled" in tidings.expect_error(
        "recover", "https://a.example/feed"
    )
    tidings_on = Tidings("--data-dir", tmp_path, "--set", "exchange.enabled=true")
    assert "no peers yet; start the service" in tidings_on.expect_error("recover", "1")
    assert tidings("peers", "private", "1") == tidings("peers", "private", "1", "--no") == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fetch.allow_private": "false"}, "peers cannot reach 127.0.0.1; set exchange.host"),
        ({"exchange.friends_only": "true"}, "set exchange.keys and exchange.friends"),
        ({"exchange.certificate": "x.pem"}, "set exchange.port"),
    ],
)
def test_invalid_exchange_settings_are_rejected(tmp_path, options, message):
    service = ReaderServer(tmp_path, **{"exchange.enabled": "true", **options})
    with service as serving:
        assert message in str(serving.wait_for_error())


@pytest.mark.parametrize("friends", ["abc", "0" * 64 + "@blog.example:80", "0" * 63 + "x"])
def test_friends_must_be_keys(tmp_path, friends):
    assert "exchange.friends must be" in Tidings(
        "--data-dir", tmp_path, "--set", f"exchange.friends={friends}"
    ).expect_error("config")
