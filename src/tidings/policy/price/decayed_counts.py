"""Posts counted into what a feed's record keeps of them: hours of the week, minutes, days, bursts; slowly forgotten."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, HOUR_S, Floats, Rows
from tidings.policy.base import hour_of_week
from tidings.policy.price.lookahead import BIN_S

#: Patterns are forgotten slowly.
HALF_LIFE_D = 90.0
#: Posts closer than this came at once; and those closer than that are one piece of evidence about the pattern.
BATCH_GAP_S = 60.0
BURST_GAP_S = 1800.0


def decay_counts(state: npt.NDArray[Any], rows: Rows, passed_s: Floats) -> None:
    kept = 0.5 ** (passed_s / DAY_S / HALF_LIFE_D)
    for counts in ("hours", "minutes", "batches", "events", "post_days"):
        state[counts][rows] = (state[counts][rows].T * kept).T


def count_posts(state: npt.NDArray[Any], rows: Rows, times: Floats) -> None:
    """Count posts, sorted by feed and time, into the patterns of their feeds."""
    if len(rows) == 0:
        return
    np.add.at(state["hours"], (rows, hour_of_week(times)), 1)
    np.add.at(state["minutes"], (rows, ((times % HOUR_S) // BIN_S).astype(np.int64)), 1)
    begins = np.ones(len(rows), dtype=np.bool_)
    begins[1:] = rows[1:] != rows[:-1]
    before = np.append(0.0, times[:-1])
    before[begins] = state["newest"][rows[begins]]
    np.add.at(state["batches"], rows[times - before > BATCH_GAP_S], 1)
    np.add.at(state["events"], rows[times - before > BURST_GAP_S], 1)
    np.add.at(state["post_days"], rows[np.floor(times / DAY_S) != np.floor(before / DAY_S)], 1)
    final = np.append(begins[1:], True)
    state["newest"][rows[final]] = np.maximum(state["newest"][rows[final]], times[final])
