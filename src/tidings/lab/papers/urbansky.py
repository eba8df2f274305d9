"""Reproduce Figs. 2 to 4 and Table 1 of Urbansky et al. 2011.

They compare five update strategies, each at its own number of polls. The test takes three weeks
after a year of history, so that the windows of slow feeds are full.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidings.lab import plots
from tidings.lab.generate import generate
from tidings.lab.papers.report import (
    Experiment,
    Paper,
    Row,
    format_change,
    format_duration,
    percent,
)
from tidings.lab.score import PollScores, metrics, score_polls, sum_by
from tidings.lab.segments import segment_searchsorted
from tidings.lab.simulate import Polls, simulate
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, MINUTE_S, Floats
from tidings.policy import make_policy

NAME = "Urbansky et al."
CITATION = (
    "D. Urbansky, S. Reichert, K. Muthmann, D. Schuster, A. Schill: An optimized web feed "
    "aggregation approach for "
    "generic feed types, ICWSM 2011."
)
STRATEGIES = {
    "Fix 1h": "fixed:interval_h=1",
    "Fix Learned": "fixed-learned",
    "MAV": "moving-average",
    "Post Rate": "post-rate",
    "Fix 1d": "fixed:interval_h=24",
}
#: Values of Table 1: delay and polls per item, by feeds and by polls.
TABLE_1 = {
    "Fix 1h": (30 * MINUTE_S, 222.06, 30 * MINUTE_S, 21.02),
    "Fix Learned": (54 * HOUR_S + 33 * MINUTE_S, 41.90, HOUR_S + 14 * MINUTE_S, 7.77),
    "MAV": (74 * HOUR_S + 37 * MINUTE_S, 1.96, 4 * MINUTE_S, 1.61),
    "Post Rate": (56 * HOUR_S + 51 * MINUTE_S, 3.57, 51 * MINUTE_S, 5.88),
    "Fix 1d": (12 * HOUR_S + 9 * MINUTE_S, 9.52, 12 * HOUR_S + 25 * MINUTE_S, 1.91),
}
LINE_COLORS = {
    "Fix 1h": plots.GRAY,
    "Fix Learned": "#cc6d2e",
    "MAV": plots.ACCENT,
    "Post Rate": "#3d5a99",
    "Fix 1d": plots.INK,
}
TRAIN_DAYS, TEST_DAYS = 365.0, 21.0
TICKS_S = (2 * MINUTE_S, HOUR_S, DAY_S, 7 * DAY_S, 31 * DAY_S)
TICK_LABELS = ("2 min", "1 h", "1 d", "7 d", "31 d")


@dataclass(frozen=True, slots=True)
class Run:
    """Polls of one strategy in the test period, with their scores."""

    polls: Polls
    scores: PollScores
    figures: dict[str, Any]


def experiments(quick: bool, seed: int, progress: Callable[[str], None]) -> Paper:
    """Run all experiments on one trace, which has fewer feeds than the paper's 180,000."""
    trace = generate("urbansky", 2000 if quick else 10_000, TRAIN_DAYS + TEST_DAYS, seed)
    runs = {}
    for name, spec in STRATEGIES.items():
        progress(name)
        runs[name] = run(trace, spec)
    start = trace.training_end(TRAIN_DAYS)
    items = np.bincount(trace.feed_of_post[trace.times >= start], minlength=trace.n_feeds)
    data = (
        f"Calibrated trace: {trace.n_feeds:,} feeds, {trace.n_posts:,} posts; tested on the last "
        "three weeks, in which "
        f"{percent(float((items > 0).mean()))} of the feeds post and the mean of 1/n over these is "
        f"{(1 / items[items > 0]).mean():.2f} (paper: 222.06 / 504 = 0.44)."
    )
    return Paper(
        NAME,
        CITATION,
        data,
        [figure_2(runs), figure_3(trace, runs), figure_4(trace, runs), table_1(runs)],
    )


def run(trace: Trace, spec: str, train_days: float = TRAIN_DAYS) -> Run:
    """Run one strategy at its native number of polls and score it."""
    start = trace.training_end(train_days)
    polls = simulate(trace, make_policy(spec), 1.0, start)
    scores = score_polls(trace, polls, start)
    return Run(polls, scores, metrics(scores))


