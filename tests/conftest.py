"""What holds for all tests."""

import signal

import tidings  # noqa: F401  # before numpy, for which it chooses the number of threads

# Started in the background, we may have been told to ignore Ctrl-C, and with us all that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)
