"""Interoperability of the service with a peer written from the documented protocol."""

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


def post(number, content="<p>Text</p>", at=None, **more):
    """Return an entry as the publisher will publish it."""
    return entry(
        str(number),
        f"Post {number}",
        f"http://blog.example/{number}",
        content,
        at or time.time(),
        **more,
    )


@with_in_process_server()
async def test_reference_peer_joins_sends_receives_and_is_confirmed(server):
    with ReferencePeer("127.0.0.40") as peer:
        assert await in_thread(peer.connect, server.nid, [server.feed]) == {server.feed: 0}
        assert [p.nid for p in server.peer_exchange.peers() if p.present] == [peer.nid]
        payload = bundle(server.feed, [post(6, "", summary="<p>Text 6</p>")], 0.0)
        assert await in_thread(peer.offer, server.nid, payload)
        await server.wait_for_sources(Post_6="neighbour")
        server.clock.offset_s += 60
        server.publisher.posts += [(6, time.time()), (7, time.time())]
        await server.poll()
        await server.wait_for_sources(Post_6="confirmed", Post_7="poll")
        await until(
            lambda: in_thread(lambda: [item["title"] for item in peer.received] == ["Post 7"])
        )
        assert peer.received[0]["summary"] == "<p>Text 7</p>"
        await until(lambda: in_thread(lambda: "put_looks" in peer.calls))
        (stored,) = server.peer_exchange.peers()
        figures = stored.figures
        assert (figures["entries"], figures["confirmed"], figures["false"]) == (1, 1, 0)
        assert figures["brought"] == figures["given"] == 1


@with_in_process_server()
async def test_reference_peer_trades_archived_entries(server):
    old = [post(number, at=time.time() - 86400 * (40 - number)) for number in range(-3, 1)]
    with ReferencePeer("127.0.0.40", archive=old) as peer:
        await in_thread(peer.connect, server.nid, [server.feed])
        query = {
            "id": "q1",
            "feed": server.feed,
            "since": 0.0,
            "until": 4e9,
            "words": "",
            "hops": 0,
        }
        (holding,) = await in_thread(peer.call, server.nid, "query_feed", query)
        assert (holding["nid"], holding["entries"]) == ("", 5)
        received = await in_thread(peer.call, server.nid, "get_entries", query, [])
        assert [item["title"] for item in received] == [f"Post {n}" for n in (5, 4, 3, 2, 1)]
        found = await server.peer_exchange.exchange.recover(server.feed)
        assert [e.title for e in found[peer.nid]] == [f"Post {n}" for n in (0, -1, -2, -3)]


@with_in_process_server()
async def test_gap_is_repaired_from_peers_and_marked(server):
    missed = [post(number, at=server.clock() + 60 * number) for number in range(6, 10)]
    with ReferencePeer("127.0.0.40", archive=missed) as peer:
        await in_thread(peer.connect, server.nid, [server.feed])
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
async def test_peer_notice_delays_own_poll_by_a_day_at_most(server):
    with ReferencePeer("127.0.0.40") as peer:
        await in_thread(peer.connect, server.nid, [server.feed])
        server.publisher.posts.append((6, time.time()))
        await server.poll()  # notices count only after an own poll
        (planned,) = (await server.store.timings())["next_poll_at"].tolist()
        server.clock.offset_s = 1800.0
        await in_thread(peer.call, server.nid, "put_looks", [[server.feed, server.clock()]])

        async def is_delayed():
            feed = await server.store.feed(server.feed)
            return feed.state.reason.code == "peer_polled" and feed.state.next_poll_at > planned

        await until(is_delayed)
        feed = await server.store.feed(server.feed)
        assert feed.state.next_poll_at <= max(planned, feed.state.last_poll_at + 86400)


@with_in_process_server()
async def test_private_feeds_are_not_advertised(server):
    secret = server.feed.replace("http://", "http://me:secret@")
    await server.store.add_subscriptions([NewSubscription(secret, 4e9)])
    await server.peer_exchange.refresh()
    with ReferencePeer("127.0.0.40") as peer:
        assert await in_thread(peer.connect, server.nid, [server.feed]) == {server.feed: 0}
        await server.store.write(peers.set_private, 1, True)
        await server.peer_exchange.refresh()
        server.peer_exchange.node.tick(server.clock() + 1000)
        server.peer_exchange.exchange.apply_effects()
        await until(lambda: in_thread(lambda: "update_subset" in peer.calls))
        query = {
            "id": "q1",
            "feed": server.feed,
            "since": 0.0,
            "until": 4e9,
            "words": "",
            "hops": 0,
        }
        assert await in_thread(peer.call, server.nid, "get_entries", query, []) == []
        assert await in_thread(peer.call, server.nid, "query_feed", query) == []


@with_in_process_server(exchange_decoys="1")
async def test_decoy_is_advertised_and_fetched_but_not_stored(server):
    with Publisher() as decoy, ReferencePeer("127.0.0.40") as peer:
        decoy.posts.append((1, time.time()))
        await in_thread(peer.connect, server.nid, [server.feed, decoy.url])
        await server.peer_exchange._decoys.poll_due_decoy()
        assert server.peer_exchange.node.interests.advertisement_for("")[decoy.url] == 0
        assert decoy.requested_paths == []
        server.clock.offset_s += DECOY_INTERVAL_S
        await server.peer_exchange._decoys.poll_due_decoy()
        server.peer_exchange.exchange.apply_effects()
        await until(
            lambda: in_thread(lambda: [item["title"] for item in peer.received] == ["Post 1"])
        )
        assert (decoy.requested_paths, len(await server.titles())) == ([2], 5)


def test_private_urls_are_recognized():
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


def test_separate_tls_port_and_peers_survive_restart(tmp_path):
    """Two services exchange over TLS; one restarts and finds the other without a list server."""
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
            other_options = {"address": "127.0.0.3", "exchange_port": str(ports[1]), **options}
            async with server(folders[1], publisher, **other_options) as three:
                three.peer_exchange.node.add_candidates([two.nid], three.clock())
                await until(lambda: _have_peers(two, three))
                publisher.posts.append((2, time.time()))
                await two.poll()
                await three.wait_for_sources(Post_2="neighbour")
            async with server(folders[1], publisher, **other_options) as restarted:
                await until(lambda: _have_peers(two, restarted))
                await restarted.wait_for_sources(Post_2="neighbour")
                await restarted.poll()
                # The claim of the peer was restored from the database.
                await restarted.wait_for_sources(Post_2="confirmed")

    with Publisher() as publisher:
        asyncio.run(asyncio.wait_for(scenario(publisher), TEST_TIMEOUT_S))


async def _have_peers(*servers):
    return all(server.peer_exchange.node.peers for server in servers)
