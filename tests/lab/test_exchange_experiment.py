"""Tests of a small version of FeedEx's experiment, also with forgers and free riders."""

import numpy as np
import pytest

from tidings.exchange.protocol import NodeSettings
from tidings.lab.exchange_experiment import Setup, run
from tidings.lab.exchange_notices import NoticesSetup
from tidings.lab.exchange_notices import run as run_notices
from tidings.model import HOUR_S


def small_setup(**options):
    return Setup(
        **{
            "nodes": 24,
            "interval_s": 4 * HOUR_S,
            "hours": 10.0,
            "feeds": 20,
            "subscriptions": 8,
            **options,
        }
    )


def rules_with_deficit(deficit):
    return NodeSettings(notices=False, calls_per_min=1e9, deficit=deficit)


def test_exchange_improves_coverage_and_lag():
    standalone, with_exchange = run(small_setup()).rows()
    assert with_exchange["coverage"] > 0.9 > standalone["coverage"]
    assert with_exchange["mean_lag_s"] < standalone["mean_lag_s"] / 3
    assert with_exchange["origin_requests"] == standalone["origin_requests"]
    assert 1.0 <= with_exchange["bundle_size"] <= 6.0


def test_the_same_seed_gives_the_same_figures():
    assert run(small_setup(seed=3)).rows() == run(small_setup(seed=3)).rows()
    assert run(small_setup(seed=3)).rows() != run(small_setup(seed=4)).rows()


def test_nodes_that_reach_no_server_still_get_their_entries():
    outcome = run(small_setup(cut_off=4))
    assert outcome.standalone[:, 0].min() == 0.0
    assert outcome.with_exchange[:, 0].min() > 0.75


def test_network_survives_leaving_nodes():
    assert float(np.mean(run(small_setup(leave=6)).with_exchange[:, 0])) > 0.9


def test_free_riders_get_only_their_own_polls():
    free, bound = (
        run(small_setup(free_riders=5, rules=rules_with_deficit(deficit)))
        for deficit in (float("inf"), 40.0)
    )
    standalone = float(np.mean(bound.standalone[:, 0]))
    assert free.free_rider_coverage > 0.9
    assert bound.free_rider_coverage < (standalone + 0.9) / 2
    assert float(np.mean(bound.with_exchange[:, 0])) > 0.9


def test_forgers_are_dropped_and_forged_entries_withdrawn():
    outcome = run(small_setup(forgers=2, interval_s=2 * HOUR_S))
    assert outcome.forged_seen > 0
    assert outcome.forged_left <= outcome.forged_seen / 10
    assert outcome.disconnected_share > 0.8
    assert float(np.mean(outcome.with_exchange[:, 0])) > 0.9


@pytest.mark.slow
def test_peers_with_same_feeds_poll_as_much_as_one_node():
    with_exchange = run_notices(NoticesSetup(nodes=6, feeds=12, days=2.0))
    assert with_exchange.ratio <= 1.2
    assert with_exchange.lag_s.max() < with_exchange.standalone_lag_s
    assert with_exchange.coverage.min() > 0.98
