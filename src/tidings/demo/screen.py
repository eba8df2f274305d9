"""The demo's one screen: both policies beside each other, live, as the publishers have seen them.

A page that is made on the server; a small script fetches its changing part once a second. The same figures as data: /demo.json.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tidings import web
from tidings.demo.demo import PASSWORD, POLICIES, READER, SPEEDS, Demo
from tidings.words import count, duration, figures, percent

STATIC = Path(__file__).with_name("static")
ICONS = Path(web.__file__).with_name("static")
SECURITY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {"content-security-policy": SECURITY, "x-content-type-options": "nosniff", "referrer-policy": "same-origin"}
CHOICES = (1, 20, 100, 500, 1000)
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 300, 52, 76, 12, 28
TICKS = ((60, "1 min"), (300, "5 min"), (1800, "30 min"), (7200, "2 h"), (28800, "8 h"), (86400, "1 d"))


def make_app(demo: Demo) -> Starlette:
    """The screen over a demo that runs."""

    async def page(request: Request) -> Response:
        return _answer(_page(demo, await demo.figures()), "text/html")

    async def now(request: Request) -> Response:
        return _answer(_now(demo, await demo.figures()), "text/html")

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
            Route("/demo.css", _file("demo.css", "text/css")),
            Route("/demo.js", _file("demo.js", "text/javascript")),
            Route("/icon.svg", _file("icon.svg", "image/svg+xml", ICONS)),
        ]
    )


def _answer(text: str, kind: str) -> Response:
    return Response(text, headers={**HEADERS, "cache-control": "no-store"}, media_type=kind)


def _file(name: str, kind: str, folder: Path = STATIC) -> Callable[[Request], Awaitable[Response]]:
    text = (folder / name).read_text("utf-8")

    async def answer(request: Request) -> Response:
        return Response(text, headers=HEADERS, media_type=kind)

    return answer


def _page(demo: Demo, told: Mapping[str, Any]) -> str:
    buttons = "".join(
        f'<button name="speed" value="{speed}" aria-pressed="{str(demo.clock.speed == speed).lower()}">{speed:,} ×</button>'
        for speed in CHOICES
    )
    plan = demo.plan
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>The demo world – tidings</title>
<link rel="icon" href="/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/demo.css">
<noscript><meta http-equiv="refresh" content="5"></noscript>
<script src="/demo.js" defer></script>
</head>
<body>
<header>
<h1>The demo world</h1>
<p>{count(plan.publishers, "publisher")} on this machine, and two aggregators that may spend {figures(plan.budget)} requests a
day for each. One looks at all of them equally often (<span class="uniform">uniform</span>), the other when it is worth it
(<span class="price">price</span>). They differ in nothing else.
<a href="{escape(demo.addresses.get(plan.policies[0], "/"))}">Read what has arrived</a> as <b>{READER}</b>, password
<b>{PASSWORD}</b>.</p>
</header>
<main>
<form method="post" action="/demo/speed" aria-label="Speed of the clock">{buttons}</form>
<p id="ended" class="soft" hidden>The demo has ended; these are its last figures.</p>
<div id="now">
{_now(demo, told)}
</div>
</main>
<footer><p class="soft">Delays are from publication to the look that found a post; a post is missed when it was pushed out of
its document unseen. What hubs have sent came at once, and is not among the delays. <a href="/demo.json">Data</a></p></footer>
</body>
</html>
"""


def _now(demo: Demo, told: Mapping[str, Any]) -> str:
    behind = told["true_speed"] < 0.9 * min(told["speed"], SPEEDS[1])
    slow = f", {figures(told['true_speed'], 2)} at the moment: the machine is busy" if behind else ""
    return f"""<div class="now">
<div class="whole">
<p class="clock">{time.strftime("%A, %d %B %Y, %H:%M", time.gmtime(told["now"]))}</p>
<p class="soft">Day {told["day"]:.1f} of {told["days"]:g}, {figures(told["speed"])} times as fast as life{slow}.
{count(told["posts"], "post")} published.</p>
</div>
<section><h2>The same budget, two policies</h2>
{_figures(told)}
{_friends(told)}</section>
<section><h2>How soon posts were found</h2>
{_curve(demo)}</section>
<section class="whole"><h2>The last posts that both have had, and how late</h2>
{_last(told)}</section>
</div>"""


