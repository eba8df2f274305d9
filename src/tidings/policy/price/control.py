"""The controller: one price for all feeds, moved until the spending meets the budget.

It knows a demand curve (polls a day at each price, foretold from what is known of the feeds), how far the spending of the last
days was from it, and a timetable: how the spending spreads over the week. Polls are rightly more frequent by day than by night,
so what was spent is held against the timetable, not against the clock; then even small differences can be made up for at once,
and any seven days come out alike.
"""

from dataclasses import dataclass, field

import numpy as np

from tidings.model import DAY_S, WEEK_S, Floats

#: What was over- or underspent is made up for in this time and a mean gap (a lower price first brings all polls that are
#: planned forward by some share of their gaps, then makes them more frequent), and so much later in the first week.
CATCH_UP_DAYS = 1.0
FIRST_WEEK_DAYS = 3.0
#: Spending is counted in slots; a week of them is kept.
SLOT_S = 4 * 3600.0
PER_DAY = 6
SLOTS = 7 * PER_DAY
#: The price moves by no more than this factor in a slot.
STEP = 1.25
#: A rehearsal is sharper than life: so much of evenness is mixed into its timetable.
EVEN = 0.2
#: How much of a slot of the timetable is told anew by the last week.
TIMETABLE_NEWS = 0.3


def price_of(polls_per_day: float, prices: Floats, demand: Floats) -> float:
    """The price at which a demand curve has so many polls; a root law beyond its ends."""
    log_demand, log_price = np.log(np.maximum(demand, 1e-12))[::-1], np.log(prices)[::-1]
    wanted = np.log(max(polls_per_day, 1e-12))
    beyond = 2 * (wanted - np.clip(wanted, log_demand[0], log_demand[-1]))
    return float(np.exp(np.interp(wanted, log_demand, log_price) - beyond))


@dataclass(slots=True)
class Controller:
    """Holds the price. Its whole state is a few dozen numbers: what the leader moves and all workers read."""

    budget_per_day: float
    mean_gap_days: float  #: between polls of a feed
    started: float
    prices: Floats  #: of the demand curve, rising
    demand: Floats  #: polls per day at those prices, falling
    price: float
    rehearsed: Floats  #: polls a day at that price in each slot of a week, as a rehearsal had them
    spent: int = 0
    forgiven: float = 0.0  #: polls that nobody was there to make
    last_tick: float = 0.0
    ticks: int = 0
    polls: list[int] = field(default_factory=list)  #: spent in each of the last slots
    foretold: list[float] = field(default_factory=list)  #: what the curve said of them
    timetable: Floats = field(init=False)  #: share of a week's polls in each slot
    bias: float = field(init=False)  #: polls that the rehearsal made for each that the curve foretold

    def __post_init__(self) -> None:
        self.timetable = (self.rehearsed + EVEN * self.rehearsed.mean() + 1e-9) / (
            (1 + EVEN) * self.rehearsed.sum() + SLOTS * 1e-9
        )
        self.bias = float(self.rehearsed.mean()) / max(self._curve(), 1e-9)
        self.last_tick = self.started

    def _curve(self) -> float:
        """Polls a day that the curve foretells at the present price."""
        return float(np.interp(np.log(self.price), np.log(self.prices), self.demand))

    def owed(self, now: float, spent: int) -> float:
        """Polls that the timetable has foreseen until ``now`` and that were not made.

        It is ahead of an even spending as often as behind it, so that the total is right whenever one asks.
        """
        weeks, within = divmod((now - self.started) / WEEK_S, 1.0)
        ends = np.arange(SLOTS + 1)
        shares = np.append(0.0, np.cumsum(self.timetable))
        due = weeks + float(np.interp(within * SLOTS, ends, shares)) - float((shares - ends / SLOTS).mean())
        return due * 7 * self.budget_per_day - self.forgiven - spent

    def tick(self, now: float, spent: int) -> None:
        """Take in what was spent until ``now`` and move the price. To be called once a slot."""
        away_s = now - self.last_tick - SLOT_S
        if away_s > SLOT_S / 2:  # nobody was there
            self.forgiven += self.budget_per_day * away_s / DAY_S
        self.last_tick = now
        self.polls.append(spent - self.spent)
        self.foretold.append(self._curve() / PER_DAY)
        del self.polls[:-SLOTS], self.foretold[:-SLOTS]
        self.spent = spent
        self.ticks += 1
        self._write_timetable()
        slots = len(self.polls) // PER_DAY * PER_DAY
        # In the first week a share of the rehearsal's word is mixed in: the first days say little.
        own_word = self.budget_per_day * (1 - slots / SLOTS)
        correction = (sum(self.polls[-slots:] if slots else []) + own_word * self.bias) / max(
            sum(self.foretold[-slots:] if slots else []) + own_word, 1e-9
        )
        catch_up = self.mean_gap_days + CATCH_UP_DAYS + (FIRST_WEEK_DAYS if slots < SLOTS else 0.0)
        wanted = self.budget_per_day + self.owed(now, spent) / catch_up
        wanted = min(max(wanted, 0.5 * self.budget_per_day), 2.0 * self.budget_per_day)
        price = price_of(wanted / max(correction, 1e-3), self.prices, self.demand)
        self.price = float(np.clip(price, self.price / STEP, self.price * STEP))

    def _write_timetable(self) -> None:
        """Learn from each whole day when polls would be made at one price: from what was spent, and how the price moved."""
        if self.ticks % PER_DAY:
            return
        usual = sum(self.foretold) / len(self.foretold)
        day = np.array(self.polls[-PER_DAY:]) * usual / np.maximum(self.foretold[-PER_DAY:], 1e-9)
        mean = sum(self.polls) / len(self.polls) * SLOTS
        if day.sum() == 0 or mean == 0:
            return
        table = self.timetable.reshape(7, PER_DAY)
        today = (self.ticks // PER_DAY - 1) % 7
        table[today] += TIMETABLE_NEWS * (day / mean - table[today])
        self.timetable = self.timetable / self.timetable.sum()
