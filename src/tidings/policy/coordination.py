"""Where others look as well: who knows the same would look at the same moment, and only the first need have looked."""

from collections.abc import Callable

#: A random moment longer: up to this share of the time between looks, and no longer than that.
JITTER_SHARE, MAX_JITTER_S = 0.1, 600.0
#: Who lets others look waits so much longer, in times between looks, and looks if nobody did.
DEFER_GAPS = 0.5


def coordination_delay_s(
    gap_s: float, participation: float, draw_uniform: Callable[[], float]
) -> float:
    """How much longer to wait than ``gap_s`` after another's look; ``turns`` is `Policy.turns`, ``chance`` is from [0, 1)."""
    defer_s = DEFER_GAPS * gap_s if draw_uniform() > participation else 0.0
    return defer_s + draw_uniform() * min(JITTER_SHARE * gap_s, MAX_JITTER_S)
