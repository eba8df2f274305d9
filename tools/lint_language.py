"""Find banned words (`banned_words.toml`) in docs, docstrings, comments and interface texts.

Usage: python tools/lint_language.py [PATH...]   (default: src, docs, README.md, CONTRIBUTING.md)
Exits with 1 and prints `path:line: word (write: ...)` for every hit.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_PATHS = ("src", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
BANNED = tomllib.loads((ROOT / "tools/banned_words.toml").read_text())["banned"]
RULES = [
    (re.compile(rf"\b(?:{rule['pattern']})\b", re.IGNORECASE), rule["instead"]) for rule in BANNED
]
#: A string that is neither a docstring nor an interface text: identifiers, SQL, paths, formats.
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER TABLE|DROP|WITH)\b")
CODE = re.compile(
    r"```.*?```|~~~.*?~~~|``[^`]+``|`[^`\n]+`|<code>.*?</code>|https?://\S+", re.DOTALL
)


def find_banned(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, banned word, replacement) for prose; code in backticks is skipped."""
    prose = CODE.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    for pattern, instead in RULES:
        for match in pattern.finditer(prose):
            yield prose.count("\n", 0, match.start()) + 1, match.group(), instead


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of comments, docstrings and string literals that are sentences."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if " " in text.strip() and not SQL.search(text):
                yield node.lineno, text


def template_text(source: str) -> str:
    """Return the visible texts of a template, with scripts, tags and expressions blanked out."""
    keep = re.sub(
        r"<(script|style)\b.*?</\1>",
        lambda m: re.sub(r"[^\n]", " ", m.group()),
        source,
        flags=re.DOTALL,
    )

    def expression(match: re.Match[str]) -> str:
        literals = [m.span() for m in re.finditer(r"\"[^\"]*\"|'[^']*'", match.group())]
        return "".join(
            c
            if c == "\n" or any(a < i < b - 1 and " " in match.group()[a:b] for a, b in literals)
            else " "
            for i, c in enumerate(match.group())
        )

    keep = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", expression, keep, flags=re.DOTALL)
    shown = re.compile(r"\b(title|placeholder|aria-label|alt)=\"([^\"]*)\"")
    return re.sub(
        r"<[^>]*>",
        lambda m: (
            re.sub(r"[^\n]", " ", m.group())
            if not shown.search(m.group())
            else re.sub(r"[^\n]", " ", shown.sub("", m.group()))
            + " ".join(value for _, value in shown.findall(m.group()))
        ),
        keep,
    )


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python_texts(source)
    elif path.suffix == ".html":
        yield 1, template_text(source)
    elif path.suffix == ".md":
        yield 1, source


def check(paths: list[Path]) -> list[str]:
    """Return one message for every banned word in these files and folders."""
    hits = []
    files = sorted(
        file
        for path in paths
        for file in (path.rglob("*") if path.is_dir() else [path])
        if file.suffix in {".py", ".html", ".md"} and "__pycache__" not in file.parts
    )
    for file in files:
        name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        for first_line, text in texts_of(file):
            hits += [
                f"{name}:{first_line + line - 1}: {word!r} (write: {instead})"
                for line, word, instead in find_banned(text)
            ]
    return hits


def main() -> int:
    paths = [Path(argument) for argument in sys.argv[1:]] or [
        ROOT / name for name in DEFAULT_PATHS if (ROOT / name).exists()
    ]
    hits = check(paths)
    print("\n".join(hits))
    print(f"{len(hits)} banned words or phrases", file=sys.stderr)
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main())
