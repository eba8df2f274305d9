"""The administrator's page about time: what the service does now, and what a bigger or smaller budget would buy."""

import asyncio
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlencode

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.errors import TidingsError
from tidings.policy import POLICIES
from tidings.web import comparison, pages
from tidings.web.charts import delay_chart
from tidings.web.comparison import Request
from tidings.web.reader import sidebar
from tidings.web.texts import _
from tidings.web.visit import Site, Visit, page
from tidings.words import common_unit, in_unit, percent

T = TypeVar("T")

#: Hosts that are named on the page; all of them are among the data.
MOST_PAUSES = 5
UNIT_WORDS = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}
BOUNDS = {name: getattr(comparison, name) for name in dir(comparison) if name.isupper()}


def routes(site: Site) -> list[BaseRoute]:
    one_at_a_time = asyncio.Lock()

    async def compare(request: Request) -> dict[str, Any]:
        async with one_at_a_time:  # each takes a core for seconds, and polls must go on
            return await in_thread(lambda: site.comparisons.run(request))

    async def timing(visit: Visit) -> Response:
        query, kinds = _query(visit), comparison.kinds()
        asked = comparison.read_request(query, kinds) if query else Request()
        results = _results(asked, await compare(asked)) if query else None
        return await visit.render(
            "timing.html",
            sidebar=await sidebar(visit),
            told=await site.live.now(),
            asked=asked,
            kinds=kinds,
            policies=POLICIES,
            results=results,
            most_pauses=MOST_PAUSES,
            bounds=BOUNDS,
        )

    async def compare_json(visit: Visit) -> Response:
        try:
            return visit.json(await compare(comparison.read_request(_query(visit), comparison.kinds())))
        except TidingsError as error:
            return visit.json({"error": pages.sentence(str(error))}, HTTPStatus.BAD_REQUEST)

    return [page(site, "/timing", timing, admin=True), page(site, "/timing/compare.json", compare_json, admin=True)]


def _query(visit: Visit) -> dict[str, list[str]]:
    try:
        return parse_qs(visit.request.url.query, keep_blank_values=True, max_num_fields=40)
    except ValueError:
        raise TidingsError(_("the address has too many parameters")) from None


def _results(asked: Request, found: dict[str, Any]) -> dict[str, Any]:
    """The table, the curve, and the address of the same as data."""
    chosen = next(at for at in found["curve"] if at["budget"] == found["budget"])
    unit, size = common_unit([result["mean_delay_s"] for result in chosen["results"]])
    lines = {
        result["policy"]: [at["results"][place]["charged_delay_s"] or float("nan") for at in found["curve"]]
        for place, result in enumerate(chosen["results"])
    }
    lines["the limit"] = [at["limit_charged_s"] for at in found["curve"]]
    title = _("Mean delay against budget, missed posts charged")
    rows = [
        (
            result["policy"],
            f"{result['polls']:,}",
            *(in_unit(result[name], size) for name in ("mean_delay_s", "median_delay_s", "p95_delay_s")),
            percent(result["missed_share"]),
            in_unit(result["charged_delay_s"], size),
        )
        for result in chosen["results"]
    ]
    limit = (_("the limit"), "", in_unit(chosen["limit_delay_s"], size), "", "", "", in_unit(chosen["limit_charged_s"], size))
    pairs = {"policies": ",".join(asked.policies), "budget": f"{asked.budget:g}", "trace": asked.kind, "seed": asked.seed}
    return {
        "rows": [*rows, limit],
        "unit": UNIT_WORDS[unit],
        "feeds": found["feeds"],
        "posts": chosen["results"][0]["posts"],
        "title": title,
        "chart": delay_chart([at["budget"] for at in found["curve"]], lines, found["budget"], title),
        "data": f"/timing/compare.json?{urlencode(pairs)}",
    }


async def in_thread(work: Callable[[], T]) -> T:
    """Run what takes seconds in a thread that does not keep the process from ending, unlike those of a pool."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[Any], None], value: Any) -> None:
        if not done.done():  # whoever waited may have gone
            how(value)

    def tell(how: Callable[[Any], None], value: Any) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, how, value)

    def run() -> None:
        try:
            tell(done.set_result, work())
        except Exception as error:  # raised again where it is awaited
            tell(done.set_exception, error)

    threading.Thread(target=run, daemon=True).start()
    return await done
