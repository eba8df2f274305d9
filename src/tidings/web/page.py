"""The page: what the service does now, a form, and the comparison that was asked for. Text in, HTML out, everything escaped."""

import time
from collections.abc import Sequence
from html import escape
from typing import Any
from urllib.parse import urlencode

from tidings import __version__
from tidings.policy import POLICIES
from tidings.web.chart import delay_chart
from tidings.web.comparison import DAYS, FEEDS, LEAST_BUDGET, MOST_BUDGET, MOST_POLICIES, MOST_SEED, TRAIN_DAYS, Request
from tidings.web.now import Look, Now
from tidings.words import ago, common_unit, count, duration, figures, in_unit, percent

#: Hosts that are named on the page; all of them are among the data.
MOST_PAUSES = 5


def frame(title: str, body: str) -> str:
    """A whole document around a body."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="stylesheet" href="/style.css">
<link rel="icon" href="/icon.svg" type="image/svg+xml">
</head>
<body>
<header>
<h1><a href="/">tidings</a></h1>
<p class="soft">A feed aggregator that knows when to look.</p>
</header>
<main>
{body}
</main>
<footer>
tidings {escape(__version__)}. The same comparisons, on traces of your own: <code>tidings lab compare --help</code>.
</footer>
</body>
</html>
"""


def home(request: Request, kinds: Sequence[str], now: Now, found: dict[str, Any] | None = None) -> str:
    """The one page: what the service does, the laboratory's form, and what it found."""
    body = f"""
{_now(now)}
<h2>What would a budget buy?</h2>
<p>Replays {FEEDS} generated feeds over {DAYS:.0f} days. Every policy learns from the first {TRAIN_DAYS:.0f} days and is
judged on the rest, with the same number of polls. It takes seconds, for some
policies half a minute.</p>
{_form(request, kinds)}
{_results(request, found) if found is not None else ""}
<h2>Policies</h2>
{_policies()}
"""
    return frame("tidings" if found is None else f"{', '.join(request.policies)} – tidings", body)


def _now(now: Now) -> str:
    if not now.feeds:
        return (
            "<p>No feed is followed yet. Add one: <code>tidings add URL</code>; or many: <code>tidings import FILE</code>.</p>"
        )
    day = now.day
    late = (
        f"half within {duration(day.delay_p50_s)}, nine in ten within {duration(day.delay_p90_s)}"
        if day.delay_p50_s is not None
        else "nothing new yet, so nothing to measure"
    )
    lost = f"about {figures(day.lost)} lost, {day.recovered:,} of them recovered" if day.lost else "none known"
    troubles = [f"{number:,} × {kind}" for kind, number in now.errors.items()]
    troubles += [f"{pause.host} paused until {_clock(pause.until)}: {pause.why}" for pause in now.paused[:MOST_PAUSES]]
    facts = {
        "Followed": f"{count(now.feeds, 'feed')}, {now.entries:,} entries",
        "Spent": f"{day.polls:,} of {figures(now.budget_per_day)} requests in the last 24 hours, {day.bytes / 1e6:,.1f} MB",
        "New": f"{day.new:,} entries in the last 24 hours",
        "Late": late,
        "Missed": lost,
        "Troubles": "; ".join(troubles) or "none",
    }
    rows = "\n".join(f"<dt>{name}</dt><dd>{escape(words)}</dd>" for name, words in facts.items())
    return f"""<h2>Now</h2>
<dl>
{rows}
</dl>
{_feeds("Last looks", now.last, now.at)}
{_feeds("Next looks", now.next, now.at)}
<p class="soft small"><a href="/api/status">Data</a>, <a href="/metrics">metrics</a>.
All feeds: <code>tidings feeds</code>.</p>"""


def _feeds(title: str, looks: Sequence[Look], at: float) -> str:
    items = "\n".join(
        f"<dt>{escape(ago(look.at, at))}</dt>"
        f'<dd>{escape(look.title)}<br><span class="soft small">{escape(look.words)}</span></dd>'
        for look in looks
    )
    return f"<h3>{title}</h3>\n<dl>\n{items}\n</dl>" if looks else ""


def _clock(at: float) -> str:
    return time.strftime("%d %b %H:%M UTC", time.gmtime(at))


def problem(title: str, sentence: str) -> str:
    """A page that says what is wrong and where to go from there."""
    body = f"""
<div class="problem"><h2>{escape(title)}</h2><p>{escape(sentence)}</p></div>
<p><a href="/">Back to the start</a></p>
"""
    return frame(f"{title} – tidings", body)


