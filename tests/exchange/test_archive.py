"""Archive queries: flooding, caching, timeouts, and trade with altruists and in rings."""

from tests.exchange.memory_network import FEED, NOON, MemoryNetwork
from tidings.exchange.archive import CACHE_TTL_S, HOP_TIMEOUT_S, Trade
from tidings.exchange.protocol import Query, Reply


def run_query(network, name, query):
    network.nodes[name].query_feed("", query, network.now)
    network.apply_effects(name)
    return [
        {network.names[holding.nid]: holding.entries for holding in effect.holdings}
        for effect in network.effects_of(name, Reply)
        if effect.query.id == query.id and not effect.to
    ]


def test_query_merges_holders_over_several_hops():
    network = MemoryNetwork("abcd")
    network.link("ab", "bc", "cd")
    network.archives.update(b=2, d=7)
    assert run_query(network, "a", Query("q1", FEED, hops=3)) == [{"b": 2, "d": 7}]


def test_query_stops_at_hop_limit():
    network = MemoryNetwork("abcd")
    network.link("ab", "bc", "cd")
    network.archives.update(b=2, d=7)
    assert run_query(network, "a", Query("q1", FEED, hops=2)) == [{"b": 2}]


def test_query_in_a_ring_is_not_repeated():
    network = MemoryNetwork("abcd")
    network.link("ab", "bc", "cd", "da")
    network.archives.update(c=1)
    assert run_query(network, "a", Query("q1", FEED, hops=5)) == [{"c": 1}]
    assert sum(call[2] == "query_feed" for call in network.calls) <= 8


def test_answers_are_cached_until_ttl():
    network = MemoryNetwork("abc")
    network.link("ab", "bc")
    network.archives.update(c=3)
    run_query(network, "a", Query("q1", FEED))
    network.calls.clear()
    assert run_query(network, "b", Query("q2", FEED)) == [{"c": 3}]
    assert not network.calls
    network.advance(CACHE_TTL_S + 1)
    run_query(network, "b", Query("q3", FEED))
    assert ("b", "c", "query_feed") in network.calls


def test_unresponsive_node_times_out():
    network = MemoryNetwork("abc")
    network.link("ab", "ac")
    network.archives.update(b=1, c=1)
    network.unresponsive.add("c")
    assert run_query(network, "a", Query("q1", FEED, hops=1)) == []
    network.advance(2 * HOP_TIMEOUT_S + 1)
    (reply,) = [effect for effect in network.effects_of("a", Reply) if not effect.to]
    assert [network.names[holding.nid] for holding in reply.holdings] == ["b"]


def test_query_without_peers_is_answered():
    assert run_query(MemoryNetwork("a"), "a", Query("q1", FEED)) == [{}]


# --- trade ---------------------------------------------------------------------------------------


def test_altruist_serves_all_requesters():
    assert Trade(altruist=True).may_serve("x", [], NOON)


def test_ring_of_two_is_served_one_batch_ahead():
    trade = Trade(altruist=False)
    assert not trade.may_serve("x", [], NOON)
    trade.add_wanted("x")
    assert trade.may_serve("x", [], NOON)
    assert not trade.may_serve("x", [], NOON)  # one batch ahead is the limit
    trade.record_batch("x", is_last=False)
    assert trade.may_serve("x", [], NOON)


def test_ring_of_three_is_served():
    """c wants entries from s, p from c, s from p."""
    s, c = Trade(altruist=False), Trade(altruist=False)
    s.add_wanted("p")
    c.add_wanted("s")
    assert not c.may_serve("p", [], NOON)  # c wants nothing from p
    assert c.recent_requesters(NOON) == ["p"]
    assert not s.may_serve("c", [], NOON)
    assert s.may_serve("c", c.recent_requesters(NOON), NOON)  # s finds the ring
    assert not s.may_serve("c", c.recent_requesters(NOON), NOON)  # until p has sent a batch
    s.record_batch("p", is_last=True)
    assert not s.may_serve("c", c.recent_requesters(NOON), NOON)  # s has got everything it wanted


def test_recent_requesters_expire():
    trade = Trade(altruist=False)
    trade.may_serve("x", [], NOON)
    assert trade.recent_requesters(NOON + CACHE_TTL_S + 1) == []
