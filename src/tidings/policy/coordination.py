"""Delay polls at random, so that peers do not poll the same feed at the same time.

Peers with the same data would choose the same moment for a poll, and only the first of these polls
is useful to all of them.
"""

from collections.abc import Callable

#: Maximum jitter, as a share of the gap between polls and in seconds; the smaller one applies.
JITTER_SHARE, MAX_JITTER_S = 0.1, 600.0
#: Extra wait of a poll that is deferred to peers, in gaps between polls. If no peer has polled the
#: feed by then, this node polls it.
DEFER_GAPS = 0.5


def coordination_delay_s(
    gap_s: float, participation: float, draw_uniform: Callable[[], float]
) -> float:
    """Return the delay, in seconds, to add to the gap ``gap_s`` after a peer's poll.

    ``participation`` is `Policy.participation`, the share of polls that are not deferred.
    ``draw_uniform`` returns a random number from [0, 1).
    """
    defer_s = DEFER_GAPS * gap_s if draw_uniform() > participation else 0.0
    return defer_s + draw_uniform() * min(JITTER_SHARE * gap_s, MAX_JITTER_S)
