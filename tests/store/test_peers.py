"""Peers: unconfirmed entries, confirmation, withdrawal, stored peers, private feeds, archive."""

from tests.store.conftest import entry
from tests.trace_helpers import MONDAY
from tidings.store import peers
from tidings.store.peers import Peer, ShareableFeed

LYING_PEER, HONEST_PEER = "10.6.6.6:8035", "10.0.0.1:8035"


def record_peer_entries(store, feed, *entries, by=LYING_PEER, **options):
    store.record_poll(feed, source="neighbour", new=entries)
    identities = [e.identity for e in entries]
    store.write(
        peers.save_peer_claims, feed, identities, ("10.9.9.9:1", by), store.clock(), **options
    )


def sources(store):
    return {e.title: e.source for e in store.entries()}


def test_entries_from_peers_are_unconfirmed_until_confirmed(store):
    feed = store.subscribe()
    store.record_poll(feed, new=[entry(1)])
    record_peer_entries(store, feed, entry(2), entry(3))
    assert sources(store) == {"Post 1": "poll", "Post 2": "neighbour", "Post 3": "neighbour"}
    (two, three) = store.read(peers.unconfirmed_peer_claims)
    assert (two.feed, two.identity, two.digest, two.sender) == (
        "https://a.example/feed",
        "id:2",
        b"1",
        LYING_PEER,
    )
    assert two.path == ("10.9.9.9:1", LYING_PEER)
    assert store.write(peers.confirm, feed, ["id:1", "id:2", "id:9"]) == 1
    assert sources(store) == {"Post 1": "poll", "Post 2": "confirmed", "Post 3": "neighbour"}
    assert store.read(peers.unconfirmed_peer_claims) == [three]
    assert len(store.polls(feed)) == 1  # no request was sent


def test_own_poll_overrides_peer_entry(store):
    feed = store.subscribe()
    record_peer_entries(store, feed, entry(1))
    store.record_poll(feed, changed=[entry(1, digest=b"2")])
    assert sources(store) == {"Post 1": "poll"}
    assert store.read(peers.unconfirmed_peer_claims) == []


def test_withdrawn_entries_leave_no_trace(store):
    feed = store.subscribe()
    store.record_poll(feed, new=[entry(1, text="truth")])
    record_peer_entries(store, feed, entry(2, text="lies"), entry(3, text="lies"))
    record_peer_entries(store, feed, entry(4, text="gossip"), by=HONEST_PEER)
    record_peer_entries(store, feed, entry(0, text="lies"), recovered=True)
    assert store.write(peers.withdraw, feed, ["id:1", "id:2"]) == 1
    assert store.write(peers.withdraw_all, LYING_PEER) == 2
    assert store.titles() == ["Post 4", "Post 1"]
    assert store.titles(search="lies") == []
    assert store.feeds()[0].entries == 2
    assert store.check() == []
    assert len(store.record_poll(feed, new=[entry(2, text="true after all")]).new) == 1


def test_peers_are_stored_and_old_ones_deleted(store):
    figures = {"brought": 3.0, "given": 2.0}
    present = Peer(HONEST_PEER, MONDAY, True, 2.5, None, "", b"key", figures)
    lying_peer = Peer(LYING_PEER, MONDAY, False, 0.0, MONDAY + 5, "the peer sent a forged post")
    store.write(peers.save_peers, [lying_peer, present])
    assert store.read(peers.peers) == [present, lying_peer]
    past = [Peer(f"10.1.{n // 200}.{n % 200}:1", MONDAY + n + 1) for n in range(250)]
    store.write(peers.save_peers, [present, *past])
    kept = store.read(peers.peers)
    assert len(kept) == peers.MAX_FORMER_PEERS + 1
    assert lying_peer in kept
    assert past[-1] in kept
    assert past[0] not in kept


def test_private_feed_is_not_shareable(store):
    first, second = store.subscribe(), store.subscribe("https://b.example/feed")
    store.write(peers.set_private, first, True)
    assert store.read(peers.shareable_feeds) == [
        ShareableFeed(second, "https://b.example/feed", 1.0)
    ]
    store.write(peers.set_private, first, False)
    assert len(store.read(peers.shareable_feeds)) == 2


def test_archive_contains_only_confirmed_entries(store):
    feed = store.subscribe()
    store.record_poll(feed, new=[entry(n, title=f"50% of {n}") for n in range(1, 6)])
    record_peer_entries(store, feed, entry(6))
    hour = 3600.0
    everything = (feed, 0.0, 4e9, "")
    assert store.read(peers.archive_extent, *everything) == (5, MONDAY + hour, MONDAY + 5 * hour)
    assert store.read(peers.archive_extent, feed, 0.0, MONDAY, "") is None
    assert [e.title for e in store.read(peers.archived_entries, *everything, 2)] == [
        "50% of 5",
        "50% of 4",
    ]
    found = store.read(
        peers.archived_entries, feed, MONDAY + 2 * hour, MONDAY + 4 * hour, "% OF", 9
    )
    assert [e.title for e in found] == ["50% of 3", "50% of 2"]
    assert store.read(peers.archived_entries, feed, 0.0, 4e9, "5%_", 9) == []
