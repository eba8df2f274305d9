"""Trust in peers: confirmation, detection of forgeries, limits on attacks, keys, notices."""

import pytest

from tests.exchange.memory_network import (
    FEED,
    NOON,
    EntriesConfirmed,
    MemoryNetwork,
    PeerDropped,
    PeerPolled,
    Verify,
    bundle,
    post,
)
from tidings.exchange.membership import BAN_S
from tidings.exchange.node import CallRefused
from tidings.exchange.protocol import (
    MAX_ENTRIES,
    MAX_FEEDS,
    MAX_PATH,
    Call,
    EntriesReceived,
    NodeSettings,
    PeerNotice,
    bundle_of,
)
from tidings.exchange.trust import SETTLE_S

NO_REPLENISH = NodeSettings(min_peers=0)
OTHER = "http://other.example/feed"


def three_nodes():
    """Return a network in which b and m are peers of a; a and b have fetched the posts 1 to 3."""
    network = MemoryNetwork("abm")
    network.link("ab", "am")
    for name in "ab":
        network.nodes[name].record_document(FEED, [post(1), post(2), post(3)], network.now)
        network.nodes[name].take_effects()
    return network


# --- confirmation --------------------------------------------------------------------------------


def test_own_fetch_confirms_entry_and_records_lead_time():
    network = three_nodes()
    network.put("b", "a", bundle(4))
    network.advance(1800)
    network.fetch("a", 1, 2, 3, 4)
    (confirmed,) = network.effects_of("a", EntriesConfirmed)
    assert confirmed.identities == ("post 4",)
    b = network.nodes["a"].peers[network.nid("b")]
    assert (b.confirmed, b.lead_s) == (1, 1800.0)


def test_independent_peer_confirms_entry():
    network = three_nodes()
    network.put("b", "a", bundle(4))
    network.put("m", "a", bundle(4, 5))
    (confirmed,) = network.effects_of("a", EntriesConfirmed)
    assert confirmed.identities == ("post 4",)


def test_peers_with_a_common_source_do_not_confirm():
    network = three_nodes()
    network.put("b", "a", bundle(4, path=["10.9.9.9:1"]))
    network.put("m", "a", bundle(4, 5, path=["10.9.9.9:2"]))  # another port, the same address
    assert network.effects_of("a", EntriesConfirmed) == []


# --- forgery -------------------------------------------------------------------------------------


def test_forging_peer_is_banned_and_its_entries_withdrawn():
    network = three_nodes()
    network.put("m", "a", bundle(66))
    network.put("m", "a", bundle(67))
    network.put("b", "a", bundle(4))
    assert network.received_posts("a") == [4, 66, 67]
    network.advance(SETTLE_S + 1)
    network.fetch("a", 1, 2, 3, 4)
    assert network.received_posts("a") == [4]
    assert network.peers("a") == "b"
    assert [effect.reason for effect in network.effects_of("a", PeerDropped)] == [
        "the peer sent a forged post"
    ]
    assert network.nodes["a"].connect(network.nid("m"), {FEED: 0}, network.now) == {}
    # Nor from another port.
    assert network.nodes["a"].connect("10.0.0.3:9999", {FEED: 0}, network.now) == {}
    assert network.nodes["a"].connect(network.nid("m"), {FEED: 0}, network.now + BAN_S + 1)


def test_entry_pushed_out_of_document_is_not_refuted():
    network = three_nodes()
    network.put("b", "a", bundle(4))
    network.advance(SETTLE_S + 1)
    network.fetch("a", *range(100, 115))  # no earlier post is left
    assert network.received_posts("a") == [4]
    assert network.peers("a") == "bm"


def test_stale_cached_document_refutes_nothing():
    network = three_nodes()
    network.put("b", "a", bundle(4))
    network.advance(60)
    network.fetch("a", 1, 2, 3)
    assert network.received_posts("a") == [4]
    assert network.peers("a") == "bm"


def test_entries_with_old_dates_are_not_accepted():
    network = three_nodes()
    assert network.put("m", "a", bundle(post(66, at=NOON - 1e6))) == 0
    assert network.received_posts("a") == []


def test_dispute_leads_to_the_forging_peer():
    """m forges an entry, r forwards it without reading the feed, a reads the feed."""
    network = MemoryNetwork("amr", feeds={"a": [FEED], "r": [OTHER], "m": [FEED]})
    network.link("ar", "rm")
    network.fetch("a", 1, 2, 3)
    network.put("m", "r", bundle(66))
    assert network.received_posts("a") == [66]
    network.advance(SETTLE_S + 1)
    network.fetch("a", 1, 2, 3, 4)
    assert network.received_posts("a") == []
    assert network.peers("a") == "r"  # not dropped
    assert network.effects_of("r", Verify)
    network.fetch("r", 1, 2, 3, 4)
    assert network.peers("r") == "a"
    assert network.nodes["a"].peers[network.nid("r")].is_muted(FEED, network.now)
    assert not network.nodes["a"].peers[network.nid("r")].is_muted(OTHER, network.now)


