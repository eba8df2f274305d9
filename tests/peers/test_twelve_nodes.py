"""Twelve nodes as twelve processes, over XML-RPC, with a feed server that most of them need not ask."""

import pytest

from tests.peers.peer_network import PeerNetwork, until


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Eleven nodes that have read five posts; the server does not answer number 12, and number 13 is to come."""
    with PeerNetwork(tmp_path_factory.mktemp("town")) as here:
        for day in range(5):
            here.publish(at=1_700_000_000.0 + 86400 * day)
        here.publisher.blocked_readers.add(12)
        here.start(*range(2, 13))
        for node in here.nodes.values():
            until(lambda node=node: len(node.peers()) >= 3, f"{node.number} has neighbours")
            if node.number != 12:
                until(
                    lambda node=node: len(node.entries()) == 5, f"{node.number} has the first posts"
                )
        yield here


def test_what_one_has_fetched_all_have(network):
    before = list(network.publisher.requested_paths)
    network.publish()
    network.nodes[2].poll()
    for node in network.nodes.values():
        until(lambda node=node: 6 in node.entries(), f"post 6 is at {node.number}")
        assert node.entries()[6] == ("poll" if node.number == 2 else "neighbour")
    assert network.publisher.requested_paths == [*before, 2], network.nodes[2].log_text()


def test_one_is_killed_and_one_cannot_reach_the_server_and_all_others_have_the_news(network):
    network.nodes.pop(3).kill()
    network.publish()
    network.nodes[4].poll()
    for node in network.nodes.values():
        until(lambda node=node: 7 in node.entries(), f"post 7 is at {node.number}")
    assert network.nodes[12].entries().keys() >= {6, 7}
    until(lambda: network.nodes[4].run("peers", "--json")["peers"], "neighbours are told")


def test_an_own_fetch_confirms(network):
    network.nodes[5].poll()
    until(lambda: network.nodes[5].entries()[7] == "confirmed", "it is confirmed")
    assert set(network.nodes[5].entries().values()) == {"poll", "confirmed"}


def test_a_latecomer_recovers_what_the_feed_shows_no_more(network):
    (late,) = network.start(13)
    until(lambda: late.entries().keys() == {3, 4, 5, 6, 7}, "it has what the feed shows")
    until(lambda: len(late.peers()) >= 3, "it has neighbours")
    assert late.run("recover", network.publisher.url, "--since", "2020-01-01", "--json")["new"] == 2
    assert late.entries() == dict.fromkeys((3, 4, 5, 6, 7), "poll") | {
        1: "neighbour",
        2: "neighbour",
    }
    assert late.run("recover", network.publisher.url, "--json")["new"] == 0
