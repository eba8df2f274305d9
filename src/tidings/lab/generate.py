"""Generate synthetic traces that match the statistics published in the four papers.

The papers' traces are not public (or no longer), so each model uses what its paper prints about its
data: rates, windows, daily and weekly pattern, bursts, change. docs/papers.md lists which figure
set which parameter, and which figures follow without having been used.

Every model is a Poisson process per day and feed: expected posts of a day = rate x day of the week
x slow drift. A post falls into an hour by the feed's daily profile, at a whole second; where posts
come in bursts, each arrival is several posts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidings.errors import UsageError
from tidings.lab.traces import POST_BYTES, UNLIMITED, Trace
from tidings.model import DAY_S, HOUR_S, Floats, Ints

#: Start of all traces, Monday, 6 September 2004, 00:00 UTC, in the month of Sia & Cho's archive.
EPOCH = 1_094_428_800.0
#: Standard deviation of the logarithm of post sizes.
SIZE_SPREAD = 0.5


@dataclass(frozen=True, slots=True)
class Population:
    """Parameters of n feeds, from which their posts are drawn."""

    rate_per_day: Floats  #: mean posts per day
    shapes: Floats  #: (K, 24) shares of a day's posts by hour, rows sum to 1
    shape: Ints  #: row of ``shapes`` for each feed
    week: Floats  #: (n, 7) factor of each day of the week, Monday first, mean 1
    drift: Floats  #: (n, days) slow change of the rate, about 1
    window: Ints  #: number of entries in the document
    burst: float = 1.0  #: mean posts per arrival
    burst_gap_s: float = 600.0  #: mean gap between the posts of one arrival
    names: list[str] | None = None


def generate(like: str, feeds: int, days: float, seed: int = 0) -> Trace:
    """Return a synthetic trace that resembles the data of a paper.

    ``like`` is a key of `MODELS`. The result is the same for the same arguments. Raises
    `UsageError` for an unknown model or an invalid number of feeds or days.
    """
    if like not in MODELS:
        raise UsageError(f"unknown model {like!r}; choose from {', '.join(MODELS)}")
    if feeds < 1:
        raise UsageError(f"a trace needs at least one feed, not {feeds}")
    if not (np.isfinite(days) and days > 0):
        raise UsageError(f"days must be a number above 0, not {days}")
    # The model's index separates models with the same seed; string hashes are randomized.
    rng = np.random.default_rng([seed, list(MODELS).index(like)])
    return MODELS[like](rng, feeds, days)


# --- from a population to posts -------------------------------------------------------------------


def sample_posts(rng: np.random.Generator, feeds: Population, days: float) -> tuple[Ints, Floats]:
    """Draw the posts of a population over ``days`` days from `EPOCH`.

    Returns feed number and time (epoch seconds) of each post, unsorted.
    """
    return _posts(rng, feeds, _daily_counts(rng, feeds, days), days)


def _daily_counts(rng: np.random.Generator, feeds: Population, days: float) -> Ints:
    """Draw the number of arrivals of each feed on each day (n, days).

    The last day may be a part of a day.
    """
    whole = int(np.ceil(days))
    share = np.ones(whole)
    share[-1] = days - (whole - 1)
    weekday = np.arange(whole) % 7
    mean = feeds.rate_per_day[:, None] * feeds.week[:, weekday] * feeds.drift[:, :whole] * share
    counts: Ints = rng.poisson(mean / feeds.burst)
    return counts


def _posts(
    rng: np.random.Generator, feeds: Population, counts: Ints, days: float
) -> tuple[Ints, Floats]:
    """Draw the times of all arrivals in ``counts``, and the further posts of their bursts.

    Returns feed number and time (epoch seconds) of each post, unsorted.
    """
    n, whole = counts.shape
    cell = np.repeat(np.arange(n * whole), counts.ravel())
    feed, day = cell // whole, cell % whole
    # Inverse distribution of all shapes at once. Shape k occupies [k, k + 1) of one rising table.
    table = (np.cumsum(feeds.shapes, axis=1) + np.arange(len(feeds.shapes))[:, None]).ravel()
    hour = np.searchsorted(table, feeds.shape[feed] + rng.random(len(feed)), side="right") % 24
    within_day = (hour + rng.random(len(feed))) * HOUR_S
    last = (
        day == whole - 1
    )  # if the last day is cut short, its posts are spread over the part that exists
    within_day[last] *= days - (whole - 1)
    time = EPOCH + day * DAY_S + within_day
    if feeds.burst > 1:
        more = rng.geometric(1 / feeds.burst, size=len(feed)) - 1
        of = np.repeat(np.arange(len(feed)), more)
        gaps = rng.exponential(feeds.burst_gap_s, size=len(of))
        run = np.cumsum(gaps)
        begins = np.cumsum(more) - more
        run -= (
            np.repeat((run - gaps)[np.minimum(begins, max(len(run) - 1, 0))], more)
            if len(run)
            else run
        )
        feed = np.concatenate([feed, feed[of]])
        time = np.concatenate([time, time[of] + run])
        inside = time < EPOCH + days * DAY_S
        feed, time = feed[inside], time[inside]
    return feed, np.floor(time)


def _trace(
    name: str,
    rng: np.random.Generator,
    feeds: Population,
    feed: Ints,
    time: Floats,
    post_bytes: float = POST_BYTES,
) -> Trace:
    """Return the trace of these posts, with lognormal sizes of mean ``post_bytes``."""
    if len(time) == 0:  # a trace has at least one post
        feed, time = np.array([0]), np.array([EPOCH])
    sizes = np.rint(
        post_bytes * np.exp(rng.normal(-(SIZE_SPREAD**2) / 2, SIZE_SPREAD, size=len(time)))
    )
    return Trace.build(name, feed, time, feeds.window, feed_names=feeds.names, sizes=sizes)


# --- daily and weekly patterns --------------------------------------------------------------------


def bump(peak_h: float, width_h: float) -> Floats:
    """Return hourly shares with a rounded peak (von Mises distribution) around ``peak_h``.

    The standard deviation is about ``width_h`` hours.
    """
    angle = (np.arange(24) + 0.5 - peak_h) * (2 * np.pi / 24)
    concentration = (24 / (2 * np.pi * width_h)) ** 2
    shares = np.exp(concentration * (np.cos(angle) - 1))
    return np.asarray(shares / shares.sum())


def blend(flat: float, *bumps: tuple[float, float, float]) -> Floats:
    """Return hourly shares that mix a flat share with peaks (share, hour, width)."""
    shares = np.full(24, flat / 24)
    for share, peak, width in bumps:
        shares = shares + share * bump(peak, width)
    return np.asarray(shares / shares.sum())


#: Daily patterns of Sia & Cho Fig. 12: peaks at various hours of the day, some narrow such as
#: 10-12 h or 23-1 h, which add up to the single peak of Fig. 10. Their width is not printed. It was
#: set so that timing without allocation gains what Fig. 13 shows.
SIA_CHO_SHAPES = np.array(
    [
        blend(0.17, (0.83, 13.5, 3.45)),
        blend(0.17, (0.83, 16.0, 3.45)),
        blend(0.17, (0.83, 19.5, 3.2)),
        blend(0.17, (0.83, 10.5, 2.8)),
        blend(0.17, (0.46, 10.0, 2.2), (0.37, 21.0, 2.2)),
        blend(1.0),
        blend(0.22, (0.78, 22.0, 2.8)),
        blend(0.22, (0.78, 7.0, 2.8)),
        blend(0.22, (0.78, 3.0, 3.2)),
        blend(0.17, (0.83, 11.0, 0.9)),
        blend(0.17, (0.83, 0.0, 0.9)),
        blend(0.17, (0.83, 17.0, 1.6)),
    ]
)
SIA_CHO_SHARES = np.array([0.17, 0.15, 0.12, 0.11, 0.10, 0.10, 0.07, 0.06, 0.04, 0.03, 0.03, 0.02])


def _week(n: int, weekend: float) -> Floats:
    """Return the same factors of the weekdays for n feeds.

    Saturday and Sunday have ``weekend`` times as many posts as a weekday.
    """
    days = np.array([1, 1, 1, 1, 1, weekend, weekend])
    return np.tile(days / days.mean(), (n, 1))


def _no_drift(n: int, days: float) -> Floats:
    return np.ones((n, int(np.ceil(days))))


def _drift(
    rng: np.random.Generator, n: int, days: float, spread: float, memory_weeks: float
) -> Floats:
    """Return a weekly drift of the rate that is lognormal with mean 1.

    ``spread`` is the standard deviation of its logarithm, which is correlated over
    ``memory_weeks``.
    """
    whole = int(np.ceil(days))
    weeks = whole // 7 + 1
    keep = np.exp(-1 / memory_weeks)
    log_level = np.empty((n, weeks))
    log_level[:, 0] = rng.normal(size=n)
    for week in range(1, weeks):
        log_level[:, week] = keep * log_level[:, week - 1] + np.sqrt(1 - keep**2) * rng.normal(
            size=n
        )
    by_day = np.repeat(np.exp(spread * log_level - spread**2 / 2), 7, axis=1)
    return np.asarray(by_day[:, :whole])


# --- the models -----------------------------------------------------------------------------------

#: Parameters of a lognormal distribution of rates that two figures of the paper determine. Table 1:
#: the longest delay under square-root allocation at one poll a day is 9,120 minutes, so k
#: sqrt(1/14) = 1/6.33 for a feed with one post in the two learning weeks, and E sqrt(rate) = 1.69.
#: Sect. 4.6: 4.3 posts are new after a day, so E rate = 4.3. (The gain of 33 % was not used: 1 -
#: 1.69^2 / 4.3 = 0.336 follows.)
SIA_CHO_MEDIAN_PER_DAY = 1.9
SIA_CHO_SPREAD = 1.28
#: Learning weeks of the paper. Feeds without posts in them have no rate, and the paper's maxima
#: show none of them.
SIA_CHO_LEARNING_DAYS = 14


def _sia_cho(rng: np.random.Generator, n: int, days: float) -> Trace:
    """Generate a trace like Sia & Cho's, with feeds that post in the two learning weeks."""
    parts: list[tuple[Population, Ints]] = []
    feed_count = 0
    while feed_count < n:
        batch = int((n - feed_count) * 1.05) + 20
        feeds = Population(
            rate_per_day=np.exp(
                rng.normal(np.log(SIA_CHO_MEDIAN_PER_DAY), SIA_CHO_SPREAD, size=batch)
            ),
            shapes=SIA_CHO_SHAPES,
            shape=rng.choice(len(SIA_CHO_SHARES), size=batch, p=SIA_CHO_SHARES),
            week=_week(batch, 0.75),
            drift=_drift(rng, batch, days, 0.25, 6.0),
            window=rng.choice(
                [10, 11, 12, 13, 14, 15], size=batch, p=[0.38, 0.06, 0.18, 0.05, 0.05, 0.28]
            ),
        )
        counts = _daily_counts(rng, feeds, days)
        rows = np.flatnonzero(counts[:, :SIA_CHO_LEARNING_DAYS].sum(axis=1) > 0)[: n - feed_count]
        parts.append((_take(feeds, rows), counts[rows]))
        feed_count += len(rows)
    feeds, counts = _join([p for p, _ in parts]), np.concatenate([c for _, c in parts])
    feed, time = _posts(rng, feeds, counts, days)
    return _trace("sia-cho", rng, feeds, feed, time)


