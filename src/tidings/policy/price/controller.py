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
FIRST_WEEK_EXTRA_DAYS = 3.0
#: Spending is counted in slots; a week of them is kept.
SLOT_S = 4 * 3600.0
SLOTS_PER_DAY = 6
SLOTS_PER_WEEK = 7 * SLOTS_PER_DAY
#: The price moves by no more than this factor in a slot.
MAX_PRICE_STEP = 1.25
#: Among others it may have to go far, and soon: ten friends look ten times as often as one can pay for, at a hundredth of its
#: price.
MAX_PRICE_STEP_WITH_PEERS = 2.0
#: How often others look is told by so many slots, what part of all looks is ours by so many: a price that follows our luck of a
#: day or two drifts away from the others'.
RECENT_SLOTS, OWN_SHARE_SLOTS = 2, 4 * SLOTS_PER_DAY
#: All together are wanted to look no more often than others do now and we could beside them, times this.
MAX_GROWTH = 1.25
#: So many stand in line for a look, on average: whose price is lowest by a hair does not look for all.
EXPECTED_CONTENDERS = 3.0
#: What was not spent because others looked is made up for up to so much.
MAX_DEFICIT_WITH_PEERS_DAYS = 0.25
#: A rehearsal is sharper than life: so much of evenness is mixed into its timetable.
UNIFORM_MIX = 0.2
#: How much of a slot of the timetable is told anew by the last week.
SLOT_LEARNING_RATE = 0.3


def price_at_demand(polls_per_day: float, prices: Floats, demand: Floats) -> float:
    """The price at which a demand curve has so many polls; a root law beyond its ends."""
    log_demand, log_price = np.log(np.maximum(demand, 1e-12))[::-1], np.log(prices)[::-1]
    wanted = np.log(max(polls_per_day, 1e-12))
    beyond = 2 * (wanted - np.clip(wanted, log_demand[0], log_demand[-1]))
    return float(np.exp(np.interp(wanted, log_demand, log_price) - beyond))


