"""Guessing is slow: after a few failures a name at an address has to wait, and so has an address with many names.

Kept in memory: who restarts the service may guess again, which is nothing that a guesser can do.
"""

from collections.abc import Callable

from tidings.people.errors import TooManyAttempts

#: Failures that cost nothing, for a name at one address and for an address; a whole household shares one.
FREE, FREE_FOR_ADDRESS = 5, 30
#: The wait after the first failure too many; each further one doubles it.
FIRST_WAIT_S, LONGEST_WAIT_S = 15.0, 3600.0
#: Who has not failed for so long begins anew.
FORGET_S = 3600.0
#: Remembered at once; of more, the oldest are let go.
MOST = 10_000


class Attempts:
    """Failures by (name, address) and by address alone."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}

    def check(self, name: str, address: str) -> None:
        """Raises `TooManyAttempts` while somebody has to wait."""
        now = self._clock()
        for key, free in ((name, address), FREE), (("", address), FREE_FOR_ADDRESS):
            count, last = self._failures.get(key, (0, 0.0))
            if count >= free:
                wait_s = last + min(FIRST_WAIT_S * 2.0 ** min(count - free, 20), LONGEST_WAIT_S) - now
                if wait_s > 0:
                    raise TooManyAttempts(wait_s)

    def failed(self, name: str, address: str) -> None:
        now = self._clock()
        for key in ((name, address), ("", address)):
            count, last = self._failures.pop(key, (0, now))
            self._failures[key] = (count + 1 if now - last < FORGET_S else 1, now)  # at the end: the order is that of age
        while len(self._failures) > MOST:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, name: str, address: str) -> None:
        self._failures.pop((name, address), None)
