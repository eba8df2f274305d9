"""Tests of the evaluation table and of ablations, also in several processes."""

import json

import numpy as np
import pytest

from tests.cli.conftest import Tidings
from tests.trace_helpers import poisson_trace
from tidings.errors import UsageError
from tidings.lab.compare import compare
from tidings.lab.evaluate import PAPER_POLICIES, ablate, ablation_parts, evaluate
from tidings.lab.traces import read_trace, write_trace
from tidings.policy import POLICIES
from tidings.policy.planned import Combined


@pytest.fixture(scope="module")
def two_traces(tmp_path_factory):
    """Return two small traces on disk, one without missed posts, one with small windows."""
    folder = tmp_path_factory.mktemp("traces")
    rates = np.geomspace(0.3, 20, 24)
    write_trace(poisson_trace(rates, 24, seed=1, window=200), folder / "roomy")
    write_trace(poisson_trace(rates, 24, seed=2, window=4), folder / "tight")
    return [folder / "roomy", folder / "tight"]


@pytest.fixture(scope="module")
def table(two_traces):
    return evaluate(
        two_traces,
        [1.0, 4.0],
        14,
        ["uniform", "min-delay", "min-missing"],
        "combined",
        resamples=500,
    )


def test_all_policies_of_the_papers_are_known():
    assert set(PAPER_POLICIES) <= set(POLICIES)
    assert len(PAPER_POLICIES) == 10


def test_every_trace_meets_every_budget(table):
    assert [(cell["trace"], cell["budget"]) for cell in table["cells"]] == [
        ("roomy", 1.0),
        ("roomy", 4.0),
        ("tight", 1.0),
        ("tight", 4.0),
    ]
    for cell in table["cells"]:
        assert [row["policy"] for row in cell["results"]] == [
            "uniform",
            "min-delay",
            "min-missing",
            "combined",
        ]
        assert all(abs(row["off_budget"]) <= 0.005 for row in cell["results"])


def test_ratios_are_those_of_the_rows(table):
    for cell in table["cells"]:
        charged = {row["policy"]: row["charged_delay_s"] for row in cell["results"]}
        missed = {row["policy"]: row["missed_share"] for row in cell["results"]}
        ours = charged.pop("combined")
        assert cell["best"] == min(charged, key=charged.get)
        for policy, ratio in cell["against"].items():
            assert ratio["ratio"] == pytest.approx(ours / charged[policy])
            assert ratio["low"] <= ratio["ratio"] <= ratio["high"]
        assert cell["ratio"] == cell["against"][cell["best"]]
        assert cell["missed_points"] == pytest.approx(
            100 * (missed["combined"] - missed["min-missing"])
        )
        assert cell["limit_charged_s"] <= min(charged.values())


def test_overall_is_the_geometric_mean_and_the_worst(table):
    ratios = [cell["ratio"]["ratio"] for cell in table["cells"]]
    overall = table["overall"]
    assert overall["geometric_mean"] == pytest.approx(np.prod(ratios) ** 0.25)
    assert overall["worst"]["ratio"] == max(ratios)
    assert overall["most_missed_points"] == max(cell["missed_points"] for cell in table["cells"])


def test_a_cell_is_what_compare_says(two_traces, table):
    compared = compare(read_trace(two_traces[1]), ["uniform", "combined"], 4.0, 14, native=False)
    rows = {row["policy"]: row for row in table["cells"][3]["results"]}
    for result in compared.results:
        assert rows[result.policy]["charged_delay_s"] == result.figures()["charged_delay_s"]


def test_several_processes_give_the_same_table(two_traces):
    arguments = ([1.0], 14, ["uniform"], "combined")
    reports = []
    alone = evaluate(two_traces, *arguments, resamples=100)
    together = evaluate(
        two_traces,
        *arguments,
        resamples=100,
        jobs=2,
        report=lambda text, done: reports.append(done),
    )
    assert alone == together
    assert sum(reports) == 2 * 2
    assert alone["overall"]["most_missed_points"] is None  # nobody to measure losses against


