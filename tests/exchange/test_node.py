"""Node core (FeedEx sect. 3): interests, dissemination, choice of peers, contributions."""

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


# --- subscription sets ---------------------------------------------------------------------------


def test_interests_propagate_with_hop_counts_but_not_back_to_their_source():
    network = MemoryNetwork("abc", feeds={"a": [FEED], "b": [OTHER], "c": []})
    network.nodes["c"].set_feeds({"http://third.example/": 1.0})
    network.link("ab", "bc")
    a, b, c = (network.nodes[name] for name in "abc")
    assert c.peers[b.nid].hops == {OTHER: 0, FEED: 1}
    assert a.peers[b.nid].hops == {OTHER: 0, "http://third.example/": 1}
    assert b.peers[a.nid].hops == {FEED: 0}  # without what a learned from b


def test_interest_ends_after_max_hops():
    network = MemoryNetwork(
        "abcdef",
        feeds={name: [FEED if name == "a" else f"http://{name}.example/"] for name in "abcdef"},
    )
    network.link("ab", "bc", "cd", "de", "ef")
    hops = [network.nodes[name].interests.hops(FEED) for name in "abcdef"]
    assert hops == [0, 1, 2, 3, None, None]


def test_advertisements_send_changes_and_removals_only():
    network = MemoryNetwork(
        "abc", feeds={"a": [FEED], "b": [OTHER], "c": ["http://third.example/"]}
    )
    network.link("ab", "bc")
    network.log.clear()
    network.advance(301)
    assert all(effect.argument == {} for _, effect in network.log)  # only empty keep-alives
    network.nodes["a"].set_feeds({"http://new.example/": 1.0})
    network.advance(301)
    network.advance(301)
    assert network.nodes["c"].peers[network.nid("b")].hops == {OTHER: 0, "http://new.example/": 1}


# --- dissemination -------------------------------------------------------------------------------


def test_fetched_entries_reach_each_node_once():
    network = MemoryNetwork("abcde")
    network.link("ab", "bc", "cd", "de", "ea", "ac")
    network.fetch("a", 1, 2)
    assert all(network.received_posts(name) == [1, 2] for name in "bcde")
    puts = [call for call in network.calls if call[2] == "put_entries"]
    assert len(puts) == 4  # each other node exactly once
    assert all(network.fetch(name, 1, 2) == [] for name in "bcde")


def test_known_entries_are_not_forwarded():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    network.nodes["b"].record_document(FEED, [post(1)], network.now)
    network.nodes["b"].take_effects()  # not forwarded
    network.fetch("a", 1, 2)
    assert network.received_posts("b") == [2]
    assert network.received_posts("c") == [2]


def test_path_is_extended_by_receivers():
    network = MemoryNetwork("abcd")
    network.link("ab", "bc", "cd")
    network.fetch("a", 1)
    (effect,) = network.effects_of("d", EntriesReceived)
    assert [network.names[nid] for nid in effect.bundle.path] == ["a", "b", "c"]


def test_bundle_with_own_nid_in_path_is_ignored():
    network = MemoryNetwork("abc")
    network.link("ab", "bc", "ca")
    looped = bundle(1, path=[network.nid("b"), network.nid("c")])
    assert network.put("a", "b", looped) == 0
    assert network.nodes["b"].counts["loops"] == 1
    assert network.received_posts("b") == []


def test_entries_reach_interested_nodes_through_uninterested_ones():
    network = MemoryNetwork("abc", feeds={"a": [FEED], "b": [OTHER], "c": [FEED]})
    network.link("ab", "bc")
    network.fetch("a", 1)
    assert network.received_posts("c") == [1]
    assert network.received_posts("b") == []  # forwarded only
    network.fetch("b", 7, feed=OTHER)
    assert (network.received_posts("a"), network.received_posts("c")) == ([], [1])


