"""Timing page for administrators, about delays, requests, the budget and problem feeds."""

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
from tidings.web.request_context import AppServices, RequestContext, page

#: Maximum number of paused hosts on the page. The JSON data has all of them.
MAX_PAUSED_HOSTS = 5
MIN_BUDGET = 1
#: Minimum of the largest allowed budget, for installations with few feeds (requests a day).
SMALLEST_MAX_BUDGET = 100


def routes(services: AppServices) -> list[BaseRoute]:
    async def show(context: RequestContext) -> Response:
        week, settings = (
            await services.store.read(poll_statistics.week, services.clock()),
            await context.settings(),
        )
        report = await services.status_reporter.status()
        feeds, (last, next_polls) = (
            report.status.active_feeds,
            await services.status_reporter.recent_and_next_polls(),
        )
        # With too little history the curve is only a message, which needs no extra request.
        with_curve = "curve" in context.request.query_params or not week.evidence.is_polled
        return await context.render(
            "timing.html",
            sidebar=await sidebar(context),
            report=report,
            week=week,
            feeds=feeds,
            facts=_facts(week),
            needs={"delay": delay_needs(week.evidence), "polling": polling_needs(week.evidence)},
            charts_svg=_render_charts(week, settings, report.budget_per_day),
            limited=await services.store.read(poll_statistics.rate_limited_hosts, services.clock()),
            feed_problems=[
                (problem, _problem_text(problem, services.clock()))
                for problem in await services.store.read(
                    poll_statistics.feed_problems, services.clock()
                )
            ],
            bounds=_bounds(feeds),
            slider=_slider(report),
            useful=_max_usable_budget(report),
            budget_note=budget_note(report),
            last=last,
            next_polls=next_polls,
            most_pauses=MAX_PAUSED_HOSTS,
            curve=await _curve(services) if feeds and with_curve else None,
        )

    async def data(context: RequestContext) -> Response:
        week, report = (
            await services.store.read(poll_statistics.week, services.clock()),
            await services.status_reporter.status(),
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
                "limited": await services.store.read(
                    poll_statistics.rate_limited_hosts, services.clock()
                ),
                "needy": await services.store.read(poll_statistics.feed_problems, services.clock()),
            }
        )

    async def curve(context: RequestContext) -> Response:
        """Return the budget curve as an HTML fragment, which takes seconds to simulate."""
        return await context.render("_budget_curve.html", curve=await _curve(services))

    async def curve_data(context: RequestContext) -> Response:
        return context.json(await own_forecast(services))

    async def set_budget(context: RequestContext) -> Response:
        """Set the budget in requests a day, and convert it if it is configured per feed."""
        aggregator = services.aggregator
        scheduler, feeds = (
            aggregator.scheduler,
            (await services.status_reporter.status()).status.active_feeds,
        )
        least, most = _bounds(feeds)
        per_day = context.form.number("per_day", least, most)
        each = scheduler.configured.each and feeds > 0
        await scheduler.change_budget(
            aggregator.store,
            Budget(per_day / feeds if each else float(per_day), each),
            services.clock(),
        )
        aggregator.wake()
        context.flash(_("The budget is now %(number)s requests a day.", number=f"{per_day:,}"))
        return context.redirect("/timing")

    return [
        page(services, "/timing", show, admin=True),
        page(services, "/timing.json", data, admin=True),
        page(services, "/timing/curve", curve, admin=True),
        page(services, "/timing/curve.json", curve_data, admin=True),
        page(services, "/timing/budget", set_budget, is_post=True, admin=True),
    ]


def _bounds(feeds: int) -> tuple[int, int]:
    """Return the smallest and largest allowed budget in requests a day."""
    return MIN_BUDGET, max(int(MAX_REQUESTS_PER_FEED * feeds), SMALLEST_MAX_BUDGET)


def _slider(report: Overview) -> tuple[int, int]:
    """Return the range of the budget slider in requests a day.

    The range is 1 to 96 requests per feed and day, and includes today's budget.
    """
    least, most = _bounds(report.status.active_feeds)
    today = round(report.budget_per_day)
    start = min(int(MIN_REQUESTS_PER_FEED * report.status.active_feeds), today, most - 1)
    return max(start, least), max(most, today)


def _max_usable_budget(report: Overview) -> int | None:
    """Return the budget at which all feeds reach their minimum interval, in requests a day.

    None means that this budget is above the range of the slider.
    """
    most = _bounds(report.status.active_feeds)[1]
    capacity = report.capacity_per_day
    return None if capacity is None or capacity >= most else int(capacity)


