"""Where others look as well."""

import random

import pytest

from tidings.policy.coordination import coordination_delay_s


@pytest.mark.parametrize(
    ("participation", "deferred_share"), [(1.0, 0.0), (0.25, 0.75), (0.0, 1.0)]
)
def test_who_stands_back_waits_half_as_long_again_and_all_wait_a_moment(
    participation, deferred_share
):
    draw_uniform = random.Random(1).random
    for gap_s, most_s in ((3000.0, 300.0), (100_000.0, 600.0)):
        waits = [coordination_delay_s(gap_s, participation, draw_uniform) for _ in range(2000)]
        back = [wait for wait in waits if wait >= gap_s / 2]
        assert len(back) / len(waits) == pytest.approx(deferred_share, abs=0.05)
        moments = [wait % (gap_s / 2) for wait in waits]
        assert 0 <= min(moments) < 0.01 * most_s
        assert 0.99 * most_s < max(moments) < most_s
