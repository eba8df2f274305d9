"""Reproduce Fig. 2 of FeedEx (Jun & Ahamad 2006), the publishing statistics."""

from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from tidings.lab import plots
from tidings.lab.describe import draw_zipf
from tidings.lab.generate import FEEDEX_PATTERNS, generate
from tidings.lab.papers.report import Experiment, Paper, Row
from tidings.lab.traces import Trace
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.policy.estimate import entry_lifetimes_s, fit_zipf

NAME = "FeedEx"
CITATION = "S. Jun, M. Ahamad: FeedEx, a news feed exchange system, WWW 2006."


def experiments(quick: bool, seed: int, progress: Callable[[str], None]) -> Paper:
    """Run all experiments on 245 feeds over ten days, as in sect. 2, also with ``quick``."""
    trace = generate("feedex", 245, 10.0, seed)
    progress("Fig. 2, publishing")
    posts = f"{trace.n_posts:,} posts in {trace.days:.0f} days"
    data = f"Calibrated trace: {trace.n_feeds} feeds, {posts}."
    return Paper(
        NAME,
        CITATION,
        data,
        [figure_2a(trace), figure_2b(trace), figure_2c(trace), figure_2d(trace)],
    )


def _rates(trace: Trace) -> Floats:
    return np.diff(trace.offsets) / trace.days


def figure_2a(trace: Trace) -> Experiment:
    rates = _rates(trace)
    fit = fit_zipf(rates, (30, 200) if trace.n_feeds >= 245 else None)
    ordered = np.sort(rates[rates > 0])[::-1]

    def picture() -> plots.Figure:
        fig, ax = plots.figure(5.8, 3.6)
        draw_zipf(ax, ordered, asdict(fit))
        return fig

    return Experiment(
        "feedex-fig-2a",
        "Fig. 2(a): publishing rates",
        [
            Row("Zipf's law holds for ranks", "30 to 200", f"{fit.ranks[0]} to {fit.ranks[1]}"),
            Row("fit on these ranks, R²", "“well fitted”", f"{fit.r_squared:.3f}"),
            Row("exponent", "not printed", f"{fit.exponent:.2f}"),
            Row("feeds with 5 entries a day or more", "70", str(int((rates >= 5).sum()))),
        ],
        "Calibrated: head and tail deviate as in the paper (crowded head, steep tail). The "
        "exponent 1.2 is our choice.",
        "Publishing rate against rank on logarithmic axes; a straight line in the middle ranks.",
        picture,
        {
            "exponent": fit.exponent,
            "r_squared": fit.r_squared,
            "five_a_day": int((rates >= 5).sum()),
        },
    )


def figure_2b(trace: Trace) -> Experiment:
    rates = _rates(trace)
    r_squared = float(np.corrcoef(rates, trace.window)[0, 1] ** 2)

    def picture() -> plots.Figure:
        fig, ax = plots.figure(6.0, 2.8, x="entries in a document", y="feeds", grids="y")
        counts = np.bincount(trace.window)
        ax.bar(np.arange(len(counts)), counts, width=0.9, color=plots.ACCENT)
        return fig

    return Experiment(
        "feedex-fig-2b",
        "Fig. 2(b): entry counts",
        [
            Row("feeds with 15 entries", "79", str(int((trace.window == 15).sum()))),
            Row("feeds with 10 entries", "30", str(int((trace.window == 10).sum()))),
            Row("most entries", "126", str(int(trace.window.max()))),
            Row("feeds with a constant count", "65 %", "100 %"),
            Row("rate against count, R²", "0.06", f"{r_squared:.2f}"),
        ],
        "A trace has one window per feed, so every count is constant here; the 35 % whose count "
        "varies are not modeled.",
        "Histogram of entries per document with peaks at 10 and 15.",
        picture,
        {
            "r_squared": r_squared,
            "fifteen": int((trace.window == 15).sum()),
            "ten": int((trace.window == 10).sum()),
        },
    )


