"""Tests of the simulator, compared with a simulation of one event at a time."""

import heapq

import numpy as np
import pytest

from tests.trace_helpers import MONDAY, poisson_trace, trace_of
from tidings.lab.compare import compare, paired_bootstrap
from tidings.lab.score import metrics, score_polls
from tidings.lab.segments import segment_searchsorted
from tidings.lab.simulate import Conditions, Publisher, budget_polls, simulate
from tidings.model import DAY_S, HOUR_S
from tidings.policy import Feeds, make_policy


def test_a_poll_shows_the_last_entries_and_what_is_new():
    trace = trace_of([10, 20, 30, 40], [15], window=2)
    publisher = Publisher(trace, trace.history(15).end)
    seen = publisher.poll(np.array([0, 1]), np.array([20.0, 14.0]))
    assert seen.count.tolist() == [2, 0]
    assert seen.new.tolist() == [1, 0]
    assert seen.gap.tolist() == [False, False]
    later = publisher.poll(np.array([0, 1]), np.array([45.0, 15.0]))
    assert later.new.tolist() == [2, 1]
    assert later.gap.tolist() == [
        True,
        False,
    ]  # nothing known in the document: 30 and 40 may not be all
    assert later.oldest()[0] == 30


def test_a_post_at_the_second_of_the_poll_is_seen():
    trace = trace_of([10.0, 20.4], window=5)
    publisher = Publisher(trace, trace.history(0).end)
    assert publisher.poll(np.array([0]), np.array([10.0])).new.tolist() == [1]
    assert publisher.poll(np.array([0]), np.array([20.0])).new.tolist() == [0]
    assert publisher.poll(np.array([0]), np.array([21.0])).new.tolist() == [1]


def event_by_event(trace, policy, budget, start):
    """Simulate one poll at a time from a heap, as the live scheduler does."""
    publisher = Publisher(trace, trace.history(start).end)
    policy.start(
        Feeds.of(trace.window, trace.weight),
        trace.history(start),
        trace.start,
        start,
        budget * trace.n_feeds,
    )
    first = policy.decide(np.arange(trace.n_feeds), np.full(trace.n_feeds, start), first=True).times
    heap = [(np.ceil(t), f) for f, t in enumerate(first)]
    heapq.heapify(heap)
    polls = []
    while heap and heap[0][0] <= trace.end:
        t, f = heapq.heappop(heap)
        polls.append((f, t))
        row, now = np.array([f]), np.array([t])
        policy.observe(row, now, publisher.poll(row, now))
        heapq.heappush(heap, (float(np.ceil(max(policy.decide(row, now).times[0], t + 1))), f))
    return sorted(polls)


@pytest.mark.parametrize(
    "name", ["uniform", "combined", "moving-average", "post-rate", "freshness-rate"]
)
def test_lock_step_equals_event_by_event(name):
    trace = poisson_trace(np.array([0.2, 1.0, 6.0, 25.0]), 24, seed=8)
    start = trace.training_end(14)
    polls = simulate(trace, make_policy(name), 3.0, start)
    assert sorted(zip(polls.feed.tolist(), polls.times.tolist(), strict=True)) == event_by_event(
        trace, make_policy(name), 3.0, start
    )


@pytest.mark.parametrize(("hours", "expected"), [(1, 1800), (24, 43200)])
def test_fixed_intervals_with_random_phase_wait_half_of_it(hours, expected):
    trace = poisson_trace(np.full(200, 3.0), 40, seed=3, window=1000)
    start = trace.training_end(10)
    polls = simulate(trace, make_policy(f"fixed:interval_h={hours}"), 1.0, start)
    assert metrics(score_polls(trace, polls, start))["mean_delay_s"] == pytest.approx(
        expected, rel=0.03
    )


