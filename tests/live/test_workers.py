"""Whatever dies while workers poll: no entry is lost or doubled, no feed is forgotten, and nobody has to help."""

import pytest

from tests.live.newsroom import Newsroom


@pytest.fixture(scope="module")
def newsroom():
    with Newsroom() as here:
        here.hire(2)
        yield here


@pytest.fixture
def complete(newsroom):
    """Afterwards everything has been read, once, by workers that live."""
    yield
    newsroom.wait_until_read()
    entries, different = newsroom.counts()
    assert entries == different == len(newsroom.press.urls) * newsroom.press.edition
    assert all(process.is_alive() for process in newsroom.workers)


def test_all_is_well(newsroom, complete):
    newsroom.publish(until=1.0)
    newsroom.wait_until_read()
    assert set(newsroom.press.asked.values()) == {1}


def test_a_worker_is_killed(newsroom, complete):
    newsroom.wait_for(newsroom.leader, "leader")
    (other,) = [process for process in newsroom.workers if process is not newsroom.leader()]
    newsroom.publish(until=0.3)
    newsroom.kill(other)
    assert newsroom.forgotten() == []
    newsroom.hire(1)


def test_the_leader_is_killed(newsroom, complete):
    newsroom.wait_for(newsroom.leader, "leader")
    leader = newsroom.leader()
    newsroom.publish(until=0.3)
    newsroom.kill(leader)
    newsroom.wait_for(newsroom.leader, "other leader")
    assert newsroom.forgotten() == []
    newsroom.hire(1)


def test_postgresql_is_killed_and_comes_back(newsroom, complete):
    newsroom.publish(until=0.3)
    newsroom.kill_postgres()
    assert newsroom.forgotten() == []
    newsroom.wait_for(newsroom.leader, "leader")


@pytest.mark.parametrize("silent", [False, True])
def test_the_line_between_a_worker_and_the_database_is_cut(newsroom, complete, silent):
    """Silently: nothing says so, and only patience ends it."""
    (far,) = newsroom.hire(1, newsroom.line.url.format("postgres"))
    newsroom.publish(until=0.3)
    newsroom.line.cut(silent=silent)
    newsroom.wait_until_read()  # by the others
    assert newsroom.forgotten() == []
    newsroom.line.mend()
    newsroom.wait_for(lambda: far.pid in newsroom.at_work(), "worker after the cut")
    newsroom.publish(until=0.3)
