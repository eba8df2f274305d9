"""Web page of the demo that compares the delays of the policies while the demo runs.

The page is rendered on the server. A script fetches the changing part every second. /demo.json has
the same data.
"""

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from tidings import i18n, web
from tidings.demo.demo import PASSWORD, POLICIES, SPEEDS, USER_NAME, Demo
from tidings.formatting import duration, figures, percent
from tidings.i18n import _
from tidings.web.charts import Plot

STATIC = Path(__file__).with_name("static")
ICONS = Path(web.__file__).with_name("static")
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
SPEED_CHOICES = (1, 20, 100, 500, 1000)
TICKS = (
    (60, "1 min"),
    (300, "5 min"),
    (1800, "30 min"),
    (7200, "2 h"),
    (28800, "8 h"),
    (86400, "1 d"),
)

TEMPLATES = Environment(
    loader=PackageLoader("tidings.demo"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=["jinja2.ext.i18n"],
)
TEMPLATES.install_gettext_callables(  # type: ignore[attr-defined]  # the extension adds it
    i18n.translations.gettext, i18n.translations.ngettext, newstyle=True
)
TEMPLATES.filters |= {"duration": duration, "figures": figures, "percent": percent}
TEMPLATES.filters |= {
    "thousands": "{:,}".format,
    "at": lambda at, form: time.strftime(form, time.gmtime(at)),
}


def make_app(demo: Demo) -> Starlette:
    """Return the web application of the dashboard."""

    async def page(request: Request) -> Response:
        return _respond(await _render(demo, "demo.html"), "text/html")

    async def now(request: Request) -> Response:
        return _respond(await _render(demo, "now.html"), "text/html")

    async def data(request: Request) -> Response:
        return _respond(msgspec.json.encode(await demo.figures()).decode(), "application/json")

    async def speed(request: Request) -> Response:
        """Change the speed of the demo; reject requests from other origins (CSRF protection)."""
        own_origin = f"http://{request.headers.get('host', '')}"
        if request.headers.get("origin", own_origin) != own_origin:
            raise HTTPException(HTTPStatus.FORBIDDEN)
        value = dict(parse_qsl((await request.body()).decode("ascii", "replace"))).get("speed", "")
        if value not in {str(choice) for choice in SPEED_CHOICES}:
            raise HTTPException(HTTPStatus.BAD_REQUEST)
        demo.clock.speed = float(value)
        return RedirectResponse("/demo", HTTPStatus.SEE_OTHER)

    async def redirect(request: Request) -> Response:
        return RedirectResponse("/demo", HTTPStatus.FOUND)

    return Starlette(
        routes=[
            Route("/", redirect),
            Route("/demo", page),
            Route("/demo/now", now),
            Route("/demo.json", data),
            Route("/demo/speed", speed, methods=["POST"]),
            Route("/demo.css", _file(STATIC / "demo.css")),
            Route("/demo.js", _file(STATIC / "demo.js")),
            Route("/icon.svg", _file(ICONS / "icon.svg")),
        ]
    )


def _respond(text: str, media_type: str) -> Response:
    headers = {**HEADERS, "cache-control": "no-store"}
    return Response(text, headers=headers, media_type=media_type)


def _file(file: Path) -> Callable[[Request], Awaitable[Response]]:
    async def serve_file(request: Request) -> Response:
        return FileResponse(file, headers=HEADERS)

    return serve_file


async def _render(demo: Demo, template: str) -> str:
    data = await demo.figures()
    values: dict[str, Any] = {
        "data": data,
        "plan": demo.plan,
        "choices": SPEED_CHOICES,
        "user_name": USER_NAME,
        "password": PASSWORD,
    }
    values["pages"] = demo.addresses.get(demo.plan.policies[0], "/")
    values["behind"] = data["true_speed"] < 0.9 * min(data["speed"], SPEEDS[1])
    return TEMPLATES.get_template(template).render(**values, curve=_curve(demo))


def _curve(demo: Demo) -> Markup | None:
    """Return a plot of the share of posts that arrived within a time, or None without posts.

    Missed posts count in the total.
    """
    (low, _label), *_ticks, (high, _label) = TICKS
    plot = Plot(560, 300, 52, 76, top=12)
    x, y = plot.x_scale(low, high, log=True), plot.y_scale(0, 1)
    for share in (0.0, 0.5, 1.0):
        plot.horizontal_line(y(share), f"{share:.0%}")
    for at, label in TICKS:
        plot.text(x(at), plot.height - 8, label)
    descriptions, steps = [], np.geomspace(low, high, 60)
    for name in demo.plan.policies:
        scores = demo.score_polls(name)
        if not len(scores.feed):
            return None
        delays = np.sort(scores.delay_s[~scores.missed])
        shares = np.searchsorted(delays, steps, side="right") / len(scores.feed)
        plot.line(
            [(x(at), y(share)) for at, share in zip(steps, shares, strict=True)], name, dots=False
        )
        first = name == POLICIES[0]
        index = min(int(np.searchsorted(shares, 0.62 if first else 0.38)), len(steps) - 1)
        side, anchor = (-8, "end") if first else (8, "start")
        plot.text(x(steps[index]) + side, y(shares[index]) + 4, name, f"name {name}", anchor)
        within_hour = f"{shares[steps <= 3600][-1]:.0%}"
        descriptions.append(
            _("%(policy)s: %(share)s of the posts within an hour", policy=name, share=within_hour)
        )
    return plot.svg(_("Share of posts by delay"), "; ".join(descriptions))
