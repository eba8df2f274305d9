"""What a feed's page draws: when it posts, and its posts and looks on one line of time."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from markupsafe import Markup

from tidings.aggregator.explain import HABITS_D, Explained
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.store import timing
from tidings.store.people_rows import Settings
from tidings.store.rows import Poll
from tidings.texts import _, n_
from tidings.web import charts, pages
from tidings.web.visit import Visit
from tidings.words import roughly

#: Days that the line of time can show, and what it shows first; the log of looks is whole for eight.
SPANS, SPAN, WHOLE_D = (1, 3, 7), 3, 8
#: What somebody has drawn over to see it larger is shown no larger than this.
LEAST_S = 10 * 60
#: Between the words below the line.
STEPS_H = (1 / 12, 1 / 4, 1, 3, 6, 24)
#: More looks than this in eight days are not made: the most frequent feed is asked every few minutes for hours at most.
MOST_LOOKS = 2000
#: Fewer posts say nothing about habits.
LEAST_POSTS = 5


async def drawn(visit: Visit, told: Explained) -> dict[str, Any]:
    """The pictures of a feed's page, as its template wants them."""
    store, now, settings = visit.site.store, visit.site.clock(), await visit.settings()
    begin, end, days = _shown(visit.request.query_params, now)
    posts = (await store.posting_times(now - HABITS_D * DAY_S, [told.feed.id]))["at"]
    posts = posts[posts <= now]
    within = posts[(posts >= begin) & (posts <= end)]
    polls = [poll for poll in await store.polls(told.feed.id, MOST_LOOKS) if begin <= poll.at <= end]
    others = [other for other in await store.read(timing.told, told.feed.id, begin) if other[0] <= end]
    return {
        "heat": charts.heat_map(_local(posts, settings)) if len(posts) >= LEAST_POSTS else None,
        "line": _time_line(within, polls, others, told.next_poll_at, (begin, end), now, settings),
        "from": int(begin),
        "until": int(end),
        "days": days,
        "spans": SPANS,
        "shapes": [(charts.key(kind), words) for kind, words in _words().items()],
        "habits_d": HABITS_D,
    }


def _shown(query: Mapping[str, str], now: float) -> tuple[float, float, int]:
    """From when to when, and of how many days that is: 0 for a part that was drawn over (``from`` and ``until``)."""
    asked = [query.get(name, "") for name in ("from", "until")]
    if all(text.isdecimal() and len(text) < 12 for text in asked):
        begin = min(max(float(asked[0]), now - WHOLE_D * DAY_S), now)
        return begin, min(max(float(asked[1]), begin + LEAST_S), now + DAY_S), 0
    days = next((span for span in SPANS if str(span) == query.get("days")), SPAN)
    return now - days * DAY_S, now + days * DAY_S / 12, days


def _local(posts: Floats, settings: Settings) -> Floats:
    """As the clocks on the reader's wall had it."""
    there = pages.zone(settings.timezone)
    shifts = [(datetime.fromtimestamp(at, there).utcoffset() or timedelta()).total_seconds() for at in posts.tolist()]
    return np.asarray(posts + np.array(shifts), dtype=np.float64)


def _words() -> dict[str, str]:
    return {
        "found": _("found something"),
        "nothing": _("nothing new"),
        "unchanged": _("not changed (304)"),
        "failed": _("failed or refused"),
        "push": _("sent by its hub"),
        "neighbour": _("told by a neighbour"),
    }


def kind_of(poll: Poll) -> str:
    """How a look is drawn."""
    if poll.error_kind:
        return "failed"
    if poll.source == "push":
        return "push"
    return "found" if poll.new else "unchanged" if poll.status == 304 else "nothing"


def _time_line(
    posts: Floats,
    polls: list[Poll],
    others: list[tuple[float, int]],
    next_at: float | None,
    shown: tuple[float, float],
    now: float,
    settings: Settings,
) -> Markup:
    words = _words()
    looks = [(poll.at, kind_of(poll), f"{pages.moment(poll.at, settings, now)}: {_outcome(poll, words)}") for poll in polls]
    for at, number in others:
        said = f"{words['neighbour']}: {n_('%(num)s new post', '%(num)s new posts', number)}"
        looks.append((at, "neighbour", f"{pages.moment(at, settings, now)}: {said}"))
    strokes = [(at, f"{pages.moment(at, settings, now)}: {_('published')}") for at in posts.tolist()]
    coming = (next_at, _("next look")) if next_at is not None and now < next_at < shown[1] else None
    return charts.time_line(strokes, looks, _ticks(*shown, settings), now, coming)


def _outcome(poll: Poll, words: dict[str, str]) -> str:
    found = n_("%(num)s new post", "%(num)s new posts", poll.new) if poll.new else words[kind_of(poll)]
    late = f", {roughly(poll.delay_mean_s)} {_('after publication')}" if poll.delay_mean_s is not None else ""
    return (poll.error or found) + late


def _ticks(begin: float, end: float, settings: Settings) -> list[tuple[float, str]]:
    """The ends of the line, and between them midnights or, the shorter the line, hours and parts of them."""
    there = pages.zone(settings.timezone)
    step = timedelta(hours=next(hours for hours in STEPS_H if 9 * hours * HOUR_S > end - begin or hours == STEPS_H[-1]))
    at = datetime.fromtimestamp(begin, there).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [(begin, "")]
    while (at := at + step).timestamp() < end:
        if at.timestamp() > begin:
            midnight = at.hour == 0 and at.minute == 0
            ticks.append((at.timestamp(), f"{at:%a %-d}" if midnight else f"{at.hour}:{at.minute:02d}"))
    return [*ticks, (end, "")]
