"""Minimum sample sizes: how much history statistics need before they are shown.

A young installation has no meaningful figures: its first polls find old posts, which have no delay,
and the few that follow depend on the time of day. The rules, for pages, command line and API
(docs/guide/understand.md):

- delays (median, p90) of a week or a month: `DELAY_DAYS` of polling and `DELAY_POSTS` posts with a
  known delay;
- the median of a part (a day, an hour, one feed): in addition `MEDIAN_POSTS` posts of that part,
  for its p90 `P90_POSTS`;
- missed posts, and shares of requests: `DELAY_DAYS` of polling;
- the comparison with hourly polling: `COMPARISON_DAYS` of polling, and the history of the curve;
- the curve of delay against budget: `CURVE_DAYS` of history, of which `DELAY_DAYS` polled, and
  `CURVE_POSTS` evaluated posts.

Plain counts (requests, bytes, posts received) need no minimum.
"""

from msgspec import Struct

from tidings.i18n import _, n_
from tidings.store.connection import Connection

DAY_S = 86400.0
#: Minimum days of polling for delays: by then every hour of the day was polled more than once, and
#: the first documents, whose entries are all new, are no longer counted.
DELAY_DAYS = 3.0
#: Minimum number of posts for delays. Of 50 posts five are later than the p90: its 95 % interval
#: reaches from the 82nd to the 98th percentile.
DELAY_POSTS = 50
#: Minimum number of posts for a median: the true median lies between the smallest and the largest
#: of six values with a probability of 97 %.
MEDIAN_POSTS = 6
#: Minimum number of posts for a p90: two of 20 posts are later than it.
P90_POSTS = 20
#: Minimum days of polling for the comparison: posting rates depend on the day of the week.
COMPARISON_DAYS = 7.0
#: Minimum days of history for the curve: one week for training and one for evaluation.
CURVE_DAYS = 14.0
CURVE_POSTS = 50


class Evidence(Struct, frozen=True):
    """The amount of history."""

    polled_days: float  #: days since the first poll
    posts: int  #: with a known delay, in the period that the figures describe

    @property
    def is_polled(self) -> bool:
        """Whether there is enough polling for missed posts and shares of requests."""
        return self.polled_days >= DELAY_DAYS

    @property
    def has_delays(self) -> bool:
        """Whether there is enough for the median and the p90 of all posts."""
        return self.is_polled and self.posts >= DELAY_POSTS

    @property
    def has_comparison(self) -> bool:
        """Whether there is enough polling for a comparison with hourly polling."""
        return self.polled_days >= COMPARISON_DAYS

    def has_median(self, posts: int) -> bool:
        """Whether there is enough for the median of a part of all posts."""
        return self.has_delays and posts >= MEDIAN_POSTS

    def has_p90(self, posts: int) -> bool:
        """Whether there is enough for the p90 of a part of all posts."""
        return self.has_delays and posts >= P90_POSTS


def polled_days(db: Connection, now: float) -> float:
    """Days since the first poll in the poll log."""
    (first,) = db.execute("SELECT min(at) FROM polls").fetchone()
    return 0.0 if first is None else max(now - first, 0.0) / DAY_S


# --- texts ----------------------------------------------------------------------------------------


def delay_needs(evidence: Evidence) -> str:
    """Text that says what is missing for delays; empty if they can be shown."""
    if evidence.has_delays:
        return ""
    return _(
        "Delay: available after %(days)s of checks and %(posts)s "
        "(so far %(days_so_far)s, %(posts_so_far)s).",
        days=days_text(DELAY_DAYS),
        posts=posts_text(DELAY_POSTS),
        days_so_far=days_text(evidence.polled_days),
        posts_so_far=posts_text(evidence.posts),
    )


def polling_needs(evidence: Evidence) -> str:
    """Text that says what is missing for missed posts and request shares; empty if nothing."""
    if evidence.is_polled:
        return ""
    return _(
        "Missed posts and unchanged responses: available after %(days)s of checks "
        "(so far %(days_so_far)s).",
        days=days_text(DELAY_DAYS),
        days_so_far=days_text(evidence.polled_days),
    )


def comparison_needs(evidence: Evidence) -> str:
    """Text that says what is missing for the comparison with hourly polling; empty if nothing."""
    if evidence.has_comparison:
        return ""
    return _(
        "Comparison with hourly polling: available after %(days)s of checks "
        "(so far %(days_so_far)s).",
        days=days_text(COMPARISON_DAYS),
        days_so_far=days_text(evidence.polled_days),
    )


def curve_needs(history_days: float | None, polled_days: float, judged_posts: int | None) -> str:
    """Text that says what is missing for the curve of delay against budget; empty if nothing.

    ``history_days`` and ``judged_posts`` are None if they have not been counted.
    """
    if polled_days < DELAY_DAYS or history_days is None or judged_posts is None:
        return _(
            "Effect of a different budget: available after %(days)s of checks and %(history)s "
            "of post history (so far %(days_so_far)s of checks).",
            days=days_text(DELAY_DAYS),
            history=days_text(CURVE_DAYS),
            days_so_far=days_text(polled_days),
        )
    if history_days >= CURVE_DAYS and judged_posts >= CURVE_POSTS:
        return ""
    return _(
        "Effect of a different budget: available after %(history)s of post history and %(posts)s "
        "in the evaluated days (so far %(history_so_far)s, %(posts_so_far)s).",
        history=days_text(CURVE_DAYS),
        posts=posts_text(CURVE_POSTS),
        history_so_far=days_text(history_days),
        posts_so_far=posts_text(judged_posts),
    )


def days_text(days: float) -> str:
    """Format full days, rounded down, such as ``3 days``."""
    return n_("%(num)s day", "%(num)s days", int(days))


def posts_text(posts: int) -> str:
    """Format a number of posts, such as ``12 posts``."""
    return n_("%(num)s post", "%(num)s posts", posts)
