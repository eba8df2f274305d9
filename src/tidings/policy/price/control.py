"""The controller: one price for all feeds, moved until the spending meets the budget.

It knows a demand curve (polls a day at each price, foretold from what is known of the feeds), how far the spending of the last
days was from it, and a timetable: how the spending spreads over the week. Polls are rightly more frequent by day than by night,
so what was spent is held against the timetable, not against the clock; then even small differences can be made up for at once,
and any seven days come out alike.

Where neighbours look as well and tell of it, the curve foretells the looks of all of them together. The price is then that at
which all look so often that our part of it is our budget.
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
#: Among others it may have to go far, and soon: ten friends look ten times as often as one can pay for, at a hundredth of its
#: price.
STEP_AMONG_OTHERS = 2.0
#: How often others look is told by so many slots, what part of all looks is ours by so many: a price that follows our luck of a
#: day or two drifts away from the others'.
LATELY, PART = 2, 4 * PER_DAY
#: All together are wanted to look no more often than others do now and we could beside them, times this.
GROWTH = 1.25
#: So many stand in line for a look, on average: whose price is lowest by a hair does not look for all.
IN_LINE = 3.0
#: What was not spent because others looked is made up for up to so much.
LET_BE_DAYS = 0.25
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
    looks: list[int] = field(default_factory=list)  #: these, and those of others that we were told of
    foretold: list[float] = field(default_factory=list)  #: what the curve said of them
    timetable: Floats = field(init=False)  #: share of a week's polls in each slot
    turns: float = 1.0  #: share of looks for which we stand in line, where others look as well
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

    def tick(self, now: float, spent: int, others: int = 0) -> None:
        """Take in what was spent until ``now``, and what ``others`` looked in this slot, and move the price. Once a slot."""
        away_s = now - self.last_tick - SLOT_S
        if away_s > SLOT_S / 2:  # nobody was there
            self.forgiven += self.budget_per_day * away_s / DAY_S
        self.last_tick = now
        self.polls.append(spent - self.spent)
        self.looks.append(spent - self.spent + others)
        self.foretold.append(self._curve() / PER_DAY)
        del self.polls[:-SLOTS], self.looks[:-SLOTS], self.foretold[:-SLOTS]
        self.spent = spent
        self.ticks += 1
        if self.among_others:
            self.forgiven += max(self.owed(now, spent) - LET_BE_DAYS * self.budget_per_day, 0.0)
        self._write_timetable()
        slots = len(self.polls) // PER_DAY * PER_DAY
        # In the first week a share of the rehearsal's word is mixed in: the first days say little.
        own_word = self.budget_per_day * (1 - slots / SLOTS)
        # Where others look more often than we would at our price, that says nothing about our curve.
        slot_by_slot = zip(self.polls, self.looks, self.foretold, strict=True)
        counted = [max(own, min(looks, self.bias * foretold)) for own, looks, foretold in slot_by_slot]
        correction = (sum(counted[-slots:] if slots else []) + own_word * self.bias) / max(
            sum(self.foretold[-slots:] if slots else []) + own_word, 1e-9
        )
        catch_up = self.mean_gap_days + CATCH_UP_DAYS + (FIRST_WEEK_DAYS if slots < SLOTS else 0.0)
        wanted = self.budget_per_day + self.owed(now, spent) / catch_up
        wanted = min(max(wanted, 0.5 * self.budget_per_day), 2.0 * self.budget_per_day)
        price = price_of(self._of_all(wanted) / max(correction, 1e-3), self.prices, self.demand)
        step = STEP_AMONG_OTHERS if self.among_others else STEP
        self.price = float(np.clip(price, self.price / step, self.price * step))

    @property
    def among_others(self) -> bool:
        """Whether others have looked in the last day."""
        return sum(self.looks[-PER_DAY:]) > sum(self.polls[-PER_DAY:])

    def _of_all(self, wanted: float) -> float:
        """Looks a day of all together, of which ``wanted`` would be ours.

        Our part of the looks of the last days says how many there are for our budget; what we alone owe comes on top once,
        not once for each of the others: that is for our turns to make up for. It is a rough guess where we made few, and none
        where others have far more to spend: hence no more than a few shares of ours beyond what they look anyway.
        """
        if not self.among_others:
            self.turns = 1.0
            return wanted
        lately = [(self.ticks - 1 - k) % SLOTS for k in range(min(LATELY, len(self.polls)))]
        others = (sum(self.looks[-LATELY:]) - sum(self.polls[-LATELY:])) / (7 * float(self.timetable[lately].sum()))
        for_budget = self.budget_per_day * sum(self.looks[-PART:]) / max(sum(self.polls[-PART:]), 1)
        guess = for_budget + wanted - self.budget_per_day
        of_all = min(guess, GROWTH * (others + wanted))
        self.turns = min(IN_LINE * wanted / of_all, 1.0)
        return of_all

    def _write_timetable(self) -> None:
        """Learn from each whole day when polls would be made at one price: from what was spent, and how the price moved."""
        if self.ticks % PER_DAY:
            return
        usual = sum(self.foretold) / len(self.foretold)
        day = np.array(self.looks[-PER_DAY:]) * usual / np.maximum(self.foretold[-PER_DAY:], 1e-9)
        mean = sum(self.looks) / len(self.looks) * SLOTS
        if day.sum() == 0 or mean == 0:
            return
        table = self.timetable.reshape(7, PER_DAY)
        today = (self.ticks // PER_DAY - 1) % 7
        table[today] += TIMETABLE_NEWS * (day / mean - table[today])
        self.timetable = self.timetable / self.timetable.sum()
