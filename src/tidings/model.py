"""Array types, units of time, and feed documents as arrays for policies.

Times are seconds since the epoch, UTC, as float64. Intervals are in seconds and have the suffix
``_s``; rates are in posts per day and have the suffix ``_per_day``.
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
    """Publication times of the entries in the documents of several polled feeds.

    One row ``r`` is one polled feed. Its entries are ``times[first[r]:end[r]]``, oldest first;
    those in ``times[fresh[r]:end[r]]`` are new. ``gap[r]`` is True if no entry of the document was
    known although the feed had been polled before, so that posts were probably missed (Han et al.
    sect. 3).
    """

    times: Floats
    first: Ints
    fresh: Ints
    end: Ints
    gap: Bools

    @property
    def count(self) -> Ints:
        """Number of entries in each document."""
        return self.end - self.first

    @property
    def new(self) -> Ints:
        """Number of new entries in each document."""
        return self.end - self.fresh

    def oldest(self, k: int = 0) -> Floats:
        """Return the time of the k-th oldest entry of each document.

        The value is undefined for documents with fewer entries. ``k`` counts from 0.
        """
        return (
            self.times[np.minimum(self.first + k, len(self.times) - 1)]
            if len(self.times)
            else _nan(self.first)
        )

    def newest(self, k: int = 0) -> Floats:
        """Return the time of the k-th newest entry of each document.

        The value is undefined for documents with fewer entries. ``k`` counts from 0.
        """
        return self.times[np.maximum(self.end - 1 - k, 0)] if len(self.times) else _nan(self.first)

    def new_entries(self) -> tuple[Rows, Floats]:
        """Return the row number and the time of every new entry, as two flat arrays."""
        return flatten(self.times, self.fresh, self.end)


def flatten(times: Floats, first: Ints, end: Ints) -> tuple[Rows, Floats]:
    """Concatenate ``times[first[r]:end[r]]`` over all rows ``r``.

    Returns two arrays with the row number and the time of each element.
    """
    lengths = end - first
    rows = np.repeat(np.arange(len(lengths)), lengths)
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(rows)) - np.repeat(starts - first, lengths)
    return rows, times[positions]


def _nan(like: Ints) -> Floats:
    return np.full(len(like), np.nan)