def test_progress_steps_add_up_in_one_process(two_traces):
    reports = []
    evaluate(
        two_traces[:1],
        [1.0],
        14,
        ["uniform"],
        "min-delay",
        resamples=10,
        report=lambda text, done: reports.append((text, done)),
    )
    assert sum(done for _, done in reports) == 2
    assert reports[0][0] == "roomy at 1: uniform"


def test_nothing_to_compare_is_refused(two_traces):
    with pytest.raises(UsageError, match="nothing to set price against"):
        evaluate(two_traces, [1.0], 14, ["price"])
    with pytest.raises(UsageError, match="unknown policy"):
        evaluate(two_traces, [1.0], 14, ["unifrom"])
    with pytest.raises(UsageError, match="no traces"):
        evaluate([], [1.0], 14)


# --- parts ----------------------------------------------------------------------------------------


class Toy(Combined):
    """Policy like `combined`, with two parts to switch off, one of which has no effect."""

    name = "toy"

    def __init__(
        self,
        *,
        timing: bool = True,
        charm: bool = True,
        loud: bool = False,
        seed: int = 0,
        scale: float = 1.0,
    ) -> None:
        super().__init__(seed=seed, scale=scale)
        self.timing = timing

    def _choose(self, rows, now, first):
        return (
            super()._choose(rows, now, first)
            if self.timing
            else super(Combined.__mro__[1], self)._choose(rows, now, first)
        )


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setitem(POLICIES, "toy", Toy)


def test_parts_are_switches_that_are_on(toy):
    assert ablation_parts("toy") == ["timing", "charm"]
    assert ablation_parts("uniform") == []
    with pytest.raises(UsageError, match="unknown policy"):
        ablation_parts("toys")


def test_part_ratio_is_delay_without_over_with(toy, two_traces):
    found = ablate(two_traces, [2.0], 14, "toy", resamples=100)
    assert list(found["overall"]) == ["timing", "charm"]
    for cell in found["cells"]:
        charged = {row["policy"]: row["charged_delay_s"] for row in cell["results"]}
        assert cell["worth"]["timing"]["ratio"] == pytest.approx(
            charged["toy:timing=false"] / charged["toy"]
        )
        polls = {row["policy"]: row["polls"] for row in cell["results"]}
        assert cell["worth"]["timing"]["more_polls"] == pytest.approx(
            polls["toy:timing=false"] / polls["toy"] - 1
        )
    assert found["by_trace"]["charm"] == {"roomy": 1.0, "tight": 1.0}
    assert found["overall"]["timing"] == pytest.approx(
        np.prod([c["worth"]["timing"]["ratio"] for c in found["cells"]]) ** 0.5
    )


def test_parts_that_are_not_there_are_refused(toy, two_traces):
    with pytest.raises(UsageError, match="has no part wings; it has timing, charm"):
        ablate(two_traces, [2.0], 14, "toy", ["wings"])
    with pytest.raises(UsageError, match="no part that can be switched off"):
        ablate(two_traces, [2.0], 14, "uniform")


# --- the commands ---------------------------------------------------------------------------------


def test_evaluate_prints_text_and_json(two_traces, tmp_path):
    tidings = Tidings()
    out = tmp_path / "table.json"
    options = (
        "--budgets",
        "2",
        "--train-days",
        "14",
        "--policies",
        "uniform,min-missing",
        "--ours",
        "combined",
    )
    arguments = ("lab", "evaluate", *two_traces, *options, "--out", out)
    text = tidings(*arguments)
    assert "roomy: 2 polls per feed and day, 24 feeds" in text
    assert "combined compared with the best other policy" in text
    assert "Geometric mean of the ratios" in text
    saved = json.loads(out.read_text())
    assert saved["ours"] == "combined"
    assert tidings.json(*arguments) == saved
    assert "create it first" in tidings.expect_error(
        *arguments[:-1], tmp_path / "nowhere" / "t.json"
    )


def test_ablate_prints_text(toy, two_traces):
    text = Tidings()(
        "lab", "ablate", two_traces[0], "--budgets", "2", "--train-days", "14", "--policy", "toy"
    )
    assert "above 1, the part helps" in text
    assert "charm" in text