def test_false_disputes_cost_one_poll_per_hour():
    network = MemoryNetwork("amr", feeds={"a": [FEED], "r": [OTHER], "m": [FEED]})
    network.link("ar", "rm")
    network.put("m", "r", bundle(3))
    for _ in range(20):
        network.nodes["r"].dispute(network.nid("a"), FEED, "post 3", post(3).published, network.now)
        network.apply_effects("r")
    assert len(network.effects_of("r", Verify)) == 1
    network.fetch("r", 1, 2, 3, 4)
    assert network.peers("r") == "am"


def test_relay_of_forgeries_is_muted_longer_each_time_and_then_dropped():
    network = three_nodes()
    document = [1, 2, 3]
    for forged in range(60, 70):
        network.put("m", "a", bundle(post(forged, at=network.now), path=["10.8.8.8:1"]))
        network.advance(2 * SETTLE_S)
        network.fetch("a", *document)
    assert network.received_posts("a") == []
    received = network.effects_of("a", EntriesReceived)
    assert len([e for e in received if e.sender == network.nid("m")]) <= 4  # of ten
    for feed in range(5):
        network.nodes["a"].interests.feeds[f"f{feed}"] = 1.0
        network.fetch("a", 1, feed=f"f{feed}")
        network.put(
            "m", "a", bundle(post(99, at=network.now), feed=f"f{feed}", path=["10.8.8.8:1"])
        )
        network.advance(2 * SETTLE_S)
        network.fetch("a", 1, feed=f"f{feed}")
    assert "m" not in network.peers("a")


def test_alterations_lead_to_ban_and_single_edits_do_not():
    network = three_nodes()
    for number in range(4, 40):
        sender = "m" if number < 9 else "b"
        text = "altered" if sender == "m" or number == 20 else ""
        network.put(sender, "a", bundle(post(number, text)))
    network.advance(SETTLE_S + 1)
    network.fetch("a", *range(1, 40))
    assert network.peers("a") == "b"


# --- limits --------------------------------------------------------------------------------------


def test_flooding_peer_is_rate_limited_and_others_are_not():
    network = three_nodes()
    results = [network.put("m", "a", bundle(1000 + i)) for i in range(500)]
    assert sum(result == 1 for result in results) <= 240
    assert "rate limit" in results[-1]
    assert network.put("b", "a", bundle(4)) == 1
    allowed = [_is_check_did_allowed(network, number) for number in range(4000)]
    assert 1000 < sum(allowed) < 3000


def _is_check_did_allowed(network, number):
    try:
        network.nodes["a"].check_did(network.nid("b"), b"%020d" % number, network.now)
    except CallRefused:
        return False
    return True


def test_oversized_bundles_and_subsets_are_refused():
    network = three_nodes()
    assert "entries" in network.put("m", "a", bundle(*range(1000, 1001 + MAX_ENTRIES)))
    assert "entries" in network.put("m", "a", bundle_of(FEED, [], NOON))
    huge = {f"http://{i}.example/": 0 for i in range(MAX_FEEDS + 1)}
    assert network.nodes["a"].connect("10.0.0.9:1", huge, network.now) == {}
    with pytest.raises(CallRefused, match="too large"):
        network.nodes["a"].update_subset(network.nid("m"), huge, network.now)


def test_bundle_with_wrong_did_is_refused():
    network = three_nodes()
    from msgspec.structs import replace

    assert "did" in network.put("m", "a", replace(bundle(66), did=bundle(4).did))
    # The real bundle can still be sent.
    assert not network.nodes["a"].check_did(network.nid("b"), bundle(4).did, network.now)


def test_replayed_bundle_earns_no_contribution():
    network = three_nodes()
    network.put("m", "a", bundle(4, 5))
    before = network.nodes["a"].peers[network.nid("m")].contribution_received
    assert network.put("m", "a", bundle(4, 5)) == 0
    assert network.put("m", "a", bundle(5, 4)) == 0  # another did
    assert network.nodes["a"].peers[network.nid("m")].contribution_received == before


