"""Attacks of peers on a real service: forgery, flooding, XSS, replay, free riding, Sybil."""

import asyncio
import http.client
import time
from xmlrpc.client import Fault, ProtocolError

import pytest

from tests import TEST_TIMEOUT_S
from tests.peers.in_process_server import server as open_server
from tests.peers.in_process_server import until, with_in_process_server
from tests.peers.reference_peer import ReferencePeer, bundle, entry
from tests.peers.test_reference_peer import post
from tidings.exchange.peers import address_of
from tidings.exchange.protocol import MAX_FEEDS, NodeSettings
from tidings.exchange.transport import UNKNOWN_CALLS_PER_MIN

in_thread = asyncio.to_thread
ATTACKER, HONEST = "127.0.0.66", "127.0.0.40"
XSS = (
    '<p onclick="evil()">Hi<script>evil()</script><img src="x" onerror="evil()">'
    '<a href="javascript:evil()">x</a></p>'
)


async def assert_honest_peer_is_accepted(server, number):
    """Assert that the server still accepts entries of an honest peer."""
    with ReferencePeer(HONEST) as honest:
        assert await in_thread(honest.connect, server.nid, [server.feed])
        assert await in_thread(
            honest.offer,
            server.nid,
            bundle(server.feed, [post(number, at=server.clock())], server.clock()),
        )
        await server.wait_for_sources(**{f"Post_{number}": "neighbour"})


@with_in_process_server()
async def test_forged_entry_is_withdrawn_and_its_sender_banned(server):
    with ReferencePeer(ATTACKER) as attacker:
        await in_thread(attacker.connect, server.nid, [server.feed])
        for n in (1, 2):
            url, now = "http://evil.example/", server.clock()
            forged = entry(f"forged {n}", f"Forged {n}", url, XSS, now)
            await in_thread(attacker.offer, server.nid, bundle(server.feed, [forged], now))
        await server.wait_for_sources(Forged_1="neighbour", Forged_2="neighbour")
        server.clock.offset_s += 3600
        server.publisher.posts.append((6, server.clock() - 60))
        await server.poll()
        await server.wait_for_sources(Forged_1=None, Forged_2=None, Post_6="poll")
        assert await server.store.entries(search="forged") == []
        assert await in_thread(attacker.connect, server.nid, [server.feed]) == {}
        (peer,) = server.peer_exchange.peers()
        assert (peer.present, peer.reason) == (False, "the peer sent a forged post")
        assert peer.banned_until > server.clock()
        await assert_honest_peer_is_accepted(server, 7)
    with ReferencePeer(ATTACKER) as another_port:
        assert await in_thread(another_port.connect, server.nid, [server.feed]) == {}


@with_in_process_server()
async def test_ban_survives_restart(server):
    """The ban is stored and restored by the next process."""
    server.peer_exchange.node.membership.ban(f"{ATTACKER}:1", server.clock() + 1000)
    server.peer_exchange.node.add_candidates([], server.clock(), {f"{ATTACKER}:1": {}})
    server.peer_exchange._drop_reasons[f"{ATTACKER}:1"] = "banned by test"
    await server.peer_exchange.save()
    folder = server.store._db.path.parent / "next"
    folder.mkdir()
    await server.store.backup(folder / "tidings.db")
    async with open_server(
        folder, server.publisher, address="127.0.0.3", clock=server.clock
    ) as restarted:
        assert [peer.reason for peer in restarted.peer_exchange.peers()] == ["banned by test"]
        with ReferencePeer(ATTACKER) as attacker:
            assert await in_thread(attacker.connect, restarted.nid, [restarted.feed]) == {}


@with_in_process_server()
async def test_entries_from_peers_are_sanitized_and_cannot_overwrite(server):
    with ReferencePeer(ATTACKER) as attacker:
        await in_thread(attacker.connect, server.nid, [server.feed])
        payload = entry(
            "x",
            "<script>evil()</script>",
            "javascript:evil()",
            XSS,
            server.clock(),
            summary=XSS,
            base="file:///etc/",
        )
        payload |= {
            "comments": "data:evil",
            "enclosures": [["javascript:evil()", "x"]],
            "author": "A & B",
        }
        # The did is over the entry as the receiver decodes it.
        decoded = {**payload, "url": "", "enclosures": [], "base": ""}
        await in_thread(
            attacker.call,
            server.nid,
            "put_entries",
            {**bundle(server.feed, [decoded], 0.0), "entries": [payload]},
        )
        await until(lambda: _has_identity(server, "x"))
        (stored,) = [e for e in await server.store.entries() if e.identity == "x"]
        for text in (stored.content, stored.summary):
            assert "Hi" in text
            assert not any(evil in text for evil in ("script", "onclick", "onerror", "javascript"))
        assert (stored.url, stored.comments_url, stored.enclosures) == ("", "", ())
        changed = post(5, "<p>Changed text</p>", at=server.clock())
        await in_thread(
            attacker.call, server.nid, "put_entries", bundle(server.feed, [changed], 0.0)
        )
        await assert_honest_peer_is_accepted(server, 6)
        (five,) = [e for e in await server.store.entries() if e.identity == "5"]
        assert (five.summary, five.content, five.source) == ("<p>Text 5</p>", "", "poll")


async def _has_identity(server, identity):
    return any(e.identity == identity for e in await server.store.entries())


@with_in_process_server()
async def test_flooding_peer_is_rate_limited(server):
    with ReferencePeer(ATTACKER) as attacker:
        await in_thread(attacker.connect, server.nid, [server.feed])
        max_burst = int(2 * NodeSettings().calls_per_min)

        def flood():
            refused_count = 0
            for number in range(max_burst + 50):
                try:
                    attacker.call(server.nid, "put_looks", [[server.feed, float(number)]])
                except Fault as fault:
                    refused_count += "rate limit" in fault.faultString
            return refused_count

        server.clock.freeze()
        assert await in_thread(flood) == 50
        await assert_honest_peer_is_accepted(server, 6)


