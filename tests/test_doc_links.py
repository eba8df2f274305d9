"""Headings of the documentation are clear and unique, and pages named in the source exist.

``tests/cli/test_docs.py`` checks the links between pages, including their anchors.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md")
    for page in ROOT.glob(pattern)
)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
#: Sections of a version, named by the convention of Keep a Changelog.
CHANGE_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Unreleased"}
SOURCE_SUFFIXES = {".py", ".html", ".yaml", ".service", ".toml"}
DOC_PATH = re.compile(r"\bdocs/[\w/.-]+\.(?:md|toml|py|png)\b")


def headings(text):
    """Return the headings of a page as (level, text)."""
    found = re.findall(r"^(#+) (.+)$", CODE_BLOCK.sub("", text), re.MULTILINE)
    return [(len(marks), heading) for marks, heading in found]


def unclear_headings(text):
    """Return section headings of a single word: read alone, it does not name a topic."""
    return [
        heading
        for level, heading in headings(text)
        if level > 1
        and len(heading.split()) < 2
        and not heading.endswith("()")
        and heading not in CHANGE_KINDS
    ]


@pytest.mark.parametrize("page", PAGES)
def test_page_starts_with_its_only_title(page):
    text = (ROOT / page).read_text()
    assert text.startswith("# ")
    assert [level for level, _ in headings(text)].count(1) == 1


@pytest.mark.parametrize("page", PAGES)
def test_section_headings_name_a_topic(page):
    assert unclear_headings((ROOT / page).read_text()) == []


def test_headings_of_one_word_are_found():
    text = "# Title\n\n## Limits\n\n## Size limits\n\n```text\n## Comment\n```\n\n### clamp()\n"
    assert unclear_headings(text) == ["Limits"]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_headings_of_a_page_are_unique(page):
    """Two equal headings would have one anchor, and a link would open only the first."""
    found = [heading.lower() for _, heading in headings((ROOT / page).read_text())]
    assert sorted(found) == sorted(set(found))


def test_titles_of_pages_are_unique():
    titles = [headings((ROOT / page).read_text())[0][1] for page in PAGES]
    assert sorted(titles) == sorted(set(titles))


def test_pages_named_in_the_source_exist():
    files = [ROOT / "Dockerfile", ROOT / "Makefile", ROOT / "pyproject.toml"]
    for folder in ("src", "tests", "benchmarks", "tools", "deploy"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in SOURCE_SUFFIXES]
    named = {(path, file.name) for file in files for path in DOC_PATH.findall(file.read_text())}
    assert len(named) > 20
    assert sorted((path, name) for path, name in named if not (ROOT / path).is_file()) == []
