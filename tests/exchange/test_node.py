"""The core, FeedEx sect. 3: interests spread, bundles find their way once, neighbours are chosen, givers are given."""

import pytest

from tests.exchange.memory_network import FEED, NOON, MemoryNetwork, bundle, post
from tidings.exchange.membership import RETRY_S
from tidings.exchange.node import CallRefused
from tidings.exchange.protocol import (
    EntriesReceived,
    NodeSettings,
    Note,
    Offer,
    PeerDropped,
    did_of,
)

OTHER = "http://other.example/feed"


# --- subscription sets --------------------------------------------------------------------------------------------------


def test_interests_travel_with_hop_counts_and_do_not_come_back():
    network = MemoryNetwork("abc", feeds={"a": [FEED], "b": [OTHER], "c": []})
    network.nodes["c"].set_feeds({"http://third.example/": 1.0})
    network.link("ab", "bc")
    a, b, c = (network.nodes[name] for name in "abc")
    assert c.peers[b.nid].hops == {OTHER: 0, FEED: 1}
    assert a.peers[b.nid].hops == {OTHER: 0, "http://third.example/": 1}
    assert b.peers[a.nid].hops == {FEED: 0}  # not what a knows of b or c


def test_interest_ends_after_three_hops():
    network = MemoryNetwork(
        "abcdef",
        feeds={name: [FEED if name == "a" else f"http://{name}.example/"] for name in "abcdef"},
    )
    network.link("ab", "bc", "cd", "de", "ef")
    hops = [network.nodes[name].interests.hops(FEED) for name in "abcdef"]
    assert hops == [0, 1, 2, 3, None, None]


def test_advertisements_tell_differences_only_and_take_back_what_is_gone():
    network = MemoryNetwork(
        "abc", feeds={"a": [FEED], "b": [OTHER], "c": ["http://third.example/"]}
    )
    network.link("ab", "bc")
    network.log.clear()
    network.advance(301)
    assert all(
        effect.argument == {} for _, effect in network.log
    )  # nothing has changed; some say that they are still there
    network.nodes["a"].set_feeds({"http://new.example/": 1.0})
    network.advance(301)
    network.advance(301)
    assert network.nodes["c"].peers[network.nid("b")].hops == {OTHER: 0, "http://new.example/": 1}


# --- dissemination ------------------------------------------------------------------------------------------------------


def test_what_one_fetches_all_get_once():
    network = MemoryNetwork("abcde")
    network.link("ab", "bc", "cd", "de", "ea", "ac")
    network.fetch("a", 1, 2)
    assert all(network.received_posts(name) == [1, 2] for name in "bcde")
    puts = [call for call in network.calls if call[2] == "put_entries"]
    assert len(puts) == 4  # each other node exactly once
    assert all(network.fetch(name, 1, 2) == [] for name in "bcde")


def test_known_entries_are_left_out_before_passing_on():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    network.nodes["b"].record_document(FEED, [post(1)], network.now)
    network.nodes["b"].take_effects()  # nobody hears of it
    network.fetch("a", 1, 2)
    assert network.received_posts("b") == [2]
    assert network.received_posts("c") == [2]


def test_the_path_is_written_by_receivers():
    network = MemoryNetwork("abcd")
    network.link("ab", "bc", "cd")
    network.fetch("a", 1)
    (arrived,) = network.effects_of("d", EntriesReceived)
    assert [network.names[nid] for nid in arrived.bundle.path] == ["a", "b", "c"]


def test_a_bundle_that_was_here_is_not_taken_again():
    network = MemoryNetwork("abc")
    network.link("ab", "bc", "ca")
    circling = bundle(1, path=[network.nid("b"), network.nid("c")])
    assert network.put("a", "b", circling) == 0
    assert network.nodes["b"].counts["loops"] == 1
    assert network.received_posts("b") == []


def test_entries_go_to_those_who_want_the_feed_and_through_those_near_them():
    network = MemoryNetwork("abc", feeds={"a": [FEED], "b": [OTHER], "c": [FEED]})
    network.link("ab", "bc")
    network.fetch("a", 1)
    assert network.received_posts("c") == [1]
    assert network.received_posts("b") == []  # passed on, not read
    network.fetch("b", 7, feed=OTHER)
    assert (network.received_posts("a"), network.received_posts("c")) == ([], [1])


