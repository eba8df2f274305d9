"""Where others look as well: who knows the same would look at the same moment, and only the first need have looked."""

from collections.abc import Callable

#: A random moment longer: up to this share of the time between looks, and no longer than that.
SHARE, MOST_S = 0.1, 600.0
#: Who lets others look waits so much longer, in times between looks, and looks if nobody did.
STAND_BACK = 0.5


def longer_s(gap_s: float, turns: float, chance: Callable[[], float]) -> float:
    """How much longer to wait than ``gap_s`` after another's look; ``turns`` is `Policy.turns`, ``chance`` is from [0, 1)."""
    stand_back_s = STAND_BACK * gap_s if chance() > turns else 0.0
    return stand_back_s + chance() * min(SHARE * gap_s, MOST_S)
