"""XML-RPC transport between real servers: FeedEx functions, invalid input, attacks, keys."""

import asyncio
import ssl
import time
from xmlrpc.client import Binary, Fault, ServerProxy

import aiohttp
import pytest
from lxml import etree

from tests.certificates import self_signed
from tests.exchange.memory_network import post
from tests.exchange.socket_network import FEED, NO_REPLENISH, async_test, peer, serving, until
from tidings import __version__
from tidings.aggregator.exchange_setup import make_client
from tidings.config import Config
from tidings.exchange import messages, transport, xmlrpc
from tidings.exchange.announce import peers_element
from tidings.exchange.client import Client
from tidings.exchange.keys import Signer, connect_proof_message
from tidings.exchange.listserver import ListServer
from tidings.exchange.protocol import (
    EntriesReceived,
    EntriesWithdrawn,
    NodeSettings,
    Query,
    bundle_of,
)
from tidings.exchange.transport import UNKNOWN_CALLS_PER_MIN
from tidings.parse import parse
from tidings.parse.dates import ParsedDate
from tidings.parse.entry_identity import make_entry


def entry(number, content="<p>text</p>"):
    at = ParsedDate(1_700_000_000.0 + number)
    return make_entry(
        id=f"e{number}",
        url=f"http://blog.example/{number}",
        title=f"Post {number}",
        content=content,
        published=at,
    )


# --- values --------------------------------------------------------------------------------------


def test_xmlrpc_values_round_trip_and_match_standard_library():
    from xmlrpc.client import dumps, loads

    value = {
        "text": "a < b & ü\r\n",
        "yes": True,
        "n": -5,
        "x": 1.5,
        "raw": b"\x00\xff",
        "list": [1, [2], {"a": ""}],
    }
    assert xmlrpc.read_response(xmlrpc.write_response(value)) == value
    name, parameters = xmlrpc.read_call(xmlrpc.write_call("f", 8035, value))
    assert (name, parameters) == ("f", [8035, value])
    (loaded,), name = loads(xmlrpc.write_call("f", value), use_builtin_types=True)
    assert loaded["list"] == value["list"]
    assert loaded["raw"] == b"\x00\xff"
    assert xmlrpc.read_call(dumps((8035, ["x", 0], Binary(b"1")), "f").encode()) == (
        "f",
        [8035, ["x", 0], b"1"],
    )


def test_bundle_round_trip_keeps_did():
    bundle = bundle_of(
        FEED, messages.keep_sendable([entry(1, "<b>\r\n ü</b>"), entry(2)]), 1.5, ("10.0.0.1:80",)
    )
    read = messages.read_bundle(
        xmlrpc.read_response(xmlrpc.write_response(messages.write_bundle(bundle)))
    )
    assert read == bundle
    assert bundle_of(read.feed, read.entries, 0.0).did == bundle.did


ENTITY_BOMB = """<?xml version="1.0"?>
<!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<methodCall><methodName>check_did</methodName>
<params><param><value>&b;</value></param></params></methodCall>"""


@pytest.mark.parametrize(
    "body",
    [
        ENTITY_BOMB.encode(),
        ENTITY_BOMB.encode("utf-16"),
        b"",
        b"<methodCall>",
        b"<html/>",
        b"<methodCall><methodName>f</methodName><params><param/></params></methodCall>",
        b"<methodCall><methodName>f</methodName><params><param>"
        + b"<value><array><data>" * 50
        + b"</param></params></methodCall>",
        xmlrpc.write_call("f", [[[[[[[[[[[1]]]]]]]]]]]),
        xmlrpc.write_call("f", [0] * 60_001),
        xmlrpc.write_call("f", "x" * 2_000_001),
        xmlrpc.write_call("f", 1).replace(b"<int>1", b"<int>" + b"9" * 5 + b"x"),
        xmlrpc.write_call("f", 1.0).replace(b"1.000000", b"nan"),
        xmlrpc.write_call("f", b"ab").replace(b"YWI=", b"!!!!"),
    ],
)
def test_invalid_calls_are_rejected(body):
    with pytest.raises(xmlrpc.InvalidXmlRpc):
        xmlrpc.read_call(body)


