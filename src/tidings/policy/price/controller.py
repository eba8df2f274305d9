"""Feedback controller that sets the price of a poll so that the polls meet the budget.

The price is the same for all feeds. The inputs are a demand curve (predicted polls per day at each
price), the difference between past spending and that prediction, and slot shares: how spending is
distributed over the week. A good schedule polls more by day than by night. Spending is therefore
compared with the slot shares and not with elapsed time, so that small deviations are visible and
can be corrected at once, and any seven days have about the same number of polls.

If peers poll the same feeds and send notices, the demand curve predicts the polls of all nodes
together. The controller then seeks the price at which this node's share of these polls is its
budget.
"""

from dataclasses import dataclass, field

import numpy as np

from tidings.model import DAY_S, WEEK_S, Floats

#: Days in which a deviation from the budget is corrected, in addition to the mean time between
#: polls. (A lower price first moves all planned polls forward by a share of their gaps, then makes
#: them more frequent.)
CATCH_UP_DAYS = 1.0
#: Additional days for the correction in the first week.
FIRST_WEEK_EXTRA_DAYS = 3.0
#: Length of a slot, in which spending is counted, and the number of slots. A week of slots is
#: stored.
SLOT_S = 4 * 3600.0
SLOTS_PER_DAY = 6
SLOTS_PER_WEEK = 7 * SLOTS_PER_DAY
#: Maximum factor by which the price changes per slot.
MAX_PRICE_STEP = 1.25
#: The same if peers poll too. The factor is larger, because the price may have to change much: ten
#: peers poll ten times as often as one node can pay for, at a hundredth of its price.
MAX_PRICE_STEP_WITH_PEERS = 2.0
#: Slots from which the frequency of peers' polls is estimated.
RECENT_SLOTS = 2
#: Slots from which this node's share of all polls is estimated. Shorter periods are too noisy: the
#: price would drift away from that of the peers.
OWN_SHARE_SLOTS = 4 * SLOTS_PER_DAY
#: Maximum ratio of the targeted total polls to the polls of the peers and this node.
MAX_GROWTH = 1.25
#: Target for the mean number of nodes that do not defer a poll. Without it the node with the lowest
#: price, even by a little, would poll for all.
EXPECTED_CONTENDERS = 3.0
#: Maximum deficit that is carried over if peers polled instead of this node, in days of the budget.
MAX_DEFICIT_WITH_PEERS_DAYS = 0.25
#: Weight of the uniform distribution in the first slot shares: simulated weeks vary more over the
#: day than real ones.
UNIFORM_MIX = 0.2
#: Weight of the latest week in the update of a slot share.
SLOT_LEARNING_RATE = 0.3


def price_at_demand(polls_per_day: float, prices: Floats, demand: Floats) -> float:
    """Return the price at which the demand curve predicts ``polls_per_day``.

    Prices have the unit of ``prices``. Outside of the curve, demand is extrapolated in proportion
    to price^-1/2.
    """
    log_demand, log_price = np.log(np.maximum(demand, 1e-12))[::-1], np.log(prices)[::-1]
    target = np.log(max(polls_per_day, 1e-12))
    outside = 2 * (target - np.clip(target, log_demand[0], log_demand[-1]))
    return float(np.exp(np.interp(target, log_demand, log_price) - outside))


