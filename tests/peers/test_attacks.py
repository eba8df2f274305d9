"""What neighbours may try on a real service: each lie refused or taken back, each flood bounded, honest ones still heard."""

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
LIAR, HONEST = "127.0.0.66", "127.0.0.40"
EVIL = '<p onclick="evil()">Hi<script>evil()</script><img src="x" onerror="evil()"><a href="javascript:evil()">x</a></p>'


async def assert_honest_peer_is_accepted(server, number):
    """An honest neighbour gets its news through."""
    with ReferencePeer(HONEST) as honest:
        assert await in_thread(honest.connect, server.nid, [server.feed])
        assert await in_thread(
            honest.offer,
            server.nid,
            bundle(server.feed, [post(number, at=server.clock())], server.clock()),
        )
        await server.wait_for_sources(**{f"Post_{number}": "neighbour"})


@with_in_process_server()
async def test_a_forged_entry_is_marked_withdrawn_and_its_teller_banned_for_good(server):
    with ReferencePeer(LIAR) as liar:
        await in_thread(liar.connect, server.nid, [server.feed])
        lies = [
            entry(f"lie {n}", f"Lie {n}", "http://evil.example/", EVIL, server.clock())
            for n in (1, 2)
        ]
        await in_thread(liar.offer, server.nid, bundle(server.feed, lies[:1], server.clock()))
        await in_thread(liar.offer, server.nid, bundle(server.feed, lies[1:], server.clock()))
        await server.wait_for_sources(Lie_1="neighbour", Lie_2="neighbour")
        server.clock.offset_s += 3600
        server.publisher.posts.append((6, server.clock() - 60))
        await server.poll()
        await server.wait_for_sources(Lie_1=None, Lie_2=None, Post_6="poll")
        assert await server.store.entries(search="lie") == []
        assert await in_thread(liar.connect, server.nid, [server.feed]) == {}
        (peer,) = server.peer_exchange.peers()
        assert (peer.present, peer.reason) == (False, "it forged an entry")
        assert peer.banned_until > server.clock()
        await assert_honest_peer_is_accepted(server, 7)
    with ReferencePeer(LIAR) as another_port:
        assert await in_thread(another_port.connect, server.nid, [server.feed]) == {}


@with_in_process_server()
async def test_a_ban_outlives_the_night(server):
    """Told to the store, and taken up by the next process."""
    server.peer_exchange.node.membership.ban(f"{LIAR}:1", server.clock() + 1000)
    server.peer_exchange.node.add_candidates([], server.clock(), {f"{LIAR}:1": {}})
    server.peer_exchange._drop_reasons[f"{LIAR}:1"] = "it lied"
    await server.peer_exchange.save()
    folder = server.store._db.path.parent / "next"
    folder.mkdir()
    await server.store.backup(folder / "tidings.db")
    async with open_server(
        folder, server.publisher, address="127.0.0.3", clock=server.clock
    ) as again:
        assert [peer.reason for peer in again.peer_exchange.peers()] == ["it lied"]
        with ReferencePeer(LIAR) as liar:
            assert await in_thread(liar.connect, again.nid, [again.feed]) == {}


@with_in_process_server()
async def test_nothing_is_stored_as_it_was_sent_and_no_entry_of_ours_is_changed(server):
    with ReferencePeer(LIAR) as liar:
        await in_thread(liar.connect, server.nid, [server.feed])
        payload = entry(
            "x",
            "<script>evil()</script>",
            "javascript:evil()",
            EVIL,
            server.clock(),
            summary=EVIL,
            base="file:///etc/",
        )
        payload |= {
            "comments": "data:evil",
            "enclosures": [["javascript:evil()", "x"]],
            "author": "A & B",
        }
        sent = {
            **payload,
            "url": "",
            "enclosures": [],
            "base": "",
        }  # what a reader makes of it has the did
        await in_thread(
            liar.call,
            server.nid,
            "put_entries",
            {**bundle(server.feed, [sent], 0.0), "entries": [payload]},
        )
        await until(lambda: _has_identity(server, "x"))
        (stored,) = [e for e in await server.store.entries() if e.identity == "x"]
        for text in (stored.content, stored.summary):
            assert "Hi" in text
            assert not any(evil in text for evil in ("script", "onclick", "onerror", "javascript"))
        assert (stored.url, stored.comments_url, stored.enclosures) == ("", "", ())
        changed = post(5, "<p>Not what was written</p>", at=server.clock())
        await in_thread(liar.call, server.nid, "put_entries", bundle(server.feed, [changed], 0.0))
        await assert_honest_peer_is_accepted(server, 6)
        (five,) = [e for e in await server.store.entries() if e.identity == "5"]
        assert (five.summary, five.content, five.source) == ("<p>Words 5</p>", "", "poll")


async def _has_identity(server, identity):
    return any(e.identity == identity for e in await server.store.entries())


