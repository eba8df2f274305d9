"""The README, the guide and the laboratory's page run as written; links lead somewhere; every command is told of.

``python -m tests.cli.test_docs`` writes what the examples print now into docs/lab.md.
"""

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import nullcontext

import pytest

from tests.cli.blogs import Blogs
from tests.cli.conftest import TIDINGS
from tests.cli.pages import BLOCK, ROOT, UNTRIED, Desk, blocks, pages

LAB = ROOT / "docs" / "lab.md"
#: Everything in these is run, a page in one shell.
RUN = pages("README.md", "docs/guide/*.md")
ALL = pages("*.md", "docs/**/*.md")
#: In all pages together, blocks that need root, Docker, or somebody else's machine.
MOST_UNTRIED = 6


def run(command, folder):
    environment = {**os.environ, "PATH": f"{TIDINGS.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


def need_tools():
    """What pages call beside our own program: in CI a failure if it is missing, elsewhere a skip."""
    missing = [tool for tool in ("bash", "make", "curl", "md5sum") if shutil.which(tool) is None]
    if missing:
        words = f"pages are run with {', '.join(missing)}; install it, as in: apt-get install {' '.join(missing)}"
        pytest.fail(words) if os.environ.get("CI") else pytest.skip(words)


def test_the_guide_of_the_laboratory_runs_as_written(tmp_path):
    commands = [
        command
        for block in blocks(LAB.read_text())
        if block.kind == "console"
        for command, _ in block.steps()
    ]
    assert len(commands) >= 5
    for command in commands:
        run(command, tmp_path)


@pytest.mark.parametrize("page", [page for page in RUN if "```" in (ROOT / page).read_text()])
def test_a_page_runs_as_written(page, tmp_path):
    need_tools()
    with Blogs(4) as shop:
        Desk(tmp_path, shop).run(page)


@pytest.mark.parametrize("page", RUN)
def test_every_block_is_run_or_says_that_it_is_not(page):
    for block in blocks((ROOT / page).read_text()):
        if block.kind == "console":
            assert block.text.startswith("$ "), block.text
        elif block.kind == "text":
            assert UNTRIED in " ".join(block.before.split()), block.text
        else:
            assert block.kind == "python" or (block.kind == "toml" and block.file), block.text


def test_few_blocks_are_not_run():
    assert (
        sum(block.kind == "text" for page in RUN for block in blocks((ROOT / page).read_text()))
        <= MOST_UNTRIED
    )


@pytest.mark.parametrize(
    "told",
    ["$ echo one", "$ echo one two\none ...", "$ echo one\ntwo", "$ false", "$ echo a problem >&2"],
)
def test_a_block_that_fails_or_prints_something_else_is_noticed(told, tmp_path):
    page, desk = tmp_path / "page.md", tmp_path / "desk"
    page.write_text(f"```console\n{told}\n```\n")
    desk.mkdir()
    is_true = told.startswith("$ echo one") and not told.endswith("\ntwo")
    with Blogs(1) as shop, nullcontext() if is_true else pytest.raises(AssertionError):
        Desk(desk, shop).run(page)


def anchors(page):
    """The headings of a page as GitHub names them."""
    text = BLOCK.sub("", page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", ALL)
def test_links_between_pages_lead_somewhere(page):
    file = ROOT / page
    for path, anchor in re.findall(
        r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", BLOCK.sub("", file.read_text())
    ):
        target = file.parent / path if path else file
        assert target.exists(), f"{path}"
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


def test_every_page_is_found_from_the_first():
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / path).resolve()
        for path in re.findall(r"\]\(([^)#:\s]+)", index.read_text())
    }
    assert [page for page in pages("docs/**/*.md") if (ROOT / page) not in linked | {index}] == []


def test_the_page_of_the_laboratory_has_every_command(tidings):
    listed = re.findall(r"^  (\w+) ", tidings("lab", "--help").split("Commands:")[1], re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"^## (\w+):", LAB.read_text(), re.MULTILINE))


def test_the_guide_for_users_names_every_command(tidings):
    listed = re.findall(r"^  ([\w-]+) ", tidings("--help").split("Commands:")[1], re.MULTILINE)
    guide = (ROOT / "docs" / "guide" / "commands.md").read_text()
    assert [command for command in listed if not re.search(rf"`{command}\b", guide)] == []


def test_papers_are_asked_for_as_the_options_say(tidings, tmp_path, monkeypatch):
    asked = {}

    def run_papers(out, quick, seed, progress):
        progress("one experiment")
        asked.update(out=out, quick=quick, seed=seed)
        return {"quick": quick, "report": str(out / "index.html")}

    monkeypatch.setattr("tidings.lab.papers.run_papers", run_papers)
    assert (
        tidings("lab", "papers", "--quick", "--seed", "4", "--out", tmp_path)
        == f"{tmp_path / 'index.html'}\n"
    )
    assert asked == {"out": tmp_path, "quick": True, "seed": 4}
    assert tidings.json("lab", "papers", "--out", tmp_path)["quick"] is False
    (tmp_path / "file").write_text("")
    assert "is a file; name a directory" in tidings.refuses(
        "lab", "papers", "--out", tmp_path / "file"
    )


def main():
    """Refresh the output of every example in the guide."""
    with tempfile.TemporaryDirectory() as folder:

        def refreshed(example):
            command = example.group(1).splitlines()[0]
            return f"```console\n{command}\n{run(command[2:], folder).rstrip()}\n```"

        LAB.write_text(re.sub(r"```console\n(.*?)```", refreshed, LAB.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
