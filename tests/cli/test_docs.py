"""The README and the guide run as written, one example after another, in an empty directory.

``python -m tests.cli.test_docs`` writes what the examples print now into docs/lab.md.
"""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.cli.conftest import TIDINGS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "lab.md"
EXAMPLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


def run(command, folder):
    environment = {**os.environ, "PATH": f"{TIDINGS.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


def commands(page):
    examples = EXAMPLE.findall((ROOT / page).read_text())
    return [line[2:] for example in examples for line in example.splitlines() if line.startswith("$ ")]


def test_the_guide_of_the_laboratory_runs_as_written(tmp_path):
    assert len(commands("docs/lab.md")) >= 5
    for command in commands("docs/lab.md"):
        run(command, tmp_path)


def test_the_readme_runs_as_written_from_a_clone(tmp_path):
    """All lines in one shell; only the port is another, since somebody may be using the one that is written there."""
    (tmp_path / ".venv").symlink_to(TIDINGS.parents[1])
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines = [line.replace("8036", str(port)) for line in commands("README.md")]
    lines = [f"{line} --port {port}" if "feedserver" in line else line for line in lines]
    script = "\n".join(["set -e", *lines, "tidings entries --limit 0 --json > entries.json"])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert "200 new feeds, 0 known already, 0 bad rows" in done.stdout
        assert "200 feeds asked, 4,000 new entries, 0 changed, 0 failed, 0 skipped" in done.stdout
        entries = json.loads((tmp_path / "entries.json").read_text())
        assert len({(entry["feed"], entry["identity"]) for entry in entries}) == len(entries) == 4000
    finally:
        os.kill(int(re.search(r"`kill (\d+)`", done.stdout).group(1)), signal.SIGTERM)


@pytest.mark.parametrize("page", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))])
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_guide_has_every_command(tidings):
    listed = re.findall(r"^  (\w+) ", tidings("lab", "--help").split("Commands:")[1], re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"^## (\w+):", GUIDE.read_text(), re.MULTILINE))


def test_the_guide_for_users_names_every_command(tidings):
    listed = re.findall(r"^  (\w+) ", tidings("--help").split("Commands:")[1], re.MULTILINE)
    guide = (ROOT / "docs" / "guide.md").read_text()
    assert [command for command in listed if not re.search(rf"(tidings |`){command}\b", guide)] == []


def test_papers_are_asked_for_as_the_options_say(tidings, tmp_path, monkeypatch):
    asked = {}

    def run_papers(out, quick, seed, progress):
        progress("one experiment")
        asked.update(out=out, quick=quick, seed=seed)
        return {"quick": quick, "report": str(out / "index.html")}

    monkeypatch.setattr("tidings.lab.papers.run_papers", run_papers)
    assert tidings("lab", "papers", "--quick", "--seed", "4", "--out", tmp_path) == f"{tmp_path / 'index.html'}\n"
    assert asked == {"out": tmp_path, "quick": True, "seed": 4}
    assert tidings.json("lab", "papers", "--out", tmp_path)["quick"] is False
    (tmp_path / "file").write_text("")
    assert "is a file; name a directory" in tidings.refuses("lab", "papers", "--out", tmp_path / "file")


def main():
    """Refresh the output of every example in the guide."""
    with tempfile.TemporaryDirectory() as folder:

        def refreshed(example):
            command = example.group(1).splitlines()[0]
            return f"```console\n{command}\n{run(command[2:], folder).rstrip()}\n```"

        GUIDE.write_text(EXAMPLE.sub(refreshed, GUIDE.read_text()))


if __name__ == "__main__":
    main()
