"""Neighbours are not trusted with the truth: what is forged is found and withdrawn, and each attack has its bound."""

import pytest

from tests.exchange.circle import FEED, NOON, Circle, Confirmed, Dropped, Looked, Verify, bundle, post
from tidings.exchange.membership import BANNED_S
from tidings.exchange.node import Refused
from tidings.exchange.trust import SETTLE_S
from tidings.exchange.values import MOST_ENTRIES, MOST_FEEDS, MOST_PATH, Arrived, Call, Look, Rules, bundle_of

CLOSED = Rules(min_neighbours=0)
OTHER = "http://other.example/feed"


def three():
    """a reads, b and m are its neighbours; a has seen the posts 1 to 3."""
    circle = Circle("abm")
    circle.link("ab", "am")
    for name in "ab":
        circle.nodes[name].fetched(FEED, [post(1), post(2), post(3)], circle.now)
        circle.nodes[name].take()
    return circle


# --- confirmation -------------------------------------------------------------------------------------------------------


def test_an_own_fetch_confirms_and_tells_how_much_earlier_it_came():
    circle = three()
    circle.put("b", "a", bundle(4))
    circle.wait(1800)
    circle.fetch("a", 1, 2, 3, 4)
    (confirmed,) = circle.told("a", Confirmed)
    assert confirmed.identities == ("post 4",)
    b = circle.nodes["a"].neighbours[circle.nid("b")]
    assert (b.confirmed, b.earlier_s) == (1, 1800.0)


def test_an_independent_neighbour_confirms():
    circle = three()
    circle.put("b", "a", bundle(4))
    circle.put("m", "a", bundle(4, 5))
    (confirmed,) = circle.told("a", Confirmed)
    assert confirmed.identities == ("post 4",)


def test_two_who_have_it_from_one_source_confirm_nothing():
    circle = three()
    circle.put("b", "a", bundle(4, path=["10.9.9.9:1"]))
    circle.put("m", "a", bundle(4, 5, path=["10.9.9.9:2"]))  # another port, the same address
    assert circle.told("a", Confirmed) == []


# --- forgery ------------------------------------------------------------------------------------------------------------


def test_a_forger_is_dropped_and_remembered_and_what_it_alone_said_is_withdrawn():
    circle = three()
    circle.put("m", "a", bundle(66))
    circle.put("m", "a", bundle(67))
    circle.put("b", "a", bundle(4))
    assert circle.has("a") == [4, 66, 67]
    circle.wait(SETTLE_S + 1)
    circle.fetch("a", 1, 2, 3, 4)
    assert circle.has("a") == [4]
    assert circle.neighbours("a") == "b"
    assert [effect.why for effect in circle.told("a", Dropped)] == ["it forged an entry"]
    assert circle.nodes["a"].connect(circle.nid("m"), {FEED: 0}, circle.now) == {}
    assert circle.nodes["a"].connect("10.0.0.3:9999", {FEED: 0}, circle.now) == {}  # nor from another port
    assert circle.nodes["a"].connect(circle.nid("m"), {FEED: 0}, circle.now + BANNED_S + 1)


def test_what_was_pushed_out_of_the_window_is_no_forgery():
    circle = three()
    circle.put("b", "a", bundle(4))
    circle.wait(SETTLE_S + 1)
    circle.fetch("a", *range(100, 115))  # nothing of before is left
    assert circle.has("a") == [4]
    assert circle.neighbours("a") == "bm"


def test_a_cache_that_still_shows_the_old_document_accuses_nobody():
    circle = three()
    circle.put("b", "a", bundle(4))
    circle.wait(60)
    circle.fetch("a", 1, 2, 3)
    assert circle.has("a") == [4]
    assert circle.neighbours("a") == "bm"


def test_forgeries_with_old_dates_are_no_news():
    circle = three()
    assert circle.put("m", "a", bundle(post(66, at=NOON - 1e6))) == 0
    assert circle.has("a") == []


def test_who_passed_on_a_forgery_is_told_and_finds_the_forger():
    """m forges, r relays in good faith a feed that it does not read, a reads it and finds out."""
    circle = Circle("amr", feeds={"a": [FEED], "r": [OTHER], "m": [FEED]})
    circle.link("ar", "rm")
    circle.fetch("a", 1, 2, 3)
    circle.put("m", "r", bundle(66))
    assert circle.has("a") == [66]
    circle.wait(SETTLE_S + 1)
    circle.fetch("a", 1, 2, 3, 4)
    assert circle.has("a") == []
    assert circle.neighbours("a") == "r"  # not dropped for it
    assert circle.told("r", Verify)
    circle.fetch("r", 1, 2, 3, 4)
    assert circle.neighbours("r") == "a"
    assert circle.nodes["a"].neighbours[circle.nid("r")].is_muted(FEED, circle.now)
    assert not circle.nodes["a"].neighbours[circle.nid("r")].is_muted(OTHER, circle.now)


