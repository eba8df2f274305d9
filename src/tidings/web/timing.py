"""The administrator's page Timing: delays, requests, the effect of a different budget, feeds that need attention."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.aggregator.explain import Overview, budget_note
from tidings.config import Budget
from tidings.errors import TidingsError
from tidings.model import DAY_S
from tidings.store import timing
from tidings.store.evidence import Evidence, comparison_needs, delay_needs, polling_needs
from tidings.store.people_rows import Settings
from tidings.store.timing import Day, Needy, Week
from tidings.texts import _, n_
from tidings.web import charts, pages
from tidings.web.forecast import LEAST_PER_FEED, MOST_PER_FEED, Forecast, Point, own_forecast
from tidings.web.reader import sidebar
from tidings.web.visit import Site, Visit, page
from tidings.words import figures, percent, portion, roughly, size

#: Hosts that are named on the page; all of them are among the data.
MOST_PAUSES = 5
LEAST_BUDGET = 1
#: The largest budget of an installation with hardly any feeds.
LEAST_MOST = 100


def routes(site: Site) -> list[BaseRoute]:
    async def show(visit: Visit) -> Response:
        week, settings = await site.store.read(timing.week, site.clock()), await visit.settings()
        told = await site.live.status()
        feeds, (last, coming) = told.status.followed, await site.live.looks()
        # Where there is too little history the page says so at once, instead of loading the curve.
        wanted = "curve" in visit.request.query_params or not week.evidence.is_polled
        return await visit.render(
            "timing.html",
            sidebar=await sidebar(visit),
            told=told,
            week=week,
            feeds=feeds,
            facts=_facts(week),
            needs={"delay": delay_needs(week.evidence), "polling": polling_needs(week.evidence)},
            pictures=_pictures(week, settings, told.budget_per_day),
            limited=await site.store.read(timing.limited, site.clock()),
            needy=[(one, _reason(one, site.clock())) for one in await site.store.read(timing.needy, site.clock())],
            bounds=_bounds(feeds),
            slider=_slider(told),
            useful=_useful(told),
            budget_note=budget_note(told),
            last=last,
            coming=coming,
            most_pauses=MOST_PAUSES,
            curve=await _curve(site) if feeds and wanted else None,
        )

    async def data(visit: Visit) -> Response:
        week, told = await site.store.read(timing.week, site.clock()), await site.live.status()
        return visit.json(
            {
                "days": week.days,
                "p50_s": week.p50_s,
                "p90_s": week.p90_s,
                "delays_s": week.delays_s.tolist(),
                "evidence": week.evidence,
                "budget_per_day": told.budget_per_day,
                "usable_per_day": told.usable_per_day,
                "feeds_at_min_interval": told.feeds_at_min_interval,
                "limited": await site.store.read(timing.limited, site.clock()),
                "needy": await site.store.read(timing.needy, site.clock()),
            }
        )

    async def curve(visit: Visit) -> Response:
        """The part of the page that takes seconds."""
        return await visit.render("_curve.html", curve=await _curve(site))

    async def curve_data(visit: Visit) -> Response:
        return visit.json(await own_forecast(site))

    async def set_budget(visit: Visit) -> Response:
        """Requests a day over all feeds; where the configuration has a budget for each feed, it stays one."""
        aggregator = site.aggregator
        brain, feeds = aggregator.brain, (await site.live.status()).status.followed
        least, most = _bounds(feeds)
        wanted = visit.form.number("per_day", least, most)
        each = brain.configured.each and feeds > 0
        await brain.change_budget(aggregator.store, Budget(wanted / feeds if each else float(wanted), each), site.clock())
        aggregator.wake()
        visit.note(_("The budget is now %(number)s requests a day.", number=f"{wanted:,}"))
        return visit.go("/timing")

    return [
        page(site, "/timing", show, admin=True),
        page(site, "/timing.json", data, admin=True),
        page(site, "/timing/curve", curve, admin=True),
        page(site, "/timing/curve.json", curve_data, admin=True),
        page(site, "/timing/budget", set_budget, posts=True, admin=True),
    ]


def _bounds(feeds: int) -> tuple[int, int]:
    """The smallest and the largest budget that can be set."""
    return LEAST_BUDGET, max(int(MOST_PER_FEED * feeds), LEAST_MOST)


def _slider(told: Overview) -> tuple[int, int]:
    """Where the slider begins and ends: 1 to 96 requests per feed and day, and today's budget in any case."""
    least, most = _bounds(told.status.followed)
    today = round(told.budget_per_day)
    begin = min(int(LEAST_PER_FEED * told.status.followed), today, most - 1)
    return max(begin, least), max(most, today)