def _facts(week: Week) -> dict[str, str]:
    """Return the key figures of the week by label, with delays if there is enough history."""
    requests = week.total("requests")
    missed, recovered = week.total("missed"), week.total("recovered")
    figures_by_label: dict[str, str] = {}
    if week.evidence.has_delays:
        figures_by_label |= {
            _("median delay"): duration_short(week.p50_s),
            _("90 % of posts arrived within"): duration_short(week.p90_s),
        }
    if week.evidence.is_polled:
        figures_by_label |= {
            _("posts missed"): figures(max(missed - recovered, 0.0), 2),
            _("posts recovered"): figures(recovered, 2),
        }
        if requests:
            figures_by_label[_("unchanged responses (304)")] = percent_short(
                week.total("unchanged") / requests
            )
    return figures_by_label | {
        _("requests sent"): f"{requests:,.0f}",
        _("data received"): size(week.total("bytes")),
        _("posts from hubs and peers"): f"{week.total('pushed'):,.0f}",
    }


def _render_charts(week: Week, settings: Settings, budget: float) -> dict[str, Any]:
    names = [_weekday(day.at + DAY_S / 2, settings) for day in week.days]
    requests = [
        (name, _requests_by_outcome(day)) for name, day in zip(names, week.days, strict=True)
    ]
    days = [(name, day.p50_s, day.p90_s) for name, day in zip(names, week.days, strict=True)]
    chart_values: dict[str, Any] = (
        {"requests": charts.daily_requests_chart(requests, budget)}
        if week.total("requests")
        else {}
    )
    if week.p50_s is not None and week.p90_s is not None:
        chart_values |= {
            "histogram": charts.delay_histogram(week.delays_s, week.p50_s, week.p90_s),
            "days": charts.daily_delay_chart(days),
        }
    return chart_values


def _requests_by_outcome(day: Day) -> tuple[int, int, int] | None:
    """Return the numbers of requests with new entries, without new entries, and failed.

    None means that there is no data for the day.
    """
    if not day.has_data:
        return None
    with_new_entries = day.polls_with_new_entries
    return with_new_entries, max(day.requests - with_new_entries - day.failed, 0), day.failed


def _weekday(at: float, settings: Settings) -> str:
    return f"{datetime.fromtimestamp(at, templating.zone(settings.timezone)):%a}"


def _problem_text(problem: FeedProblem, now: float) -> str:
    """Return a text that describes why a feed needs attention."""
    since = duration_short(now - problem.since) if problem.since is not None else ""
    return {
        "broken": n_(
            "failing for %(since)s (%(num)s failed check): %(error)s",
            "failing for %(since)s (%(num)s failed checks): %(error)s",
            int(problem.number),
            since=since,
            error=problem.detail,
        ),
        "late": _("posts arrive %(delay)s after publication", delay=duration_short(problem.number)),
        "silent": _(
            "no posts for %(since)s; posts used to appear every %(gap)s",
            since=since,
            gap=duration_short(problem.number),
        )
        if problem.number
        else _("no posts for %(since)s", since=since),
        "lying": n_(
            "%(num)s post of this week has a date in the future",
            "%(num)s posts of this week have a date in the future",
            int(problem.number),
        ),
    }[problem.kind]


async def _curve(services: AppServices) -> dict[str, Any]:
    """Return the template values of the budget curve, or a message without enough history."""
    try:
        forecast = await own_forecast(services)
    except TidingsError as error:
        return {"problem": templating.sentence(str(error))}
    points = [(p.per_day, p.mean_s, p.median_s, p.missed_share) for p in forecast.points]
    hourly = (
        None if forecast.hourly is None else (forecast.hourly.polls_per_day, forecast.hourly.mean_s)
    )
    return {
        "problem": "",
        "forecast": forecast,
        "chart": charts.budget_chart(points, forecast.budget, hourly),
        "rows": _rows(forecast),
        "points": [[round(number, 5) for number in point] for point in points],
        "comparison": comparison(forecast),
        "needs": comparison_needs(Evidence(forecast.polled_days, forecast.posts)),
    }


def comparison(forecast: Forecast) -> tuple[str, str] | None:
    """Return two sentences that compare hourly polling with today's budget.

    Both are simulated. None means that there is too little history.
    """
    if forecast.hourly is None:
        return None
    hourly = _("With hourly polling: %(figures)s.", figures=_simulated(forecast.hourly))
    return hourly, _("With tidings: %(figures)s.", figures=_simulated(forecast.own))


def _simulated(point: Point) -> str:
    return _(
        "%(requests)s requests a day, mean delay %(mean)s, median delay %(median)s, "
        "%(missed)s of posts missed",
        requests=f"{point.polls_per_day:,.0f}",
        mean=duration_short(point.mean_s),
        median=duration_short(point.median_s),
        missed=percent(point.missed_share),
    )


def _rows(forecast: Forecast) -> Sequence[tuple[str, ...]]:
    return [
        (
            f"{p.per_day:,.0f}",
            f"{p.polls_per_day:,.0f}",
            duration_short(p.mean_s),
            duration_short(p.median_s),
            percent(p.missed_share),
        )
        for p in forecast.points
    ]