@pytest.mark.parametrize(
    "path", [["1.1.1.1:1"] * 2, ["10.0.0.3:8035"], [f"1.1.1.{i}:1" for i in range(MAX_PATH + 1)]]
)
def test_invalid_path_is_refused(path):
    network = three_nodes()
    assert "path" in network.put("m", "a", bundle(66, path=path))


def test_peers_per_address_are_limited():
    network = MemoryNetwork("a", settings=NodeSettings(min_peers=0, max_per_address=2))
    accepted = [
        bool(network.nodes["a"].connect(f"10.6.6.6:{port}", {FEED: 0}, NOON))
        for port in range(1, 20)
    ]
    assert sum(accepted) == 2


def test_broken_promises_withhold_one_bundle_only():
    network = three_nodes()
    a = network.nodes["a"]
    for number in range(4, 14):
        a.check_did(network.nid("m"), bundle(number).did, network.now)
        if not a.check_did(network.nid("b"), bundle(number).did, network.now):
            network.put("b", "a", bundle(number))
        network.advance(61)
    assert network.received_posts("a") == list(range(5, 14))


# --- pinned keys ---------------------------------------------------------------------------------


def key_options(key=b"friend"):
    return {
        "sign": lambda message: key + message,
        "key": key,
        "verify": lambda k, message, signature: signature == k + message,
    }


def test_signature_with_pinned_key_is_trusted_over_any_path():
    network = MemoryNetwork(
        "abc", settings=NodeSettings(min_peers=0, friends=frozenset({b"friend"})), **key_options()
    )
    network.link("ab", "bc")
    network.fetch("a", 1)
    (effect,) = network.effects_of("c", EntriesReceived)
    assert effect.trusted_identities == {"post 1"}
    forged = bundle(2, key=b"friend", signatures={"post 2": b"invalid"})
    network.put("b", "c", forged)
    assert network.effects_of("c", EntriesReceived)[-1].trusted_identities == frozenset()


def test_friends_only_refuses_other_keys():
    network = MemoryNetwork(
        "a", settings=NodeSettings(friends=frozenset({b"friend"}), friends_only=True)
    )
    a = network.nodes["a"]
    assert a.connect("10.0.0.7:1", {FEED: 0}, NOON) == {}
    assert a.connect("10.0.0.7:1", {FEED: 0}, NOON, b"unknown") == {}
    assert a.connect("10.0.0.7:1", {FEED: 0}, NOON, b"friend")


# --- notices -------------------------------------------------------------------------------------


def test_notice_reaches_interested_peers_and_is_forwarded():
    network = MemoryNetwork("abcd", feeds={"a": [FEED], "b": [FEED], "c": [FEED], "d": [OTHER]})
    network.link("ab", "bc", "cd")
    for name in "bca":
        network.fetch(name, 1)
        network.advance(1)
    for name in "bc":
        network.nodes[name].record_unchanged(FEED, network.now)
    network.advance(600)
    network.log.clear()
    at = network.now
    network.nodes["a"].record_unchanged(FEED, at)
    network.advance(2)
    network.advance(2)
    assert [effect.notice for effect in network.effects_of("c", PeerPolled)] == [
        PeerNotice(FEED, at)
    ]
    assert not [
        e
        for e in network.effects_of("c", Call)
        if e.function == "put_looks" and e.to == network.nid("d")
    ]


def test_refuted_notice_ends_trust_in_notices():
    network = three_nodes()
    network.nodes["a"].record_unchanged(FEED, network.now)
    network.advance(3600)
    network.nodes["a"].put_looks(network.nid("m"), [PeerNotice(FEED, network.now)], network.now)
    network.apply_effects("a")
    assert len(network.effects_of("a", PeerPolled)) == 1
    late = post(4, at=network.now - 1800)  # published before the poll that m reported
    network.advance(600)
    network.fetch("a", 1, 2, 3, late)
    assert not network.nodes["a"].peers[network.nid("m")].are_notices_trusted
    network.advance(3600)
    network.nodes["a"].put_looks(network.nid("m"), [PeerNotice(FEED, network.now)], network.now)
    network.nodes["a"].put_looks(network.nid("b"), [PeerNotice(FEED, network.now)], network.now)
    network.apply_effects("a")
    assert [effect.sender for effect in network.effects_of("a", PeerPolled)] == [
        network.nid("m"),
        network.nid("b"),
    ]


def test_notices_are_ignored_without_recent_own_poll():
    network = three_nodes()
    network.advance(15 * 86400)
    network.nodes["a"].put_looks(network.nid("b"), [PeerNotice(FEED, network.now)], network.now)
    network.apply_effects("a")
    assert network.effects_of("a", PeerPolled) == []
