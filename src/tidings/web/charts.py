"""Draw the SVG charts of the pages, such as the delay histogram and the poll timeline.

Lines are labeled directly instead of with a legend. Colors are CSS classes, so that charts follow
the light and dark theme; dash patterns and shapes distinguish lines without color. Each chart has a
title and a text alternative for screen readers (``aria-label``).
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

#: Minimum vertical distance between line labels, in SVG units.
LABEL_GAP = 17.0
#: Policies with a fixed color. Other policies get the remaining colors.
COLORS = {"uniform": 0, "min-delay": 1, "price": 2, "combined": 3}
COLOR_COUNT = 5
Scale: TypeAlias = Callable[[float], float]
#: Minimum and maximum of the delay histogram in seconds, and its bars per doubling of the delay.
MIN_DELAY_S, MAX_DELAY_S, PER_OCTAVE = 30.0, 3 * DAY_S, 2


class Plot:
    """SVG plot area with margins for labels, which collects SVG elements in ``parts``."""

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
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def horizontal_line(self, y: float, text: str = "", kind: str = "grid") -> None:
        """Draw a horizontal line across the plot, with a label at its left end."""
        self.parts.append(
            f'<line class="{kind}" x1="{self.left}" x2="{self.right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        if text:
            self.text(self.left - 8, y + 4, text, anchor="end")

    def vertical_line(self, x: float, kind: str = "reference-line") -> None:
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
        """Draw a line with dots; ``text`` has the tooltips of the dots."""
        coordinates = list(points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in coordinates)
        self.parts.append(f'<polyline class="line {kind}" points="{path}"/>')
        for i, (x, y) in enumerate(coordinates if dots else ()):
            tooltip = f"<title>{escape(text[i])}</title>" if i < len(text) else ""
            self.parts.append(
                f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="2.6">{tooltip}</circle>'
            )

    def bar(self, x: float, y: float, width: float, height: float, kind: str, text: str) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}"'
            f' height="{max(height, 0.0):.1f}">'
            f"<title>{escape(text)}</title></rect>"
        )

    def delay_grid(self, y: Scale, low: float, high: float) -> None:
        """Draw a horizontal grid line for each delay tick between ``low`` and ``high`` seconds."""
        for at, label in TIME_TICKS:
            if low <= at <= high:
                self.horizontal_line(y(at), label)

    def line_labels(self, ends: list[tuple[float, float, str, str]]) -> None:
        """Draw labels at the ends of lines so that they do not overlap.

        ``ends`` has (x, y, name, CSS class) of each line. Labels are moved down until none
        overlaps, then up together if they left the plot.
        """
        placed: list[float] = []
        ends = sorted(ends, key=lambda end: end[1])
        for _x, at, _name, _kind in ends:
            placed.append(max(at, placed[-1] + LABEL_GAP) if placed else at)
        for i in range(len(placed) - 1, -1, -1):
            lowest = self.bottom_y - 2 if i == len(placed) - 1 else placed[i + 1] - LABEL_GAP
            placed[i] = min(placed[i], lowest)
        for (x, _y, name, kind), y in zip(ends, placed, strict=True):
            self.text(x + 9, y + 4, name, f"name {kind}", "start")

    def svg(self, title: str, text: str) -> Markup:
        """Return the SVG element with a title and ``text`` as the rest of the text alternative."""
        head = (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img"'
            f' aria-label="{escape(f"{title}. {text}")}">'
        )
        return Markup("\n".join([head, *self.parts, "</svg>"]))


def _scale(low: float, high: float, start: float, end: float, log: bool) -> Scale:
    """Return a function that maps [low, high] to [start, end], linearly or logarithmically."""
    if log:
        return lambda value: (
            start + (end - start) * math.log(value / low) / max(math.log(high / low), 1e-9)
        )
    return lambda value: start + (end - start) * (value - low) / max(high - low, 1e-9)


# --- policy lab -----------------------------------------------------------------------------------


def delay_chart(
    budgets: Sequence[float], lines: Mapping[str, Sequence[float]], chosen: float, title: str
) -> Markup:
    """Draw the delay in seconds against the polls per feed and day, on logarithmic axes.

    ``lines`` has one delay per budget for each policy; the budget ``chosen`` gets a reference line.
    """
    points = {
        name: [(b, y) for b, y in zip(budgets, ys, strict=True) if y > 0]
        for name, ys in lines.items()
    }
    delays = [y for line in points.values() for _b, y in line] or [1.0, 10.0]
    low, high = min(delays) / 1.15, max(delays) * 1.15
    plot = Plot(720, 340, 64, 190, bottom=46)
    x, y = plot.x_scale(budgets[0], budgets[-1], log=True), plot.y_scale(low, high, log=True)
    plot.delay_grid(y, low, high)
    plot.vertical_line(x(chosen))
    plot.horizontal_line(plot.bottom_y, kind="axis")
    for budget in budgets:
        plot.text(
            x(budget),
            plot.bottom_y + 18,
            figures(budget),
            "tick current" if budget == chosen else "tick",
        )
    plot.text((plot.left + plot.right) / 2, plot.height - 8, _("checks per feed and day"))
    ends = []
    colors = _assign_colors([name for name in points if name != _("the limit")])
    for name, line in points.items():
        kind = f"c{colors[name]}" if name in colors else "limit"
        if line:
            tooltips = [
                _(
                    "%(name)s: delay %(delay)s at %(n)s checks per feed and day",
                    name=name,
                    delay=duration_short(d),
                    n=figures(b),
                )
                for b, d in line
            ]
            plot.line([(x(b), y(d)) for b, d in line], kind, text=tooltips)
            ends.append((x(line[-1][0]), y(line[-1][1]), name, kind))
    plot.line_labels(ends)
    text = "; ".join(
        _(
            "%(name)s: delay %(first)s at %(low)s checks per feed and day, %(last)s at %(high)s",
            name=name,
            first=duration_short(line[0][1]),
            low=figures(line[0][0]),
            last=duration_short(line[-1][1]),
            high=figures(line[-1][0]),
        )
        for name, line in points.items()
        if line
    )
    return plot.svg(title, text)


def _assign_colors(names: Sequence[str]) -> dict[str, int]:
    free = [c for c in range(COLOR_COUNT) if c not in {COLORS.get(name) for name in names}]
    return {name: COLORS[name] if name in COLORS else free.pop(0) if free else 0 for name in names}


# --- Timing page ----------------------------------------------------------------------------------


def delay_histogram(delays_s: Floats, p50_s: float, p90_s: float) -> Markup:
    """Draw a histogram of delays, with their median and 90th percentile.

    All values are in seconds. The edges of a bar differ by the square root of 2.
    """
    plot = Plot(560, 220, 40, 12, top=28, bottom=30)
    steps = int(np.ceil(np.log2(MAX_DELAY_S / MIN_DELAY_S) * PER_OCTAVE))
    edges = MIN_DELAY_S * 2.0 ** (np.arange(steps + 1) / PER_OCTAVE)
    counts, _edges = np.histogram(np.clip(delays_s, edges[0], edges[-1] * 0.999), edges)
    x, y = plot.x_scale(edges[0], edges[-1], log=True), plot.y_scale(0, max(int(counts.max()), 1))
    for low, high, number in zip(edges, edges[1:], counts.tolist(), strict=False):
        text = _(
            "%(share)s of the posts arrived after %(low)s to %(high)s",
            share=percent_short(number / len(delays_s)),
            low=duration_short(low),
            high=duration_short(high),
        )
        plot.bar(
            x(low) + 1, y(number), x(high) - x(low) - 2, plot.bottom_y - y(number), "column", text
        )
    plot.horizontal_line(plot.bottom_y, kind="axis")
    for at, label in TIME_TICKS:
        if MIN_DELAY_S <= at <= MAX_DELAY_S:
            plot.text(x(at), plot.bottom_y + 18, label)
    for delay_s, label, anchor in (
        (p50_s, _("median"), "end"),
        (p90_s, _("90 % of posts"), "start"),
    ):
        left = x(float(np.clip(delay_s, MIN_DELAY_S, edges[-1])))
        plot.vertical_line(left)
        offset = -5 if anchor == "end" else 5
        plot.text(left + offset, plot.top - 10, label, "tick current", anchor)
    text = _(
        "The median delay is %(median)s. 90 %% of the posts arrived within %(p90)s.",
        median=duration_short(p50_s),
        p90=duration_short(p90_s),
    )
    return plot.svg(_("Delay from publication to arrival"), text)


def _between_ticks(low: float, high: float) -> tuple[float, float]:
    """Extend a range of delays to the next ticks, so that both ends of the axis are labeled."""
    ticks = [at for at, _label in TIME_TICKS]
    return max((at for at in ticks if at <= low), default=low), min(
        (at for at in ticks if at >= high), default=high
    )


def daily_delay_chart(days: Sequence[tuple[str, float | None, float | None]]) -> Markup:
    """Draw the median and the 90th percentile of the delay by day.

    ``days`` are (name, median, 90th percentile) in seconds; None leaves a gap in the line.
    """
    plot = Plot(560, 220, 60, 104, bottom=30)
    delays = [value for _day, *both in days for value in both if value]
    low, high = _between_ticks(
        max(min(delays, default=60.0), 1.0) / 1.1, max(delays, default=3600.0) * 1.1
    )
    x, y = plot.x_scale(0, max(len(days) - 1, 1)), plot.y_scale(low, high, log=True)
    plot.delay_grid(y, low, high)
    for i, (day, *_both) in enumerate(days):
        plot.text(x(i), plot.bottom_y + 18, day)
    ends = []
    for name, kind, values in (
        (_("median"), "c2", [d[1] for d in days]),
        (_("90 % of posts"), "c1", [d[2] for d in days]),
    ):
        lines = _contiguous_runs(values)
        for line in lines:
            text = [f"{days[i][0]}: {name} {duration_short(value)}" for i, value in line]
            plot.line([(x(i), y(value)) for i, value in line], kind, text=text)
        if lines:
            ends.append((x(lines[-1][-1][0]), y(lines[-1][-1][1]), name, kind))
    plot.line_labels(ends)
    for i, (_day, median, _p90) in enumerate(days):
        if median is None:
            plot.text(x(i), plot.bottom_y - 6, NO_VALUE)
    description = "; ".join(
        f"{day}: {duration_short(median)}, {duration_short(p90)}" for day, median, p90 in days
    )
    return plot.svg(
        _("Delay by day"),
        _(
            "For each day: the median delay, then the delay within which 90 %% of the "
            "posts arrived. %(days)s",
            days=description,
        ),
    )


def _contiguous_runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Split values into runs of (index, value) that contain no None."""
    runs: list[list[tuple[int, float]]] = []
    for i, value in enumerate(values):
        if value:
            if not runs or runs[-1][-1][0] != i - 1:
                runs.append([])
            runs[-1].append((i, value))
    return runs


