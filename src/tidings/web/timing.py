"""The administrator's page Timing: delays, requests, the effect of a different budget, feeds that need attention."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.aggregator.explain import Overview, budget_note
from tidings.config import Budget
from tidings.errors import TidingsError
from tidings.formatting import duration_short, figures, percent, percent_short, size
from tidings.i18n import _, n_
from tidings.model import DAY_S
from tidings.store import poll_statistics
from tidings.store.evidence import Evidence, comparison_needs, delay_needs, polling_needs
from tidings.store.poll_statistics import Day, FeedProblem, Week
from tidings.store.user_models import Settings
from tidings.web import charts, templating
from tidings.web.forecast import (
    MAX_REQUESTS_PER_FEED,
    MIN_REQUESTS_PER_FEED,
    Forecast,
    Point,
    own_forecast,
)
from tidings.web.reader import sidebar
from tidings.web.request_context import RequestContext, Site, page

#: Hosts that are named on the page; all of them are among the data.
MAX_PAUSED_HOSTS = 5
MIN_BUDGET = 1
#: The largest budget of an installation with hardly any feeds.
SMALLEST_MAX_BUDGET = 100


def routes(site: Site) -> list[BaseRoute]:
    async def show(context: RequestContext) -> Response:
        week, settings = (
            await site.store.read(poll_statistics.week, site.clock()),
            await context.settings(),
        )
        report = await site.status_reporter.status()
        feeds, (last, next_polls) = (
            report.status.active_feeds,
            await site.status_reporter.recent_and_next_polls(),
        )
        # Where there is too little history the page says so at once, instead of loading the curve.
        wanted = "curve" in context.request.query_params or not week.evidence.is_polled
        return await context.render(
            "timing.html",
            sidebar=await sidebar(context),
            report=report,
            week=week,
            feeds=feeds,
            facts=_facts(week),
            needs={"delay": delay_needs(week.evidence), "polling": polling_needs(week.evidence)},
            charts_svg=_render_charts(week, settings, report.budget_per_day),
            limited=await site.store.read(poll_statistics.rate_limited_hosts, site.clock()),
            needy=[
                (one, _reason(one, site.clock()))
                for one in await site.store.read(poll_statistics.feed_problems, site.clock())
            ],
            bounds=_bounds(feeds),
            slider=_slider(report),
            useful=_max_usable_budget(report),
            budget_note=budget_note(report),
            last=last,
            next_polls=next_polls,
            most_pauses=MAX_PAUSED_HOSTS,
            curve=await _curve(site) if feeds and wanted else None,
        )

    async def data(context: RequestContext) -> Response:
        week, report = (
            await site.store.read(poll_statistics.week, site.clock()),
            await site.status_reporter.status(),
        )
        return context.json(
            {
                "days": week.days,
                "p50_s": week.p50_s,
                "p90_s": week.p90_s,
                "delays_s": week.delays_s.tolist(),
                "evidence": week.evidence,
                "budget_per_day": report.budget_per_day,
                "usable_per_day": report.usable_per_day,
                "feeds_at_min_interval": report.feeds_at_min_interval,
                "limited": await site.store.read(poll_statistics.rate_limited_hosts, site.clock()),
                "needy": await site.store.read(poll_statistics.feed_problems, site.clock()),
            }
        )

    async def curve(context: RequestContext) -> Response:
        """The part of the page that takes seconds."""
        return await context.render("_curve.html", curve=await _curve(site))

    async def curve_data(context: RequestContext) -> Response:
        return context.json(await own_forecast(site))

    async def set_budget(context: RequestContext) -> Response:
        """Requests a day over all feeds; where the configuration has a budget for each feed, it stays one."""
        aggregator = site.aggregator
        scheduler, feeds = (
            aggregator.scheduler,
            (await site.status_reporter.status()).status.active_feeds,
        )
        least, most = _bounds(feeds)
        wanted = context.form.number("per_day", least, most)
        each = scheduler.configured.each and feeds > 0
        await scheduler.change_budget(
            aggregator.store, Budget(wanted / feeds if each else float(wanted), each), site.clock()
        )
        aggregator.wake()
        context.flash(_("The budget is now %(number)s requests a day.", number=f"{wanted:,}"))
        return context.redirect("/timing")

    return [
        page(site, "/timing", show, admin=True),
        page(site, "/timing.json", data, admin=True),
        page(site, "/timing/curve", curve, admin=True),
        page(site, "/timing/curve.json", curve_data, admin=True),
        page(site, "/timing/budget", set_budget, posts=True, admin=True),
    ]


def _bounds(feeds: int) -> tuple[int, int]:
    """The smallest and the largest budget that can be set."""
    return MIN_BUDGET, max(int(MAX_REQUESTS_PER_FEED * feeds), SMALLEST_MAX_BUDGET)


def _slider(report: Overview) -> tuple[int, int]:
    """Where the slider begins and ends: 1 to 96 requests per feed and day, and today's budget in any case."""
    least, most = _bounds(report.status.active_feeds)
    today = round(report.budget_per_day)
    begin = min(int(MIN_REQUESTS_PER_FEED * report.status.active_feeds), today, most - 1)
    return max(begin, least), max(most, today)


