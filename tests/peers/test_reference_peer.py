"""A neighbour that knows only the documented protocol joins a real service, gives, gets, and is found again."""

import asyncio
import time

from tests import TEST_TIMEOUT_S
from tests.certificates import make_certificate
from tests.peers.in_process_server import server, until, with_in_process_server
from tests.peers.peer_network import Publisher
from tests.peers.reference_peer import ReferencePeer, bundle, entry
from tidings.aggregator.decoys import DECOY_INTERVAL_S
from tidings.aggregator.peer_exchange import is_private
from tidings.service import listen
from tidings.store import peers
from tidings.store.feed_models import NewSubscription

in_thread = asyncio.to_thread


def post(number, content="<p>Words</p>", at=None, **more):
    """As the publisher will show it."""
    return entry(
        str(number),
        f"Post {number}",
        f"http://blog.example/{number}",
        content,
        at or time.time(),
        **more,
    )


@with_in_process_server()
async def test_a_stranger_joins_gives_gets_and_is_confirmed(server):
    with ReferencePeer("127.0.0.40") as me:
        assert await in_thread(me.connect, server.nid, [server.feed]) == {server.feed: 0}
        assert [p.nid for p in server.peer_exchange.peers() if p.present] == [me.nid]
        payload = bundle(server.feed, [post(6, "", summary="<p>Words 6</p>")], 0.0)
        assert await in_thread(me.offer, server.nid, payload)
        await server.wait_for_sources(Post_6="neighbour")
        server.clock.offset_s += 60
        server.publisher.posts += [(6, time.time()), (7, time.time())]
        await server.poll()
        await server.wait_for_sources(Post_6="confirmed", Post_7="poll")
        await until(lambda: in_thread(lambda: [one["title"] for one in me.received] == ["Post 7"]))
        assert me.received[0]["summary"] == "<p>Words 7</p>"
        await until(lambda: in_thread(lambda: "put_looks" in me.calls))
        (peer,) = server.peer_exchange.peers()
        assert (peer.figures["entries"], peer.figures["confirmed"], peer.figures["false"]) == (
            1,
            1,
            0,
        )
        assert peer.figures["brought"] == peer.figures["given"] == 1


@with_in_process_server()
async def test_a_stranger_is_given_old_entries_and_gives_them(server):
    old = [post(number, at=time.time() - 86400 * (40 - number)) for number in range(-3, 1)]
    with ReferencePeer("127.0.0.40", archive=old) as me:
        await in_thread(me.connect, server.nid, [server.feed])
        query = {
            "id": "q1",
            "feed": server.feed,
            "since": 0.0,
            "until": 4e9,
            "words": "",
            "hops": 0,
        }
        (held,) = await in_thread(me.call, server.nid, "query_feed", query)
        assert (held["nid"], held["entries"]) == ("", 5)
        received = await in_thread(me.call, server.nid, "get_entries", query, [])
        assert [one["title"] for one in received] == [
            "Post 5",
            "Post 4",
            "Post 3",
            "Post 2",
            "Post 1",
        ]
        found = await server.peer_exchange.exchange.recover(server.feed)
        assert [one.title for one in found[me.nid]] == ["Post 0", "Post -1", "Post -2", "Post -3"]


@with_in_process_server()
async def test_a_gap_is_repaired_by_neighbours_and_marked_as_theirs(server):
    lost = [post(number, at=server.clock() + 60 * number) for number in range(6, 10)]
    with ReferencePeer("127.0.0.40", archive=lost) as me:
        await in_thread(me.connect, server.nid, [server.feed])
        server.clock.offset_s = 86400.0
        server.publisher.posts += [
            (number, server.clock() - 86400 + 60 * number) for number in range(6, 15)
        ]
        await server.poll()
        await server.wait_for_sources(
            Post_14="poll", Post_10="poll", Post_9="neighbour", Post_6="neighbour"
        )
        (gap,) = await server.store.gaps()
        assert (gap.state, gap.recovered) == ("partly", 4)


@with_in_process_server()
async def test_a_look_of_others_puts_off_our_own_but_for_no_more_than_a_day(server):
    with ReferencePeer("127.0.0.40") as me:
        await in_thread(me.connect, server.nid, [server.feed])
        server.publisher.posts.append((6, time.time()))
        await server.poll()  # from now on it is known to look itself
        (planned,) = (await server.store.timings())["next_poll_at"].tolist()
        server.clock.offset_s = 1800.0
        await in_thread(me.call, server.nid, "put_looks", [[server.feed, server.clock()]])

        async def put_off():
            feed = await server.store.feed(server.feed)
            return feed.state.reason.code == "peer_polled" and feed.state.next_poll_at > planned

        await until(put_off)
        feed = await server.store.feed(server.feed)
        assert feed.state.next_poll_at <= max(planned, feed.state.last_poll_at + 86400)


