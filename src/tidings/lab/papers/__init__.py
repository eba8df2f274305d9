"""Reproduce the tables and figures of the four papers on calibrated traces.

`run_papers` runs all experiments and writes one HTML page with the papers' figures beside the
simulated ones. Every paper has a module with one function per table or figure, and `experiments`,
which runs them on one trace.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidings.lab.papers import feedex, han, sia_cho, urbansky
from tidings.lab.papers.report import Experiment, Paper, Row, write_report

__all__ = ["Experiment", "Paper", "Row", "run_papers"]


def run_papers(
    out: Path, quick: bool, seed: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Run every experiment, write ``out/index.html`` and the plots, and return all figures.

    The figures are JSON-compatible. ``quick`` uses fewer feeds and budgets, which takes a few
    minutes on one core.
    """
    papers = []
    for module in (sia_cho, han, urbansky, feedex):
        progress(f"{module.NAME}: generating its trace")
        papers.append(
            module.experiments(
                quick, seed, lambda title, name=module.NAME: progress(f"{name}: {title}")
            )
        )
    progress("drawing and writing the page")
    note = (
        "Every table and figure of the four papers that tidings stands on, on synthetic traces "
        "calibrated to the "
        "statistics they "
        f"publish. {'Quick run: fewer feeds and budgets. ' if quick else ''}Seed {seed}."
    )
    write_report(papers, out, note)
    return {
        "quick": quick,
        "seed": seed,
        "report": str(out / "index.html"),
        "papers": {paper.name: {e.key: e.as_json() for e in paper.experiments} for paper in papers},
    }
