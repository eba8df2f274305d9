"""The core, FeedEx sect. 3: interests spread, bundles find their way once, neighbours are chosen, givers are given."""

import pytest

from tests.exchange.circle import FEED, NOON, Circle, bundle, post
from tidings.exchange.membership import AWAY_S
from tidings.exchange.node import Refused
from tidings.exchange.values import Arrived, Dropped, Note, Offer, Rules, did_of

OTHER = "http://other.example/feed"


# --- subscription sets --------------------------------------------------------------------------------------------------


def test_interests_travel_with_hop_counts_and_do_not_come_back():
    circle = Circle("abc", feeds={"a": [FEED], "b": [OTHER], "c": []})
    circle.nodes["c"].read({"http://third.example/": 1.0})
    circle.link("ab", "bc")
    a, b, c = (circle.nodes[name] for name in "abc")
    assert c.neighbours[b.nid].hops == {OTHER: 0, FEED: 1}
    assert a.neighbours[b.nid].hops == {OTHER: 0, "http://third.example/": 1}
    assert b.neighbours[a.nid].hops == {FEED: 0}  # not what a knows of b or c


def test_interest_ends_after_three_hops():
    circle = Circle("abcdef", feeds={name: [FEED if name == "a" else f"http://{name}.example/"] for name in "abcdef"})
    circle.link("ab", "bc", "cd", "de", "ef")
    hops = [circle.nodes[name].interests.hops(FEED) for name in "abcdef"]
    assert hops == [0, 1, 2, 3, None, None]


def test_advertisements_tell_differences_only_and_take_back_what_is_gone():
    circle = Circle("abc", feeds={"a": [FEED], "b": [OTHER], "c": ["http://third.example/"]})
    circle.link("ab", "bc")
    circle.log.clear()
    circle.wait(301)
    assert all(effect.argument == {} for _, effect in circle.log)  # nothing has changed; some say that they are still there
    circle.nodes["a"].read({"http://new.example/": 1.0})
    circle.wait(301)
    circle.wait(301)
    assert circle.nodes["c"].neighbours[circle.nid("b")].hops == {OTHER: 0, "http://new.example/": 1}


# --- dissemination ------------------------------------------------------------------------------------------------------


def test_what_one_fetches_all_get_once():
    circle = Circle("abcde")
    circle.link("ab", "bc", "cd", "de", "ea", "ac")
    circle.fetch("a", 1, 2)
    assert all(circle.has(name) == [1, 2] for name in "bcde")
    puts = [call for call in circle.calls if call[2] == "put_entries"]
    assert len(puts) == 4  # each other node exactly once
    assert all(circle.fetch(name, 1, 2) == [] for name in "bcde")


def test_known_entries_are_left_out_before_passing_on():
    circle = Circle("abc")
    circle.link("ab", "bc")
    circle.nodes["b"].fetched(FEED, [post(1)], circle.now)
    circle.nodes["b"].take()  # nobody hears of it
    circle.fetch("a", 1, 2)
    assert circle.has("b") == [2]
    assert circle.has("c") == [2]


def test_the_path_is_written_by_receivers():
    circle = Circle("abcd")
    circle.link("ab", "bc", "cd")
    circle.fetch("a", 1)
    (arrived,) = circle.told("d", Arrived)
    assert [circle.names[nid] for nid in arrived.bundle.path] == ["a", "b", "c"]


def test_a_bundle_that_was_here_is_not_taken_again():
    circle = Circle("abc")
    circle.link("ab", "bc", "ca")
    circling = bundle(1, path=[circle.nid("b"), circle.nid("c")])
    assert circle.put("a", "b", circling) == 0
    assert circle.nodes["b"].counts["loops"] == 1
    assert circle.has("b") == []


def test_entries_go_to_those_who_want_the_feed_and_through_those_near_them():
    circle = Circle("abc", feeds={"a": [FEED], "b": [OTHER], "c": [FEED]})
    circle.link("ab", "bc")
    circle.fetch("a", 1)
    assert circle.has("c") == [1]
    assert circle.has("b") == []  # passed on, not read
    circle.fetch("b", 7, feed=OTHER)
    assert (circle.has("a"), circle.has("c")) == ([], [1])