def _hourly_counts(trace: Trace, feed: int) -> Floats:
    times = trace.times[trace.offsets[feed] : trace.offsets[feed + 1]]
    start = np.floor(trace.start / DAY_S) * DAY_S
    hour = ((times - start) // (2 * HOUR_S)).astype(np.int64)
    return np.bincount(hour[hour < 84], minlength=84).astype(np.float64) / 2


def _busiest(trace: Trace) -> list[int]:
    """Return the number of the busiest feed of each posting pattern."""
    rates = _rates(trace)
    busiest = []
    for name in FEEDEX_PATTERNS:
        rows = [i for i, feed_name in enumerate(trace.feed_names) if feed_name == name]
        busiest.append(max(rows, key=lambda i: rates[i]))
    return busiest


def figure_2c(trace: Trace) -> Experiment:
    feeds = _busiest(trace)
    series = [_hourly_counts(trace, feed) for feed in feeds]
    by_day = series[0].reshape(7, 12)
    fool = series[2].reshape(7, 12)
    npr = series[3].reshape(7, 12)

    def picture() -> plots.Figure:
        fig, axes = plots.panels(4, 1, 7.0, 5.2, sharex=True)
        for ax, feed, rate in zip(axes, feeds, series, strict=True):
            ax.step(np.arange(84) / 12, rate, where="post", color=plots.ACCENT, linewidth=1.1)
            for day in range(8):
                ax.axvline(day, color=plots.FAINT, linewidth=0.6, zorder=0)
            ax.set_title(trace.feed_names[feed], fontsize=9, pad=3, loc="left")
            ax.set_xlim(0, 7)
            ax.set_ylim(0, None)
        axes[-1].set_xlabel("days from Monday, midnight UTC")
        fig.supylabel("entries per hour", fontsize=9.5)
        return fig

    night = float(by_day[:5, 2:4].sum() / max(by_day[:5, 8:10].sum(), 1e-9))
    return Experiment(
        "feedex-fig-2c",
        "Fig. 2(c): patterns over a week",
        [
            Row("by day: 4-8 h against 16-20 h UTC", "less", f"{night:.2f}"),
            Row("no weekends: entries on Saturday and Sunday", "none", f"{fool[5:].sum() * 2:.0f}"),
            Row(
                "fixed hours: times of the day with entries",
                "few",
                f"{int((npr.sum(axis=0) > 0).sum())} of 12",
            ),
        ],
        "One feed for each of the paper's four patterns, drawn from the model.",
        "Four curves of publishing rate over a week: by day, round the clock, without weekends, "
        "at fixed hours.",
        picture,
        {"weekend_entries": float(fool[5:].sum() * 2), "night_share": night},
    )


def figure_2d(trace: Trace) -> Experiment:
    lifetimes = {}
    for feed in _busiest(trace):
        times = trace.times[trace.offsets[feed] : trace.offsets[feed + 1]]
        life = entry_lifetimes_s(times, int(trace.window[feed]))
        if len(life):
            lifetimes[trace.feed_names[feed]] = np.sort(life)
    medians = {name: float(np.median(life)) for name, life in lifetimes.items()}

    def picture() -> plots.Figure:
        fig, ax = plots.figure(6.6, 3.4, x="lifetime of an entry, days", y="entries gone, %")
        for index, (_, life) in enumerate(lifetimes.items()):
            share = 100 * np.arange(1, len(life) + 1) / len(life)
            color, dash = plots.PALETTE[index], plots.DASHES[index]
            ax.step(life / DAY_S, share, where="post", color=color, linestyle=dash, linewidth=1.5)
        for day in range(5):
            ax.axvline(day, color=plots.FAINT, linewidth=0.6, zorder=0)
        ax.set_xlim(0, 4)
        ax.set_ylim(0, 100)
        ax.legend(
            list(lifetimes), loc="lower right", fontsize=8.5, labelcolor="linecolor", frameon=False
        )
        return fig

    return Experiment(
        "feedex-fig-2d",
        "Fig. 2(d): how long entries live",
        [
            Row(f"median, {name}", "", f"{median / HOUR_S:.1f} h")
            for name, median in medians.items()
        ],
        "In a document of fixed size an entry lives until as many newer ones have come: the "
        "paper's CNN kind. Feeds "
        "that give entries a lifetime by policy (Fox News, Beta News) change their document's "
        "size, which a trace "
        "with one window per feed cannot show.",
        "Cumulative distributions of entry lifetimes for four feeds.",
        picture,
        {"median_s": medians},
    )
