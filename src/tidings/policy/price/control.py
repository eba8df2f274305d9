"""The controller: one price for all feeds, moved slowly until the spending meets the budget.

It knows a demand curve (polls a day at each price, foretold from what is known of the feeds) and how far the spending of the
last whole days was from it; spending is rightly higher by day than by night, so nothing shorter than a day is looked at. The
price is where the corrected curve meets what is to be spent from here on, so that what was spent too much or too little is made
up for within a few days.
"""

from dataclasses import dataclass, field

import numpy as np

from tidings.model import DAY_S, Floats

#: What was over- or underspent is made up for in this time.
CATCH_UP_DAYS = 5.0
#: Spending is counted in slots; a week of them is kept.
SLOT_S = 4 * 3600.0
PER_DAY = 6
SLOTS = 7 * PER_DAY
#: The price moves by no more than this factor in a slot.
STEP = 1.25


@dataclass(slots=True)
class Controller:
    """Holds the price. Its whole state is a few dozen numbers: what the leader moves and all workers read."""

    budget_per_day: float
    started: float
    prices: Floats  #: of the demand curve, rising
    demand: Floats  #: polls per day at those prices, falling
    price: float = 0.0
    spent: int = 0
    polls: list[int] = field(default_factory=list)  #: spent in each of the last slots
    foretold: list[float] = field(default_factory=list)  #: what the curve said of them
    owing: list[float] = field(default_factory=list)  #: budget not spent so far, at the end of each slot

    def __post_init__(self) -> None:
        if self.price == 0.0:
            self.price = self._at(self.budget_per_day)

    def _at(self, polls_per_day: float) -> float:
        """The price at which the curve has this demand; a root law beyond its ends."""
        log_demand, log_price = np.log(np.maximum(self.demand, 1e-12))[::-1], np.log(self.prices)[::-1]
        wanted = np.log(max(polls_per_day, 1e-12))
        beyond = 2 * (wanted - np.clip(wanted, log_demand[0], log_demand[-1]))
        return float(np.exp(np.interp(wanted, log_demand, log_price) - beyond))

    def tick(self, now: float, spent: int) -> None:
        """Take in what was spent until ``now`` and move the price. To be called once a slot."""
        self.polls.append(spent - self.spent)
        self.foretold.append(float(np.interp(np.log(self.price), np.log(self.prices), self.demand)) / PER_DAY)
        self.owing.append(self.budget_per_day * (now - self.started) / DAY_S - spent)
        del self.polls[:-SLOTS], self.foretold[:-SLOTS], self.owing[:-SLOTS]
        self.spent = spent
        slots = len(self.polls) // PER_DAY * PER_DAY
        if slots == 0:
            return
        # In the first week up to a day of the curve's own word is mixed in: the first days say little.
        own_word = self.budget_per_day * (1 - slots / SLOTS)
        correction = (sum(self.polls[-slots:]) + own_word) / max(sum(self.foretold[-slots:]) + own_word, 1e-9)
        owed = sum(self.owing[-slots:]) / slots
        wanted = self.budget_per_day + owed / CATCH_UP_DAYS
        wanted = min(max(wanted, 0.5 * self.budget_per_day), 2.0 * self.budget_per_day)
        self.price = float(np.clip(self._at(wanted / max(correction, 1e-3)), self.price / STEP, self.price * STEP))
