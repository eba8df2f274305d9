"""What neighbours told: marked, confirmed or withdrawn; who they are; and which feeds nobody is told of."""

from tests.store.conftest import entry
from tests.worlds import MONDAY
from tidings.store import neighbours
from tidings.store.neighbours import Peer, Shareable

LIAR, FRIEND = "10.6.6.6:8035", "10.0.0.1:8035"


def told(store, feed, *entries, by=LIAR, **options):
    store.polled(feed, source="neighbour", new=entries)
    identities = [e.identity for e in entries]
    store.write(neighbours.tell, feed, identities, ("10.9.9.9:1", by), store.clock(), **options)


def sources(store):
    return {e.title: e.source for e in store.entries()}


def test_what_neighbours_tell_is_marked_until_it_is_confirmed(store):
    feed = store.subscribe()
    store.polled(feed, new=[entry(1)])
    told(store, feed, entry(2), entry(3))
    assert sources(store) == {"Post 1": "poll", "Post 2": "neighbour", "Post 3": "neighbour"}
    (two, three) = store.read(neighbours.tellings)
    assert (two.feed, two.identity, two.digest, two.sender) == ("https://a.example/feed", "id:2", b"1", LIAR)
    assert two.path == ("10.9.9.9:1", LIAR)
    assert store.write(neighbours.confirm, feed, ["id:1", "id:2", "id:9"]) == 1
    assert sources(store) == {"Post 1": "poll", "Post 2": "confirmed", "Post 3": "neighbour"}
    assert store.read(neighbours.tellings) == [three]
    assert len(store.polls(feed)) == 1  # nobody was asked


def test_an_own_fetch_that_says_otherwise_wins(store):
    feed = store.subscribe()
    told(store, feed, entry(1))
    store.polled(feed, changed=[entry(1, digest=b"2")])
    assert sources(store) == {"Post 1": "poll"}
    assert store.read(neighbours.tellings) == []


def test_what_only_a_liar_told_is_as_if_it_had_never_been(store):
    feed = store.subscribe()
    store.polled(feed, new=[entry(1, text="truth")])
    told(store, feed, entry(2, text="lies"), entry(3, text="lies"))
    told(store, feed, entry(4, text="gossip"), by=FRIEND)
    told(store, feed, entry(0, text="lies"), recovered=True)
    assert store.write(neighbours.withdraw, feed, ["id:1", "id:2"]) == 1
    assert store.write(neighbours.withdraw_all, LIAR) == 2
    assert store.titles() == ["Post 4", "Post 1"]
    assert store.titles(search="lies") == []
    assert store.feeds()[0].entries == 2
    assert store.check() == []
    assert len(store.polled(feed, new=[entry(2, text="true after all")]).new) == 1


def test_neighbours_are_remembered(store):
    figures = {"brought": 3.0, "given": 2.0}
    here = Peer(FRIEND, MONDAY, True, 2.5, None, "", b"key", figures)
    liar = Peer(LIAR, MONDAY, False, 0.0, MONDAY + 5, "it forged an entry")
    store.write(neighbours.save, [liar, here])
    assert store.read(neighbours.peers) == [here, liar]
    past = [Peer(f"10.1.{n // 200}.{n % 200}:1", MONDAY + n + 1) for n in range(250)]
    store.write(neighbours.save, [here, *past])
    kept = store.read(neighbours.peers)
    assert len(kept) == neighbours.MOST_PAST + 1
    assert liar in kept
    assert past[-1] in kept
    assert past[0] not in kept


def test_a_private_feed_is_not_to_be_told(store):
    first, second = store.subscribe(), store.subscribe("https://b.example/feed")
    store.write(neighbours.hide, first, True)
    assert store.read(neighbours.shareable) == [Shareable(second, "https://b.example/feed", 1.0)]
    store.write(neighbours.hide, first, False)
    assert len(store.read(neighbours.shareable)) == 2


def test_others_may_have_what_is_known_to_be_true(store):
    feed = store.subscribe()
    store.polled(feed, new=[entry(n, title=f"50% of {n}") for n in range(1, 6)])
    told(store, feed, entry(6))
    hour = 3600.0
    everything = (feed, 0.0, 4e9, "")
    assert store.read(neighbours.holding, *everything) == (5, MONDAY + hour, MONDAY + 5 * hour)
    assert store.read(neighbours.holding, feed, 0.0, MONDAY, "") is None
    assert [e.title for e in store.read(neighbours.archive, *everything, 2)] == ["50% of 5", "50% of 4"]
    found = store.read(neighbours.archive, feed, MONDAY + 2 * hour, MONDAY + 4 * hour, "% OF", 9)
    assert [e.title for e in found] == ["50% of 3", "50% of 2"]
    assert store.read(neighbours.archive, feed, 0.0, 4e9, "5%_", 9) == []
