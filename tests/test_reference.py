"""docs/reference.md: API reference for plug-ins and studies, generated from the source.

``python -m tests.test_reference`` writes it.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference.md"
MODULES = ("policy.base", "policy.registry", "model")
MODULES += tuple(
    f"lab.{name}"
    for name in ("traces", "generate", "simulate", "score", "compare", "lower_bound", "whatif")
)
INTRODUCTION = """# Python API for policies and studies

Python API for writing a policy ([plugins.md](plugins.md)) or a study ([lab.md](lab.md)). This page
is generated from the source by `python -m tests.test_reference`.
"""


def docstring(node):
    """Return a docstring as Markdown."""
    return re.sub(r"``(.+?)``", r"`\1`", ast.get_docstring(node) or "")


def call(node):
    text = f"{node.name}({ast.unparse(node.args)}) -> {ast.unparse(node.returns)}"
    return re.sub(r"\((?:self|cls)(?:, )?", "(", text.replace('"', "").replace("'", ""))


def is_documented(node):
    """Return whether a node has a docstring and is public, or an abstract method of policies."""
    is_api = not node.name.startswith("_") or any(
        ast.unparse(d) == "abstractmethod" for d in node.decorator_list
    )
    return is_api and bool(ast.get_docstring(node))


def members(kind, lines):
    """Yield fields with their trailing comments, and methods."""
    for node in kind.body:
        if isinstance(node, ast.AnnAssign) and (
            comment := re.search(r"#: (.*)", lines[node.end_lineno - 1])
        ):
            yield f"- `{ast.unparse(node.target)}: {ast.unparse(node.annotation)}`: {comment[1]}\n"
        elif isinstance(node, ast.FunctionDef) and is_documented(node):
            yield f"- `{call(node)}`: {' '.join(docstring(node).split())}\n"


def page():
    text = INTRODUCTION
    for module in MODULES:
        source = (
            (ROOT / "src" / "tidings" / module.replace(".", "/")).with_suffix(".py").read_text()
        )
        tree, lines = ast.parse(source), source.splitlines()
        text += f"\n## Module tidings.{module}\n\n{docstring(tree)}\n"
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and is_documented(node):
                text += f"\n### class {node.name}\n\n{docstring(node)}\n"
                text += "".join(["\n", *found]) if (found := list(members(node, lines))) else ""
            elif isinstance(node, ast.FunctionDef) and is_documented(node):
                text += f"\n### {node.name}()\n\n`{call(node)}`\n\n{docstring(node)}\n"
    return text


def test_reference_page_is_current():
    assert PAGE.read_text() == page(), "run: python -m tests.test_reference"


if __name__ == "__main__":
    PAGE.write_text(page())