def _figures(told: Mapping[str, Any]) -> str:
    rows: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "half were found within": lambda p: duration(p["p50_s"]),
        "nine in ten within": lambda p: duration(p["p90_s"]),
        "mean delay": lambda p: duration(p["mean_s"]),
        "missed for good": lambda p: f"{p['missed']:,} ({percent(p['missed_share'])})",
        "requests spent": lambda p: f"{p['requests']:,}",
        "… found something": lambda p: f"{p['hits']:,}",
        "… nothing new": lambda p: f"{p['unchanged']:,}",
        "… refused (429)": lambda p: f"{p['refused']:,}",
        "posts sent by hubs": lambda p: f"{p['pushed']:,}",
    }
    policies = told["policies"]
    head = "".join(f'<th scope="col" class="number {p["policy"]}">{p["policy"]}</th>' for p in policies)
    body = "\n".join(
        f'<tr><th scope="row">{name}</th>'
        + "".join(f'<td class="number {p["policy"]}">{cell(p)}</td>' for p in policies)
        + "</tr>"
        for name, cell in rows.items()
    )
    return f'<table class="figures"><thead><tr><td></td>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def _friends(told: Mapping[str, Any]) -> str:
    """The exchange in two sentences."""
    friends = told["friends"]
    if friends is None or not friends["requests"]:
        return ""
    nodes = friends["nodes"]
    return (
        f'<p>Then there are <a href="{escape(friends["pages"])}">{nodes} friends</a> who exchange what they fetch, each with '
        f"{nodes} times fewer requests. Together they have spent {friends['requests']:,}; the first of them has half of its "
        f"posts within <b>{duration(friends['p50_s'])}</b>, nine in ten within {duration(friends['p90_s'])}, and missed "
        f"{friends['missed']:,}. The others told it of {friends['told']:,} posts before it looked.</p>"
    )


def _curve(demo: Demo) -> str:
    """The share of posts that were found within a time, missed ones counted as never."""
    low, high = math.log(TICKS[0][0]), math.log(TICKS[-1][0])

    def x(seconds: float) -> float:
        share = (math.log(min(max(seconds, TICKS[0][0]), TICKS[-1][0])) - low) / (high - low)
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def y(share: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    parts, words, steps = [], [], np.exp(np.linspace(low, high, 60))
    for share in (0.0, 0.5, 1.0):
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    parts += [f'<text x="{x(at):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{word}</text>' for at, word in TICKS]
    for name in demo.plan.policies:
        judged = demo.judge(name)
        if not len(judged.feed):
            return '<p class="soft">Nothing has been published yet.</p>'
        delays = np.sort(judged.delay_s[~judged.missed])
        shares = np.searchsorted(delays, steps, side="right") / len(judged.feed)
        points = " ".join(f"{x(at):.1f},{y(share):.1f}" for at, share in zip(steps, shares, strict=True))
        parts.append(f'<polyline class="line {name}" points="{points}"/>')
        middle = int(np.searchsorted(shares, 0.62 if name == POLICIES[0] else 0.38))
        place = min(middle, len(steps) - 1)
        anchor, side = ("end", -8) if name == POLICIES[0] else ("start", 8)
        parts.append(
            f'<text class="name {name}" x="{x(steps[place]) + side:.1f}" y="{y(shares[place]) + 4:.1f}" '
            f'text-anchor="{anchor}">{name}</text>'
        )
        words.append(f"{name}: {shares[steps <= 3600][-1]:.0%} within an hour")
    label = f"Share of posts found within a time. {'; '.join(words)}."
    return f'<div class="wide"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg></div>'


def _last(told: Mapping[str, Any]) -> str:
    names = [policy["policy"] for policy in told["policies"]]
    head = "".join(f'<th scope="col" class="number {name}">{name}</th>' for name in names)
    rows = "\n".join(
        f'<tr><td class="number">{time.strftime("%H:%M", time.gmtime(post["at"]))}</td>'
        f'<td><a href="{escape(post["url"])}">{escape(post["title"])}</a><br>'
        f'<span class="soft">{escape(post["publisher"])}, {escape(post["kind"])}</span></td>'
        + "".join(f'<td class="number {name}">{_late(post["late_s"][name])}</td>' for name in names)
        + "</tr>"
        for post in told["last"]
    )
    if not rows:
        return '<p class="soft">Nothing has been found by both yet.</p>'
    return (
        '<table class="last"><thead><tr><th scope="col" class="number">at</th><th scope="col">post</th>'
        f"{head}</tr></thead><tbody>\n{rows}\n</tbody></table>"
    )


def _late(late: float | str) -> str:
    return late if isinstance(late, str) else duration(late)
