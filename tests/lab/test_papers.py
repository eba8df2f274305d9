"""Tests that the papers' results hold on calibrated traces of moderate size.

A change of a formula moves at least one figure out of its range. docs/papers.md states which of
these figures the calibration has used, and which follow from it.
"""

from pathlib import Path

import numpy as np
import pytest

from tidings.lab.generate import generate
from tidings.lab.papers import feedex, han, run_papers, sia_cho, urbansky
from tidings.lab.papers.report import (
    Experiment,
    Paper,
    Row,
    format_change,
    format_duration,
    percent,
    write_report,
)
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, MINUTE_S


@pytest.fixture(scope="module")
def trace() -> Trace:
    return generate("sia-cho", 1500, 90, 0)


@pytest.fixture(scope="module")
def sweep(trace: Trace) -> sia_cho.Sweep:
    return sia_cho.run_strategies(trace, (1.0, 2.0, 4.0, 8.0))


@pytest.fixture(scope="module")
def han_sweep() -> han.Sweep:
    return han.run_policies(generate("han", 1000, 42, 0), range(1000, 20_001, 1000))


@pytest.fixture(scope="module")
def strategies() -> dict[str, urbansky.Run]:
    old = generate("urbansky", 1000, 386, 0)
    return {name: urbansky.run(old, spec) for name, spec in urbansky.STRATEGIES.items()}


# --- Sia & Cho ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "gain"), [("scheduling", 0.12), ("min-delay", 0.33), ("combined", 0.40)]
)
def test_figure_13(sweep: sia_cho.Sweep, policy: str, gain: float) -> None:
    """The three strategies save 12, 33 and 40 % of the uniform policy's delay on average.

    The strategies are scheduling, allocation and both together.
    """
    assert sweep.mean_gain(policy) == pytest.approx(gain, abs=0.08)


def test_allocation_gains_what_the_spread_of_rates_allows(
    trace: Trace, sweep: sia_cho.Sweep
) -> None:
    """The gain is within 4 points of 1 - (E sqrt(rate))^2 / E rate (Theorem 1) at any budget."""
    start = trace.training_end(14)
    rates = np.bincount(trace.feed_of_post[trace.times >= start], minlength=trace.n_feeds) / 76
    best = 1 - np.sqrt(rates).mean() ** 2 / rates.mean()
    assert sweep.gain("min-delay") == pytest.approx([best] * 4, abs=0.04)
    assert np.ptp(sweep.gain("min-delay")) < 0.02


def test_scheduling_gains_most_where_a_phase_can_be_chosen(sweep: sia_cho.Sweep) -> None:
    gains = sweep.gain("scheduling")
    assert gains == sorted(gains, reverse=True)


def test_table_1(sweep: sia_cho.Sweep) -> None:
    """With one poll a day, delays are uniform in a day, and allocation has longer maxima."""
    day = DAY_S
    assert sweep.at_one["uniform"][0] == pytest.approx(day / 2, rel=0.03)
    assert sweep.at_one["uniform"][2] == pytest.approx(day / np.sqrt(12), rel=0.03)
    assert sweep.at_one["uniform"][1] <= day
    assert sweep.at_one["scheduling"][1] <= day
    assert 5 * day < sweep.at_one["min-delay"][1] < 12 * day
    assert sweep.at_one["combined"][1] < 12 * day


def test_table_2(trace: Trace, sweep: sia_cho.Sweep) -> None:
    """Minimum age has 1.3 to 1.6 times the delay of `combined`, maximum freshness over 20 times."""
    figures = sia_cho.table_2(trace, sweep).figures
    assert 1.3 <= figures["age_s"] / figures["combined_s"] <= 1.6
    assert figures["freshness_s"] / figures["combined_s"] > 20


def test_figure_8(trace: Trace) -> None:
    """Learning from one day is clearly worse than from 14 days, and four weeks hardly better."""
    one, fortnight, month = sia_cho.figure_8(trace, (1, 14, 28)).figures["mean_delay_s"]
    assert one > 1.04 * fortnight
    assert month == pytest.approx(fortnight, rel=0.03)


def test_section_4_6(trace: Trace) -> None:
    """Sending only new entries saves about two thirds of the bytes, and more at more polls."""
    saving = sia_cho.section_4_6(trace).figures["saving"]
    assert saving[0] == pytest.approx(0.64, abs=0.1)
    assert saving == sorted(saving)


def test_rates_and_patterns(trace: Trace) -> None:
    assert all(f["correlation"] > 0.85 for f in sia_cho.figure_9(trace).figures.values())
    clusters = sia_cho.figure_12(trace, 0).figures
    assert len(clusters["sizes"]) == 12
    assert sum(clusters["sizes"]) == trace.n_feeds


# --- Han et al. -----------------------------------------------------------------------------------


def test_tables_1_to_3_are_exact() -> None:
    figures = han.tables_1_to_3().figures
    assert figures["polls"] == {
        "uniform": [2, 2, 2, 2],
        "min-delay": [3, 3, 1, 1],
        "min-missing": [2, 3, 1, 2],
    }
    assert figures["missed"] == {"uniform": 10, "min-delay": 5, "min-missing": 0}


@pytest.mark.parametrize(
    ("figure", "other", "printed"),
    [
        ("missed", "uniform", 0.23),
        ("delay", "uniform", 0.86),
        ("missed", "min-delay", 0.77),
        ("delay", "min-delay", 1.06),
    ],
)
def test_table_4(han_sweep: han.Sweep, figure: str, other: str, printed: float) -> None:
    assert han_sweep.ratio(figure, other) == pytest.approx(printed, abs=0.1)


