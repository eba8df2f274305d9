"""Compute the delay, missed posts and bytes that result from a list of polls.

A poll at exactly t collects a post at t. A post is missed if, at the first poll after it, as many
newer posts as the window (entries per document) have been published. After the last poll of a feed
there is one free closing poll at the end of the trace: it counts in delay and missed posts, not in
polls. Delay statistics cover collected posts, so they must be read with the missed share; the
charged delay combines both (a missed post costs its time to eviction plus 24 hours).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidings.lab.lower_bound import MISS_CHARGE_S
from tidings.lab.segments import segment_searchsorted
from tidings.lab.simulate import Conditions, Polls, simulate
from tidings.lab.traces import Trace, column, feed_rows, numbers, read_table
from tidings.model import DAY_S, HOUR_S, Bools, Floats, Ints
from tidings.policy import make_policy

#: Bytes of response headers, which are the complete response for a 304.
HEADER_BYTES = 300.0


@dataclass(frozen=True, slots=True)
class PollScores:
    """Delay or miss of every post in the scored period, and bytes transferred by the polls."""

    feed: Ints  #: feed number of each post
    delay_s: Floats  #: delay of each post; nan if it was missed
    charged_s: Floats  #: charged delay of each post
    missed: Bools  #: whether each post was missed
    weight: Floats  #: weight of each post
    n_feeds: int
    polls: Ints  #: number of polls of each feed
    period_s: float
    stale_s: Floats  #: per feed, the time during which a post was waiting
    age_s2: Floats  #: per feed, the integral of the age of the oldest waiting post
    bytes_full: float  #: bytes if every poll transfers the document
    bytes_conditional: (
        float  #: bytes if unchanged documents are answered with 304, where publishers support it
    )
    bytes_new_only: float  #: bytes if only new entries are transferred (Sia & Cho sect. 4.6)
    poll_delay_s: Floats  #: mean delay of the posts that each successful poll collected


def score_polls(
    trace: Trace,
    polls: Polls,
    start: float | None = None,
    end: float | None = None,
    *,
    conditions: Conditions | None = None,
) -> PollScores:
    """Return the delay or miss of every post in [start, end] under a list of polls.

    Posts before ``start`` are known and cost nothing. ``conditions`` state which publishers answer
    with 304 and how large their documents are. Without them all publishers answer with 304, and a
    document is as large as its entries.
    """
    start = trace.start if start is None else start
    end = trace.end if end is None else end
    post = np.flatnonzero((trace.times >= start) & (trace.times <= end))
    feed = trace.feed_of_post[post]
    published = trace.times[post]
    first, stop = polls.offsets[:-1], polls.offsets[1:]
    poll_index = segment_searchsorted(polls.times, first[feed], stop[feed], published)
    by_poll = poll_index < stop[feed]
    seen_at = np.minimum(
        np.append(polls.times, np.inf)[np.where(by_poll, poll_index, len(polls))], end
    )
    out_by_then = segment_searchsorted(
        trace.times, post, trace.offsets[1:][feed], seen_at, side="right"
    )
    window = trace.window[feed]
    missed = post < out_by_then - window
    pushed_out_at = trace.times[
        np.where(missed, np.minimum(post + window, len(trace.times) - 1), 0)
    ]
    delay = np.where(missed, np.nan, seen_at - published)
    charged = np.where(missed, pushed_out_at - published + MISS_CHARGE_S, seen_at - published)
    stale, age = _staleness(trace.n_feeds, feed, published, seen_at)
    collected = by_poll & ~missed
    sums = sum_by(poll_index[collected], delay[collected], len(polls))
    posts_per_poll = np.bincount(poll_index[collected], minlength=len(polls))
    full, conditional, new_only = _transfer(trace, polls, start, conditions)
    return PollScores(
        feed=feed,
        delay_s=delay,
        charged_s=charged,
        missed=missed,
        weight=trace.weight[feed],
        n_feeds=trace.n_feeds,
        polls=np.diff(polls.offsets),
        period_s=end - start,
        stale_s=stale,
        age_s2=age,
        bytes_full=full,
        bytes_conditional=conditional,
        bytes_new_only=new_only,
        poll_delay_s=sums[posts_per_poll > 0] / posts_per_poll[posts_per_poll > 0],
    )


def simulate_and_score(
    trace: Trace, spec: str, budget_per_feed_day: float, start: float
) -> PollScores:
    """Simulate the policy with the specification ``spec`` from ``start``, and score its polls."""
    return score_polls(trace, simulate(trace, make_policy(spec), budget_per_feed_day, start), start)


def _staleness(n: int, feed: Ints, published: Floats, seen_at: Floats) -> tuple[Floats, Floats]:
    """Return the stale time and the integral of the age for each feed.

    These are the freshness and age of the literature on web crawling.
    """
    if len(feed) == 0:
        return np.zeros(n), np.zeros(n)
    begins = np.ones(len(feed), dtype=np.bool_)
    begins[1:] = (feed[1:] != feed[:-1]) | (seen_at[1:] != seen_at[:-1])
    wait = (seen_at - published)[begins]
    return sum_by(feed[begins], wait, n), sum_by(feed[begins], wait**2 / 2, n)


def sum_by(group: Ints, values: Floats, n: int) -> Floats:
    """Return the sum of ``values`` in each of n groups."""
    return np.bincount(group, weights=values, minlength=n).astype(np.float64)


def _transfer(
    trace: Trace, polls: Polls, start: float, conditions: Conditions | None
) -> tuple[float, float, float]:
    """Return the bytes transferred under three protocols.

    They are full documents, conditional requests, and only new entries.
    """
    feed = polls.feed
    sums = np.concatenate([[0.0], np.cumsum(trace.sizes)])
    end = segment_searchsorted(
        trace.times, trace.offsets[:-1][feed], trace.offsets[1:][feed], polls.times, side="right"
    )
    first = np.maximum(end - trace.window[feed], trace.offsets[:-1][feed])
    known = np.empty_like(
        end
    )  # posts known before each poll, from the poll before or the training period
    at_start = trace.history(start).end
    known[1:] = end[:-1]
    begins = np.searchsorted(np.arange(len(feed)), polls.offsets[:-1])
    begins = begins[np.diff(polls.offsets) > 0]
    known[begins] = at_start[feed[begins]]
    document = sums[end] - sums[first] + HEADER_BYTES
    new = end > known
    full = new
    if conditions is not None:
        if conditions.document_bytes is not None:
            document = conditions.document_bytes[feed] + HEADER_BYTES
        if conditions.conditional is not None:
            full = new | ~conditions.conditional[feed]
    news = np.where(new, sums[end] - sums[np.maximum(first, known)], 0.0) + HEADER_BYTES
    return (
        float(document.sum()),
        float(np.where(full, document, HEADER_BYTES).sum()),
        float(news.sum()),
    )


def metrics(scores: PollScores, policy: str | None = None) -> dict[str, object]:
    """Return the summary figures of scores, with the names that the command line prints."""
    delay = scores.delay_s[~scores.missed]
    weight = scores.weight[~scores.missed]
    posts, polls = len(scores.feed), int(scores.polls.sum())
    missed = int(scores.missed.sum())
    feed_days = scores.n_feeds * scores.period_s / DAY_S
    figures: dict[str, object] = {} if policy is None else {"policy": policy}
    quantiles = np.percentile(delay, [50, 90, 95, 99, 100]) if len(delay) else [np.nan] * 5
    per_feed_delay, per_feed_polls = _per_feed(scores)
    figures |= {
        "polls": polls,
        "polls_per_feed_day": _number(polls / feed_days if feed_days > 0 else np.nan),
        "posts": posts,
        "mean_delay_s": _number(_mean(delay)),
        "median_delay_s": _number(quantiles[0]),
        "p90_delay_s": _number(quantiles[1]),
        "p95_delay_s": _number(quantiles[2]),
        "p99_delay_s": _number(quantiles[3]),
        "max_delay_s": _number(quantiles[4]),
        "sd_delay_s": _number(delay.std() if len(delay) else np.nan),
        "weighted_delay_s": _number(
            np.average(delay, weights=weight) if weight.sum() > 0 else np.nan
        ),
        "missed": missed,
        "missed_share": _number(missed / posts if posts else np.nan),
        "charged_delay_s": _number(_mean(scores.charged_s)),
        "polls_per_post": _number(polls / posts if posts else np.nan),
        "timeliness_3h": _number(np.exp(-delay / (3 * HOUR_S)).sum() / posts if posts else np.nan),
        "freshness": _number(
            1 - scores.stale_s.sum() / max(scores.n_feeds * scores.period_s, 1e-9)
        ),
        "age_s": _number(scores.age_s2.sum() / max(scores.n_feeds * scores.period_s, 1e-9)),
        "feeds_mode_delay_s": _number(_mean(per_feed_delay)),
        "feeds_mode_polls_per_post": _number(_mean(per_feed_polls)),
        "polls_mode_delay_s": _number(_mean(scores.poll_delay_s)),
        "bytes": round(scores.bytes_conditional),
        "bytes_full": round(scores.bytes_full),
        "bytes_new_only": round(scores.bytes_new_only),
    }
    return figures


def _per_feed(scores: PollScores) -> tuple[Floats, Floats]:
    """Return the mean delay and the polls per collected post of every feed that has posts.

    Urbansky et al. call this the mode "Feeds".
    """
    collected = ~scores.missed
    count = np.bincount(scores.feed[collected], minlength=scores.n_feeds)
    sums = sum_by(scores.feed[collected], scores.delay_s[collected], scores.n_feeds)
    active = count > 0
    return sums[active] / count[active], scores.polls[active] / count[active]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _number(value: float) -> float | None:
    """Return the value, or None for nan, which JSON cannot represent."""
    return None if np.isnan(value) else float(value)


def read_polls(file: str | Path, trace: Trace) -> Polls:
    """Read a list of polls (columns feed_id and polled_at) from a Parquet or CSV file."""
    path = Path(file)
    table = read_table(path)
    ids = column(path, table, "feed_id")
    times = numbers(path, table, "polled_at", low=0.0)
    return Polls.build(feed_rows(ids, trace.feed_ids, path, "the trace"), times, trace.n_feeds)


def polls_within(polls: Polls, start: float, end: float) -> Polls:
    """Return the polls within [start, end]."""
    keep = (polls.times >= start) & (polls.times <= end)
    return Polls.build(polls.feed[keep], polls.times[keep], len(polls.offsets) - 1)
