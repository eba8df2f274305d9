"""Where workers poll and another process has the neighbours: what the workers find goes out, and judges what came in."""

from tests.peers.peer_network import PeerNetwork, until
from tests.postgres import database


def test_what_a_worker_has_fetched_neighbours_have_and_it_confirms_what_they_told(tmp_path):
    with database() as url, PeerNetwork(tmp_path) as network:
        for day in range(5):
            network.publish(at=1_700_000_000.0 + 86400 * day)
        worker_node, serving_node = *network.start(2, database=url), *network.start(3)
        for node in (worker_node, serving_node):
            until(lambda node=node: len(node.entries()) == 5, f"{node.number} has the first posts")
            until(node.peers, f"{node.number} has a neighbour")
        network.publish()
        worker_node.poll()
        until(
            lambda: serving_node.entries().get(6) == "neighbour",
            "what the worker found is at the neighbour",
        )
        assert worker_node.entries()[6] == "poll"
        network.publish()
        serving_node.poll()
        until(
            lambda: worker_node.entries().get(7) == "neighbour", "what the neighbour found is here"
        )
        worker_node.poll()
        until(lambda: worker_node.entries()[7] == "confirmed", "the worker's look has confirmed it")
        assert worker_node.rows("SELECT count(*) FROM sights") == [(0,)]
