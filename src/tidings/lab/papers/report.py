"""Write the results of the papers' experiments as a self-contained HTML page."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment

from tidings.lab import plots

PAGE = Path(__file__).with_name("report.html")


@dataclass(frozen=True, slots=True)
class Row:
    """Name of a figure with the paper's value and the simulated value."""

    what: str  #: name of the figure
    paper: str  #: value in the paper
    ours: str  #: simulated value
    ratio: float = 0.0  #: simulated value divided by the paper's; 0 if they are not numbers

    @classmethod
    def of(cls, what: str, paper: float, ours: float, form: Callable[[float], str]) -> "Row":
        """Return a row with two numbers in the same format."""
        return cls(what, form(paper), form(ours), ours / paper)


@dataclass(frozen=True, slots=True)
class Experiment:
    """Reproduced table or figure of a paper."""

    key: str  #: name of the plot file
    title: str
    rows: list[Row]
    remark: str  #: differences to the paper with reason and evidence, or agreement
    alt: str  #: text alternative of the plot
    picture: Callable[[], plots.Figure] | None = (
        None  #: function that draws the plot; by default it shows the ratios of the rows
    )
    figures: dict[str, Any] = field(
        default_factory=dict
    )  #: unformatted numbers, for tests and --json

    def draw(self) -> plots.Figure:
        return self.picture() if self.picture is not None else _ratio_plot(self.rows)

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [{"what": row.what, "paper": row.paper, "ours": row.ours} for row in self.rows],
            "remark": self.remark,
            "figures": self.figures,
        }


@dataclass(frozen=True, slots=True)
class Paper:
    """Experiments of one paper and a description of their trace."""

    name: str
    citation: str
    data: str
    experiments: list[Experiment]


def _ratio_plot(rows: list[Row]) -> plots.Figure:
    """Draw each row's value as a multiple of the paper's value."""
    known = [row for row in rows if row.ratio > 0]
    ratios, place = [row.ratio for row in known], range(len(known))[::-1]
    fig, ax = plots.figure(
        6.8,
        1.0 + 0.24 * len(known),
        x="here, as a multiple of the paper's figure",
        log="x",
        grids="x",
    )
    ax.axvline(1, color=plots.INK, linewidth=0.7)
    ax.hlines(place, 1, ratios, color=plots.FAINT, linewidth=2)
    ax.plot(ratios, place, "o", color=plots.ACCENT, markersize=6)
    ax.set_yticks(place, [row.what for row in known])
    ax.tick_params(axis="y", length=0)
    low, high = min(*ratios, 0.5) / 1.3, max(*ratios, 2.0) * 1.3
    ax.set_xlim(low, high)
    ax.set_ylim(-0.6, len(known) - 0.4)
    plots.log_ticks(
        ax, "x", [tick for tick in (0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100) if low <= tick <= high]
    )
    return fig


def write_report(papers: list[Paper], out: Path, note: str) -> None:
    """Write ``out/index.html`` with all plots embedded, and each plot as a file."""
    out.mkdir(parents=True, exist_ok=True)
    pictures = {}
    for experiment in (experiment for paper in papers for experiment in paper.experiments):
        image = plots.to_png(experiment.draw())
        (out / f"{experiment.key}.png").write_bytes(image)
        pictures[experiment.key] = base64.b64encode(image).decode("ascii")
    page = Environment(autoescape=True, trim_blocks=True).from_string(PAGE.read_text("utf-8"))
    (out / "index.html").write_text(
        page.render(papers=papers, note=note, pictures=pictures), encoding="utf-8"
    )


def percent(share: float, digits: int = 0) -> str:
    """Return a share as a percentage, with a proper minus sign (U+2212)."""
    return f"{100 * share:.{digits}f} %".replace("-", "−")


def format_change(share: float) -> str:
    """Return a relative difference as text, such as ``8 % more`` or ``0.6 % less``."""
    digits = 0 if abs(share) >= 0.02 else 1
    return f"{100 * abs(share):.{digits}f} % {'less' if share < 0 else 'more'}"


def format_minutes(seconds: float) -> str:
    """Return seconds as whole minutes with thousands separators, such as ``1,440 min``."""
    return f"{seconds / 60:,.0f} min"


def format_duration(seconds: float) -> str:
    """Return seconds as minutes, or as hours and minutes from one hour on."""
    whole = round(seconds / 60)
    return f"{whole}m" if whole < 60 else f"{whole // 60}h:{whole % 60}m"
