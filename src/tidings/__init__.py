"""tidings: a feed reader and aggregator that learns when each feed posts."""

import os

# Policies multiply many small matrices. With a thread per core, OpenBLAS spends most of that time waiting for its own
# threads: a simulation took 69 s with two threads and 25 s with one while the machine was busy. Read by numpy when it
# is imported, so this package must come first.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