def daily_requests_chart(
    days: Sequence[tuple[str, tuple[int, int, int] | None]], budget: float
) -> Markup:
    """Draw the requests of each day as stacked bars, with the budget as a line.

    ``days`` are (name, (requests with new posts, requests without, failed requests)), with None for
    a day without data. ``budget`` is in requests a day.
    """
    plot = Plot(560, 220, 60, 140, bottom=30)
    most = max([budget, *(sum(counts) for _day, counts in days if counts)])
    x, y = plot.x_scale(0, len(days)), plot.y_scale(0, most * 1.08)
    plot.horizontal_line(y(budget), figures(budget), "reference-line")
    names = (
        (_("found new posts"), "column"),
        (_("found nothing new"), "column pale"),
        (_("failed"), "column bad"),
    )
    tops: dict[str, tuple[float, float, str, str]] = {}
    for i, (day, counts) in enumerate(days):
        plot.text(x(i + 0.5), plot.bottom_y + 18, day)
        if counts is None:
            plot.text(x(i + 0.5), plot.bottom_y - 6, NO_VALUE)
            continue
        height = 0
        for (name, kind), number in zip(names, counts, strict=True):
            top = y(height + number)
            plot.bar(
                x(i) + 6,
                top,
                x(1) - x(0) - 12,
                y(height) - top,
                kind,
                f"{day}: {number:,} {name}",
            )
            if number:
                tops[name] = (plot.right - 9, (top + y(height)) / 2, name, "muted")
            height += number
    plot.horizontal_line(plot.bottom_y, kind="axis")
    plot.text(plot.right, y(budget) - 6, _("budget"), "tick", "end")
    plot.line_labels(list(tops.values()))
    description = "; ".join(
        f"{day}: " + (", ".join(f"{number:,}" for number in counts) if counts else _("no data"))
        for day, counts in days
    )
    return plot.svg(
        _("Requests by day"),
        _(
            "For each day: requests that found new posts, found nothing new, and failed. %(days)s",
            days=description,
        ),
    )