def test_a_false_accusation_costs_one_look_an_hour_and_harms_nobody():
    circle = Circle("amr", feeds={"a": [FEED], "r": [OTHER], "m": [FEED]})
    circle.link("ar", "rm")
    circle.put("m", "r", bundle(3))
    for _ in range(20):
        circle.nodes["r"].dispute(circle.nid("a"), FEED, "post 3", post(3).published, circle.now)
        circle.follow("r")
    assert len(circle.told("r", Verify)) == 1
    circle.fetch("r", 1, 2, 3, 4)
    assert circle.neighbours("r") == "am"


def test_who_claims_to_relay_is_muted_longer_each_time_and_dropped_when_much_is_false():
    circle = three()
    document = [1, 2, 3]
    for forged in range(60, 70):
        circle.put("m", "a", bundle(post(forged, at=circle.now), path=["10.8.8.8:1"]))
        circle.wait(2 * SETTLE_S)
        circle.fetch("a", *document)
    assert circle.has("a") == []
    assert len([e for e in circle.told("a", Arrived) if e.sender == circle.nid("m")]) <= 4  # of ten
    for feed in range(5):
        circle.nodes["a"].interests.feeds[f"f{feed}"] = 1.0
        circle.fetch("a", 1, feed=f"f{feed}")
        circle.put("m", "a", bundle(post(99, at=circle.now), feed=f"f{feed}", path=["10.8.8.8:1"]))
        circle.wait(2 * SETTLE_S)
        circle.fetch("a", 1, feed=f"f{feed}")
    assert "m" not in circle.neighbours("a")


def test_alterations_are_found_and_edits_forgiven():
    circle = three()
    for number in range(4, 40):
        liar = number < 9
        circle.put("m" if liar else "b", "a", bundle(post(number, "evil" if liar or number == 20 else "")))
    circle.wait(SETTLE_S + 1)
    circle.fetch("a", *range(1, 40))
    assert circle.neighbours("a") == "b"


# --- bounds -------------------------------------------------------------------------------------------------------------


def test_a_flood_is_cut_off_and_others_are_heard():
    circle = three()
    answers = [circle.put("m", "a", bundle(1000 + i)) for i in range(500)]
    assert sum(answer == 1 for answer in answers) <= 240
    assert "too often" in answers[-1]
    assert circle.put("b", "a", bundle(4)) == 1
    checks = [_checks(circle, number) for number in range(4000)]
    assert 1000 < sum(checks) < 3000


def _checks(circle, number):
    try:
        circle.nodes["a"].check_did(circle.nid("b"), b"%020d" % number, circle.now)
    except Refused:
        return False
    return True


def test_oversize_is_refused():
    circle = three()
    assert "entries" in circle.put("m", "a", bundle(*range(1000, 1001 + MOST_ENTRIES)))
    assert "entries" in circle.put("m", "a", bundle_of(FEED, [], NOON))
    huge = {f"http://{i}.example/": 0 for i in range(MOST_FEEDS + 1)}
    assert circle.nodes["a"].connect("10.0.0.9:1", huge, circle.now) == {}
    with pytest.raises(Refused, match="too large"):
        circle.nodes["a"].update_subset(circle.nid("m"), huge, circle.now)


def test_a_bundle_under_anothers_did_is_refused():
    circle = three()
    from msgspec.structs import replace

    assert "did" in circle.put("m", "a", replace(bundle(66), did=bundle(4).did))
    assert not circle.nodes["a"].check_did(circle.nid("b"), bundle(4).did, circle.now)  # the true one may still come


def test_replay_brings_nothing_and_earns_nothing():
    circle = three()
    circle.put("m", "a", bundle(4, 5))
    before = circle.nodes["a"].neighbours[circle.nid("m")].brought
    assert circle.put("m", "a", bundle(4, 5)) == 0
    assert circle.put("m", "a", bundle(5, 4)) == 0  # another did
    assert circle.nodes["a"].neighbours[circle.nid("m")].brought == before


