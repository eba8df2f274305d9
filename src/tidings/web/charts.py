"""Pictures as inline SVG: little ink, honest axes, words on the lines instead of legends.

Colours come from the style sheet by class, so that a picture follows the light and the dark theme; dashes and shapes say the
same as colours. Every picture has its title and what it shows in words for those who do not see it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TypeAlias

import numpy as np
from markupsafe import Markup

from tidings.formatting import NO_VALUE, TIME_TICKS, duration_short, figures, percent, percent_short
from tidings.i18n import _
from tidings.model import DAY_S, HOUR_S, Floats

LABEL_GAP = 17.0
#: Policies that keep their colour wherever they appear; others take what is free.
COLORS = {"uniform": 0, "min-delay": 1, "price": 2, "combined": 3}
COLOR_COUNT = 5
Scale: TypeAlias = Callable[[float], float]
#: Bars of the distribution of delays: from so many seconds, so many for each doubling.
MIN_DELAY_S, MAX_DELAY_S, PER_OCTAVE = 30.0, 3 * DAY_S, 2


class Plot:
    """A frame with room for words around it, and scales that are set once what is shown is known."""

    def __init__(
        self,
        width: float,
        height: float,
        left: float,
        right: float,
        top: float = 14,
        bottom: float = 28,
    ) -> None:
        self.width, self.height, self.top = width, height, top
        self.left, self.right, self.bottom_y = left, width - right, height - bottom
        self.parts: list[str] = []

    def x_scale(self, low: float, high: float, *, log: bool = False) -> Scale:
        return _scale(low, high, self.left, self.right, log)

    def y_scale(self, low: float, high: float, *, log: bool = False) -> Scale:
        return _scale(low, high, self.bottom_y, self.top, log)

    def text(
        self, x: float, y: float, text: str, kind: str = "tick", anchor: str = "middle"
    ) -> None:
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def horizontal_line(self, y: float, text: str = "", kind: str = "grid") -> None:
        """A line from side to side, with its value beside it."""
        self.parts.append(
            f'<line class="{kind}" x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        if text:
            self.text(self.left - 8, y + 4, text, anchor="end")

    def vertical_line(self, x: float, kind: str = "mark") -> None:
        self.parts.append(
            f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{self.top}" y2="{self.bottom_y}"/>'
        )

    def line(
        self,
        points: Iterable[tuple[float, float]],
        kind: str,
        *,
        dots: bool = True,
        text: Sequence[str] = (),
    ) -> None:
        """A line with dots, each with its words for those who point at it."""
        places = list(points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self.parts.append(f'<polyline class="line {kind}" points="{path}"/>')
        for i, (x, y) in enumerate(places if dots else ()):
            said = f"<title>{escape(text[i])}</title>" if i < len(text) else ""
            self.parts.append(
                f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.6">{said}</circle>'
            )

    def bar(self, x: float, y: float, width: float, height: float, kind: str, text: str) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0.0):.1f}">'
            f"<title>{escape(text)}</title></rect>"
        )

    def delays(self, y: Scale, low: float, high: float) -> None:
        for at, word in TIME_TICKS:
            if low <= at <= high:
                self.horizontal_line(y(at), word)

    def names(self, ends: list[tuple[float, float, str, str]]) -> None:
        """Names at the ends of the lines, moved down until none covers another, then up together if they left the frame."""
        placed: list[float] = []
        ends = sorted(ends, key=lambda end: end[1])
        for _x, at, _name, _kind in ends:
            placed.append(max(at, placed[-1] + LABEL_GAP) if placed else at)
        for place in range(len(placed) - 1, -1, -1):
            most = self.bottom_y - 2 if place == len(placed) - 1 else placed[place + 1] - LABEL_GAP
            placed[place] = min(placed[place], most)
        for (x, _y, name, kind), y in zip(ends, placed, strict=True):
            self.text(x + 9, y + 4, name, f"name {kind}", "start")

    def svg(self, title: str, text: str) -> Markup:
        head = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(f"{title}. {text}")}">'
        return Markup("\n".join([head, *self.parts, "</svg>"]))


def _scale(low: float, high: float, begin: float, end: float, log: bool) -> Scale:
    if log:
        return lambda value: (
            begin + (end - begin) * math.log(value / low) / max(math.log(high / low), 1e-9)
        )
    return lambda value: begin + (end - begin) * (value - low) / max(high - low, 1e-9)


# --- policies against budgets ------------------------------------------------------------------------------------------


def delay_chart(
    budgets: Sequence[float], lines: Mapping[str, Sequence[float]], chosen: float, title: str
) -> Markup:
    """Delay in seconds against polls per feed and day, both logarithmic; ``chosen`` is marked."""
    points = {
        name: [(b, y) for b, y in zip(budgets, ys, strict=True) if y > 0]
        for name, ys in lines.items()
    }
    every = [y for line in points.values() for _b, y in line] or [1.0, 10.0]
    low, high = min(every) / 1.15, max(every) * 1.15
    plot = Plot(720, 340, 64, 190, bottom=46)
    x, y = plot.x_scale(budgets[0], budgets[-1], log=True), plot.y_scale(low, high, log=True)
    plot.delays(y, low, high)
    plot.vertical_line(x(chosen))
    plot.horizontal_line(plot.bottom_y, kind="axis")
    for budget in budgets:
        plot.text(
            x(budget),
            plot.bottom_y + 18,
            figures(budget),
            "tick you" if budget == chosen else "tick",
        )
    plot.text((plot.left + plot.right) / 2, plot.height - 8, _("polls per feed and day"))
    ends = []
    colors = _assign_colors([name for name in points if name != "the limit"])
    for name, line in points.items():
        kind = f"c{colors[name]}" if name in colors else "limit"
        if line:
            said = [f"{name}: {duration_short(d)} at {figures(b)}" for b, d in line]
            plot.line([(x(b), y(d)) for b, d in line], kind, text=said)
            ends.append((x(line[-1][0]), y(line[-1][1]), name, kind))
    plot.names(ends)
    text = "; ".join(
        f"{name}: {duration_short(line[0][1])} at {figures(line[0][0])} polls per feed and day, "
        f"{duration_short(line[-1][1])} at {figures(line[-1][0])}"
        for name, line in points.items()
        if line
    )
    return plot.svg(title, text)


def _assign_colors(names: Sequence[str]) -> dict[str, int]:
    free = [c for c in range(COLOR_COUNT) if c not in {COLORS.get(name) for name in names}]
    return {name: COLORS[name] if name in COLORS else free.pop(0) if free else 0 for name in names}


# --- the installation's own days ---------------------------------------------------------------------------------------


def delay_histogram(delays_s: Floats, p50_s: float, p90_s: float) -> Markup:
    """How the delays are spread: one bar for each factor of root two."""
    plot = Plot(560, 220, 40, 12, top=28, bottom=30)
    steps = int(np.ceil(np.log2(MAX_DELAY_S / MIN_DELAY_S) * PER_OCTAVE))
    edges = MIN_DELAY_S * 2.0 ** (np.arange(steps + 1) / PER_OCTAVE)
    counts, _edges = np.histogram(np.clip(delays_s, edges[0], edges[-1] * 0.999), edges)
    x, y = plot.x_scale(edges[0], edges[-1], log=True), plot.y_scale(0, max(int(counts.max()), 1))
    for low, high, number in zip(edges, edges[1:], counts.tolist(), strict=False):
        text = _(
            "%(share)s within %(low)s to %(high)s",
            share=percent_short(number / len(delays_s)),
            low=duration_short(low),
            high=duration_short(high),
        )
        plot.bar(
            x(low) + 1, y(number), x(high) - x(low) - 2, plot.bottom_y - y(number), "column", text
        )
    plot.horizontal_line(plot.bottom_y, kind="axis")
    for at, word in TIME_TICKS:
        if MIN_DELAY_S <= at <= MAX_DELAY_S:
            plot.text(x(at), plot.bottom_y + 18, word)
    for late_s, word, anchor in ((p50_s, _("median"), "end"), (p90_s, _("90 %"), "start")):
        place = x(float(np.clip(late_s, MIN_DELAY_S, edges[-1])))
        plot.vertical_line(place)
        plot.text(place + (-5 if anchor == "end" else 5), plot.top - 10, word, "tick you", anchor)
    text = _(
        "Median %(median)s, 90 %% within %(p90)s",
        median=duration_short(p50_s),
        p90=duration_short(p90_s),
    )
    return plot.svg(_("Delay from publication to arrival"), text)


def _between_ticks(low: float, high: float) -> tuple[float, float]:
    """The same and a little more, so that an axis of delays has a word at either end."""
    ticks = [at for at, _word in TIME_TICKS]
    return max((at for at in ticks if at <= low), default=low), min(
        (at for at in ticks if at >= high), default=high
    )


def daily_delay_chart(days: Sequence[tuple[str, float | None, float | None]]) -> Markup:
    """By day: its name, median and p90 of the delay; a day without them is a gap in the line."""
    plot = Plot(560, 220, 60, 104, bottom=30)
    every = [value for _day, *both in days for value in both if value]
    low, high = _between_ticks(
        max(min(every, default=60.0), 1.0) / 1.1, max(every, default=3600.0) * 1.1
    )
    x, y = plot.x_scale(0, max(len(days) - 1, 1)), plot.y_scale(low, high, log=True)
    plot.delays(y, low, high)
    for place, (day, *_both) in enumerate(days):
        plot.text(x(place), plot.bottom_y + 18, day)
    ends = []
    for name, kind, values in (
        (_("median"), "c2", [d[1] for d in days]),
        (_("90 %"), "c1", [d[2] for d in days]),
    ):
        lines = _contiguous_runs(values)
        for line in lines:
            text = [f"{days[place][0]}: {name} {duration_short(value)}" for place, value in line]
            plot.line([(x(place), y(value)) for place, value in line], kind, text=text)
        if lines:
            ends.append((x(lines[-1][-1][0]), y(lines[-1][-1][1]), name, kind))
    plot.names(ends)
    for place, (_day, median, _p90) in enumerate(days):
        if median is None:
            plot.text(x(place), plot.bottom_y - 6, NO_VALUE)
    said = "; ".join(
        f"{day}: {duration_short(median)}, {duration_short(p90)}" for day, median, p90 in days
    )
    return plot.svg(_("Delay by day"), _("Median, 90 %% within. %(days)s", days=said))


def _contiguous_runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Runs of places with a value; between two of them there is a gap."""
    runs: list[list[tuple[int, float]]] = []
    for place, value in enumerate(values):
        if value:
            if not runs or runs[-1][-1][0] != place - 1:
                runs.append([])
            runs[-1].append((place, value))
    return runs


