"""Coordination with peers: jitter and deferral."""

import random

import pytest

from tidings.policy.coordination import coordination_delay_s


@pytest.mark.parametrize(
    ("participation", "deferred_share"), [(1.0, 0.0), (0.25, 0.75), (0.0, 1.0)]
)
def test_deferred_polls_wait_half_a_gap_longer_and_all_have_jitter(participation, deferred_share):
    draw_uniform = random.Random(1).random
    for gap_s, max_jitter_s in ((3000.0, 300.0), (100_000.0, 600.0)):
        waits = [coordination_delay_s(gap_s, participation, draw_uniform) for _ in range(2000)]
        deferred = [wait for wait in waits if wait >= gap_s / 2]
        assert len(deferred) / len(waits) == pytest.approx(deferred_share, abs=0.05)
        jitter = [wait % (gap_s / 2) for wait in waits]
        assert 0 <= min(jitter) < 0.01 * max_jitter_s
        assert 0.99 * max_jitter_s < max(jitter) < max_jitter_s
