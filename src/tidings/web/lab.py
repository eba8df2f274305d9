"""Policy lab page, which compares polling policies at any budget by simulation.

The simulation uses this installation's history or a generated trace.
"""

import asyncio
import io
import tempfile
import zipfile
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from starlette.responses import Response
from starlette.routing import BaseRoute

from tidings.errors import TidingsError
from tidings.formatting import common_unit, in_unit, percent
from tidings.i18n import _
from tidings.policy import POLICIES
from tidings.web import comparison, templating
from tidings.web.charts import delay_chart
from tidings.web.comparison import OWN_HISTORY, ComparisonRequest
from tidings.web.forecast import own_trace
from tidings.web.reader import sidebar
from tidings.web.request_context import AppServices, RequestContext, page

if TYPE_CHECKING:
    from tidings.lab.traces import Trace

UNIT_NAMES = {"d": _("days"), "h": _("hours"), "min": _("minutes"), "s": _("seconds")}
#: Papers whose data the generated traces resemble, by name of the trace model.
PAPER_NAMES = {
    "sia-cho": "Sia & Cho 2007",
    "han": "Han et al. 2008",
    "feedex": "Jun & Ahamad 2006",
    "urbansky": "Urbansky et al. 2011",
}
BOUNDS = {name: getattr(comparison, name) for name in dir(comparison) if name.isupper()}


def routes(services: AppServices) -> list[BaseRoute]:
    async def compare(request: ComparisonRequest) -> dict[str, Any]:
        async def job() -> tuple[Any, ...]:
            limits = services.aggregator.scheduler.limits
            own = (
                await own_trace(services.store, services.clock(), limits, judged=True)
                if request.kind == OWN_HISTORY
                else None
            )
            return comparison.run, request, own

        result: dict[str, Any] = await services.simulations.get(request, job)
        return result

    async def show(context: RequestContext) -> Response:
        query, kinds = _query(context), comparison.kinds()
        lab_request = comparison.read_request(query, kinds) if query else ComparisonRequest()
        return await context.render(
            "lab.html",
            sidebar=await sidebar(context),
            lab_request=lab_request,
            kinds=kinds,
            paper_names=PAPER_NAMES,
            own=OWN_HISTORY,
            policies=POLICIES,
            results=_results(lab_request, await compare(lab_request)) if query else None,
            bounds=BOUNDS,
        )

    async def data(context: RequestContext) -> Response:
        try:
            return context.json(
                await compare(comparison.read_request(_query(context), comparison.kinds()))
            )
        except TidingsError as error:
            return context.json({"error": templating.sentence(str(error))}, HTTPStatus.BAD_REQUEST)

    async def trace(context: RequestContext) -> Response:
        """Return this installation's history as a trace file for `tidings lab`."""
        own = await own_trace(
            services.store, services.clock(), services.aggregator.scheduler.limits
        )
        archive = await asyncio.to_thread(_zip_trace, own.trace)
        headers = {
            "content-disposition": 'attachment; filename="own-history.zip"',
            "cache-control": "no-store",
        }
        return Response(archive, headers=headers, media_type="application/zip")

    return [
        page(services, "/timing/lab", show, admin=True),
        page(services, "/timing/lab.json", data, admin=True),
        page(services, "/timing/trace.zip", trace, admin=True),
    ]


def _zip_trace(trace: "Trace") -> bytes:
    """Return a ZIP file with the trace as a folder that `tidings lab` can read."""
    from tidings.lab.traces import write_trace

    out = io.BytesIO()
    with (
        tempfile.TemporaryDirectory(prefix="tidings-") as folder,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        write_trace(trace, folder, as_csv=True)
        for file in sorted(Path(folder).iterdir()):
            archive.write(file, f"own-history/{file.name}")
    return out.getvalue()


def _query(context: RequestContext) -> dict[str, list[str]]:
    try:
        return parse_qs(context.request.url.query, keep_blank_values=True, max_num_fields=40)
    except ValueError:
        raise TidingsError(_("the address has too many parameters")) from None


def _results(lab_request: ComparisonRequest, comparison_result: dict[str, Any]) -> dict[str, Any]:
    """Return the template values of the result table and the chart."""
    chosen = next(
        point
        for point in comparison_result["curve"]
        if point["budget"] == comparison_result["budget"]
    )
    unit, size = common_unit([result["mean_delay_s"] for result in chosen["results"]])
    lines = {
        result["policy"]: [
            point["results"][i]["charged_delay_s"] or float("nan")
            for point in comparison_result["curve"]
        ]
        for i, result in enumerate(chosen["results"])
    }
    lines[_("the limit")] = [point["limit_charged_s"] for point in comparison_result["curve"]]
    title = _("Delay including missed posts, by budget")
    rows = [
        (
            result["policy"],
            f"{result['polls']:,}",
            *(
                in_unit(result[name], size)
                for name in ("mean_delay_s", "median_delay_s", "p95_delay_s")
            ),
            percent(result["missed_share"]),
            in_unit(result["charged_delay_s"], size),
        )
        for result in chosen["results"]
    ]
    limit = (
        _("the limit"),
        "",
        in_unit(chosen["limit_delay_s"], size),
        "",
        "",
        "",
        in_unit(chosen["limit_charged_s"], size),
    )
    parameters = {
        "policies": ",".join(lab_request.policies),
        "budget": f"{lab_request.budget:g}",
        "trace": lab_request.kind,
        "seed": lab_request.seed,
    }
    return {
        "rows": [*rows, limit],
        "unit": UNIT_NAMES[unit],
        "feeds": comparison_result["feeds"],
        "posts": chosen["results"][0]["posts"],
        "title": title,
        "chart": delay_chart(
            [point["budget"] for point in comparison_result["curve"]],
            lines,
            comparison_result["budget"],
            title,
        ),
        "data": f"/timing/lab.json?{urlencode(parameters)}",
    }