def test_tags_and_ratings_travel_with_entries():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    network.nodes["a"].record_document(
        FEED, [post(1)], network.now, {"post 1": Note(("good",), 1.0)}
    )
    network.apply_effects("a")
    (arrived,) = network.effects_of("c", EntriesReceived)
    assert arrived.bundle.notes["post 1"] == Note(("good",), 1.0)


def test_the_same_entries_found_by_two_have_one_did():
    assert (
        bundle(1, 2).did
        == did_of(FEED, [post(1), post(2)])
        == bundle(1, 2, path=["x:1"], at=NOON + 5).did
    )
    assert bundle(1, 2).did != bundle(1, 2, feed=OTHER).did
    assert bundle(post(1)).did != bundle(post(1, "altered")).did


def test_whoever_is_announced_first_is_waited_for_and_not_for_ever():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    b, did = network.nodes["b"], bundle(1).did
    assert not b.check_did(network.nid("a"), did, network.now)
    assert b.check_did(network.nid("c"), did, network.now)  # a is about to bring it
    network.advance(61)
    assert not b.check_did(network.nid("c"), did, network.now)  # a has not
    assert not b.check_did(network.nid("a"), bundle(2).did, network.now)
    assert not b.check_did(
        network.nid("c"), bundle(2).did, network.now
    )  # and is not waited for again


# --- neighbours ---------------------------------------------------------------------------------------------------------


def test_usefulness_is_overlap_by_weight_and_distance():
    network = MemoryNetwork("a", feeds=["x", "y", "z"])
    interests = network.nodes["a"].interests
    interests.feeds["x"] = 3.0
    assert interests.usefulness({"x": 0, "y": 1, "w": 0}) == 3.0 + 0.5


def test_a_full_node_declines_unless_the_newcomer_is_more_useful():
    settings = NodeSettings(min_peers=0, max_peers=2)
    feeds = {"a": ["x", "y"], "b": ["x"], "c": ["x"], "d": ["x"], "e": ["x", "y"]}
    network = MemoryNetwork("abcde", feeds=feeds, settings=settings)
    network.link("ba", "ca")
    assert network.nodes["a"].connect(network.nid("d"), {"x": 0}, network.now) == {}
    assert network.nodes["a"].connect(network.nid("e"), {"x": 0, "y": 0}, network.now)
    assert len(network.nodes["a"].peers) == 2
    assert "e" in network.peers("a")


def test_who_cannot_be_reached_is_replaced():
    network = MemoryNetwork("abcd", settings=NodeSettings(min_peers=2, max_peers=3))
    network.link("ab", "ac")
    network.nodes["a"].add_candidates([network.nid("d")], network.now)
    network.unreachable.add("b")
    network.fetch("a", 1)
    assert network.peers("a") == "c"
    network.advance(301)
    assert network.peers("a") == "cd"


def test_a_call_to_who_has_come_back_meanwhile_counts_for_nothing():
    network = MemoryNetwork("ab")
    network.link("ab")
    a, b = network.nodes["a"], network.nodes["b"]
    started_at = network.now
    network.now += 5
    a.connect(b.nid, {FEED: 0}, network.now)
    a.on_failed(b.nid, network.now + 1, started_at)
    a.on_refused(b.nid, network.now + 1, started_at)
    assert network.peers("a") == "b"
    a.on_refused(b.nid, network.now + 1, network.now)
    assert network.peers("a") == ""


def test_neighbours_are_found_by_asking_a_list():
    network = MemoryNetwork("abcdl", settings=NodeSettings(min_peers=2, max_peers=3))
    network.nodes["l"].add_candidates([network.nid(name) for name in "bcd"], network.now)
    network.nodes["a"].membership.set_list_servers([network.nid("l")])
    network.advance(301)
    network.advance(301)
    assert len(network.peers("a")) >= 2


def test_old_neighbours_are_asked_first_and_remembered_as_they_were():
    network = MemoryNetwork("abcdef", settings=NodeSettings(min_peers=1))
    past = {network.nid("e"): {"nid": network.nid("e"), "brought": 7.0, "given": 3.0, "entries": 9}}
    network.nodes["a"].add_candidates([network.nid(name) for name in "bcdef"], network.now, past)
    network.nodes["a"].tick(network.now)
    first = next(
        effect for effect in network.nodes["a"].take_effects() if effect.function == "connect"
    )
    assert first.to == network.nid("e")
    network.nodes["a"].on_connected(first.to, {FEED: 0}, network.now)
    assert network.nodes["a"].peers[first.to].contribution_received == 7.0


