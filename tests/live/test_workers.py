"""Workers survive killed processes, database restarts and network failures."""

import pytest

from tests.live.worker_cluster import WorkerCluster


@pytest.fixture(scope="module")
def worker_cluster():
    with WorkerCluster() as cluster:
        cluster.start_workers(2)
        yield cluster


@pytest.fixture
def complete(worker_cluster):
    """Check after the test that every entry is stored once and all workers are alive."""
    yield
    worker_cluster.wait_until_read()
    entries, different = worker_cluster.counts()
    assert (
        entries
        == different
        == len(worker_cluster.publishers.urls) * worker_cluster.publishers.revision
    )
    assert all(process.is_alive() for process in worker_cluster.workers)


def test_workers_poll_each_feed_once(worker_cluster, complete):
    worker_cluster.publish(until=1.0)
    worker_cluster.wait_until_read()
    assert set(worker_cluster.publishers.request_counts.values()) == {1}


def test_killed_worker_loses_nothing(worker_cluster, complete):
    worker_cluster.wait_for(worker_cluster.leader, "leader")
    (other,) = [
        process for process in worker_cluster.workers if process is not worker_cluster.leader()
    ]
    worker_cluster.publish(until=0.3)
    worker_cluster.kill(other)
    assert worker_cluster.stuck_feeds() == []
    worker_cluster.start_workers(1)


def test_killed_leader_is_replaced(worker_cluster, complete):
    worker_cluster.wait_for(worker_cluster.leader, "leader")
    leader = worker_cluster.leader()
    worker_cluster.publish(until=0.3)
    worker_cluster.kill(leader)
    worker_cluster.wait_for(worker_cluster.leader, "other leader")
    assert worker_cluster.stuck_feeds() == []
    worker_cluster.start_workers(1)


def test_workers_survive_postgresql_restart(worker_cluster, complete):
    worker_cluster.publish(until=0.3)
    worker_cluster.kill_postgres()
    assert worker_cluster.stuck_feeds() == []
    worker_cluster.wait_for(worker_cluster.leader, "leader")


@pytest.mark.parametrize("silent", [False, True])
def test_worker_reconnects_after_network_failure(worker_cluster, complete, silent):
    """If ``silent``, the connection is not closed and only timeouts end it."""
    (far,) = worker_cluster.start_workers(1, worker_cluster.database_proxy.url.format("postgres"))
    worker_cluster.publish(until=0.3)
    worker_cluster.database_proxy.cut(silent=silent)
    worker_cluster.wait_until_read()  # by the others
    assert worker_cluster.stuck_feeds() == []
    worker_cluster.database_proxy.reconnect()
    worker_cluster.wait_for(
        lambda: far.pid in worker_cluster.connected_workers(), "worker after the cut"
    )
    worker_cluster.publish(until=0.3)
