"""Tests of scores, compared with a computation post by post and with counts by hand."""

import numpy as np
import pytest

from tests.trace_helpers import score_brute_force, trace_of
from tidings.errors import TraceError
from tidings.lab.score import HEADER_BYTES, metrics, polls_within, read_polls, score_polls
from tidings.lab.simulate import Conditions, Polls
from tidings.lab.traces import POST_BYTES


def polls_of(by_feed, n):
    feed = np.array([f for f, times in by_feed.items() for _ in times], dtype=np.int64)
    times = np.array([t for times in by_feed.values() for t in times], dtype=float)
    return Polls.build(feed, times, n)


@pytest.mark.parametrize("seed", range(30))
def test_equals_a_computation_post_by_post(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    feeds = [np.sort(rng.integers(0, 300, rng.integers(0, 30))) for _ in range(n)]
    if not any(len(f) for f in feeds):
        feeds[0] = np.array([3])
    trace = trace_of(*feeds, window=rng.integers(1, 8, n))
    by_feed = {
        f: rng.choice([rng.integers(0, 300), rng.uniform(0, 300)], rng.integers(0, 9)).tolist()
        for f in range(n)
    }
    by_feed = {
        f: [t for t in times if trace.start <= t <= trace.end] for f, times in by_feed.items()
    }
    start = trace.start + (50 if seed % 2 and trace.end - trace.start > 60 else 0)
    expected = score_brute_force(trace, by_feed, start=start)
    scores = score_polls(trace, polls_of(by_feed, n), start)
    assert scores.feed.tolist() == [f for f, _, _ in expected]
    assert [None if m else d for m, d in zip(scores.missed, scores.delay_s, strict=True)] == [
        d for _, d, _ in expected
    ]
    assert scores.charged_s.tolist() == [c for _, _, c in expected]


def test_worked_example():
    # Window 2: of the posts at 0, 10, 20 the first is pushed out at 20, before the poll at 25. That
    # at 30 waits for the end.
    trace = trace_of([0, 10, 20, 30], [40], window=2)
    figures = metrics(score_polls(trace, polls_of({0: [25]}, 2)), "mine")
    assert figures["policy"] == "mine"
    assert (figures["polls"], figures["posts"], figures["missed"]) == (1, 5, 1)
    assert figures["missed_share"] == 0.2
    assert figures["mean_delay_s"] == pytest.approx((15 + 5 + 10 + 0) / 4)
    assert figures["median_delay_s"] == 7.5
    assert figures["p90_delay_s"] == pytest.approx(np.percentile([15, 5, 10, 0], 90))
    assert figures["max_delay_s"] == 15
    assert figures["charged_delay_s"] == pytest.approx((20 + 86400 + 30) / 5)
    assert figures["polls_per_post"] == 0.2
    assert figures["polls_per_feed_day"] == pytest.approx(1 / (2 * 40 / 86400))


def test_a_poll_at_exactly_t_catches_a_post_at_t():
    trace = trace_of([0, 100])
    assert score_polls(trace, polls_of({0: [0.0]}, 1)).delay_s.tolist() == [0, 0]


def test_bytes_of_three_protocols():
    trace = trace_of([0, 10, 20, 100], window=2)
    scores = score_polls(trace, polls_of({0: [15, 16, 50]}, 1))
    assert scores.bytes_full == 3 * (2 * POST_BYTES + HEADER_BYTES)
    assert scores.bytes_conditional == 2 * (2 * POST_BYTES + HEADER_BYTES) + HEADER_BYTES
    assert scores.bytes_new_only == 3 * POST_BYTES + 3 * HEADER_BYTES


def test_bytes_of_feeds_that_never_answer_with_304():
    """The first feed sends its document at every poll, the second only with new entries."""
    trace = trace_of([0, 10, 100], [0, 10, 100])
    polls = polls_of({0: [15, 16, 50], 1: [15, 16, 50]}, 2)
    document = 2 * POST_BYTES
    one = Conditions(conditional=np.array([False, True]))
    assert (
        score_polls(trace, polls, conditions=one).bytes_conditional
        == 4 * document + 6 * HEADER_BYTES
    )
    for all_conditional in (None, Conditions()):
        scores = score_polls(trace, polls, conditions=all_conditional)
        assert scores.bytes_conditional == 2 * document + 6 * HEADER_BYTES
        assert metrics(scores)["bytes"] == scores.bytes_conditional


def test_bytes_of_documents_whose_size_is_known():
    trace = trace_of([0, 10, 100], [0, 10, 100])
    polls = polls_of({0: [15, 16, 50], 1: [15, 16, 50]}, 2)
    conditions = Conditions(
        conditional=np.array([False, True]), document_bytes=np.array([1000.0, 20.0])
    )
    scores = score_polls(trace, polls, conditions=conditions)
    assert scores.bytes_conditional == 3 * 1000 + 20 + 6 * HEADER_BYTES
    assert scores.bytes_full == 3 * 1000 + 3 * 20 + 6 * HEADER_BYTES


def test_freshness_and_age():
    # Stale from 10 to 30 and from 70 to 100 (the end): age rises to 20 and to 30.
    trace = trace_of([0, 10, 20, 70, 100])
    figures = metrics(score_polls(trace, polls_of({0: [0, 30]}, 1)))
    assert figures["freshness"] == pytest.approx(0.5)
    assert figures["age_s"] == pytest.approx((20**2 / 2 + 30**2 / 2) / 100)


def test_urbanskys_two_modes():
    trace = trace_of([0, 10, 20], [0, 100], window=10)
    figures = metrics(score_polls(trace, polls_of({0: [20], 1: [100]}, 2)))
    assert figures["feeds_mode_delay_s"] == pytest.approx(
        (10 + 50) / 2
    )  # mean over feeds of their means
    assert figures["polls_mode_delay_s"] == pytest.approx((10 + 50) / 2)
    assert figures["feeds_mode_polls_per_post"] == pytest.approx((1 / 3 + 1 / 2) / 2)


def test_weights_count_in_the_weighted_delay_only():
    trace = trace_of([0], [0], [100])
    trace.weight[:] = [3.0, 1.0, 0.0]
    figures = metrics(score_polls(trace, polls_of({0: [10], 1: [50]}, 3)))
    assert figures["weighted_delay_s"] == pytest.approx((3 * 10 + 50) / 4)
    assert figures["mean_delay_s"] == pytest.approx(20)


def test_without_polls_only_closing_poll_counts():
    trace = trace_of([0, 50, 100])
    figures = metrics(score_polls(trace, polls_of({}, 1)))
    assert (figures["polls"], figures["mean_delay_s"]) == (0, 50)


def test_poll_lists_are_read_and_checked(tmp_path):
    trace = trace_of([0, 50, 100])
    file = tmp_path / "polls.csv"
    file.write_text("feed_id,polled_at\n0,60.5\n0,10\n0,400\n")
    polls = read_polls(file, trace)
    assert polls.times.tolist() == [10, 60.5, 400]
    assert polls_within(polls, trace.start, trace.end).times.tolist() == [10, 60.5]
    file.write_text("feed_id,polled_at\n0,60\n1,10\n")
    with pytest.raises(TraceError, match="row 2, column 'feed_id': feed 1 is not in the trace"):
        read_polls(file, trace)
