"""The administrator's page about time: how late the news is, what it cost, what another budget would buy, who needs a look."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.config import Budget
from tidings.errors import TidingsError
from tidings.model import DAY_S
from tidings.store import timing
from tidings.store.people_rows import Settings
from tidings.store.timing import Needy, Week
from tidings.texts import _, n_
from tidings.web import charts, pages
from tidings.web.forecast import MOST_PER_FEED, Forecast, own_forecast
from tidings.web.reader import sidebar
from tidings.web.visit import Site, Visit, page
from tidings.words import NOTHING, figures, percent, portion, roughly, size

#: Hosts that are named on the page; all of them are among the data.
MOST_PAUSES = 5
LEAST_BUDGET = 1
#: What other readers do who have no idea when to look.
HOURLY = 24


def routes(site: Site) -> list[BaseRoute]:
    async def show(visit: Visit) -> Response:
        wanted = "curve" in visit.request.query_params
        week, settings = await site.store.read(timing.week, site.clock()), await visit.settings()
        told = await site.live.status()
        feeds, (last, coming) = told.status.followed, await site.live.looks()
        return await visit.render(
            "timing.html",
            sidebar=await sidebar(visit),
            told=told,
            week=week,
            feeds=feeds,
            facts=_facts(week, feeds),
            pictures=_pictures(week, settings, told.budget_per_day),
            limited=await site.store.read(timing.limited, site.clock()),
            needy=[(one, _reason(one, site.clock())) for one in await site.store.read(timing.needy, site.clock())],
            bounds=_bounds(feeds),
            last=last,
            coming=coming,
            most_pauses=MOST_PAUSES,
            curve=await _curve(site) if wanted else None,
        )

    async def data(visit: Visit) -> Response:
        week = await site.store.read(timing.week, site.clock())
        return visit.json(
            {
                "days": week.days,
                "p50_s": week.p50_s,
                "p90_s": week.p90_s,
                "delays_s": week.delays_s.tolist(),
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
        visit.note(_("From now on %(number)s requests a day.", number=f"{wanted:,}"))
        return visit.go("/timing")

    return [
        page(site, "/timing", show, admin=True),
        page(site, "/timing.json", data, admin=True),
        page(site, "/timing/curve", curve, admin=True),
        page(site, "/timing/curve.json", curve_data, admin=True),
        page(site, "/timing/budget", set_budget, posts=True, admin=True),
    ]


def _bounds(feeds: int) -> tuple[int, int]:
    """Budgets that make sense: no feed is asked more often than every hour."""
    return LEAST_BUDGET, max(int(MOST_PER_FEED * feeds), 100)


def _facts(week: Week, feeds: int) -> dict[str, str]:
    """The week in a few figures."""
    asked = week.total("asked")
    began = next((i for i, day in enumerate(week.days) if day.asked or day.came), len(week.days))
    hourly = HOURLY * feeds * (len(week.days) - began)
    lost, recovered = week.total("lost"), week.total("recovered")
    return {
        _("half were here within"): roughly(week.p50_s),
        _("nine in ten within"): roughly(week.p90_s),
        _("missed"): figures(max(lost - recovered, 0.0), 2),
        _("missed and repaired"): figures(recovered, 2),
        _("requests saved against asking hourly"): portion(max(1 - asked / hourly, 0)) if hourly else NOTHING,
        _("answered with 304"): portion(week.total("unchanged") / asked) if asked else NOTHING,
        _("received"): size(week.total("bytes")),
        _("sent to us by hubs and neighbours"): f"{week.total('pushed'):,.0f}",
    }


def _pictures(week: Week, settings: Settings, budget: float) -> dict[str, Any]:
    names = [_weekday(day.at + DAY_S / 2, settings) for day in week.days]
    spent = [(name, d.found, max(d.asked - d.found - d.failed, 0), d.failed) for name, d in zip(names, week.days, strict=True)]
    days = [(name, day.p50_s, day.p90_s) for name, day in zip(names, week.days, strict=True)]
    found: dict[str, Any] = {"spent": charts.spent_chart(spent, budget)} if week.total("asked") else {}
    if week.p50_s is not None and week.p90_s is not None:
        found |= {"late": charts.late_chart(week.delays_s, week.p50_s, week.p90_s), "days": charts.days_chart(days)}
    return found


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
        "silent": _("silent for %(since)s; it used to post every %(gap)s", since=since, gap=roughly(one.number or None)),
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
    points = [(p.per_day, p.mean_s, p.half_s, p.missed_share) for p in told.points]
    return {
        "problem": "",
        "told": told,
        "chart": charts.budget_chart(points, told.budget, HOURLY * told.feeds),
        "rows": _rows(told),
        "points": [[round(number, 5) for number in point] for point in points],
    }


def _rows(told: Forecast) -> Sequence[tuple[str, ...]]:
    return [(f"{p.per_day:,.0f}", roughly(p.mean_s), roughly(p.half_s), percent(p.missed_share)) for p in told.points]
