"""How much history statistics need before they are shown, and how much there is.

A young installation has no figures worth reading: its first polls find old posts, which have no delay, and
the few that follow say more about the hour than about the service. One rule, for the pages, the command
line and the API (docs/guide/understand.md):

- delays (median, p90) of a week or a month: `DELAY_DAYS` of polling and `DELAY_POSTS` posts with a known delay;
- the median of a part (a day, an hour, one feed): also `MEDIAN_POSTS` posts of that part, its p90 `P90_POSTS`;
- missed posts, and shares of requests: `DELAY_DAYS` of polling;
- the comparison with hourly polling: `COMPARISON_DAYS` of polling, and what the curve needs;
- the curve of delay against budget: `CURVE_DAYS` of history, of which `DELAY_DAYS` polled, and `CURVE_POSTS`
  judged posts.

Plain counts (requests, bytes, posts received) need nothing.
"""

from msgspec import Struct

from tidings.i18n import _, n_
from tidings.store.connection import Connection

DAY_S = 86400.0
#: After three days the first documents, which were all new, are long known, and every hour of the day has
#: been polled in more than once.
DELAY_DAYS = 3.0
#: Of 50 posts five are later than the p90: its 95 % interval reaches from the 82nd to the 98th percentile.
DELAY_POSTS = 50
#: The true median lies between the smallest and the largest of six values with 97 %.
MEDIAN_POSTS = 6
#: Two of 20 posts are later than their p90.
P90_POSTS = 20
#: Posting follows the week: with less, weekdays would be compared with weekends.
COMPARISON_DAYS = 7.0
#: Two of every day of the week: one to learn from, and one to judge.
CURVE_DAYS = 14.0
CURVE_POSTS = 50


class Evidence(Struct, frozen=True):
    """How much history there is."""

    polled_days: float  #: since the first poll
    posts: int  #: with a known delay, in the period that the figures describe

    @property
    def is_polled(self) -> bool:
        """Whether there was time enough for missed posts and shares of requests."""
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
    """Days since the first poll of the installation, as far as the log of polls reaches."""
    (first,) = db.execute("SELECT min(at) FROM polls").fetchone()
    return 0.0 if first is None else max(now - first, 0.0) / DAY_S


# --- texts ----------------------------------------------------------------------------------------


def delay_needs(evidence: Evidence) -> str:
    """What is missing for delay figures; nothing where they can be shown."""
    if evidence.has_delays:
        return ""
    return _(
        "Delay: available after %(days)s of checks and %(posts)s (so far %(days_so_far)s, %(posts_so_far)s).",
        days=days_text(DELAY_DAYS),
        posts=posts_text(DELAY_POSTS),
        days_so_far=days_text(evidence.polled_days),
        posts_so_far=posts_text(evidence.posts),
    )


def polling_needs(evidence: Evidence) -> str:
    """What is missing for missed posts and shares of requests; nothing where they can be shown."""
    if evidence.is_polled:
        return ""
    return _(
        "Missed posts and unchanged answers: available after %(days)s of checks (so far %(days_so_far)s).",
        days=days_text(DELAY_DAYS),
        days_so_far=days_text(evidence.polled_days),
    )


def comparison_needs(evidence: Evidence) -> str:
    """What is missing for the comparison with hourly polling; nothing where it can be shown."""
    if evidence.has_comparison:
        return ""
    return _(
        "Comparison with hourly polling: available after %(days)s of checks (so far %(days_so_far)s).",
        days=days_text(COMPARISON_DAYS),
        days_so_far=days_text(evidence.polled_days),
    )


def curve_needs(history_days: float | None, polled_days: float, judged_posts: int | None) -> str:
    """What is missing for the curve of delay against budget; nothing where it can be shown.

    ``history_days`` and ``judged_posts`` are None where they have not been counted.
    """
    if polled_days < DELAY_DAYS or history_days is None or judged_posts is None:
        return _(
            "Effect of a different budget: available after %(days)s of checks and %(history)s of post history "
            "(so far %(days_so_far)s of checks).",
            days=days_text(DELAY_DAYS),
            history=days_text(CURVE_DAYS),
            days_so_far=days_text(polled_days),
        )
    if history_days >= CURVE_DAYS and judged_posts >= CURVE_POSTS:
        return ""
    return _(
        "Effect of a different budget: available after %(history)s of post history and %(posts)s in the days to judge "
        "(so far %(history_so_far)s, %(posts_so_far)s).",
        history=days_text(CURVE_DAYS),
        posts=posts_text(CURVE_POSTS),
        history_so_far=days_text(history_days),
        posts_so_far=posts_text(judged_posts),
    )


def days_text(days: float) -> str:
    """Whole days, rounded down: "3 days" only once they are over."""
    return n_("%(num)s day", "%(num)s days", int(days))


def posts_text(posts: int) -> str:
    """``12 posts``."""
    return n_("%(num)s post", "%(num)s posts", posts)
