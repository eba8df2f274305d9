"""Output and parameter types of commands: tables, JSON, progress bars, lists, durations.

Results go to stdout, everything else to stderr. Tables are aligned columns without boxes. Color and
progress bars appear only on a terminal, so pipes and files get plain text.
"""

import json
import math
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

import click

from tidings.i18n import _, n_

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
#: Table width where stdout is not a terminal: no line is wrapped.
MAX_TABLE_WIDTH = 1_000_000

# --- parameter types ------------------------------------------------------------------------


class NumberList(click.ParamType[list[float]]):
    """Comma-separated numbers: ``30,30,10,10``.

    Args:
        low: smallest allowed value.
        above: value that all numbers must exceed.
    """

    name = "numbers"

    def __init__(self, *, low: float | None = None, above: float | None = None) -> None:
        self.low, self.above = low, above

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        if isinstance(value, list):  # click also converts default values
            return value
        return [
            self._parse_number(text.strip(), position)
            for position, text in enumerate(str(value).split(","), start=1)
        ]

    def _parse_number(self, text: str, position: int) -> float:
        try:
            number = float(text)
        except ValueError:
            self.fail(
                _(
                    "%(text)r at position %(position)s is not a number; separate numbers with "
                    "commas, for example 30,30,10,10",
                    text=text,
                    position=position,
                )
            )
        if not math.isfinite(number):
            self.fail(
                _(
                    "%(text)s at position %(position)s is not a finite number",
                    text=text,
                    position=position,
                )
            )
        if self.low is not None and number < self.low:
            self.fail(
                _(
                    "%(text)s at position %(position)s must be at least %(low)s",
                    text=text,
                    position=position,
                    low=f"{self.low:g}",
                )
            )
        if self.above is not None and number <= self.above:
            self.fail(
                _(
                    "%(text)s at position %(position)s must be above %(above)s",
                    text=text,
                    position=position,
                    above=f"{self.above:g}",
                )
            )
        return number


class NameList(click.ParamType[list[str]]):
    """Comma-separated, distinct names: ``uniform,min-delay``."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        if isinstance(value, list):
            return value
        names = [name.strip() for name in str(value).split(",")]
        if not all(names):
            self.fail(
                _(
                    "%(value)r contains an empty name; separate names with commas, for example "
                    "uniform,min-delay",
                    value=value,
                )
            )
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            self.fail(_("%(repeated)s is listed twice", repeated=", ".join(repeated)))
        return names


class Duration(click.ParamType[float]):
    """Duration with a unit, converted to seconds: ``30min``, ``12h``, ``7d``."""

    name = "time"
    units_s = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
    pattern = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = self.pattern.fullmatch(str(value).strip())
        if found is None or found[2] not in self.units_s or not float(found[1]):
            self.fail(
                _(
                    "%(value)r is not a duration; write a number and one of %(units_s)s, for "
                    "example 30min, 12h or 7d",
                    value=value,
                    units_s=", ".join(self.units_s),
                )
            )
        return float(found[1]) * self.units_s[found[2]]


class DurationList(Duration):
    """Comma-separated durations, converted to seconds: ``30min,16h``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return [
            super(DurationList, self).convert(part, param, ctx) for part in str(value).split(",")
        ]


class OutputPath(click.ParamType[Path]):
    """Path for a result, checked before a long computation starts.

    Args:
        suffixes: allowed file name suffixes; all if empty.
        directory: whether the path must be a directory, which may not exist yet.
    """

    name = "file"

    def __init__(self, *suffixes: str, directory: bool = False) -> None:
        self.suffixes, self.directory = suffixes, directory

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = Path(value)
        if self.directory:
            if path.exists() and not path.is_dir():
                self.fail(_("%(path)s is a file; choose a directory", path=path))
        elif self.suffixes and path.suffix.lower() not in self.suffixes:
            self.fail(
                _(
                    "%(path)s: the suffix must be one of %(suffixes)s",
                    path=path,
                    suffixes=", ".join(self.suffixes),
                )
            )
        elif not path.resolve().parent.is_dir():
            self.fail(
                _(
                    "%(path)s: there is no directory %(parent)s; create it first",
                    path=path,
                    parent=path.parent,
                )
            )
        return path


# --- printing -------------------------------------------------------------------------------


