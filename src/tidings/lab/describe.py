"""Compute statistics of a trace, such as rates, windows, patterns, bursts and Zipf's law.

They are available as a dictionary (`describe`), as text of 80 columns (`as_text`) and as a plot
(`picture`). Hours and days are UTC.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tidings.formatting import count, duration, figures
from tidings.lab import plots
from tidings.lab.traces import UNLIMITED, Trace
from tidings.model import DAY_S, MINUTE_S, Floats
from tidings.policy.base import hour_of_week
from tidings.policy.estimate import entry_lifetimes_s, fit_zipf

#: Maximum gap within a burst, such as articles released together, an import or the posts of a bot.
BURST_S = MINUTE_S
#: Minimum number of posts of a feed to compute its Fano factor (variance over mean of daily
#: counts).
FANO_POSTS = 10
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
QUANTILES = (10, 50, 90, 99)
#: Number of histogram bars per factor of ten.
PER_DECADE = 6


def describe(trace: Trace) -> dict[str, Any]:
    """Return all statistics of `tidings lab describe` as numbers, nan where undefined."""
    posts = np.diff(trace.offsets)
    rates = posts / max(trace.days, 1 / 24)  # a trace shorter than an hour has no daily pattern
    week = _week(trace)
    busiest = np.sort(posts)[::-1][: max(1, round(trace.n_feeds / 10))]
    return {
        "trace": trace.name,
        "feeds": trace.n_feeds,
        "posts": trace.n_posts,
        "days": trace.days,
        "first_post": trace.start,
        "last_post": trace.end,
        "rate_per_day": {
            **_summary_statistics(rates),
            "silent_feeds": int((posts == 0).sum()),
            "busiest_tenth_share": float(busiest.sum() / max(trace.n_posts, 1)),
        },
        "window": _windows(trace),
        "mean_post_bytes": float(trace.sizes.mean()) if trace.n_posts else float("nan"),
        "hour_of_day_share": week.sum(axis=0).tolist(),
        "day_of_week_share": week.sum(axis=1).tolist(),
        "hour_of_week_share": week.tolist(),
        "zipf": asdict(fit_zipf(rates)),
        "bursts": _bursts(trace),
        "entry_lifetime_s": _lifetimes_summary(trace),
    }


def _summary_statistics(values: Floats) -> dict[str, float]:
    """Return the mean, the quantiles and the maximum of values, nan without values."""
    if len(values) == 0:
        return {
            "mean": float("nan"),
            **{f"p{q}": float("nan") for q in QUANTILES},
            "max": float("nan"),
        }
    at = np.percentile(values, QUANTILES)
    return {
        "mean": float(values.mean()),
        **{f"p{q}": float(value) for q, value in zip(QUANTILES, at, strict=True)},
        "max": float(values.max()),
    }


def _windows(trace: Trace) -> dict[str, Any]:
    stated = trace.window[trace.window < UNLIMITED].astype(np.float64)
    smallest = float(stated.min()) if len(stated) else float("nan")
    return {
        **_summary_statistics(stated),
        "min": smallest,
        "unlimited_feeds": int(trace.n_feeds - len(stated)),
    }


def _week(trace: Trace) -> Floats:
    """Return the share of all posts in each hour of the week (7, 24), Monday first."""
    counts = np.bincount(hour_of_week(trace.times), minlength=168).reshape(7, 24)
    shares: Floats = counts / max(trace.n_posts, 1)
    return shares


def _bursts(trace: Trace) -> dict[str, Any]:
    """Return the share of posts in bursts and the Fano factor of daily counts (1 for Poisson)."""
    feed = trace.feed_of_post
    same = feed[1:] == feed[:-1]
    gaps = np.diff(trace.times)[same]
    fano = fano_factors(trace)
    return {
        "within_60s_share": float((gaps <= BURST_S).sum() / max(trace.n_posts, 1)),
        "median_gap_s": float(np.median(gaps)) if len(gaps) else float("nan"),
        "fano_median": float(np.median(fano)) if len(fano) else float("nan"),
        "fano_p90": float(np.percentile(fano, 90)) if len(fano) else float("nan"),
        "fano_feeds": len(fano),
    }


def fano_factors(trace: Trace) -> Floats:
    """Return the Fano factor of the posts per full day, for each feed with enough posts."""
    days = int(trace.days)
    if days < 2:
        return np.empty(0)
    day = np.floor((trace.times - trace.start) / DAY_S).astype(np.int64)
    whole = day < days
    key = (trace.feed_of_post * days + day)[whole]  # sorted, because the posts are sorted
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(begins, append=len(key))
    feed = key[begins] // days
    total = np.bincount(feed, weights=counts, minlength=trace.n_feeds)
    squares = np.bincount(feed, weights=counts**2, minlength=trace.n_feeds)
    enough = total >= FANO_POSTS
    mean = total[enough] / days
    variance = (squares[enough] - days * mean**2) / (days - 1)
    factors: Floats = variance / mean
    return factors


def lifetimes_s(trace: Trace) -> Floats:
    """Return the seconds that each entry stayed in its feed's document.

    Entries that are still listed at the end of the trace are left out.
    """
    stated = np.flatnonzero(np.diff(trace.offsets) > trace.window)
    spans = [
        entry_lifetimes_s(
            trace.times[trace.offsets[f] : trace.offsets[f + 1]], int(trace.window[f])
        )
        for f in stated
    ]
    return np.concatenate(spans) if spans else np.empty(0)


def _lifetimes_summary(trace: Trace) -> dict[str, Any]:
    spans = lifetimes_s(trace)
    return {**_summary_statistics(spans), "entries": len(spans)}


# --- text -----------------------------------------------------------------------------------------

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(shares: Sequence[float]) -> str:
    """Return one bar character per value, scaled from zero to the maximum."""
    top = max([*shares, 1e-300])
    return "".join(_BARS[min(int(share / top * len(_BARS)), len(_BARS) - 1)] for share in shares)


def as_text(statistics: dict[str, Any]) -> str:
    """Return the statistics from `describe` as text with lines of at most 80 characters."""
    rate, window, zipf = statistics["rate_per_day"], statistics["window"], statistics["zipf"]
    bursts, life = statistics["bursts"], statistics["entry_lifetime_s"]
    hours, days = statistics["hour_of_day_share"], statistics["day_of_week_share"]
    peak, low = int(np.argmax(hours)), int(np.argmin(hours))
    name = statistics["trace"] if len(statistics["trace"]) <= 30 else statistics["trace"][:29] + "…"
    lines = [
        f"{name}: {statistics['feeds']:,} feeds, {statistics['posts']:,} posts "
        f"in {statistics['days']:,.1f} days",
        f"{_date(statistics['first_post'])} to {_date(statistics['last_post'])} UTC",
        "",
        *_item(
            "Posts a day",
            f"median {figures(rate['p50'])}, mean {figures(rate['mean'])}; "
            f"10 % of feeds above {figures(rate['p90'])}, most {figures(rate['max'])}",
            f"{count(rate['silent_feeds'], 'feed')} silent; "
            f"the busiest tenth writes {rate['busiest_tenth_share']:.0%} of all posts",
        ),
        *_item("Window", _window_text(window, statistics["feeds"])),
        *_item("Post size", f"{statistics['mean_post_bytes']:,.0f} bytes on average"),
        *_item(
            "Hour of the day",
            f"{sparkline(hours)}  0 to 23 h UTC",
            f"most at {peak:02d} h ({hours[peak]:.1%}), least at {low:02d} h ({hours[low]:.1%}); "
            "even would be 4.2%",
        ),
        *_item(
            "Day of the week",
            f"{sparkline(days)}  Mon to Sun; {days[5] + days[6]:.1%} at the weekend, even would "
            "be 28.6%",
        ),
        *_item("Zipf", _zipf_text(zipf)),
        *_item("Bursts", *_burst_text(bursts)),
        *_item("Entry lifetime", *_life_text(life)),
    ]
    return "\n".join(lines)


def _item(label: str, *lines: str) -> list[str]:
    return [
        f"{label if first else '':<17}{line}"
        for line, first in zip(lines, [True] + [False] * len(lines), strict=False)
    ]


def _window_text(window: dict[str, Any], feeds: int) -> str:
    if window["unlimited_feeds"] == feeds:
        return "not stated: every feed is taken to show everything"
    text = f"median {window['p50']:,.0f} entries, {window['min']:,.0f} to {window['max']:,.0f}"
    return text + (
        f"; {window['unlimited_feeds']:,} feeds without limit" if window["unlimited_feeds"] else ""
    )


def _zipf_text(zipf: dict[str, Any]) -> str:
    if np.isnan(zipf["exponent"]):
        return "too few feeds to fit"
    low, high = zipf["ranks"]
    fit = f"(R² {zipf['r_squared']:.2f})"
    return f"rate ~ rank^-{zipf['exponent']:.2f} over ranks {low:,} to {high:,} {fit}"


def _burst_text(bursts: dict[str, Any]) -> list[str]:
    close = f"{bursts['within_60s_share']:.1%} of posts come within 60 s of the one before"
    if not bursts["fano_feeds"]:
        return [
            close,
            f"Fano factor of daily counts: no feed has {FANO_POSTS} posts in two whole days",
        ]
    return [
        close,
        f"Fano factor of daily counts: median {figures(bursts['fano_median'])}, 90 % below "
        f"{figures(bursts['fano_p90'])}",
        f"(Poisson: 1; {bursts['fano_feeds']:,} feeds with {FANO_POSTS} posts or more)",
    ]


def _life_text(life: dict[str, Any]) -> list[str]:
    if not life["entries"]:
        return ["no entry was pushed out of its document"]
    spread = f"10 % below {duration(life['p10'])}, 10 % above {duration(life['p90'])}"
    return [
        f"median {duration(life['p50'])}; {spread}",
        f"({life['entries']:,} entries that were pushed out)",
    ]


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


# --- plot -----------------------------------------------------------------------------------------


def picture(trace: Trace, statistics: dict[str, Any]) -> plots.Figure:
    """Draw six panels of statistics, such as rates, daily pattern and bursts."""
    fig, axes = plots.panels(2, 3, 11.0, 6.2)
    size = f"{statistics['feeds']:,} feeds, {statistics['posts']:,} posts"
    size += f", {statistics['days']:.0f} days"
    heading = f"{statistics['trace']}: {size}"
    fig.suptitle(heading, x=0.012, ha="left")
    posts = np.diff(trace.offsets)
    rates = np.sort(posts[posts > 0] / max(trace.days, 1 / 24))[::-1]
    _draw_histogram(axes[0], "How often feeds post", rates, "posts a day", "no posts")
    draw_zipf(axes[1], rates, statistics["zipf"])
    draw_hours(axes[2], statistics["hour_of_day_share"])
    _draw_week(axes[3], np.array(statistics["hour_of_week_share"]))
    _draw_fano(axes[4], fano_factors(trace))
    _draw_lifetimes(axes[5], lifetimes_s(trace))
    return fig


def _title(ax: plots.Axes, text: str) -> None:
    ax.set_title(text, loc="left", fontsize=10.5)


def _decades(ax: plots.Axes, axis: str, values: Floats) -> None:
    """Set the ticks of a logarithmic axis to 0.1, 1, 10 and so on."""
    powers = 10.0 ** np.arange(
        np.floor(np.log10(values.min())), np.ceil(np.log10(values.max())) + 1
    )
    low, high = ax.get_xlim() if axis == "x" else ax.get_ylim()
    inside = powers[(powers >= low) & (powers <= high)]
    if len(inside):
        plots.log_ticks(
            ax, axis, inside.tolist(), [f"{p:,.0f}" if p >= 1 else f"{p:g}" for p in inside]
        )
    ax.set_xlim(low, high) if axis == "x" else ax.set_ylim(low, high)


def _empty_panel(ax: plots.Axes, message: str) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, message, transform=ax.transAxes, ha="center", va="center", color="#7a7a7a")


def _steps(values: Floats) -> Floats:
    """Return logarithmic bin edges that contain all values."""
    low, high = (
        np.floor(np.log10(values.min()) * PER_DECADE),
        np.ceil(np.log10(values.max()) * PER_DECADE + 1e-9),
    )
    edges: Floats = 10 ** (np.arange(low, max(high, low + 1) + 1) / PER_DECADE)
    return edges


def _draw_histogram(ax: plots.Axes, title: str, values: Floats, x: str, empty_message: str) -> None:
    """Draw a histogram of one value per feed on a logarithmic axis."""
    _title(ax, title)
    if len(values) == 0:
        return _empty_panel(ax, empty_message)
    ax.hist(values, bins=_steps(values).tolist(), color=plots.ACCENT, rwidth=0.92)
    ax.set_xscale("log")
    _decades(ax, "x", values)
    ax.set(xlabel=x, ylabel="feeds")
    return plots.grid(ax)


def draw_zipf(ax: plots.Axes, rates: Floats, zipf: dict[str, Any]) -> None:
    _title(ax, "Rate by rank, with Zipf's law")
    if len(rates) == 0:
        return _empty_panel(ax, "no posts")
    ax.loglog(np.arange(1, len(rates) + 1), rates, color=plots.ACCENT, linewidth=2.2)
    if not np.isnan(zipf["exponent"]):
        low, high = zipf["ranks"]
        ranks = np.geomspace(low, high, 50)
        ax.plot(
            ranks,
            zipf["scale"] * ranks ** -zipf["exponent"],
            color=plots.INK,
            linestyle=(0, (4, 2)),
            linewidth=1.2,
        )
        label = f"rank$^{{-{zipf['exponent']:.2f}}}$, ranks {low} to {high}"
        ax.text(0.04, 0.06, label, transform=ax.transAxes, fontsize=9)
    _decades(ax, "x", np.array([1.0, len(rates)]))
    _decades(ax, "y", rates)
    ax.set(xlabel="rank of the feed", ylabel="posts a day")
    return plots.grid(ax, "both")


def draw_hours(ax: plots.Axes, shares: Sequence[float]) -> None:
    _title(ax, "Hour of the day (UTC)")
    ax.bar(np.arange(24) + 0.5, np.array(shares) * 100, color=plots.ACCENT, width=0.85)
    ax.axhline(100 / 24, color=plots.INK, linestyle=(0, (4, 2)), linewidth=0.9)
    ax.text(24.2, 100 / 24, "even", va="center", fontsize=9)
    ax.set_xlim(0, 24)
    ax.set_xticks([0, 6, 12, 18, 24])
    ax.set_ylabel("% of posts")


def _draw_week(ax: plots.Axes, shares: Floats) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list(
        "teal", ["#ffffff", "#7fb8b4", plots.ACCENT, "#06383a"]
    )
    _title(ax, "Hour of the week (darker: more posts)")
    ax.imshow(
        shares, aspect="auto", cmap=shades, vmin=0.0, extent=(0, 24, 7, 0), interpolation="nearest"
    )
    ax.set_yticks(np.arange(7) + 0.5, WEEKDAYS)
    ax.tick_params(axis="y", length=0)
    ax.set_xticks([0, 6, 12, 18, 24])
    ax.set_xlabel("hour (UTC)")


def _draw_fano(ax: plots.Axes, factors: Floats) -> None:
    title, empty_message = (
        "Variance over mean of daily counts",
        f"no feed has {FANO_POSTS} posts\nin two whole days",
    )
    _draw_histogram(ax, title, factors[factors > 0], "Fano factor of a feed", empty_message)
    if factors.any():
        ax.axvline(1.0, color=plots.INK, linestyle=(0, (4, 2)), linewidth=0.9)
        ax.text(
            1.0,
            0.98,
            "Poisson  ",
            transform=ax.get_xaxis_transform(),
            ha="right",
            va="top",
            fontsize=9,
        )


def _draw_lifetimes(ax: plots.Axes, spans: Floats) -> None:
    _title(ax, "How long entries stay in the document")
    spans = np.sort(spans[spans > 0])
    if len(spans) == 0:
        return _empty_panel(ax, "no entry was pushed out")
    share = np.linspace(0, 1, min(len(spans), 500))
    ax.plot(np.quantile(spans, share), share * 100, color=plots.ACCENT)
    ax.set_xscale("log")
    ticks = [
        (60, "1 min"),
        (3600, "1 h"),
        (86400, "1 d"),
        (10 * 86400, "10 d"),
        (100 * 86400, "100 d"),
    ]
    inside = [t for t in ticks if spans[0] / 2 <= t[0] <= spans[-1] * 2]
    if len(inside) > 1:
        plots.log_ticks(ax, "x", [t for t, _ in inside], [word for _, word in inside])
    ax.set_ylim(0, 100)
    ax.set_ylabel("% of entries gone by then")
    return plots.grid(ax, "both")