def figure_2(runs: dict[str, Run]) -> Experiment:
    full = {name: r.scores.bytes_full for name, r in runs.items()}
    conditional = {name: r.scores.bytes_conditional for name, r in runs.items()}
    against = {name: 1 - size / full["Fix 1h"] for name, size in full.items()}
    paper_values = {
        "Fix 1h": "most",
        "Fix Learned": "“a bit” less",
        "MAV": "90 % less",
        "Post Rate": "90 % less",
        "Fix 1d": "least",
    }

    def picture() -> plots.Figure:
        fig, ax = plots.figure(6.2, 2.8, x="transferred in three weeks, GB (whole documents)")
        plots.bars(
            ax, list(full), [size / 1e9 for size in full.values()], form="{:.2f} GB", accent="MAV"
        )
        return fig

    return Experiment(
        "urbansky-fig-2",
        "Fig. 2: traffic",
        [
            Row(
                name,
                paper_values[name],
                f"{full[name] / 1e9:.2f} GB"
                + (f", {format_change(-against[name])}" if against[name] else ""),
            )
            for name in full
        ]
        + [
            Row(
                "MAV against Fix 1h with conditional requests",
                "",
                format_change(conditional["MAV"] / conditional["Fix 1h"] - 1),
            )
        ],
        "Whole documents at every poll, which the 90 % suggest: in Table 1 MAV needs 1.61 polls "
        "per item where Fix 1h "
        "needs 21.02, 92 % less. With conditional requests, which 83 % of the paper's feeds "
        "support, polls that find "
        "nothing cost little and the saving shrinks. The share of feeds whose first window is one "
        "old batch (1.5 %), "
        "which Fix Learned polls every two minutes, was set so that it transfers a bit "
        "less than Fix 1h: this "
        "order is calibrated, the others follow.",
        "Bars of transferred volume: Fix 1h most, Fix Learned less, MAV and Post Rate a tenth, "
        "Fix 1d least.",
        picture,
        {"bytes_full": full, "bytes_conditional": conditional},
    )


def _delay_by_update(trace: Trace, r: Run, updates: int, start: float) -> Floats:
    """Return the mean delay at the k-th successful poll, for k up to ``updates``.

    The mean is over the feeds with at least ``updates`` successful polls.
    """
    post = np.flatnonzero(trace.times >= start)
    feed = trace.feed_of_post[post]
    poll_index = segment_searchsorted(
        r.polls.times, r.polls.offsets[:-1][feed], r.polls.offsets[1:][feed], trace.times[post]
    )
    collected = (poll_index < r.polls.offsets[1:][feed]) & ~r.scores.missed
    count = np.bincount(poll_index[collected], minlength=len(r.polls))
    sums = sum_by(poll_index[collected], r.scores.delay_s[collected], len(r.polls))
    successful = np.flatnonzero(count)
    of = r.polls.feed[successful]
    begins = np.searchsorted(of, np.arange(trace.n_feeds))
    ends = np.searchsorted(of, np.arange(trace.n_feeds), side="right")
    rows = np.flatnonzero(ends - begins >= updates)
    if len(rows) == 0:
        return np.empty(0)
    delay = sums[successful] / count[successful]
    return np.asarray(delay[begins[rows][:, None] + np.arange(updates)].mean(axis=0))


def figure_3(trace: Trace, runs: dict[str, Run]) -> Experiment:
    """Compare the delays over the number of updates, for feeds with many updates (Fig. 3)."""
    start = trace.training_end(TRAIN_DAYS)
    many = {}
    for name, updates in (
        ("Fix 1h", 200),
        ("Fix Learned", 200),
        ("MAV", 200),
        ("Post Rate", 200),
        ("Fix 1d", 15),
    ):
        many[name] = _delay_by_update(trace, runs[name], updates, start)
    printed = {
        "Fix 1h": "30 min",
        "Fix Learned": "7 min",
        "MAV": "8 min",
        "Post Rate": "worse than MAV",
        "Fix 1d": "11 h",
    }
    level = {
        name: float(curve[25:].mean() if len(curve) > 25 else curve.mean())
        for name, curve in many.items()
        if len(curve)
    }

    def picture() -> plots.Figure:
        fig, ax = plots.figure(
            6.6, 3.6, x="polls that found something new", y="mean delay, minutes", grids="y"
        )
        ends = []
        for index, (name, curve) in enumerate(many.items()):
            if len(curve) < 100:
                continue
            smooth = np.convolve(curve / 60, np.ones(9) / 9, mode="valid")
            x = np.arange(len(smooth)) + 5
            color = LINE_COLORS[name]
            ax.plot(x, smooth, color=color, linestyle=plots.DASHES[index], linewidth=1.5)
            ends.append((float(x[-1]), float(smooth[-1]), name, color))
        ax.set_ylim(0, None)
        ax.set_xlim(0, 200)
        plots.line_labels(ax, ends)
        return fig

    return Experiment(
        "urbansky-fig-3",
        "Fig. 3: timeliness for busy feeds",
        [
            Row(
                name,
                printed[name],
                format_duration(level[name]) if name in level else "no such feeds",
            )
            for name in many
        ],
        "Feeds with at least 200 successful polls in three weeks under the strategy itself (the "
        "paper: 300 updates), "
        "so the sets differ between strategies. The order is the paper's, the level is not: our "
        "busy feeds (200 posts "
        "or more) have a mean gap of 82 min in the quick run of seed 0, while 7 min of delay is "
        "half of a gap of 14. "
        "The law of rates fitted to the means of Table 1 has too few feeds so fast.",
        "Mean delay against the number of successful polls for four strategies.",
        picture,
        {"level_s": level},
    )


