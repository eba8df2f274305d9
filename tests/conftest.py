"""What holds for all tests."""

import signal

# Started in the background, we may have been told to ignore Ctrl-C, and with us all that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)