def test_hostile_entries_are_cleaned_or_rejected():
    read = messages.read_entry(
        {
            "id": "x",
            "url": "javascript:alert(1)",
            "base": "file:///etc/",
            "enclosures": [["data:x", ""]],
        }
    )
    assert (read.url, read.base_url, read.enclosures) == ("", "", ())
    for bad in (
        {},
        {"id": ""},
        {"id": 5},
        {"id": "x", "content": "y" * 300_001},
        {"id": "x", "tags": "abc"},
        "text",
    ):
        with pytest.raises(xmlrpc.InvalidXmlRpc):
            messages.read_entry(bad)


@pytest.mark.parametrize(
    "nid", ["blog.example:80", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:99999", "10.0.0.1:80/x", ""]
)
def test_nid_must_be_ip_address_and_port(nid):
    with pytest.raises(xmlrpc.InvalidXmlRpc):
        messages.read_nid(nid)


# --- between nodes -------------------------------------------------------------------------------


@async_test
async def test_entries_spread_over_http_with_nids_from_connections():
    async with peer(2) as two, peer(3) as three, peer(4) as four:
        await two.connect_to(three)
        await three.connect_to(four)
        assert list(three.node.peers) == [two.nid, four.nid]
        two.record_document(entry(1), entry(2))
        await until(lambda: four.received_titles == ["Post 1", "Post 2"])
        (received,) = [effect for effect in four.effects if isinstance(effect, EntriesReceived)]
        assert received.bundle.path == (two.nid, three.nid)
        # Unchanged: HTML is sanitized when the entry is stored.
        assert received.bundle.entries[0].content == "<p>text</p>"


@async_test
async def test_stopped_peer_is_dropped():
    async with peer(2) as two:
        async with peer(3) as three:
            await two.connect_to(three)
        two.record_document(entry(1))
        await until(lambda: not two.node.peers)


@async_test
async def test_recover_finds_entries_over_two_hops():
    async with peer(2) as two, peer(3) as three, peer(4) as four:
        await two.connect_to(three)
        await three.connect_to(four)
        four.stored = [entry(number) for number in range(250)]
        found = await two.exchange.recover(FEED, since=1_700_000_010.0)
        assert [len(entries) for entries in found.values()] == [240]
        assert found[four.nid][0].title == "Post 249"


@async_test
async def test_query_that_returns_to_its_requester_is_answered_once():
    """A command that calls with a service's nid gets the answer although the query loops.

    The query also reaches the service itself, which forwards it to the same node again.
    """
    async with peer(2) as two, peer(3) as three, peer(4) as four:
        await two.connect_to(three)
        await three.connect_to(four)
        await two.connect_to(four)
        four.stored = [entry(1)]
        query = messages.write_query(Query("q", FEED))
        async with asyncio.timeout(3):
            answer = await two.client.call(three.nid, "query_feed", query, timeout_s=3)
        assert [(holding["nid"], holding["entries"]) for holding in answer] == [(four.nid, 1)]


@async_test
async def test_refused_query_does_not_wait_for_timeout():
    async with peer(2) as two, peer(3) as three:
        await two.connect_to(three)
        three.node.peers.clear()
        async with asyncio.timeout(3):  # far less than the timeout of a query
            assert await two.exchange.recover(FEED) == {}
        assert two.node.peers == {}


@async_test
async def test_list_server_connects_unknown_nodes():
    list_server = ListServer(time.time)
    settings = NodeSettings(min_peers=1, advertise_interval_s=0.5)
    async with (
        serving(list_server.app(), "127.0.0.9") as port,
        peer(2, settings=settings) as two,
        peer(3, settings=settings) as three,
    ):
        for server in (two, three):
            server.node.membership.set_list_servers([f"127.0.0.9:{port}"])
        await until(lambda: two.node.peers and three.node.peers)


def test_list_server_limits_nodes_per_address():
    list_server = ListServer(time.time, seed=1)
    for port in range(1, 50):
        list_server.get_neighbors(f"10.6.6.6:{port}")
    assert len(list_server.get_neighbors("10.1.1.1:1")) == 3


@async_test
async def test_private_addresses_are_blocked_by_default():
    client = Client(8035)
    with pytest.raises(OSError, match="not a public address"):
        await client.call("127.0.0.1:80", "check_did", b"")
    await client.close()


# --- attacks -------------------------------------------------------------------------------------


async def post_raw(nid, body):
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{nid}/RPC2", data=body) as response,
    ):
        return response.status, await response.text()


