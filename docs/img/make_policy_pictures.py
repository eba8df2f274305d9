"""The pictures of docs/policy.md, from trace directories and the table that `tidings lab evaluate --out` wrote:

    python docs/img/make_policy_pictures.py TRACE... [--table TABLE.json] [--budget 4] [--out docs/img]

The first trace gives the price, the weekly pattern and the three feeds; a table gives delay against budget for its traces.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from tidings.lab import plots
from tidings.lab.simulate import Polls, simulate
from tidings.lab.traces import Trace, read_trace
from tidings.model import DAY_S, HOUR_S, Floats
from tidings.policy.base import hour_of_week
from tidings.policy.price import PricePolicy
from tidings.policy.price.weekly_profile import responsibilities
from tidings.formatting import duration

TRAIN_DAYS = 28.0
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Watched(PricePolicy):
    """`price`, with what the controller did written down."""

    def __init__(self) -> None:
        super().__init__()
        self.when: list[float] = []
        self.prices: list[float] = []
        self.spent: list[int] = []

    def tick(self, now: float, spent: int) -> Any:
        again = super().tick(now, spent)
        self.when.append(now)
        self.prices.append(self.controller.price)
        self.spent.append(spent)
        return again


def run(trace: Trace, budget: float) -> tuple[Watched, Polls, float]:
    start = trace.training_end(TRAIN_DAYS)
    policy = Watched()
    return policy, simulate(trace, policy, budget, start), start


# --- the price ----------------------------------------------------------------------------------------------------------


def price_over_time(trace: Trace, budget: float, policy: Watched, start: float) -> Any:
    """The price, and below it what it is moved for: polls of each day and of any seven days against the budget."""
    days = (np.array(policy.when) - start) / DAY_S
    fig, (top, bottom) = plots.panels(2, 1, 7.2, 4.8, sharex=True)
    top.set_title(f"The price of a poll, {trace.name} at {budget:g} polls per feed and day", loc="left", fontsize=10.5)
    top.plot(days, np.array(policy.prices) * 24, color=plots.ACCENT, drawstyle="steps-post")
    top.set_ylim(0, max(policy.prices) * 24 * 1.15)
    top.set_ylabel("post-hours")
    plots.grid(top)

    whole = np.arange(1, int(days[-1]) + 1)
    spent = np.interp(whole, days, policy.spent)
    target = budget * trace.n_feeds
    daily = np.diff(spent, prepend=0.0) / target
    week = (spent[7:] - spent[:-7]) / (7 * target)
    bottom.axhline(1.0, color=plots.INK, linewidth=0.7)
    bottom.plot(whole, daily, color=plots.GRAY, linewidth=0.9)
    bottom.plot(whole[7:], week, color=plots.ACCENT)
    bottom.set_xlim(0, days[-1])
    bottom.set_ylabel("spent, of the budget")
    bottom.set_xlabel("days since the training part")
    low, high = float(daily.min()), float(daily.max())
    bottom.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    bottom.yaxis.set_major_formatter(lambda share, _: f"{share * 100:.0f} %")
    plots.grid(bottom)
    ends = [(days[-1], float(daily[-1]), "each day", plots.GRAY), (days[-1], float(week[-1]), "last 7 days", plots.ACCENT)]
    plots.line_labels(bottom, ends, gap=0.1)
    return fig


# --- one feed's pattern -------------------------------------------------------------------------------------------------


def pattern(trace: Trace, policy: Watched) -> Any:
    """A feed's own counts, what its cluster says, and the shape that was made of both."""
    posts = np.diff(trace.offsets)
    feed = int(np.argsort(posts)[int(0.6 * len(posts))])  # neither the busiest nor a silent one
    counts = policy.state["hours"][feed].astype(np.float64)
    row = np.array([feed])
    shape = policy._weekly_profile(row)
    cluster = np.argmax(responsibilities(policy._tempered_counts(row).hours, policy.shared_profiles), axis=1)
    center = policy.shared_profiles.centers[int(cluster[0])] * len(counts)
    hours = np.arange(len(counts))
    fig, ax = plots.figure(7.2, 3.4)
    ax.set_title(f"One feed's week: {_name(trace, feed)}, {counts.sum():.0f} posts kept in mind", loc="left", fontsize=10.5)
    ax.bar(hours + 0.5, counts / counts.mean(), width=1.0, color="#d5dddd", zorder=1)
    ax.plot(hours + 0.5, center, color=plots.GRAY, linewidth=1.0, linestyle=plots.DASHES[2], zorder=2)
    ax.plot(hours + 0.5, shape[0], color=plots.ACCENT, linewidth=1.5, zorder=3)
    ax.set_xlim(0, len(counts))
    top = float(max(shape[0].max(), center.max(), np.quantile(counts / counts.mean(), 0.985))) * 1.12
    ax.set_ylim(0, top)
    ax.set_xticks(np.arange(7) * 24 + 12, DAYS)
    ax.tick_params(axis="x", length=0)
    for day in range(1, 7):
        ax.axvline(24 * day, color=plots.FAINT, linewidth=0.7, zorder=0)
    ax.set_ylabel("posts, of the mean hour")
    marks = (("what the policy expects", plots.ACCENT), ("feeds like it", plots.GRAY), ("its own posts", "#9fb0b0"))
    for line, (word, color) in enumerate(marks):
        ax.annotate(
            word, (1, 1), xycoords="axes fraction", xytext=(-4, -6 - 13 * line), textcoords="offset points",
            color=color, ha="right", va="top", fontsize=9,
        )  # fmt: skip
    return fig


