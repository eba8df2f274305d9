"""A curve as inline SVG: little ink, honest axes, words on the lines instead of a legend.

Colours come from the style sheet by class, so that the chart follows the light and the dark theme.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TypeAlias

from tidings.words import duration

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 14, 46
LABEL_GAP = 17.0
#: Policies that keep their colour wherever they appear; others take what is free.
COLOURS = {"uniform": 0, "min-delay": 1, "price": 2, "combined": 3}
COLOUR_COUNT = 5
Scale: TypeAlias = Callable[[float], float]
TICKS = (
    (1, "1 s"),
    (5, "5 s"),
    (20, "20 s"),
    (60, "1 min"),
    (300, "5 min"),
    (1200, "20 min"),
    (3600, "1 h"),
    (10800, "3 h"),
    (28800, "8 h"),
    (86400, "1 d"),
    (259200, "3 d"),
    (864000, "10 d"),
)


def delay_chart(budgets: Sequence[float], lines: Mapping[str, Sequence[float]], chosen: float, title: str) -> str:
    """Delay in seconds against polls per feed and day, both logarithmic; ``chosen`` is marked."""
    points = {name: [(b, y) for b, y in zip(budgets, ys, strict=True) if y > 0] for name, ys in lines.items()}
    every = [y for line in points.values() for _, y in line] or [1.0, 10.0]
    low, high = min(every) / 1.15, max(every) * 1.15

    def x(budget: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(budget, budgets[0], budgets[-1])

    def y(delay: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(delay, low, high)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="chart-title chart-desc">',
        f'<title id="chart-title">{escape(title)}</title>',
        f'<desc id="chart-desc">{escape(_in_words(points))}</desc>',
        *_axes(x, y, budgets, low, high, chosen),
    ]
    ends = []
    colours = _colours([name for name in points if name != "the limit"])
    for name, line in points.items():
        kind = f"c{colours[name]}" if name in colours else "limit"
        if not line:
            continue
        path = " ".join(f"{x(b):.1f},{y(d):.1f}" for b, d in line)
        parts.append(f'<polyline class="line {kind}" points="{path}"/>')
        parts.extend(f'<circle class="dot {kind}" cx="{x(b):.1f}" cy="{y(d):.1f}" r="2.6"/>' for b, d in line)
        ends.append((x(line[-1][0]) + 9, y(line[-1][1]), name, kind))
    parts.extend(_labels(ends))
    return "\n".join([*parts, "</svg>"])


def _colours(names: Sequence[str]) -> dict[str, int]:
    free = [c for c in range(COLOUR_COUNT) if c not in {COLOURS.get(name) for name in names}]
    return {name: COLOURS[name] if name in COLOURS else free.pop(0) if free else 0 for name in names}


def _share(value: float, low: float, high: float) -> float:
    return (math.log(value) - math.log(low)) / max(math.log(high) - math.log(low), 1e-9)


def _axes(x: Scale, y: Scale, budgets: Sequence[float], low: float, high: float, chosen: float) -> list[str]:
    parts = []
    for at, word in TICKS:
        if low <= at <= high:
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(at):.1f}" y2="{y(at):.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 8}" y="{y(at) + 4:.1f}" text-anchor="end">{word}</text>')
    parts.append(f'<line class="mark" x1="{x(chosen):.1f}" x2="{x(chosen):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    for budget in budgets:
        words = f"{budget:.3g}"
        kind = "tick you" if budget == chosen else "tick"
        parts.append(f'<text class="{kind}" x="{x(budget):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{words}</text>')
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">polls per feed and day</text>')
    return parts


def _labels(ends: list[tuple[float, float, str, str]]) -> list[str]:
    """Names at the ends of the lines, moved down until none covers another, then up together if they left the chart."""
    placed: list[float] = []
    ends = sorted(ends, key=lambda end: end[1])
    for _, at, _, _ in ends:
        placed.append(max(at, placed[-1] + LABEL_GAP) if placed else at)
    for place in range(len(placed) - 1, -1, -1):
        most = HEIGHT - BOTTOM - 2 if place == len(placed) - 1 else placed[place + 1] - LABEL_GAP
        placed[place] = min(placed[place], most)
    return [
        f'<text class="name {kind}" x="{at_x:.1f}" y="{at_y + 4:.1f}">{escape(name)}</text>'
        for (at_x, _, name, kind), at_y in zip(ends, placed, strict=True)
    ]


def _in_words(points: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    said = [
        f"{name}: from {duration(line[0][1])} at {line[0][0]:.3g} polls to {duration(line[-1][1])} at {line[-1][0]:.3g}"
        for name, line in points.items()
        if line
    ]
    return "Mean delay, missed posts charged, against polls per feed and day. " + "; ".join(said) + "."