def print_result(result: Any, text: str | Callable[[], object]) -> None:
    """Print a command's result: as JSON with --json, else as text.

    Args:
        result: the value for JSON.
        text: the text, or a function that prints it.
    """
    if wants_json():
        print_json(result)
    elif isinstance(text, str):
        click.echo(text)
    else:
        text()


def wants_json() -> bool:
    """Return whether the current command was called with --json."""
    return bool(click.get_current_context().meta.get(__name__))


def print_json(value: Any) -> None:
    """Print one JSON document; NaN and infinity become null, since JSON has neither."""
    click.echo(_json(value, indent=2))


async def print_json_list(values: AsyncIterator[Any]) -> None:
    """Stream a JSON array, one element per line, with memory for one element."""
    separator = "["
    async for value in values:
        click.echo(f"{separator}\n{_json(value)}", nl=False)
        separator = ","
    click.echo("[]" if separator == "[" else "\n]")


def _json(value: Any, indent: int | None = None) -> str:
    """Encode as JSON; characters that the encoding of stdout lacks are escaped."""
    is_unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(_to_plain(value), indent=indent, ensure_ascii=not is_unicode, allow_nan=False)


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if hasattr(value, "tolist"):  # a numpy array or scalar; checked without importing numpy
        return _to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> None:
    """Print a table: the first ``left`` columns left-aligned, the others right-aligned."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout.isatty()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column, heading in enumerate(headings):
        table.add_column(
            Text(heading),
            justify="left" if column < left else "right",
            overflow="fold",
            no_wrap=column >= left,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    buffer = StringIO()
    width = None if is_terminal else MAX_TABLE_WIDTH
    Console(file=buffer, force_terminal=is_terminal, highlight=False, width=width).print(table)
    click.echo("\n".join(line.rstrip() for line in buffer.getvalue().splitlines()))


def feeds_text(number: int) -> str:
    """Format a number of feeds: ``1 feed``, ``1,200 feeds``."""
    return n_("%(num)s feed", "%(num)s feeds", number)


def posts_text(number: int) -> str:
    """Format a number of posts: ``1 post``, ``1,200 posts``."""
    return n_("%(num)s post", "%(num)s posts", number)


# --- progress -------------------------------------------------------------------------------


class Progress:
    """Progress bar on stderr; does nothing if stderr is not a terminal."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task = bar, task

    def set_text(self, text: str) -> None:
        """Set the text beside the bar."""
        if self._bar is not None:
            self._bar.update(self._task, description=text)

    def advance(self, steps: float = 1.0) -> None:
        if self._bar is not None:
            self._bar.advance(self._task, steps)

    def report(self, text: str, steps: float) -> None:
        """Advance the bar by ``steps`` and set its text."""
        self.advance(steps)
        self.set_text(text)

    def set_position(self, steps: float, total: float) -> None:
        """Set the completed steps and the total, where the total is not known at the start."""
        if self._bar is not None:
            self._bar.update(self._task, completed=steps, total=total)


@contextmanager
def progress(text: str, total: float | None = None) -> Iterator[Progress]:
    """Show a progress bar with elapsed and remaining time; it is removed at the end.

    Args:
        text: what is being done.
        total: number of steps; None shows a bar without a position.
    """
    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns: list[Any] = [
        rich_progress.TextColumn("{task.description}", markup=False),
        rich_progress.BarColumn(bar_width=24, complete_style="cyan"),
    ]
    if total is not None:
        columns.append(rich_progress.MofNCompleteColumn())
    columns += [
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn(_("remaining")),
        rich_progress.TimeRemainingColumn(),
    ]
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Progress(bar, bar.add_task(text, total=total))


# --- shared options -------------------------------------------------------------------------


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[__name__] = value


json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=_set_json,
    help=_("JSON output."),
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help=_("Random seed."),
)


def plot_option(what: str) -> Callable[[Decorated], Decorated]:
    """Return the option ``--plot FILE``; ``what`` names what is drawn."""
    suffixes = (".png", ".svg", ".pdf")
    text = _(
        "Plot of %(what)s; file type by suffix (%(suffixes)s).",
        what=what,
        suffixes=", ".join(suffixes),
    )
    return click.option("--plot", type=OutputPath(*suffixes), metavar="FILE", help=text)
