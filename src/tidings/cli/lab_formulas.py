"""`tidings lab allocate` and `schedule`: the papers' formulas on numbers you give."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidings.cli.output import Numbers, json_option, plot_option, print_table, progress, tell
from tidings.errors import UsageError
from tidings.formatting import figures

if TYPE_CHECKING:
    from tidings.model import Floats
    from tidings.policy.schedule import DailyPattern


@click.command(short_help="How many polls each feed gets from one budget.")
@click.option(
    "--policy", required=True, help="uniform, min-delay, min-missing, cgm-age or cgm-freshness."
)
@click.option(
    "--rates", type=Numbers(low=0), required=True, help="Posts of each feed in the period."
)
@click.option(
    "--weights", type=Numbers(low=0), help="How much a post of each feed matters (default: all 1)."
)
@click.option("--windows", type=Numbers(low=1), help="Entries that each feed's document holds.")
@click.option("--budget", type=float, required=True, help="Polls in the period, over all feeds.")
@click.option("--integer", is_flag=True, help="Whole polls.")
@json_option
def allocate(
    policy: str,
    rates: list[float],
    weights: list[float] | None,
    windows: list[float] | None,
    budget: float,
    integer: bool,
) -> None:
    """How many polls each feed gets from one budget.

    \b
    Example (Han et al., Table 2):
      tidings lab allocate --policy min-missing --rates 30,30,10,10 \\
        --windows 15,10,10,5 --budget 8
    """
    import numpy as np

    from tidings.policy.allocation import allocate as share
    from tidings.policy.allocation import missed

    _one_each("--weights", weights, rates)
    _one_each("--windows", windows, rates)
    sizes = (
        None
        if windows is None
        else np.array(
            [_whole(place, w) for place, w in enumerate(windows, start=1)], dtype=np.int64
        )
    )
    rate = np.array(rates)
    polls = share(
        policy, rate, budget, None if weights is None else np.array(weights), sizes, integer=integer
    )
    lost = None if sizes is None else missed(rate, sizes, polls)
    result = {"policy": policy, "budget": budget, "polls": polls, "total": float(polls.sum())}
    if lost is not None:
        result |= {"missed": lost, "total_missed": float(lost.sum())}
    whole = bool(np.all(polls == np.rint(polls)))
    columns = {
        "feed": [*(str(i) for i in range(1, len(rates) + 1)), "total"],
        "rate": [*(f"{r:g}" for r in rates), f"{sum(rates):g}"],
        "weight": None if weights is None else [*(f"{w:g}" for w in weights), ""],
        "window": None if windows is None else [*(f"{w:g}" for w in windows), ""],
        "polls": [f"{p:.0f}" if whole else f"{p:.4f}" for p in [*polls, polls.sum()]],
        "missed": None if lost is None else [figures(m) for m in [*lost, lost.sum()]],
    }
    shown = {heading: cells for heading, cells in columns.items() if cells is not None}
    tell(result, lambda: print_table(list(shown), list(zip(*shown.values(), strict=True)), left=1))


def _one_each(option: str, values: list[float] | None, rates: list[float]) -> None:
    if values is not None and len(values) != len(rates):
        raise UsageError(
            f"{option} has {len(values)} numbers and --rates has {len(rates)}; give one for each feed"
        )


def _whole(place: int, window: float) -> int:
    if window != int(window):
        raise UsageError(f"--windows: {window:g} at place {place} is not a whole number of entries")
    return int(window)


@click.command(short_help="The best times of the day to poll a feed.")
@click.option(
    "--hourly",
    type=Numbers(low=0),
    required=True,
    help="24 numbers: posts in each hour of the day.",
)
@click.option("--polls", type=int, required=True, help="Polls a day, 1 to 48.")
@click.option(
    "--method",
    type=click.Choice(["dp", "exhaustive", "iterative"]),
    default="dp",
    show_default=True,
    help="Exact dynamic program, or one of the paper's two searches; all on a grid of 30 minutes.",
)
@json_option
@plot_option("the daily pattern with the polls on it")
def schedule(hourly: list[float], polls: int, method: str, plot: Path | None) -> None:
    """The best times of the day to poll a feed (Sia & Cho, Theorems 2 and 3).

    Every day is alike; the expected delay is summed over the posts of one day, in hours.

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
            f"--hourly has {len(hourly)} numbers; a day has 24 hours, give one for each"
        )
    if not 1 <= polls <= GRID_PER_DAY:
        raise UsageError(
            f"--polls {polls}: between 1 and {GRID_PER_DAY} polls a day fit the grid of 30 minutes"
        )
    pattern = DailyPattern(np.array(hourly))
    with progress(
        f"{method}: {polls} polls a day"
    ):  # the exhaustive search takes its time on flat patterns
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
        _draw(plot, pattern, times)
    words = [
        "Polls at        " + " ".join(_clock(t) for t in times),
        f"Expected delay  {figures(delay, 4)} h summed over the {figures(pattern.posts)} posts of a day",
    ]
    if even > 0:
        change = f"{1 - delay / even:.1%} less than evenly spaced polls at a random phase ({figures(even, 4)} h)"
        words.append(f"                {change}")
    tell(
        {
            "method": method,
            "times_h": times,
            "expected_delay_h": delay,
            "even_delay_h": even,
            "posts": pattern.posts,
        },
        "\n".join(words),
    )


def _clock(hours: float) -> str:
    minutes = round(hours * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _draw(file: Path, pattern: "DailyPattern", times: "Floats") -> None:
    import numpy as np

    from tidings.lab import plots

    title = "When to look: posts an hour, and the best times to poll"
    fig, ax = plots.figure(7.0, 3.2, title=title, x="hour of the day", y="posts an hour")
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
