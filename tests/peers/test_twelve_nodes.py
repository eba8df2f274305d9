"""Twelve nodes as processes that exchange over XML-RPC, so that few poll the feed server."""

import pytest

from tests.peers.peer_network import PeerNetwork, until


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Start nodes 2 to 12 that have polled five posts; the feed server blocks node 12."""
    with PeerNetwork(tmp_path_factory.mktemp("peer-network")) as network:
        for day in range(5):
            network.publish(at=1_700_000_000.0 + 86400 * day)
        network.publisher.blocked_readers.add(12)
        network.start(*range(2, 13))
        for node in network.nodes.values():
            until(lambda node=node: len(node.peers()) >= 3, f"{node.number} has peers")
            if node.number != 12:
                until(
                    lambda node=node: len(node.entries()) == 5, f"{node.number} has the first posts"
                )
        yield network


def test_one_fetch_reaches_all_nodes(network):
    before = list(network.publisher.requested_paths)
    network.publish()
    network.nodes[2].poll()
    for node in network.nodes.values():
        until(lambda node=node: 6 in node.entries(), f"post 6 is at {node.number}")
        assert node.entries()[6] == ("poll" if node.number == 2 else "neighbour")
    assert network.publisher.requested_paths == [*before, 2], network.nodes[2].log_text()


def test_entries_spread_despite_killed_and_blocked_nodes(network):
    network.nodes.pop(3).kill()
    network.publish()
    network.nodes[4].poll()
    for node in network.nodes.values():
        until(lambda node=node: 7 in node.entries(), f"post 7 is at {node.number}")
    assert network.nodes[12].entries().keys() >= {6, 7}
    until(lambda: network.nodes[4].run("peers", "--json")["peers"], "the command lists peers")


def test_own_fetch_confirms_entries(network):
    network.nodes[5].poll()
    until(lambda: network.nodes[5].entries()[7] == "confirmed", "post 7 is confirmed")
    assert set(network.nodes[5].entries().values()) == {"poll", "confirmed"}


def test_late_node_recovers_entries_no_longer_in_the_feed(network):
    (late,) = network.start(13)
    until(
        lambda: late.entries().keys() == {3, 4, 5, 6, 7}, "the late node has the posts of the feed"
    )
    until(lambda: len(late.peers()) >= 3, "the late node has peers")
    assert late.run("recover", network.publisher.url, "--since", "2020-01-01", "--json")["new"] == 2
    assert late.entries() == dict.fromkeys((3, 4, 5, 6, 7), "poll") | {
        1: "neighbour",
        2: "neighbour",
    }
    assert late.run("recover", network.publisher.url, "--json")["new"] == 0
