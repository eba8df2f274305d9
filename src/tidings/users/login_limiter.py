"""Guessing is slow: after a few failures a name at an address has to wait, and so has an address with many names.

Kept in memory: who restarts the service may guess again, which is nothing that a guesser can do.
"""

from collections.abc import Callable

from tidings.users.errors import TooManyAttempts

#: Failures that cost nothing, for a name at one address and for an address; a whole household shares one.
FREE_FAILURES, FREE_FAILURES_PER_ADDRESS = 5, 30
#: The wait after the first failure too many; each further one doubles it.
INITIAL_BACKOFF_S, MAX_BACKOFF_S = 15.0, 3600.0
#: Who has not failed for so long begins anew.
RESET_AFTER_S = 3600.0
#: Remembered at once; of more, the oldest are let go.
MAX_TRACKED = 10_000


class LoginLimiter:
    """Failures by (name, address) and by address alone."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}

    def check(self, name: str, address: str) -> None:
        """Raises `TooManyAttempts` while somebody has to wait."""
        now = self._clock()
        for key, free in (
            ((name, address), FREE_FAILURES),
            (("", address), FREE_FAILURES_PER_ADDRESS),
        ):
            count, last = self._failures.get(key, (0, 0.0))
            if count >= free:
                wait_s = (
                    last
                    + min(INITIAL_BACKOFF_S * 2.0 ** min(count - free, 20), MAX_BACKOFF_S)
                    - now
                )
                if wait_s > 0:
                    raise TooManyAttempts(wait_s)

    def record_failure(self, name: str, address: str) -> None:
        now = self._clock()
        for key in ((name, address), ("", address)):
            count, last = self._failures.pop(key, (0, now))
            self._failures[key] = (
                count + 1 if now - last < RESET_AFTER_S else 1,
                now,
            )  # at the end: the order is that of age
        while len(self._failures) > MAX_TRACKED:
            del self._failures[next(iter(self._failures))]

    def record_success(self, name: str, address: str) -> None:
        self._failures.pop((name, address), None)
