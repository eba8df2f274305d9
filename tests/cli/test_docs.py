"""Documentation: code blocks run as written, links are valid, every command is documented.

``python -m tests.cli.test_docs`` updates the output of the examples in docs/lab.md.
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
from tests.cli.doc_pages import BLOCK, NOT_TESTED, ROOT, PageRunner, blocks, pages

LAB = ROOT / "docs" / "lab.md"
#: Pages whose commands are run, each page in one shell.
RUN = pages("README.md", "docs/guide/*.md")
ALL = pages("*.md", "docs/**/*.md")
#: Maximum number of blocks in all pages that need root, Docker or another computer.
MAX_NOT_TESTED = 6


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
    """Check that the programs used by pages are installed; fail in CI, skip elsewhere."""
    missing = [tool for tool in ("bash", "make", "curl", "md5sum") if shutil.which(tool) is None]
    if missing:
        text = f"missing programs; run: apt-get install {' '.join(missing)}"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)


def test_lab_page_runs_as_written(tmp_path):
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
def test_page_runs_as_written(page, tmp_path):
    need_tools()
    with Blogs(4) as blogs:
        PageRunner(tmp_path, blogs).run(page)


@pytest.mark.parametrize("page", RUN)
def test_blocks_that_are_not_run_are_marked(page):
    for block in blocks((ROOT / page).read_text()):
        if block.kind == "console":
            assert block.text.startswith("$ "), block.text
        elif block.kind == "text":
            assert NOT_TESTED in " ".join(block.before.split()), block.text
        else:
            assert block.kind == "python" or (block.kind == "toml" and block.file), block.text


def test_number_of_blocks_that_are_not_run():
    assert (
        sum(block.kind == "text" for page in RUN for block in blocks((ROOT / page).read_text()))
        <= MAX_NOT_TESTED
    )


@pytest.mark.parametrize(
    "text",
    ["$ echo one", "$ echo one two\none ...", "$ echo one\ntwo", "$ false", "$ echo a problem >&2"],
)
def test_failing_block_or_different_output_is_detected(text, tmp_path):
    page, desk = tmp_path / "page.md", tmp_path / "desk"
    page.write_text(f"```console\n{text}\n```\n")
    desk.mkdir()
    is_true = text.startswith("$ echo one") and not text.endswith("\ntwo")
    with Blogs(1) as blogs, nullcontext() if is_true else pytest.raises(AssertionError):
        PageRunner(desk, blogs).run(page)


def anchors(page):
    """Return the anchors that GitHub gives to the headings of a page."""
    text = BLOCK.sub("", page.read_text())
    return {
        re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-")
        for line in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", ALL)
def test_links_between_pages_are_valid(page):
    file = ROOT / page
    for path, anchor in re.findall(
        r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", BLOCK.sub("", file.read_text())
    ):
        target = file.parent / path if path else file
        assert target.exists(), f"{path}"
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


def test_index_links_to_every_page():
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / path).resolve()
        for path in re.findall(r"\]\(([^)#:\s]+)", index.read_text())
    }
    assert [page for page in pages("docs/**/*.md") if (ROOT / page) not in linked | {index}] == []


def test_lab_page_has_every_lab_command(tidings):
    listed = re.findall(r"^  (\w+) ", tidings("lab", "--help").split("Commands:")[1], re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"^## (\w+):", LAB.read_text(), re.MULTILINE))


def test_guide_has_every_command(tidings):
    listed = re.findall(r"^  ([\w-]+) ", tidings("--help").split("Commands:")[1], re.MULTILINE)
    guide = (ROOT / "docs" / "guide" / "commands.md").read_text()
    assert [command for command in listed if not re.search(rf"`{command}\b", guide)] == []


def test_papers_command_passes_its_options(tidings, tmp_path, monkeypatch):
    options = {}

    def run_papers(out, quick, seed, progress):
        progress("one experiment")
        options.update(out=out, quick=quick, seed=seed)
        return {"quick": quick, "report": str(out / "index.html")}

    monkeypatch.setattr("tidings.lab.papers.run_papers", run_papers)
    assert (
        tidings("lab", "papers", "--quick", "--seed", "4", "--out", tmp_path)
        == f"{tmp_path / 'index.html'}\n"
    )
    assert options == {"out": tmp_path, "quick": True, "seed": 4}
    assert tidings.json("lab", "papers", "--out", tmp_path)["quick"] is False
    (tmp_path / "file").write_text("")
    assert "is a file; choose a directory" in tidings.expect_error(
        "lab", "papers", "--out", tmp_path / "file"
    )


def main():
    """Update the output of every example in docs/lab.md."""
    with tempfile.TemporaryDirectory() as folder:

        def refreshed(example):
            command = example.group(1).splitlines()[0]
            return f"```console\n{command}\n{run(command[2:], folder).rstrip()}\n```"

        LAB.write_text(re.sub(r"```console\n(.*?)```", refreshed, LAB.read_text(), flags=re.DOTALL))


if __name__ == "__main__":
    main()
