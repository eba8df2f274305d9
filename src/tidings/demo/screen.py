"""The demo's one screen: both policies beside each other, live, as the publishers have seen them.

A page that is made on the server; a small script fetches its changing part once a second. The same figures as data: /demo.json.
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

from tidings import web
from tidings.demo.demo import PASSWORD, POLICIES, READER, SPEEDS, Demo
from tidings.formatting import count, duration, figures, percent
from tidings.web.charts import Plot

STATIC = Path(__file__).with_name("static")
ICONS = Path(web.__file__).with_name("static")
SECURITY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": SECURITY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
CHOICES = (1, 20, 100, 500, 1000)
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
)
TEMPLATES.filters |= {"count": count, "duration": duration, "figures": figures, "percent": percent}
TEMPLATES.filters |= {
    "thousands": "{:,}".format,
    "at": lambda at, form: time.strftime(form, time.gmtime(at)),
}


def make_app(demo: Demo) -> Starlette:
    """The screen over a demo that runs."""

    async def page(request: Request) -> Response:
        return _answer(await _render(demo, "demo.html"), "text/html")

    async def now(request: Request) -> Response:
        return _answer(await _render(demo, "now.html"), "text/html")

    async def data(request: Request) -> Response:
        return _answer(msgspec.json.encode(await demo.figures()).decode(), "application/json")

    async def speed(request: Request) -> Response:
        """Forms of other sites say where they are from; ours comes from here."""
        here = f"http://{request.headers.get('host', '')}"
        if request.headers.get("origin", here) != here:
            raise HTTPException(HTTPStatus.FORBIDDEN)
        asked = dict(parse_qsl((await request.body()).decode("ascii", "replace"))).get("speed", "")
        if asked not in {str(choice) for choice in CHOICES}:
            raise HTTPException(HTTPStatus.BAD_REQUEST)
        demo.clock.speed = float(asked)
        return RedirectResponse("/demo", HTTPStatus.SEE_OTHER)

    async def home(request: Request) -> Response:
        return RedirectResponse("/demo", HTTPStatus.FOUND)

    return Starlette(
        routes=[
            Route("/", home),
            Route("/demo", page),
            Route("/demo/now", now),
            Route("/demo.json", data),
            Route("/demo/speed", speed, methods=["POST"]),
            Route("/demo.css", _file(STATIC / "demo.css")),
            Route("/demo.js", _file(STATIC / "demo.js")),
            Route("/icon.svg", _file(ICONS / "icon.svg")),
        ]
    )


def _answer(text: str, kind: str) -> Response:
    return Response(text, headers={**HEADERS, "cache-control": "no-store"}, media_type=kind)


def _file(file: Path) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return FileResponse(file, headers=HEADERS)

    return answer


async def _render(demo: Demo, template: str) -> str:
    told = await demo.figures()
    values: dict[str, Any] = {
        "told": told,
        "plan": demo.plan,
        "choices": CHOICES,
        "reader": READER,
        "password": PASSWORD,
    }
    values["pages"] = demo.addresses.get(demo.plan.policies[0], "/")
    values["behind"] = told["true_speed"] < 0.9 * min(told["speed"], SPEEDS[1])
    return TEMPLATES.get_template(template).render(**values, curve=_curve(demo))


def _curve(demo: Demo) -> Markup | None:
    """The share of posts that were found within a time, missed ones counted as never; None if there are none yet."""
    (low, _word), *_ticks, (high, _word) = TICKS
    plot = Plot(560, 300, 52, 76, top=12)
    x, y = plot.x_scale(low, high, log=True), plot.y_scale(0, 1)
    for share in (0.0, 0.5, 1.0):
        plot.horizontal_line(y(share), f"{share:.0%}")
    for at, word in TICKS:
        plot.text(x(at), plot.height - 8, word)
    words, steps = [], np.geomspace(low, high, 60)
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
        place = min(int(np.searchsorted(shares, 0.62 if first else 0.38)), len(steps) - 1)
        side, anchor = (-8, "end") if first else (8, "start")
        plot.text(x(steps[place]) + side, y(shares[place]) + 4, name, f"name {name}", anchor)
        words.append(f"{name}: {shares[steps <= 3600][-1]:.0%} within an hour")
    return plot.svg("Share of posts found within a time", "; ".join(words))