def test_notes_are_forwarded_with_entries():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    network.nodes["a"].record_document(
        FEED, [post(1)], network.now, {"post 1": Note(("good",), 1.0)}
    )
    network.apply_effects("a")
    (effect,) = network.effects_of("c", EntriesReceived)
    assert effect.bundle.notes["post 1"] == Note(("good",), 1.0)


def test_same_entries_have_the_same_did():
    assert (
        bundle(1, 2).did
        == did_of(FEED, [post(1), post(2)])
        == bundle(1, 2, path=["x:1"], at=NOON + 5).did
    )
    assert bundle(1, 2).did != bundle(1, 2, feed=OTHER).did
    assert bundle(post(1)).did != bundle(post(1, "altered")).did


def test_announced_bundle_is_awaited_until_promise_expires():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    b, did = network.nodes["b"], bundle(1).did
    assert not b.check_did(network.nid("a"), did, network.now)
    assert b.check_did(network.nid("c"), did, network.now)  # a has promised it
    network.advance(61)
    assert not b.check_did(network.nid("c"), did, network.now)  # the promise has expired
    assert not b.check_did(network.nid("a"), bundle(2).did, network.now)
    # Promises of a are not accepted now.
    assert not b.check_did(network.nid("c"), bundle(2).did, network.now)


# --- membership ----------------------------------------------------------------------------------


def test_usefulness_is_overlap_by_weight_and_hops():
    network = MemoryNetwork("a", feeds=["x", "y", "z"])
    interests = network.nodes["a"].interests
    interests.feeds["x"] = 3.0
    assert interests.usefulness({"x": 0, "y": 1, "w": 0}) == 3.0 + 0.5


def test_full_node_admits_only_more_useful_peers():
    settings = NodeSettings(min_peers=0, max_peers=2)
    feeds = {"a": ["x", "y"], "b": ["x"], "c": ["x"], "d": ["x"], "e": ["x", "y"]}
    network = MemoryNetwork("abcde", feeds=feeds, settings=settings)
    network.link("ba", "ca")
    assert network.nodes["a"].connect(network.nid("d"), {"x": 0}, network.now) == {}
    assert network.nodes["a"].connect(network.nid("e"), {"x": 0, "y": 0}, network.now)
    assert len(network.nodes["a"].peers) == 2
    assert "e" in network.peers("a")


def test_unreachable_peer_is_replaced():
    network = MemoryNetwork("abcd", settings=NodeSettings(min_peers=2, max_peers=3))
    network.link("ab", "ac")
    network.nodes["a"].add_candidates([network.nid("d")], network.now)
    network.unreachable.add("b")
    network.fetch("a", 1)
    assert network.peers("a") == "c"
    network.advance(301)
    assert network.peers("a") == "cd"


def test_failed_call_is_ignored_if_peer_called_since():
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


def test_peers_are_found_through_list_server():
    network = MemoryNetwork("abcdl", settings=NodeSettings(min_peers=2, max_peers=3))
    network.nodes["l"].add_candidates([network.nid(name) for name in "bcd"], network.now)
    network.nodes["a"].membership.set_list_servers([network.nid("l")])
    network.advance(301)
    network.advance(301)
    assert len(network.peers("a")) >= 2


def test_earlier_peers_are_tried_first_and_keep_their_statistics():
    network = MemoryNetwork("abcdef", settings=NodeSettings(min_peers=1))
    stats = {"nid": network.nid("e"), "brought": 7.0, "given": 3.0, "entries": 9}
    past_stats = {network.nid("e"): stats}
    candidates = [network.nid(name) for name in "bcdef"]
    network.nodes["a"].add_candidates(candidates, network.now, past_stats)
    network.nodes["a"].tick(network.now)
    first = next(
        effect for effect in network.nodes["a"].take_effects() if effect.function == "connect"
    )
    assert first.to == network.nid("e")
    network.nodes["a"].on_connected(first.to, {FEED: 0}, network.now)
    assert network.nodes["a"].peers[first.to].contribution_received == 7.0