def daily_requests_chart(
    days: Sequence[tuple[str, tuple[int, int, int] | None]], budget: float
) -> Markup:
    """By day: its name, and requests that found something, found nothing, and failed; the budget is a line.

    None stands for a day without data, which is a gap and no zero.
    """
    plot = Plot(560, 220, 60, 140, bottom=30)
    most = max([budget, *(sum(counts) for _day, counts in days if counts)])
    x, y = plot.x_scale(0, len(days)), plot.y_scale(0, most * 1.08)
    plot.horizontal_line(y(budget), figures(budget), "mark")
    names = (
        (_("found something"), "column"),
        (_("nothing new"), "column pale"),
        (_("failed"), "column bad"),
    )
    tops: dict[str, tuple[float, float, str, str]] = {}
    for place, (day, counts) in enumerate(days):
        plot.text(x(place + 0.5), plot.bottom_y + 18, day)
        if counts is None:
            plot.text(x(place + 0.5), plot.bottom_y - 6, NO_VALUE)
            continue
        height = 0
        for (name, kind), number in zip(names, counts, strict=True):
            top = y(height + number)
            plot.bar(
                x(place) + 6,
                top,
                x(1) - x(0) - 12,
                y(height) - top,
                kind,
                f"{day}: {number:,} {name}",
            )
            if number:
                tops[name] = (plot.right - 9, (top + y(height)) / 2, name, "soft")
            height += number
    plot.horizontal_line(plot.bottom_y, kind="axis")
    plot.text(plot.right, y(budget) - 6, _("the budget"), "tick", "end")
    plot.names(list(tops.values()))
    said = "; ".join(
        f"{day}: " + (", ".join(f"{number:,}" for number in counts) if counts else _("no data"))
        for day, counts in days
    )
    return plot.svg(
        _("Requests by day"), _("Found something, nothing new, failed. %(days)s", days=said)
    )