@async_test
async def test_malformed_and_oversized_requests_are_rejected():
    async with peer(2) as two:
        assert "document type" in (await post_raw(two.nid, ENTITY_BOMB.encode()))[1]
        assert "faultString" in (await post_raw(two.nid, b"nonsense"))[1]
        assert "no function" in (await post_raw(two.nid, xmlrpc.write_call("rm", 1)))[1]
        assert "port" in (await post_raw(two.nid, xmlrpc.write_call("check_did", "x", b"")))[1]
        assert (
            "connect first"
            in (await post_raw(two.nid, xmlrpc.write_call("check_did", 80, b"x" * 20)))[1]
        )
        status, _ = await post_raw(two.nid, b"x" * 3_000_000)
        assert status == 413


def test_slow_request_body_times_out(monkeypatch):
    monkeypatch.setattr(transport, "CALL_TIMEOUT_S", 0.1)

    @async_test
    async def scenario():
        async with peer(2) as two:
            address, port = two.nid.split(":")
            reader, writer = await asyncio.open_connection(address, int(port))
            writer.write(
                b"POST /RPC2 HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n<methodCall>"
            )
            assert b" 408 " in await reader.readline()
            writer.close()

    scenario()


@async_test
async def test_unknown_callers_are_rate_limited_and_peers_are_not():
    async with peer(2) as two, peer(3) as three:
        await two.connect_to(three)
        statuses = [
            (await post_raw(two.nid, xmlrpc.write_call("get_neighbors", 80)))[0]
            for _ in range(UNKNOWN_CALLS_PER_MIN + 5)
        ]
        assert statuses.count(429) == 5
        three.record_document(entry(1))
        await until(lambda: two.received_titles == ["Post 1"])


@async_test
async def test_forged_entry_over_http_is_withdrawn():
    """A forged entry arrives over HTTP and is withdrawn after our own fetch without it."""
    async with peer(2) as two:
        two.node.record_document(
            FEED, messages.keep_sendable([entry(1), entry(2)]), time.time() - 7200
        )
        published = ParsedDate(time.time() - 60)
        forged = messages.keep_sendable(
            [make_entry(id="forged", url="", title="Forged", published=published)]
        )
        bundle = messages.write_bundle(bundle_of(FEED, forged, time.time()))
        await asyncio.to_thread(_forge, two.nid, bundle)
        await until(lambda: two.received_titles == ["Forged"])
        two.node.record_document(
            FEED, messages.keep_sendable([entry(1), entry(2)]), time.time() + 3600
        )
        two.exchange.apply_effects()
        await until(lambda: any(isinstance(effect, EntriesWithdrawn) for effect in two.effects))
        assert two.node.peers == {}
        with pytest.raises(Fault, match="connect first"):
            await asyncio.to_thread(
                ServerProxy(f"http://{two.nid}/RPC2").check_did, 7777, b"x" * 20
            )


def _forge(nid, bundle):
    proxy = ServerProxy(f"http://{nid}/RPC2")
    proxy.connect(7777, [[FEED, 0]])
    assert proxy.check_did(7777, bundle["did"]) == "unseen"
    assert proxy.put_entries(7777, bundle) == "ok"


# --- keys and encryption -------------------------------------------------------------------------


