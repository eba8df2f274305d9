"""Where workers poll and another process has the neighbours: what the workers find goes out, and judges what came in."""

from tests.peers.town import Town, until
from tests.postgres import database


def test_what_a_worker_has_fetched_neighbours_have_and_it_confirms_what_they_told(tmp_path):
    with database() as url, Town(tmp_path) as town:
        for day in range(5):
            town.publish(at=1_700_000_000.0 + 86400 * day)
        bureau, home = *town.start(2, database=url), *town.start(3)
        for node in (bureau, home):
            until(lambda node=node: len(node.entries()) == 5, f"{node.number} has the first posts")
            until(node.neighbours, f"{node.number} has a neighbour")
        town.publish()
        bureau.look()
        until(lambda: home.entries().get(6) == "neighbour", "what the worker found is at the neighbour")
        assert bureau.entries()[6] == "poll"
        town.publish()
        home.look()
        until(lambda: bureau.entries().get(7) == "neighbour", "what the neighbour found is here")
        bureau.look()
        until(lambda: bureau.entries()[7] == "confirmed", "the worker's look has confirmed it")
        assert bureau.rows("SELECT count(*) FROM sights") == [(0,)]