def budget_chart(
    points: Sequence[tuple[float, float, float, float]],
    today: float,
    hourly: tuple[float, float] | None,
) -> Markup:
    """Draw the delay and, below it, the share of missed posts against the budget.

    ``points`` are (requests a day, mean delay, median delay, missed share), with delays in seconds.
    ``today`` is the current budget, which is marked. ``hourly`` is (requests a day, mean delay) of
    hourly polling, or None.
    """
    plot = Plot(560, 320, 60, 104, bottom=110)
    budgets = [point[0] for point in points]
    delays = [value for _b, mean, median, _m in points for value in (mean, median) if value > 0]
    low, high = _between_ticks(min(delays) / 1.1, max(delays) * 1.1)
    x, y = plot.x_scale(budgets[0], budgets[-1], log=True), plot.y_scale(low, high, log=True)
    plot.delay_grid(y, low, high)
    ends = []
    for which, name, kind in ((1, _("mean delay"), "c2"), (2, _("median delay"), "c0")):
        line = [
            (b, point[which]) for b, point in zip(budgets, points, strict=True) if point[which] > 0
        ]
        text = [
            _(
                "%(name)s at %(n)s requests a day: %(delay)s",
                n=figures(b),
                name=name,
                delay=duration_short(d),
            )
            for b, d in line
        ]
        plot.line([(x(b), y(d)) for b, d in line], kind, text=text)
        ends.append((x(line[-1][0]), y(line[-1][1]), name, kind))
    current = min(max(today, budgets[0]), budgets[-1])
    mean = float(
        np.exp(
            np.interp(
                np.log(current), np.log(budgets), np.log([max(point[1], 1.0) for point in points])
            )
        )
    )
    plot.vertical_line(x(current))
    plot.parts.append(
        f'<circle class="current-budget" cx="{x(current):.1f}" cy="{y(mean):.1f}" r="6"/>'
    )
    plot.text(x(current) + 10, y(mean) - 8, _("today"), "current", "start")
    plot.line_labels(ends)
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
    missed.line_labels([(x(budgets[-1]), z(points[-1][3]), _("missed posts"), "c1")])
    for budget in budgets:
        missed.text(x(budget), base + 20, figures(budget))
    if hourly is not None and budgets[0] <= hourly[0] <= budgets[-1]:
        left, top = x(hourly[0]), y(min(max(hourly[1], low), high))
        plot.parts.append(
            f'<rect class="hourly" x="{left - 4:.1f}" y="{top - 4:.1f}" width="8" height="8"/>'
        )
        plot.text(left + 9, top - 6, _("hourly polling"), "tick", "start")
    missed.text((plot.left + plot.right) / 2, 312, _("requests a day"))
    plot.parts += missed.parts
    description = "; ".join(
        _(
            "%(n)s requests a day: mean delay %(mean)s, %(share)s of posts missed",
            n=figures(b),
            mean=duration_short(mean),
            share=percent(share),
        )
        for b, mean, _median, share in points
    )
    return plot.svg(_("Delay and missed posts, by budget"), description)