def test_compare_brings_every_policy_to_the_budget():
    trace = poisson_trace(np.random.default_rng(0).lognormal(0, 1, 150), 40, seed=4)
    compared = compare(
        trace, ["uniform", "combined", "moving-average", "fixed-learned", "freshness-rate"], 2.0, 14
    )
    wanted = budget_polls(trace, 2.0, trace.training_end(14))
    by_name = {result.policy: result for result in compared.results}
    for name in ("uniform", "combined", "moving-average", "fixed-learned", "freshness-rate"):
        assert len(by_name[name].polls) == pytest.approx(wanted, rel=0.005)
    assert by_name["moving-average@native"].scale == 1
    assert "uniform@native" not in by_name
    assert compared.limit_charged_s <= min(r.figures()["charged_delay_s"] for r in compared.results)


def test_homogeneous_control_nothing_beats_the_root_rule():
    """Square-root allocation is optimal here; a better policy would show a leak of data."""
    rates = np.random.default_rng(1).lognormal(0.5, 1.2, 400)
    trace = poisson_trace(rates, 90, seed=6, window=10_000)
    names = [
        "min-delay",
        "combined",
        "scheduling",
        "cgm-age",
        "min-missing",
        "moving-average",
        "post-rate",
        "fixed-learned",
    ]
    compared = compare(trace, names, 2.0, 28, native=False)
    by_name = {r.policy: r for r in compared.results}
    for name in names[1:]:
        assert (
            paired_bootstrap(by_name[name].scores, by_name["min-delay"].scores, "delay", 2000).ratio
            > 0.985
        ), name
    theory = np.sqrt(rates).sum() ** 2 / (2 * 2.0 * len(rates) * rates.sum()) * DAY_S
    assert by_name["min-delay"].figures()["mean_delay_s"] == pytest.approx(theory, rel=0.05)


def test_bootstrap_interval_covers_a_known_ratio():
    trace = poisson_trace(np.full(300, 4.0), 40, seed=7, window=1000)
    start = trace.training_end(10)
    once = score_polls(trace, simulate(trace, make_policy("uniform"), 1.0, start), start)
    twice = score_polls(trace, simulate(trace, make_policy("uniform"), 2.0, start), start)
    ratio = paired_bootstrap(twice, once, "delay", 2000)
    assert ratio.low < 0.5 < ratio.high
    assert ratio.high - ratio.low < 0.05


def test_search_equals_numpy_in_every_segment():
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 9, 50)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.concatenate([np.sort(rng.integers(0, 10, n)) for n in lengths]).astype(float)
    segment = rng.integers(0, 50, 500)
    wanted = rng.integers(-1, 11, 500).astype(float)
    for side in ("left", "right"):
        found = segment_searchsorted(values, offsets[segment], offsets[segment + 1], wanted, side)
        slow = [
            offsets[s] + np.searchsorted(values[offsets[s] : offsets[s + 1]], w, side)
            for s, w in zip(segment, wanted, strict=True)
        ]
        assert found.tolist() == slow


def test_nothing_to_poll_is_no_poll():
    trace = trace_of([0, 10], start=MONDAY)
    assert len(simulate(trace, make_policy("uniform"), 1.0, trace.start)) == 0


def test_known_since_is_passed_to_the_policy():
    """Posts before a feed's first document are unknown; they are not a time without posts."""
    hourly = MONDAY + np.arange(14 * 24) * HOUR_S
    recent = hourly[hourly >= MONDAY + 5 * DAY_S]
    trace = trace_of(*[hourly] * 10, *[recent] * 10)
    start = MONDAY + 7 * DAY_S
    since = np.repeat([MONDAY, recent[0]], 10)
    rates = []
    for known_since in (None, since):
        policy, conditions = make_policy("price"), Conditions(known_since=known_since)
        simulate(trace, policy, 6.0, start, start + 1.0, conditions=conditions)
        rates.append(policy.rate_model.rate_per_day(policy.state))
    assert rates[1] == pytest.approx(np.full(20, 24.0), rel=0.1)
    assert rates[0][10:].max() < 16.0