@with_in_process_server()
async def test_a_flood_is_cut_off(server):
    with ReferencePeer(LIAR) as liar:
        await in_thread(liar.connect, server.nid, [server.feed])
        most = int(2 * NodeSettings().calls_per_min)

        def flood():
            refused = 0
            for number in range(most + 50):
                try:
                    liar.call(server.nid, "put_looks", [[server.feed, float(number)]])
                except Fault as fault:
                    refused += "too often" in fault.faultString
            return refused

        server.clock.freeze()
        assert await in_thread(flood) == 50
        await assert_honest_peer_is_accepted(server, 6)


@with_in_process_server()
async def test_strangers_are_cut_off_sooner(server):
    with ReferencePeer(LIAR) as liar:

        def call_repeatedly():
            for _ in range(UNKNOWN_CALLS_PER_MIN + 5):
                liar.call(server.nid, "get_neighbors")

        with pytest.raises(ProtocolError, match="429"):
            await in_thread(call_repeatedly)
        await assert_honest_peer_is_accepted(server, 6)


def raw(nid, body):
    host, _, port = nid.partition(":")
    connection = http.client.HTTPConnection(
        host, int(port), timeout=TEST_TIMEOUT_S, source_address=(LIAR, 0)
    )
    try:
        connection.request("POST", "/RPC2", body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (
        BrokenPipeError,
        ConnectionResetError,
    ):  # it has hung up in the middle of what we had to say
        return 413, ""
    finally:
        connection.close()


@with_in_process_server()
async def test_oversize_and_bombs_are_not_read(server):
    bomb = '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><methodCall>&b;</methodCall>'
    assert "document types" in (await in_thread(raw, server.nid, bomb.encode()))[1]
    assert "document types" in (await in_thread(raw, server.nid, bomb.encode("utf-16")))[1]
    assert (await in_thread(raw, server.nid, b"x" * 5_000_000))[0] == 413
    with ReferencePeer(LIAR) as liar:
        await in_thread(liar.connect, server.nid, [server.feed])
        for payload in (
            bundle(server.feed, [post(n) for n in range(6, 300)], 0.0),
            bundle(server.feed, [post(6, "x" * 400_000)], 0.0),
        ):
            with pytest.raises(Fault):
                await in_thread(liar.call, server.nid, "put_entries", payload)
    assert len(await server.titles()) == 5
    await assert_honest_peer_is_accepted(server, 6)


@with_in_process_server()
async def test_bad_paths_and_wrong_names_are_refused(server):
    with ReferencePeer(LIAR) as liar:
        await in_thread(liar.connect, server.nid, [server.feed])
        circle, far = ["10.0.0.1:1", "10.0.0.1:1"], [f"10.0.0.{n}:1" for n in range(1, 60)]
        for path in (circle, far, [liar.nid], ["evil.example:80"]):
            with pytest.raises(Fault):
                await in_thread(
                    liar.call, server.nid, "put_entries", bundle(server.feed, [post(6)], 0.0, path)
                )
        wrong = {**bundle(server.feed, [post(6)], 0.0), "entries": [post(66)]}
        with pytest.raises(Fault, match="did is not"):
            await in_thread(liar.call, server.nid, "put_entries", wrong)
    assert len(await server.titles()) == 5
    await assert_honest_peer_is_accepted(server, 6)


@with_in_process_server()
async def test_who_says_it_wants_everything_and_gives_nothing_gets_little(server):
    most = NodeSettings().deficit / 5
    with ReferencePeer(LIAR) as free_rider:
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
        await until(lambda: in_thread(lambda: len(free_rider.received) >= most - 3))
        (peer,) = server.peer_exchange.peers()
        assert most - 3 <= peer.figures["given"] <= most + 3
        assert len(free_rider.received) <= most + 3
        await assert_honest_peer_is_accepted(server, 100)


@with_in_process_server()
async def test_replay_brings_nothing(server):
    with ReferencePeer(LIAR) as liar:
        await in_thread(liar.connect, server.nid, [server.feed])
        payload = bundle(server.feed, [post(6)], server.clock())
        await in_thread(liar.offer, server.nid, payload)
        await server.wait_for_sources(Post_6="neighbour")
        for _ in range(5):
            assert not await in_thread(liar.offer, server.nid, payload)
            await in_thread(liar.call, server.nid, "put_entries", payload)
        (peer,) = server.peer_exchange.peers()
        assert peer.figures["entries"] == 1
        old = bundle(server.feed, [post(0, at=time.time() - 86400 * 400)], server.clock())
        await in_thread(
            liar.call, server.nid, "put_entries", old
        )  # what no document of ours could refute is no news
        await assert_honest_peer_is_accepted(server, 7)
        assert "Post 0" not in await server.titles()


@with_in_process_server()
async def test_many_at_one_address_get_two_places(server):
    def connect_many():
        many = [ReferencePeer(LIAR) for _ in range(6)]
        try:
            return [bool(one.connect(server.nid, [server.feed])) for one in many]
        finally:
            for one in many:
                one.__exit__()

    assert await in_thread(connect_many) == [True, True, False, False, False, False]
    assert [address_of(peer.nid) for peer in server.peer_exchange.peers()] == [LIAR, LIAR]
    await assert_honest_peer_is_accepted(server, 6)