# --- feed page ------------------------------------------------------------------------------------

DAYS_OF_WEEK = (_("Mon"), _("Tue"), _("Wed"), _("Thu"), _("Fri"), _("Sat"), _("Sun"))


def heatmap(posts: Floats) -> Markup:
    """Draw a heatmap of posts by weekday and hour.

    ``posts`` are times in seconds, shifted to the user's time zone.
    """
    plot = Plot(560, 178, 44, 8, top=4, bottom=22)
    counts = np.zeros((7, 24), dtype=np.int64)
    # 1 January 1970 was a Thursday.
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
            tooltip = f"{name} {hour:02d} h: {number}"
            plot.bar(
                x(hour) + 0.75,
                y(day) + 0.75,
                x(1) - x(0) - 1.5,
                y(1) - y(0) - 1.5,
                f"heat h{shade}",
                tooltip,
            )
    for hour in range(0, 24, 3):
        plot.text(x(hour), plot.height - 6, f"{hour}", anchor="start")
    day, hour = divmod(int(counts.argmax()), 24)
    text = _(
        "%(number)s posts, most often on %(day)s at %(hour)s h",
        number=len(posts),
        day=DAYS_OF_WEEK[day],
        hour=hour,
    )
    return plot.svg(_("Posts by day of the week and hour"), text)


