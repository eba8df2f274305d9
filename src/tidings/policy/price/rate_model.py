"""The level: how fast a feed posts these days, from counts that fade, held by what feeds like it do.

Posts and exposure (days of average activity, so that a quiet night is not a silence) fade with several half-lives. Each gives a
rate under a Gamma prior fitted to the whole population: where feeds are alike the prior is strong, where they differ
by orders of magnitude it hardly speaks. The level is a mean of these rates, and how much a half-life has to say is told by how
well it has foretold the feed's posts of late: steady feeds remember long, fickle ones do not.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, Floats, Rows

HALF_LIVES_D = np.array([4.0, 12.0, 40.0, 150.0])
#: How much each has to say before it has shown anything, and how fast what it has shown fades.
LOG_PRIOR_WEIGHTS = np.log([0.15, 0.35, 0.35, 0.15])
WEIGHT_HALF_LIFE_D = 40.0
#: As good as never.
NO_DECAY_D = np.full(len(HALF_LIVES_D), 1e6)
#: Before anything is known of a population: this many posts in that many days.
PRIOR_POSTS, PRIOR_DAYS = 0.3, 7.0
#: Bounds of the prior's strength, in posts.
MIN_PRIOR_STRENGTH, MAX_PRIOR_STRENGTH = 0.1, 10.0
#: Feeds and posts from which a population's prior can be told.
MIN_FEEDS_FOR_PRIOR, MIN_POSTS_FOR_PRIOR = 20, 50
#: Scatter of counts about their expectation (variance over mean): where it starts, how many expected posts that is worth, how
#: fast it fades, and its bounds. Errors of the level look like scatter too, hence the upper one.
FANO_START, FANO_PRIOR_POSTS, FANO_HALF_LIFE_D, FANO_MAX = 4.0, 10.0, 30.0, 4.0

#: What the level so far is worth when a full window says something else about the posts that were never seen.
UNSEEN_PRIOR_BATCHES = 3.0

STATE_FIELDS = [
    ("posts", "f4", (len(HALF_LIVES_D),)),
    ("days", "f4", (len(HALF_LIVES_D),)),
    ("credit", "f4", (len(HALF_LIVES_D),)),  # log likelihood of late, of each half-life's rate
    ("scatter", "f4"),
    ("expected", "f4"),
]


def _default_prior() -> tuple[Floats, Floats]:
    return np.full(len(HALF_LIVES_D), PRIOR_POSTS), np.full(len(HALF_LIVES_D), PRIOR_DAYS)


@dataclass(slots=True)
class RateModel:
    """The population's prior, and the arithmetic on the fields of a policy's state."""

    prior: tuple[Floats, Floats] = field(default_factory=_default_prior)
    half_lives_d: Floats = field(default_factory=lambda: HALF_LIVES_D)

    @staticmethod
    def initialize(state: npt.NDArray[np.void]) -> None:
        """Fields of feeds of which nothing is known."""
        state["scatter"], state["expected"] = FANO_START * FANO_PRIOR_POSTS, FANO_PRIOR_POSTS

    def rate_per_day(self, state: npt.NDArray[np.void]) -> Floats:
        """Posts a day at average activity."""
        credit = state["credit"] + LOG_PRIOR_WEIGHTS
        credit = np.exp(credit - credit.max(axis=1, keepdims=True))
        rate: Floats = (credit * self._rates(state)).sum(axis=1) / credit.sum(axis=1)
        return rate

    def _rates(self, state: npt.NDArray[np.void]) -> Floats:
        """One for each half-life: (n, k)."""
        a, b = self.prior
        rates: Floats = (state["posts"] + a) / (state["days"] + b)
        return rates

    @staticmethod
    def fano(state: npt.NDArray[np.void]) -> Floats:
        """Variance over mean of a feed's counts."""
        fano: Floats = np.clip(state["scatter"] / state["expected"], 1.0, FANO_MAX).astype(
            np.float64
        )
        return fano

    def update(
        self,
        state: npt.NDArray[np.void],
        rows: Rows,
        posts: Floats,
        days: Floats,
        elapsed_s: Floats,
    ) -> None:
        """``posts`` were seen in ``days`` of exposure, ``elapsed_s`` after the look before."""
        was = state[rows]
        elapsed = elapsed_s / DAY_S
        expected = self.rate_per_day(was) * days
        predicted_posts = np.maximum(self._rates(was) * days[:, None], 1e-9)
        gain = (posts[:, None] * np.log(predicted_posts) - predicted_posts) / self.fano(was)[
            :, None
        ]
        credit = was["credit"] * (0.5 ** (elapsed / WEIGHT_HALF_LIFE_D))[:, None] + gain
        state["credit"][rows] = credit - credit.max(axis=1, keepdims=True)
        fade = 0.5 ** (elapsed[:, None] / self.half_lives_d)
        state["posts"][rows] = was["posts"] * fade + posts[:, None]
        state["days"][rows] = was["days"] * fade + days[:, None]
        kept = 0.5 ** (elapsed / FANO_HALF_LIFE_D)
        back = FANO_PRIOR_POSTS * (1 - kept)
        state["scatter"][rows] = was["scatter"] * kept + FANO_START * back + (posts - expected) ** 2
        state["expected"][rows] = was["expected"] * kept + back + expected

    def estimate_from_full_window(
        self, was: npt.NDArray[np.void], visible: Floats, days: Floats, batch: Floats
    ) -> tuple[Floats, Floats]:
        """What a full window of ``visible`` posts tells that came in ``days`` of exposure: its posts, and the rate before it.

        It samples the rate of batches inversely: all but the oldest, in the time since that one. With `UNSEEN_PRIOR_BATCHES` at
        the level so far this tells what came before and was never seen; were that left out, feeds that overflow would be
        forgotten little by little, and polled less, and overflow more.
        """
        posts = np.maximum(visible - batch, 0.0)
        rate: Floats = (UNSEEN_PRIOR_BATCHES * batch + posts) / (
            UNSEEN_PRIOR_BATCHES * batch / self.rate_per_day(was) + days
        )
        return posts, rate

    def fit_prior(self, state: npt.NDArray[np.void]) -> None:
        """Empirical Bayes by moments: the spread of rates beyond what counting noise explains is the prior's."""
        posts, days = (
            state["posts"].astype(np.float64),
            np.maximum(state["days"].astype(np.float64), 1.0),
        )
        if len(posts) < MIN_FEEDS_FOR_PRIOR or posts[:, -1].sum() < MIN_POSTS_FOR_PRIOR:
            return
        mean = posts.sum(axis=0) / days.sum(axis=0)
        spread = ((posts / days - mean) ** 2).mean(axis=0)
        noise = (self.fano(state)[:, None] * mean / days).mean(axis=0)
        a = mean**2 / np.maximum(spread - noise, mean**2 / MAX_PRIOR_STRENGTH)
        weak = (
            a < 2 * MIN_PRIOR_STRENGTH
        )  # orders of magnitude apart: the mean says nothing about a single feed
        a, b = np.maximum(a, MIN_PRIOR_STRENGTH), np.maximum(a, MIN_PRIOR_STRENGTH) / mean
        unknown = _default_prior()
        self.prior = np.where(weak, unknown[0], a), np.where(weak, unknown[1], b)