#: Fields of `Population` with one element per feed.
PER_FEED_FIELDS = ("rate_per_day", "shape", "week", "drift", "window")


def _take(feeds: Population, rows: Ints) -> Population:
    taken: dict[str, Any] = {name: getattr(feeds, name)[rows] for name in PER_FEED_FIELDS}
    return replace(feeds, **taken)


def _join(parts: list[Population]) -> Population:
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in PER_FEED_FIELDS
    }
    return replace(parts[0], **joined)


#: Rates of Han et al. sect. 3 and Fig. 11: 1,083 posts a day from 1,000 feeds, 6 % of them with ten
#: or more. These 6 % then have more than half of all posts, and the others less than half a post a
#: day. The model therefore has two classes.
HAN_MEAN_PER_DAY = 1.083
HAN_FAST_SHARE, HAN_FAST_PER_DAY, HAN_FAST_SPREAD = 0.06, 11.5, 0.15
HAN_SLOW_SHAPE = 1.0
#: Posts on a weekend day (892) per post on a weekday (1,160).
HAN_WEEKEND = 892 / 1160
#: Posts come in bursts: with Poisson posts far fewer would be missed at 20,000 polls than the
#: paper's 2 % ("we run across cases in which we need to do more aggregations than we expected").
#: Size and gap are not printed. They and the rate of the fast feeds were chosen among about 30
#: variants by Fig. 14 and Table 4, which are therefore no independent test (docs/papers.md).
HAN_BURST, HAN_BURST_GAP_S = 4.0, 3600.0