def budget_chart(
    points: Sequence[tuple[float, float, float, float]],
    today: float,
    hourly: tuple[float, float] | None,
) -> Markup:
    """Requests a day, mean delay, median delay and missed share: the delay above, the losses below, today marked.

    ``hourly`` are the requests a day and the mean delay of hourly polling, where they are known.
    """
    plot = Plot(560, 320, 60, 104, bottom=110)
    budgets = [point[0] for point in points]
    every = [value for _b, mean, half, _m in points for value in (mean, half) if value > 0]
    low, high = _between_ticks(min(every) / 1.1, max(every) * 1.1)
    x, y = plot.x_scale(budgets[0], budgets[-1], log=True), plot.y_scale(low, high, log=True)
    plot.delays(y, low, high)
    ends = []
    for which, name, kind in ((1, _("mean"), "c2"), (2, _("median"), "c0")):
        line = [
            (b, point[which]) for b, point in zip(budgets, points, strict=True) if point[which] > 0
        ]
        text = [
            _(
                "%(n)s requests a day: %(name)s %(delay)s",
                n=figures(b),
                name=name,
                delay=duration_short(d),
            )
            for b, d in line
        ]
        plot.line([(x(b), y(d)) for b, d in line], kind, text=text)
        ends.append((x(line[-1][0]), y(line[-1][1]), name, kind))
    here = min(max(today, budgets[0]), budgets[-1])
    mean = float(
        np.exp(
            np.interp(
                np.log(here), np.log(budgets), np.log([max(point[1], 1.0) for point in points])
            )
        )
    )
    plot.vertical_line(x(here))
    plot.parts.append(f'<circle class="here" cx="{x(here):.1f}" cy="{y(mean):.1f}" r="6"/>')
    plot.text(x(here) + 10, y(mean) - 8, _("you"), "you", "start")
    plot.names(ends)
    missed, base = Plot(560, 320, 60, 104, top=236, bottom=46), 274.0
    most = max(*(point[3] for point in points), 0.001)
    z = _scale(0, most, base, 236, False)
    missed.horizontal_line(base, "0", "axis")
    missed.horizontal_line(z(most), percent(most))
    missed.line(
        [(x(b), z(m)) for b, _d, _h, m in points],
        "c1",
        text=[f"{figures(b)}: {percent(m)}" for b, _d, _h, m in points],
    )
    missed.names([(x(budgets[-1]), z(points[-1][3]), _("missed"), "c1")])
    for budget in budgets:
        missed.text(x(budget), base + 20, figures(budget))
    if hourly is not None and budgets[0] <= hourly[0] <= budgets[-1]:
        place = (x(hourly[0]), y(min(max(hourly[1], low), high)))
        plot.parts.append(
            f'<rect class="hourly" x="{place[0] - 4:.1f}" y="{place[1] - 4:.1f}" width="8" height="8"/>'
        )
        plot.text(place[0] + 9, place[1] - 6, _("hourly polling"), "tick", "start")
    missed.text((plot.left + plot.right) / 2, 312, _("requests a day"))
    plot.parts += missed.parts
    said = "; ".join(
        _(
            "%(n)s: mean %(mean)s, missed %(share)s",
            n=figures(b),
            mean=duration_short(mean),
            share=percent(share),
        )
        for b, mean, _half, share in points
    )
    return plot.svg(_("Delay and missed posts against the budget"), said)


