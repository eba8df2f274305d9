"""Imports, dependencies in `pyproject.toml`, and docs/design/dependencies.md agree."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests import TEST_TIMEOUT_S

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = (ROOT / "docs" / "design" / "dependencies.md").read_text()


def names(requirements: list[str]) -> set[str]:
    return {plain(re.split(r"[\[<>=;~! ]", line, maxsplit=1)[0]) for line in requirements}


def plain(name: str) -> str:
    """Normalize a package name (PEP 503): Brotli, backports.zstd, argon2_cffi."""
    return re.sub(r"[-_.]+", "-", name).lower()


PARTS = {"always": names(PROJECT["dependencies"])}
PARTS |= {part: names(lines) for part, lines in PROJECT["optional-dependencies"].items()}


def imported() -> dict[str, set[Path]]:
    """Return the packages that the source imports, also within functions, with the files."""
    found: dict[str, set[Path]] = {}
    owners = packages_distributions()
    for file in sorted((ROOT / "src").rglob("*.py")):
        for module in modules(ast.parse(file.read_text())):
            if module not in sys.stdlib_module_names and module not in ("tidings", "compression"):
                for owner in owners.get(module, [f"{module}, which is not installed"]):
                    found.setdefault(plain(owner), set()).add(file.relative_to(ROOT))
    return found


def modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_imports_are_declared_dependencies() -> None:
    declared = set().union(*(stated for part, stated in PARTS.items() if part != "dev"))
    unstated = {name: files for name, files in imported().items() if name not in declared}
    assert not unstated


@pytest.mark.parametrize("part", PARTS)
def test_dependencies_are_documented(part: str) -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)
    explained = {
        plain(name)
        for cell, of, _ in rows
        if of.strip("`").split(",")[0] == part
        for name in cell.split(", ")
    }
    assert explained == PARTS[part]


def locked(file: str) -> dict[str, str]:
    lock = (ROOT / file).read_text()
    assert "://" not in lock, "the lock file has a URL"
    assert not re.search(r"^\s*-", lock.replace("    --hash", ""), re.MULTILINE), "it has options"
    return {
        plain(name): version
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    }


def test_lock_files_are_complete() -> None:
    runs, tests = locked("requirements.lock"), locked("requirements-dev.lock")
    assert set().union(*(stated for part, stated in PARTS.items() if part != "dev")) <= runs.keys()
    assert PARTS["dev"] <= tests.keys()
    assert runs.items() < tests.items()


def test_service_and_demo_need_no_extra() -> None:
    extra = set().union(*PARTS.values()) - PARTS["always"]
    missing = [
        module
        for module, owners in packages_distributions().items()
        if {plain(owner) for owner in owners} <= extra
    ]
    hidden = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\n"
    code = hidden + "import tidings.service, tidings.web.app, tidings.demo.run"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S,
        check=False,
    )
    assert ended.stderr == ""
