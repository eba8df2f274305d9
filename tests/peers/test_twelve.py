"""Twelve nodes as twelve processes, over XML-RPC, with a feed server that most of them need not ask."""

import pytest

from tests.peers.town import Town, until


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """Eleven nodes that have read five posts; the server does not answer number 12, and number 13 is to come."""
    with Town(tmp_path_factory.mktemp("town")) as here:
        for day in range(5):
            here.publish(at=1_700_000_000.0 + 86400 * day)
        here.publisher.refused.add(12)
        here.start(*range(2, 13))
        for node in here.nodes.values():
            until(lambda node=node: len(node.neighbours()) >= 3, f"{node.number} has neighbours")
            if node.number != 12:
                until(lambda node=node: len(node.entries()) == 5, f"{node.number} has the first posts")
        yield here


def test_what_one_has_fetched_all_have(town):
    before = list(town.publisher.asked)
    town.publish()
    town.nodes[2].look()
    for node in town.nodes.values():
        until(lambda node=node: 6 in node.entries(), f"post 6 is at {node.number}")
        assert node.entries()[6] == ("poll" if node.number == 2 else "neighbour")
    assert town.publisher.asked == [*before, 2], town.nodes[2].told()


def test_one_is_killed_and_one_cannot_reach_the_server_and_all_others_have_the_news(town):
    town.nodes.pop(3).kill()
    town.publish()
    town.nodes[4].look()
    for node in town.nodes.values():
        until(lambda node=node: 7 in node.entries(), f"post 7 is at {node.number}")
    assert town.nodes[12].entries().keys() >= {6, 7}
    until(lambda: town.nodes[4].run("peers", "--json")["peers"], "neighbours are told")


def test_an_own_fetch_confirms(town):
    town.nodes[5].look()
    until(lambda: town.nodes[5].entries()[7] == "confirmed", "it is confirmed")
    assert set(town.nodes[5].entries().values()) == {"poll", "confirmed"}


def test_a_latecomer_recovers_what_the_feed_shows_no_more(town):
    (late,) = town.start(13)
    until(lambda: late.entries().keys() == {3, 4, 5, 6, 7}, "it has what the feed shows")
    until(lambda: len(late.neighbours()) >= 3, "it has neighbours")
    assert late.run("recover", town.publisher.url, "--since", "2020-01-01", "--json")["new"] == 2
    assert late.entries() == dict.fromkeys((3, 4, 5, 6, 7), "poll") | {1: "neighbour", 2: "neighbour"}
    assert late.run("recover", town.publisher.url, "--json")["new"] == 0
