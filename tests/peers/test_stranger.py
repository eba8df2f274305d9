"""A neighbour that knows only the documented protocol joins a real service, gives, gets, and is found again."""

import asyncio
import time

from tests import PATIENCE_S
from tests.certificates import make_certificate
from tests.peers.house import house, story, until
from tests.peers.stranger import Stranger, bundle, entry
from tests.peers.town import Publisher
from tidings.aggregator.decoys import PACE_S
from tidings.aggregator.neighbours import is_private
from tidings.service import listen
from tidings.store import neighbours
from tidings.store.rows import Wanted

there = asyncio.to_thread


def post(number, content="<p>Words</p>", at=None, **more):
    """As the publisher will show it."""
    return entry(str(number), f"Post {number}", f"http://blog.example/{number}", content, at or time.time(), **more)


@story()
async def test_a_stranger_joins_gives_gets_and_is_confirmed(house):
    with Stranger("127.0.0.40") as me:
        assert await there(me.connect, house.nid, [house.feed]) == {house.feed: 0}
        assert [p.nid for p in house.here.peers() if p.present] == [me.nid]
        told = bundle(house.feed, [post(6, "", summary="<p>Words 6</p>")], 0.0)
        assert await there(me.tell, house.nid, told)
        await house.has(Post_6="neighbour")
        house.clock.ahead_s += 60
        house.publisher.posts += [(6, time.time()), (7, time.time())]
        await house.poll()
        await house.has(Post_6="confirmed", Post_7="poll")
        await until(lambda: there(lambda: [one["title"] for one in me.given] == ["Post 7"]))
        assert me.given[0]["summary"] == "<p>Words 7</p>"
        await until(lambda: there(lambda: "put_looks" in me.calls))
        (peer,) = house.here.peers()
        assert (peer.figures["entries"], peer.figures["confirmed"], peer.figures["false"]) == (1, 1, 0)
        assert peer.figures["brought"] == peer.figures["given"] == 1


@story()
async def test_a_stranger_is_given_old_entries_and_gives_them(house):
    old = [post(number, at=time.time() - 86400 * (40 - number)) for number in range(-3, 1)]
    with Stranger("127.0.0.40", archive=old) as me:
        await there(me.connect, house.nid, [house.feed])
        query = {"id": "q1", "feed": house.feed, "since": 0.0, "until": 4e9, "words": "", "hops": 0}
        (held,) = await there(me.call, house.nid, "query_feed", query)
        assert (held["nid"], held["entries"]) == ("", 5)
        given = await there(me.call, house.nid, "get_entries", query, [])
        assert [one["title"] for one in given] == ["Post 5", "Post 4", "Post 3", "Post 2", "Post 1"]
        found = await house.here.exchange.recover(house.feed)
        assert [one.title for one in found[me.nid]] == ["Post 0", "Post -1", "Post -2", "Post -3"]


@story()
async def test_a_gap_is_repaired_by_neighbours_and_marked_as_theirs(house):
    lost = [post(number, at=house.clock() + 60 * number) for number in range(6, 10)]
    with Stranger("127.0.0.40", archive=lost) as me:
        await there(me.connect, house.nid, [house.feed])
        house.clock.ahead_s = 86400.0
        house.publisher.posts += [(number, house.clock() - 86400 + 60 * number) for number in range(6, 15)]
        await house.poll()
        await house.has(Post_14="poll", Post_10="poll", Post_9="neighbour", Post_6="neighbour")
        (gap,) = await house.store.gaps()
        assert (gap.state, gap.recovered) == ("partly", 4)


@story()
async def test_a_look_of_others_puts_off_our_own_but_for_no_more_than_a_day(house):
    with Stranger("127.0.0.40") as me:
        await there(me.connect, house.nid, [house.feed])
        house.publisher.posts.append((6, time.time()))
        await house.poll()  # from now on it is known to look itself
        (planned,) = (await house.store.timings())["next_poll_at"].tolist()
        house.clock.ahead_s = 1800.0
        await there(me.call, house.nid, "put_looks", [[house.feed, house.clock()]])

        async def put_off():
            feed = await house.store.feed(house.feed)
            return feed.state.reason.code == "peer_polled" and feed.state.next_poll_at > planned

        await until(put_off)
        feed = await house.store.feed(house.feed)
        assert feed.state.next_poll_at <= max(planned, feed.state.last_poll_at + 86400)


@story()
async def test_private_feeds_are_never_told(house):
    secret = house.feed.replace("http://", "http://me:secret@")
    await house.store.add([Wanted(secret, 4e9)])
    await house.here.refresh()
    with Stranger("127.0.0.40") as me:
        assert await there(me.connect, house.nid, [house.feed]) == {house.feed: 0}
        await house.store.write(neighbours.hide, 1, True)
        await house.here.refresh()
        house.here.node.tick(house.clock() + 1000)
        house.here.exchange.follow()
        await until(lambda: there(lambda: "update_subset" in me.calls))
        query = {"id": "q1", "feed": house.feed, "since": 0.0, "until": 4e9, "words": "", "hops": 0}
        assert await there(me.call, house.nid, "get_entries", query, []) == []
        assert await there(me.call, house.nid, "query_feed", query) == []


@story(exchange_decoys="1")
async def test_a_decoy_is_told_and_fetched_as_if_it_was_read_and_not_stored(house):
    with Publisher() as theirs, Stranger("127.0.0.40") as me:
        theirs.posts.append((1, time.time()))
        await there(me.connect, house.nid, [house.feed, theirs.url])
        await house.here._decoys.attend()
        assert house.here.node.interests.advertised("")[theirs.url] == 0
        assert theirs.asked == []
        house.clock.ahead_s += PACE_S
        await house.here._decoys.attend()
        house.here.exchange.follow()
        await until(lambda: there(lambda: [one["title"] for one in me.given] == ["Post 1"]))
        assert (theirs.asked, len(await house.titles())) == ([2], 5)


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
    assert not is_private("http://127.0.0.1:8000/feed", among_ourselves=True)
    assert is_private("http://127.0.0.1:8000/feed?token=1", among_ourselves=True)


def test_a_port_of_its_own_encrypted_and_neighbours_remembered(tmp_path):
    """Two services of ours, over TLS; the one that starts again finds the other without a list."""
    ports = []
    for address in ("127.0.0.2", "127.0.0.3"):
        with listen(address, 0) as free:
            ports.append(free.getsockname()[1])
    certificate = make_certificate(str(tmp_path))

    async def tell(publisher):
        publisher.posts.append((1, time.time()))
        options = {"exchange_certificate": certificate}
        folders = [tmp_path / "2", tmp_path / "3"]
        for folder in folders:
            folder.mkdir()
        async with house(folders[0], publisher, exchange_port=str(ports[0]), **options) as two:
            other = {"address": "127.0.0.3", "exchange_port": str(ports[1]), **options}
            async with house(folders[1], publisher, **other) as three:
                three.here.node.meet([two.nid], three.clock())
                await until(lambda: _met(two, three))
                publisher.posts.append((2, time.time()))
                await two.poll()
                await three.has(Post_2="neighbour")
            async with house(folders[1], publisher, **other) as again:
                await until(lambda: _met(two, again))
                await again.has(Post_2="neighbour")
                await again.poll()
                await again.has(Post_2="confirmed")  # who told it is not forgotten over the night

    with Publisher() as publisher:
        asyncio.run(asyncio.wait_for(tell(publisher), PATIENCE_S))


async def _met(*houses):
    return all(one.here.node.neighbours for one in houses)
