"""Part of the policy `price` that learns the rate, weekly profile and values of feeds."""

import numpy as np

from tidings.errors import UsageError
from tidings.model import DAY_S, WEEK_S, Documents, Floats, Rows
from tidings.policy.base import HOURS_PER_WEEK, Policy
from tidings.policy.price.decayed_counts import count_posts, decay_counts
from tidings.policy.price.lookahead import BINS
from tidings.policy.price.rate_model import NO_DECAY_D, STATE_FIELDS, RateModel
from tidings.policy.price.value_function import value_decrease
from tidings.policy.price.weekly_profile import (
    LAYERS,
    SharedProfiles,
    TemperedCounts,
    fit_profiles,
    fit_strength_prior,
    hours_between,
    in_chunks,
    leave_one_out_strengths,
    mass_between,
    responsibilities,
    unobserved_posts,
    weekly_profile,
)

#: Penalty for a missed post in addition to its wait, in days.
LOSS_DAYS = 1.0
#: Maximum number of feeds from which the shared profiles are fitted.
PROFILE_SAMPLE_FEEDS = 5000
#: Length of the most recent history that is replayed day by day. Older history is replayed by week.
DAILY_REPLAY_S = 28 * DAY_S
#: Quantization steps of the stored value function.
VALUE_STEPS = 255
#: Feeds for which the value function is solved together.
VALUE_CHUNK_ROWS = 1000
#: Minimum of rho (`value_function`), for feeds that post less than once in years.
MIN_RHO = 1e-5