def test_one_who_declined_is_left_alone_for_a_while():
    network = MemoryNetwork("ab", settings=NodeSettings(min_peers=1))
    a = network.nodes["a"]
    a.on_connected(network.nid("b"), {}, network.now)
    a.tick(network.now)
    assert a.take_effects() == []
    a.tick(network.now + RETRY_S + 301)
    assert [effect.function for effect in a.take_effects()] == ["connect"]


def test_feeds_of_like_minded_neighbours_are_suggested():
    network = MemoryNetwork("abc", feeds={"a": ["x", "y"], "b": ["x", "y", "new"], "c": ["z"]})
    network.link("ab", "ac")
    assert [feed for feed, _ in network.nodes["a"].interests.suggestions()] == ["new"]


def test_decoys_are_advertised_as_if_they_were_read():
    network = MemoryNetwork("ab", feeds={"a": ["x"], "b": ["x", "theirs"]})
    network.link("ab")
    assert network.nodes["a"].choose_decoys(1) == ["theirs"]
    network.advance(301)
    assert network.nodes["b"].peers[network.nid("a")].hops == {"x": 0, "theirs": 0}
    network.fetch("b", 1, feed="theirs")
    assert network.received_posts("a") == []  # passed on, but nobody here reads it


# --- giving and taking --------------------------------------------------------------------------------------------------


def test_contributions_are_counted_on_both_sides():
    network = MemoryNetwork("ab")
    network.link("ab")
    network.fetch("a", 1, 2, 3)
    a, b = network.nodes["a"].peers[network.nid("b")], network.nodes["b"].peers[network.nid("a")]
    assert (a.contribution_sent, b.contribution_received) == (3.0, 3.0)
    assert (
        a.contribution_sent - a.contribution_received,
        b.contribution_sent - b.contribution_received,
    ) == (3.0, -3.0)


def test_an_entry_for_others_counts_less():
    network = MemoryNetwork("abc", feeds={"a": [FEED], "b": [OTHER], "c": [FEED]})
    network.link("ab", "bc")
    network.fetch("a", 1)
    assert (
        network.nodes["b"].peers[network.nid("a")].contribution_received == 0.5
    )  # alpha 2, one hop


def test_who_only_takes_gets_little_and_who_gives_gets_all():
    network = MemoryNetwork("abc", settings=NodeSettings(deficit=50.0, min_peers=0))
    network.link("ab", "ac")
    network.unresponsive.add("b")
    for number in range(100):
        network.fetch("a", 2 * number)
        network.fetch("c", 2 * number + 1)
    puts = [call[:2] for call in network.calls if call[2] == "put_entries"]
    assert puts.count(("a", "b")) <= 11
    assert puts.count(("a", "c")) == 100


def test_without_a_bound_free_riders_get_everything():
    network = MemoryNetwork("ab", settings=NodeSettings(deficit=float("inf"), min_peers=0))
    network.link("ab")
    network.unresponsive.add("b")
    for number in range(100):
        network.fetch("a", number)
    assert network.calls.count(("a", "b", "put_entries")) == 100


def test_who_takes_and_does_not_give_makes_room_first_however_useful_it_says_it_is():
    network = MemoryNetwork(
        "abcd",
        settings=NodeSettings(min_peers=0, max_peers=2, deficit=20.0),
        feeds=["x", "y", FEED],
    )
    network.link("ab", "ac")
    network.unresponsive.add("b")
    for number in range(10):
        network.fetch("a", 2 * number)
        network.fetch("c", 2 * number + 1)
    assert network.nodes["a"].connect(
        network.nid("d"), {FEED: 0}, network.now
    )  # d has less to offer than b says
    assert network.peers("a") == "cd"
    assert [
        effect.reason
        for effect in network.nodes["a"].take_effects()
        if isinstance(effect, PeerDropped)
    ] == ["it takes and does not give"]


def test_strangers_are_refused():
    network = MemoryNetwork("ab")
    with pytest.raises(CallRefused, match="connect first"):
        network.nodes["a"].check_did(network.nid("b"), b"x" * 20, network.now)


def test_forwarding_skips_those_on_the_path():
    network = MemoryNetwork("abcd")
    network.link("ab", "ac", "ad")
    a = network.nodes["a"]
    a.put_entries(network.nid("b"), bundle(1, path=[network.nid("c")]), network.now)
    (offer,) = [effect for effect in a.take_effects() if isinstance(effect, Offer)]
    assert [network.names[nid] for nid in offer.to] == ["d"]
