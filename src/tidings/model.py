"""The values that travel between rooms, and the units they are told in.

Times are seconds since the epoch, UTC, as float64. Intervals are seconds and say so (``_s``); rates are
posts per day and say so (``_per_day``).
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.intp]

MINUTE_S = 60.0
HOUR_S = 3600.0
DAY_S = 86400.0
WEEK_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Documents:
    """What a batch of polls returned: for each polled feed, the times of the entries in its document.

    Entries of row ``r`` are ``times[first[r]:end[r]]``, oldest first, and ``times[fresh[r]:end[r]]`` were not
    known before. ``gap[r]`` says that nothing in the document was known although something had been: posts
    were probably pushed out unseen (Han et al. sect. 3).
    """

    times: Floats
    first: Ints
    fresh: Ints
    end: Ints
    gap: Bools

    @property
    def count(self) -> Ints:
        """Entries in each document."""
        return self.end - self.first

    @property
    def new(self) -> Ints:
        """Entries in each document that were not known before."""
        return self.end - self.fresh

    def oldest(self, k: int = 0) -> Floats:
        """Time of the k-th oldest entry of each document; meaningless where the document is shorter."""
        return (
            self.times[np.minimum(self.first + k, len(self.times) - 1)]
            if len(self.times)
            else _nan(self.first)
        )

    def newest(self, k: int = 0) -> Floats:
        """Time of the k-th newest entry of each document; meaningless where the document is shorter."""
        return self.times[np.maximum(self.end - 1 - k, 0)] if len(self.times) else _nan(self.first)

    def new_entries(self) -> tuple[Rows, Floats]:
        """All new entries, flat: which row of the batch each belongs to, and its time."""
        return flatten(self.times, self.fresh, self.end)


def flatten(times: Floats, first: Ints, end: Ints) -> tuple[Rows, Floats]:
    """Concatenate ``times[first[r]:end[r]]`` over all rows; returns (row of each element, the elements)."""
    lengths = end - first
    rows = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(rows)) - np.repeat(starts - first, lengths)
    return rows, times[positions]


def _nan(like: Ints) -> Floats:
    return np.full(len(like), np.nan)
