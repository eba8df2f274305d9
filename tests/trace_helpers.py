"""Test helpers for the lab: traces from lists, and slow reference implementations."""

import numpy as np

from tidings.lab.traces import Trace
from tidings.model import DAY_S, Documents

#: Monday 1 January 2024, 00:00 UTC.
MONDAY = 1_704_067_200.0


def trace_of(*feeds, window=10, start=0.0):
    """Build a trace from lists of posting times, one per feed."""
    feed = np.concatenate([np.full(len(posts), i) for i, posts in enumerate(feeds)]).astype(
        np.int64
    )
    times = np.concatenate([np.asarray(posts, dtype=float) for posts in feeds]) + start
    windows = np.full(len(feeds), window) if np.isscalar(window) else np.asarray(window)
    return Trace.build("test", feed, times, windows)


def poisson_trace(rates_per_day, days, seed=0, window=12, start=MONDAY):
    """Build a trace of homogeneous Poisson processes with times at whole seconds."""
    rng = np.random.default_rng(seed)
    feeds = [
        np.sort(rng.integers(0, int(days * DAY_S), rng.poisson(rate * days)))
        for rate in rates_per_day
    ]
    return trace_of(*feeds, window=window, start=start)


def document(*entries, new=None, gap=False):
    """Build a batch of one document; its last ``new`` entries (default: all) are new."""
    n = len(entries)
    fresh = 0 if new is None else n - new
    return Documents(
        np.array(entries, dtype=float),
        np.array([0]),
        np.array([fresh]),
        np.array([n]),
        np.array([gap]),
    )


def score_brute_force(trace, polls_by_feed, end=None, start=None):
    """Score every post separately; returns a list of (feed, delay or None, charged delay)."""
    end = trace.end if end is None else end
    start = trace.start if start is None else start
    out = []
    for f in range(trace.n_feeds):
        posts = trace.times[trace.offsets[f] : trace.offsets[f + 1]].tolist()
        poll_times = [*sorted(p for p in polls_by_feed.get(f, []) if p <= end), end]
        for number, post in enumerate(posts):
            if post < start:
                continue
            found_at = next(poll_time for poll_time in poll_times if poll_time >= post)
            newer = sum(1 for other in posts[number + 1 :] if other <= found_at)
            if newer >= trace.window[f]:
                out.append((f, None, posts[number + trace.window[f]] - post + 86400))
            else:
                out.append((f, found_at - post, found_at - post))
    return out