@with_in_process_server()
async def test_unknown_callers_are_rate_limited_earlier(server):
    with ReferencePeer(ATTACKER) as attacker:

        def call_repeatedly():
            for _ in range(UNKNOWN_CALLS_PER_MIN + 5):
                attacker.call(server.nid, "get_neighbors")

        with pytest.raises(ProtocolError, match="429"):
            await in_thread(call_repeatedly)
        await assert_honest_peer_is_accepted(server, 6)


def post_raw(nid, body):
    host, _, port = nid.partition(":")
    connection = http.client.HTTPConnection(
        host, int(port), timeout=TEST_TIMEOUT_S, source_address=(ATTACKER, 0)
    )
    try:
        connection.request("POST", "/RPC2", body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    except (BrokenPipeError, ConnectionResetError):  # closed before we had sent everything
        return 413, ""
    finally:
        connection.close()


@with_in_process_server()
async def test_oversized_messages_and_entity_bombs_are_rejected(server):
    bomb = (
        '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
        "<methodCall>&b;</methodCall>"
    )
    assert "document type" in (await in_thread(post_raw, server.nid, bomb.encode()))[1]
    assert "document type" in (await in_thread(post_raw, server.nid, bomb.encode("utf-16")))[1]
    assert (await in_thread(post_raw, server.nid, b"x" * 5_000_000))[0] == 413
    with ReferencePeer(ATTACKER) as attacker:
        await in_thread(attacker.connect, server.nid, [server.feed])
        for payload in (
            bundle(server.feed, [post(n) for n in range(6, 300)], 0.0),
            bundle(server.feed, [post(6, "x" * 400_000)], 0.0),
        ):
            with pytest.raises(Fault):
                await in_thread(attacker.call, server.nid, "put_entries", payload)
    assert len(await server.titles()) == 5
    await assert_honest_peer_is_accepted(server, 6)


@with_in_process_server()
async def test_invalid_paths_and_dids_are_refused(server):
    with ReferencePeer(ATTACKER) as attacker:
        await in_thread(attacker.connect, server.nid, [server.feed])
        loop, too_long = ["10.0.0.1:1", "10.0.0.1:1"], [f"10.0.0.{n}:1" for n in range(1, 60)]
        for path in (loop, too_long, [attacker.nid], ["evil.example:80"]):
            with pytest.raises(Fault):
                await in_thread(
                    attacker.call,
                    server.nid,
                    "put_entries",
                    bundle(server.feed, [post(6)], 0.0, path),
                )
        wrong_did = {**bundle(server.feed, [post(6)], 0.0), "entries": [post(66)]}
        with pytest.raises(Fault, match="did does not match"):
            await in_thread(attacker.call, server.nid, "put_entries", wrong_did)
    assert len(await server.titles()) == 5
    await assert_honest_peer_is_accepted(server, 6)


@with_in_process_server()
async def test_free_rider_gets_few_entries(server):
    limit = NodeSettings().deficit / 5
    with ReferencePeer(ATTACKER) as free_rider:
        with pytest.raises(Fault):
            await in_thread(
                free_rider.connect,
                server.nid,
                [f"http://a.example/{n}" for n in range(MAX_FEEDS + 1)],
            )
        assert await in_thread(
            free_rider.connect,
            server.nid,
            [server.feed, *(f"http://a.example/{n}" for n in range(1000))],
        )
        for number in range(6, 48, 3):
            server.clock.offset_s += 3600
            server.publisher.posts += [(n, server.clock() - 60) for n in range(number, number + 3)]
            await server.poll()
            await asyncio.sleep(0.05)
        await until(lambda: in_thread(lambda: len(free_rider.received) >= limit - 3))
        (peer,) = server.peer_exchange.peers()
        assert limit - 3 <= peer.figures["given"] <= limit + 3
        assert len(free_rider.received) <= limit + 3
        await assert_honest_peer_is_accepted(server, 100)


@with_in_process_server()
async def test_replayed_bundles_are_ignored(server):
    with ReferencePeer(ATTACKER) as attacker:
        await in_thread(attacker.connect, server.nid, [server.feed])
        payload = bundle(server.feed, [post(6)], server.clock())
        await in_thread(attacker.offer, server.nid, payload)
        await server.wait_for_sources(Post_6="neighbour")
        for _ in range(5):
            assert not await in_thread(attacker.offer, server.nid, payload)
            await in_thread(attacker.call, server.nid, "put_entries", payload)
        (peer,) = server.peer_exchange.peers()
        assert peer.figures["entries"] == 1
        old = bundle(server.feed, [post(0, at=time.time() - 86400 * 400)], server.clock())
        # Ignored: our documents could never refute an entry with an old date.
        await in_thread(attacker.call, server.nid, "put_entries", old)
        await assert_honest_peer_is_accepted(server, 7)
        assert "Post 0" not in await server.titles()


@with_in_process_server()
async def test_two_peers_per_address_are_admitted(server):
    def connect_many():
        attackers = [ReferencePeer(ATTACKER) for _ in range(6)]
        try:
            return [bool(peer.connect(server.nid, [server.feed])) for peer in attackers]
        finally:
            for peer in attackers:
                peer.__exit__()

    assert await in_thread(connect_many) == [True, True, False, False, False, False]
    assert [address_of(peer.nid) for peer in server.peer_exchange.peers()] == [ATTACKER, ATTACKER]
    await assert_honest_peer_is_accepted(server, 6)