class FeedModelPolicy(Policy):
    """Base class of `price`, which learns the rate, weekly profile and values of each feed.

    The weekly profile is the expected rate of posts by hour of the week. `value_function` defines
    the values.
    """

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
        """Initialize the policy.

        Each boolean parameter set to false disables one part (`tidings lab ablate`). ``loss_days``
        is the penalty for a missed post in addition to its wait, in days. Raises `UsageError` if it
        is negative.
        """
        super().__init__(scale=scale, seed=seed)
        if not loss_days >= 0:
            raise UsageError(f"price: loss_days must be 0 or more, not {loss_days}")
        self.loss_days = loss_days
        self.weekly, self.shrink, self.minutes = weekly, shrink, minutes
        self.bursts, self.lookahead, self.loss = bursts, lookahead, loss
        self.rate_model = RateModel() if forget else RateModel(half_lives_d=NO_DECAY_D)
        self.shared_profiles: SharedProfiles
        # End of the history that `_init_rows` counted, which `_replay` has not reached yet.
        self._counted_until = -np.inf

    @property
    def row_dtype(self) -> np.dtype[np.void]:
        # States are stored as raw bytes: the order and the names of the fields are fixed.
        return np.dtype(
            [
                ("since", "f8"),
                ("last", "f8"),  # last poll: earlier posts were collected, or are missed
                ("newest", "f8"),  # date of the newest post
                ("next", "f8"),  # time of the next poll
                ("price", "f8"),  # price at which that time was decided
                ("hours", "f4", (HOURS_PER_WEEK,)),  # decayed post counts
                ("minutes", "f4", (BINS,)),  # decayed post counts by five-minute bin of the hour
                ("batches", "f4"),  # decayed number of batches
                ("events", "f4"),  # decayed number of bursts
                ("post_days", "f4"),  # decayed number of days with posts
                ("strengths", "f4", (LAYERS,)),  # strengths of the layers of the weekly profile
                ("value", "u1", (HOURS_PER_WEEK,)),  # decrease of the value function, quantized
                ("value_top", "f4"),  # maximum of that decrease
                *STATE_FIELDS,
            ]
        )

    def _init_rows(self, rows: Rows, history: Documents, now: float) -> tuple[Rows, Floats]:
        """Initialize new feeds, count their posts until ``now``, and return rows and times."""
        self._counted_until = now
        new_rows = self.state[rows]
        new_rows["last"] = new_rows["since"]
        new_rows["newest"] = -np.inf
        new_rows["price"] = np.inf
        self.rate_model.initialize(new_rows)
        self.state[rows] = new_rows
        index, times = history.new_entries()
        count_posts(self.state, rows[index], times)
        return rows[index], times

    def _replay(self, target_rows: Rows, rows: Rows, times: Floats, now: float) -> None:
        """Learn the rates of ``target_rows`` from their posts, as if the feeds had been polled.

        ``rows`` and ``times`` are the row and time of each post. The virtual polls are daily for
        the last `DAILY_REPLAY_S` seconds, and weekly before.
        """
        begin = float(self.state["since"][target_rows].min()) if len(target_rows) else now
        weeks = int(max(now - begin - DAILY_REPLAY_S, 0.0) // WEEK_S)
        days = (
            begin
            + weeks * WEEK_S
            + DAY_S * np.arange(1, np.ceil((now - begin - weeks * WEEK_S) / DAY_S) + 1)
        )
        poll_times = np.minimum(np.append(begin + WEEK_S * np.arange(1, weeks + 1), days), now)
        poll_index = np.searchsorted(poll_times, times, side="right")  # the poll that sees the post
        usable = np.flatnonzero((times >= begin) & (poll_index < len(poll_times)))
        order = usable[np.argsort(rows[usable], kind="stable")]
        for part in in_chunks(np.sort(target_rows)):
            profile = self._weekly_profile(part)  # constant during the replay
            own = order[slice(*np.searchsorted(rows[order], (part[0], part[-1] + 1)))]
            cell = np.searchsorted(part, rows[own]) * len(poll_times) + poll_index[own]
            posts = (
                np.bincount(cell, minlength=len(part) * len(poll_times))
                .reshape(len(part), len(poll_times))
                .astype(np.float64)
            )
            for k, at in enumerate(poll_times.tolist()):
                existing = np.flatnonzero(self.state["last"][part] < at)
                since = self.state["last"][part[existing]]
                self._update_rates(
                    part[existing],
                    np.full(len(existing), at),
                    posts[existing, k],
                    since,
                    since,
                    profile[existing],
                )

    def _update_rates(
        self,
        rows: Rows,
        now: Floats,
        posts: Floats,
        begin: Floats,
        known_from: Floats,
        profile: Floats,
    ) -> None:
        """Update the rates of feeds with the number of posts between the last two polls.

        ``posts`` were seen at ``now``, and the poll before was at ``begin``. If entries left the
        document in between, ``known_from`` is after ``begin``: the posts are then a sample of the
        time since ``known_from``, and the posts before it are imputed.
        """
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
            # Impute the profile too. Otherwise busy hours, of which the least is seen, would look
            # quiet.
            unseen_hours = profile[gap] * hours_between(begin[gap], known_from[gap])
            self.state["hours"][rows[gap]] += unseen_hours * (rate / 24)[:, None]
            self.state["batches"][rows[gap]] += rate * unseen / batch
        self.rate_model.update(self.state, rows, posts, days, now - self.state["last"][rows])
        self.state["last"][rows] = now

    def _learn_documents(self, rows: Rows, now: Floats, seen: Documents) -> None:
        """Update the rates and counts of feeds with the documents that polls returned."""
        begin = self.state["last"][rows]
        decay_counts(self.state, rows, now - begin)
        known_from = np.where(seen.gap, seen.oldest(), begin)
        self._update_rates(
            rows, now, seen.new.astype(np.float64), begin, known_from, self._weekly_profile(rows)
        )
        index, times = seen.new_entries()
        count_posts(self.state, rows[index], times)

    def _refresh_profiles(self, rows: Rows, price: float) -> None:
        """Fit the profiles of feeds with new posts, and solve the values where profiles changed."""
        before = self.state["strengths"][rows]
        self._fit_strengths(rows)
        changed = rows[(self.state["strengths"][rows] != before).any(axis=1)]
        self._solve_values(changed, price)

    def _tempered_counts(self, rows: Rows) -> TemperedCounts:
        hours = self.state["hours"][rows].astype(np.float64)
        until = np.maximum(self.state["last"][rows], self._counted_until)
        hours += unobserved_posts(hours, self.state["since"][rows], until)
        events = self.state["events"][rows] if self.bursts else hours.sum(axis=1)
        return TemperedCounts.of(hours, events, self.state["post_days"][rows])

    def _fit_strengths(self, rows: Rows) -> None:
        """Choose the strength of each layer of the weekly profiles of these feeds."""
        for part in in_chunks(rows):
            evidence = self._tempered_counts(part)
            z = responsibilities(evidence.hours, self.shared_profiles)
            self.state["strengths"][part] = (
                leave_one_out_strengths(evidence, z, self.shared_profiles)[0]
                if self.shrink
                else 1.0
            )

    def _weekly_profile(self, rows: Rows) -> Floats:
        """Return the weekly profile of each row (n, 168), with mean 1."""
        evidence = self._tempered_counts(rows)
        z = responsibilities(evidence.hours, self.shared_profiles)
        profile = weekly_profile(
            evidence, z, self.state["strengths"][rows].astype(np.float64), self.shared_profiles
        )
        return profile if self.weekly else _average_weekdays(profile)

    def _fit_shared_profiles(self) -> None:
        """Fit the shared profiles to a sample of feeds, and then the strengths of all feeds."""
        sample = self._sample(PROFILE_SAMPLE_FEEDS)
        profiles = fit_profiles(self._tempered_counts(sample).hours, seed=self.seed)
        self.shared_profiles = fit_strength_prior(self._tempered_counts, sample, profiles)
        self._fit_strengths(np.arange(len(self.feeds)))

    def _solve_values(self, rows: Rows, price: float) -> None:
        """Solve the value function of these feeds at the given price of a poll."""
        for start in range(0, len(rows), VALUE_CHUNK_ROWS):
            part = rows[start : start + VALUE_CHUNK_ROWS]
            rho = self._polls_per_post_day(part, price) * self._polled_rate(part)
            decrease = value_decrease(self._weekly_profile(part), np.maximum(rho, MIN_RHO))
            top = decrease.max(axis=1)
            self.state["value_top"][part] = top
            self.state["value"][part] = np.rint(decrease / top[:, None] * VALUE_STEPS)

    def _sample(self, max_feeds: int) -> Rows:
        """Return all rows, or a random sample of ``max_feeds`` rows if there are more."""
        n = len(self.feeds)
        if n <= max_feeds:
            return np.arange(n)
        return np.random.default_rng(self.seed).choice(n, max_feeds, replace=False)

    def _polled_rate(self, rows: Rows) -> Floats:
        """Return the posts per day that need polls, which are those that are not pushed."""
        return self.rate_model.rate_per_day(self.state[rows]) * (1 - self.feeds.pushed_share[rows])

    def _loss_inputs(self, rows: Rows) -> tuple[Floats, Floats, Floats]:
        """Return the inputs of `overflow_loss` for each feed.

        They are the window (entries per document), the Fano factor (variance over mean of the post
        counts) and the mean number of posts published at once.
        """
        state = self.state[rows]
        window = (
            self.feeds.window[rows].astype(np.float64) if self.loss else np.full(len(rows), np.inf)
        )
        if not self.bursts:
            return window, np.ones(len(rows)), np.ones(len(rows))
        posts = state["hours"].sum(axis=1, dtype=np.float64)
        batch = np.maximum(posts / np.maximum(state["batches"], 1.0), 1.0)
        return window, self.rate_model.fano(state), batch

    def _polls_per_post_day(self, rows: Rows, price: float) -> Floats:
        """Return how many polls a delay of one post by one day is worth at a price."""
        return self.feeds.weight[rows] / (price * self.feeds.cost[rows])


def _average_weekdays(profile: Floats) -> Floats:
    """Return weekly profiles (n, 168) in which every day has the mean profile of all days."""
    return np.tile(profile.reshape(len(profile), 7, 24).mean(axis=1), (1, 7))
