"""Message catalog (gettext): it is current, and texts of the command line are in it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tidings import i18n
from tidings.cli.help_texts import translate_help

ROOT = Path(__file__).parents[1]
CATALOG = ROOT / "src" / "tidings" / "locale" / "tidings.pot"
CLI = ROOT / "src" / "tidings" / "cli"


def test_catalog_is_current(tmp_path):
    extracted = tmp_path / "tidings.pot"
    options = ["-F", "tools/babel.cfg", "-k", "_", "-k", "n_:1,2", "-k", "N_", "--no-location"]
    options += ["--sort-output", "--omit-header", "-o", str(extracted), "src"]
    command = [sys.executable, "-m", "babel.messages.frontend", "-q", "extract", *options]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    assert extracted.read_text() == CATALOG.read_text(), "run `make messages`"


def test_marked_text_is_not_translated(monkeypatch):
    monkeypatch.setattr(i18n.translations, "gettext", str.upper)
    assert (i18n.N_("Only later"), i18n._("At once")) == ("Only later", "AT ONCE")


def test_help_of_commands_is_translated_by_paragraph(monkeypatch):
    monkeypatch.setattr(i18n.translations, "gettext", str.upper)
    example = "\b\nExample:\n  tidings feeds"
    group = click.Group("lab", help="Simulate.\n\nSeveral\nlines.")
    docstring = "List feeds.\n\n    \b\n    Example:\n      tidings feeds\n    "
    group.add_command(click.Command("feeds", help=docstring))
    translate_help(group)
    assert group.help == "SIMULATE.\n\nSEVERAL LINES."
    assert group.commands["feeds"].help == f"LIST FEEDS.\n\n{example}"


# --- literals of the command line -------------------------------------------------------------

TRANSLATORS = {"_": 1, "n_": 2, "N_": 1}  #: functions, and how many of their arguments are texts
#: Calls that show their arguments to the user.
PRINTERS = {
    "CheckResult",
    "TidingsError",
    "UsageError",
    "_print_errors",
    "_print_labeled",
    "_print_notes",
    "confirm",
    "echo",
    "fail",
    "plot_option",
    "print_result",
    "print_table",
    "progress",
    "prompt",
    "secho",
    "set_text",
    "set_title",
    "set_xlabel",
    "set_ylabel",
}
#: Keyword arguments that are shown to the user, in calls of click and of the plotting functions.
SHOWN_KEYWORDS = {"epilog", "help", "prompt", "short_help", "title", "x", "y"}
#: Values that are shown but are not texts: verdicts of `tidings doctor`, and the program's name.
CODES = {"ok", "warn", "error", "tidings: {}"}
#: Two words, or a word and a value {} of an f-string.
TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,;:.)]? \(?([A-Za-z]{2,}|\{\})|\{\}[,;:.)]? \(?[A-Za-z]{2,}")
WORD = re.compile(r"[A-Za-z]{2,}")


def literal_text(node: ast.expr) -> str:
    """Return the text of a literal, with {} for the values of an f-string; else empty."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def shown_literals(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the literals of which an argument is made, without those inside of calls."""
    if isinstance(node, ast.Constant | ast.JoinedStr):
        yield node
    elif isinstance(node, ast.List | ast.Tuple | ast.IfExp | ast.BinOp | ast.BoolOp | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr) and child is not getattr(node, "test", None):
                yield from shown_literals(child)


def untranslated(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of user-facing literals that are not arguments of gettext functions.

    These are all literals of several words, and all words in the arguments of `PRINTERS` and in
    `SHOWN_KEYWORDS`. Docstrings and type annotations are no literals in this sense.
    """
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in TRANSLATORS:
            children = [*node.args[TRANSLATORS[name] :], *(one.value for one in node.keywords)]
        shown = [*node.args] if name in PRINTERS else []
        shown += [one.value for one in node.keywords if one.arg in SHOWN_KEYWORDS]
        for literal in (one for argument in shown for one in shown_literals(argument)):
            text = literal_text(literal)
            if WORD.search(text.replace("{}", "")) and text not in CODES:
                yield literal.lineno, text
    elif isinstance(node, ast.Constant | ast.JoinedStr):
        text = literal_text(node)
        if TWO_WORDS.search(text) and text not in CODES:
            yield node.lineno, text
        children = [one for one in children if isinstance(one, ast.FormattedValue)]
    elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        if ast.get_docstring(node) is not None:
            children.remove(node.body[0])
        children = [one for one in children if one is not getattr(node, "returns", None)]
    elif isinstance(node, ast.arg | ast.AnnAssign):
        children = [one for one in children if one is not node.annotation]
    for child in children:
        yield from untranslated(child)


@pytest.mark.parametrize("file", sorted(CLI.glob("*.py")), ids=lambda file: file.stem)
def test_texts_of_the_command_line_are_translated(file):
    found = dict.fromkeys(untranslated(ast.parse(file.read_text())))
    assert list(found) == [], "use _() or n_() of tidings.i18n"


@pytest.mark.parametrize(
    "source",
    [
        'click.echo("done")',
        'click.echo(f"{n} feeds")',
        'text = "no feed was found"',
        'text = f"{n} feeds were found"',
        'raise UsageError("unknown feed " + url)',
        'click.option("--feed", help="Feed.")',
        'print_table(["id", _("title")], rows)',
        'print_table([_("id")], [["retired" if gone else ""]])',
        'print_result(result, lambda: print_table(["id"], rows))',
        'progress("polling", total=1)',
        'CheckResult("disk", "ok", _("free"))',
        '_("%(n)s found", n="several feeds")',
        'bar.set_text("polling" if busy else "")',
        'plots.figure(7.0, 3.2, title="Delays")',
    ],
)
def test_untranslated_literal_is_found(source):
    assert list(untranslated(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        'click.echo(_("done"))',
        'def run(feed: "Feed | None") -> "Feed | None":\n    """Run a command."""',
        'print_table([_("id"), ""], [[f"{n:,}", "–"]])',
        'n_("%(num)s feed", "%(num)s feeds", n)',
        'click.echo(f"{address}: {_text(n)}")',
        'time.strftime("%Y-%m-%d %H:%M UTC")',
    ],
)
def test_translated_texts_and_codes_pass(source):
    assert list(untranslated(ast.parse(source))) == []
