"""The level: how fast a feed posts these days, from counts that fade, held by what feeds like it do.

Posts and exposure (days of average activity, so that a quiet night is not a silence) fade with two half-lives. Each gives a
rate under a Gamma prior fitted to the whole population: where feeds are alike the prior is strong, where they differ
by orders of magnitude it hardly speaks. The level is the mean of the two rates.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, Floats, Rows

HALF_LIVES_D = np.array([7.0, 30.0])
#: As good as never.
NEVER_D = np.array([1e6, 1e6])
#: Before anything is known of a population: this many posts in that many days.
PRIOR_POSTS, PRIOR_DAYS = 0.3, 7.0
#: Bounds of the prior's strength, in posts.
WEAKEST, STRONGEST = 0.1, 10.0
#: Feeds and posts from which a population's prior can be told.
LEAST_FEEDS, LEAST_POSTS = 20, 50
#: Scatter of counts about their expectation (variance over mean): where it starts, how many expected posts that is worth, how
#: fast it fades, and its bounds. Errors of the level look like scatter too, hence the upper one.
FANO_START, FANO_PRIOR_POSTS, FANO_HALF_LIFE_D, FANO_MOST = 4.0, 10.0, 30.0, 4.0

#: What the level so far is worth when a full window says something else about the posts that were never seen.
UNSEEN_PRIOR_POSTS = 3.0

FIELDS = [
    ("posts", "f4", (len(HALF_LIVES_D),)),
    ("days", "f4", (len(HALF_LIVES_D),)),
    ("scatter", "f4"),
    ("expected", "f4"),
]


def _no_population() -> tuple[Floats, Floats]:
    return np.full(len(HALF_LIVES_D), PRIOR_POSTS), np.full(len(HALF_LIVES_D), PRIOR_DAYS)


@dataclass(slots=True)
class Level:
    """The population's prior, and the arithmetic on the fields of a policy's state."""

    prior: tuple[Floats, Floats] = field(default_factory=_no_population)
    half_lives_d: Floats = field(default_factory=lambda: HALF_LIVES_D)

    @staticmethod
    def begin(state: npt.NDArray[np.void]) -> None:
        """Fields of feeds of which nothing is known."""
        state["scatter"], state["expected"] = FANO_START * FANO_PRIOR_POSTS, FANO_PRIOR_POSTS

    def rate_per_day(self, state: npt.NDArray[np.void]) -> Floats:
        """Posts a day at average activity."""
        a, b = self.prior
        rate: Floats = ((state["posts"] + a) / (state["days"] + b)).mean(axis=1, dtype=np.float64)
        return rate

    @staticmethod
    def fano(state: npt.NDArray[np.void]) -> Floats:
        """Variance over mean of a feed's counts."""
        fano: Floats = np.clip(state["scatter"] / state["expected"], 1.0, FANO_MOST).astype(np.float64)
        return fano

    def take_in(self, state: npt.NDArray[np.void], rows: Rows, posts: Floats, days: Floats, elapsed_s: Floats) -> None:
        """``posts`` were seen in ``days`` of exposure, ``elapsed_s`` after the look before."""
        was = state[rows]
        elapsed = elapsed_s / DAY_S
        expected = self.rate_per_day(was) * days
        fade = 0.5 ** (elapsed[:, None] / self.half_lives_d)
        state["posts"][rows] = was["posts"] * fade + posts[:, None]
        state["days"][rows] = was["days"] * fade + days[:, None]
        kept = 0.5 ** (elapsed / FANO_HALF_LIFE_D)
        back = FANO_PRIOR_POSTS * (1 - kept)
        state["scatter"][rows] = was["scatter"] * kept + FANO_START * back + (posts - expected) ** 2
        state["expected"][rows] = was["expected"] * kept + back + expected

    def sampled(self, was: npt.NDArray[np.void], visible: Floats, days: Floats) -> tuple[Floats, Floats]:
        """What a full window of ``visible`` posts tells that came in ``days`` of exposure: its posts, and the rate before it.

        It samples the rate inversely: its posts but one, in the time since its oldest. With `UNSEEN_PRIOR_POSTS` posts at the
        level so far this tells what came before and was never seen; were that left out, feeds that overflow would be forgotten
        little by little, and polled less, and overflow more.
        """
        posts = np.maximum(visible - 1, 0.0)
        rate: Floats = (UNSEEN_PRIOR_POSTS + posts) / (UNSEEN_PRIOR_POSTS / self.rate_per_day(was) + days)
        return posts, rate

    def fit_prior(self, state: npt.NDArray[np.void]) -> None:
        """Empirical Bayes by moments: the spread of rates beyond what counting noise explains is the prior's."""
        posts, days = state["posts"].astype(np.float64), np.maximum(state["days"].astype(np.float64), 1.0)
        if len(posts) < LEAST_FEEDS or posts[:, -1].sum() < LEAST_POSTS:
            return
        mean = posts.sum(axis=0) / days.sum(axis=0)
        spread = ((posts / days - mean) ** 2).mean(axis=0)
        noise = (self.fano(state)[:, None] * mean / days).mean(axis=0)
        a = mean**2 / np.maximum(spread - noise, mean**2 / STRONGEST)
        weak = a < 2 * WEAKEST  # orders of magnitude apart: the mean says nothing about a single feed
        a, b = np.maximum(a, WEAKEST), np.maximum(a, WEAKEST) / mean
        unknown = _no_population()
        self.prior = np.where(weak, unknown[0], a), np.where(weak, unknown[1], b)