def _han(rng: np.random.Generator, n: int, days: float) -> Trace:
    fast = rng.permutation(n) < round(HAN_FAST_SHARE * n)
    slow_mean = (HAN_MEAN_PER_DAY - HAN_FAST_SHARE * HAN_FAST_PER_DAY) / (1 - HAN_FAST_SHARE)
    slow = rng.gamma(HAN_SLOW_SHAPE, slow_mean / HAN_SLOW_SHAPE, size=n)
    quick = HAN_FAST_PER_DAY * np.exp(
        rng.normal(-(HAN_FAST_SPREAD**2) / 2, HAN_FAST_SPREAD, size=n)
    )
    rate = np.where(fast, quick, slow)
    window = rng.choice([10, 12, 15], size=n, p=[0.5, 0.1, 0.4])
    # Fig. 12: 83 % store 10 to 15 posts, the others 1 to 60.
    other = rng.random(n) < 0.2  # some of these fall between 10 and 15 again
    window[other] = np.clip(
        np.rint(np.exp(rng.normal(np.log(12), 1.0, size=int(other.sum())))), 1, 60
    )
    drift = _drift(rng, n, days, 0.3, 4.0)
    drift *= np.exp(
        rng.normal(0.0, 0.08, size=drift.shape[1])
    )  # holidays and news affect all feeds at once (the range in Fig. 10)
    feeds = Population(
        rate_per_day=rate * (HAN_MEAN_PER_DAY / rate.mean()),
        shapes=SIA_CHO_SHAPES,
        shape=rng.choice(len(SIA_CHO_SHARES), size=n, p=SIA_CHO_SHARES),
        week=_week(n, HAN_WEEKEND),
        drift=drift,
        window=window,
        burst=HAN_BURST,
        burst_gap_s=HAN_BURST_GAP_S,
    )
    feed, time = sample_posts(rng, feeds, days)
    return _trace("han", rng, feeds, feed, time)


