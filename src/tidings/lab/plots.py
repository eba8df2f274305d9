"""Plot style of the laboratory (matplotlib), with line labels instead of legends.

Teal is the accent for the subject of a plot; the rest is gray or, for many lines, a palette that
color-blind readers can distinguish and that differs in lightness in print. matplotlib is an extra,
imported on first use, and always uses a backend without a screen.
"""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tidings.errors import MissingExtra, UsageError
from tidings.formatting import TIME_TICKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # for type annotations of callers
    Axes = Figure = Any

ACCENT = "#0f6b6b"
INK = "#222222"
GRAY = "#7a7a7a"
FAINT = "#dddddd"
#: Colors after Paul Tol's "vibrant" and "muted" schemes, with the accent first. Adjacent colors
#: differ in lightness.
PALETTE = (ACCENT, "#cc6d2e", "#7a7a7a", "#3d5a99", "#b0a03a", "#993366", "#60b0a8", "#444444")
#: Line styles, for prints without color.
DASHES: tuple[Any, ...] = (
    "-",
    (0, (6, 2)),
    (0, (1, 1.3)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (3, 1)),
    (0, (8, 2, 1, 2, 1, 2)),
)
#: Color of each policy in all plots.
COLORS = {
    "uniform": GRAY,
    "scheduling": "#3d5a99",
    "min-delay": "#cc6d2e",
    "combined": "#60b0a8",
    "min-missing": "#993366",
    "cgm-age": "#b0a03a",
    "cgm-freshness": "#444444",
    "price": ACCENT,
    "the limit": INK,
    "mean": ACCENT,
    "median": GRAY,
    "95 % within": GRAY,
}
SUFFIXES = (".png", ".svg", ".pdf")
DPI = 144

_STYLE = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "medium",
    "axes.titlepad": 9.0,
    "axes.labelsize": 9.5,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "tidings",  # the same plot gives the same file
}


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("matplotlib", "lab", "drawing pictures") from None
    matplotlib.use("Agg")
    return matplotlib


def figure(
    width: float,
    height: float,
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    log: str = "",
    grids: str = "",
) -> tuple[Figure, Axes]:
    """Return a figure with one panel, and the panel.

    ``width`` and ``height`` are in inches. The axes named in ``log`` are logarithmic.
    """
    fig, (ax,) = panels(1, 1, width, height)
    ax.set_title(title, loc="left", fontsize=10.5)
    ax.set(xlabel=x, ylabel=y)
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
    if grids:
        grid(ax, grids)
    return fig, ax