def _intervals(trace: Trace, r: Run) -> tuple[Floats, Floats]:
    """Return the real and the predicted update interval of each feed, in seconds."""
    end = trace.offsets[1:]
    count = np.diff(trace.offsets)
    size = np.minimum(np.minimum(trace.window, count), 50)
    enough = (size > 1) & (r.scores.polls > 0)
    newest = trace.times[end - 1][enough]
    real = (newest - trace.times[(end - size)[enough]]) / (size[enough] - 1)
    silence = np.maximum(real, (trace.end - newest) / size[enough])
    return np.maximum(silence, 60.0), TEST_DAYS * DAY_S / r.scores.polls[enough]


def figure_4(trace: Trace, runs: dict[str, Run]) -> Experiment:
    names = ("Fix Learned", "Post Rate", "MAV")
    pairs = {name: _intervals(trace, runs[name]) for name in names}
    off = {name: float(np.std(np.log10(p / r))) for name, (r, p) in pairs.items()}
    floor = {name: float((p < 3 * MINUTE_S).mean()) for name, (_, p) in pairs.items()}

    def picture() -> plots.Figure:
        fig, axes = plots.panels(1, 3, 7.4, 3.0, sharex=True, sharey=True)
        for ax, name in zip(axes, names, strict=True):
            real, predicted = pairs[name]
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.hexbin(
                real,
                predicted,
                gridsize=34,
                bins="log",
                xscale="log",
                yscale="log",
                mincnt=1,
                cmap=_teal(),
                linewidths=0.1,
            )
            ax.plot([60, 400 * DAY_S], [60, 400 * DAY_S], color=plots.INK, linewidth=0.6)
            ax.set_title(name, loc="left")
            ax.set_xlim(60, 400 * DAY_S)
            ax.set_ylim(60, 60 * DAY_S)
            plots.log_ticks(ax, "x", [HOUR_S, DAY_S, 31 * DAY_S], ["1 h", "1 d", "31 d"])
            plots.log_ticks(ax, "y", TICKS_S, TICK_LABELS)
            ax.set_xlabel("real interval")
        axes[0].set_ylabel("predicted interval")
        return fig

    return Experiment(
        "urbansky-fig-4",
        "Fig. 4: real and predicted intervals",
        [
            Row(
                f"{n}: spread about y = x",
                "large" if n == "Fix Learned" else "small",
                f"a factor {10 ** off[n]:.1f}",
            )
            for n in names
        ]
        + [
            Row(
                f"{n}: feeds polled every two minutes",
                "a line" if n == "Fix Learned" else "none",
                percent(floor[n], 1),
            )
            for n in names
        ],
        "Real interval: the mean gap of a feed's last window, or its silence since if that is "
        "longer. The line at two "
        "minutes belongs to feeds that once posted in a batch and fell silent. In three weeks a "
        "mean time between "
        "polls above 21 days cannot be seen.",
        "Three heat maps of predicted against real interval; Fix Learned scatters, MAV follows "
        "the diagonal.",
        picture,
        {"log10_spread": off, "share_at_two_minutes": floor},
    )


def _teal() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(
        "teal", ["#d5e6e4", "#60b0a8", plots.ACCENT, "#062e2e"]
    )


def table_1(runs: dict[str, Run]) -> Experiment:
    rows = []
    figures: dict[str, Any] = {}
    for name, r in runs.items():
        f = r.figures
        collected = f["posts"] - f["missed"]
        ours = (
            f["feeds_mode_delay_s"],
            f["feeds_mode_polls_per_post"],
            f["polls_mode_delay_s"],
            f["polls"] / collected if collected else float("nan"),
        )
        figures[name] = list(ours)
        names = (
            "by feeds: delay",
            "by feeds: polls per item",
            "by polls: delay",
            "by polls: polls per item",
        )
        for word, form, paper, own in zip(
            names, (format_duration, "{:.2f}".format) * 2, TABLE_1[name], ours, strict=True
        ):
            rows.append(Row.of(f"{name}, {word}", paper, own, form))

    return Experiment(
        "urbansky-table-1",
        "Table 1: delay and polls per item",
        rows,
        "Fix 1h and Fix 1d are the arithmetic of a random phase. The paper's error, delay times "
        "polls per item, is "
        "left out: for a Poisson feed it is 1/(2λ) for any interval, so it cannot rank "
        "strategies; and the 179 "
        "printed for Fix 1h should read 631 (30 × 21.02). Not met: delays by polls. MAV has 7 h "
        "where the paper has 4 "
        "min; ten times the feeds do not change that (6.6 h with 20,000), so it is no matter of "
        "sample size. The "
        "paper's busiest feeds must hold far more of its polls than ours do, and no figure in it "
        "says how many. MAV's "
        "polls per item by feeds (quick run, seed 0: 6.6) is 1.15 without the 22 feeds of which "
        "one entry or none is "
        "known at the start: the rule polls these every 30 minutes.",
        "Delays and polls per item of five strategies as multiples of the paper's.",
        figures=figures,
    )
