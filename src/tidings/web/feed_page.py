"""What a feed's page draws: when it posts, and its posts and looks on one line of time."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from markupsafe import Markup

from tidings.aggregator.explain import HISTORY_DAYS, FeedExplanation
from tidings.aggregator.min_interval import MinInterval
from tidings.formatting import duration, duration_short
from tidings.i18n import _, n_
from tidings.model import DAY_S, HOUR_S, MINUTE_S, WEEK_S, Floats
from tidings.store import poll_statistics
from tidings.store.feed_models import Poll
from tidings.store.user_models import Settings, Subscription
from tidings.users import ReaderService
from tidings.web import charts, templating
from tidings.web.request_context import RequestContext

#: Days that the line of time can show, and what it shows first; the log of looks is whole for eight.
RANGE_CHOICES_D, DEFAULT_RANGE_D, POLL_LOG_DAYS = (1, 3, 7), 3, 8
#: What somebody has drawn over to see it larger is shown no larger than this.
MIN_ZOOM_S = 10 * 60
#: Between the words below the line.
TICK_STEPS_H = (1 / 12, 1 / 4, 1, 3, 6, 24)
#: More looks than this in eight days are not made: the most frequent feed is asked every few minutes for hours at most.
MAX_POLLS = 2000
#: Fewer posts say nothing about habits.
MIN_POSTS_FOR_HEATMAP = 5
#: Minimum intervals that subscribers can choose from, within the operator's bounds.
INTERVALS_S = (
    *(15 * MINUTE_S, 30 * MINUTE_S, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S),
    *(DAY_S, WEEK_S),
)


async def feed_charts(context: RequestContext, told: FeedExplanation) -> dict[str, Any]:
    """The pictures of a feed's page, as its template wants them."""
    store, now, settings = context.site.store, context.site.clock(), await context.settings()
    begin, end, days = _time_range(context.request.query_params, now)
    posts = (await store.posting_times(now - HISTORY_DAYS * DAY_S, [told.feed.id]))["at"]
    posts = posts[posts <= now]
    within = posts[(posts >= begin) & (posts <= end)]
    polls = [poll for poll in await store.polls(told.feed.id, MAX_POLLS) if begin <= poll.at <= end]
    others = [
        other
        for other in await store.read(poll_statistics.peer_arrivals, told.feed.id, begin)
        if other[0] <= end
    ]
    return {
        "heat": charts.heatmap(_local(posts, settings))
        if len(posts) >= MIN_POSTS_FOR_HEATMAP
        else None,
        "line": _timeline(within, polls, others, told.next_poll_at, (begin, end), now, settings),
        "from": int(begin),
        "until": int(end),
        "days": days,
        "spans": RANGE_CHOICES_D,
        "shapes": [(charts.key(kind), labels) for kind, labels in _poll_kind_labels().items()],
        "habits_d": HISTORY_DAYS,
    }


def _time_range(query: Mapping[str, str], now: float) -> tuple[float, float, int]:
    """From when to when, and of how many days that is: 0 for a part that was drawn over (``from`` and ``until``)."""
    asked = [query.get(name, "") for name in ("from", "until")]
    if all(text.isdecimal() and len(text) < 12 for text in asked):
        begin = min(max(float(asked[0]), now - POLL_LOG_DAYS * DAY_S), now)
        return begin, min(max(float(asked[1]), begin + MIN_ZOOM_S), now + DAY_S), 0
    days = next(
        (span for span in RANGE_CHOICES_D if str(span) == query.get("days")), DEFAULT_RANGE_D
    )
    return now - days * DAY_S, now + days * DAY_S / 12, days


def _local(posts: Floats, settings: Settings) -> Floats:
    """As the clocks on the reader's wall had it."""
    there = templating.zone(settings.timezone)
    shifts = [
        (datetime.fromtimestamp(at, there).utcoffset() or timedelta()).total_seconds()
        for at in posts.tolist()
    ]
    return np.asarray(posts + np.array(shifts), dtype=np.float64)


def _poll_kind_labels() -> dict[str, str]:
    return {
        "found": _("found something"),
        "nothing": _("nothing new"),
        "unchanged": _("not changed (304)"),
        "failed": _("failed or refused"),
        "push": _("pushed (WebSub)"),
        "neighbour": _("from a peer"),
    }


def poll_kind(poll: Poll) -> str:
    """How a look is drawn."""
    if poll.error_kind:
        return "failed"
    if poll.source == "push":
        return "push"
    return "found" if poll.new else "unchanged" if poll.status == 304 else "nothing"


