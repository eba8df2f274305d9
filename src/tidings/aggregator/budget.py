"""Token bucket that enforces the request budget independently of the scheduling policy.

The bucket holds one day's budget and is refilled at a constant rate. Its capacity is a day rather
than an hour because policies poll more by day than by night: a typical weekly profile moves up to
eight hours' worth of polls within a day. So no day can cost more than two budgets, and no week more
than eight.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from tidings.config import Budget
from tidings.model import DAY_S

#: Key of the stored budget that an admin has set while the service runs.
BUDGET_OVERRIDE_KEY = "budget"
#: Number of polls over which the mean number of bytes per poll is computed.
MEAN_POLLS = 5000


class BudgetOverride(Struct, frozen=True):
    """Budget that an admin has set at run time.

    It is in effect until the configured budget changes.
    """

    budget: Budget
    instead_of: Budget  #: configured budget at the time of the override


def effective_budget(shared: Mapping[str, bytes], configured: Budget) -> Budget:
    """Return the budget set at run time if there is one, otherwise the configured budget.

    ``shared`` are the stored values by key.
    """
    try:
        override = (
            msgspec.json.decode(shared[BUDGET_OVERRIDE_KEY], type=BudgetOverride)
            if BUDGET_OVERRIDE_KEY in shared
            else None
        )
    except msgspec.DecodeError:
        override = None
    return (
        override.budget
        if override is not None and override.instead_of == configured
        else configured
    )


class MeanBytes(Struct, frozen=True):
    """Running mean of bytes per poll, used to convert a byte budget into a request budget."""

    polls: int = 0
    mean: float = 0.0

    def after(self, transferred: Sequence[int]) -> "MeanBytes":
        """Return the mean after further polls. ``transferred`` has the bytes of each poll.

        Older polls lose weight.
        """
        if not transferred:
            return self
        known = min(self.polls, MEAN_POLLS)
        polls = known + len(transferred)
        return MeanBytes(polls, (self.mean * known + sum(transferred)) / polls)


class TokenBucket(Struct):
    """Token bucket that counts requests or bytes.

    Manual polls are counted but never refused, so the balance may be negative, by at most one day.
    """

    per_day: float
    tokens: float
    at: float

    @classmethod
    def full(cls, per_day: float, now: float) -> "TokenBucket":
        return cls(per_day, per_day, now)

    @property
    def capacity(self) -> float:
        return max(self.per_day, 1.0)

    def available(self, now: float) -> int:
        """Return the number of available tokens, rounded down."""
        self._refill(now)
        return max(int(self.tokens + 1e-9), 0)

    def consume(self, amount: float, now: float) -> None:
        self._refill(now)
        self.tokens = max(self.tokens - amount, -self.capacity)

    def ready_at(self, now: float, position: float = 0) -> float:
        """Return the time at which a poll at this position in the queue gets its token."""
        self._refill(now)
        return now + max(position + 1 - self.tokens, 0.0) * DAY_S / self.per_day

    def set_budget(self, per_day: float, now: float) -> None:
        """Change the number of tokens per day. An increase is available immediately."""
        self._refill(now)
        self.tokens += max(per_day - self.per_day, 0.0)
        self.per_day = per_day

    def _refill(self, now: float) -> None:
        self.tokens = min(
            self.tokens + max(now - self.at, 0.0) * self.per_day / DAY_S, self.capacity
        )
        self.at = max(now, self.at)