@with_in_process_server()
async def test_private_feeds_are_never_told(server):
    secret = server.feed.replace("http://", "http://me:secret@")
    await server.store.add([NewSubscription(secret, 4e9)])
    await server.peer_exchange.refresh()
    with ReferencePeer("127.0.0.40") as me:
        assert await in_thread(me.connect, server.nid, [server.feed]) == {server.feed: 0}
        await server.store.write(peers.set_private, 1, True)
        await server.peer_exchange.refresh()
        server.peer_exchange.node.tick(server.clock() + 1000)
        server.peer_exchange.exchange.apply_effects()
        await until(lambda: in_thread(lambda: "update_subset" in me.calls))
        query = {
            "id": "q1",
            "feed": server.feed,
            "since": 0.0,
            "until": 4e9,
            "words": "",
            "hops": 0,
        }
        assert await in_thread(me.call, server.nid, "get_entries", query, []) == []
        assert await in_thread(me.call, server.nid, "query_feed", query) == []


@with_in_process_server(exchange_decoys="1")
async def test_a_decoy_is_told_and_fetched_as_if_it_was_read_and_not_stored(server):
    with Publisher() as theirs, ReferencePeer("127.0.0.40") as me:
        theirs.posts.append((1, time.time()))
        await in_thread(me.connect, server.nid, [server.feed, theirs.url])
        await server.peer_exchange._decoys.poll_due_decoy()
        assert server.peer_exchange.node.interests.advertisement_for("")[theirs.url] == 0
        assert theirs.requested_paths == []
        server.clock.offset_s += DECOY_INTERVAL_S
        await server.peer_exchange._decoys.poll_due_decoy()
        server.peer_exchange.exchange.apply_effects()
        await until(lambda: in_thread(lambda: [one["title"] for one in me.received] == ["Post 1"]))
        assert (theirs.requested_paths, len(await server.titles())) == ([2], 5)


def test_addresses_that_are_private():
    for url in (
        "http://me:pw@a.example.org/feed",
        "http://10.0.0.1/feed",
        "http://[::1]/feed",
        "http://nas/feed",
        "http://router.local/feed",
        "https://github.com/me.private.atom?token=abc",
        "https://a.example.org/feed?api_key=1",
        "https://a.example.org/out/1/0123456789abcdef0123456789/all.atom",
        "https://a.example.org/f/3f2504e0-4f89-11d3-9a0c-0305e82c3301.xml",
        "gopher://a.example.org/feed",
    ):
        assert is_private(url), url
    for url in (
        "https://a.example.org/feed",
        "https://www.youtube.com/feeds/videos.xml?channel_id=UCXuqSBlHAE6Xw-yeJA0Tunw",
        "http://93.184.216.34/?format=rss",
        "https://a.example.org/keyboards/feed?monkey=1",
    ):
        assert not is_private(url), url
    assert not is_private("http://127.0.0.1:8000/feed", loopback_only=True)
    assert is_private("http://127.0.0.1:8000/feed?token=1", loopback_only=True)


def test_a_port_of_its_own_encrypted_and_neighbours_remembered(tmp_path):
    """Two services of ours, over TLS; the one that starts again finds the other without a list."""
    ports = []
    for address in ("127.0.0.2", "127.0.0.3"):
        with listen(address, 0) as free:
            ports.append(free.getsockname()[1])
    certificate = make_certificate(str(tmp_path))

    async def scenario(publisher):
        publisher.posts.append((1, time.time()))
        options = {"exchange_certificate": certificate}
        folders = [tmp_path / "2", tmp_path / "3"]
        for folder in folders:
            folder.mkdir()
        async with server(folders[0], publisher, exchange_port=str(ports[0]), **options) as two:
            other = {"address": "127.0.0.3", "exchange_port": str(ports[1]), **options}
            async with server(folders[1], publisher, **other) as three:
                three.peer_exchange.node.add_candidates([two.nid], three.clock())
                await until(lambda: _have_peers(two, three))
                publisher.posts.append((2, time.time()))
                await two.poll()
                await three.wait_for_sources(Post_2="neighbour")
            async with server(folders[1], publisher, **other) as again:
                await until(lambda: _have_peers(two, again))
                await again.wait_for_sources(Post_2="neighbour")
                await again.poll()
                await again.wait_for_sources(
                    Post_2="confirmed"
                )  # who told it is not forgotten over the night

    with Publisher() as publisher:
        asyncio.run(asyncio.wait_for(scenario(publisher), TEST_TIMEOUT_S))


async def _have_peers(*servers):
    return all(one.peer_exchange.node.peers for one in servers)
