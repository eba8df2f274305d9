"""Estimate the posts per day of a feed from exponentially decayed counts and a Gamma prior.

Posts and exposure decay with several half-lives. Exposure is counted in days of average activity,
so that a quiet night does not look like inactivity. Each half-life gives a Gamma-Poisson rate,
under a prior that is fitted to all feeds (empirical Bayes): the prior is strong if feeds are
similar and weak if their rates differ by orders of magnitude. The estimate is a mean of these
rates, weighted by how well each half-life predicted the recent posts of the feed (Bayesian model
averaging): feeds with a constant rate get long half-lives, others short ones. docs/policy.md
describes the model.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tidings.model import DAY_S, Floats, Rows

#: Half-lives in days.
HALF_LIVES_D = np.array([4.0, 12.0, 40.0, 150.0])
#: Log of the prior weights of the half-lives, and the half-life of their likelihoods.
LOG_PRIOR_WEIGHTS = np.log([0.15, 0.35, 0.35, 0.15])
WEIGHT_HALF_LIFE_D = 40.0
#: Half-lives that practically disable the decay.
NO_DECAY_D = np.full(len(HALF_LIVES_D), 1e6)
#: Default prior, in posts and in days of exposure.
PRIOR_POSTS, PRIOR_DAYS = 0.3, 7.0
#: Minimum and maximum strength of the fitted prior, in posts.
MIN_PRIOR_STRENGTH, MAX_PRIOR_STRENGTH = 0.1, 10.0
#: Minimum number of feeds for fitting the strength of a prior, and of posts for fitting its mean.
MIN_FEEDS_FOR_PRIOR, MIN_POSTS_FOR_PRIOR = 20, 50
#: Fano factor (variance over mean) of the counts: initial value, its weight in expected posts, the
#: half-life of the evidence, and the maximum. There is a maximum because errors of the rate look
#: like variance too.
FANO_START, FANO_PRIOR_POSTS, FANO_HALF_LIFE_D, FANO_MAX = 4.0, 10.0, 30.0, 4.0

#: Weight, in batches, of the previous rate in the estimate of posts that no poll has seen.
UNSEEN_PRIOR_BATCHES = 3.0

#: Fields of this model in the state of a feed. States are stored as raw bytes: the order and the
#: names are fixed.
STATE_FIELDS = [
    ("posts", "f4", (len(HALF_LIVES_D),)),  # decayed counts
    ("days", "f4", (len(HALF_LIVES_D),)),  # decayed exposure, in days of average activity
    ("credit", "f4", (len(HALF_LIVES_D),)),  # decayed log likelihood of each half-life's rate
    ("scatter", "f4"),  # decayed squared deviations of the counts
    ("expected", "f4"),  # decayed expected counts
]


def _default_prior() -> tuple[Floats, Floats]:
    return np.full(len(HALF_LIVES_D), PRIOR_POSTS), np.full(len(HALF_LIVES_D), PRIOR_DAYS)


@dataclass(slots=True)
class RateModel:
    """Estimator of posts per day, with a prior that is fitted to all feeds.

    The estimates are functions of the `STATE_FIELDS` in the state of each feed.
    """

    #: shape and rate of the Gamma prior (posts, days), one per half-life
    prior: tuple[Floats, Floats] = field(default_factory=_default_prior)
    half_lives_d: Floats = field(default_factory=lambda: HALF_LIVES_D)

    @staticmethod
    def initialize(state: npt.NDArray[np.void]) -> None:
        """Set the fields of new feeds to their initial values, in place."""
        state["scatter"], state["expected"] = FANO_START * FANO_PRIOR_POSTS, FANO_PRIOR_POSTS

    def rate_per_day(self, state: npt.NDArray[np.void]) -> Floats:
        """Return the posts per day of each feed at average activity."""
        weight = state["credit"] + LOG_PRIOR_WEIGHTS
        weight = np.exp(weight - weight.max(axis=1, keepdims=True))
        rate: Floats = (weight * self._rates(state)).sum(axis=1) / weight.sum(axis=1)
        return rate

    def _rates(self, state: npt.NDArray[np.void]) -> Floats:
        """Return the posterior mean of the posts per day for each feed and half-life (n, k)."""
        a, b = self.prior
        rates: Floats = (state["posts"] + a) / (state["days"] + b)
        return rates

    @staticmethod
    def fano(state: npt.NDArray[np.void]) -> Floats:
        """Return the Fano factor (variance over mean) of the post counts of each feed."""
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
        """Update the state of ``rows`` with the number of posts since their previous poll.

        ``days`` is the exposure in days of average activity, ``elapsed_s`` the time since the
        previous poll.
        """
        previous = state[rows]
        elapsed = elapsed_s / DAY_S
        expected = self.rate_per_day(previous) * days
        predicted_posts = np.maximum(self._rates(previous) * days[:, None], 1e-9)
        # Poisson log likelihood, tempered by the Fano factor.
        log_likelihood = posts[:, None] * np.log(predicted_posts) - predicted_posts
        log_likelihood = log_likelihood / self.fano(previous)[:, None]
        credit = (
            previous["credit"] * (0.5 ** (elapsed / WEIGHT_HALF_LIFE_D))[:, None] + log_likelihood
        )
        state["credit"][rows] = credit - credit.max(axis=1, keepdims=True)
        decay = 0.5 ** (elapsed[:, None] / self.half_lives_d)
        state["posts"][rows] = previous["posts"] * decay + posts[:, None]
        state["days"][rows] = previous["days"] * decay + days[:, None]
        kept = 0.5 ** (elapsed / FANO_HALF_LIFE_D)
        prior = FANO_PRIOR_POSTS * (1 - kept)
        deviation = (posts - expected) ** 2
        state["scatter"][rows] = previous["scatter"] * kept + FANO_START * prior + deviation
        state["expected"][rows] = previous["expected"] * kept + prior + expected

    def estimate_from_full_window(
        self, state: npt.NDArray[np.void], visible: Floats, days: Floats, batch: Floats
    ) -> tuple[Floats, Floats]:
        """Estimate the rate of feeds whose documents could not list all new entries.

        ``visible`` posts came in ``days`` of exposure, on average ``batch`` at a time. Returns the
        posts to count for that exposure, and the rate in posts per day for the time before it,
        which no poll has seen. All batches except the oldest are an inverse sample of the rate.
        This sample is combined with `UNSEEN_PRIOR_BATCHES` batches at the previous rate. If unseen
        posts were ignored, the rates of these feeds would decrease, so that they would be polled
        less and miss more posts.
        """
        posts = np.maximum(visible - batch, 0.0)
        rate: Floats = (UNSEEN_PRIOR_BATCHES * batch + posts) / (
            UNSEEN_PRIOR_BATCHES * batch / self.rate_per_day(state) + days
        )
        return posts, rate

    def fit_prior(self, state: npt.NDArray[np.void]) -> None:
        """Fit the Gamma prior of the rate to all feeds (empirical Bayes by the method of moments).

        The variance of the rates beyond what counting noise explains is that of the prior.
        """
        posts = state["posts"].astype(np.float64)
        days = np.maximum(state["days"].astype(np.float64), 1.0)
        if posts[:, -1].sum() < MIN_POSTS_FOR_PRIOR:
            return
        mean = posts.sum(axis=0) / days.sum(axis=0)
        variance = ((posts / days - mean) ** 2).mean(axis=0)
        noise = (self.fano(state)[:, None] * mean / days).mean(axis=0)
        a = mean**2 / np.maximum(variance - noise, mean**2 / MAX_PRIOR_STRENGTH)
        # A few feeds, or rates that differ by orders of magnitude, say little about a single feed:
        # the prior is then a fraction of a post. A prior of several days would divide the rates of
        # all busy feeds as long as only some days of their posts are known.
        is_weak = (len(posts) < MIN_FEEDS_FOR_PRIOR) | (a < 2 * MIN_PRIOR_STRENGTH)
        a = np.where(is_weak, PRIOR_POSTS, a)
        self.prior = a, a / mean
