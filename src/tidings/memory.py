"""Memory allocator tuning for glibc: return freed memory to the system. No effect elsewhere."""

import ctypes
import gc
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Allocations from this size on use `mmap`, so that freeing them returns the memory to the system.
LARGE_BYTES = 1024 * 1024
#: Free memory at the end of the heap that is kept. The next document needs it again, and the kernel
#: clears every page it hands out: with glibc's default of 128 kB, that is a quarter of a million
#: pages in a refresh of 2,000 feeds.
TRIM_THRESHOLD_BYTES = 2 * LARGE_BYTES


def tune_allocator() -> None:
    """Set the thresholds of malloc and the garbage collector; call once at start-up."""
    with suppress(OSError, AttributeError):
        # A fixed threshold: glibc's dynamic one grows with each freed block, and later blocks of
        # that size are then kept on the heap (mallopt(3)).
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    gc.set_threshold(10_000, 20, 20)  # entries and rows, the most numerous objects, form no cycles


def trim_heap() -> None:
    """Return free memory to the system, between tasks that allocate blocks of different sizes."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
