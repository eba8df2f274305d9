"""Exchange with worker processes: their polls are forwarded and confirm peers' entries."""

from tests.peers.peer_network import PeerNetwork, until
from tests.postgres import database


def test_worker_polls_reach_peers_and_confirm_their_entries(tmp_path):
    with database() as url, PeerNetwork(tmp_path) as network:
        for day in range(5):
            network.publish(at=1_700_000_000.0 + 86400 * day)
        worker_node, serving_node = *network.start(2, database=url), *network.start(3)
        for node in (worker_node, serving_node):
            until(lambda node=node: len(node.entries()) == 5, f"{node.number} has the first posts")
            until(node.peers, f"{node.number} has a peer")
        network.publish()
        worker_node.poll()
        until(
            lambda: serving_node.entries().get(6) == "neighbour",
            "the worker's post reaches the peer",
        )
        assert worker_node.entries()[6] == "poll"
        network.publish()
        serving_node.poll()
        until(
            lambda: worker_node.entries().get(7) == "neighbour",
            "the peer's post reaches the worker's node",
        )
        worker_node.poll()
        until(lambda: worker_node.entries()[7] == "confirmed", "the worker's poll confirms it")
        assert worker_node.rows("SELECT count(*) FROM poll_notices") == [(0,)]
