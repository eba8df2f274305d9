"""The policy lab in the browser: the installation's own history, or a generated one, under any policy and budget."""

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
from tidings.web.request_context import RequestContext, Site, page

if TYPE_CHECKING:
    from tidings.lab.traces import Trace

UNIT_WORDS = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}
BOUNDS = {name: getattr(comparison, name) for name in dir(comparison) if name.isupper()}


def routes(site: Site) -> list[BaseRoute]:
    async def compare(request: ComparisonRequest) -> dict[str, Any]:
        async def job() -> tuple[Any, ...]:
            limits = site.aggregator.scheduler.limits
            own = (
                await own_trace(site.store, site.clock(), limits, judged=True)
                if request.kind == OWN_HISTORY
                else None
            )
            return comparison.run, request, own

        found: dict[str, Any] = await site.simulations.get(request, job)
        return found

    async def show(context: RequestContext) -> Response:
        query, kinds = _query(context), comparison.kinds()
        lab_request = comparison.read_request(query, kinds) if query else ComparisonRequest()
        return await context.render(
            "lab.html",
            sidebar=await sidebar(context),
            lab_request=lab_request,
            kinds=kinds,
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
        """Everything that can be replayed, for `tidings lab`."""
        found = await own_trace(site.store, site.clock(), site.aggregator.scheduler.limits)
        packed = await asyncio.to_thread(_zip_trace, found.trace)
        download_headers = {
            "content-disposition": 'attachment; filename="own-history.zip"',
            "cache-control": "no-store",
        }
        return Response(packed, headers=download_headers, media_type="application/zip")

    return [
        page(site, "/timing/lab", show, admin=True),
        page(site, "/timing/lab.json", data, admin=True),
        page(site, "/timing/trace.zip", trace, admin=True),
    ]


def _zip_trace(trace: "Trace") -> bytes:
    """A folder as `tidings lab` reads it."""
    from tidings.lab.traces import write_trace

    out = io.BytesIO()
    with (
        tempfile.TemporaryDirectory(prefix="tidings-") as folder,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        write_trace(trace, folder, as_csv=True)
        for file in sorted(Path(folder).iterdir()):
            packed.write(file, f"own-history/{file.name}")
    return out.getvalue()


def _query(context: RequestContext) -> dict[str, list[str]]:
    try:
        return parse_qs(context.request.url.query, keep_blank_values=True, max_num_fields=40)
    except ValueError:
        raise TidingsError(_("the address has too many parameters")) from None


def _results(lab_request: ComparisonRequest, found: dict[str, Any]) -> dict[str, Any]:
    """The table, the curve, and the address of the same as data."""
    chosen = next(at for at in found["curve"] if at["budget"] == found["budget"])
    unit, size = common_unit([result["mean_delay_s"] for result in chosen["results"]])
    lines = {
        result["policy"]: [
            at["results"][place]["charged_delay_s"] or float("nan") for at in found["curve"]
        ]
        for place, result in enumerate(chosen["results"])
    }
    lines["the limit"] = [at["limit_charged_s"] for at in found["curve"]]
    title = _("Mean delay against budget, missed posts charged")
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
    pairs = {
        "policies": ",".join(lab_request.policies),
        "budget": f"{lab_request.budget:g}",
        "trace": lab_request.kind,
        "seed": lab_request.seed,
    }
    return {
        "rows": [*rows, limit],
        "unit": UNIT_WORDS[unit],
        "feeds": found["feeds"],
        "posts": chosen["results"][0]["posts"],
        "title": title,
        "chart": delay_chart(
            [at["budget"] for at in found["curve"]], lines, found["budget"], title
        ),
        "data": f"/timing/lab.json?{urlencode(pairs)}",
    }
