"""FeedEx's experiment, small: sharing beats polling alone, and neither liars nor free riders spoil it."""

import numpy as np
import pytest

from tidings.exchange.values import Rules
from tidings.lab.exchange import Setup, run
from tidings.lab.exchange_notices import Friends
from tidings.lab.exchange_notices import run as run_friends
from tidings.model import HOUR_S


def small(**options):
    return Setup(**{"nodes": 24, "interval_s": 4 * HOUR_S, "hours": 10.0, "feeds": 20, "subscriptions": 8, **options})


def bounded(deficit):
    return Rules(notices=False, calls_per_min=1e9, deficit=deficit)


def test_together_nodes_get_more_and_sooner_with_the_same_requests():
    alone, shared = run(small()).rows()
    assert shared["coverage"] > 0.9 > alone["coverage"]
    assert shared["mean_lag_s"] < alone["mean_lag_s"] / 3
    assert shared["origin_requests"] == alone["origin_requests"]
    assert 1.0 <= shared["bundle_size"] <= 6.0


def test_the_same_seed_gives_the_same_figures():
    assert run(small(seed=3)).rows() == run(small(seed=3)).rows()
    assert run(small(seed=3)).rows() != run(small(seed=4)).rows()


def test_nodes_that_reach_no_server_still_get_their_entries():
    outcome = run(small(cut_off=4))
    assert outcome.alone[:, 0].min() == 0.0
    assert outcome.shared[:, 0].min() > 0.75


def test_the_others_go_on_when_nodes_leave():
    assert float(np.mean(run(small(leave=6)).shared[:, 0])) > 0.9


def test_free_riders_fall_back_to_what_they_poll_themselves():
    free, bound = (run(small(free_riders=5, rules=bounded(deficit))) for deficit in (float("inf"), 40.0))
    alone = float(np.mean(bound.alone[:, 0]))
    assert free.riders_coverage > 0.9
    assert bound.riders_coverage < (alone + 0.9) / 2
    assert float(np.mean(bound.shared[:, 0])) > 0.9


def test_forgers_are_shunned_and_their_lies_withdrawn():
    outcome = run(small(forgers=2, interval_s=2 * HOUR_S))
    assert outcome.seen_forged > 0
    assert outcome.forged <= outcome.seen_forged / 10
    assert outcome.shunned > 0.8
    assert float(np.mean(outcome.shared[:, 0])) > 0.9


@pytest.mark.slow
def test_friends_with_the_same_feeds_ask_like_one():
    shared = run_friends(Friends(nodes=6, feeds=12, days=2.0))
    assert shared.ratio <= 1.2
    assert shared.lag_s.max() < shared.own_lag_s
    assert shared.coverage.min() > 0.98
