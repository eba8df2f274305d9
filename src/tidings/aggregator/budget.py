"""The cap behind the price: however wrong a policy may be about its spending, requests cannot run away.

A bucket that holds a day's budget and fills evenly. A day and not an hour, because a policy rightly asks more by day than by
night: in a day of the common pattern up to eight hours' worth is moved. So no day costs more than two, and no week more
than eight.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from tidings.config import Budget
from tidings.model import DAY_S

#: Among the store's shared values: the budget that somebody has set while the service runs.
BUDGET_OVERRIDE_KEY = "budget"
#: Polls over which the mean transfer of a poll is taken.
MEAN_POLLS = 5000


class BudgetOverride(Struct, frozen=True):
    """Holds until the configuration says something else than it did then: whoever spoke last is right."""

    budget: Budget
    instead_of: Budget


def effective_budget(shared: Mapping[str, bytes], configured: Budget) -> Budget:
    """The budget that holds."""
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
    """The mean transfer of a poll, by which a budget of bytes becomes one of requests."""

    polls: int = 0
    mean: float = 0.0

    def after(self, transferred: Sequence[int]) -> "MeanBytes":
        """With more polls; those of long ago count less and less."""
        if not transferred:
            return self
        known = min(self.polls, MEAN_POLLS)
        polls = known + len(transferred)
        return MeanBytes(polls, (self.mean * known + sum(transferred)) / polls)


class TokenBucket(Struct):
    """Requests that may be made; those made by hand are counted and not refused, so it may be in debt for a day."""

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
        """Whole tokens that are there."""
        self._refill(now)
        return max(int(self.tokens + 1e-9), 0)

    def consume(self, amount: float, now: float) -> None:
        self._refill(now)
        self.tokens = max(self.tokens - amount, -self.capacity)

    def ready_at(self, now: float, position: float = 0) -> float:
        """When there is one again, for whoever stands at this place in line."""
        self._refill(now)
        return now + max(position + 1 - self.tokens, 0.0) * DAY_S / self.per_day

    def set_budget(self, per_day: float, now: float) -> None:
        """A larger budget may be used at once."""
        self._refill(now)
        self.tokens += max(per_day - self.per_day, 0.0)
        self.per_day = per_day

    def _refill(self, now: float) -> None:
        self.tokens = min(
            self.tokens + max(now - self.at, 0.0) * self.per_day / DAY_S, self.capacity
        )
        self.at = max(now, self.at)