def _timeline(
    posts: Floats,
    polls: list[Poll],
    others: list[tuple[float, int]],
    next_at: float | None,
    shown: tuple[float, float],
    now: float,
    settings: Settings,
) -> Markup:
    labels = _poll_kind_labels()
    poll_points = [
        (
            poll.at,
            poll_kind(poll),
            f"{templating.format_datetime(poll.at, settings, now)}: {_outcome(poll, labels)}",
        )
        for poll in polls
    ]
    for at, number in others:
        said = f"{labels['neighbour']}: {n_('%(num)s new post', '%(num)s new posts', number)}"
        poll_points.append(
            (at, "neighbour", f"{templating.format_datetime(at, settings, now)}: {said}")
        )
    strokes = [
        (at, f"{templating.format_datetime(at, settings, now)}: {_('published')}")
        for at in posts.tolist()
    ]
    next_poll = (
        (next_at, _("next check")) if next_at is not None and now < next_at < shown[1] else None
    )
    return charts.timeline(strokes, poll_points, _ticks(*shown, settings), now, next_poll)


def _outcome(poll: Poll, labels: dict[str, str]) -> str:
    found = (
        n_("%(num)s new post", "%(num)s new posts", poll.new)
        if poll.new
        else labels[poll_kind(poll)]
    )
    late = (
        f", {duration_short(poll.delay_mean_s)} {_('after publication')}"
        if poll.delay_mean_s is not None
        else ""
    )
    return (poll.error or found) + late


def _ticks(begin: float, end: float, settings: Settings) -> list[tuple[float, str]]:
    """The ends of the line, and between them midnights or, the shorter the line, hours and parts of them."""
    there = templating.zone(settings.timezone)
    step = timedelta(
        hours=next(
            hours
            for hours in TICK_STEPS_H
            if 9 * hours * HOUR_S > end - begin or hours == TICK_STEPS_H[-1]
        )
    )
    at = datetime.fromtimestamp(begin, there).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [(begin, "")]
    while (at := at + step).timestamp() < end:
        if at.timestamp() > begin:
            midnight = at.hour == 0 and at.minute == 0
            ticks.append(
                (at.timestamp(), f"{at:%a %-d}" if midnight else f"{at.hour}:{at.minute:02d}")
            )
    return [*ticks, (end, "")]


# --- minimum interval -----------------------------------------------------------------------------


def min_interval_text(own: Subscription, found: MinInterval) -> str:
    """The minimum interval in force with what sets it: ``15 min (answers unchanged with 304)``."""
    code, set_s = found.reason.code, own.feed.min_interval_s
    if not code:
        return _("not known yet: the feed has not been checked")
    why = {
        "min_interval": _("answers unchanged with 304"),
        "min_interval_full": _("always sends the full document"),
        "min_interval_overflow": _("its document is replaced quickly"),
        "min_interval_override": _("set by you"),
        "ttl": _("its ttl"),
        "update_period": _("its update period, sy:updatePeriod"),
        "fresh": _("Cache-Control or Expires of its server"),
    }.get(code, code)
    if code == "min_interval_override" and own.min_interval_s != set_s:
        why = _("set by another subscriber; the shortest counts")
    elif code in ("ttl", "update_period", "fresh") and 0 < own.min_interval_s < found.interval_s:
        why = _(
            "%(why)s; the publisher's statement wins over the shorter %(own)s set by you",
            why=why,
            own=duration(own.min_interval_s),
        )
    return f"{duration(found.interval_s)} ({why})"


def interval_choices(
    reader_service: ReaderService, own: Subscription, found: MinInterval
) -> list[tuple[int, str, bool]]:
    """Seconds, label and whether it is chosen, of each minimum interval that the subscriber may set."""
    least, most = reader_service.min_interval_bounds_s
    seconds = sorted(
        {s for s in INTERVALS_S if least <= s <= most} | ({own.min_interval_s} - {0.0})
    )
    automatic = _("Automatic (%(interval)s)", interval=duration(found.automatic_s))
    if not found.reason:
        automatic = _("Automatic")
    return [
        (0, automatic, not own.min_interval_s),
        *((int(s), _long_duration(s), s == own.min_interval_s) for s in seconds),
    ]


def _long_duration(seconds: float) -> str:
    """``30 min``, ``1 h``, ``1 day``: whole units where there are any."""
    if seconds % WEEK_S == 0:
        return n_("%(num)s week", "%(num)s weeks", int(seconds // WEEK_S))
    if seconds % DAY_S == 0:
        return n_("%(num)s day", "%(num)s days", int(seconds // DAY_S))
    if seconds % HOUR_S == 0:
        return n_("%(num)s h", "%(num)s h", int(seconds // HOUR_S))
    return duration(seconds)
