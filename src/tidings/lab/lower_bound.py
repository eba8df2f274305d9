"""Compute the lowest delay that any choice of polls can reach, knowing all posts.

This is the clairvoyant bound. Polls can be assumed at posting instants: moving one back to the last
post before it never increases the delay. Collecting posts (i, j] of a feed at t_j costs C(i, j),
and the optimum for a feed with m polls is a shortest path of m links (dynamic programming). C
satisfies the quadrangle inequality (also with a window, when a missed post costs its time to
eviction plus a constant), so the cost is convex in m, one Lagrange multiplier mu splits the budget
exactly over all feeds, and ``D(M) = max over mu of [ sum_i min over plans of (delay + mu polls) -
mu M ]`` without a duality gap (docs/limit.md).
"""

from dataclasses import dataclass

import numpy as np

from tidings.lab.jit import jit
from tidings.lab.traces import UNLIMITED, Trace
from tidings.model import DAY_S, Floats, Ints

#: Cost of a missed post in addition to its time to eviction, in seconds.
MISS_CHARGE_S = DAY_S


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Lowest mean delay of the posts of a trace at a number of polls (clairvoyant bound)."""

    polls: float
    posts: int
    mean_s: float  #: weighted mean over the posts


def clairvoyant_bound(
    trace: Trace,
    polls: float,
    *,
    windows: bool,
    start: float | None = None,
    end: float | None = None,
    miss_charge_s: float = MISS_CHARGE_S,
) -> LowerBound:
    """Return the lowest possible mean delay, or mean charged delay with ``windows``.

    The result is exact. Posts before ``start`` are known and cost nothing; posts left at ``end``
    are collected by a free closing poll. ``polls`` may be fractional: the result is interpolated
    between whole numbers. In the charged delay, a missed post costs its time to eviction plus
    ``miss_charge_s``.
    """
    start = trace.start if start is None else start
    end = trace.end if end is None else end
    window = trace.window if windows else np.full(trace.n_feeds, UNLIMITED)
    keep = trace.times >= start
    times = trace.times[keep] - start
    counts = np.concatenate([[0], np.cumsum(keep)])
    offsets = counts[trace.offsets]
    posts = len(times)
    if posts == 0:
        return LowerBound(polls, 0, 0.0)
    weight = np.maximum(trace.weight, 1e-300)
    total_weight = float((weight * np.diff(offsets)).sum())

    def at(price: float) -> tuple[float, float]:
        cost, used = _cheapest(times, offsets, window, weight, miss_charge_s, price, end - start)
        return float(cost), float(used)

    low, high = (
        0.0,
        float(weight.max()) * (end - start + miss_charge_s) * max(int(np.diff(offsets).max()), 1),
    )
    free, most = at(0.0)
    if most <= polls:
        return LowerBound(polls, posts, free / total_weight)
    low = 1e-9
    best = free
    for _ in range(200):
        price = float(np.sqrt(low * high))
        cost, used = at(price)
        best = max(best, cost - price * polls)
        if used > polls:
            low = price
        else:
            high = price
        if high / low - 1 < 1e-12 or used == polls:
            break
    return LowerBound(polls, posts, best / total_weight)


@jit
def _collect(i: int, j: int, at: float, sums: Floats, lost: Floats, window: int) -> float:
    """Return C(i, j), the total delay of posts i to j - 1 if they are polled at time ``at``.

    Missed posts count with their cost in ``lost``.
    """
    visible = max(i, j - window)
    return float((j - visible) * at - (sums[j] - sums[visible]) + (lost[visible] - lost[i]))


@jit
def _cheapest(
    times: Floats,
    offsets: Ints,
    window: Ints,
    weight: Floats,
    charge: float,
    price: float,
    end: float,
) -> tuple[float, int]:
    """Return the lowest cost of all feeds at a price of a poll, and its number of polls.

    The cost of a feed is weight x delay + price x polls. Polls are at the distinct posting
    instants: ``ends[q]`` posts are published at instant q, and ``best[q]`` is the lowest cost with
    a poll there. By the quadrangle inequality a later start, once better, stays better: a queue
    contains the starts that still matter, each with the instant from which it is best, found by
    bisection. Instant k + 1 is the closing poll.
    """
    total, polls = 0.0, 0
    for f in range(len(window)):
        t = times[offsets[f] : offsets[f + 1]]
        n, s, w = len(t), window[f], weight[f]
        sums, lost = np.zeros(n + 1), np.zeros(n + 1)
        ends, when = np.zeros(n + 2, dtype=np.int64), np.zeros(n + 2)
        k = 0
        for p in range(n):
            sums[p + 1] = sums[p] + t[p]
            lost[p + 1] = lost[p] + (t[p + s] - t[p] + charge if p + s < n else 0.0)
            if p + 1 == n or t[p + 1] > t[p]:
                k += 1
                ends[k], when[k] = p + 1, t[p]
        ends[k + 1], when[k + 1] = n, end
        best, used = np.zeros(k + 1), np.zeros(k + 1, dtype=np.int64)
        queue, takes_over = np.zeros(k + 2, dtype=np.int64), np.zeros(k + 2, dtype=np.int64)
        head, tail = 0, 1  # the queue contains start 0, which is best from instant 1 on
        takes_over[0] = 1
        for j in range(1, k + 2):
            while head + 1 < tail and takes_over[head + 1] <= j:
                head += 1
            i = queue[head]
            cost = best[i] + w * _collect(ends[i], ends[j], when[j], sums, lost, s)
            if j == k + 1:
                total += cost
                polls += used[i]
                break
            best[j], used[j] = cost + price, used[i] + 1
            low = j + 1
            while tail > head:
                i = queue[tail - 1]
                low, high = max(takes_over[tail - 1], j + 1), k + 2
                # Is the new start better than the last one in the queue wherever that one would be
                # used?
                beaten = True
                while low < high:
                    middle = low if beaten else (low + high) // 2
                    old = best[i] + w * _collect(ends[i], ends[middle], when[middle], sums, lost, s)
                    new = best[j] + w * _collect(ends[j], ends[middle], when[middle], sums, lost, s)
                    if new > old:
                        low, beaten = middle + 1, False
                    elif beaten:
                        break
                    else:
                        high = middle
                if not beaten or low >= k + 2:
                    break
                tail -= 1
                low = j + 1
            if low <= k + 1:
                queue[tail], takes_over[tail] = j, low
                tail += 1
    return total, polls
