"""Old entries are found at others, by a query that spreads, and had from altruists or in rings."""

from tests.exchange.circle import FEED, NOON, Circle
from tidings.exchange.archive import KEEP_S, PATIENCE_S, Trade
from tidings.exchange.values import Query, Reply


def ask(circle, name, query):
    circle.nodes[name].query_feed("", query, circle.now)
    circle.follow(name)
    return [
        {circle.names[holding.nid]: holding.entries for holding in effect.holdings}
        for effect in circle.told(name, Reply)
        if effect.query.id == query.id and not effect.to
    ]


def test_holders_are_found_over_several_hops_and_answers_joined():
    circle = Circle("abcd")
    circle.link("ab", "bc", "cd")
    circle.archives.update(b=2, d=7)
    assert ask(circle, "a", Query("q1", FEED, hops=3)) == [{"b": 2, "d": 7}]


def test_the_hop_limit_holds():
    circle = Circle("abcd")
    circle.link("ab", "bc", "cd")
    circle.archives.update(b=2, d=7)
    assert ask(circle, "a", Query("q1", FEED, hops=2)) == [{"b": 2}]


def test_a_query_goes_round_a_ring_once():
    circle = Circle("abcd")
    circle.link("ab", "bc", "cd", "da")
    circle.archives.update(c=1)
    assert ask(circle, "a", Query("q1", FEED, hops=5)) == [{"c": 1}]
    assert sum(call[2] == "query_feed" for call in circle.calls) <= 8


def test_answers_are_kept_for_a_while():
    circle = Circle("abc")
    circle.link("ab", "bc")
    circle.archives.update(c=3)
    ask(circle, "a", Query("q1", FEED))
    circle.calls.clear()
    assert ask(circle, "b", Query("q2", FEED)) == [{"c": 3}]
    assert not circle.calls
    circle.wait(KEEP_S + 1)
    ask(circle, "b", Query("q3", FEED))
    assert ("b", "c", "query_feed") in circle.calls


def test_who_does_not_answer_is_not_waited_for():
    circle = Circle("abc")
    circle.link("ab", "ac")
    circle.archives.update(b=1, c=1)
    circle.deaf.add("c")
    assert ask(circle, "a", Query("q1", FEED, hops=1)) == []
    circle.wait(2 * PATIENCE_S + 1)
    (reply,) = [effect for effect in circle.told("a", Reply) if not effect.to]
    assert [circle.names[holding.nid] for holding in reply.holdings] == ["b"]


def test_alone_there_is_an_answer_too():
    assert ask(Circle("a"), "a", Query("q1", FEED)) == [{}]


# --- who gives to whom --------------------------------------------------------------------------------------------------


def test_an_altruist_gives_to_everybody():
    assert Trade(altruist=True).may_have("x", [], NOON)


def test_others_give_within_a_ring_of_two():
    trade = Trade(altruist=False)
    assert not trade.may_have("x", [], NOON)
    trade.want("x")
    assert trade.may_have("x", [], NOON)
    assert not trade.may_have("x", [], NOON)  # one helping ahead is enough
    trade.got("x", all=False)
    assert trade.may_have("x", [], NOON)


def test_a_ring_of_three():
    """c wants of s, p wants of c, s wants of p."""
    s, c = Trade(altruist=False), Trade(altruist=False)
    s.want("p")
    c.want("s")
    assert not c.may_have("p", [], NOON)  # c has nothing to gain of p itself
    assert c.seekers(NOON) == ["p"]
    assert not s.may_have("c", [], NOON)
    assert s.may_have("c", c.seekers(NOON), NOON)  # and so s finds the ring
    assert not s.may_have("c", c.seekers(NOON), NOON)  # until p has given
    s.got("p", all=True)
    assert not s.may_have("c", c.seekers(NOON), NOON)  # s wants nothing more


def test_seekers_are_forgotten():
    trade = Trade(altruist=False)
    trade.may_have("x", [], NOON)
    assert trade.seekers(NOON + KEEP_S + 1) == []