def panels(
    rows: int,
    columns: int,
    width: float = 7.0,
    height: float = 4.0,
    *,
    sharex: bool = False,
    sharey: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with several panels, and the panels row by row.

    ``width`` and ``height`` are in inches.
    """
    matplotlib = _matplotlib()
    with matplotlib.rc_context(_STYLE):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        fig = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(fig)
        axes = fig.subplots(rows, columns, sharex=sharex, sharey=sharey, squeeze=False)
    return fig, list(axes.flat)


def color_of(policy: str, index: int = 0) -> str:
    """Return the color of a policy by its base name, or a palette color by ``index``."""
    name = policy.split("@")[0].split(":")[0]
    return COLORS.get(name, PALETTE[index % len(PALETTE)])


def grid(ax: Axes, axis: str = "y") -> None:
    """Draw faint lines behind the data, which help to read values."""
    ax.grid(True, axis=axis, color=FAINT, linewidth=0.6)  # type: ignore[arg-type]  # "x" or "y"
    ax.set_axisbelow(True)


def line_labels(
    ax: Axes,
    labels: Iterable[tuple[float, float, str, str]],
    *,
    gap: float = 0.052,
    pad: float = 5.0,
) -> None:
    """Draw labels at the right ends of lines and separate overlapping labels.

    ``labels`` are (x, y, text, color) of each line. ``gap`` is the minimum vertical distance as a
    share of the axis, ``pad`` the horizontal distance in points. Call this function when the limits
    and scales of the axes are final.
    """
    placed = sorted(labels, key=lambda label: label[1])
    if not placed:
        return
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = [float(to_axes.transform((x, y))[1]) for x, y, _, _ in placed]
    for (x, y, text, color), height in zip(placed, _separate_labels(heights, gap), strict=True):
        anchor = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))
        ax.annotate(
            text,
            xy=(float(anchor[0]), height),
            xycoords="axes fraction",
            xytext=(pad, 0),
            textcoords="offset points",
            color=color,
            va="center",
            ha="left",
            annotation_clip=False,
            fontsize=9,
        )


def _separate_labels(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights apart to a distance of ``gap``, by as little as needed.

    Groups of labels are centered on their original positions.
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1:
            below, above = groups[-2], groups[-1]
            top = sum(below) / len(below) + gap * (len(below) - 1) / 2
            bottom = sum(above) / len(above) - gap * (len(above) - 1) / 2
            if bottom - top >= gap:
                break
            groups[-2:] = [below + above]
    return [sum(g) / len(g) + gap * (i - (len(g) - 1) / 2) for g in groups for i in range(len(g))]


def curves(
    ax: Axes,
    x: Sequence[float],
    lines: Mapping[str, Sequence[float]],
    *,
    labels: dict[str, str] | None = None,
    markers: bool = True,
) -> None:
    """Draw one labeled line per name, in the color of `color_of`.

    Set the scales and the axis labels first.
    """
    ends = []
    for index, (name, y) in enumerate(lines.items()):
        color = color_of(name, index)
        dash = DASHES[index % len(DASHES)]
        ax.plot(
            x,
            y,
            color=color,
            linestyle=dash,
            marker="o" if markers else "",
            markersize=3.2,
            clip_on=False,
            zorder=3,
        )
        finite = np.flatnonzero(np.isfinite(np.asarray(y, dtype=np.float64)))
        if len(finite):
            last = int(finite[-1])
            ends.append((float(x[last]), float(y[last]), (labels or {}).get(name, name), color))
    ax.autoscale_view()
    line_labels(ax, ends)


def delay_curves(
    ax: Axes, budgets: Sequence[float], lines: Mapping[str, Sequence[float | None]]
) -> None:
    """Draw delays in seconds over the budget on logarithmic axes.

    Values of None, zero or less are left out.
    """
    shown = {
        name: [y if y is not None and y > 0 else np.nan for y in line]
        for name, line in lines.items()
    }
    every = [y for line in shown.values() for y in line if y == y] or [1.0, 10.0]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(min(every) / 1.3, max(every) * 1.3)
    ax.set_ylabel("delay")
    curves(ax, budgets, shown)
    time_ticks(ax, min(every), max(every))
    log_ticks(ax, "x", budgets, [f"{budget:,g}" for budget in budgets])
    grid(ax)


def bars(
    ax: Axes,
    names: Sequence[str],
    values: Sequence[float],
    *,
    form: str = "{:.3g}",
    accent: str | None = None,
) -> None:
    """Draw horizontal bars with their values, the first name on top.

    The bar of the name ``accent`` is teal.
    """
    place = np.arange(len(names))[::-1]
    colors = [ACCENT if name == accent else "#a9b4b4" for name in names]
    ax.barh(place, values, color=colors, height=0.62)
    ax.set_yticks(place, list(names))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    for y, value in zip(place, values, strict=True):
        ax.annotate(
            form.format(value),
            (value, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    ax.set_xlim(0, max([*values, 1e-12]) * 1.14)


def log_ticks(
    ax: Axes, axis: str, values: Sequence[float], labels: Sequence[str] | None = None
) -> None:
    """Set the ticks of a logarithmic axis to given values, with labels such as ``1 h``."""
    ruler = ax.xaxis if axis == "x" else ax.yaxis
    limits = ax.get_xlim(), ax.get_ylim()
    ruler.set_ticks(
        list(values), list(labels) if labels is not None else [f"{v:g}" for v in values]
    )
    ruler.set_ticks([], minor=True)
    # matplotlib extends an axis to all its ticks, which would separate lines from their labels.
    ax.set_xlim(limits[0], auto=None)
    ax.set_ylim(limits[1], auto=None)


def time_ticks(ax: Axes, low: float, high: float) -> None:
    """Set the ticks of a logarithmic time axis (seconds) to round times, as many as fit."""
    inside = [(at, word) for at, word in TIME_TICKS if low / 1.3 <= at <= high * 1.3]
    if len(inside) > 8:
        inside = inside[::2]
    if len(inside) > 1:
        log_ticks(ax, "y", [at for at, _ in inside], [word for _, word in inside])


def save(fig: Figure, path: str | Path) -> Path:
    """Write a plot as PNG, SVG or PDF, by the extension of the file, and return its path.

    Raises `UsageError` for another extension.
    """
    file = Path(path)
    if file.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{file.name}: a picture ends in {', '.join(SUFFIXES)}")
    file.parent.mkdir(parents=True, exist_ok=True)
    with _matplotlib().rc_context(_STYLE):
        fig.savefig(file, dpi=DPI, metadata=_metadata(file.suffix.lower()))
    return file


def to_png(fig: Figure) -> bytes:
    """Return the plot as PNG bytes, to embed it in a page."""
    out = BytesIO()
    with _matplotlib().rc_context(_STYLE):
        fig.savefig(out, format="png", dpi=DPI, metadata=_metadata(".png"))
    return out.getvalue()


def _metadata(suffix: str) -> dict[str, Any]:
    """Return metadata without dates and versions, so that the same data give the same file."""
    return {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[
        suffix
    ]
