"""What glibc would keep for itself although it is free. Elsewhere these do nothing."""

import ctypes
import gc
from contextlib import suppress

_M_MMAP_THRESHOLD = -3
LARGE_BYTES = 1024 * 1024


def be_frugal() -> None:
    """Once, at the beginning."""
    with suppress(OSError, AttributeError):
        # What is large and was freed goes back to the system. Without this, it is kept from the second time on (mallopt(3)).
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
    gc.set_threshold(10_000, 20, 20)  # what we make by the thousand is in no circles


def give_back() -> None:
    """Between two tasks of different kinds: free memory of the one, in pieces, is of no use to the other."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
