"""Charts and minimum interval choices of the page about one feed."""

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

#: Ranges of the timeline in days, the default range, and the days for which polls are stored.
RANGE_CHOICES_D, DEFAULT_RANGE_D, POLL_LOG_DAYS = (1, 3, 7), 3, 8
#: Shortest range in seconds that the timeline can be zoomed to.
MIN_ZOOM_S = 10 * 60
#: Distances between the ticks of the timeline in hours.
TICK_STEPS_H = (1 / 12, 1 / 4, 1, 3, 6, 24)
#: Maximum number of polls read for the timeline. No feed has more in eight days.
MAX_POLLS = 2000
#: Minimum number of posts for a heatmap.
MIN_POSTS_FOR_HEATMAP = 5
#: Minimum intervals that subscribers can choose, within the operator's limits.
INTERVALS_S = (
    *(15 * MINUTE_S, 30 * MINUTE_S, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S),
    *(DAY_S, WEEK_S),
)


async def feed_charts(context: RequestContext, explanation: FeedExplanation) -> dict[str, Any]:
    """Return the template values of the heatmap and the timeline of a feed."""
    store, now, settings = (
        context.services.store,
        context.services.clock(),
        await context.settings(),
    )
    feed_id = explanation.feed.id
    start, end, days = _time_range(context.request.query_params, now)
    posts = (await store.posting_times(now - HISTORY_DAYS * DAY_S, [feed_id]))["at"]
    posts = posts[posts <= now]
    within = posts[(posts >= start) & (posts <= end)]
    polls = [poll for poll in await store.polls(feed_id, MAX_POLLS) if start <= poll.at <= end]
    peer_arrivals = [
        (at, number)
        for at, number in await store.read(poll_statistics.peer_arrivals, feed_id, start)
        if at <= end
    ]
    return {
        "heatmap": charts.heatmap(_local(posts, settings))
        if len(posts) >= MIN_POSTS_FOR_HEATMAP
        else None,
        "timeline": _timeline(
            within, polls, peer_arrivals, explanation.next_poll_at, (start, end), now, settings
        ),
        "from": int(start),
        "until": int(end),
        "days": days,
        "ranges": RANGE_CHOICES_D,
        "legend": [
            (charts.legend_marker(kind), label) for kind, label in charts.poll_kind_labels().items()
        ],
        "history_days": HISTORY_DAYS,
    }


def _time_range(query: Mapping[str, str], now: float) -> tuple[float, float, int]:
    """Return start and end of the timeline in epoch seconds, and its length in days.

    The length is 0 for a zoomed range (query parameters ``from`` and ``until``).
    """
    bounds = [query.get(name, "") for name in ("from", "until")]
    if all(text.isdecimal() and len(text) < 12 for text in bounds):
        start = min(max(float(bounds[0]), now - POLL_LOG_DAYS * DAY_S), now)
        return start, min(max(float(bounds[1]), start + MIN_ZOOM_S), now + DAY_S), 0
    days = next(
        (days for days in RANGE_CHOICES_D if str(days) == query.get("days")), DEFAULT_RANGE_D
    )
    return now - days * DAY_S, now + days * DAY_S / 12, days


def _local(posts: Floats, settings: Settings) -> Floats:
    """Return timestamps shifted by the UTC offset of the user's time zone."""
    zone = templating.zone(settings.timezone)
    offsets = [
        (datetime.fromtimestamp(at, zone).utcoffset() or timedelta()).total_seconds()
        for at in posts.tolist()
    ]
    return np.asarray(posts + np.array(offsets), dtype=np.float64)


def poll_kind(poll: Poll) -> str:
    """Return the kind of a poll, one of `charts.POLL_KINDS`."""
    if poll.error_kind:
        return "failed"
    if poll.source == "push":
        return "push"
    return "found" if poll.new else "unchanged" if poll.status == 304 else "nothing"