@async_test
async def test_friends_only_admits_pinned_keys_and_trusts_their_signatures():
    own, friend, unknown = (Signer(bytes([n]) * 32) for n in range(3))
    own_settings = NodeSettings(
        min_peers=0, advertise_interval_s=1.0, friends=frozenset({friend.key}), friends_only=True
    )
    friend_settings = NodeSettings(
        min_peers=0, advertise_interval_s=1.0, friends=frozenset({own.key}), friends_only=True
    )
    async with (
        peer(2, settings=own_settings, signer=own) as two,
        peer(3, settings=friend_settings, signer=friend) as three,
        peer(4, settings=NO_REPLENISH, signer=unknown) as four,
    ):
        await three.connect_to(two)
        await four.connect_to(two)
        assert list(two.node.peers) == [three.nid]
        assert four.node.peers == {}
        for function, *parameters in (
            ("get_neighbors",),
            ("get_entries", messages.write_query(Query("q", FEED)), []),
        ):
            with pytest.raises(xmlrpc.Fault, match="with a key that is pinned here"):
                await four.client.call(two.nid, function, *parameters)
        three.record_document(entry(1))
        await until(lambda: two.received_titles == ["Post 1"])
        (received,) = [effect for effect in two.effects if isinstance(effect, EntriesReceived)]
        assert received.trusted_identities == {"e1"}


@async_test
async def test_connect_proof_cannot_be_replayed_or_redirected():
    friend = Signer(bytes(32))
    settings = NodeSettings(min_peers=0, friends=frozenset({friend.key}), friends_only=True)
    async with peer(2, settings=settings, signer=Signer(bytes([1]) * 32)) as two:
        now = time.time()
        proof = {
            "key": friend.key,
            "time": now,
            "proof": friend.sign(connect_proof_message(two.nid, 7000, now)),
        }
        other = {**proof, "proof": friend.sign(connect_proof_message("127.0.0.3:99", 7000, now))}
        stale = {
            **proof,
            "time": now - 3600,
            "proof": friend.sign(connect_proof_message(two.nid, 7000, now - 3600)),
        }
        client = Client(7000, allow_private=True, local_address="127.0.0.7")
        for wrong in (other, stale, {}, {**proof, "key": two.node._key}):
            assert (await client.call(two.nid, "connect", [[FEED, 0]], wrong))["subset"] == []
        assert (await client.call(two.nid, "connect", [[FEED, 0]], proof))["subset"] == [[FEED, 0]]
        replayer = Client(7000, allow_private=True, local_address="127.0.0.8")
        assert (await replayer.call(two.nid, "connect", [[FEED, 0]], proof))["subset"] == []
        await client.close()
        await replayer.close()


@async_test
async def test_calls_work_over_tls():
    tls = {"client_tls": ssl._create_unverified_context(), "tls": self_signed()}
    async with peer(2, **tls) as two, peer(3, **tls) as three:
        await two.connect_to(three)
        two.record_document(entry(1))
        await until(lambda: three.received_titles == ["Post 1"])


# --- peers in documents --------------------------------------------------------------------------


def test_peers_are_parsed_from_documents():
    element = etree.tostring(peers_element(["203.0.113.5:8035", "[2001:db8::5]:80"])).decode()
    for document in (
        f"<rss version='2.0'><channel>{element}<item/></channel></rss>",
        f"<feed>{element}</feed>",
    ):
        assert parse(document.encode()).links.peers == ("203.0.113.5:8035", "[2001:db8::5]:80")
    assert (
        parse(
            b"<rss><channel><peers><peer>203.0.113.5:8035</peer></peers></channel></rss>"
        ).links.peers
        == ()
    )
    assert peers_element([]) is None


def test_memory_network_posts_are_sendable():
    assert messages.keep_sendable([post(1)])[0].identity == "post 1"


@async_test
async def test_calls_send_user_agent_with_contact():
    heads = []

    async def serve(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = make_client(
            Config(fetch_allow_private=True), "127.0.0.1", 7000, "https://me.example/"
        )
        with pytest.raises(OSError, match="the server closed the connection"):
            await client.call(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "connect")
        await client.close()
    assert f"\r\nUser-Agent: tidings/{__version__} (+https://me.example/)\r\n" in heads[0]