def test_tags_and_ratings_travel_with_entries():
    circle = Circle("abc")
    circle.link("ab", "bc")
    circle.nodes["a"].fetched(FEED, [post(1)], circle.now, {"post 1": Note(("good",), 1.0)})
    circle.follow("a")
    (arrived,) = circle.told("c", Arrived)
    assert arrived.bundle.notes["post 1"] == Note(("good",), 1.0)


def test_the_same_entries_found_by_two_have_one_did():
    assert bundle(1, 2).did == did_of(FEED, [post(1), post(2)]) == bundle(1, 2, path=["x:1"], at=NOON + 5).did
    assert bundle(1, 2).did != bundle(1, 2, feed=OTHER).did
    assert bundle(post(1)).did != bundle(post(1, "altered")).did


def test_whoever_is_announced_first_is_waited_for_and_not_for_ever():
    circle = Circle("abc")
    circle.link("ab", "bc")
    b, did = circle.nodes["b"], bundle(1).did
    assert not b.check_did(circle.nid("a"), did, circle.now)
    assert b.check_did(circle.nid("c"), did, circle.now)  # a is about to bring it
    circle.wait(61)
    assert not b.check_did(circle.nid("c"), did, circle.now)  # a has not
    assert not b.check_did(circle.nid("a"), bundle(2).did, circle.now)
    assert not b.check_did(circle.nid("c"), bundle(2).did, circle.now)  # and is not waited for again


# --- neighbours ---------------------------------------------------------------------------------------------------------


def test_usefulness_is_overlap_by_weight_and_distance():
    circle = Circle("a", feeds=["x", "y", "z"])
    interests = circle.nodes["a"].interests
    interests.feeds["x"] = 3.0
    assert interests.usefulness({"x": 0, "y": 1, "w": 0}) == 3.0 + 0.5


def test_a_full_node_declines_unless_the_newcomer_is_more_useful():
    rules = Rules(min_neighbours=0, max_neighbours=2)
    feeds = {"a": ["x", "y"], "b": ["x"], "c": ["x"], "d": ["x"], "e": ["x", "y"]}
    circle = Circle("abcde", feeds=feeds, rules=rules)
    circle.link("ba", "ca")
    assert circle.nodes["a"].connect(circle.nid("d"), {"x": 0}, circle.now) == {}
    assert circle.nodes["a"].connect(circle.nid("e"), {"x": 0, "y": 0}, circle.now)
    assert len(circle.nodes["a"].neighbours) == 2
    assert "e" in circle.neighbours("a")


def test_who_cannot_be_reached_is_replaced():
    circle = Circle("abcd", rules=Rules(min_neighbours=2, max_neighbours=3))
    circle.link("ab", "ac")
    circle.nodes["a"].meet([circle.nid("d")], circle.now)
    circle.unreachable.add("b")
    circle.fetch("a", 1)
    assert circle.neighbours("a") == "c"
    circle.wait(301)
    assert circle.neighbours("a") == "cd"


def test_a_call_to_who_has_come_back_meanwhile_counts_for_nothing():
    circle = Circle("ab")
    circle.link("ab")
    a, b = circle.nodes["a"], circle.nodes["b"]
    began = circle.now
    circle.now += 5
    a.connect(b.nid, {FEED: 0}, circle.now)
    a.failed(b.nid, circle.now + 1, began)
    a.refused(b.nid, circle.now + 1, began)
    assert circle.neighbours("a") == "b"
    a.refused(b.nid, circle.now + 1, circle.now)
    assert circle.neighbours("a") == ""


def test_neighbours_are_found_by_asking_a_list():
    circle = Circle("abcdl", rules=Rules(min_neighbours=2, max_neighbours=3))
    circle.nodes["l"].meet([circle.nid(name) for name in "bcd"], circle.now)
    circle.nodes["a"].members.ask_lists([circle.nid("l")])
    circle.wait(301)
    circle.wait(301)
    assert len(circle.neighbours("a")) >= 2


def test_old_neighbours_are_asked_first_and_remembered_as_they_were():
    circle = Circle("abcdef", rules=Rules(min_neighbours=1))
    past = {circle.nid("e"): {"nid": circle.nid("e"), "brought": 7.0, "given": 3.0, "entries": 9}}
    circle.nodes["a"].meet([circle.nid(name) for name in "bcdef"], circle.now, past)
    circle.nodes["a"].tick(circle.now)
    first = next(effect for effect in circle.nodes["a"].take() if effect.function == "connect")
    assert first.to == circle.nid("e")
    circle.nodes["a"].connected(first.to, {FEED: 0}, circle.now)
    assert circle.nodes["a"].neighbours[first.to].brought == 7.0