def _timeline(
    posts: Floats,
    polls: list[Poll],
    peer_arrivals: list[tuple[float, int]],
    next_at: float | None,
    time_range: tuple[float, float],
    now: float,
    settings: Settings,
) -> Markup:
    labels = charts.poll_kind_labels()
    poll_points = [
        (
            poll.at,
            poll_kind(poll),
            f"{templating.format_datetime(poll.at, settings, now)}: {_outcome(poll, labels)}",
        )
        for poll in polls
    ]
    for at, number in peer_arrivals:
        found = n_("%(num)s new post", "%(num)s new posts", number)
        result = f"{labels['peer']}: {found}"
        poll_points.append(
            (at, "peer", f"{templating.format_datetime(at, settings, now)}: {result}")
        )
    published = _("published")
    post_points = [
        (at, f"{templating.format_datetime(at, settings, now)}: {published}")
        for at in posts.tolist()
    ]
    next_poll = (
        (next_at, _("next check"))
        if next_at is not None and now < next_at < time_range[1]
        else None
    )
    ticks = _ticks(*time_range, settings)
    return charts.timeline(post_points, poll_points, ticks, now, next_poll)


def _outcome(poll: Poll, labels: dict[str, str]) -> str:
    result = (
        n_("%(num)s new post", "%(num)s new posts", poll.new)
        if poll.new
        else labels[poll_kind(poll)]
    )
    delay = (
        ", " + _("found %(delay)s after publication", delay=duration_short(poll.delay_mean_s))
        if poll.delay_mean_s is not None
        else ""
    )
    return (poll.error or result) + delay


def _ticks(start: float, end: float, settings: Settings) -> list[tuple[float, str]]:
    """Return (time, label) of the ticks of the timeline.

    There is a tick at both ends and at every midnight, or at every few hours in short ranges.
    """
    zone = templating.zone(settings.timezone)
    step = timedelta(
        hours=next(
            hours
            for hours in TICK_STEPS_H
            if 9 * hours * HOUR_S > end - start or hours == TICK_STEPS_H[-1]
        )
    )
    at = datetime.fromtimestamp(start, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [(start, "")]
    while (at := at + step).timestamp() < end:
        if at.timestamp() > start:
            midnight = at.hour == 0 and at.minute == 0
            ticks.append(
                (at.timestamp(), f"{at:%a %-d}" if midnight else f"{at.hour}:{at.minute:02d}")
            )
    return [*ticks, (end, "")]


# --- minimum interval -----------------------------------------------------------------------------


def min_interval_text(own: Subscription, effective: MinInterval) -> str:
    """Return the effective minimum interval as text, such as ``15 min (set by you)``."""
    code, set_s = effective.reason.code, own.feed.min_interval_s
    if not code:
        return _("not known until the first check")
    reason = {
        "min_interval": _("the server supports 304 Not Modified"),
        "min_interval_full": _("the server always sends the full feed"),
        "min_interval_overflow": _("the feed lists posts only for a short time"),
        "min_interval_override": _("set by you"),
        "ttl": _("requested by the feed with ttl"),
        "update_period": _("requested by the feed with sy:updatePeriod"),
        "fresh": _("requested by the server with Cache-Control or Expires"),
    }.get(code, code)
    if code == "min_interval_override" and own.min_interval_s != set_s:
        reason = _("set by another user; the shortest interval applies")
    elif (
        code in ("ttl", "update_period", "fresh") and 0 < own.min_interval_s < effective.interval_s
    ):
        reason = _(
            "%(reason)s, which overrides your interval of %(own)s",
            reason=reason,
            own=duration(own.min_interval_s),
        )
    return f"{duration(effective.interval_s)} ({reason})"


def interval_choices(
    reader_service: ReaderService, own: Subscription, effective: MinInterval
) -> list[tuple[int, str, bool]]:
    """Return (seconds, label, selected) of the minimum intervals that the user can choose."""
    least, most = reader_service.min_interval_bounds_s
    seconds = sorted(
        {s for s in INTERVALS_S if least <= s <= most} | ({own.min_interval_s} - {0.0})
    )
    automatic = _("Automatic (%(interval)s)", interval=duration(effective.automatic_s))
    if not effective.reason:
        automatic = _("Automatic")
    return [
        (0, automatic, not own.min_interval_s),
        *((int(s), _long_duration(s), s == own.min_interval_s) for s in seconds),
    ]


def _long_duration(seconds: float) -> str:
    """Return a duration as text in whole units, such as ``30 min``, ``1 h`` or ``1 day``."""
    if seconds % WEEK_S == 0:
        return n_("%(num)s week", "%(num)s weeks", int(seconds // WEEK_S))
    if seconds % DAY_S == 0:
        return n_("%(num)s day", "%(num)s days", int(seconds // DAY_S))
    if seconds % HOUR_S == 0:
        return n_("%(num)s h", "%(num)s h", int(seconds // HOUR_S))
    return duration(seconds)
