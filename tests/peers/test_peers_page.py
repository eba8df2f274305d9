"""What people see of the exchange: the page, the commands, feeds out that name nodes, and refusals that say what to do."""

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


async def subscribed(path, url):
    async with Store.open(path, clock=time.time) as store:
        await store.add([NewSubscription(url, time.time() + 86400)])


@pytest.fixture
def serving(tmp_path):
    with Publisher() as publisher:
        asyncio.run(subscribed(tmp_path / "tidings.db", publisher.url))
        with ReaderServer(tmp_path, **ON) as serving:
            serving.ada, serving.feed, serving.nid = (
                serving.client("ada").create_admin(),
                publisher.url,
                f"127.0.0.1:{serving.port}",
            )
            yield serving


def test_neighbours_are_shown_told_and_named(serving, tmp_path):
    home = Tidings("--data-dir", tmp_path, *(f"--set={name}={value}" for name, value in ON.items()))
    assert "No neighbours yet" in serving.ada.get("/peers").text
    with ReferencePeer("127.0.0.40") as me:
        theirs = "http://other.example/feed?a=1&b=2"
        assert me.connect(serving.nid, [serving.feed, theirs]) == {serving.feed: 0}
        assert me.offer(serving.nid, bundle(serving.feed, [post(1)], 0.0))
        page = until(
            lambda: (text := serving.ada.get("/peers").text) and me.nid in text and text,
            "it is on the page",
        )
        assert re.search(
            rf"{me.nid}</th><td>1</td><td>1</td><td>0</td><td>-1</td><td>1</td><td>0</td><td>0</td>",
            page,
        )
        assert "/feeds/add?url=http%3A//other.example/feed%3Fa%3D1%26b%3D2" in page
        told = until(lambda: home.json("peers")["peers"], "the store has it")
        assert (told[0]["nid"], told[0]["present"], told[0]["usefulness"]) == (me.nid, True, 1.0)
        assert re.search(rf"{me.nid} +1 ", home("peers"))
        assert re.fullmatch("[0-9a-f]{64}", home.json("peers")["key"])
        out = serving.ada.get("/settings/apps").link(r"[^\"]*/out/[^\"]*\.atom")
        assert parse(
            serving.ada.get(out.partition("/out")[1] + out.partition("/out")[2]).body
        ).links.peers == (me.nid,)
        home("peers", "private", "1")
        assert "is private: neighbours are not told" in home.refuses("recover", "1")
    assert serving.ada.add_user("bob").get("/peers").status == 403


def test_it_is_off_until_somebody_turns_it_on(tmp_path):
    with ReaderServer(tmp_path) as serving:
        assert "Set exchange.enabled" in serving.client("ada").create_admin().get("/peers").text
        assert serving.get("/RPC2", "POST", "<x/>")[0].status == 404
    home = Tidings("--data-dir", tmp_path)
    assert "The exchange is off" in home("peers")
    asyncio.run(subscribed(tmp_path / "tidings.db", "https://a.example/feed"))
    assert "the exchange is off; set exchange.enabled" in home.refuses(
        "recover", "https://a.example/feed"
    )
    on = Tidings("--data-dir", tmp_path, "--set", "exchange.enabled=true")
    assert "there are no neighbours yet; start the service" in on.refuses("recover", "1")
    assert home("peers", "private", "1") == home("peers", "private", "1", "--no") == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"fetch.allow_private": "false"}, "others cannot reach 127.0.0.1; set exchange.host"),
        ({"exchange.friends_only": "true"}, "set exchange.keys and exchange.friends"),
        ({"exchange.certificate": "x.pem"}, "set exchange.port"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, options, complaint):
    service = ReaderServer(tmp_path, **{"exchange.enabled": "true", **options})
    with service as serving:
        assert complaint in str(serving.wait_for_error())


@pytest.mark.parametrize("friends", ["abc", "0" * 64 + "@blog.example:80", "0" * 63 + "x"])
def test_friends_are_keys(tmp_path, friends):
    assert "exchange.friends must be" in Tidings(
        "--data-dir", tmp_path, "--set", f"exchange.friends={friends}"
    ).refuses("config")