def _useful(told: Overview) -> int | None:
    """The largest budget of which all can be used; None where that is more than can be set."""
    most = _bounds(told.status.followed)[1]
    capacity = told.capacity_per_day
    return None if capacity is None or capacity >= most else int(capacity)


def _facts(week: Week) -> dict[str, str]:
    """The week in a few figures: those that there is enough history for, and plain counts."""
    asked, lost, recovered = week.total("asked"), week.total("lost"), week.total("recovered")
    found: dict[str, str] = {}
    if week.evidence.has_delays:
        found |= {_("median delay"): roughly(week.p50_s), _("90 % within"): roughly(week.p90_s)}
    if week.evidence.is_polled:
        found |= {_("missed"): figures(max(lost - recovered, 0.0), 2), _("recovered"): figures(recovered, 2)}
        if asked:
            found[_("answered with 304")] = portion(week.total("unchanged") / asked)
    return found | {
        _("requests"): f"{asked:,.0f}",
        _("received"): size(week.total("bytes")),
        _("posts from hubs and peers"): f"{week.total('pushed'):,.0f}",
    }


def _pictures(week: Week, settings: Settings, budget: float) -> dict[str, Any]:
    names = [_weekday(day.at + DAY_S / 2, settings) for day in week.days]
    spent = [(name, _spent(day)) for name, day in zip(names, week.days, strict=True)]
    days = [(name, day.p50_s, day.p90_s) for name, day in zip(names, week.days, strict=True)]
    found: dict[str, Any] = {"spent": charts.spent_chart(spent, budget)} if week.total("asked") else {}
    if week.p50_s is not None and week.p90_s is not None:
        found |= {"late": charts.late_chart(week.delays_s, week.p50_s, week.p90_s), "days": charts.days_chart(days)}
    return found


def _spent(day: Day) -> tuple[int, int, int] | None:
    """Requests that found something, nothing, and failed; None for a day without data."""
    return (day.found, max(day.asked - day.found - day.failed, 0), day.failed) if day.has_data else None


def _weekday(at: float, settings: Settings) -> str:
    return f"{datetime.fromtimestamp(at, pages.zone(settings.timezone)):%a}"


def _reason(one: Needy, now: float) -> str:
    """In words, why a feed stands in the table."""
    since = roughly(now - one.since) if one.since is not None else ""
    return {
        "broken": n_(
            "broken for %(since)s, %(num)s failure: %(words)s",
            "broken for %(since)s, %(num)s failures: %(words)s",
            int(one.number),
            since=since,
            words=one.words,
        ),
        "late": _("its posts arrive %(late)s after publication", late=roughly(one.number)),
        "silent": _("silent for %(since)s; it used to post every %(gap)s", since=since, gap=roughly(one.number))
        if one.number
        else _("silent for %(since)s", since=since),
        "lying": n_(
            "%(num)s post of this week was dated in the future",
            "%(num)s posts of this week were dated in the future",
            int(one.number),
        ),
    }[one.kind]


async def _curve(site: Site) -> dict[str, Any]:
    """For the template: the picture with its figures, or why there is none."""
    try:
        told = await own_forecast(site)
    except TidingsError as error:
        return {"problem": pages.sentence(str(error))}
    points = [(p.per_day, p.mean_s, p.median_s, p.missed_share) for p in told.points]
    hourly = None if told.hourly is None else (told.hourly.polls_per_day, told.hourly.mean_s)
    return {
        "problem": "",
        "told": told,
        "chart": charts.budget_chart(points, told.budget, hourly),
        "rows": _rows(told),
        "points": [[round(number, 5) for number in point] for point in points],
        "comparison": comparison(told),
        "needs": comparison_needs(Evidence(told.polled_days, told.posts)),
    }


def comparison(told: Forecast) -> tuple[str, str] | None:
    """Hourly polling and today's budget, both simulated on the same history; None before there is enough of it."""
    if told.hourly is None:
        return None
    hourly = _("Hourly polling of the same feeds: %(figures)s.", figures=_simulated(told.hourly))
    return hourly, _("Here: %(figures)s.", figures=_simulated(told.own))


def _simulated(point: Point) -> str:
    return _(
        "%(requests)s requests a day, mean delay %(mean)s, median %(median)s, %(missed)s missed",
        requests=f"{point.polls_per_day:,.0f}",
        mean=roughly(point.mean_s),
        median=roughly(point.median_s),
        missed=percent(point.missed_share),
    )


def _rows(told: Forecast) -> Sequence[tuple[str, ...]]:
    return [
        (f"{p.per_day:,.0f}", f"{p.polls_per_day:,.0f}", roughly(p.mean_s), roughly(p.median_s), percent(p.missed_share))
        for p in told.points
    ]