@pytest.mark.parametrize("path", [["1.1.1.1:1"] * 2, ["10.0.0.3:8035"], [f"1.1.1.{i}:1" for i in range(MOST_PATH + 1)]])
def test_a_bad_path_is_refused(path):
    circle = three()
    assert "path" in circle.put("m", "a", bundle(66, path=path))


def test_one_address_gets_few_places():
    circle = Circle("a", rules=Rules(min_neighbours=0, per_address=2))
    accepted = [bool(circle.nodes["a"].connect(f"10.6.6.6:{port}", {FEED: 0}, NOON)) for port in range(1, 20)]
    assert sum(accepted) == 2


def test_who_announces_and_withholds_keeps_back_one_bundle():
    circle = three()
    a = circle.nodes["a"]
    for number in range(4, 14):
        a.check_did(circle.nid("m"), bundle(number).did, circle.now)
        if not a.check_did(circle.nid("b"), bundle(number).did, circle.now):
            circle.put("b", "a", bundle(number))
        circle.wait(61)
    assert circle.has("a") == list(range(5, 14))


# --- friends ------------------------------------------------------------------------------------------------------------


def keyed(key=b"friend", wrong=False):
    return {"sign": lambda text: key + text, "key": key, "verify": lambda k, text, signature: signature == k + text}


def test_what_a_friend_has_signed_is_believed_at_once_and_by_whomever_it_came():
    circle = Circle("abc", rules=Rules(min_neighbours=0, friends=frozenset({b"friend"})), **keyed())
    circle.link("ab", "bc")
    circle.fetch("a", 1)
    (arrived,) = circle.told("c", Arrived)
    assert arrived.believed == {"post 1"}
    forged = bundle(2, key=b"friend", signatures={"post 2": b"nonsense"})
    circle.put("b", "c", forged)
    assert circle.told("c", Arrived)[-1].believed == frozenset()


def test_friends_only():
    circle = Circle("a", rules=Rules(friends=frozenset({b"friend"}), friends_only=True))
    a = circle.nodes["a"]
    assert a.connect("10.0.0.7:1", {FEED: 0}, NOON) == {}
    assert a.connect("10.0.0.7:1", {FEED: 0}, NOON, b"stranger") == {}
    assert a.connect("10.0.0.7:1", {FEED: 0}, NOON, b"friend")


# --- notices ------------------------------------------------------------------------------------------------------------


def test_a_look_is_told_to_those_who_read_the_feed_and_passed_on_by_them():
    circle = Circle("abcd", feeds={"a": [FEED], "b": [FEED], "c": [FEED], "d": [OTHER]})
    circle.link("ab", "bc", "cd")
    for name in "bca":
        circle.fetch(name, 1)
        circle.wait(1)
    for name in "bc":
        circle.nodes[name].unchanged(FEED, circle.now)
    circle.wait(600)
    circle.log.clear()
    at = circle.now
    circle.nodes["a"].unchanged(FEED, at)
    circle.wait(2)
    circle.wait(2)
    assert [effect.look for effect in circle.told("c", Looked)] == [Look(FEED, at)]
    assert not [e for e in circle.told("c", Call) if e.function == "put_looks" and e.to == circle.nid("d")]


def test_who_says_that_it_looked_and_did_not_is_not_believed():
    circle = three()
    circle.nodes["a"].unchanged(FEED, circle.now)
    circle.wait(3600)
    circle.nodes["a"].put_looks(circle.nid("m"), [Look(FEED, circle.now)], circle.now)
    circle.follow("a")
    assert len(circle.told("a", Looked)) == 1
    late = post(4, at=circle.now - 1800)  # was there when m says that it looked
    circle.wait(600)
    circle.fetch("a", 1, 2, 3, late)
    assert not circle.nodes["a"].neighbours[circle.nid("m")].notices_believed
    circle.wait(3600)
    circle.nodes["a"].put_looks(circle.nid("m"), [Look(FEED, circle.now)], circle.now)
    circle.nodes["a"].put_looks(circle.nid("b"), [Look(FEED, circle.now)], circle.now)
    circle.follow("a")
    assert [effect.sender for effect in circle.told("a", Looked)] == [circle.nid("m"), circle.nid("b")]


def test_no_notice_replaces_own_looks_for_ever():
    circle = three()
    circle.wait(15 * 86400)
    circle.nodes["a"].put_looks(circle.nid("b"), [Look(FEED, circle.now)], circle.now)
    circle.follow("a")
    assert circle.told("a", Looked) == []