# --- polls against posts ------------------------------------------------------------------------------------------------


def three_feeds(trace: Trace, polls: Polls, start: float) -> Any:
    """Two weeks of a slow, a middling and a busy feed: posts above the line, polls below."""
    begin = start + 14 * DAY_S
    begin += (7 * 24 - int(hour_of_week(np.array([begin]))[0])) % 168 * HOUR_S  # a Monday
    begin = begin // HOUR_S * HOUR_S
    end = begin + 14 * DAY_S
    seen = np.bincount(trace.feed_of_post[(trace.times >= begin) & (trace.times < end)], minlength=trace.n_feeds)
    chosen = [_nearest(seen, wanted) for wanted in (8, 40, 160)]
    fig, axes = plots.panels(3, 1, 7.2, 4.6, sharex=True)
    for ax, feed in zip(axes, chosen, strict=True):
        posts = _between(trace.times[trace.offsets[feed] : trace.offsets[feed + 1]], begin, end)
        looks = _between(polls.times[polls.offsets[feed] : polls.offsets[feed + 1]], begin, end)
        ax.vlines((posts - begin) / DAY_S, 0.08, 1, color=plots.INK, linewidth=0.7)
        ax.vlines((looks - begin) / DAY_S, -1, -0.08, color=plots.ACCENT, linewidth=0.7)
        ax.set_title(f"{_name(trace, feed)}: {len(posts)} posts, {len(looks)} polls", loc="left", fontsize=9.5)
        ax.set_xlim(0, 14)
        ax.set_ylim(-1.1, 1.1)
        ax.set_yticks([0.54, -0.54], ["posts", "polls"])
        ax.tick_params(axis="y", length=0)
        for day in range(14):
            if day % 7 >= 5:
                ax.axvspan(day, day + 1, color="#f3f3f3", zorder=0)
    axes[-1].set_xticks(np.arange(14) + 0.5, DAYS * 2)
    axes[-1].tick_params(axis="x", length=0)
    return fig


def _nearest(counts: Any, wanted: int) -> int:
    return int(np.argmin(np.abs(np.log(np.maximum(counts, 0.1)) - np.log(wanted))))


def _between(times: Floats, begin: float, end: float) -> Floats:
    return times[(times >= begin) & (times < end)]


def _name(trace: Trace, feed: int) -> str:
    return f"feed {trace.feed_ids[feed]}"  # do not publish names of real feeds


# --- delay against budget -----------------------------------------------------------------------------------------------