def test_figure_14(han_sweep: han.Sweep) -> None:
    """37, 11 and 8 % of posts are missed on average, fewest by minimum missing."""
    mean = {name: np.mean(values) for name, values in han_sweep.missed_share.items()}
    assert mean["uniform"] == pytest.approx(0.37, abs=0.06)
    assert mean["min-delay"] == pytest.approx(0.11, abs=0.06)
    assert mean["min-missing"] == pytest.approx(0.08, abs=0.06)
    least = np.array(han_sweep.missed_share["min-missing"])
    assert np.all(least <= np.array(han_sweep.missed_share["min-delay"]))
    assert least[-1] < 0.05


def test_figure_15(han_sweep: han.Sweep) -> None:
    """Above 2,000 polls the policy `min-delay` has the lowest delay."""
    assert han.figure_15(han_sweep).figures["min_delay_best_from"] <= 4000


# --- Urbansky et al. ------------------------------------------------------------------------------


def test_figure_2(strategies: dict[str, urbansky.Run]) -> None:
    """Fix 1h transfers the most bytes, Fix 1d the fewest, MAV and Post Rate about 90 % less."""
    order = sorted(strategies, key=lambda name: -strategies[name].scores.bytes_full)
    assert order[:2] == ["Fix 1h", "Fix Learned"]
    assert set(order[2:4]) == {"MAV", "Post Rate"}
    assert order[4] == "Fix 1d"
    figures = urbansky.figure_2(strategies).figures["bytes_full"]
    for name in ("MAV", "Post Rate"):
        assert 1 - figures[name] / figures["Fix 1h"] == pytest.approx(0.9, abs=0.06)


def test_fixed_interval_delay_is_half_interval(strategies: dict[str, urbansky.Run]) -> None:
    """The mean delay is half the interval, both over posts and over feeds."""
    hourly, daily = strategies["Fix 1h"].figures, strategies["Fix 1d"].figures
    assert hourly["mean_delay_s"] == pytest.approx(30 * MINUTE_S, rel=0.03)
    assert hourly["feeds_mode_delay_s"] == pytest.approx(30 * MINUTE_S, rel=0.08)
    assert daily["feeds_mode_delay_s"] == pytest.approx(12 * HOUR_S, rel=0.06)
    assert hourly["polls_per_feed_day"] == pytest.approx(24, rel=0.001)
    assert daily["polls_per_feed_day"] == pytest.approx(1, rel=0.001)


def test_figure_4(strategies: dict[str, urbansky.Run]) -> None:
    """Only Fix Learned polls feeds that stopped posting every two minutes."""
    figures = urbansky.figure_4(generate("urbansky", 1000, 386, 0), strategies).figures
    assert figures["share_at_two_minutes"]["Fix Learned"] > 0.01
    assert figures["share_at_two_minutes"]["MAV"] < 0.003
    assert figures["share_at_two_minutes"]["Post Rate"] < 0.003
    assert figures["log10_spread"]["Fix Learned"] > 1.5 * figures["log10_spread"]["MAV"]


# --- FeedEx and the page --------------------------------------------------------------------------


def test_feedex_figures() -> None:
    paper = feedex.experiments(True, 0, lambda _: None)
    by_key = {e.key: e.figures for e in paper.experiments}
    assert by_key["feedex-fig-2a"]["r_squared"] > 0.98
    assert by_key["feedex-fig-2a"]["five_a_day"] == pytest.approx(70, abs=12)
    assert by_key["feedex-fig-2c"]["weekend_entries"] == 0
    assert by_key["feedex-fig-2c"]["night_share"] < 0.6


def test_report_is_self_contained(tmp_path: Path) -> None:
    """The report embeds its plots with alternative texts, escapes text and loads nothing."""
    paper = feedex.experiments(True, 0, lambda _: None)
    odd = Experiment(
        "odd",
        "A <b> & c",
        [Row("<x>", "1", "2")],
        "why & how",
        'a "quoted" picture',
        paper.experiments[0].picture,
    )
    write_report([Paper("P & Q", "cite", "data", [odd, paper.experiments[1]])], tmp_path, "a note")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert page.count("<img alt=") == 2
    assert "http:" not in page
    assert "https:" not in page
    assert "A &lt;b&gt; &amp; c" in page
    assert "&lt;x&gt;" in page
    assert "a &#34;quoted&#34; picture" in page
    assert (tmp_path / "odd.png").read_bytes().startswith(b"\x89PNG")


def test_run_papers_reports_progress_and_returns_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sia_cho, han, urbansky):
        monkeypatch.setattr(module, "experiments", lambda *_: Paper("none", "", "", []))
    said: list[str] = []
    result = run_papers(tmp_path, True, 3, said.append)
    assert (tmp_path / "index.html").exists()
    assert result["seed"] == 3
    assert any("FeedEx" in line for line in said)


def test_number_formats() -> None:
    assert percent(-0.123, 1) == "−12.3 %"
    assert format_change(-0.3) == "30 % less"
    assert format_change(0.006) == "0.6 % more"
    assert format_duration(29.6 * 60) == "30m"
    assert format_duration(74 * 3600 + 37 * 60) == "74h:37m"
