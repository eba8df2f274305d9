"""Babel extraction method for `tidings.cli`: calls of gettext, and the help of commands.

The help of a command is its docstring. Each paragraph is one message, as in
`tidings.cli.help_texts.translate_help`; examples (paragraphs after a backspace character) are not.
"""

import ast
from collections.abc import Collection, Iterator
from typing import IO, Any

from babel.messages.extract import extract_python

Message = tuple[int, str | None, Any, list[str]]


def extract(
    file: IO[bytes], keywords: Any, comment_tags: Collection[str], options: Any
) -> Iterator[Message]:
    """Yield the messages of a Python file as Babel expects them: line, function, text, comments."""
    yield from extract_python(file, keywords, comment_tags, options)
    file.seek(0)
    for line, text in command_help(file.read().decode()):
        yield line, None, text, []


def command_help(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, paragraph) of the docstrings of click commands and groups."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_command(node):
            for text in (ast.get_docstring(node) or "").split("\n\n"):
                if not text.startswith("\b"):
                    yield node.lineno, " ".join(text.split())


def _is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a decorator such as ``@click.command()`` or ``@lab.command()`` is applied."""
    calls = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr in ("command", "group") for one in calls)