def test_declining_node_is_retried_after_delay():
    network = MemoryNetwork("ab", settings=NodeSettings(min_peers=1))
    a = network.nodes["a"]
    a.on_connected(network.nid("b"), {}, network.now)
    a.tick(network.now)
    assert a.take_effects() == []
    a.tick(network.now + RETRY_S + 301)
    assert [effect.function for effect in a.take_effects()] == ["connect"]


def test_suggestions_come_from_similar_peers():
    network = MemoryNetwork("abc", feeds={"a": ["x", "y"], "b": ["x", "y", "new"], "c": ["z"]})
    network.link("ab", "ac")
    assert [feed for feed, _ in network.nodes["a"].interests.suggestions()] == ["new"]


def test_decoys_are_advertised_like_own_feeds():
    network = MemoryNetwork("ab", feeds={"a": ["x"], "b": ["x", "theirs"]})
    network.link("ab")
    assert network.nodes["a"].choose_decoys(1) == ["theirs"]
    network.advance(301)
    assert network.nodes["b"].peers[network.nid("a")].hops == {"x": 0, "theirs": 0}
    network.fetch("b", 1, feed="theirs")
    assert network.received_posts("a") == []  # forwarded only


# --- contributions and free riding ---------------------------------------------------------------


def test_contributions_are_counted_on_both_sides_of_a_link():
    network = MemoryNetwork("ab")
    network.link("ab")
    network.fetch("a", 1, 2, 3)
    a, b = network.nodes["a"].peers[network.nid("b")], network.nodes["b"].peers[network.nid("a")]
    assert (a.contribution_sent, b.contribution_received) == (3.0, 3.0)
    assert (
        a.contribution_sent - a.contribution_received,
        b.contribution_sent - b.contribution_received,
    ) == (3.0, -3.0)


def test_forwarded_entry_counts_less_per_hop():
    network = MemoryNetwork("abc", feeds={"a": [FEED], "b": [OTHER], "c": [FEED]})
    network.link("ab", "bc")
    network.fetch("a", 1)
    contribution = network.nodes["b"].peers[network.nid("a")].contribution_received
    assert contribution == 0.5  # alpha 2, one hop


def test_deficit_limit_throttles_free_riders_only():
    network = MemoryNetwork("abc", settings=NodeSettings(deficit=50.0, min_peers=0))
    network.link("ab", "ac")
    network.unresponsive.add("b")
    for number in range(100):
        network.fetch("a", 2 * number)
        network.fetch("c", 2 * number + 1)
    puts = [call[:2] for call in network.calls if call[2] == "put_entries"]
    assert puts.count(("a", "b")) <= 11
    assert puts.count(("a", "c")) == 100


def test_free_riders_get_everything_without_deficit_limit():
    network = MemoryNetwork("ab", settings=NodeSettings(deficit=float("inf"), min_peers=0))
    network.link("ab")
    network.unresponsive.add("b")
    for number in range(100):
        network.fetch("a", number)
    assert network.calls.count(("a", "b", "put_entries")) == 100


def test_free_rider_is_replaced_first():
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
    # d is admitted although b advertises more.
    assert network.nodes["a"].connect(network.nid("d"), {FEED: 0}, network.now)
    assert network.peers("a") == "cd"
    assert [
        effect.reason
        for effect in network.nodes["a"].take_effects()
        if isinstance(effect, PeerDropped)
    ] == ["the peer receives posts but sends none (free rider)"]


def test_unknown_caller_is_refused():
    network = MemoryNetwork("ab")
    with pytest.raises(CallRefused, match="connect first"):
        network.nodes["a"].check_did(network.nid("b"), b"x" * 20, network.now)


def test_forwarding_skips_nodes_on_the_path():
    network = MemoryNetwork("abcd")
    network.link("ab", "ac", "ad")
    a = network.nodes["a"]
    a.put_entries(network.nid("b"), bundle(1, path=[network.nid("c")]), network.now)
    (offer,) = [effect for effect in a.take_effects() if isinstance(effect, Offer)]
    assert [network.names[nid] for nid in offer.to] == ["d"]
