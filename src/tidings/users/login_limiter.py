"""Rate limiter for failed logins, with exponential backoff per user name and client address.

Failures are stored in memory. A restart resets them, which an attacker cannot trigger.
"""

from collections.abc import Callable

from tidings.users.errors import TooManyAttempts

#: Failures without backoff, per (name, address) and per address. A household shares an address.
FREE_FAILURES, FREE_FAILURES_PER_ADDRESS = 5, 30
#: Backoff after the first failure beyond these, which doubles with each further one; its maximum.
INITIAL_BACKOFF_S, MAX_BACKOFF_S = 15.0, 3600.0
#: Time since the last failure after which the count starts again.
RESET_AFTER_S = 3600.0
#: Maximum number of tracked keys; the oldest are dropped.
MAX_TRACKED = 10_000


class LoginLimiter:
    """Rate limiter that counts failed logins by (name, address) and by address."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}

    def check(self, name: str, address: str) -> None:
        """Raise `TooManyAttempts` during the backoff of this name or address."""
        now = self._clock()
        for key, free in (
            ((name, address), FREE_FAILURES),
            (("", address), FREE_FAILURES_PER_ADDRESS),
        ):
            count, last = self._failures.get(key, (0, 0.0))
            if count >= free:
                backoff_s = min(INITIAL_BACKOFF_S * 2.0 ** min(count - free, 20), MAX_BACKOFF_S)
                wait_s = last + backoff_s - now
                if wait_s > 0:
                    raise TooManyAttempts(wait_s)

    def record_failure(self, name: str, address: str) -> None:
        now = self._clock()
        for key in ((name, address), ("", address)):
            count, last = self._failures.pop(key, (0, now))
            # Inserted at the end, so that the dict is ordered by age.
            self._failures[key] = (count + 1 if now - last < RESET_AFTER_S else 1, now)
        while len(self._failures) > MAX_TRACKED:
            del self._failures[next(iter(self._failures))]

    def record_success(self, name: str, address: str) -> None:
        """Reset the failures of this name at this address, but not those of the address."""
        self._failures.pop((name, address), None)