#: Rates of Urbansky et al. Table 1: 504 hourly polls / 21.02 polls per item make 24 items per feed
#: in three weeks, and daily polls collect half, yet the mean of 1/n is near 0.44. This requires a
#: very wide distribution of rates.
URBANSKY_MEDIAN_PER_DAY, URBANSKY_SPREAD = 0.05, 2.4
#: Share of feeds that change their rate. Sect. 3.3: "about 30 % of the feeds change their post
#: frequencies quite often".
URBANSKY_CHANGING = 0.3
#: Share of feeds whose window is one old batch. In Fig. 4 they make Fix Learned's line at two
#: minutes. The share is not printed. It was set so that Fix Learned transfers "a bit" less than Fix
#: 1h (Fig. 2).
URBANSKY_BATCHES = 0.015


def _urbansky(rng: np.random.Generator, n: int, days: float) -> Trace:
    changing = rng.random(n) < URBANSKY_CHANGING
    batch = rng.permutation(n) < round(URBANSKY_BATCHES * n)
    rate = np.exp(rng.normal(np.log(URBANSKY_MEDIAN_PER_DAY), URBANSKY_SPREAD, size=n))
    feeds = Population(
        rate_per_day=np.where(batch, 0.0, rate),
        shapes=SIA_CHO_SHAPES,
        shape=rng.choice(len(SIA_CHO_SHARES), size=n, p=SIA_CHO_SHARES),
        week=_week(n, 0.75),
        drift=np.where(
            changing[:, None], _drift(rng, n, days, 1.0, 1.5), _drift(rng, n, days, 0.2, 6.0)
        ),
        window=rng.choice([5, 10, 15, 20, 25, 50], size=n, p=[0.05, 0.4, 0.2, 0.2, 0.1, 0.05]),
    )
    feed, time = sample_posts(rng, feeds, days)
    # These feeds post a full window, seconds apart, somewhere in the first half of the trace, and
    # nothing after that.
    rows = np.flatnonzero(batch)
    of = np.repeat(rows, feeds.window[rows])
    batch_start = np.zeros(n)
    batch_start[rows] = EPOCH + rng.random(len(rows)) * days / 2 * DAY_S
    batches = np.floor(batch_start[of] + rng.random(len(of)) * 10 * feeds.window[of])
    return _trace(
        "urbansky", rng, feeds, np.concatenate([feed, of]), np.concatenate([time, batches]), 900.0
    )