@dataclass(slots=True)
class PriceController:
    """Holds the price. Its whole state is a few dozen numbers: what the leader moves and all workers read."""

    budget_per_day: float
    mean_gap_days: float  #: between polls of a feed
    started_at: float
    prices: Floats  #: of the demand curve, rising
    demand: Floats  #: polls per day at those prices, falling
    price: float
    simulated_polls: (
        Floats  #: polls a day at that price in each slot of a week, as a rehearsal had them
    )
    spent: int = 0
    waived_polls: float = 0.0  #: polls that nobody was there to make
    last_tick: float = 0.0
    tick_count: int = 0
    polls: list[int] = field(default_factory=list)  #: spent in each of the last slots
    polls_with_peers: list[int] = field(
        default_factory=list
    )  #: these, and those of others that we were told of
    predicted_polls: list[float] = field(default_factory=list)  #: what the curve said of them
    slot_shares: Floats = field(init=False)  #: share of a week's polls in each slot
    participation: float = (
        1.0  #: share of looks for which we stand in line, where others look as well
    )
    demand_bias: float = field(
        init=False
    )  #: polls that the rehearsal made for each that the curve foretold

    def __post_init__(self) -> None:
        self.slot_shares = (
            self.simulated_polls + UNIFORM_MIX * self.simulated_polls.mean() + 1e-9
        ) / ((1 + UNIFORM_MIX) * self.simulated_polls.sum() + SLOTS_PER_WEEK * 1e-9)
        self.demand_bias = float(self.simulated_polls.mean()) / max(self._predicted_demand(), 1e-9)
        self.last_tick = self.started_at

    def _predicted_demand(self) -> float:
        """Polls a day that the curve foretells at the present price."""
        return float(np.interp(np.log(self.price), np.log(self.prices), self.demand))

    def poll_deficit(self, now: float, spent: int) -> float:
        """Polls that the timetable has foreseen until ``now`` and that were not made.

        It is ahead of an even spending as often as behind it, so that the total is right whenever one asks.
        """
        weeks, within = divmod((now - self.started_at) / WEEK_S, 1.0)
        ends = np.arange(SLOTS_PER_WEEK + 1)
        shares = np.append(0.0, np.cumsum(self.slot_shares))
        due = (
            weeks
            + float(np.interp(within * SLOTS_PER_WEEK, ends, shares))
            - float((shares - ends / SLOTS_PER_WEEK).mean())
        )
        return due * 7 * self.budget_per_day - self.waived_polls - spent

    def tick(self, now: float, spent: int, peer_polls: int = 0) -> None:
        """Take in what was spent until ``now``, and what ``others`` looked in this slot, and move the price. Once a slot."""
        away_s = now - self.last_tick - SLOT_S
        if away_s > SLOT_S / 2:  # nobody was there
            self.waived_polls += self.budget_per_day * away_s / DAY_S
        self.last_tick = now
        self.polls.append(spent - self.spent)
        self.polls_with_peers.append(spent - self.spent + peer_polls)
        self.predicted_polls.append(self._predicted_demand() / SLOTS_PER_DAY)
        del (
            self.polls[:-SLOTS_PER_WEEK],
            self.polls_with_peers[:-SLOTS_PER_WEEK],
            self.predicted_polls[:-SLOTS_PER_WEEK],
        )
        self.spent = spent
        self.tick_count += 1
        if self.has_peer_polls:
            self.waived_polls += max(
                self.poll_deficit(now, spent) - MAX_DEFICIT_WITH_PEERS_DAYS * self.budget_per_day,
                0.0,
            )
        self._update_slot_shares()
        slots = len(self.polls) // SLOTS_PER_DAY * SLOTS_PER_DAY
        # In the first week a share of the rehearsal's word is mixed in: the first days say little.
        own_word = self.budget_per_day * (1 - slots / SLOTS_PER_WEEK)
        # Where others look more often than we would at our price, that says nothing about our curve.
        slot_by_slot = zip(self.polls, self.polls_with_peers, self.predicted_polls, strict=True)
        counted = [
            max(own, min(polls_with_peers, self.demand_bias * predicted_polls))
            for own, polls_with_peers, predicted_polls in slot_by_slot
        ]
        correction = (sum(counted[-slots:] if slots else []) + own_word * self.demand_bias) / max(
            sum(self.predicted_polls[-slots:] if slots else []) + own_word, 1e-9
        )
        catch_up = (
            self.mean_gap_days
            + CATCH_UP_DAYS
            + (FIRST_WEEK_EXTRA_DAYS if slots < SLOTS_PER_WEEK else 0.0)
        )
        wanted = self.budget_per_day + self.poll_deficit(now, spent) / catch_up
        wanted = min(max(wanted, 0.5 * self.budget_per_day), 2.0 * self.budget_per_day)
        price = price_at_demand(
            self._total_with_peers(wanted) / max(correction, 1e-3), self.prices, self.demand
        )
        step = MAX_PRICE_STEP_WITH_PEERS if self.has_peer_polls else MAX_PRICE_STEP
        self.price = float(np.clip(price, self.price / step, self.price * step))

    @property
    def has_peer_polls(self) -> bool:
        """Whether others have looked in the last day."""
        return sum(self.polls_with_peers[-SLOTS_PER_DAY:]) > sum(self.polls[-SLOTS_PER_DAY:])

    def _total_with_peers(self, wanted: float) -> float:
        """Looks a day of all together, of which ``wanted`` would be ours.

        Our part of the looks of the last days says how many there are for our budget; what we alone owe comes on top once,
        not once for each of the others: that is for our turns to make up for. It is a rough guess where we made few, and none
        where others have far more to spend: hence no more than a few shares of ours beyond what they look anyway.
        """
        if not self.has_peer_polls:
            self.participation = 1.0
            return wanted
        lately = [
            (self.tick_count - 1 - k) % SLOTS_PER_WEEK
            for k in range(min(RECENT_SLOTS, len(self.polls)))
        ]
        peer_polls = (
            sum(self.polls_with_peers[-RECENT_SLOTS:]) - sum(self.polls[-RECENT_SLOTS:])
        ) / (7 * float(self.slot_shares[lately].sum()))
        for_budget = (
            self.budget_per_day
            * sum(self.polls_with_peers[-OWN_SHARE_SLOTS:])
            / max(sum(self.polls[-OWN_SHARE_SLOTS:]), 1)
        )
        guess = for_budget + wanted - self.budget_per_day
        of_all = min(guess, MAX_GROWTH * (peer_polls + wanted))
        self.participation = min(EXPECTED_CONTENDERS * wanted / of_all, 1.0)
        return of_all

    def _update_slot_shares(self) -> None:
        """Learn from each whole day when polls would be made at one price: from what was spent, and how the price moved."""
        if self.tick_count % SLOTS_PER_DAY:
            return
        usual = sum(self.predicted_polls) / len(self.predicted_polls)
        day = (
            np.array(self.polls_with_peers[-SLOTS_PER_DAY:])
            * usual
            / np.maximum(self.predicted_polls[-SLOTS_PER_DAY:], 1e-9)
        )
        mean = sum(self.polls_with_peers) / len(self.polls_with_peers) * SLOTS_PER_WEEK
        if day.sum() == 0 or mean == 0:
            return
        table = self.slot_shares.reshape(7, SLOTS_PER_DAY)
        today = (self.tick_count // SLOTS_PER_DAY - 1) % 7
        table[today] += SLOT_LEARNING_RATE * (day / mean - table[today])
        self.slot_shares = self.slot_shares / self.slot_shares.sum()
