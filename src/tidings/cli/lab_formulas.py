"""Commands `tidings lab allocate` and `schedule`: the papers' formulas on given numbers."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.cli.output import (
    NumberList,
    json_option,
    plot_option,
    print_result,
    print_table,
    progress,
)
from tidings.errors import UsageError
from tidings.formatting import figures
from tidings.i18n import _

if TYPE_CHECKING:
    from tidings.model import Floats
    from tidings.policy.schedule import DailyPattern


@click.command()
@click.option(
    "--policy",
    required=True,
    help=_("Rule: uniform, min-delay, min-missing, cgm-age or cgm-freshness."),
)
@click.option(
    "--rates",
    type=NumberList(low=0),
    required=True,
    help=_("Number of posts per period, for each feed."),
)
@click.option(
    "--weights", type=NumberList(low=0), help=_("Weight of a post, for each feed.  [default: 1]")
)
@click.option("--windows", type=NumberList(low=1), help=_("Number of posts that each feed lists."))
@click.option(
    "--budget", type=float, required=True, help=_("Number of polls of all feeds per period.")
)
@click.option("--integer", is_flag=True, help=_("Whole numbers of polls."))
@json_option
def allocate(
    policy: str,
    rates: list[float],
    weights: list[float] | None,
    windows: list[float] | None,
    budget: float,
    integer: bool,
) -> None:
    """Divide a polling budget among feeds.

    \b
    Example (Han et al., Table 2):
      tidings lab allocate --policy min-missing --rates 30,30,10,10 \\
        --windows 15,10,10,5 --budget 8
    """
    import numpy as np

    from tidings.policy.allocation import allocate as allocate_polls
    from tidings.policy.allocation import posts_missed

    _check_length("--weights", weights, rates)
    _check_length("--windows", windows, rates)
    sizes = (
        None
        if windows is None
        else np.array(
            [_check_integer(n, w) for n, w in enumerate(windows, start=1)], dtype=np.int64
        )
    )
    rate = np.array(rates)
    polls = allocate_polls(
        policy, rate, budget, None if weights is None else np.array(weights), sizes, integer=integer
    )
    missed_posts = None if sizes is None else posts_missed(rate, sizes, polls)
    result = {"policy": policy, "budget": budget, "polls": polls, "total": float(polls.sum())}
    if missed_posts is not None:
        result |= {"missed": missed_posts, "total_missed": float(missed_posts.sum())}
    is_integer = bool(np.all(polls == np.rint(polls)))
    columns = {
        _("feed"): [*(str(i) for i in range(1, len(rates) + 1)), _("total")],
        _("rate"): [*(f"{r:g}" for r in rates), f"{sum(rates):g}"],
        _("weight"): None if weights is None else [*(f"{w:g}" for w in weights), ""],
        _("window"): None if windows is None else [*(f"{w:g}" for w in windows), ""],
        _("polls"): [f"{p:.0f}" if is_integer else f"{p:.4f}" for p in [*polls, polls.sum()]],
        _("missed"): None
        if missed_posts is None
        else [figures(m) for m in [*missed_posts, missed_posts.sum()]],
    }
    table = {heading: cells for heading, cells in columns.items() if cells is not None}
    rows = list(zip(*table.values(), strict=True))
    print_result(result, lambda: print_table(list(table), rows, left=1))


def _check_length(option: str, values: list[float] | None, rates: list[float]) -> None:
    if values is not None and len(values) != len(rates):
        raise UsageError(
            _(
                "%(option)s has %(values)s numbers, but --rates has %(rates)s; enter "
                "one number per feed",
                option=option,
                values=len(values),
                rates=len(rates),
            )
        )


def _check_integer(position: int, window: float) -> int:
    if window != int(window):
        raise UsageError(
            _(
                "--windows: %(window)s at position %(position)s is not a whole number",
                window=f"{window:g}",
                position=position,
            )
        )
    return int(window)


@click.command()
@click.option(
    "--hourly",
    type=NumberList(low=0),
    required=True,
    help=_("Number of posts in each hour of the day (24 numbers)."),
)
@click.option("--polls", type=int, required=True, help=_("Number of polls per day, 1 to 48."))
@click.option(
    "--method",
    type=click.Choice(["dp", "exhaustive", "iterative"]),
    default="dp",
    show_default=True,
    help=_("Method: dynamic programming (exact), or a search from the paper."),
)
@json_option
@plot_option(_("the daily pattern with the polls"))
def schedule(hourly: list[float], polls: int, method: str, plot: Path | None) -> None:
    """Find the best times of day for polls.

    Uses Theorems 2 and 3 of Sia & Cho (2007). The posts follow the same pattern every day. The
    expected delay is the sum over the posts of one day, in hours.

    \b
    Example (a feed that posts from 9 to 17 h):
      tidings lab schedule --polls 2 \\
        --hourly 0,0,0,0,0,0,0,0,0,1,1,1,1,1,1,1,1,0,0,0,0,0,0,0
    """
    import numpy as np

    from tidings.policy.schedule import (
        GRID_PER_DAY,
        METHODS,
        DailyPattern,
        even_times,
        expected_delay_h,
    )

    if len(hourly) != 24:
        raise UsageError(
            _(
                "--hourly has %(hourly)s numbers; enter 24, one for each hour of the day",
                hourly=len(hourly),
            )
        )
    if not 1 <= polls <= GRID_PER_DAY:
        raise UsageError(
            _(
                "--polls must be between 1 and %(most)s (one per 30 minutes), not %(polls)s",
                polls=polls,
                most=GRID_PER_DAY,
            )
        )
    pattern = DailyPattern(np.array(hourly))
    # The exhaustive search is slow on flat patterns.
    with progress(_("%(method)s: %(polls)s polls per day", method=method, polls=polls)):
        times = METHODS[method](pattern, polls)
    delay = expected_delay_h(pattern, times)
    even = float(
        np.mean(
            [
                expected_delay_h(pattern, even_times(polls, phase))
                for phase in (np.arange(60) + 0.5) / 60
            ]
        )
    )
    if plot is not None:
        _draw_schedule(plot, pattern, times)
    lines = [
        _("Polls at").ljust(16) + " ".join(_clock(t) for t in times),
        _(
            "Expected delay  %(delay)s h, sum over %(posts)s posts per day",
            delay=figures(delay, 4),
            posts=figures(pattern.posts),
        ),
    ]
    if even > 0:
        saving = _(
            "%(share)s less than with evenly spaced polls",
            share=f"{1 - delay / even:.1%}",
        )
        lines.append(f"                {saving} ({figures(even, 4)} h)")
    print_result(
        {
            "method": method,
            "times_h": times,
            "expected_delay_h": delay,
            "even_delay_h": even,
            "posts": pattern.posts,
        },
        "\n".join(lines),
    )


def _clock(hours: float) -> str:
    minutes = round(hours * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _draw_schedule(file: Path, pattern: "DailyPattern", times: "Floats") -> None:
    import numpy as np

    from tidings.lab import plots

    title = _("Posts per hour, and the best times to poll")
    fig, ax = plots.figure(7.0, 3.2, title=title, x=_("hour of the day"), y=_("posts per hour"))
    ax.stairs(pattern.hourly, np.arange(25.0), color=plots.GRAY, fill=True, alpha=0.35)
    ax.stairs(pattern.hourly, np.arange(25.0), color=plots.GRAY, linewidth=1.2)
    top = max(float(pattern.hourly.max()), 1e-9)
    ax.vlines(times, 0, top * 1.06, color=plots.ACCENT, linewidth=1.6)
    if len(times) <= 12:
        for t in times:
            ax.text(
                t, top * 1.08, _clock(t), ha="center", va="bottom", fontsize=8, color=plots.ACCENT
            )
    ax.set_xlim(0, 24)
    ax.set_ylim(0, top * 1.18)
    ax.set_xticks([0, 3, 6, 9, 12, 15, 18, 21, 24])
    plots.save(fig, file)
