"""What-if analysis: past posts replayed at several budgets.

The policy learns from the first part of the trace and is scored on the rest, once per budget, with
the budget control of the service. A large installation replays a sample of its feeds at the same
polls per feed and day, which has the same delays except for sampling error; its polls are scaled
up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidings.errors import TraceError, UsageError
from tidings.lab import plots
from tidings.lab.score import PollScores, metrics, score_polls
from tidings.lab.simulate import Conditions, simulate
from tidings.lab.traces import Trace
from tidings.policy import make_policy

DEFAULT_BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0)
TRAIN_DAYS = 28.0
#: Share of pushed posts above which a feed is not scored.
MOSTLY_PUSHED = 0.5


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of one budget. Delays are None where no post was collected."""

    budget: float  #: polls per feed and day, as given
    polls_per_feed_day: float  #: polls made per feed and day
    polls_per_day: float  #: of all feeds of the trace, also where a sample was replayed
    posts: int  #: judged
    mean_delay_s: float | None
    median_delay_s: float | None
    p95_delay_s: float | None
    missed_share: float | None
    charged_delay_s: float | None


def training_days(trace: Trace, train_days: float | None = None) -> float:
    """Return four weeks, or half of a trace that is shorter than eight."""
    return min(TRAIN_DAYS, trace.days / 2) if train_days is None else train_days


def whatif(
    trace: Trace,
    budgets: Sequence[float] = DEFAULT_BUDGETS,
    policy: str = "price",
    train_days: float | None = None,
    sample_feeds: int | None = None,
    progress: Callable[[float], None] | None = None,
    *,
    seed: int = 0,
    conditions: Conditions | None = None,
) -> list[Point]:
    """Return delay and missed share at each budget (polls per feed and day), in the given order.

    ``sample_feeds`` replays that many feeds, drawn with the seed, instead of all; ``progress`` gets
    the finished share. With ``conditions`` the figures are those of the service, without pushed
    feeds: see `exclude_pushed_feeds`.
    """
    if not make_policy(policy).budgeted:
        raise UsageError(f"{policy} has no budget; use a policy that takes one, such as price")
    if not budgets or not all(np.isfinite(budget) and budget > 0 for budget in budgets):
        raise UsageError("budgets must be numbers of polls per feed and day above 0, at least one")
    start, end = trace.training_end(training_days(trace, train_days)), trace.end
    replayed, conditions = sample_trace(trace, conditions, sample_feeds, seed)
    if not np.any(replayed.times >= start):
        raise TraceError(
            trace.name, "has no posts after the training part; there is nothing to judge"
        )
    points = []
    # Time is proportional to polls, so progress counts polls, not budgets.
    total, before = sum(budgets), 0.0
    for budget in budgets:

        def report(share: float, before: float = before, budget: float = budget) -> None:
            if progress is not None:
                progress((before + share * budget) / total)

        chooser = make_policy(policy, live=conditions is not None, seed=seed)
        polls = simulate(
            replayed, chooser, budget, start, end, seed=seed, conditions=conditions, progress=report
        )
        scores = exclude_pushed_feeds(
            score_polls(replayed, polls, start, end, conditions=conditions), conditions
        )
        points.append(_point(budget, metrics(scores), trace.n_feeds))
        before += budget
    return points


def exclude_pushed_feeds(scores: PollScores, conditions: Conditions | None) -> PollScores:
    """Keep the posts of feeds that have to be polled; pushed posts arrive at once at any budget."""
    if conditions is None or conditions.pushed_share is None:
        return scores
    keep = conditions.pushed_share[scores.feed] < MOSTLY_PUSHED
    posts = {
        name: getattr(scores, name)[keep]
        for name in ("feed", "delay_s", "charged_s", "missed", "weight")
    }
    return replace(scores, **posts)


def sample_trace(
    trace: Trace, conditions: Conditions | None, feeds: int | None, seed: int
) -> tuple[Trace, Conditions | None]:
    """Return a sample of the feeds with their conditions; all feeds if there are no more, or for
    None.
    """
    if feeds is None or feeds >= trace.n_feeds:
        return trace, conditions
    if feeds < 1:
        raise UsageError(f"a sample needs at least one feed, not {feeds}")
    rows = np.sort(np.random.default_rng(seed).choice(trace.n_feeds, feeds, replace=False))
    return trace.select(rows), None if conditions is None else conditions.select(rows)


def _point(budget: float, found: dict[str, Any], feeds: int) -> Point:
    per_feed = found["polls_per_feed_day"] or 0.0
    kept = (
        "posts",
        "mean_delay_s",
        "median_delay_s",
        "p95_delay_s",
        "missed_share",
        "charged_delay_s",
    )
    return Point(
        budget=budget,
        polls_per_feed_day=per_feed,
        polls_per_day=per_feed * feeds,
        **{key: found[key] for key in kept},
    )


def picture(points: Sequence[Point], title: str) -> plots.Figure:
    """Draw delay and missed share over the budget, one above the other."""
    points = sorted(points, key=lambda point: point.budget)
    x = [point.budget for point in points]
    fig, (delays, losses) = plots.panels(2, 1, 7.0, 5.4, sharex=True)
    delays.set_title(title, loc="left", fontsize=10.5)
    delays.set_xlim(min(x) / 1.12, max(x) * 1.12)
    lines = {
        "mean": [point.mean_delay_s for point in points],
        "95 % within": [point.p95_delay_s for point in points],
        "median": [point.median_delay_s for point in points],
    }
    plots.delay_curves(delays, x, lines)
    missed = [100 * (point.missed_share or 0.0) for point in points]
    losses.plot(x, missed, color=plots.ACCENT, marker="o", markersize=3.2, clip_on=False)
    losses.set_ylim(0, max(*missed, 0.1) * 1.1)
    losses.locator_params(axis="y", nbins=5)
    losses.set_ylabel("missed, % of posts")
    losses.set_xlabel("budget, polls per feed and day")
    plots.log_ticks(losses, "x", x)
    plots.grid(losses)
    return fig