#: Results of polls that have different markers on the timeline.
POLL_KINDS = ("found", "nothing", "unchanged", "failed", "push", "peer")


def timeline(
    posts: Sequence[tuple[float, str]],
    polls: Sequence[tuple[float, str, str]],
    ticks: Sequence[tuple[float, str]],
    now: float,
    next_poll: tuple[float, str] | None,
) -> Markup:
    """Draw posts above a time axis and polls below it.

    ``posts`` are (time, tooltip), ``polls`` (time, one of `POLL_KINDS`, tooltip), ``ticks`` (time,
    label), ``next_poll`` (time, tooltip) or None.
    """
    plot = Plot(760, 112, 8, 8, top=8, bottom=24)
    x, middle = plot.x_scale(ticks[0][0], ticks[-1][0]), 48.0
    for at, label in ticks[1:-1]:
        plot.vertical_line(x(at), "grid")
        if x(at) < plot.right - 40:
            plot.text(x(at) + 4, plot.height - 8, label, anchor="start")
    plot.horizontal_line(middle, kind="axis")
    if now <= ticks[-1][0]:
        plot.vertical_line(x(now))
    for at, text in posts:
        plot.bar(x(at) - 1, middle - 28, 2, 26, "post", text)
    for at, kind, text in polls:
        position = f"translate({x(at):.1f} {middle + 16})"
        plot.parts.append(
            f'<g class="poll {kind}" transform="{position}">{_marker_shape(kind)}'
            f"<title>{escape(text)}</title></g>"
        )
    if next_poll is not None:
        position = f"translate({x(next_poll[0]):.1f} {middle + 16})"
        plot.parts.append(
            f'<g class="poll scheduled" transform="{position}"><circle r="4"/>'
            f"<title>{escape(next_poll[1])}</title></g>"
        )
    counts = {kind: sum(1 for poll in polls if poll[1] == kind) for kind in POLL_KINDS}
    labels = poll_kind_labels()
    checks = ", ".join(f"{number} {labels[kind]}" for kind, number in counts.items() if number)
    return plot.svg(
        _("Posts and checks"),
        _("Posts: %(posts)s. Checks: %(checks)s.", posts=len(posts), checks=checks or _("none")),
    )


def poll_kind_labels() -> dict[str, str]:
    """Return the labels of `POLL_KINDS` for the legend and tooltips."""
    return {
        "found": _("found new posts"),
        "nothing": _("found nothing new"),
        "unchanged": _("feed not changed (304)"),
        "failed": _("failed or was refused"),
        "push": _("pushed (WebSub)"),
        "peer": _("received from a peer"),
    }


def _marker_shape(kind: str) -> str:
    """Return the SVG shape of a poll marker.

    Each kind has a different shape, so that users who cannot see colors can distinguish them.
    """
    return {
        "found": '<circle r="4.5"/>',
        "nothing": '<circle r="4"/>',
        "unchanged": '<circle r="2.2"/>',
        "failed": '<path d="M-4-4L4 4M4-4L-4 4"/>',
        "push": '<path d="M0-5L5 4H-5z"/>',
        "peer": '<path d="M0-5.5L5.5 0 0 5.5-5.5 0z"/>',
    }[kind]


def legend_marker(kind: str) -> Markup:
    """Return the marker of a poll kind as a small SVG for the legend."""
    return Markup(
        '<svg class="legend-marker" viewBox="-7 -7 14 14" aria-hidden="true">'
        f'<g class="poll {kind}">{_marker_shape(kind)}</g></svg>'
    )
