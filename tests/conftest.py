"""Setup of all tests."""

import signal

import tidings  # noqa: F401  # before numpy, since it sets the number of BLAS threads

# A shell ignores SIGINT in background jobs, and subprocesses inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
