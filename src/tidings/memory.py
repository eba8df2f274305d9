"""Settings of the glibc memory allocator that return freed memory to the operating system.

The functions have no effect with other C libraries.
"""

import ctypes
import gc
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
#: Minimum size in bytes of allocations that use `mmap`. Freeing them returns the memory to the
#: operating system.
LARGE_BYTES = 1024 * 1024
#: Maximum size in bytes of free memory at the end of the heap that the process does not return. The
#: next document needs this memory again, and the kernel clears every page before it hands the page
#: out: with glibc's default of 128 kB, a quarter of a million pages in a refresh of 2,000 feeds.
TRIM_THRESHOLD_BYTES = 2 * LARGE_BYTES


def tune_allocator() -> None:
    """Set the thresholds of malloc and of the garbage collector. Call this once at start-up."""
    with suppress(OSError, AttributeError):
        # The threshold is fixed because glibc's dynamic threshold grows with each freed block, and
        # later blocks of that size then stay on the heap (mallopt(3)).
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES)
    gc.set_threshold(10_000, 20, 20)  # entries and rows, the most numerous objects, form no cycles


def trim_heap() -> None:
    """Return all free memory to the operating system.

    Call this between tasks that allocate blocks of different sizes.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
