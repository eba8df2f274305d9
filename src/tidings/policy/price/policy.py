"""The policy `price`, which polls a feed when waiting longer would cost more than a poll.

The price of a poll is the Lagrange multiplier of the budget, in weighted post-days of delay, and
the same for all feeds. After each poll, `lookahead` finds the time of lowest cost for the next one
from the expected rate of the feed (`feed_model`). `controller` adjusts the price so that spending
meets the budget. docs/policy.md derives the policy.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidings.errors import UsageError
from tidings.model import DAY_S, HOUR_S, WEEK_S, Documents, Floats, Rows
from tidings.policy.base import Decisions, Feeds, clamp, reason
from tidings.policy.price.controller import (
    SLOT_S,
    SLOTS_PER_DAY,
    SLOTS_PER_WEEK,
    PriceController,
    price_at_demand,
)
from tidings.policy.price.feed_model import MIN_RHO, VALUE_STEPS, FeedModelPolicy
from tidings.policy.price.lookahead import (
    BINS,
    LookaheadInputs,
    cheapest_poll_times,
    optimal_steady_gap,
)
from tidings.policy.price.serialization import load_shared_state, save_shared_state
from tidings.policy.price.weekly_profile import (
    BUSIEST_HOURS,
    busiest_hours,
    in_chunks,
    mass_between,
    minute_factor,
)
from tidings.reasons import Reason
from tidings.reasons import reason as reason_value

#: Lookahead horizon, in optimal gaps of a feed with a constant rate.
HORIZON_GAPS = 4.0
#: Possible horizons in hours; feeds with the same horizon are decided together.
HORIZONS_H = (48, 120, 336)
#: Feeds from which the demand curve is predicted, and prices of the curve over the current price.
DEMAND_SAMPLE_FEEDS = 1000
CURVE_PRICE_FACTORS = np.geomspace(1 / 64, 64, 25)
#: Relative change of the budget below which a restored price stays in effect.
BUDGET_TOLERANCE = 0.05
#: Growth of the number of feeds above which the price is computed again.
GROWTH_FACTOR = 1.2
#: Rounds of the simulation of a week that finds the first price, its approximate number of polls,
#: and the minimum and maximum number of feeds in it. The week is always complete: the demand of
#: single days differs too much.
SIMULATION_ROUNDS, SIMULATED_POLLS, SIMULATED_FEEDS = 2, 12_000, (60, 300)
#: Factor by which the price must have fallen before the next poll of a feed is decided again.
REPLAN = 1.25
#: Change of the log price for the same, for feeds whose next poll is soon. Spending then responds
#: to the price within hours.
REPLAN_SOON = 0.02
#: Days between fits of the prior, the shared profiles and the values.
REFIT_DAYS = 7
#: Change of the log price after which values are solved again, if peers poll too. The price may
#: then change much within a day.
MAX_LOG_PRICE_DRIFT = np.log(3.0)
#: Share of posts in the busiest hours above which a reason mentions these hours.
MIN_BUSIEST_SHARE = 0.4
#: Shares of posts on weekends below and above which a reason mentions weekdays or weekends. A
#: uniform week has 2/7.
WEEKEND_RARE, WEEKEND_OFTEN = 0.1, 0.6


class PricePolicy(FeedModelPolicy):
    name = "price"
    summary = "when waiting would cost more than a poll, at one price for all feeds (default)"
    budgeted = True
    holds_budget = True
    extends = True
    tick_s = SLOT_S

    controller: PriceController
    #: Number of feeds when the price was computed.
    _feeds_at_pricing = 0
    #: Polls reported by the last tick, and the difference to the controller's count.
    _reported_spent, _spent_offset = 0, 0
    #: Price for which the value functions were solved.
    _values_price = 0.0

    # --- learning --------------------------------------------------------------------------------

    def _learn(self, history: Documents, now: float) -> None:
        rows = np.arange(len(self.feeds))
        posts = self._init_rows(rows, history, now)
        self._fit_shared_profiles()
        self._replay(rows, *posts, now)
        self.rate_model.fit_prior(self.state)
        self._find_price(now)

    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        self._learn_documents(rows, now, seen)
        self._refresh_profiles(rows[seen.new > 0], self.controller.price)

    # --- adding feeds, saving and restoring ------------------------------------------------------

    def extend(self, feeds: Feeds, history: Documents, since: Floats, now: float) -> Rows:
        rows = np.arange(len(self.feeds), len(self.feeds) + len(feeds))
        more = np.zeros(len(feeds), dtype=self.row_dtype)
        more["since"] = since
        self.feeds.extend(feeds)
        self.state = np.concatenate([self.state, more])
        posts = self._init_rows(rows, history, now)
        self._fit_strengths(rows)
        self._replay(rows, *posts, now)
        self._solve_values(rows, self.controller.price)
        if len(self.feeds) > GROWTH_FACTOR * self._feeds_at_pricing:
            self.rate_model.fit_prior(self.state)
            self._fit_shared_profiles()
            self._find_price(now)
        return rows

    def set_budget(self, budget_per_day: float, now: float) -> None:
        self.budget_per_day = budget_per_day
        self._find_price(now)

    def save_shared_state(self) -> bytes:
        return save_shared_state(
            self.controller, self.shared_profiles, self.rate_model.prior, self._feeds_at_pricing
        )

    def restore(
        self,
        feeds: Feeds,
        rows: Sequence[bytes],
        shared_state: bytes,
        budget_per_day: float | None,
        now: float,
    ) -> None:
        size = self.row_dtype.itemsize
        if any(len(row) != size for row in rows) or len(rows) != len(feeds):
            raise UsageError("price: the saved state of feeds is from an incompatible version")
        self.feeds = feeds
        self.state = np.frombuffer(b"".join(rows), dtype=self.row_dtype).copy()
        self.controller, self.shared_profiles, self.rate_model.prior, self._feeds_at_pricing = (
            load_shared_state(shared_state)
        )
        self._spent_offset = self.controller.spent
        self._values_price = self.controller.price
        self.participation = self.controller.participation
        self.budget_per_day = self.controller.budget_per_day * self.scale
        if budget_per_day is None:
            return
        grown = len(feeds) > GROWTH_FACTOR * self._feeds_at_pricing
        if grown or abs(budget_per_day / self.budget_per_day - 1) > BUDGET_TOLERANCE:
            self.set_budget(budget_per_day, now)

    # --- price -----------------------------------------------------------------------------------

    def tick(self, now: float, spent: int) -> Rows | None:
        controller = self.controller
        slot = round((now - controller.started_at) / SLOT_S)
        if slot % SLOTS_PER_DAY == 0 or controller.has_peer_polls:
            controller.prices, controller.demand = self._demand_curve(controller.price)
        self.all_rows_changed = slot % (SLOTS_PER_DAY * REFIT_DAYS) == 0
        if self.all_rows_changed:
            self.rate_model.fit_prior(self.state)
            self._fit_shared_profiles()
            self._solve_all_values()
        self._reported_spent = spent
        peer_polls, self.peer_polls = self.peer_polls, 0
        controller.tick(now, self._spent_offset + spent, peer_polls)
        self.participation = controller.participation
        if (
            controller.has_peer_polls
            and abs(np.log(controller.price / self._values_price)) > MAX_LOG_PRICE_DRIFT
        ):
            self._solve_all_values()
            self.all_rows_changed = True
        decided_price, price = self.state["price"], controller.price
        soon = self.state["next"] < now + 1.5 * SLOT_S
        changed = np.abs(np.log(decided_price / price)) > REPLAN_SOON
        return np.flatnonzero((decided_price > REPLAN * price) | (soon & changed))

    @property
    def has_peer_polls(self) -> bool:
        return self.peer_polls > 0 or self.controller.has_peer_polls

    def _demand_curve(self, around: float) -> tuple[Floats, Floats]:
        """Return prices around the price ``around`` and the predicted polls per day at each price.

        The prediction is for all feeds, each polled at the gap that is optimal for a constant rate.
        """
        n = len(self.feeds)
        rows = self._sample(DEMAND_SAMPLE_FEEDS)
        rate_per_day, losses = self._polled_rate(rows), self._loss_inputs(rows)
        min_gap = self.feeds.min_interval_s[rows] / DAY_S
        max_gap = self.feeds.max_interval_s[rows] / DAY_S

        def polls_per_day(price: float) -> float:
            _, gap = optimal_steady_gap(
                rate_per_day, *losses, self._polls_per_post_day(rows, price), self.loss_days
            )
            return float((1 / np.clip(gap, min_gap, max_gap)).sum())

        demand = [polls_per_day(price) for price in around * CURVE_PRICE_FACTORS]
        return around * CURVE_PRICE_FACTORS, np.array(demand) * (n / max(len(rows), 1))

    def _find_price(self, now: float) -> None:
        """Find the price at which the current feeds use up the budget, and reset the controller.

        The first guess is docs/policy.md Eq. 2 summed over the feeds; then the demand curve and
        simulated weeks refine it.
        """
        budget = max(self.budget_per_day / self.scale, 1e-9)
        rates = self.rate_model.rate_per_day(self.state)
        root_sum = float(np.sqrt(self.feeds.weight * rates / self.feeds.cost).sum())
        price = max(root_sum**2 / (2 * budget**2), 1e-12)
        price = price_at_demand(budget, *self._demand_curve(price))
        polls_per_feed = 7 * budget / max(len(self.feeds), 1)
        sample = self._sample(int(np.clip(SIMULATED_POLLS / polls_per_feed, *SIMULATED_FEEDS)))
        self._solve_values(sample, price)
        for _ in range(SIMULATION_ROUNDS):
            simulated_polls = self._simulate_week(sample, price, now)
            self.controller = PriceController(
                budget,
                len(self.feeds) / budget,
                now,
                *self._demand_curve(price),
                price,
                simulated_polls,
            )
            price *= float(np.clip(simulated_polls.mean() / budget, 0.25, 4.0)) ** 1.5
        self._solve_all_values()
        self._feeds_at_pricing = len(self.feeds)
        self._spent_offset = -self._reported_spent

    def _simulate_week(self, rows: Rows, price: float, now: float) -> Floats:
        """Simulate a week at one price and return the polls per day in each of its slots.

        The feeds ``rows`` represent all feeds, and post at their expected rates.
        """
        end = now + WEEK_S
        saved_state, profile = self.state[rows].copy(), self._weekly_profile(rows)
        saved_earliest = self.feeds.earliest[rows]
        polls = np.zeros(SLOTS_PER_WEEK)
        start = np.full(len(rows), now)
        due = clamp(self.feeds, rows, start, self._choose(rows, start, True, price, profile).times)
        active = np.flatnonzero(due < end)
        while len(active):
            slot = ((due[active] - now) / SLOT_S).astype(np.int64)
            np.add.at(polls, slot, 1.0)
            polled, at = rows[active], due[active]
            self.state["last"][polled] = at
            self.feeds.earliest[polled] = at + self.feeds.min_interval_s[polled]
            chosen = self._choose(polled, at, False, price, profile[active]).times
            due[active] = np.maximum(clamp(self.feeds, polled, at, chosen), at + 1.0)
            active = active[due[active] < end]
        self.state[rows], self.feeds.earliest[rows] = saved_state, saved_earliest
        return polls * SLOTS_PER_DAY * len(self.feeds) / max(len(rows), 1)

    def _solve_all_values(self) -> None:
        self._values_price = self.controller.price
        self._solve_values(np.arange(len(self.feeds)), self._values_price)

    # --- decisions -------------------------------------------------------------------------------

    def _choose(
        self,
        rows: Rows,
        now: Floats,
        first: bool,
        price: float | None = None,
        profile: Floats | None = None,
    ) -> Decisions:
        """Return the cheapest time of the next poll of each row at ``price``.

        By default ``price`` is the current price and ``profile`` is computed from the state.
        """
        times, expected = np.empty(len(rows)), np.empty(len(rows))
        busiest = np.empty((len(rows), 3))
        price = self.controller.price if price is None else price
        scale = self._polls_per_post_day(rows, price)
        rate_per_day = self._polled_rate(rows)
        cost, gap = optimal_steady_gap(
            rate_per_day, *self._loss_inputs(rows), scale, self.loss_days
        )
        horizon = np.searchsorted(
            HORIZONS_H[:-1], np.minimum(HORIZON_GAPS * gap * 24, HORIZONS_H[-1])
        )
        for h, hours in enumerate(HORIZONS_H):
            group = np.flatnonzero(horizon == h)
            for part in in_chunks(group):
                own = self._weekly_profile(rows[part]) if profile is None else profile[part]
                inputs = self._lookahead_inputs(
                    rows[part], now[part], rate_per_day[part], scale[part], cost[part], own
                )
                times[part], expected[part] = cheapest_poll_times(inputs, hours, self.loss_days)
                busiest[part] = busiest_hours(inputs.profile)
        not_worth_polling = np.isinf(gap)
        times[not_worth_polling] = now[not_worth_polling] + HORIZONS_H[-1] * HOUR_S
        if first:
            # Start in the middle of a gap, as if polling had been running: spending is then uniform
            # from the first hour on, and polls are spread.
            times = now + self.feeds.phase[rows] * (times - now)
        self.state["next"][rows] = times
        # A feed that is not worth a poll is decided again as soon as the price falls at all.
        self.state["price"][rows] = np.where(not_worth_polling, REPLAN, 1.0) * price
        return Decisions(times, **reason(0, expected, rate_per_day, *busiest.T, n=len(rows)))

    def _lookahead_inputs(
        self,
        rows: Rows,
        now: Floats,
        rate_per_day: Floats,
        scale: Floats,
        cost: Floats,
        profile: Floats,
    ) -> LookaheadInputs:
        state = self.state[rows]
        decrease = state["value"] * (state["value_top"] / VALUE_STEPS)[:, None].astype(np.float64)
        if not self.lookahead:
            decrease = np.full_like(decrease, np.sqrt(2) / 24)
        # The stored values do not include losses. Their cost is added in proportion to the profile.
        rho = np.maximum(scale * rate_per_day, MIN_RHO)
        decrease *= np.sqrt(rho)[:, None]
        decrease += ((cost - np.sqrt(2 * rho)) / 24)[:, None] * profile
        window, fano, batch = self._loss_inputs(rows)
        late = now - state["last"] > 1.0
        pending_posts = (
            rate_per_day * mass_between(profile, state["last"], now) / 24
            if late.any()
            else np.zeros(len(rows))
        )
        return LookaheadInputs(
            now=now,
            rate_per_day=rate_per_day,
            profile=profile,
            minutes=minute_factor(state["minutes"].astype(np.float64), state["events"])
            if self.minutes
            else np.ones((len(rows), BINS)),
            value_decrease=decrease,
            pending_posts=pending_posts,
            scale=scale,
            window=window,
            fano=fano,
            batch=batch,
            earliest=self.feeds.earliest[rows],
            skip=None if self.feeds.skip is None else self.feeds.skip[rows],
            phase=self.feeds.phase[rows],
        )

    def reason(self, code: int, numbers: npt.NDArray[np.float32]) -> Reason:
        expected, per_day, hour, share, weekend = (float(number) for number in numbers)
        days = "all"
        if weekend < WEEKEND_RARE:
            days = "weekdays"
        elif weekend > WEEKEND_OFTEN:
            days = "weekends"
        hours = {}
        if share > MIN_BUSIEST_SHARE:
            hours = {"from_hour": int(hour), "to_hour": (int(hour) + BUSIEST_HOURS) % 24}
        expected, per_day = float(f"{expected:.3g}"), float(f"{per_day:.3g}")
        return reason_value("price", days=days, **hours, per_day=per_day, expected=expected)