# --- one feed ----------------------------------------------------------------------------------------------------------

DAYS_OF_WEEK = (_("Mon"), _("Tue"), _("Wed"), _("Thu"), _("Fri"), _("Sat"), _("Sun"))


def heatmap(posts: Floats) -> Markup:
    """When a feed posts: 7 days x 24 hours, the darker the more. ``posts`` are times in the reader's own zone."""
    plot = Plot(560, 178, 44, 8, top=4, bottom=22)
    counts = np.zeros((7, 24), dtype=np.int64)
    # The epoch's first day was a Thursday.
    np.add.at(
        counts,
        (((posts // DAY_S).astype(np.int64) + 3) % 7, (posts % DAY_S // HOUR_S).astype(np.int64)),
        1,
    )
    x, y, most = (
        plot.x_scale(0, 24),
        _scale(0, 7, plot.top, plot.bottom_y, False),
        max(int(counts.max()), 1),
    )
    for day, name in enumerate(DAYS_OF_WEEK):
        plot.text(plot.left - 8, y(day + 0.5) + 5, name, anchor="end")
        for hour in range(24):
            number = int(counts[day, hour])
            shade = math.ceil(5 * number / most)
            said = f"{name} {hour:02d} h: {number}"
            plot.bar(
                x(hour) + 0.75,
                y(day) + 0.75,
                x(1) - x(0) - 1.5,
                y(1) - y(0) - 1.5,
                f"heat h{shade}",
                said,
            )
    for hour in range(0, 24, 3):
        plot.text(x(hour), plot.height - 6, f"{hour}", anchor="start")
    day, hour = divmod(int(counts.argmax()), 24)
    text = _(
        "%(number)s posts; most on %(day)s at %(hour)s h",
        number=len(posts),
        day=DAYS_OF_WEEK[day],
        hour=hour,
    )
    return plot.svg(_("When it posts, by day of the week and hour"), text)


#: How a look is drawn: below the line, by what came of it.
POLL_KINDS = ("found", "nothing", "unchanged", "failed", "push", "neighbour")


def timeline(
    posts: Sequence[tuple[float, str]],
    looks: Sequence[tuple[float, str, str]],
    ticks: Sequence[tuple[float, str]],
    now: float,
    next_poll: tuple[float, str] | None,
) -> Markup:
    """Posts as strokes above the line, looks below it: (time, words) and (time, one of `LOOKS`, words); ``coming`` is next."""
    plot = Plot(760, 112, 8, 8, top=8, bottom=24)
    x, middle = plot.x_scale(ticks[0][0], ticks[-1][0]), 48.0
    for at, word in ticks[1:-1]:
        plot.vertical_line(x(at), "grid")
        if x(at) < plot.right - 40:
            plot.text(x(at) + 4, plot.height - 8, word, anchor="start")
    plot.horizontal_line(middle, kind="axis")
    if now <= ticks[-1][0]:
        plot.vertical_line(x(now))
    for at, text in posts:
        plot.bar(x(at) - 1, middle - 28, 2, 26, "post", text)
    for at, kind, text in looks:
        plot.parts.append(
            f'<g class="look {kind}" transform="translate({x(at):.1f} {middle + 16})">{_marker_shape(kind)}'
        )
        plot.parts.append(f"<title>{escape(text)}</title></g>")
    if next_poll is not None:
        plot.parts.append(
            f'<g class="look coming" transform="translate({x(next_poll[0]):.1f} {middle + 16})"><circle r="4"/>'
        )
        plot.parts.append(f"<title>{escape(next_poll[1])}</title></g>")
    tally = {kind: sum(1 for look in looks if look[1] == kind) for kind in POLL_KINDS}
    said = ", ".join(f"{number} {kind}" for kind, number in tally.items() if number)
    return plot.svg(
        _("Posts and checks"),
        _("%(posts)s posts; checks: %(looks)s", posts=len(posts), looks=said or _("none")),
    )


def _marker_shape(kind: str) -> str:
    """Told apart without colour: a full or an empty circle, a small one, a cross, a triangle, a square on its corner."""
    return {
        "found": '<circle r="4.5"/>',
        "nothing": '<circle r="4"/>',
        "unchanged": '<circle r="2.2"/>',
        "failed": '<path d="M-4-4L4 4M4-4L-4 4"/>',
        "push": '<path d="M0-5L5 4H-5z"/>',
        "neighbour": '<path d="M0-5.5L5.5 0 0 5.5-5.5 0z"/>',
    }[kind]


def key(kind: str) -> Markup:
    """The same shape beside its word."""
    return Markup(
        f'<svg class="key" viewBox="-7 -7 14 14" aria-hidden="true"><g class="look {kind}">{_marker_shape(kind)}</g></svg>'
    )
