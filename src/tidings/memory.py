"""What glibc would keep for itself although it is free. Elsewhere these do nothing."""

import ctypes
import gc
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
LARGE_BYTES = 1024 * 1024
#: Less than this, free at the end of a heap, is kept. The next document takes as much again, and every page that comes back
#: from the system is cleared first: with glibc's 128 kB that is a quarter of a million pages in a refresh of 2,000 feeds.
TRIM_THRESHOLD_BYTES = 2 * LARGE_BYTES


def tune_allocator() -> None:
    """Once, at the beginning."""
    with suppress(OSError, AttributeError):
        # What is large and was freed goes back to the system. Without this, it is kept from the second time on (mallopt(3)).
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    gc.set_threshold(10_000, 20, 20)  # what we make by the thousand is in no circles


def trim_heap() -> None:
    """Between two tasks of different kinds: free memory of the one, in pieces, is of no use to the other."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
