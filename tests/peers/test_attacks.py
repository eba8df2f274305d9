"""What neighbours may try on a real service: each lie refused or taken back, each flood bounded, honest ones still heard."""

import asyncio
import http.client
import time
from xmlrpc.client import Fault, ProtocolError

import pytest

from tests import PATIENCE_S
from tests.peers.house import house as open_house
from tests.peers.house import story, until
from tests.peers.stranger import Stranger, bundle, entry
from tests.peers.test_stranger import post
from tidings.exchange.neighbours import address_of
from tidings.exchange.transport import STRANGERS_PER_MIN
from tidings.exchange.values import MOST_FEEDS, Rules

there = asyncio.to_thread
LIAR, HONEST = "127.0.0.66", "127.0.0.40"
EVIL = '<p onclick="evil()">Hi<script>evil()</script><img src="x" onerror="evil()"><a href="javascript:evil()">x</a></p>'


async def honest_is_heard(house, number):
    """An honest neighbour gets its news through."""
    with Stranger(HONEST) as honest:
        assert await there(honest.connect, house.nid, [house.feed])
        assert await there(honest.tell, house.nid, bundle(house.feed, [post(number, at=house.clock())], house.clock()))
        await house.has(**{f"Post_{number}": "neighbour"})


@story()
async def test_a_forged_entry_is_marked_withdrawn_and_its_teller_banned_for_good(house):
    with Stranger(LIAR) as liar:
        await there(liar.connect, house.nid, [house.feed])
        lies = [entry(f"lie {n}", f"Lie {n}", "http://evil.example/", EVIL, house.clock()) for n in (1, 2)]
        await there(liar.tell, house.nid, bundle(house.feed, lies[:1], house.clock()))
        await there(liar.tell, house.nid, bundle(house.feed, lies[1:], house.clock()))
        await house.has(Lie_1="neighbour", Lie_2="neighbour")
        house.clock.ahead_s += 3600
        house.publisher.posts.append((6, house.clock() - 60))
        await house.poll()
        await house.has(Lie_1=None, Lie_2=None, Post_6="poll")
        assert await house.store.entries(search="lie") == []
        assert await there(liar.connect, house.nid, [house.feed]) == {}
        (peer,) = house.here.peers()
        assert (peer.present, peer.why) == (False, "it forged an entry")
        assert peer.banned_until > house.clock()
        await honest_is_heard(house, 7)
    with Stranger(LIAR) as another_port:
        assert await there(another_port.connect, house.nid, [house.feed]) == {}


@story()
async def test_a_ban_outlives_the_night(house):
    """Told to the store, and taken up by the next process."""
    house.here.node.members.ban(f"{LIAR}:1", house.clock() + 1000)
    house.here.node.meet([], house.clock(), {f"{LIAR}:1": {}})
    house.here._dropped[f"{LIAR}:1"] = "it lied"
    await house.here.save()
    folder = house.store._db.path.parent / "next"
    folder.mkdir()
    await house.store.backup(folder / "tidings.db")
    async with open_house(folder, house.publisher, address="127.0.0.3", clock=house.clock) as again:
        assert [peer.why for peer in again.here.peers()] == ["it lied"]
        with Stranger(LIAR) as liar:
            assert await there(liar.connect, again.nid, [again.feed]) == {}


@story()
async def test_nothing_is_stored_as_it_was_sent_and_no_entry_of_ours_is_changed(house):
    with Stranger(LIAR) as liar:
        await there(liar.connect, house.nid, [house.feed])
        told = entry(
            "x", "<script>evil()</script>", "javascript:evil()", EVIL, house.clock(), summary=EVIL, base="file:///etc/"
        )
        told |= {"comments": "data:evil", "enclosures": [["javascript:evil()", "x"]], "author": "A & B"}
        sent = {**told, "url": "", "enclosures": [], "base": ""}  # what a reader makes of it has the did
        await there(liar.call, house.nid, "put_entries", {**bundle(house.feed, [sent], 0.0), "entries": [told]})
        await until(lambda: _has_identity(house, "x"))
        (stored,) = [e for e in await house.store.entries() if e.identity == "x"]
        for text in (stored.content, stored.summary):
            assert "Hi" in text
            assert not any(evil in text for evil in ("script", "onclick", "onerror", "javascript"))
        assert (stored.url, stored.comments_url, stored.enclosures) == ("", "", ())
        changed = post(5, "<p>Not what was written</p>", at=house.clock())
        await there(liar.call, house.nid, "put_entries", bundle(house.feed, [changed], 0.0))
        await honest_is_heard(house, 6)
        (five,) = [e for e in await house.store.entries() if e.identity == "5"]
        assert (five.summary, five.content, five.source) == ("<p>Words 5</p>", "", "poll")


async def _has_identity(house, identity):
    return any(e.identity == identity for e in await house.store.entries())


