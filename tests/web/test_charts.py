"""SVG charts: well-formed, with text alternatives, and inside their frame for all data."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from tidings.web import charts

DAY_S = 86400.0
WEEK = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
MANY = np.random.default_rng(1).lognormal(7, 2, 500)
CHARTS = {
    "delays": lambda: charts.delay_histogram(MANY, 1000.0, 9000.0),
    "one delay of zero": lambda: charts.delay_histogram(np.zeros(1), 0.0, 0.0),
    "delays of years": lambda: charts.delay_histogram(np.full(3, 1e9), 1e9, 1e9),
    "days": lambda: charts.daily_delay_chart(
        [(day, 600.0 * (i + 1), 5000.0) for i, day in enumerate(WEEK)]
    ),
    "days without posts": lambda: charts.daily_delay_chart([(day, None, None) for day in WEEK]),
    "days without delay": lambda: charts.daily_delay_chart([(day, 0.0, 0.0) for day in WEEK]),
    "days with gaps": lambda: charts.daily_delay_chart(
        [(day, None if i % 3 else 60.0, None) for i, day in enumerate(WEEK)]
    ),
    "requests": lambda: charts.daily_requests_chart(
        [(day, (5, 90, i)) for i, day in enumerate(WEEK)], 100.0
    ),
    "requests on some days": lambda: charts.daily_requests_chart(
        [(day, (5, 9, 0) if i > 4 else None) for i, day in enumerate(WEEK)], 9.0
    ),
    "requests above the budget": lambda: charts.daily_requests_chart(
        [(day, (5000, 0, 0)) for day in WEEK], 1.0
    ),
    "budgets": lambda: charts.budget_chart(
        [(75.0, 9e3, 5e3, 0.02), (150.0, 4e3, 2e3, 0.0), (300.0, 2e3, 1e3, 0.0)],
        150.0,
        (290.0, 1.8e3),
    ),
    "one budget": lambda: charts.budget_chart([(75.0, 9e3, 5e3, 0.0)], 5000.0, (75.0, 1e9)),
    "policies": lambda: charts.delay_chart(
        [1.0, 2.0], {"price": [60.0, 30.0], "<b>": [float("nan"), 5e6]}, 2.0, "A & B"
    ),
    "heatmap": lambda: charts.heatmap(np.arange(0, 30 * DAY_S, 7000.0)),
    "empty heatmap": lambda: charts.heatmap(np.empty(0)),
    "timeline": lambda: charts.timeline(
        [(50.0, "<published>")],
        [(60.0 + i, kind, "x & y") for i, kind in enumerate(charts.POLL_KINDS)],
        [(0.0, ""), (100.0, "")],
        90.0,
        (95.0, ""),
    ),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_svg_within_its_frame(name):
    text = str(CHARTS[name]())
    root = ElementTree.fromstring(text)
    width, height = map(float, root.get("viewBox").split()[2:])
    assert root.get("role") == "img"
    assert len(root.get("aria-label")) > 15
    assert not re.search(r"\b(nan|inf)\b", re.sub('aria-label="[^"]*"', "", text))
    for part in root.iter():
        for key, most in (
            ("x", width),
            ("cx", width),
            ("x1", width),
            ("y", height),
            ("cy", height),
            ("y2", height),
        ):
            if part.get(key) is not None:
                assert -2 <= float(part.get(key)) <= most + 2, ElementTree.tostring(part)
        if part.tag == "rect":
            assert float(part.get("height")) >= 0
            assert float(part.get("y")) + float(part.get("height")) <= height + 1


def test_day_without_data_is_a_gap():
    delays = str(
        charts.daily_delay_chart([(day, None if day == "Wed" else 600.0, None) for day in WEEK])
    )
    assert [
        len(points.split())
        for points in re.findall(r'<polyline class="line c2" points="([^"]*)"', delays)
    ] == [2, 4]
    assert delays.count("–</text>") == 1
    requests = str(
        charts.daily_requests_chart(
            [(day, None if day == "Wed" else (1, 2, 3)) for day in WEEK], 10.0
        )
    )
    assert requests.count("<rect") == 6 * 3
    assert "Wed: no data" in requests


def test_heatmap_counts_posts_by_weekday_and_hour():
    monday_nine = 4 * DAY_S + 9 * 3600  # 1 January 1970 was a Thursday
    chart = str(charts.heatmap(np.array([monday_nine + 60 * i for i in range(5)])))
    assert "<title>Mon 09 h: 5</title>" in chart
    assert chart.count("h5") == 1
    assert "5 posts, most often on Mon at 9 h" in chart


def test_line_labels_do_not_overlap():
    lines = {f"policy {i}": [100.0, 100.0 + i] for i in range(5)}
    chart = str(charts.delay_chart([1.0, 2.0], lines, 1.0, "Five lines"))
    label_ys = sorted(
        float(y) for y in re.findall(r'class="name[^"]*" x="[^"]*" y="([^"]*)"', chart)
    )
    assert len(label_ys) == 5
    assert min(np.diff(label_ys)) >= charts.LABEL_GAP - 0.2
