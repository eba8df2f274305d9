"""`price`: poll a feed when the delay that waiting would add is worth a poll, at one price for all feeds.

For every feed the policy keeps a rate_per_day that forgets (`rate_per_day`) and a weekly profile (`profile`): together an expected rate at any
time. After each poll it looks ahead and takes the moment that costs least (`lookahead`), all in units of the price that the
controller moves (`control`). docs/policy.md derives it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidings.errors import UsageError
from tidings.model import DAY_S, HOUR_S, WEEK_S, Documents, Floats, Rows
from tidings.policy.base import Decisions, Feeds, Policy, clamp, reason
from tidings.policy.price.controller import (
    SLOT_S,
    SLOTS_PER_DAY,
    SLOTS_PER_WEEK,
    PriceController,
    price_at_demand,
)
from tidings.policy.price.decayed_counts import count_posts, decay_counts
from tidings.policy.price.lookahead import (
    BINS,
    LookaheadInputs,
    cheapest_poll_times,
    optimal_steady_gap,
)
from tidings.policy.price.rate_model import NO_DECAY_D, STATE_FIELDS, RateModel
from tidings.policy.price.serialization import load_shared_state, save_shared_state
from tidings.policy.price.value_function import HOURS_PER_WEEK, value_decrease
from tidings.policy.price.weekly_profile import (
    BUSIEST_HOURS,
    LAYERS,
    SharedProfiles,
    TemperedCounts,
    busiest_hours,
    fit_profiles,
    fit_strength_prior,
    hours_between,
    in_chunks,
    leave_one_out_strengths,
    mass_between,
    minute_factor,
    responsibilities,
    weekly_profile,
)
from tidings.reasons import Reason
from tidings.reasons import reason as reason_value

#: What a lost post is charged beyond its wait, in days.
LOSS_DAYS = 1.0
#: How far ahead to look, in steady gaps, and the horizons offered (hours); feeds of one horizon are decided together.
HORIZON_GAPS = 4.0
HORIZONS_H = (48, 120, 336)
#: Feeds from which the demand curve is foretold, and its prices around the present one.
DEMAND_SAMPLE_FEEDS = 1000
#: Feeds from which the shared shapes are learned, at most.
PROFILE_SAMPLE_FEEDS = 5000
#: A budget that is off by less is not worth finding the price anew when all is restored.
BUDGET_TOLERANCE = 0.05
#: When the feeds are so many times as many as they were, the price is found anew.
GROWTH_FACTOR = 1.2
#: The first price is found by rehearsing a week with so many feeds, so often.
SIMULATED_FEEDS, SIMULATION_ROUNDS = 300, 2
#: It lasts a week, or until a feed has been polled so often.
SIMULATED_POLLS_PER_FEED = 14
CURVE_PRICE_FACTORS = np.geomspace(1 / 64, 64, 25)
#: A feed is decided anew before its time when the price has fallen by this factor since; feeds that are soon to be polled when
#: it has moved by so much (in log), so that spending answers to the price within hours.
REPLAN = 1.25
REPLAN_SOON = 0.02
REFIT_DAYS = 7
#: History is replayed in days since then, and in weeks before.
DAILY_REPLAY_S = 28 * DAY_S
#: Values are kept in so many steps; and solved for so many feeds at a time, none of them slower than a post in years.
VALUE_STEPS = 255
VALUE_CHUNK_ROWS = 1000
MIN_RHO = 1e-5
#: Where others look as well the price may move far in a day: values are solved anew when it has by so much (in log).
MAX_LOG_PRICE_DRIFT = np.log(3.0)
#: A habit is told where this share of posts falls into so many hours of the day; weekends hold 2/7 of an even week.
MIN_BUSIEST_SHARE = 0.4
WEEKEND_RARE, WEEKEND_OFTEN = 0.1, 0.6


class PricePolicy(Policy):
    name = "price"
    summary = "when waiting longer would cost more than a poll, at one price for all feeds (ours)"
    budgeted = True
    holds_budget = True
    extends = True
    tick_s = SLOT_S

    def __init__(
        self,
        *,
        loss_days: float = LOSS_DAYS,
        forget: bool = True,
        weekly: bool = True,
        shrink: bool = True,
        minutes: bool = True,
        bursts: bool = True,
        lookahead: bool = True,
        loss: bool = True,
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        """The switches leave out one part each, to show what it is worth (`tidings lab ablate`)."""
        super().__init__(scale=scale, seed=seed)
        if not loss_days >= 0:
            raise UsageError(f"price: loss_days must be 0 or more, not {loss_days}")
        self.loss_days = loss_days
        self.weekly, self.shrink, self.minutes = weekly, shrink, minutes
        self.bursts, self.lookahead, self.loss = bursts, lookahead, loss
        self.rate_model = RateModel() if forget else RateModel(half_lives_d=NO_DECAY_D)
        self.shared_profiles: SharedProfiles
        self.controller: PriceController
        self._feeds_at_pricing = 0
        self._reported_spent, self._spent_offset = (
            0,
            0,
        )  # by the last tick; what the controller counts beyond that
        self._values_price = 0.0  # the price of the values of time

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        return np.dtype(
            [
                ("since", "f8"),
                ("last", "f8"),  # everything until then was collected, or is lost
                ("newest", "f8"),
                ("next", "f8"),
                ("price", "f8"),  # at which that was decided
                ("hours", "f4", (HOURS_PER_WEEK,)),
                ("minutes", "f4", (BINS,)),
                (
                    "batches",
                    "f4",
                ),  # in how many batches, bursts and different days the posts counted came
                ("events", "f4"),
                ("post_days", "f4"),
                ("strengths", "f4", (LAYERS,)),
                ("value", "u1", (HOURS_PER_WEEK,)),  # its fall per hour, in steps of its greatest
                ("value_top", "f4"),
                *STATE_FIELDS,
            ]
        )

    # --- learning ------------------------------------------------------------------------------------------------------

    def _learn(self, history: Documents, now: float) -> None:
        everyone = np.arange(len(self.feeds))
        posts = self._init_rows(everyone, history)
        self._fit_shared_profiles()
        self._replay(everyone, *posts, now)
        self.rate_model.fit_prior(self.state)
        self._find_price(now)

    def _init_rows(self, rows: Rows, history: Documents) -> tuple[Rows, Floats]:
        """Set up the records of new feeds and count their posts, which are returned with their rows."""
        new_rows = self.state[rows]
        new_rows["last"] = new_rows["since"]
        new_rows["newest"] = -np.inf
        new_rows["price"] = np.inf
        self.rate_model.initialize(new_rows)
        self.state[rows] = new_rows
        index, times = history.new_entries()
        count_posts(self.state, rows[index], times)
        return rows[index], times

    def _find_price(self, now: float) -> None:
        """Find the price at which the feeds of today spend the budget."""
        budget = max(self.budget_per_day / self.scale, 1e-9)
        wish = float(
            np.sqrt(
                self.feeds.weight * self.rate_model.rate_per_day(self.state) / self.feeds.cost
            ).sum()
        )
        price = max(wish**2 / (2 * budget**2), 1e-12)
        price = price_at_demand(budget, *self._demand_curve(price))
        self._solve_values(self._sample(SIMULATED_FEEDS), price)
        for _ in range(SIMULATION_ROUNDS):
            simulated_polls = self._simulate_week(price, now)
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

    def _simulate_week(self, price: float, now: float) -> Floats:
        """Polls a day in each slot of a week at one price, when nothing happens but what is expected.

        Where polls are many, a few days say enough; the others are taken to be like them.
        """
        n = len(self.feeds)
        rows = self._sample(SIMULATED_FEEDS)
        days = int(
            np.clip(np.ceil(SIMULATED_POLLS_PER_FEED * n / max(self.budget_per_day, 1e-9)), 1, 7)
        )
        end = now + days * DAY_S
        kept, profile = self.state[rows].copy(), self._weekly_profile(rows)
        earliest = self.feeds.earliest[rows]
        polls = np.zeros(days * SLOTS_PER_DAY)
        begin = np.full(len(rows), now)
        due = clamp(self.feeds, rows, begin, self._choose(rows, begin, True, price, profile).times)
        playing = np.flatnonzero(due < end)
        while len(playing):
            slot = ((due[playing] - now) / SLOT_S).astype(np.int64)
            np.add.at(polls, slot, 1.0)
            polled, at = rows[playing], due[playing]
            self.state["last"][polled] = at
            self.feeds.earliest[polled] = at + self.feeds.min_interval_s[polled]
            chosen = self._choose(polled, at, False, price, profile[playing]).times
            due[playing] = np.maximum(clamp(self.feeds, polled, at, chosen), at + 1.0)
            playing = playing[due[playing] < end]
        self.state[rows], self.feeds.earliest[rows] = kept, earliest
        return np.resize(polls, SLOTS_PER_WEEK) * SLOTS_PER_DAY * n / max(len(rows), 1)

    def _replay(self, who: Rows, rows: Rows, times: Floats, now: float) -> None:
        """The rate_per_day of ``who``, as looks through their history would have shown it: once a day, and long ago once a week."""
        begin = float(self.state["since"][who].min()) if len(who) else now
        weeks = int(max(now - begin - DAILY_REPLAY_S, 0.0) // WEEK_S)
        days = (
            begin
            + weeks * WEEK_S
            + DAY_S * np.arange(1, np.ceil((now - begin - weeks * WEEK_S) / DAY_S) + 1)
        )
        poll_times = np.minimum(np.append(begin + WEEK_S * np.arange(1, weeks + 1), days), now)
        seen = np.searchsorted(poll_times, times, side="right")  # at which look
        usable = np.flatnonzero((times >= begin) & (seen < len(poll_times)))
        order = usable[np.argsort(rows[usable], kind="stable")]
        for part in in_chunks(np.sort(who)):
            profile = self._weekly_profile(part)  # the same at all looks
            own = order[slice(*np.searchsorted(rows[order], (part[0], part[-1] + 1)))]
            cell = np.searchsorted(part, rows[own]) * len(poll_times) + seen[own]
            posts = (
                np.bincount(cell, minlength=len(part) * len(poll_times))
                .reshape(len(part), len(poll_times))
                .astype(np.float64)
            )
            for k, at in enumerate(poll_times.tolist()):
                born = np.flatnonzero(self.state["last"][part] < at)
                since = self.state["last"][part[born]]
                self._update_rates(
                    part[born], np.full(len(born), at), posts[born, k], since, since, profile[born]
                )

    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        state = self.state
        begin = state["last"][rows]
        decay_counts(state, rows, now - begin)
        known_from = np.where(seen.gap, seen.oldest(), begin)
        self._update_rates(
            rows, now, seen.new.astype(np.float64), begin, known_from, self._weekly_profile(rows)
        )
        index, times = seen.new_entries()
        count_posts(self.state, rows[index], times)
        self._refresh_profiles(rows[seen.new > 0])

    def _refresh_profiles(self, rows: Rows) -> None:
        """After new posts. Where a layer holds otherwise than before, the week looks different, and time has another value."""
        before = self.state["strengths"][rows]
        self._fit_strengths(rows)
        changed = rows[(self.state["strengths"][rows] != before).any(axis=1)]
        self._solve_values(changed, self.controller.price)

    def _update_rates(
        self,
        rows: Rows,
        now: Floats,
        posts: Floats,
        begin: Floats,
        known_from: Floats,
        profile: Floats,
    ) -> None:
        """``posts`` were seen at ``now``. Where they are a full window they sample the time since ``known_from`` only."""
        days = mass_between(profile, begin, now) / 24
        gap = np.flatnonzero(known_from > begin)
        if len(gap):
            unseen = days[gap] - mass_between(profile[gap], known_from[gap], now[gap]) / 24
            batch = self._loss_inputs(rows[gap])[2]
            seen, rate = self.rate_model.estimate_from_full_window(
                self.state[rows[gap]], posts[gap], days[gap] - unseen, batch
            )
            posts = posts.copy()
            posts[gap] = seen + rate * unseen
            # The pattern too: busy hours, of which least is seen, would look like quiet ones.
            among = profile[gap] * hours_between(begin[gap], known_from[gap])
            self.state["hours"][rows[gap]] += among * (rate / 24)[:, None]
            self.state["batches"][rows[gap]] += rate * unseen / batch
        self.rate_model.update(self.state, rows, posts, days, now - self.state["last"][rows])
        self.state["last"][rows] = now

    def _tempered_counts(self, rows: Rows) -> TemperedCounts:
        hours = self.state["hours"][rows].astype(np.float64)
        events = self.state["events"][rows] if self.bursts else hours.sum(axis=1)
        return TemperedCounts.of(hours, events, self.state["post_days"][rows])

    def _fit_strengths(self, rows: Rows) -> None:
        """How strongly the layers of these feeds' patterns hold, after new posts."""
        for part in in_chunks(rows):
            evidence = self._tempered_counts(part)
            z = responsibilities(evidence.hours, self.shared_profiles)
            self.state["strengths"][part] = (
                leave_one_out_strengths(evidence, z, self.shared_profiles)[0]
                if self.shrink
                else 1.0
            )

    def _weekly_profile(self, rows: Rows) -> Floats:
        """Weekly profile of each row."""
        evidence = self._tempered_counts(rows)
        z = responsibilities(evidence.hours, self.shared_profiles)
        profile = weekly_profile(
            evidence, z, self.state["strengths"][rows].astype(np.float64), self.shared_profiles
        )
        return profile if self.weekly else _average_weekdays(profile)

    def _fit_shared_profiles(self) -> None:
        """What feeds learn from each other: cluster shapes, and how strongly they hold."""
        some = self._sample(PROFILE_SAMPLE_FEEDS)
        shapes = fit_profiles(self._tempered_counts(some).hours, seed=self.seed)
        self.shared_profiles = fit_strength_prior(self._tempered_counts, some, shapes)
        self._fit_strengths(np.arange(len(self.feeds)))

    def _solve_all_values(self) -> None:
        self._values_price = self.controller.price
        self._solve_values(np.arange(len(self.feeds)), self._values_price)

    def _solve_values(self, rows: Rows, price: float) -> None:
        """The value of time of these feeds at a price."""
        for begin in range(0, len(rows), VALUE_CHUNK_ROWS):
            part = rows[begin : begin + VALUE_CHUNK_ROWS]
            rho = self._polls_per_post_day(part, price) * self._polled_rate(part)
            fall = value_decrease(self._weekly_profile(part), np.maximum(rho, MIN_RHO))
            top = fall.max(axis=1)
            self.state["value_top"][part] = top
            self.state["value"][part] = np.rint(fall / top[:, None] * VALUE_STEPS)

    # --- more feeds, and going on later --------------------------------------------------------------------------------

    def extend(self, feeds: Feeds, history: Documents, since: Floats, now: float) -> Rows:
        rows = np.arange(len(self.feeds), len(self.feeds) + len(feeds))
        more = np.zeros(len(feeds), dtype=self.row_dtype)
        more["since"] = since
        self.feeds.extend(feeds)
        self.state = np.concatenate([self.state, more])
        posts = self._init_rows(rows, history)
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
        shared: bytes,
        budget_per_day: float | None,
        now: float,
    ) -> None:
        size = self.row_dtype.itemsize
        if any(len(row) != size for row in rows) or len(rows) != len(feeds):
            raise UsageError("price: the saved estimates are not of this version")
        self.feeds = feeds
        self.state = np.frombuffer(b"".join(rows), dtype=self.row_dtype).copy()
        self.controller, self.shared_profiles, self.rate_model.prior, self._feeds_at_pricing = (
            load_shared_state(shared)
        )
        self._spent_offset, self._values_price, self.participation = (
            self.controller.spent,
            self.controller.price,
            self.controller.participation,
        )
        self.budget_per_day = self.controller.budget_per_day * self.scale
        if budget_per_day is None:
            return
        grown = len(feeds) > GROWTH_FACTOR * self._feeds_at_pricing
        if grown or abs(budget_per_day / self.budget_per_day - 1) > BUDGET_TOLERANCE:
            self.set_budget(budget_per_day, now)

    # --- the price -----------------------------------------------------------------------------------------------------

    def tick(self, now: float, spent: int) -> Rows | None:
        slot = round((now - self.controller.started_at) / SLOT_S)
        if slot % SLOTS_PER_DAY == 0 or self.controller.has_peer_polls:
            self.controller.prices, self.controller.demand = self._demand_curve(
                self.controller.price
            )
        self.all_rows_changed = slot % (SLOTS_PER_DAY * REFIT_DAYS) == 0
        if self.all_rows_changed:
            self.rate_model.fit_prior(self.state)
            self._fit_shared_profiles()
            self._solve_all_values()
        self._reported_spent = spent
        peer_polls, self.peer_polls = self.peer_polls, 0
        self.controller.tick(now, self._spent_offset + spent, peer_polls)
        self.participation = self.controller.participation
        if (
            self.controller.has_peer_polls
            and abs(np.log(self.controller.price / self._values_price)) > MAX_LOG_PRICE_DRIFT
        ):
            self._solve_all_values()
            self.all_rows_changed = True
        was, price = self.state["price"], self.controller.price
        soon = self.state["next"] < now + 1.5 * SLOT_S
        return np.flatnonzero(
            (was > REPLAN * price) | (soon & (np.abs(np.log(was / price)) > REPLAN_SOON))
        )

    @property
    def has_peer_polls(self) -> bool:
        return self.peer_polls > 0 or self.controller.has_peer_polls

    def _demand_curve(self, around: float) -> tuple[Floats, Floats]:
        """Polls a day of all feeds at prices around one, each feed polled at its best steady gap."""
        n = len(self.feeds)
        rows = self._sample(DEMAND_SAMPLE_FEEDS)
        rate_per_day, losses = self._polled_rate(rows), self._loss_inputs(rows)
        shortest, longest = (
            self.feeds.min_interval_s[rows] / DAY_S,
            self.feeds.max_interval_s[rows] / DAY_S,
        )

        def polls_per_day(price: float) -> float:
            _, gap = optimal_steady_gap(
                rate_per_day, *losses, self._polls_per_post_day(rows, price), self.loss_days
            )
            return float((1 / np.clip(gap, shortest, longest)).sum())

        demand = [polls_per_day(price) for price in around * CURVE_PRICE_FACTORS]
        return around * CURVE_PRICE_FACTORS, np.array(demand) * (n / max(len(rows), 1))

    def _sample(self, most: int) -> Rows:
        n = len(self.feeds)
        return (
            np.arange(n)
            if n <= most
            else np.random.default_rng(self.seed).choice(n, most, replace=False)
        )

    def _polled_rate(self, rows: Rows) -> Floats:
        """Posts a day that polls are for: what is pushed comes by itself."""
        return self.rate_model.rate_per_day(self.state[rows]) * (1 - self.feeds.pushed_share[rows])

    def _loss_inputs(self, rows: Rows) -> tuple[Floats, Floats, Floats]:
        """What losses depend on: window, scatter of counts, posts that come at once."""
        state = self.state[rows]
        window = (
            self.feeds.window[rows].astype(np.float64) if self.loss else np.full(len(rows), np.inf)
        )
        if not self.bursts:
            return window, np.ones(len(rows)), np.ones(len(rows))
        posts = state["hours"].sum(axis=1, dtype=np.float64)
        return (
            window,
            self.rate_model.fano(state),
            np.maximum(posts / np.maximum(state["batches"], 1.0), 1.0),
        )

    def _polls_per_post_day(self, rows: Rows, price: float) -> Floats:
        return self.feeds.weight[rows] / (price * self.feeds.cost[rows])

    # --- deciding ------------------------------------------------------------------------------------------------------

    def _choose(
        self,
        rows: Rows,
        now: Floats,
        first: bool,
        price: float | None = None,
        profile: Floats | None = None,
    ) -> Decisions:
        """Best moments at a price, that of now if none is given; ``profile`` is worked out where it is not known."""
        times, expected, habit = np.empty(len(rows)), np.empty(len(rows)), np.empty((len(rows), 3))
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
                outlook = self._lookahead_inputs(
                    rows[part], now[part], rate_per_day[part], scale[part], cost[part], own
                )
                times[part], expected[part] = cheapest_poll_times(outlook, hours, self.loss_days)
                habit[part] = busiest_hours(outlook.profile)
        given_up = np.isinf(gap)
        times[given_up] = now[given_up] + HORIZONS_H[-1] * HOUR_S
        if (
            first
        ):  # as if polling had gone on for ever: no herd, and spending is even from the first hour
            times = now + self.feeds.phase[rows] * (times - now)
        self.state["next"][rows] = times
        # A feed that was given up is thought of again as soon as the price falls at all.
        self.state["price"][rows] = np.where(given_up, REPLAN, 1.0) * price
        return Decisions(times, **reason(0, expected, rate_per_day, *habit.T, n=len(rows)))

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
        fall = state["value"] * (state["value_top"] / VALUE_STEPS)[:, None].astype(np.float64)
        if not self.lookahead:
            fall = np.full_like(fall, np.sqrt(2) / 24)
        # The table knows no losses: a feed whose window may overflow pays for them too, as its posts come.
        rho = np.maximum(scale * rate_per_day, MIN_RHO)
        fall *= np.sqrt(rho)[:, None]
        fall += ((cost - np.sqrt(2 * rho)) / 24)[:, None] * profile
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
            fall=fall,
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
        days = (
            "weekdays"
            if weekend < WEEKEND_RARE
            else "weekends"
            if weekend > WEEKEND_OFTEN
            else "all"
        )
        habit = (
            {"from_hour": int(hour), "to_hour": (int(hour) + BUSIEST_HOURS) % 24}
            if share > MIN_BUSIEST_SHARE
            else {}
        )
        expected, per_day = float(f"{expected:.3g}"), float(f"{per_day:.3g}")
        return reason_value("price", days=days, **habit, per_day=per_day, expected=expected)


def _average_weekdays(profile: Floats) -> Floats:
    """Weekly shapes (n, 168) with the days of the week made alike."""
    return np.tile(profile.reshape(len(profile), 7, 24).mean(axis=1), (1, 7))