def _form(request: Request, kinds: Sequence[str]) -> str:
    boxes = "\n".join(
        f'<label><input type="checkbox" name="policies" value="{escape(name)}"{" checked" * (name in request.policies)}>'
        f"{escape(name)}</label>"
        for name in POLICIES
    )
    options = "".join(f"<option{' selected' * (kind == request.kind)}>{escape(kind)}</option>" for kind in kinds)
    bounds = f'min="{LEAST_BUDGET:g}" max="{MOST_BUDGET:g}"'
    return f"""<form method="get" action="/">
<fieldset><legend>Policies, up to {MOST_POLICIES}</legend>
<div class="choices">
{boxes}
</div></fieldset>
<div class="row">
<label><span class="label">Polls per feed and day</span>
<input type="number" name="budget" value="{request.budget:g}" {bounds} step="any" required></label>
<label><span class="label">Trace like the data of</span><select name="trace">{options}</select></label>
<label><span class="label">Seed</span>
<input type="number" name="seed" value="{request.seed}" min="0" max="{MOST_SEED}" step="1" required></label>
<button type="submit">Compare</button>
</div>
</form>"""


def query_of(request: Request) -> str:
    """The query that asks for the same again."""
    pairs = [("policies", ",".join(request.policies)), ("budget", f"{request.budget:g}"), ("trace", request.kind)]
    return urlencode([*pairs, ("seed", str(request.seed))])


def _results(request: Request, found: dict[str, Any]) -> str:
    chosen = next(at for at in found["curve"] if at["budget"] == found["budget"])
    budgets = [at["budget"] for at in found["curve"]]
    names = [result["policy"] for result in chosen["results"]]
    lines = {
        name: [_charged(at["results"][place]["charged_delay_s"]) for at in found["curve"]] for place, name in enumerate(names)
    }
    lines["the limit"] = [at["limit_charged_s"] for at in found["curve"]]
    title = "Mean delay against budget, missed posts charged"
    return f"""
<h3>At {figures(found["budget"])} {"poll" if found["budget"] == 1 else "polls"} per feed and day</h3>
{_table(chosen, found)}
<h3>{title}</h3>
{delay_chart(budgets, lines, found["budget"], title)}
<p class="soft small">Both axes are logarithmic. A missed post is charged its time until it was pushed out of the
document plus 24 hours. The limit is what a clairvoyant with the same polls would reach; no policy can pass it, and
with more polls than posts it is zero.
<a href="/compare.json?{escape(query_of(request))}">Data</a></p>
"""


def _charged(seconds: float | None) -> float:
    return float("nan") if seconds is None else seconds


def _table(chosen: dict[str, Any], found: dict[str, Any]) -> str:
    results = chosen["results"]
    unit, size = common_unit([r["mean_delay_s"] for r in results])
    rows = "\n".join(
        f'<tr><th scope="row">{escape(result["policy"])}</th>'
        + "".join(
            f"<td>{cell}</td>"
            for cell in (
                f"{result['polls']:,}",
                in_unit(result["mean_delay_s"], size),
                in_unit(result["median_delay_s"], size),
                in_unit(result["p95_delay_s"], size),
                percent(result["missed_share"]),
                in_unit(result["charged_delay_s"], size),
            )
        )
        + "</tr>"
        for result in results
    )
    limit = (
        f'<tr class="limit"><th scope="row">the limit</th><td></td><td>{in_unit(chosen["limit_delay_s"], size)}</td>'
        f"<td></td><td></td><td></td><td>{in_unit(chosen['limit_charged_s'], size)}</td></tr>"
    )
    judged = results[0]["posts"]
    words = f"{count(found['feeds'], 'feed')}, {count(judged, 'post')} judged; delays in {UNIT_WORDS[unit]}"
    return f"""<div class="wide"><table>
<caption>{words}</caption>
<thead><tr><th scope="col">Policy</th><th scope="col">Polls</th><th scope="col">Mean</th><th scope="col">Median</th>
<th scope="col">95 %</th><th scope="col">Missed</th><th scope="col">Charged</th></tr></thead>
<tbody>
{rows}
{limit}
</tbody></table></div>"""


UNIT_WORDS = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}


def _policies() -> str:
    items = "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(policy.summary)}</dd>" for name, policy in POLICIES.items())
    return f"<dl>\n{items}\n</dl>"