def test_one_who_declined_is_left_alone_for_a_while():
    circle = Circle("ab", rules=Rules(min_neighbours=1))
    a = circle.nodes["a"]
    a.connected(circle.nid("b"), {}, circle.now)
    a.tick(circle.now)
    assert a.take() == []
    a.tick(circle.now + AWAY_S + 301)
    assert [effect.function for effect in a.take()] == ["connect"]


def test_feeds_of_like_minded_neighbours_are_suggested():
    circle = Circle("abc", feeds={"a": ["x", "y"], "b": ["x", "y", "new"], "c": ["z"]})
    circle.link("ab", "ac")
    assert [feed for feed, _ in circle.nodes["a"].interests.suggestions()] == ["new"]


def test_decoys_are_advertised_as_if_they_were_read():
    circle = Circle("ab", feeds={"a": ["x"], "b": ["x", "theirs"]})
    circle.link("ab")
    assert circle.nodes["a"].take_decoys(1) == ["theirs"]
    circle.wait(301)
    assert circle.nodes["b"].neighbours[circle.nid("a")].hops == {"x": 0, "theirs": 0}
    circle.fetch("b", 1, feed="theirs")
    assert circle.has("a") == []  # passed on, but nobody here reads it


# --- giving and taking --------------------------------------------------------------------------------------------------


def test_contributions_are_counted_on_both_sides():
    circle = Circle("ab")
    circle.link("ab")
    circle.fetch("a", 1, 2, 3)
    a, b = circle.nodes["a"].neighbours[circle.nid("b")], circle.nodes["b"].neighbours[circle.nid("a")]
    assert (a.given, b.brought) == (3.0, 3.0)
    assert (a.given - a.brought, b.given - b.brought) == (3.0, -3.0)


def test_an_entry_for_others_counts_less():
    circle = Circle("abc", feeds={"a": [FEED], "b": [OTHER], "c": [FEED]})
    circle.link("ab", "bc")
    circle.fetch("a", 1)
    assert circle.nodes["b"].neighbours[circle.nid("a")].brought == 0.5  # alpha 2, one hop


def test_who_only_takes_gets_little_and_who_gives_gets_all():
    circle = Circle("abc", rules=Rules(deficit=50.0, min_neighbours=0))
    circle.link("ab", "ac")
    circle.deaf.add("b")
    for number in range(100):
        circle.fetch("a", 2 * number)
        circle.fetch("c", 2 * number + 1)
    puts = [call[:2] for call in circle.calls if call[2] == "put_entries"]
    assert puts.count(("a", "b")) <= 11
    assert puts.count(("a", "c")) == 100


def test_without_a_bound_free_riders_get_everything():
    circle = Circle("ab", rules=Rules(deficit=float("inf"), min_neighbours=0))
    circle.link("ab")
    circle.deaf.add("b")
    for number in range(100):
        circle.fetch("a", number)
    assert circle.calls.count(("a", "b", "put_entries")) == 100


def test_who_takes_and_does_not_give_makes_room_first_however_useful_it_says_it_is():
    circle = Circle("abcd", rules=Rules(min_neighbours=0, max_neighbours=2, deficit=20.0), feeds=["x", "y", FEED])
    circle.link("ab", "ac")
    circle.deaf.add("b")
    for number in range(10):
        circle.fetch("a", 2 * number)
        circle.fetch("c", 2 * number + 1)
    assert circle.nodes["a"].connect(circle.nid("d"), {FEED: 0}, circle.now)  # d has less to offer than b says
    assert circle.neighbours("a") == "cd"
    assert [effect.why for effect in circle.nodes["a"].take() if isinstance(effect, Dropped)] == ["it takes and does not give"]


def test_strangers_are_refused():
    circle = Circle("ab")
    with pytest.raises(Refused, match="connect first"):
        circle.nodes["a"].check_did(circle.nid("b"), b"x" * 20, circle.now)


def test_forwarding_skips_those_on_the_path():
    circle = Circle("abcd")
    circle.link("ab", "ac", "ad")
    a = circle.nodes["a"]
    a.put_entries(circle.nid("b"), bundle(1, path=[circle.nid("c")]), circle.now)
    (offer,) = [effect for effect in a.take() if isinstance(effect, Offer)]
    assert [circle.names[nid] for nid in offer.to] == ["d"]