def _max_usable_budget(report: Overview) -> int | None:
    """The largest budget of which all can be used; None where that is more than can be set."""
    most = _bounds(report.status.active_feeds)[1]
    capacity = report.capacity_per_day
    return None if capacity is None or capacity >= most else int(capacity)


def _facts(week: Week) -> dict[str, str]:
    """The week in a few figures: those that there is enough history for, and plain counts."""
    requests, missed, recovered = week.total("asked"), week.total("lost"), week.total("recovered")
    found: dict[str, str] = {}
    if week.evidence.has_delays:
        found |= {
            _("median delay"): duration_short(week.p50_s),
            _("90 % within"): duration_short(week.p90_s),
        }
    if week.evidence.is_polled:
        found |= {
            _("missed"): figures(max(missed - recovered, 0.0), 2),
            _("recovered"): figures(recovered, 2),
        }
        if requests:
            found[_("answered with 304")] = percent_short(week.total("unchanged") / requests)
    return found | {
        _("requests"): f"{requests:,.0f}",
        _("received"): size(week.total("bytes")),
        _("posts from hubs and peers"): f"{week.total('pushed'):,.0f}",
    }


def _render_charts(week: Week, settings: Settings, budget: float) -> dict[str, Any]:
    names = [_weekday(day.at + DAY_S / 2, settings) for day in week.days]
    spent = [(name, _requests_by_outcome(day)) for name, day in zip(names, week.days, strict=True)]
    days = [(name, day.p50_s, day.p90_s) for name, day in zip(names, week.days, strict=True)]
    found: dict[str, Any] = (
        {"spent": charts.daily_requests_chart(spent, budget)} if week.total("asked") else {}
    )
    if week.p50_s is not None and week.p90_s is not None:
        found |= {
            "late": charts.delay_histogram(week.delays_s, week.p50_s, week.p90_s),
            "days": charts.daily_delay_chart(days),
        }
    return found


def _requests_by_outcome(day: Day) -> tuple[int, int, int] | None:
    """Requests that found something, nothing, and failed; None for a day without data."""
    return (
        (day.found, max(day.requests - day.found - day.failed, 0), day.failed)
        if day.has_data
        else None
    )


def _weekday(at: float, settings: Settings) -> str:
    return f"{datetime.fromtimestamp(at, templating.zone(settings.timezone)):%a}"


def _reason(one: FeedProblem, now: float) -> str:
    """In words, why a feed stands in the table."""
    since = duration_short(now - one.since) if one.since is not None else ""
    return {
        "broken": n_(
            "broken for %(since)s, %(num)s failure: %(words)s",
            "broken for %(since)s, %(num)s failures: %(words)s",
            int(one.number),
            since=since,
            words=one.detail,
        ),
        "late": _("its posts arrive %(late)s after publication", late=duration_short(one.number)),
        "silent": _(
            "silent for %(since)s; it used to post every %(gap)s",
            since=since,
            gap=duration_short(one.number),
        )
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
        report = await own_forecast(site)
    except TidingsError as error:
        return {"problem": templating.sentence(str(error))}
    points = [(p.per_day, p.mean_s, p.median_s, p.missed_share) for p in report.points]
    hourly = None if report.hourly is None else (report.hourly.polls_per_day, report.hourly.mean_s)
    return {
        "problem": "",
        "told": report,
        "chart": charts.budget_chart(points, report.budget, hourly),
        "rows": _rows(report),
        "points": [[round(number, 5) for number in point] for point in points],
        "comparison": comparison(report),
        "needs": comparison_needs(Evidence(report.polled_days, report.posts)),
    }


def comparison(report: Forecast) -> tuple[str, str] | None:
    """Hourly polling and today's budget, both simulated on the same history; None before there is enough of it."""
    if report.hourly is None:
        return None
    hourly = _("Hourly polling of the same feeds: %(figures)s.", figures=_simulated(report.hourly))
    return hourly, _("Here: %(figures)s.", figures=_simulated(report.own))


def _simulated(point: Point) -> str:
    return _(
        "%(requests)s requests a day, mean delay %(mean)s, median %(median)s, %(missed)s missed",
        requests=f"{point.polls_per_day:,.0f}",
        mean=duration_short(point.mean_s),
        median=duration_short(point.median_s),
        missed=percent(point.missed_share),
    )


def _rows(report: Forecast) -> Sequence[tuple[str, ...]]:
    return [
        (
            f"{p.per_day:,.0f}",
            f"{p.polls_per_day:,.0f}",
            duration_short(p.mean_s),
            duration_short(p.median_s),
            percent(p.missed_share),
        )
        for p in report.points
    ]
