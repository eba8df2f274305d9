"""What a feed's page draws: when it posts, and its posts and looks on one line of time."""

from datetime import datetime, timedelta
from typing import Any

import numpy as np
from markupsafe import Markup

from tidings.aggregator.explain import HABITS_D, Explained
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.store import timing
from tidings.store.people_rows import Settings
from tidings.store.rows import Poll
from tidings.web import charts, pages
from tidings.web.texts import _, n_
from tidings.web.visit import Visit
from tidings.words import duration

#: Days that the line of time can show, and what it shows first; the log of looks is whole for eight.
SPANS, SPAN = (1, 3, 7), 3
#: More looks than this in eight days are not made: the most frequent feed is asked every few minutes for hours at most.
MOST_LOOKS = 2000
#: Fewer posts say nothing about habits.
LEAST_POSTS = 5


async def drawn(visit: Visit, told: Explained) -> dict[str, Any]:
    """The pictures of a feed's page, as its template wants them."""
    store, now, settings = visit.site.store, visit.site.clock(), await visit.settings()
    asked = visit.request.query_params.get("days", "")
    days = int(asked) if asked in {str(span) for span in SPANS} else SPAN
    begin = now - days * DAY_S
    posts = (await store.posting_times(now - HABITS_D * DAY_S, [told.feed.id]))["at"]
    posts = posts[posts <= now]
    polls = [poll for poll in await store.polls(told.feed.id, MOST_LOOKS) if poll.at >= begin]
    others = await store.read(timing.told, told.feed.id, begin)
    return {
        "heat": charts.heat_map(_local(posts, settings)) if len(posts) >= LEAST_POSTS else None,
        "line": _time_line(posts[posts >= begin], polls, others, told.next_poll_at, begin, now, settings),
        "days": days,
        "spans": SPANS,
        "shapes": [(charts.key(kind), words) for kind, words in _words().items()],
        "habits_d": HABITS_D,
    }


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
    begin: float,
    now: float,
    settings: Settings,
) -> Markup:
    words = _words()
    looks = [(poll.at, kind_of(poll), f"{pages.moment(poll.at, settings, now)}: {_outcome(poll, words)}") for poll in polls]
    for at, number in others:
        said = f"{words['neighbour']}: {n_('%(num)s new post', '%(num)s new posts', number)}"
        looks.append((at, "neighbour", f"{pages.moment(at, settings, now)}: {said}"))
    shown = [(at, f"{pages.moment(at, settings, now)}: {_('published')}") for at in posts.tolist()]
    end = now + (now - begin) / 12
    coming = (next_at, _("next look")) if next_at is not None and now < next_at < end else None
    return charts.time_line(shown, looks, _ticks(begin, end, settings), now, coming)


def _outcome(poll: Poll, words: dict[str, str]) -> str:
    found = n_("%(num)s new post", "%(num)s new posts", poll.new) if poll.new else words[kind_of(poll)]
    late = f", {duration(poll.delay_mean_s)} {_('after publication')}" if poll.delay_mean_s is not None else ""
    return (poll.error or found) + late


def _ticks(begin: float, end: float, settings: Settings) -> list[tuple[float, str]]:
    """The ends of the line, and between them midnights or, on a short line, every six hours."""
    there = pages.zone(settings.timezone)
    step = timedelta(hours=6 if end - begin < 2 * DAY_S else 24)
    at = datetime.fromtimestamp(begin, there).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [(begin, "")]
    while (at := at + step).timestamp() < end:
        if at.timestamp() > begin + HOUR_S:
            ticks.append((at.timestamp(), f"{at:%a %-d}" if at.hour == 0 else f"{at.hour} h"))
    return [*ticks, (end, "")]