#: Rates of FeedEx Fig. 2(a): Zipf between ranks 30 and 200 of 245. The exponent is not printed.
#: Sect. 4: 70 feeds have 5 entries a day or more.
FEEDEX_EXPONENT = 1.2
FEEDEX_RANKS = (30, 200, 245)
FEEDEX_RATE_AT_70 = 5.0
#: The four posting patterns of FeedEx Fig. 2(c), each named after its example.
FEEDEX_PATTERNS = (
    "by day, as Reuters",
    "round the clock, as Yahoo",
    "no weekends, as Motley Fool",
    "fixed hours, as NPR",
)


def _feedex(rng: np.random.Generator, n: int, days: float) -> Trace:
    low, high, all_feeds = FEEDEX_RANKS
    rank = (np.arange(n) + 1) * all_feeds / n
    rate = FEEDEX_RATE_AT_70 * (70 / rank) ** FEEDEX_EXPONENT
    # The head has many sites with similar rates. The tail drops because only popular feeds were
    # studied.
    rate *= np.where(rank < low, (rank / low) ** (0.7 * FEEDEX_EXPONENT), 1.0)
    rate *= np.where(rank > high, (high / rank) ** 5.0, 1.0)
    pattern = rng.choice(4, size=n, p=[0.55, 0.15, 0.2, 0.1])
    pattern[: min(4, n)] = np.arange(4)[: min(4, n)]
    weeks = np.array([_week(1, 0.75)[0], np.ones(7), _week(1, 0.0)[0], _week(1, 0.85)[0]])
    # Fig. 2(b): 79 of 245 documents list 15 entries, 30 list 10, one lists 126 on average.
    kind = rng.permutation(n) * all_feeds / n
    others = np.clip(
        np.rint(np.exp(rng.normal(np.log(22), 0.5, size=n)) * (rate / np.median(rate)) ** 0.25),
        3,
        90,
    )
    others += np.isin(others, (10, 15))
    window = np.where(kind < 79, 15, np.where(kind < 109, 10, others)).astype(np.int64)
    window[np.argmax(np.where(kind >= 109, window, 0))] = 126
    shapes = [blend(0.25, (0.75, 18.0, 4.0)), blend(1.0), blend(0.1, (0.9, 17.0, 3.0))]
    shapes.append(blend(0.0, (0.3, 9.5, 0.3), (0.4, 16.5, 0.3), (0.3, 21.5, 0.3)))
    feeds = Population(
        rate_per_day=rate,
        shapes=np.array(shapes),
        shape=pattern,
        week=weeks[pattern],
        drift=_drift(rng, n, days, 0.2, 6.0),
        window=window,
        names=[FEEDEX_PATTERNS[p] for p in pattern],
    )
    feed, time = sample_posts(rng, feeds, days)
    return _trace("feedex", rng, feeds, feed, time)


def _homogeneous(rng: np.random.Generator, n: int, days: float) -> Trace:
    """Generate a control trace with constant rates, no daily pattern and unlimited windows.

    Square-root allocation is optimal for this trace.
    """
    feeds = Population(
        rate_per_day=np.exp(rng.normal(0.0, 1.0, size=n)),
        shapes=np.full((1, 24), 1 / 24),
        shape=np.zeros(n, dtype=np.int64),
        week=np.ones((n, 7)),
        drift=_no_drift(n, days),
        window=np.full(n, UNLIMITED),
    )
    feed, time = sample_posts(rng, feeds, days)
    return _trace("homogeneous", rng, feeds, feed, time)


MODELS: dict[str, Callable[[np.random.Generator, int, float], Trace]] = {
    "sia-cho": _sia_cho,
    "han": _han,
    "feedex": _feedex,
    "urbansky": _urbansky,
    "homogeneous": _homogeneous,
}
