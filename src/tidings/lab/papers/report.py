"""One experiment's result, and the page that shows them all: self-contained HTML, no request leaves it."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tidings.lab import plots


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: what it is, what the paper prints, what we measured."""

    what: str
    paper: str
    ours: str


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure of a paper, done again."""

    key: str  #: names its picture's file
    title: str
    rows: list[Row]
    remark: str  #: where we differ and why, with evidence; or that we do not
    alt: str  #: the picture in words
    picture: Callable[[], plots.Figure]
    figures: dict[str, Any] = field(default_factory=dict)  #: numbers as numbers, for tests and --json

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [{"what": row.what, "paper": row.paper, "ours": row.ours} for row in self.rows],
            "remark": self.remark,
            "figures": self.figures,
        }


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper's experiments and what they ran on."""

    name: str
    citation: str
    data: str
    experiments: list[Experiment]


_CSS = """
:root { --ink: #1d1f21; --soft: #5c6266; --line: #d9dcdc; --page: #fdfdfb; --accent: #0f6b6b; --paper: #f3f5f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e5e4; --soft: #a1a8a8; --line: #3a4042; --page: #16191a; --accent: #6cc4bd; --paper: #1f2425; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.2rem 5rem; max-width: 46rem; background: var(--page); color: var(--ink);
  font: 17px/1.55 Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; }
h1 { font-size: 2rem; line-height: 1.15; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.45rem; margin: 3.5rem 0 .2rem; padding-top: 1.2rem; border-top: 2px solid var(--accent); }
h3 { font-size: 1.1rem; margin: 2.4rem 0 .6rem; }
p.citation, p.data, .lead { color: var(--soft); margin: .2rem 0 .8rem; }
nav { columns: 2; column-gap: 2rem; font-size: .92rem; margin: 1.5rem 0; padding: 1rem 1.2rem; background: var(--paper); }
nav b { display: block; margin-top: .5rem; break-after: avoid; } nav a { display: block; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; font-variant-numeric: tabular-nums; margin: .3rem 0 1rem; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--ink);
  padding: .25rem .6rem .25rem 0; }
td { border-bottom: 1px solid var(--line); padding: .28rem .6rem .28rem 0; vertical-align: top; }
td:nth-child(n+2), th:nth-child(n+2) { text-align: right; white-space: nowrap; }
td:last-child { color: var(--accent); font-weight: 600; }
figure { margin: 1rem 0; } figure img { width: 100%; height: auto; border-radius: 3px; background: #fff; }
@media (prefers-color-scheme: dark) { figure img { filter: invert(.9) hue-rotate(180deg); background: none; } }
p.remark { margin: .6rem 0 0; }
footer { margin-top: 4rem; color: var(--soft); font-size: .9rem; border-top: 1px solid var(--line); padding-top: 1rem; }
@media print { body { max-width: none; font-size: 11pt; } h3, figure { break-inside: avoid; } }
@media (max-width: 34rem) { nav { columns: 1; } td:nth-child(n+2), th:nth-child(n+2) { white-space: normal; } }
"""


def write_report(papers: list[Paper], out: Path, note: str) -> None:
    """Write ``out/index.html`` with every picture inside, and the pictures beside it as files."""
    out.mkdir(parents=True, exist_ok=True)
    parts = [_head(papers, note)]
    for paper in papers:
        parts.append(f'<section><h2 id="{_slug(paper.name)}">{escape(paper.name)}</h2>')
        parts.append(f'<p class="citation">{escape(paper.citation)}</p><p class="data">{escape(paper.data)}</p>')
        parts.extend(_experiment(experiment, out) for experiment in paper.experiments)
        parts.append("</section>")
    parts.append(
        "<footer>Made by <code>tidings lab papers</code>. The calibration of the traces, the ambiguities of the papers"
    )
    parts.append(" and how they were resolved: docs/papers.md.</footer></main></body></html>\n")
    (out / "index.html").write_text("".join(parts), encoding="utf-8")


def _head(papers: list[Paper], note: str) -> str:
    links = "".join(
        f"<b>{escape(paper.name)}</b>" + "".join(f'<a href="#{e.key}">{escape(e.title)}</a>' for e in paper.experiments)
        for paper in papers
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Four papers on polling, done again</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<style>{_CSS}</style></head><body><main><h1>Four papers on polling, done again</h1>"
        f'<p class="lead">{escape(note)}</p><nav aria-label="Contents">{links}</nav>'
    )


def _experiment(experiment: Experiment, out: Path) -> str:
    image = plots.to_png(experiment.picture())
    (out / f"{experiment.key}.png").write_bytes(image)
    rows = "".join(
        f"<tr><td>{escape(row.what)}</td><td>{escape(row.paper)}</td><td>{escape(row.ours)}</td></tr>"
        for row in experiment.rows
    )
    encoded = base64.b64encode(image).decode("ascii")
    return (
        f'<h3 id="{experiment.key}">{escape(experiment.title)}</h3>'
        f'<figure><img alt="{escape(experiment.alt, quote=True)}" src="data:image/png;base64,{encoded}"></figure>'
        '<div class="wide"><table><thead><tr><th scope="col"></th><th scope="col">paper</th>'
        '<th scope="col">here</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
        f'<p class="remark">{escape(experiment.remark)}</p>'
    )


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower())


def percent(share: float, digits: int = 0) -> str:
    """A share as people write it; a true minus sign."""
    return f"{100 * share:.{digits}f} %".replace("-", "−")


def change(share: float) -> str:
    """A difference in words: ``8 % more``, ``0.6 % less``."""
    digits = 0 if abs(share) >= 0.02 else 1
    return f"{100 * abs(share):.{digits}f} % {'less' if share < 0 else 'more'}"


def minutes(seconds: float) -> str:
    """Seconds as whole minutes, thousands apart."""
    return f"{seconds / 60:,.0f} min"


def span(seconds: float) -> str:
    """Seconds as the papers write them: minutes under an hour, else hours and minutes."""
    whole = round(seconds / 60)
    return f"{whole}m" if whole < 60 else f"{whole // 60}h:{whole % 60}m"