@story()
async def test_a_flood_is_cut_off(house):
    with Stranger(LIAR) as liar:
        await there(liar.connect, house.nid, [house.feed])
        most = int(2 * Rules().calls_per_min)

        def flood():
            refused = 0
            for number in range(most + 50):
                try:
                    liar.call(house.nid, "put_looks", [[house.feed, float(number)]])
                except Fault as fault:
                    refused += "too often" in fault.faultString
            return refused

        house.clock.stand_still()
        assert await there(flood) == 50
        await honest_is_heard(house, 6)


@story()
async def test_strangers_are_cut_off_sooner(house):
    with Stranger(LIAR) as liar:

        def knock():
            for _ in range(STRANGERS_PER_MIN + 5):
                liar.call(house.nid, "get_neighbors")

        with pytest.raises(ProtocolError, match="429"):
            await there(knock)
        await honest_is_heard(house, 6)


def raw(nid, body):
    host, _, port = nid.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_S, source_address=(LIAR, 0))
    try:
        connection.request("POST", "/RPC2", body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (BrokenPipeError, ConnectionResetError):  # it has hung up in the middle of what we had to say
        return 413, ""
    finally:
        connection.close()


@story()
async def test_oversize_and_bombs_are_not_read(house):
    bomb = '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><methodCall>&b;</methodCall>'
    assert "document types" in (await there(raw, house.nid, bomb.encode()))[1]
    assert "document types" in (await there(raw, house.nid, bomb.encode("utf-16")))[1]
    assert (await there(raw, house.nid, b"x" * 5_000_000))[0] == 413
    with Stranger(LIAR) as liar:
        await there(liar.connect, house.nid, [house.feed])
        for told in (
            bundle(house.feed, [post(n) for n in range(6, 300)], 0.0),
            bundle(house.feed, [post(6, "x" * 400_000)], 0.0),
        ):
            with pytest.raises(Fault):
                await there(liar.call, house.nid, "put_entries", told)
    assert len(await house.titles()) == 5
    await honest_is_heard(house, 6)


@story()
async def test_bad_paths_and_wrong_names_are_refused(house):
    with Stranger(LIAR) as liar:
        await there(liar.connect, house.nid, [house.feed])
        circle, far = ["10.0.0.1:1", "10.0.0.1:1"], [f"10.0.0.{n}:1" for n in range(1, 60)]
        for path in (circle, far, [liar.nid], ["evil.example:80"]):
            with pytest.raises(Fault):
                await there(liar.call, house.nid, "put_entries", bundle(house.feed, [post(6)], 0.0, path))
        wrong = {**bundle(house.feed, [post(6)], 0.0), "entries": [post(66)]}
        with pytest.raises(Fault, match="did is not"):
            await there(liar.call, house.nid, "put_entries", wrong)
    assert len(await house.titles()) == 5
    await honest_is_heard(house, 6)


@story()
async def test_who_says_it_wants_everything_and_gives_nothing_gets_little(house):
    most = Rules().deficit / 5
    with Stranger(LIAR) as rider:
        with pytest.raises(Fault):
            await there(rider.connect, house.nid, [f"http://a.example/{n}" for n in range(MOST_FEEDS + 1)])
        assert await there(rider.connect, house.nid, [house.feed, *(f"http://a.example/{n}" for n in range(1000))])
        for number in range(6, 48, 3):
            house.clock.ahead_s += 3600
            house.publisher.posts += [(n, house.clock() - 60) for n in range(number, number + 3)]
            await house.poll()
            await asyncio.sleep(0.05)
        await until(lambda: there(lambda: len(rider.given) >= most - 3))
        (peer,) = house.here.peers()
        assert most - 3 <= peer.figures["given"] <= most + 3
        assert len(rider.given) <= most + 3
        await honest_is_heard(house, 100)


@story()
async def test_replay_brings_nothing(house):
    with Stranger(LIAR) as liar:
        await there(liar.connect, house.nid, [house.feed])
        told = bundle(house.feed, [post(6)], house.clock())
        await there(liar.tell, house.nid, told)
        await house.has(Post_6="neighbour")
        for _ in range(5):
            assert not await there(liar.tell, house.nid, told)
            await there(liar.call, house.nid, "put_entries", told)
        (peer,) = house.here.peers()
        assert peer.figures["entries"] == 1
        old = bundle(house.feed, [post(0, at=time.time() - 86400 * 400)], house.clock())
        await there(liar.call, house.nid, "put_entries", old)  # what no document of ours could refute is no news
        await honest_is_heard(house, 7)
        assert "Post 0" not in await house.titles()


@story()
async def test_many_at_one_address_get_two_places(house):
    def crowd():
        many = [Stranger(LIAR) for _ in range(6)]
        try:
            return [bool(one.connect(house.nid, [house.feed])) for one in many]
        finally:
            for one in many:
                one.__exit__()

    assert await there(crowd) == [True, True, False, False, False, False]
    assert [address_of(peer.nid) for peer in house.here.peers()] == [LIAR, LIAR]
    await honest_is_heard(house, 6)
