"""Count the posts of each feed by hour of the week, with exponential decay.

Posts are also counted by five-minute bin of the hour, by days with posts and by bursts. All counts
decay with a half-life of `HALF_LIFE_D` days.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, HOUR_S, Floats, Rows
from tidings.policy.base import hour_of_week
from tidings.policy.price.lookahead import BIN_S

#: Half-life of the counts, in days.
HALF_LIFE_D = 90.0
#: Gap above which a post starts a new batch (posts published at once).
BATCH_GAP_S = 60.0
#: Gap above which a post starts a new burst; a burst counts once as evidence about the hours.
BURST_GAP_S = 1800.0


def decay_counts(state: npt.NDArray[Any], rows: Rows, elapsed_s: Floats) -> None:
    """Reduce the counts of ``rows`` by the exponential decay over the elapsed time."""
    decay = 0.5 ** (elapsed_s / DAY_S / HALF_LIFE_D)
    for counts in ("hours", "minutes", "batches", "events", "post_days"):
        state[counts][rows] = (state[counts][rows].T * decay).T


def count_posts(state: npt.NDArray[Any], rows: Rows, times: Floats) -> None:
    """Add posts to the counts of their feeds; posts must be sorted by feed and time."""
    if len(rows) == 0:
        return
    np.add.at(state["hours"], (rows, hour_of_week(times)), 1)
    np.add.at(state["minutes"], (rows, ((times % HOUR_S) // BIN_S).astype(np.int64)), 1)
    is_first = np.ones(len(rows), dtype=np.bool_)
    is_first[1:] = rows[1:] != rows[:-1]
    previous = np.append(0.0, times[:-1])
    previous[is_first] = state["newest"][rows[is_first]]
    np.add.at(state["batches"], rows[times - previous > BATCH_GAP_S], 1)
    np.add.at(state["events"], rows[times - previous > BURST_GAP_S], 1)
    new_day = np.floor(times / DAY_S) != np.floor(previous / DAY_S)
    np.add.at(state["post_days"], rows[new_day], 1)
    is_last = np.append(is_first[1:], True)
    state["newest"][rows[is_last]] = np.maximum(state["newest"][rows[is_last]], times[is_last])
