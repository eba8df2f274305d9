"""Feed reader and aggregator that learns when each feed posts."""

import os

# Policies multiply many small matrices. With one thread per core, OpenBLAS spends most of that time
# waiting for its own threads: on a busy machine a simulation took 69 s with two threads and 25 s
# with one. numpy reads the variable when it is imported, so this package must be imported first.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