@dataclass(slots=True)
class PriceController:
    """Feedback controller of the price of a poll.

    The leader process updates this state, and all workers read it.
    """

    budget_per_day: float
    mean_gap_days: float  #: mean time between polls of a feed
    started_at: float
    prices: Floats  #: prices of the demand curve, increasing
    demand: Floats  #: polls per day at those prices, decreasing
    price: float
    simulated_polls: Floats  #: simulated polls per day at that price, in each slot of a week
    spent: int = 0  #: polls of this node until the last tick
    waived_polls: float = 0.0  #: polls that are not made up for (downtime, polls by peers)
    last_tick: float = 0.0
    tick_count: int = 0
    polls: list[int] = field(default_factory=list)  #: polls of this node in each of the last slots
    #: polls in the last slots, with those that peers reported
    polls_with_peers: list[int] = field(default_factory=list)
    predicted_polls: list[float] = field(default_factory=list)  #: predictions of the demand curve
    slot_shares: Floats = field(init=False)  #: share of a week's polls in each slot
    participation: float = 1.0  #: share of polls that are not deferred to peers
    demand_bias: float = field(init=False)  #: ratio of simulated polls to predicted ones

    def __post_init__(self) -> None:
        self.slot_shares = (
            self.simulated_polls + UNIFORM_MIX * self.simulated_polls.mean() + 1e-9
        ) / ((1 + UNIFORM_MIX) * self.simulated_polls.sum() + SLOTS_PER_WEEK * 1e-9)
        self.demand_bias = float(self.simulated_polls.mean()) / max(self._predicted_demand(), 1e-9)
        self.last_tick = self.started_at

    def _predicted_demand(self) -> float:
        """Return the polls per day that the demand curve predicts at the current price."""
        return float(np.interp(np.log(self.price), np.log(self.prices), self.demand))

    def poll_deficit(self, now: float, spent: int) -> float:
        """Return how many of the polls planned until ``now`` were not made.

        The plan follows the slot shares (share of a week's polls in each slot). The mean lead of
        the plan over uniform spending is subtracted, so that the total is correct at any time of
        the week.
        """
        weeks, part = divmod((now - self.started_at) / WEEK_S, 1.0)
        ends = np.arange(SLOTS_PER_WEEK + 1)
        shares = np.append(0.0, np.cumsum(self.slot_shares))
        planned_weeks = (
            weeks
            + float(np.interp(part * SLOTS_PER_WEEK, ends, shares))
            - float((shares - ends / SLOTS_PER_WEEK).mean())
        )
        return planned_weeks * 7 * self.budget_per_day - self.waived_polls - spent

    def tick(self, now: float, spent: int, peer_polls: int = 0) -> None:
        """Update the price at the end of a slot; the caller runs this once per slot.

        ``spent`` is the number of polls of this node until ``now``, ``peer_polls`` that of peers in
        this slot.
        """
        downtime_s = now - self.last_tick - SLOT_S
        if downtime_s > SLOT_S / 2:  # the service was not running
            self.waived_polls += self.budget_per_day * downtime_s / DAY_S
        self.last_tick = now
        self.polls.append(spent - self.spent)
        self.polls_with_peers.append(spent - self.spent + peer_polls)
        self.predicted_polls.append(self._predicted_demand() / SLOTS_PER_DAY)
        for history in (self.polls, self.polls_with_peers, self.predicted_polls):
            del history[:-SLOTS_PER_WEEK]
        self.spent = spent
        self.tick_count += 1
        if self.has_peer_polls:
            self.waived_polls += max(
                self.poll_deficit(now, spent) - MAX_DEFICIT_WITH_PEERS_DAYS * self.budget_per_day,
                0.0,
            )
        self._update_slot_shares()
        slots = len(self.polls) // SLOTS_PER_DAY * SLOTS_PER_DAY
        # In the first week the result of the simulation is mixed in, as the first days are noisy.
        prior_polls = self.budget_per_day * (1 - slots / SLOTS_PER_WEEK)
        # Polls of peers beyond the prediction say nothing about this node's demand curve, so they
        # are capped.
        counted = [
            max(own, min(total, self.demand_bias * predicted))
            for own, total, predicted in zip(
                self.polls, self.polls_with_peers, self.predicted_polls, strict=True
            )
        ]
        correction = (
            sum(counted[-slots:] if slots else []) + prior_polls * self.demand_bias
        ) / max(sum(self.predicted_polls[-slots:] if slots else []) + prior_polls, 1e-9)
        catch_up = (
            self.mean_gap_days
            + CATCH_UP_DAYS
            + (FIRST_WEEK_EXTRA_DAYS if slots < SLOTS_PER_WEEK else 0.0)
        )
        target = self.budget_per_day + self.poll_deficit(now, spent) / catch_up
        target = min(max(target, 0.5 * self.budget_per_day), 2.0 * self.budget_per_day)
        price = price_at_demand(
            self._total_with_peers(target) / max(correction, 1e-3), self.prices, self.demand
        )
        step = MAX_PRICE_STEP_WITH_PEERS if self.has_peer_polls else MAX_PRICE_STEP
        self.price = float(np.clip(price, self.price / step, self.price * step))

    @property
    def has_peer_polls(self) -> bool:
        """Whether peers reported polls in the last day."""
        return sum(self.polls_with_peers[-SLOTS_PER_DAY:]) > sum(self.polls[-SLOTS_PER_DAY:])

    def _total_with_peers(self, target: float) -> float:
        """Return the polls per day of all nodes at which this node makes ``target`` of them.

        Also sets `participation`. This node's share of the polls of the last days gives the total
        for its budget. Its own deficit is added once and not once per peer: its participation makes
        up for it. The estimate is poor if this node made few polls, and wrong if peers have much
        larger budgets. It is therefore limited to `MAX_GROWTH` times the polls of the peers and
        this node.
        """
        if not self.has_peer_polls:
            self.participation = 1.0
            return target
        recent_slots = [
            (self.tick_count - 1 - k) % SLOTS_PER_WEEK
            for k in range(min(RECENT_SLOTS, len(self.polls)))
        ]
        peer_polls = (
            sum(self.polls_with_peers[-RECENT_SLOTS:]) - sum(self.polls[-RECENT_SLOTS:])
        ) / (7 * float(self.slot_shares[recent_slots].sum()))
        total_for_budget = (
            self.budget_per_day
            * sum(self.polls_with_peers[-OWN_SHARE_SLOTS:])
            / max(sum(self.polls[-OWN_SHARE_SLOTS:]), 1)
        )
        estimate = total_for_budget + target - self.budget_per_day
        total = min(estimate, MAX_GROWTH * (peer_polls + target))
        self.participation = min(EXPECTED_CONTENDERS * target / total, 1.0)
        return total

    def _update_slot_shares(self) -> None:
        """Update the slot shares of the last day, at the end of each day.

        The polls of each slot are corrected for the price, to what a constant price would give.
        """
        if self.tick_count % SLOTS_PER_DAY:
            return
        mean_prediction = sum(self.predicted_polls) / len(self.predicted_polls)
        day = (
            np.array(self.polls_with_peers[-SLOTS_PER_DAY:])
            * mean_prediction
            / np.maximum(self.predicted_polls[-SLOTS_PER_DAY:], 1e-9)
        )
        per_week = sum(self.polls_with_peers) / len(self.polls_with_peers) * SLOTS_PER_WEEK
        if day.sum() == 0 or per_week == 0:
            return
        table = self.slot_shares.reshape(7, SLOTS_PER_DAY)
        today = (self.tick_count // SLOTS_PER_DAY - 1) % 7
        table[today] += SLOT_LEARNING_RATE * (day / per_week - table[today])
        self.slot_shares = self.slot_shares / self.slot_shares.sum()