def budgets(table: dict[str, Any]) -> Any:
    """Charged delay of every policy, and the limit, against the budget: one panel per trace."""
    traces = list(dict.fromkeys(cell["trace"] for cell in table["cells"]))
    ours = table["ours"]
    rows = (len(traces) + 1) // 2
    fig, axes = plots.panels(rows, min(2, len(traces)), 9.6, 0.4 + 4.0 * rows)
    for ax, trace in zip(axes, traces, strict=False):
        cells = sorted((cell for cell in table["cells"] if cell["trace"] == trace), key=lambda cell: float(cell["budget"]))
        x = [cell["budget"] for cell in cells]
        lines: dict[str, list[float]] = {}
        for cell in cells:
            for row in cell["results"]:
                lines.setdefault(row["policy"], []).append(row["charged_delay_s"] / HOUR_S)
            lines.setdefault("the limit", []).append(cell["limit_charged_s"] / HOUR_S)
        _panel(ax, trace, x, lines, ours)
    for ax in axes[len(traces) :]:
        ax.set_visible(False)
    return fig


def _panel(ax: Any, trace: str, x: list[float], lines: dict[str, list[float]], ours: str) -> None:
    policies = {name: line for name, line in lines.items() if name != "the limit"}
    low = min(min(line) for line in policies.values())
    high = max(line[0] for line in policies.values()) * 1.3
    # The limit falls to nothing as soon as there are as many polls as posts: it is shown while it is in reach.
    above = [y for y in lines["the limit"] if y > low / 12]
    bottom = min([low / 5, *(y / 1.6 for y in above)])  # room for the names below the lines
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(x[0] / 1.1, x[-1] * 1.1)
    ax.set_ylim(bottom, high)
    ax.set_title(trace, loc="left", fontsize=10)
    ax.set_xlabel("polls per feed and day")
    plots.log_ticks(ax, "x", x)
    ticks = [(at, word) for at, word in TICKS if bottom <= at <= high]
    plots.log_ticks(ax, "y", [at for at, _ in ticks], [word for _, word in ticks])
    plots.grid(ax)
    ends = []
    for name, line in policies.items():
        color, main = plots.COLORS.get(name, "#aaaaaa"), name == ours
        style = (
            {"linewidth": 2.4, "zorder": 4, "markersize": 3.0} if main else {"linewidth": 1.0, "zorder": 3, "markersize": 2.0}
        )
        ax.plot(x, line, color=color, marker="o", **style)
        ends.append((x[-1], line[-1], name, color))
    plots.line_labels(ax, ends, gap=0.05, pad=7)
    ax.plot(x[: len(above)], above, color=plots.INK, linestyle=plots.DASHES[2], linewidth=1.0, marker="o", markersize=2)
    place = (x[len(above) - 1], above[-1]) if above else (x[0], bottom)
    beyond = "" if len(above) == len(x) else f", {_hours(lines['the limit'][len(above)])} at {x[len(above)]:g}"
    ax.annotate(
        f"lower bound{beyond}",
        place,
        xytext=(5, 3),
        textcoords="offset points",
        fontsize=8.5,
        color=plots.INK,
        va="bottom",
    )


#: Hours and their labels.
TICKS = (
    (1 / 60, "1 min"),
    (1 / 12, "5 min"),
    (0.25, "15 min"),
    (1, "1 h"),
    (3, "3 h"),
    (8, "8 h"),
    (24, "1 d"),
    (72, "3 d"),
    (240, "10 d"),
)


def _hours(hours: float) -> str:
    return duration(hours * HOUR_S) if hours > 0 else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--table", type=Path, help="what `tidings lab evaluate --out` wrote")
    parser.add_argument("--budget", type=float, default=4.0, help="polls per feed and day of the pictures of one run")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    asked = parser.parse_args()
    trace = read_trace(asked.traces[0])
    policy, polls, start = run(trace, asked.budget)
    pictures = {
        "price.png": price_over_time(trace, asked.budget, policy, start),
        "pattern.png": pattern(trace, policy),
        "polls.png": three_feeds(trace, polls, start),
    }
    if asked.table is not None:
        pictures["budgets.png"] = budgets(json.loads(asked.table.read_text()))
    for name, fig in pictures.items():
        print(plots.save(fig, asked.out / name))


if __name__ == "__main__":
    main()
