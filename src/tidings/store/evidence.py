"""Minimum amounts of history that statistics need before they are shown.

A young installation has no meaningful figures: its first polls find old posts, which have no delay,
and the few that follow depend on the time of day. The rules, for pages, command line and API
(docs/guide/understand.md), are:

- delays (median, p90) of a week or a month need `DELAY_DAYS` of polling and `DELAY_POSTS` posts
  with a known delay;
- the median of a part (a day, an hour, one feed) needs, in addition, `MEDIAN_POSTS` posts of that
  part, and its p90 needs `P90_POSTS`;
- missed posts, and shares of requests, need `DELAY_DAYS` of polling;
- the comparison with hourly polling needs `COMPARISON_DAYS` of polling and the history of the
  curve;
- the curve of delay against budget needs `CURVE_DAYS` of history, of which `DELAY_DAYS` were
  polled, and `CURVE_POSTS` evaluated posts.

Plain counts (requests, bytes, posts received) need no minimum.
"""

from msgspec import Struct

from tidings.i18n import _, n_
from tidings.store.connection import Connection

DAY_S = 86400.0
#: Minimum number of days of polling for delays. After that time, every hour of the day was polled
#: more than once, and the first documents, whose entries are all new, are no longer counted.
DELAY_DAYS = 3.0
#: Minimum number of posts for delays. Of 50 posts five are later than the p90, whose 95 %
#: confidence interval reaches from the 82nd to the 98th percentile.
DELAY_POSTS = 50
#: Minimum number of posts for a median. The true median lies between the smallest and the largest
#: of six values with a probability of 97 %.
MEDIAN_POSTS = 6
#: Minimum number of posts for a p90. Two of 20 posts are later than the p90.
P90_POSTS = 20
#: Minimum number of days of polling for the comparison. It is a week because posting rates depend
#: on the day of the week.
COMPARISON_DAYS = 7.0
#: Minimum number of days of history for the curve, with one week for training and one for
#: evaluation.
CURVE_DAYS = 14.0
CURVE_POSTS = 50


class Evidence(Struct, frozen=True):
    """Amount of history from which statistics are computed."""

    polled_days: float  #: days since the first poll
    posts: int  #: number of posts with a known delay in the period of the statistics

    @property
    def is_polled(self) -> bool:
        """Whether there is enough history to show missed posts and shares of requests."""
        return self.polled_days >= DELAY_DAYS

    @property
    def has_delays(self) -> bool:
        """Whether there is enough history to show the median and the p90 of all posts."""
        return self.is_polled and self.posts >= DELAY_POSTS

    @property
    def has_comparison(self) -> bool:
        """Whether there is enough history to show a comparison with hourly polling."""
        return self.polled_days >= COMPARISON_DAYS

    def has_median(self, posts: int) -> bool:
        """Return whether there is enough history to show the median of ``posts`` posts."""
        return self.has_delays and posts >= MEDIAN_POSTS

    def has_p90(self, posts: int) -> bool:
        """Return whether there is enough history to show the p90 of ``posts`` posts."""
        return self.has_delays and posts >= P90_POSTS


def polled_days(db: Connection, now: float) -> float:
    """Return the number of days since the first poll in the poll log."""
    (first,) = db.execute("SELECT min(at) FROM polls").fetchone()
    return 0.0 if first is None else max(now - first, 0.0) / DAY_S


# --- texts ----------------------------------------------------------------------------------------


def delay_needs(evidence: Evidence) -> str:
    """Return a text that says how much history is missing to show delays.

    Returns an empty string if delays can be shown.
    """
    if evidence.has_delays:
        return ""
    return _(
        "Delays are shown after %(days)s of checks and %(posts)s (so far: "
        "%(days_so_far)s and %(posts_so_far)s).",
        days=days_text(DELAY_DAYS),
        posts=posts_text(DELAY_POSTS),
        days_so_far=days_text(evidence.polled_days),
        posts_so_far=posts_text(evidence.posts),
    )


def polling_needs(evidence: Evidence) -> str:
    """Return a text that says how much history is missing to show missed posts.

    Returns an empty string if missed posts can be shown.
    """
    if evidence.is_polled:
        return ""
    return _(
        "Missed posts and unchanged responses are shown after %(days)s of checks (so "
        "far: %(days_so_far)s).",
        days=days_text(DELAY_DAYS),
        days_so_far=days_text(evidence.polled_days),
    )


def comparison_needs(evidence: Evidence) -> str:
    """Return a text that says how much history the comparison with hourly polling still needs.

    Returns an empty string if the comparison can be shown.
    """
    if evidence.has_comparison:
        return ""
    return _(
        "The comparison with hourly polling is shown after %(days)s of checks (so "
        "far: %(days_so_far)s).",
        days=days_text(COMPARISON_DAYS),
        days_so_far=days_text(evidence.polled_days),
    )


def curve_needs(history_days: float | None, polled_days: float, evaluated_posts: int | None) -> str:
    """Return a text that says how much history is missing for the curve of delay against budget.

    Returns an empty string if the curve can be shown. ``history_days`` and ``evaluated_posts`` are
    None if they have not been counted.
    """
    if polled_days < DELAY_DAYS or history_days is None or evaluated_posts is None:
        return _(
            "The effect of a different budget is shown after %(days)s of checks and "
            "%(history)s of post history (so far: %(days_so_far)s of checks).",
            days=days_text(DELAY_DAYS),
            history=days_text(CURVE_DAYS),
            days_so_far=days_text(polled_days),
        )
    if history_days >= CURVE_DAYS and evaluated_posts >= CURVE_POSTS:
        return ""
    return _(
        "The effect of a different budget is shown after %(history)s of post history "
        "with %(posts)s (so far: %(history_so_far)s and %(posts_so_far)s).",
        history=days_text(CURVE_DAYS),
        posts=posts_text(CURVE_POSTS),
        history_so_far=days_text(history_days),
        posts_so_far=posts_text(evaluated_posts),
    )


def days_text(days: float) -> str:
    """Format a number of days, rounded down, such as ``3 days``."""
    return n_("%(num)s day", "%(num)s days", int(days))


def posts_text(posts: int) -> str:
    """Format a number of posts, such as ``12 posts``."""
    return n_("%(num)s post", "%(num)s posts", posts)
