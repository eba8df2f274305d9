"""`price`: poll a feed when the delay that waiting would add is worth a poll, at one price for all feeds.

For every feed the policy keeps a level that forgets (`level`) and a weekly shape (`shape`): together an expected rate at any
time. After each poll it looks ahead and takes the moment that costs least (`lookahead`), all in units of the price that the
controller moves (`control`). docs/policy.md derives it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tidings.errors import UsageError
from tidings.model import DAY_S, HOUR_S, WEEK_S, Documents, Floats, Rows
from tidings.policy.base import Decisions, Feeds, Policy, clamp, reason
from tidings.policy.price.control import PER_DAY, SLOT_S, SLOTS, Controller, price_of
from tidings.policy.price.counts import count, fade
from tidings.policy.price.level import FIELDS, NEVER_D, Level
from tidings.policy.price.lookahead import BINS, Outlook, look_ahead, steady
from tidings.policy.price.saved import load_shared, save_shared
from tidings.policy.price.shape import (
    HABIT_HOURS,
    LAYERS,
    Evidence,
    Shapes,
    fit_preferred,
    fit_shapes,
    habits,
    hours_between,
    in_parts,
    mass_between,
    minute_factor,
    own_strengths,
    responsibilities,
    weekly_shape,
)
from tidings.policy.price.value import HOURS, fall_of_value
from tidings.reasons import Reason
from tidings.reasons import reason as reason_value

#: What a lost post is charged beyond its wait, in days.
LOSS_DAYS = 1.0
#: How far ahead to look, in steady gaps, and the horizons offered (hours); feeds of one horizon are decided together.
REACH = 4.0
HORIZONS_H = (48, 120, 336)
#: Feeds from which the demand curve is foretold, and its prices around the present one.
SAMPLE = 1000
#: Feeds from which the shared shapes are learned, at most.
SHARING = 5000
#: A budget that is off by less is not worth finding the price anew when all is restored.
BUDGET_OFF = 0.05
#: When the feeds are so many times as many as they were, the price is found anew.
GROWN = 1.2
#: The first price is found by rehearsing a week with so many feeds, so often.
REHEARSED, REHEARSALS = 300, 2
#: It lasts a week, or until a feed has been polled so often.
REHEARSED_POLLS = 14
CURVE = np.geomspace(1 / 64, 64, 25)
#: A feed is decided anew before its time when the price has fallen by this factor since; feeds that are soon to be polled when
#: it has moved by so much (in log), so that spending answers to the price within hours.
REPLAN = 1.25
REPLAN_SOON = 0.02
SHARE_DAYS = 7
#: History is replayed in days since then, and in weeks before.
DAILY_S = 28 * DAY_S
#: Values are kept in so many steps; and solved for so many feeds at a time, none of them slower than a post in years.
VALUE_STEPS = 255
VALUED_TOGETHER = 1000
LEAST_RATIO = 1e-5
#: Where others look as well the price may move far in a day: values are solved anew when it has by so much (in log).
VALUED_WITHIN = np.log(3.0)
#: A habit is told where this share of posts falls into so many hours of the day; weekends hold 2/7 of an even week.
HABIT_SHARE = 0.4
WEEKEND_RARE, WEEKEND_OFTEN = 0.1, 0.6


class Price(Policy):
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
        self.level = Level() if forget else Level(half_lives_d=NEVER_D)
        self.shared: Shapes
        self.control: Controller
        self._feeds_in_market = 0
        self._told_spent, self._spent_before = 0, 0  # by the last tick; what the controller counts beyond that
        self._valued_at = 0.0  # the price of the values of time

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        return np.dtype(
            [
                ("since", "f8"),
                ("last", "f8"),  # everything until then was collected, or is lost
                ("newest", "f8"),
                ("next", "f8"),
                ("price", "f8"),  # at which that was decided
                ("hours", "f4", (HOURS,)),
                ("minutes", "f4", (BINS,)),
                ("batches", "f4"),  # in how many batches, bursts and different days the posts counted came
                ("events", "f4"),
                ("post_days", "f4"),
                ("strengths", "f4", (LAYERS,)),
                ("value", "u1", (HOURS,)),  # its fall per hour, in steps of its greatest
                ("value_top", "f4"),
                *FIELDS,
            ]
        )

    # --- learning ------------------------------------------------------------------------------------------------------

    def _learn(self, history: Documents, now: float) -> None:
        everyone = np.arange(len(self.feeds))
        posts = self._begin(everyone, history)
        self._share()
        self._replay(everyone, *posts, now)
        self.level.fit_prior(self.state)
        self._open_market(now)

    def _begin(self, rows: Rows, history: Documents) -> tuple[Rows, Floats]:
        """Set up the records of new feeds and count their posts, which are returned with their rows."""
        begun = self.state[rows]
        begun["last"] = begun["since"]
        begun["newest"] = -np.inf
        begun["price"] = np.inf
        self.level.begin(begun)
        self.state[rows] = begun
        index, times = history.new_entries()
        count(self.state, rows[index], times)
        return rows[index], times

    def _open_market(self, now: float) -> None:
        """Find the price at which the feeds of today spend the budget."""
        budget = max(self.budget_per_day / self.scale, 1e-9)
        wish = float(np.sqrt(self.feeds.weight * self.level.rate_per_day(self.state) / self.feeds.cost).sum())
        price = max(wish**2 / (2 * budget**2), 1e-12)
        price = price_of(budget, *self._demand(price))
        self._value(self._sample(REHEARSED), price)
        for _ in range(REHEARSALS):
            rehearsed = self._rehearse(price, now)
            self.control = Controller(budget, len(self.feeds) / budget, now, *self._demand(price), price, rehearsed)
            price *= float(np.clip(rehearsed.mean() / budget, 0.25, 4.0)) ** 1.5
        self._value_all()
        self._feeds_in_market = len(self.feeds)
        self._spent_before = -self._told_spent

    def _rehearse(self, price: float, now: float) -> Floats:
        """Polls a day in each slot of a week at one price, when nothing happens but what is expected.

        Where polls are many, a few days say enough; the others are taken to be like them.
        """
        n = len(self.feeds)
        rows = self._sample(REHEARSED)
        days = int(np.clip(np.ceil(REHEARSED_POLLS * n / max(self.budget_per_day, 1e-9)), 1, 7))
        end = now + days * DAY_S
        kept, shape = self.state[rows].copy(), self._shape(rows)
        earliest = self.feeds.earliest[rows]
        polls = np.zeros(days * PER_DAY)
        begin = np.full(len(rows), now)
        due = clamp(self.feeds, rows, begin, self._choose(rows, begin, True, price, shape).times)
        playing = np.flatnonzero(due < end)
        while len(playing):
            slot = ((due[playing] - now) / SLOT_S).astype(np.int64)
            np.add.at(polls, slot, 1.0)
            polled, at = rows[playing], due[playing]
            self.state["last"][polled] = at
            self.feeds.earliest[polled] = at + self.feeds.min_interval_s[polled]
            chosen = self._choose(polled, at, False, price, shape[playing]).times
            due[playing] = np.maximum(clamp(self.feeds, polled, at, chosen), at + 1.0)
            playing = playing[due[playing] < end]
        self.state[rows], self.feeds.earliest[rows] = kept, earliest
        return np.resize(polls, SLOTS) * PER_DAY * n / max(len(rows), 1)

    def _replay(self, who: Rows, rows: Rows, times: Floats, now: float) -> None:
        """The level of ``who``, as looks through their history would have shown it: once a day, and long ago once a week."""
        begin = float(self.state["since"][who].min()) if len(who) else now
        weeks = int(max(now - begin - DAILY_S, 0.0) // WEEK_S)
        days = begin + weeks * WEEK_S + DAY_S * np.arange(1, np.ceil((now - begin - weeks * WEEK_S) / DAY_S) + 1)
        looks = np.minimum(np.append(begin + WEEK_S * np.arange(1, weeks + 1), days), now)
        seen = np.searchsorted(looks, times, side="right")  # at which look
        usable = np.flatnonzero((times >= begin) & (seen < len(looks)))
        order = usable[np.argsort(rows[usable], kind="stable")]
        for part in in_parts(np.sort(who)):
            shape = self._shape(part)  # the same at all looks
            own = order[slice(*np.searchsorted(rows[order], (part[0], part[-1] + 1)))]
            cell = np.searchsorted(part, rows[own]) * len(looks) + seen[own]
            posts = np.bincount(cell, minlength=len(part) * len(looks)).reshape(len(part), len(looks)).astype(np.float64)
            for k, at in enumerate(looks.tolist()):
                born = np.flatnonzero(self.state["last"][part] < at)
                since = self.state["last"][part[born]]
                self._take_in(part[born], np.full(len(born), at), posts[born, k], since, since, shape[born])

    def observe(self, rows: Rows, now: Floats, seen: Documents) -> None:
        state = self.state
        begin = state["last"][rows]
        fade(state, rows, now - begin)
        known_from = np.where(seen.gap, seen.oldest(), begin)
        self._take_in(rows, now, seen.new.astype(np.float64), begin, known_from, self._shape(rows))
        index, times = seen.new_entries()
        count(self.state, rows[index], times)
        self._reshape(rows[seen.new > 0])

    def _reshape(self, rows: Rows) -> None:
        """After new posts. Where a layer holds otherwise than before, the week looks different, and time has another value."""
        before = self.state["strengths"][rows]
        self._hold(rows)
        changed = rows[(self.state["strengths"][rows] != before).any(axis=1)]
        self._value(changed, self.control.price)

    def _take_in(self, rows: Rows, now: Floats, posts: Floats, begin: Floats, known_from: Floats, shape: Floats) -> None:
        """``posts`` were seen at ``now``. Where they are a full window they sample the time since ``known_from`` only."""
        days = mass_between(shape, begin, now) / 24
        gap = np.flatnonzero(known_from > begin)
        if len(gap):
            unseen = days[gap] - mass_between(shape[gap], known_from[gap], now[gap]) / 24
            batch = self._losses(rows[gap])[2]
            seen, rate = self.level.sampled(self.state[rows[gap]], posts[gap], days[gap] - unseen, batch)
            posts = posts.copy()
            posts[gap] = seen + rate * unseen
            # The pattern too: busy hours, of which least is seen, would look like quiet ones.
            among = shape[gap] * hours_between(begin[gap], known_from[gap])
            self.state["hours"][rows[gap]] += among * (rate / 24)[:, None]
            self.state["batches"][rows[gap]] += rate * unseen / batch
        self.level.take_in(self.state, rows, posts, days, now - self.state["last"][rows])
        self.state["last"][rows] = now

    def _evidence(self, rows: Rows) -> Evidence:
        hours = self.state["hours"][rows].astype(np.float64)
        events = self.state["events"][rows] if self.bursts else hours.sum(axis=1)
        return Evidence.of(hours, events, self.state["post_days"][rows])

    def _hold(self, rows: Rows) -> None:
        """How strongly the layers of these feeds' patterns hold, after new posts."""
        for part in in_parts(rows):
            evidence = self._evidence(part)
            z = responsibilities(evidence.hours, self.shared)
            self.state["strengths"][part] = own_strengths(evidence, z, self.shared)[0] if self.shrink else 1.0

    def _shape(self, rows: Rows) -> Floats:
        """Weekly shape of each row."""
        evidence = self._evidence(rows)
        z = responsibilities(evidence.hours, self.shared)
        shape = weekly_shape(evidence, z, self.state["strengths"][rows].astype(np.float64), self.shared)
        return shape if self.weekly else _every_day_alike(shape)

    def _share(self) -> None:
        """What feeds learn from each other: cluster shapes, and how strongly they hold."""
        some = self._sample(SHARING)
        shapes = fit_shapes(self._evidence(some).hours, seed=self.seed)
        self.shared = fit_preferred(self._evidence, some, shapes)
        self._hold(np.arange(len(self.feeds)))

    def _value_all(self) -> None:
        self._valued_at = self.control.price
        self._value(np.arange(len(self.feeds)), self._valued_at)

    def _value(self, rows: Rows, price: float) -> None:
        """The value of time of these feeds at a price."""
        for begin in range(0, len(rows), VALUED_TOGETHER):
            part = rows[begin : begin + VALUED_TOGETHER]
            rho = self._polls_per_post_day(part, price) * self._level(part)
            fall = fall_of_value(self._shape(part), np.maximum(rho, LEAST_RATIO))
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
        posts = self._begin(rows, history)
        self._hold(rows)
        self._replay(rows, *posts, now)
        self._value(rows, self.control.price)
        if len(self.feeds) > GROWN * self._feeds_in_market:
            self.level.fit_prior(self.state)
            self._share()
            self._open_market(now)
        return rows

    def set_budget(self, budget_per_day: float, now: float) -> None:
        self.budget_per_day = budget_per_day
        self._open_market(now)

    def save_shared(self) -> bytes:
        return save_shared(self.control, self.shared, self.level.prior, self._feeds_in_market)

    def restore(self, feeds: Feeds, rows: Sequence[bytes], shared: bytes, budget_per_day: float | None, now: float) -> None:
        size = self.row_dtype.itemsize
        if any(len(row) != size for row in rows) or len(rows) != len(feeds):
            raise UsageError("price: the saved estimates are not of this version")
        self.feeds = feeds
        self.state = np.frombuffer(b"".join(rows), dtype=self.row_dtype).copy()
        self.control, self.shared, self.level.prior, self._feeds_in_market = load_shared(shared)
        self._spent_before, self._valued_at, self.turns = self.control.spent, self.control.price, self.control.turns
        self.budget_per_day = self.control.budget_per_day * self.scale
        if budget_per_day is None:
            return
        grown = len(feeds) > GROWN * self._feeds_in_market
        if grown or abs(budget_per_day / self.budget_per_day - 1) > BUDGET_OFF:
            self.set_budget(budget_per_day, now)

    # --- the price -----------------------------------------------------------------------------------------------------

    def tick(self, now: float, spent: int) -> Rows | None:
        slot = round((now - self.control.started) / SLOT_S)
        if slot % PER_DAY == 0 or self.control.among_others:
            self.control.prices, self.control.demand = self._demand(self.control.price)
        self.renewed = slot % (PER_DAY * SHARE_DAYS) == 0
        if self.renewed:
            self.level.fit_prior(self.state)
            self._share()
            self._value_all()
        self._told_spent = spent
        others, self.others = self.others, 0
        self.control.tick(now, self._spent_before + spent, others)
        self.turns = self.control.turns
        if self.control.among_others and abs(np.log(self.control.price / self._valued_at)) > VALUED_WITHIN:
            self._value_all()
            self.renewed = True
        was, price = self.state["price"], self.control.price
        soon = self.state["next"] < now + 1.5 * SLOT_S
        return np.flatnonzero((was > REPLAN * price) | (soon & (np.abs(np.log(was / price)) > REPLAN_SOON)))

    @property
    def among_others(self) -> bool:
        return self.others > 0 or self.control.among_others

    def _demand(self, around: float) -> tuple[Floats, Floats]:
        """Polls a day of all feeds at prices around one, each feed polled at its best steady gap."""
        n = len(self.feeds)
        rows = self._sample(SAMPLE)
        level, losses = self._level(rows), self._losses(rows)
        shortest, longest = self.feeds.min_interval_s[rows] / DAY_S, self.feeds.max_interval_s[rows] / DAY_S

        def polls_per_day(price: float) -> float:
            _, gap = steady(level, *losses, self._polls_per_post_day(rows, price), self.loss_days)
            return float((1 / np.clip(gap, shortest, longest)).sum())

        demand = [polls_per_day(price) for price in around * CURVE]
        return around * CURVE, np.array(demand) * (n / max(len(rows), 1))

    def _sample(self, most: int) -> Rows:
        n = len(self.feeds)
        return np.arange(n) if n <= most else np.random.default_rng(self.seed).choice(n, most, replace=False)

    def _level(self, rows: Rows) -> Floats:
        """Posts a day that polls are for: what is pushed comes by itself."""
        return self.level.rate_per_day(self.state[rows]) * (1 - self.feeds.pushed[rows])

    def _losses(self, rows: Rows) -> tuple[Floats, Floats, Floats]:
        """What losses depend on: window, scatter of counts, posts that come at once."""
        state = self.state[rows]
        window = self.feeds.window[rows].astype(np.float64) if self.loss else np.full(len(rows), np.inf)
        if not self.bursts:
            return window, np.ones(len(rows)), np.ones(len(rows))
        posts = state["hours"].sum(axis=1, dtype=np.float64)
        return window, self.level.fano(state), np.maximum(posts / np.maximum(state["batches"], 1.0), 1.0)

    def _polls_per_post_day(self, rows: Rows, price: float) -> Floats:
        return self.feeds.weight[rows] / (price * self.feeds.cost[rows])

    # --- deciding ------------------------------------------------------------------------------------------------------

    def _choose(
        self, rows: Rows, now: Floats, first: bool, price: float | None = None, shape: Floats | None = None
    ) -> Decisions:
        """Best moments at a price, that of now if none is given; ``shape`` is worked out where it is not known."""
        times, expected, habit = np.empty(len(rows)), np.empty(len(rows)), np.empty((len(rows), 3))
        price = self.control.price if price is None else price
        scale = self._polls_per_post_day(rows, price)
        level = self._level(rows)
        cost, gap = steady(level, *self._losses(rows), scale, self.loss_days)
        horizon = np.searchsorted(HORIZONS_H[:-1], np.minimum(REACH * gap * 24, HORIZONS_H[-1]))
        for h, hours in enumerate(HORIZONS_H):
            group = np.flatnonzero(horizon == h)
            for part in in_parts(group):
                own = self._shape(rows[part]) if shape is None else shape[part]
                outlook = self._outlook(rows[part], now[part], level[part], scale[part], cost[part], own)
                times[part], expected[part] = look_ahead(outlook, hours, self.loss_days)
                habit[part] = habits(outlook.shape)
        given_up = np.isinf(gap)
        times[given_up] = now[given_up] + HORIZONS_H[-1] * HOUR_S
        if first:  # as if polling had gone on for ever: no herd, and spending is even from the first hour
            times = now + self.feeds.phase[rows] * (times - now)
        self.state["next"][rows] = times
        # A feed that was given up is thought of again as soon as the price falls at all.
        self.state["price"][rows] = np.where(given_up, REPLAN, 1.0) * price
        return Decisions(times, **reason(0, expected, level, *habit.T, n=len(rows)))

    def _outlook(self, rows: Rows, now: Floats, level: Floats, scale: Floats, cost: Floats, shape: Floats) -> Outlook:
        state = self.state[rows]
        fall = state["value"] * (state["value_top"] / VALUE_STEPS)[:, None].astype(np.float64)
        if not self.lookahead:
            fall = np.full_like(fall, np.sqrt(2) / 24)
        # The table knows no losses: a feed whose window may overflow pays for them too, as its posts come.
        rho = np.maximum(scale * level, LEAST_RATIO)
        fall *= np.sqrt(rho)[:, None]
        fall += ((cost - np.sqrt(2 * rho)) / 24)[:, None] * shape
        window, fano, batch = self._losses(rows)
        late = now - state["last"] > 1.0
        waiting = level * mass_between(shape, state["last"], now) / 24 if late.any() else np.zeros(len(rows))
        return Outlook(
            now=now,
            level=level,
            shape=shape,
            minutes=minute_factor(state["minutes"].astype(np.float64), state["events"])
            if self.minutes
            else np.ones((len(rows), BINS)),
            fall=fall,
            waiting=waiting,
            scale=scale,
            window=window,
            fano=fano,
            batch=batch,
            earliest=self.feeds.earliest[rows],
            forbidden=None if self.feeds.forbidden is None else self.feeds.forbidden[rows],
            phase=self.feeds.phase[rows],
        )

    def reason(self, code: int, numbers: npt.NDArray[np.float32]) -> Reason:
        expected, per_day, hour, share, weekend = (float(number) for number in numbers)
        days = "weekdays" if weekend < WEEKEND_RARE else "weekends" if weekend > WEEKEND_OFTEN else "all"
        habit = {"from_hour": int(hour), "to_hour": (int(hour) + HABIT_HOURS) % 24} if share > HABIT_SHARE else {}
        expected, per_day = float(f"{expected:.3g}"), float(f"{per_day:.3g}")
        return reason_value("price", days=days, **habit, per_day=per_day, expected=expected)


def _every_day_alike(shape: Floats) -> Floats:
    """Weekly shapes (n, 168) with the days of the week made alike."""
    return np.tile(shape.reshape(len(shape), 7, 24).mean(axis=1), (1, 7))
